//! What a token stands for: the whole, its words, and the parts of words.
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
//! Words of letters are stemmed, so are wholes that are joined; nothing else is. A word takes one place of a phrase,
//! and a whole the places of its words. A boundary inside a word that would cut off a single letter is none (`iPhone`,
//! `p53`, `H2O`), nor is that before a final `s` (`PDFs`).

use super::characters::{Characters, Kind, is_upper};
use super::folding::{fold, fold_onto};
use super::language::Apostrophe;
use super::tokens::{character_start, first_unit_end};
use super::{Analyzer, Term, with_apostrophes};

/// Words with more parts have none: they are no words.
const MAX_PARTS: usize = 8;

/// The levels of a token, the outermost first.
const LEVELS: usize = 3;
/// From this level on a whole is its words without what stands between them.
const JOINED: usize = 2;

/// What a level is cut at.
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

pub(super) const APOSTROPHES: [char; 5] = ['\'', '\u{2019}', '\u{2BC}', '\u{2BB}', '\u{FF07}'];

/// Collects the terms of one token.
pub(super) struct Words<'a> {
    analyzer: &'a Analyzer,
    terms: Vec<Term>,
    /// Terms tried so far, stop words among them.
    tried: u32,
    /// Places taken so far.
    places: usize,
}

impl<'a> Words<'a> {
    /// The terms of a token in their order.
    pub(super) fn of(analyzer: &'a Analyzer, token: &str) -> Vec<Term> {
        let mut words = Self {
            analyzer,
            terms: Vec::new(),
            tried: 0,
            places: 0,
        };
        let characters = analyzer.characters;
        let kind = token.chars().next().map(|it| characters.kind(it));
        match kind {
            None => {}
            Some(Kind::Pair) => {
                let (first, rest) = token.split_at(first_unit_end(token, characters));
                words.place(fold(token, characters));
                if !rest.is_empty() {
                    words.beside(fold(first, characters));
                }
            }
            Some(Kind::Triple) => words.place(fold(token, characters)),
            Some(_) => words.token(token),
        }
        words.terms
    }

    fn token(&mut self, token: &str) {
        let is_plain = if token.is_ascii() {
            token.bytes().all(|byte| byte.is_ascii_alphanumeric())
        } else {
            token.chars().all(char::is_alphanumeric)
        };
        if is_plain {
            return self.parts(token);
        }
        let bare = token.trim_end_matches(['#', '+']);
        self.cut(bare, 0);
        let suffix = token.get(bare.len()..).unwrap_or_default();
        if suffix.is_empty() {
            return;
        }
        // `C++` is found as such and as C.
        let whole = fold(bare, self.analyzer.characters) + suffix;
        match self.places {
            0 => self.place(whole),
            1 => {
                for term in &mut self.terms {
                    term.leads = false;
                }
                self.push(0, whole, 0, 1, true);
            }
            _ => self.whole(0, 0, whole),
        }
    }

    fn cut(&mut self, text: &str, level: usize) {
        if level >= LEVELS {
            return self.word(text);
        }
        if level == 1 && (self.number(text) || self.acronym(text)) {
            return;
        }
        let is_cut = if text.is_ascii() {
            text.bytes().any(|byte| separates(level, byte.into()))
        } else {
            text.contains(|it| separates(level, it))
        };
        if !is_cut {
            return self.cut(text, level + 1);
        }
        let (before, places) = (self.terms.len(), self.places);
        let pieces = text.split(|it| separates(level, it));
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            self.cut(piece, level + 1);
        }
        if self.terms.len() == before {
            // Of stop words alone, the whole is none either.
            self.tried = self.tried.saturating_add(1);
        } else if level < JOINED {
            self.whole(before, places, self.as_written(text));
        } else {
            let joined = self.stem(fold(text, self.analyzer.characters));
            self.whole(before, places, joined);
        }
    }

    /// Folded, with what stands between the words.
    fn as_written(&self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        if text.is_ascii() {
            let kept = |it: &char| it.is_ascii_alphanumeric() || is_separator(*it);
            written.extend(text.chars().filter(kept));
            written.make_ascii_lowercase();
            return written;
        }
        for run in text.split_inclusive(is_separator) {
            fold_onto(&mut written, run, self.analyzer.characters, false);
            match run.chars().next_back() {
                Some('\u{2010}' | '\u{2011}') => written.push('-'),
                Some(last) if is_separator(last) => written.push(last),
                _ => {}
            }
        }
        written
    }

    /// Versions and decimals: the number, and what it begins with.
    fn number(&mut self, text: &str) -> bool {
        if text.starts_with(|it: char| it.is_ascii_alphabetic() && !matches!(it, 'v' | 'V')) {
            return false;
        }
        let folded: String = text
            .chars()
            .map(|it| self.analyzer.characters.ascii_digit(it))
            .filter(|&it| it != ',')
            .collect();
        let digits = match folded.strip_prefix(['v', 'V']) {
            Some(version) if version.contains('.') => version,
            _ => &folded,
        };
        let is_number = digits.bytes().all(|it| it.is_ascii_digit() || it == b'.')
            && digits.starts_with(|it: char| it.is_ascii_digit());
        if is_number {
            self.place(digits.to_owned());
            for (dot, _) in digits.rmatch_indices('.').take(MAX_PARTS) {
                self.beside(digits.get(..dot).unwrap_or_default().to_owned());
            }
        }
        is_number
    }

    /// `U.S.A`: one word.
    fn acronym(&mut self, text: &str) -> bool {
        let is_acronym = text.contains('.')
            && text
                .split('.')
                .all(|piece| piece.starts_with(char::is_alphabetic) && self.letters(piece) == 1);
        if is_acronym {
            let word = self.stem(fold(text, self.analyzer.characters));
            self.place(word);
        }
        is_acronym
    }

    fn word(&mut self, text: &str) {
        let has_apostrophe = if text.is_ascii() {
            text.bytes().any(|byte| byte == b'\'')
        } else {
            text.contains(APOSTROPHES)
        };
        if !has_apostrophe {
            return self.parts(text);
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
            .unwrap_or(&plain);
        match (bare.split_once('\''), self.analyzer.language.apostrophe) {
            (None, _) => self.parts(bare),
            (Some(_), Apostrophe::Elision) => {
                for piece in bare.split('\'').filter(|piece| !piece.is_empty()) {
                    self.parts(piece);
                }
            }
            (Some((stem, _)), Apostrophe::Suffix) => self.parts(stem),
            (Some(_), Apostrophe::Letter) => {
                let whole = self.stem(fold(bare, self.analyzer.characters));
                self.place(whole);
                for piece in bare.split('\'') {
                    if piece
                        .chars()
                        .filter(|it| it.is_alphanumeric())
                        .nth(1)
                        .is_some()
                    {
                        self.part(piece);
                    }
                }
            }
        }
    }

    /// A word, and what it is put together from.
    fn parts(&mut self, text: &str) {
        let pieces = pieces(text, self.analyzer.characters);
        let folded = fold(text, self.analyzer.characters);
        if pieces.len() < 2 && self.analyzer.is_stop_word(&folded) {
            self.tried = self.tried.saturating_add(1);
            return;
        }
        let word = self.analyzer.stemmed(text, folded);
        self.place(word);
        if (2..=MAX_PARTS).contains(&pieces.len()) {
            for piece in pieces {
                self.part(piece);
            }
        }
    }

    fn part(&mut self, text: &str) {
        let folded = fold(text, self.analyzer.characters);
        if self.analyzer.is_stop_word(&folded) {
            self.tried = self.tried.saturating_add(1);
        } else {
            let part = self.stem(folded);
            self.beside(part);
        }
    }

    /// Letters and numbers, without marks.
    fn letters(&self, text: &str) -> usize {
        let is_letter = |&it: &char| self.analyzer.characters.is_letter(it);
        text.chars().filter(is_letter).count()
    }

    fn stem(&self, folded: String) -> String {
        self.analyzer.stem(folded)
    }

    /// A term that takes a place of its own.
    fn place(&mut self, text: String) {
        let place = self.places;
        let before = self.terms.len();
        self.push(before, text, place, place + 1, true);
        if self.terms.len() > before {
            self.places = place + 1;
        }
    }

    /// Another term for the place that was taken last.
    fn beside(&mut self, text: String) {
        let place = self.places.saturating_sub(1);
        self.push(self.terms.len(), text, place, self.places, false);
    }

    /// A term for all places from `start` on, in front of the terms from `before` on.
    fn whole(&mut self, before: usize, start: usize, text: String) {
        self.push(before, text, start, self.places, false);
    }

    fn push(&mut self, at: usize, text: String, start: usize, end: usize, leads: bool) {
        let number = self.tried;
        self.tried = number.saturating_add(1);
        if text.is_empty() {
            return;
        }
        let text = bounded(text);
        let term = Term {
            text,
            number,
            start,
            end,
            leads,
        };
        self.terms.insert(at.min(self.terms.len()), term);
    }
}

/// Longest term in bytes.
pub const MAX_TERM_BYTES: usize = 128;
/// What is left of a longer one, in front of the hash of the whole.
const KEPT_BYTES: usize = 96;

fn bounded(text: String) -> String {
    if text.len() <= MAX_TERM_BYTES {
        return text;
    }
    let kept = text.get(..character_start(&text, KEPT_BYTES));
    let hash = crate::hashing::identity("term", [&*text]);
    let mut bounded = kept.unwrap_or_default().to_owned();
    for byte in hash {
        bounded.extend(
            [byte >> 4, byte & 15].map(|it| char::from_digit(it.into(), 16).unwrap_or('0')),
        );
    }
    bounded
}

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Upper,
    Other,
    Digit,
}

/// Cuts a word where its case or a number says so; nothing where it is one piece for sure.
fn pieces<'t>(text: &'t str, characters: &Characters) -> Vec<&'t str> {
    let [_, rest @ ..] = text.as_bytes() else {
        return Vec::new();
    };
    let all = |is: fn(&u8) -> bool| text.as_bytes().iter().all(is);
    if text.starts_with(|it: char| it.is_ascii_alphabetic())
        && rest.iter().all(u8::is_ascii_lowercase)
        || all(u8::is_ascii_uppercase)
        || all(u8::is_ascii_digit)
    {
        return Vec::new();
    }
    // Marks and what is invisible have the shape of the letter before them.
    let letters: Vec<(usize, Shape)> = text
        .char_indices()
        .filter(|&(_, character)| characters.is_letter(character))
        .map(|(place, character)| (place, shape(character)))
        .collect();
    // Numbers of the letters that begin a piece.
    let mut starts = vec![0];
    for (number, neighbours) in (1..).zip(letters.windows(2)) {
        let &[(_, before), (_, here)] = neighbours else {
            continue;
        };
        let next = letters.get(number + 1).map(|&(_, shape)| shape);
        let is_plural = number + 2 == letters.len() && text.ends_with('s');
        let is_boundary = match (before, here) {
            (Shape::Digit, Shape::Digit) => false,
            (Shape::Digit, _) | (_, Shape::Digit) | (Shape::Other, Shape::Upper) => true,
            // `HTTPServer`, but not `PDFs`.
            (Shape::Upper, Shape::Upper) => next == Some(Shape::Other) && !is_plural,
            _ => false,
        };
        if is_boundary {
            starts.push(number);
        }
    }
    starts.push(letters.len());
    let is_lone_letter = |first: usize, end: usize| {
        end == first + 1
            && letters
                .get(first)
                .is_some_and(|&(_, shape)| shape != Shape::Digit)
    };
    let mut pieces = Vec::new();
    let mut start = 0;
    for neighbours in starts.windows(3) {
        let &[first, second, end] = neighbours else {
            continue;
        };
        if !is_lone_letter(first, second) && !is_lone_letter(second, end) {
            let place = letters.get(second).map_or(text.len(), |&(place, _)| place);
            pieces.extend(text.get(start..place));
            start = place;
        }
    }
    pieces.extend(text.get(start..));
    pieces
}

fn shape(character: char) -> Shape {
    if character.is_ascii() {
        match character {
            '0'..='9' => Shape::Digit,
            'A'..='Z' => Shape::Upper,
            _ => Shape::Other,
        }
    } else if character.is_numeric() {
        Shape::Digit
    } else if is_upper(character) {
        Shape::Upper
    } else {
        Shape::Other
    }
}
