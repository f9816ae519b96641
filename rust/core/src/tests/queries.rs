//! Any text is a query: it is planned and searched without an error, at bounded cost.

use proptest::prelude::*;
use semlex_core::keyword::analyzer::{Analyzer, QueryTerms, parse_query};
use semlex_core::keyword::build::*;
use semlex_core::keyword::is_typed;
use semlex_core::keyword::search::*;

use super::stored::{Tables, id_of};

const LANGUAGES: [&str; 2] = ["english", "turkish"];
const MAX_TERMS: usize = 64;
const MAX_BYTES: usize = 4_096;
const PARAMETERS: Parameters = Parameters { k1: 1.2, b: 0.75 };

/// Texts of up to 4 KiB, made of what queries are made of in unusual numbers.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9._/@:,'#+-]{1,12}",
        "( -[a-c]{1,3}){1,20}",
        "[\"“”„«»-]{1,3}",
        "[一-丁手机ぁ-んก-๛가-힣À-ÿא-תء-ي\u{300}-\u{308}\u{200b}-\u{200f}]{1,9}",
        any::<String>(),
    ];
    let gap = prop_oneof![2 => Just(""), 2 => Just(" "), 1 => Just("/"), 1 => Just(" -"), 1 => Just("\"")];
    let repeated = (piece, gap, prop_oneof![3 => Just(1), 1 => 1..600_usize]);
    prop::collection::vec(repeated, 0..12).prop_map(|pieces| {
        let mut text = String::new();
        for (piece, gap, times) in pieces {
            text.push_str(&(piece + gap).repeat(times));
        }
        while text.len() > MAX_BYTES {
            text.pop();
        }
        text
    })
}

fn tables(analyzers: &[Analyzer]) -> Tables {
    let mut tables = Tables::default();
    for (number, analyzer) in (0..).zip(analyzers) {
        let mut builder = SegmentBuilder::new();
        for chunk in 0..20_i64 {
            let text = format!("aa b{chunk} x/y c-{chunk} 手机 getName");
            builder
                .add(number * 100 + chunk, analyzer, &[&text])
                .unwrap();
        }
        let id = id_of(usize::try_from(number).unwrap());
        let segment = builder.finish(&id).unwrap();
        tables
            .segments
            .push((id, analyzer.language().to_owned(), segment));
    }
    tables
}

fn check(text: &str) {
    let analyzers = LANGUAGES.map(|language| Analyzer::new(language, true).unwrap());
    let tables = tables(&analyzers);
    let asked = analyzers.each_ref().map(|analyzer| {
        let QueryTerms {
            wanted,
            phrases,
            excluded,
            total,
            conditions,
        } = analyzer.query(&parse_query(text), MAX_TERMS);
        let folded = wanted.iter().filter(|(_, term)| !is_typed(term)).count();
        assert!(folded == total.min(MAX_TERMS));
        assert!(conditions <= MAX_TERMS || phrases.is_empty() && excluded.is_empty());
        LanguageQuery {
            language: analyzer.language().to_owned(),
            wanted,
            phrases,
            excluded,
        }
    });
    let cache = PostingCache::new(1 << 20);
    let plan = cache.plan(&asked).unwrap();
    // All that is looked up, in each segment of the language.
    assert!(
        plan.terms(true).count() + plan.terms(false).count() <= LANGUAGES.len() * 2 * MAX_TERMS
    );
    let snapshot = tables.snapshot(&cache, &plan).unwrap();
    let ids = [0, 19, 100, 119];
    let found = snapshot.search(10, PARAMETERS, None, &ids).unwrap();
    assert!(
        found
            .best
            .iter()
            .all(|(score, _)| score.is_finite() && *score > 0.0)
    );
    assert_eq!(found.scores.len(), ids.len());
    let covered = snapshot.coverage(&ids).unwrap();
    assert!(
        covered
            .iter()
            .all(|share| share.is_nan() || (0.0..=1.0).contains(share))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 4_000 }))]

    #[test]
    fn any_text_is_planned_and_searched(text in text()) {
        check(&text);
    }
}

/// More terms than a byte can count in one token.
#[test]
fn a_long_token_of_many_words_is_searched() {
    check(&("x/".repeat(255) + "y"));
    check(&"a/b-c.d@e_".repeat(51));
}

/// 1,024 exclusions fit 4 KiB.
#[test]
fn too_many_conditions_are_told_and_not_planned() {
    let letters = || (b'a'..=b'z').map(char::from);
    let words = letters().flat_map(|one| letters().map(move |other| format!("{one}{other}")));
    let words: Vec<String> = words.collect();
    let analyzer = Analyzer::new("simple", true).unwrap();
    for (count, given) in [(64, 64), (65, 0), (600, 0)] {
        let excluded: String = words
            .iter()
            .take(count)
            .map(|word| format!("-{word} "))
            .collect();
        let query = analyzer.query(&parse_query(&excluded), MAX_TERMS);
        assert_eq!((query.conditions, query.excluded.len()), (count, given));
        let phrase = format!("\"{}\"", words[..count].join(" "));
        let query = analyzer.query(&parse_query(&phrase), MAX_TERMS);
        assert_eq!(
            (query.conditions, query.phrases.len()),
            (count, given.min(1))
        );
        check(&excluded);
        check(&phrase);
    }
}

/// Quotes that nothing closes, or that stand behind letters, are looked for once: else a million would take hours.
#[test]
fn many_open_quotes_are_read_once() {
    for piece in ["\u{201e}a ", "\u{ab} ", "a\u{201e}", "-\u{201e}a "] {
        let text = piece.repeat(300_000) + " -word";
        let parsed = parse_query(&text);
        assert!(parsed.phrases.is_empty() && parsed.excluded.last() == Some(&"word"));
    }
}
