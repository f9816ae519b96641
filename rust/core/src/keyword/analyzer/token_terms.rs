//! The terms of a token: the whole, its words, and the parts of words.
//!
//! | token | whole | words | parts of words |
//! |---|---|---|---|
//! | `src/app/main.rs`, `jane@example.com` | as written | at `/` and `@` | |
//! | `os.path`, `std::vec` | as written | at `.` and `::` | |
//! | `U.S.A.` | | `usa` | |
//! | `v1.20.3`, `1,000.5` | | `1.20.3` | `1.20`, `1` |
//! | `state-of-the-art`, `snake_case` | joined, so `e-mail` is `email` | at `-` and `_` | |
//! | `getHTTPUrl2`, `utf8` | | joined | `get`, `http`, `url`, `2` |
//!
//! Words of letters are stemmed, so are wholes that are joined; nothing else is. A word takes one position of a phrase,
//! and a whole the positions of its words. A boundary inside a word that would cut off a single letter is none (`iPhone`,
//! `p53`, `H2O`), nor is that before a final `s` (`PDFs`).

use std::ops::Range;

use super::characters::CharacterKind;
use super::classes::{Classes, DIGIT, FOREIGN, OTHER, PLAIN, SEPARATOR};
use super::compounds::each_cut;
use super::folding::fold_onto;
use super::language::Apostrophe;
use super::tokens::{character_start, first_character_end, scan};
use super::{APOSTROPHES, Analyzer, with_apostrophes};
use crate::hashing::identity;
use crate::keyword::{TYPED, TermSource, between};

/// A word with more parts is noise, and gets none.
const MAX_PARTS: usize = 8;

/// In the number of a term that keeps the accents of the word whose folded term has the rest of the number.
pub const TYPED_BIT: u32 = 1 << 31;

/// The levels of a token, the outermost first.
const LEVELS: usize = 3;
/// From this level on a whole is its words without what stands between them.
const JOINED: usize = 2;

/// Whether a level is cut at this character.
#[inline]
fn separates(level: usize, character: char) -> bool {
    match level {
        0 => matches!(character, '/' | '@'),
        1 => matches!(character, '.' | ':'),
        _ => matches!(character, '-' | '_' | '\u{2010}' | '\u{2011}'),
    }
}

#[inline]
fn is_separator(character: char) -> bool {
    (0..LEVELS).any(|level| separates(level, character))
}

impl TermSource for Analyzer {
    fn offsets(&self, text: &str, token: impl FnMut(usize, usize)) {
        scan(text, self.characters, token);
    }

    fn terms(&self, token: &str, mut term: impl FnMut(&str)) {
        for found in TokenTerms::of(self, token).terms() {
            term(found.text);
        }
    }
}

/// A term of a token, and which positions of a phrase it takes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term<'t> {
    pub(super) text: &'t str,
    /// Its number in the token, stop words counted, so that another language gives the same word the same number.
    pub(super) number: u32,
    /// From 0 in each token; stop words have none.
    pub(super) positions: Range<usize>,
    /// Whether a phrase asks for this one, of those that take the position.
    pub(super) leads: bool,
}

/// The terms of one token.
pub(super) struct TokenTerms<'a> {
    analyzer: &'a Analyzer,
    /// Terms in the order in which they were made; some share their letters.
    letters: String,
    found: Vec<Found>,
    /// Terms tried so far, stop words among them.
    tried: u32,
    /// Places taken so far.
    positions: usize,
}

/// A term, and where its letters stand.
struct Found {
    letters: Range<usize>,
    number: u32,
    positions: Range<usize>,
    leads: bool,
}

impl<'a> TokenTerms<'a> {
    pub(super) fn of(analyzer: &'a Analyzer, token: &str) -> Self {
        let mut words = Self {
            analyzer,
            letters: String::with_capacity(4 * token.len()),
            found: Vec::with_capacity(MAX_PARTS),
            tried: 0,
            positions: 0,
        };
        let characters = analyzer.characters;
        let kind = token.chars().next().map(|it| characters.kind(it));
        match kind {
            None => {}
            Some(CharacterKind::Pair) => {
                let (first, rest) = token.split_at(first_character_end(token, characters));
                let whole = words.fold(token, Classes::of(token));
                words.at_next_position(whole);
                if !rest.is_empty() {
                    let first = words.fold(first, Classes::of(first));
                    words.at_same_position(first);
                }
            }
            Some(CharacterKind::Triple) => {
                let whole = words.fold(token, Classes::of(token));
                words.at_next_position(whole);
            }
            Some(_) => words.token(token),
        }
        words
    }

    /// The terms in their order.
    pub(super) fn terms(&self) -> impl Iterator<Item = Term<'_>> {
        self.found.iter().map(|found| Term {
            text: self.written(&found.letters),
            number: found.number,
            positions: found.positions.clone(),
            leads: found.leads,
        })
    }

    fn written(&self, letters: &Range<usize>) -> &str {
        between(&self.letters, letters.start, letters.end)
    }

    /// How many positions of a phrase they take.
    pub(super) fn positions(&self) -> usize {
        self.positions
    }

    fn token(&mut self, token: &str) {
        let classes = Classes::of(token);
        if classes.is(PLAIN) || classes.has(FOREIGN) && token.chars().all(char::is_alphanumeric) {
            return self.parts(token, classes);
        }
        let bare = token.trim_end_matches(['#', '+']);
        self.cut(bare, classes, 0);
        let (_, suffix) = token.split_at(bare.len());
        if suffix.is_empty() {
            return;
        }
        // `C++` is found as such and as C.
        let start = self.fold(bare, classes).start;
        self.letters.push_str(suffix);
        let whole = start..self.letters.len();
        match self.positions {
            0 => self.at_next_position(whole),
            1 => {
                for found in &mut self.found {
                    found.leads = false;
                }
                self.push(0, whole, 0..1, true);
            }
            _ => self.over_positions(0, 0, whole),
        }
    }

    /// The terms of a piece of a token, cut at this level and those behind it. Its classes may be those of more, here and
    /// elsewhere: they rule out what is not there.
    fn cut(&mut self, text: &str, classes: Classes, level: usize) {
        if level >= LEVELS {
            return self.word(text, classes);
        }
        if level == 1 && (self.number(text, classes) || self.acronym(text, classes)) {
            return;
        }
        if !classes.has(SEPARATOR << level | FOREIGN) || !text.contains(|it| separates(level, it)) {
            return self.cut(text, classes, level + 1);
        }
        let (before, positions) = (self.found.len(), self.positions);
        let pieces = text.split(|it| separates(level, it));
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            self.cut(piece, Classes::of(piece), level + 1);
        }
        if self.found.len() == before {
            // A whole of stop words is a stop word, too.
            self.tried = self.tried.saturating_add(1);
            return;
        }
        let whole = if level < JOINED {
            self.as_written(text, classes)
        } else {
            let joined = self.fold(text, classes);
            self.stem(joined)
        };
        self.over_positions(before, positions, whole);
    }

    /// Adds the folded text with the characters between its words.
    fn as_written(&mut self, text: &str, classes: Classes) -> Range<usize> {
        let start = self.letters.len();
        if !classes.has(OTHER | FOREIGN) {
            self.push_lower(text);
            return start..self.letters.len();
        }
        for run in text.split_inclusive(is_separator) {
            fold_onto(&mut self.letters, run, self.analyzer.characters, false);
            match run.chars().next_back() {
                Some('\u{2010}' | '\u{2011}') => self.letters.push('-'),
                Some(last) if is_separator(last) => self.letters.push(last),
                _ => {}
            }
        }
        start..self.letters.len()
    }

    /// Versions and decimals: the number, and what it begins with.
    fn number(&mut self, text: &str, classes: Classes) -> bool {
        if !classes.has(DIGIT | FOREIGN) {
            return false;
        }
        if text.starts_with(|it: char| it.is_ascii_alphabetic() && !matches!(it, 'v' | 'V')) {
            return false;
        }
        let mut start = self.letters.len();
        let characters = text.chars().filter(|&it| it != ',');
        let folded = characters.map(|it| self.analyzer.characters.ascii_digit(it));
        self.letters.extend(folded);
        let (_, folded) = self.letters.split_at(start);
        let digits = match folded.strip_prefix(['v', 'V']) {
            Some(version) if version.contains('.') => version,
            _ => folded,
        };
        let is_number = digits.bytes().all(|it| it.is_ascii_digit() || it == b'.')
            && digits.starts_with(|it: char| it.is_ascii_digit());
        if !is_number {
            self.letters.truncate(start);
            return false;
        }
        start += folded.len() - digits.len();
        let mut end = self.letters.len();
        self.at_next_position(start..end);
        for _ in 0..MAX_PARTS {
            let Some(dot) = self.letters.get(start..end).and_then(|it| it.rfind('.')) else {
                break;
            };
            end = start + dot;
            self.at_same_position(start..end);
        }
        true
    }

    /// `U.S.A`: one word.
    fn acronym(&mut self, text: &str, classes: Classes) -> bool {
        let is_acronym = classes.has(SEPARATOR << 1)
            && text.contains('.')
            && text
                .split('.')
                .all(|piece| piece.starts_with(char::is_alphabetic) && self.letters_of(piece) == 1);
        if is_acronym {
            let folded = self.fold(text, classes);
            let word = self.stem(folded);
            self.at_next_position(word);
        }
        is_acronym
    }

    fn word(&mut self, text: &str, classes: Classes) {
        if !classes.has(OTHER | FOREIGN) || !text.contains(APOSTROPHES) {
            return self.parts(text, classes);
        }
        let plain = text.replace(APOSTROPHES, "'");
        if self
            .analyzer
            .is_stop_word(&with_apostrophes(text, self.analyzer.characters))
        {
            self.tried = self.tried.saturating_add(1);
            return;
        }
        let bare = plain
            .strip_suffix("'s")
            .or_else(|| plain.strip_suffix("'S"))
            // Most words do not end with it.
            .unwrap_or(&plain);
        match (bare.split_once('\''), self.analyzer.language.apostrophe) {
            (None, _) => self.parts(bare, classes),
            (Some(_), Apostrophe::Elision) => {
                for piece in bare.split('\'').filter(|piece| !piece.is_empty()) {
                    self.parts(piece, classes);
                }
            }
            (Some((stem, _)), Apostrophe::Suffix) => self.parts(stem, classes),
            (Some(_), Apostrophe::Letter) => {
                let folded = self.fold(bare, classes);
                let whole = self.stem(folded);
                self.at_next_position(whole);
                for piece in bare.split('\'') {
                    if self.letters_of(piece) > 1 {
                        self.part(piece, classes);
                    }
                }
            }
        }
    }

    /// A word, and what it is put together from.
    fn parts(&mut self, text: &str, classes: Classes) {
        let mut cuts = [0; MAX_PARTS - 1];
        let mut count = 0;
        each_cut(text, classes, self.analyzer.characters, |place| {
            if let Some(cut) = cuts.get_mut(count) {
                *cut = place;
            }
            count += 1;
        });
        let folded = self.fold(text, classes);
        if count == 0 && self.is_stop_word(&folded) {
            self.tried = self.tried.saturating_add(1);
            return;
        }
        let word = self.stemmed(text, folded);
        let has_letters = !word.is_empty();
        self.at_next_position(word);
        if has_letters && classes.has(FOREIGN) {
            self.typed(text);
        }
        if let Some(cuts @ [_, ..]) = cuts.get(..count) {
            let mut start = 0;
            for end in cuts.iter().copied().chain([text.len()]) {
                self.part(between(text, start, end), classes);
                start = end;
            }
        }
    }

    /// The term of the word just added with its accents, if it has one.
    fn typed(&mut self, text: &str) {
        let start = self.letters.len();
        self.letters.push(TYPED);
        let bare = self.letters.len();
        self.analyzer.stem_with_accents(&mut self.letters, text);
        if self.letters.len() == bare {
            self.letters.truncate(start);
            return;
        }
        let letters = self.bounded(start..self.letters.len());
        if let Some(folded) = self.found.last() {
            let found = Found {
                letters,
                number: folded.number | TYPED_BIT,
                positions: folded.positions.clone(),
                leads: false,
            };
            self.found.push(found);
        }
    }

    fn part(&mut self, text: &str, classes: Classes) {
        let folded = self.fold(text, classes);
        if self.is_stop_word(&folded) {
            self.tried = self.tried.saturating_add(1);
        } else {
            let part = self.stem(folded);
            self.at_same_position(part);
        }
    }

    /// Letters and numbers, without marks.
    fn letters_of(&self, text: &str) -> usize {
        let is_letter = |&it: &char| self.analyzer.characters.is_letter(it);
        text.chars().filter(is_letter).count()
    }

    fn fold(&mut self, text: &str, classes: Classes) -> Range<usize> {
        let start = self.letters.len();
        if classes.is(PLAIN) {
            self.push_lower(text);
        } else {
            fold_onto(&mut self.letters, text, self.analyzer.characters, false);
        }
        start..self.letters.len()
    }

    fn push_lower(&mut self, text: &str) {
        let start = self.letters.len();
        self.letters.push_str(text);
        self.letters.split_at_mut(start).1.make_ascii_lowercase();
    }

    fn is_stop_word(&self, folded: &Range<usize>) -> bool {
        self.analyzer.is_stop_word(self.written(folded))
    }

    /// Makes a word, given as it is written and folded, its stem.
    fn stemmed(&mut self, written: &str, folded: Range<usize>) -> Range<usize> {
        if self.analyzer.keeps_non_joiner(written) {
            self.letters.truncate(folded.start);
            fold_onto(&mut self.letters, written, self.analyzer.characters, true);
        }
        self.stem(folded)
    }

    /// Makes the folded word at the end its stem.
    fn stem(&mut self, folded: Range<usize>) -> Range<usize> {
        self.analyzer.stem(&mut self.letters, folded.start);
        folded.start..self.letters.len()
    }

    /// A term that takes a position of its own.
    fn at_next_position(&mut self, letters: Range<usize>) {
        let position = self.positions;
        if !letters.is_empty() {
            self.positions = position + 1;
        }
        self.push(self.found.len(), letters, position..position + 1, true);
    }

    /// Another term for the position that was taken last.
    fn at_same_position(&mut self, letters: Range<usize>) {
        let position = self.positions.saturating_sub(1);
        self.push(self.found.len(), letters, position..self.positions, false);
    }

    /// A term for all positions from `start` on, in front of the terms from `before` on.
    fn over_positions(&mut self, before: usize, start: usize, letters: Range<usize>) {
        self.push(before, letters, start..self.positions, false);
    }

    fn push(&mut self, at: usize, letters: Range<usize>, positions: Range<usize>, leads: bool) {
        let number = self.tried;
        self.tried = number.saturating_add(1);
        if letters.is_empty() {
            return;
        }
        let found = Found {
            letters: self.bounded(letters),
            number,
            positions,
            leads,
        };
        self.found.insert(at.min(self.found.len()), found);
    }

    /// The term, or its beginning and a hash if it is too long.
    fn bounded(&mut self, letters: Range<usize>) -> Range<usize> {
        if letters.len() <= MAX_TERM_BYTES {
            return letters;
        }
        let term = self.written(&letters);
        let (kept, _) = term.split_at(character_start(term, KEPT_BYTES));
        let mut bounded = kept.to_owned();
        for byte in identity("term", [term]) {
            bounded += &format!("{byte:02x}");
        }
        let start = self.letters.len();
        self.letters.push_str(&bounded);
        start..self.letters.len()
    }
}

/// Longest term in bytes.
pub const MAX_TERM_BYTES: usize = 128;
/// What is left of a longer one, in front of the hash of the whole.
const KEPT_BYTES: usize = 96;
