//! Readers of texts: pages, documents, source code, sentences, questions, words.

use std::sync::LazyLock;

use semlex_core::chunk::code::Language;
use semlex_core::chunk::tokens::Tokens;
use semlex_core::chunk::{MIN_MAX_BYTES, Options, Structure, split_text};
use semlex_core::excerpts::excerpt;
use semlex_core::html::HtmlReader;
use semlex_core::keyword::analyzer::{Analyzer, parse_query};
use semlex_core::keyword::is_typed;
use semlex_core::near_duplicates::shared_shingles;
use semlex_core::sentences::rank::{Passage, rank};
use semlex_core::sentences::split::sentences;
use semlex_core::validate;

use super::{Target, behaviour, coarse};
use crate::inputs::Input;

pub(crate) const HTML: Target = Target {
    name: "html",
    run: html,
    examples: || vec![include_bytes!("../../corpus/page.html").to_vec()],
    words: &[
        b"<p>",
        b"</p>",
        b"<div class=\"nav\">",
        b"<table><tr><td>",
        b"<pre>",
        b"</pre>",
        b"<script>",
        b"</script>",
        b"<title>",
        b"<h1>",
        b"<li>",
        b"<ul>",
        b"</ul>",
        b"<!--",
        b"-->",
        b"<![CDATA[",
        b"&amp;",
        b"&#x10ffff;",
        b"&#xffffffffff;",
        b"&notin",
        b"<img alt='",
        b"<svg>",
        b"<nav>",
        b"</nav>",
        b"<a href=",
        b"\"",
        b"'",
        b"<",
        b">",
        b"&",
        b"`",
        b"<br/>",
        b"<textarea>",
        b"\xc2\xa0",
    ],
};
pub(crate) const MARKDOWN: Target = Target {
    name: "markdown",
    run: |input| split(input, Structure::Markdown),
    examples: || vec![with_options(include_bytes!("../../corpus/document.md"))],
    words: &[
        b"# ",
        b"###### ",
        b"\n\n",
        b"```\n",
        b"~~~",
        b"````",
        b"- ",
        b"1. ",
        b"| a | b |\n|---|---|\n",
        b"> ",
        b"    ",
        b"\t",
        b"===\n",
        b"---\n",
        b"[a](b)",
        b"<!--",
        b"-->",
        b"$$",
        b"\r\n",
        b"\r",
        b"\xe2\x80\xa8",
        b"* * *\n",
        b"\xef\xbb\xbf",
        b"\xe3\x80\x82",
    ],
};
pub(crate) const RESTRUCTURED: Target = Target {
    name: "restructured",
    run: |input| split(input, Structure::Restructured),
    examples: || vec![with_options(include_bytes!("../../corpus/document.rst"))],
    words: &[
        b"\n====\n",
        b"\n----\n",
        b"====\n",
        b"::\n\n",
        b".. code-block:: python\n\n",
        b".. note::\n",
        b"    ",
        b"* ",
        b"+---+---+\n",
        b"| a | b |\n",
        b"=== ===\n",
        b":field: ",
        b"``a``",
        b"\n\n",
        b".. _target:\n",
        b"\r\n",
        b"~~~~",
    ],
};
pub(crate) const CODE: Target = Target {
    name: "code",
    run: code,
    examples: || {
        let code = include_bytes!("../../corpus/program.txt");
        (0..6)
            .map(|language| [&[language], &*with_options(code)].concat())
            .collect()
    },
    words: &[
        b"{",
        b"}",
        b"/*",
        b"*/",
        b"//",
        b"\"\"\"",
        b"'''",
        b"\"",
        b"'",
        b"\\",
        b"def f():\n",
        b"class A:\n",
        b"    ",
        b"\n\n",
        b"end\n",
        b"do\n",
        b";",
        b"$$",
        b"$a$",
        b"--",
        b"[section]\n",
        b"#",
        b"(",
        b")",
        b"`",
        b"BEGIN",
        b"r#\"",
    ],
};
pub(crate) const SENTENCES: Target = Target {
    name: "sentences",
    run: passages,
    examples: || {
        vec![
            include_bytes!("../../corpus/document.md").to_vec(),
            include_bytes!("../../corpus/document.rst").to_vec(),
        ]
    },
    words: &[
        b". ",
        b"? ",
        b"e.g. ",
        b"\n\n",
        b"```\n",
        b"# ",
        b"- ",
        b"| a |",
        b"\xe3\x80\x82",
        b"\xe2\x80\xa6",
        b"...",
        b"Mr. ",
        b"1.2",
        b"\"",
        b")",
        b"\t",
        b"\r\n",
        b"=====\n",
        b"words",
    ],
};
pub(crate) const QUERY: Target = Target {
    name: "query",
    run: query,
    examples: || {
        let queries = [
            "-\"not this\" but \u{201E}that\u{201C} -word",
            "e-mail caf\u{e9} 5\" pipe -5",
            "\u{AB}x\u{BB} it's",
        ];
        queries
            .map(|query| [&[0], query.as_bytes()].concat())
            .to_vec()
    },
    words: &[
        b"\"",
        b" -",
        b"-\"",
        b"\xe2\x80\x9c",
        b"\xe2\x80\x9d",
        b"\xe2\x80\x9e",
        b"\xc2\xab",
        b"\xc2\xbb",
        b" ",
        b"'",
        b"-",
        b".",
        b"@",
        b"_",
        b"cafe\xcc\x81",
        b"caf\xc3\xa9",
        b"the",
        b"\xe4\xb8\xad\xe6\x96\x87",
        b"\xe0\xb8\x81",
    ],
};
pub(crate) const ANALYZER: Target = Target {
    name: "analyzer",
    run: terms,
    examples: || {
        let document = include_bytes!("../../corpus/document.md");
        (0..9)
            .map(|language| [&[language], &document[..]].concat())
            .collect()
    },
    words: &[
        b"-",
        b"'",
        b".",
        b"@",
        b"_",
        b"/",
        b":",
        b"\xcc\x81",
        b"\xc3\x9f",
        b"\xc4\xb0",
        b"\xe4\xb8\xad",
        b"\xe3\x81\x82",
        b"\xed\x95\x9c",
        b"\xe0\xb8\x81",
        b"\xd7\xa9",
        b"\xd8\xa7",
        b"\xf0\x9f\x98\x80",
        b"\xe2\x80\x8d",
        b"1.000,5",
        b"https://a.b/c",
        b"camelCase",
        b"\xc2\xad",
    ],
};

/// Terms of a query.
const MAX_TERMS: usize = 64;

const LANGUAGES: [&str; 9] = [
    "english", "german", "french", "turkish", "chinese", "thai", "arabic", "hindi", "simple",
];

static READER: LazyLock<HtmlReader> = LazyLock::new(|| {
    let named = [
        ("amp", "&"),
        ("amp;", "&"),
        ("lt", "<"),
        ("lt;", "<"),
        ("gt;", ">"),
        ("nbsp", "\u{a0}"),
        ("nbsp;", "\u{a0}"),
        ("not", "\u{ac}"),
        ("notin;", "\u{2209}"),
        ("acE;", "\u{223e}\u{333}"),
        ("Tab;", "\t"),
        ("NewLine;", "\n"),
    ];
    HtmlReader::new(named.map(|(name, value)| (name.to_owned(), value.to_owned())))
});

#[allow(clippy::expect_used, reason = "without them texts would not be read")]
static ANALYZERS: LazyLock<[Analyzer; 9]> = LazyLock::new(|| {
    LANGUAGES.map(|language| Analyzer::new(language, true).expect("a language of the core"))
});

fn analyzer(number: u8) -> &'static Analyzer {
    &ANALYZERS[usize::from(number) % ANALYZERS.len()]
}

/// In front of a text: its chunks' most tokens, overlap, least tokens, and most bytes.
fn with_options(text: &[u8]) -> Vec<u8> {
    [&[40, 5, 10, 200], text].concat()
}

fn html(input: &[u8]) -> u64 {
    let page = String::from_utf8_lossy(input);
    let found = READER.to_markdown(&page);
    let title = found.title.as_deref().map(str::len).map(coarse);
    let markdown = with_options(found.text.as_bytes());
    behaviour((
        title,
        coarse(found.text.len()),
        split(&markdown, Structure::Markdown),
    ))
}

fn code(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let languages = [
        Language::Python,
        Language::Braces,
        Language::Words,
        Language::Sql,
        Language::Brackets,
        Language::Other,
    ];
    let language = languages
        .get(input.below(6))
        .copied()
        .unwrap_or(Language::Other);
    split(input.rest(), Structure::Code(language))
}

/// Cuts a text into chunks, which must be slices of it that ascend and keep every character that is not blank.
fn split(input: &[u8], structure: Structure) -> u64 {
    let mut input = Input::new(input);
    let max_tokens = 1 + input.below(255);
    let overlap_tokens = input.below(32).min(max_tokens - 1);
    let min_tokens = input.below(64);
    let max_bytes = MIN_MAX_BYTES + usize::from(input.byte()) * 8;
    let text = input.text();
    let options = Options {
        max_tokens,
        overlap_tokens,
        min_tokens,
        max_bytes,
        structure,
    };
    let found = split_text(&text, &Tokens::of_words(&text), &options);
    let mut end = 0;
    for chunk in &found.chunks {
        assert!(text.get(chunk.range.clone()).is_some());
        assert!(chunk.range.len() <= max_bytes && chunk.range.end > end);
        let between = text.get(end..chunk.range.start).unwrap_or_default();
        assert!(between.chars().all(is_blank));
        end = chunk.range.end;
    }
    assert!(text.get(end..).unwrap_or_default().chars().all(is_blank));
    behaviour((
        coarse(found.chunks.len()),
        coarse(found.titles.len()),
        found.title.is_some(),
    ))
}

/// As Python's `str.isspace` has it.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn passages(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let found = sentences(&text);
    for sentence in &found {
        assert!(text.get(sentence.range.clone()).is_some());
    }
    let words = ["words".to_owned(), "sentenc".to_owned(), "a".to_owned()];
    let places = analyzer(0).match_places([&*text], &words);
    let shown = excerpt(&text, places.first().map_or(&[], Vec::as_slice));
    let passage = Passage {
        text: &text,
        headings: "Words > A title",
    };
    let ranked = rank(analyzer(0), &words, &[passage]);
    assert!(
        ranked
            .iter()
            .all(|one| one.score >= 0.0 && one.own <= 1.0 + 1e-9)
    );
    let half = text.len() / 2;
    let middle = (half..=text.len()).find(|&place| text.is_char_boundary(place));
    let (left, right) = text.split_at(middle.unwrap_or(0));
    let shared = shared_shingles(&[&text, left, right]);
    assert!(shared.iter().all(|share| (0.0..=1.0).contains(share)));
    behaviour((
        coarse(found.len()),
        coarse(shown.shown.len()),
        shown.first_match.map(coarse),
    ))
}

fn query(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let analyzer = analyzer(input.byte());
    let text = input.text();
    let parsed = parse_query(&text);
    let terms = analyzer.query(&parsed, MAX_TERMS);
    // A word with accents has a term that keeps them, beside its folded one.
    let counted = terms.wanted.iter().filter(|(_, term)| !is_typed(term));
    assert!(counted.count() <= MAX_TERMS && terms.wanted.len() <= 2 * MAX_TERMS);
    let matched = analyzer.matches([&*text, "e-mail words"], &terms.phrases, &terms.excluded);
    let refused = validate::id(&text).len() + validate::identifier(&text).len();
    behaviour((
        terms.wanted.len(),
        terms.phrases.len(),
        terms.excluded.len(),
        matched,
        refused,
    ))
}

fn terms(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let number = input.byte();
    let analyzer = analyzer(number);
    let text = input.text();
    let (mut count, mut longest) = (0, 0);
    analyzer.text_terms(&text, |term| {
        count += 1;
        longest = term.len().max(longest);
    });
    let wanted: Vec<String> = text.split(' ').take(8).map(str::to_owned).collect();
    let places = analyzer.match_places([&*text], &wanted);
    for place in places.iter().flatten() {
        assert!(text.get(place.clone()).is_some());
    }
    let found = places.first().map_or(0, Vec::len);
    behaviour((
        analyzer.language(),
        coarse(count),
        coarse(longest),
        coarse(found),
    ))
}
