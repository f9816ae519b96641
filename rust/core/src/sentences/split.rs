//! Where the sentences of a text begin and end: prose, lists, tables, headings and code, in Markdown, reStructuredText
//! and plain text.
//!
//! Lines decide what is a block: a blank line ends one, so does the mark of a list, a heading, a fence. Inside of prose
//! a sentence ends behind `.`, `!`, `?` and the like, unless what stands before is an abbreviation, an initial or the
//! number of an ordinal. Code is kept in pieces: a blank line ends one, and so does its length.

use std::ops::Range;

/// What a sentence is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Prose,
    /// A title of what follows.
    Heading,
    /// Lines of a program, or a console.
    Code,
}

/// A sentence, a heading, or a piece of code or of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Bytes of the text, without blanks at its ends; never empty.
    pub range: Range<usize>,
    /// What it is made of.
    pub kind: Kind,
}

/// Most lines of a piece of code.
const MAX_CODE_LINES: usize = 8;
/// Words, in lower case, after which a full stop ends no sentence; words with a full stop inside (`e.g`) are not here.
const ABBREVIATIONS: [&str; 46] = [
    "abs", "al", "approx", "art", "bzw", "ca", "cf", "ch", "co", "corp", "dept", "dr", "ed", "eq",
    "esp", "est", "etc", "evtl", "ff", "fig", "figs", "ggf", "inc", "incl", "inkl", "jr", "ltd",
    "max", "min", "mme", "mr", "mrs", "ms", "no", "nos", "nr", "pp", "prof", "resp", "sec", "sr",
    "st", "usw", "vgl", "vol", "vs",
];
/// Underlines of titles in reStructuredText and Markdown.
const UNDERLINES: &[u8] = b"=-~^\"'`#*+.:_";
/// End a sentence without a blank behind.
const WIDE_STOPS: [char; 4] = ['。', '！', '？', '｡'];

/// Bytes that are looked at together.
const STRIDE: usize = 32;

/// The sentences of a text, in order and without overlap; what stands between them are blanks and lines of marks.
#[must_use]
pub fn sentences(text: &str) -> Vec<Sentence> {
    let mut blocks = Blocks::new(text);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        blocks.line(line, start..end);
        start = end;
    }
    blocks.flush();
    blocks.found
}

struct Blocks<'t> {
    text: &'t str,
    found: Vec<Sentence>,
    /// The block that the next line may belong to.
    open: Option<Open>,
    /// The fence that closes the code, while it is open.
    fence: Option<&'static str>,
    /// Lines that are indented by more are code, as long as there are such.
    literal: Option<usize>,
}

struct Open {
    range: Range<usize>,
    lines: usize,
    kind: Kind,
}

impl<'t> Blocks<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            found: Vec::new(),
            open: None,
            fence: None,
            literal: None,
        }
    }

    fn line(&mut self, line: &str, range: Range<usize>) {
        let bare = line.trim();
        let indent = line.len() - line.trim_start().len();
        if let Some(fence) = self.fence {
            if bare.starts_with(fence) {
                self.flush();
                self.fence = None;
            } else {
                self.code(bare, range);
            }
        } else if let Some(fence) = opened_fence(bare) {
            self.flush();
            self.fence = Some(fence);
        } else if bare.is_empty() {
            self.flush();
        } else if self.literal.is_some_and(|least| indent > least) {
            self.code(bare, range);
        } else {
            self.literal = None;
            self.prose(bare, indent, range);
        }
    }

    fn code(&mut self, bare: &str, range: Range<usize>) {
        let is_full = |open: &Open| open.kind != Kind::Code || open.lines >= MAX_CODE_LINES;
        if bare.is_empty() || self.open.as_ref().is_some_and(is_full) {
            self.flush();
        }
        if !bare.is_empty() {
            self.extend(range, Kind::Code);
        }
    }

    fn prose(&mut self, bare: &str, indent: usize, range: Range<usize>) {
        let is_open = self.open.as_ref().is_some_and(|it| it.kind == Kind::Prose);
        let lines = self.open.as_ref().map_or(0, |open| open.lines);
        if is_marks(bare) {
            if is_open
                && lines == 1
                && let Some(open) = &mut self.open
            {
                open.kind = Kind::Heading;
            }
            self.flush();
        } else if is_heading(bare) {
            self.flush();
            self.extend(range, Kind::Heading);
            self.flush();
        } else if bare.starts_with(">>>") || bare.starts_with("$ ") {
            self.code(bare, range);
        } else {
            let is_directive = bare.starts_with(".. ");
            if !is_open || begins_item(bare) || is_directive || bare.starts_with('|') {
                self.flush();
            }
            self.extend(range, Kind::Prose);
            if is_directive || bare.starts_with('|') {
                self.flush();
            }
            let is_code = is_directive && bare.contains("code");
            let is_block = is_directive && bare.contains("parsed-literal");
            if is_code || is_block || (bare.ends_with("::") && !is_directive) {
                self.literal = Some(indent);
            }
        }
    }

    fn extend(&mut self, range: Range<usize>, kind: Kind) {
        match &mut self.open {
            Some(open) => {
                open.range.end = range.end;
                open.lines += 1;
            }
            None => {
                self.open = Some(Open {
                    range,
                    lines: 1,
                    kind,
                });
            }
        }
    }

    fn flush(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        if open.kind == Kind::Prose {
            let block = self.text.get(open.range.clone()).unwrap_or_default();
            let mut start = 0;
            for end in ends(block).chain([block.len()]) {
                self.push(
                    open.range.start + start..open.range.start + end,
                    Kind::Prose,
                );
                start = end;
            }
        } else {
            self.push(open.range, open.kind);
        }
    }

    fn push(&mut self, range: Range<usize>, kind: Kind) {
        let Some(part) = self.text.get(range.clone()) else {
            return;
        };
        let start = range.start + part.len() - part.trim_start().len();
        let end = range.end - (part.len() - part.trim_end().len());
        if start < end {
            let range = start..end;
            self.found.push(Sentence { range, kind });
        }
    }
}

/// The mark that closes the code which a line opens.
fn opened_fence(bare: &str) -> Option<&'static str> {
    match bare.as_bytes().first() {
        Some(b'`') => Some("```").filter(|it| bare.starts_with(it)),
        Some(b'~') => Some("~~~").filter(|it| bare.starts_with(it)),
        _ => None,
    }
}

/// Whether a line is an underline, a rule, or what is between the rows of a table.
fn is_marks(bare: &str) -> bool {
    let mut characters = bare.bytes();
    let first = characters.next().unwrap_or(b' ');
    let is_line = bare.len() > 2 && UNDERLINES.contains(&first) && characters.all(|it| it == first);
    let is_border = bare.starts_with(['|', '+', '='])
        && bare.len() > 2
        && bare.chars().all(|it| "|-+:= ".contains(it));
    is_line || is_border
}

fn is_heading(bare: &str) -> bool {
    let marks = bare.len() - bare.trim_start_matches('#').len();
    (1..=6).contains(&marks) && bare.chars().nth(marks) == Some(' ')
}

/// Whether a line begins an item of a list.
fn begins_item(bare: &str) -> bool {
    // Most lines begin with a word of letters, which is not a mark.
    if let [first, second, ..] = bare.as_bytes()
        && first.is_ascii_alphabetic()
        && !matches!(second, b'.' | b')')
    {
        return false;
    }
    let Some((mark, rest)) = bare.split_once(' ') else {
        return false;
    };
    if rest.trim().is_empty() {
        return false;
    }
    let number = mark.trim_start_matches('(').trim_end_matches(['.', ')']);
    let is_number = number.len() < mark.len()
        && (1..=3).contains(&number.len())
        && (number.bytes().all(|it| it.is_ascii_digit())
            || (number.len() == 1 && mark.ends_with(')')));
    matches!(mark, "-" | "*" | "+" | "•" | "–") || is_number
}

/// Where the sentences of a block of prose end, but for the last one.
fn ends(block: &str) -> impl Iterator<Item = usize> {
    let is_stop = |&byte: &u8| !byte.is_ascii() || matches!(byte, b'.' | b'!' | b'?');
    // Without branches, so that the compiler can take several at once: most parts of a text have no stop.
    let parts = block.as_bytes().chunks(STRIDE).zip((0..).step_by(STRIDE));
    let with_stops =
        parts.filter(move |(part, _)| part.iter().fold(false, |any, byte| any | is_stop(byte)));
    let stops = with_stops.flat_map(move |(part, start)| {
        let places = part.iter().zip(start..);
        places.filter(move |(byte, _)| is_stop(byte))
    });
    stops.filter_map(|(_, place): (_, usize)| {
        // Nothing inside of a character.
        let stop = block.get(place..)?.chars().next()?;
        let is_wide = WIDE_STOPS.contains(&stop);
        if !is_wide && !matches!(stop, '.' | '!' | '?' | '…' | '؟' | '।') {
            return None;
        }
        let behind = block.get(place + stop.len_utf8()..)?;
        let is_closing = |it: char| "\"'”’»)]}*_`」』".contains(it);
        let rest = behind.trim_start_matches(is_closing);
        let is_last_stop = !rest.starts_with(['.', '!', '?', '…', '。', '！', '？']);
        let is_parted = is_wide || rest.starts_with(char::is_whitespace);
        let next = rest.trim_start().chars().next()?;
        let before = block.get(..place)?;
        // Only behind a blank, so that a text without blanks is not read again at each of its stops.
        let word = || {
            before
                .rsplit(char::is_whitespace)
                .next()
                .unwrap_or_default()
        };
        let ends =
            is_last_stop && is_parted && (is_wide || stop != '.' || ends_a_sentence(word(), next));
        // Three full stops, and what goes on in small letters, are a pause.
        let is_pause = (stop == '…' || before.ends_with("..")) && next.is_lowercase();
        (ends && !is_pause).then(|| block.len() - rest.len())
    })
}

/// Whether a full stop behind this word ends a sentence.
fn ends_a_sentence(word: &str, next: char) -> bool {
    let word = word.trim_start_matches(|it: char| !it.is_alphanumeric());
    let letters = word.trim_end_matches(|it: char| !it.is_alphanumeric());
    let has_stop = letters.len() < 8 && letters.split('.').all(|it| it.chars().count() == 1);
    let is_initial = has_stop && letters.chars().all(|it| it.is_alphabetic() || it == '.');
    let is_ordinal =
        (1..=2).contains(&letters.len()) && letters.bytes().all(|it| it.is_ascii_digit());
    let is_pronoun = letters == "I" && next.is_uppercase();
    !(is_ordinal || (is_initial && !is_pronoun) || is_abbreviation(letters))
}

fn is_abbreviation(letters: &str) -> bool {
    let lower = letters.to_lowercase();
    // `no` ends sentences more often than it counts things.
    ABBREVIATIONS.contains(&lower.as_str()) && letters != "no"
}

#[cfg(test)]
mod tests {
    use super::{Kind, sentences};
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&str> {
        let found = sentences(text);
        found.iter().map(|it| &text[it.range.clone()]).collect()
    }

    fn kinds(text: &str) -> Vec<Kind> {
        sentences(text).iter().map(|it| it.kind).collect()
    }

    /// A text without blanks would be read again at each stop: minutes, where one reading takes milliseconds.
    #[test]
    fn a_long_text_without_blanks_is_read_once() {
        for (sentence, found) in [("密钥。", 300_000), ("a!b", 1), ("a…B", 1)] {
            assert_eq!(split(&sentence.repeat(300_000)).len(), found);
        }
    }

    #[test]
    fn prose() {
        assert_eq!(
            split("One is here. Two, too! \"Three?\" Four…\nand goes\non."),
            [
                "One is here.",
                "Two, too!",
                "\"Three?\"",
                "Four…\nand goes\non."
            ]
        );
        assert_eq!(
            split("The cache. pytest reads it."),
            ["The cache.", "pytest reads it."]
        );
        assert_eq!(split("一つ。二つ！三"), ["一つ。", "二つ！", "三"]);
    }

    #[test]
    fn what_ends_no_sentence() {
        for text in [
            "See Fig. 3 of Dr. Smith, e.g. this one.",
            "J. R. Smith of the U.S. Army came.",
            "Am 3. Mai ist z.B. frei, bzw. nicht.",
            "Version 3.2.1 of os.path is at example.com today.",
            "It waits ... and waits.",
        ] {
            assert_eq!(split(text), [text]);
        }
    }

    #[test]
    fn blocks() {
        let text = "# Title\nText one.\n\n- first item. More\n  of it\n- second\n\n```sh\nrun it.\n\nagain\n```\nEnd.";
        assert_eq!(
            split(text),
            [
                "# Title",
                "Text one.",
                "- first item.",
                "More\n  of it",
                "- second",
                "run it.",
                "again",
                "End."
            ]
        );
        assert_eq!(kinds(text)[0], Kind::Heading);
        assert_eq!(kinds(text)[5..], [Kind::Code, Kind::Code, Kind::Prose]);
    }

    #[test]
    fn restructured_text() {
        let text = "Title\n=====\n\nUse this::\n\n    a = 1\n    b = 2\n\nDone.\n";
        assert_eq!(
            split(text),
            ["Title", "Use this::", "a = 1\n    b = 2", "Done."]
        );
        assert_eq!(
            kinds(text),
            [Kind::Heading, Kind::Prose, Kind::Code, Kind::Prose]
        );
    }

    #[test]
    fn tables() {
        assert_eq!(
            split("| a | b |\n|---|---|\n| one. Two | c |"),
            ["| a | b |", "| one.", "Two | c |"]
        );
    }

    #[test]
    fn long_code_is_in_pieces() {
        let text = format!("```\n{}```\n", "x\n".repeat(20));
        assert_eq!(sentences(&text).len(), 3);
    }

    proptest! {
        #[test]
        fn no_letter_is_lost_and_none_is_there_twice(
            text in "([A-Za-z0-9é。.!?\"' |`\n=#*>:-]{0,12}|```\n|\n\n|::\n\n    ){0,12}"
        ) {
            let found = sentences(&text);
            let mut end = 0;
            for one in &found {
                prop_assert!(one.range.start >= end && one.range.start < one.range.end);
                let part = &text[one.range.clone()];
                prop_assert_eq!(part.trim(), part);
                // Between them: blanks, marks, and what stands beside a fence.
                let between = &text[end..one.range.start];
                let is_fence = between.contains("```");
                prop_assert!(is_fence || !between.contains(char::is_alphanumeric), "{:?}", between);
                end = one.range.end;
            }
            let rest = &text[end..];
            prop_assert!(rest.contains("```") || !rest.contains(char::is_alphanumeric), "{:?}", rest);
        }
    }
}
