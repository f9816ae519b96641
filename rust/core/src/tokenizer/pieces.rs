//! Texts into pieces, as Qwen's pattern cuts them.
//!
//! Tokens never reach over the edge of a piece. The pattern is tried alternative by alternative, as a backtracking
//! engine does; each of the functions below is one of them.

use super::characters::{CharacterProperties, Class};

/// The pattern, as `tokenizer.json` states it.
pub const PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Finds where pieces end.
#[derive(Clone)]
pub(super) struct Splitter {
    characters: &'static CharacterProperties,
    ascii: [Class; 128],
}

impl Splitter {
    pub(super) fn new(characters: &'static CharacterProperties) -> Self {
        let mut ascii = [Class::Other; 128];
        for (code, class) in (0_u8..).zip(&mut ascii) {
            *class = characters.class(char::from(code));
        }
        Self { characters, ascii }
    }

    /// Where the piece ends that begins at `start`, a character's first byte; behind `start` unless the text ends there.
    #[inline]
    pub(super) fn piece_end(&self, text: &str, start: usize) -> usize {
        let Some((class, next)) = self.at(text, start) else {
            return text.len();
        };
        match class {
            Class::Letter => self.run_end(text, next, Class::Letter),
            Class::Number => next,
            Class::LineBreak => self.blank_end(text, start),
            Class::Space => match self.at(text, next) {
                Some((Class::Letter, second)) => self.run_end(text, second, Class::Letter),
                Some((Class::Other, second)) if text.as_bytes().get(start) == Some(&b' ') => {
                    self.signs_end(text, second)
                }
                _ => self.blank_end(text, start),
            },
            Class::Other => {
                if let Some(end) = contraction_end(text.as_bytes(), start) {
                    return end;
                }
                match self.at(text, next) {
                    Some((Class::Letter, second)) => self.run_end(text, second, Class::Letter),
                    _ => self.signs_end(text, next),
                }
            }
        }
    }

    /// The class of the character that begins at `place`, and where the next one begins; nothing at the end.
    #[inline]
    fn at(&self, text: &str, place: usize) -> Option<(Class, usize)> {
        let &byte = text.as_bytes().get(place)?;
        if let Some(&class) = self.ascii.get(usize::from(byte)) {
            return Some((class, place + 1));
        }
        let character = text.get(place..)?.chars().next()?;
        Some((
            self.characters.class(character),
            place + character.len_utf8(),
        ))
    }

    /// The end of the run of one class that goes through `place`.
    #[inline]
    fn run_end(&self, text: &str, mut place: usize, wanted: Class) -> usize {
        while let Some((class, next)) = self.at(text, place) {
            if class != wanted {
                break;
            }
            place = next;
        }
        place
    }

    /// ` ?[^\s\p{L}\p{N}]+[\r\n]*`, one sign being found already.
    fn signs_end(&self, text: &str, place: usize) -> usize {
        let signs = self.run_end(text, place, Class::Other);
        self.run_end(text, signs, Class::LineBreak)
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line break of the run of white space; without one, the whole run
    /// where the text ends with it; else the last character is left to what follows, unless it is the only one.
    fn blank_end(&self, text: &str, start: usize) -> usize {
        let (mut place, mut last, mut after_break) = (start, start, None);
        while let Some((class, next)) = self.at(text, place) {
            match class {
                Class::LineBreak => after_break = Some(next),
                Class::Space => {}
                _ => return after_break.unwrap_or(if last > start { last } else { place }),
            }
            (last, place) = (place, next);
        }
        after_break.unwrap_or(place)
    }
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)`. The long s (U+017F) is an s to every engine that folds case as Unicode says.
#[inline]
fn contraction_end(text: &[u8], start: usize) -> Option<usize> {
    let (b'\'', rest) = text.get(start..)?.split_first()? else {
        return None;
    };
    let (first, second) = (
        *rest.first()?,
        rest.get(1).copied().unwrap_or_default() | 0x20,
    );
    match (first | 0x20, second) {
        (b's' | b't' | b'm' | b'd', _) => Some(start + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(start + 3),
        _ if rest.starts_with("ſ".as_bytes()) => Some(start + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // a test fails by panicking

    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        let splitter = Splitter::new(CharacterProperties::shared().expect("tables of Unicode"));
        let (mut found, mut start) = (Vec::new(), 0);
        while start < text.len() {
            let end = splitter.piece_end(text, start);
            assert!(end > start);
            found.push(text.get(start..end).expect("boundaries of characters"));
            start = end;
        }
        found
    }

    #[test]
    fn every_alternative_and_what_it_leaves() {
        for (text, expected) in [
            ("I'll they'REd", &["I", "'ll", " they", "'RE", "d"][..]),
            ("it'ſx ‘s", &["it", "'ſ", "x", " ‘", "s"]),
            ("(word)word", &["(word", ")word"]),
            ("\tword\u{a0}wörd", &["\tword", "\u{a0}wörd"]),
            ("12 3½", &["1", "2", " ", "3", "½"]),
            ("a  b   1", &["a", " ", " b", "  ", " ", "1"]),
            (" ?!\r\n\nx", &[" ?!\r\n\n", "x"]),
            ("\t?!", &["\t", "?!"]),
            (" \n \n  x", &[" \n \n", " ", " x"]),
            ("x \t ", &["x", " \t "]),
            ("e\u{301}e", &["e", "\u{301}e"]),
            ("", &[]),
        ] {
            assert_eq!(pieces(text), expected, "{text:?}");
        }
    }

    #[test]
    fn tables_are_those_of_unicode_16() {
        let characters = CharacterProperties::shared().expect("tables of Unicode");
        let count = |wanted| {
            let all = ('\0'..=char::MAX).filter(|&character| characters.class(character) == wanted);
            all.count()
        };
        assert_eq!(count(Class::Letter), 141_028);
        assert_eq!(count(Class::Number), 1_911);
        assert_eq!(count(Class::Space), 23);
        assert_eq!(count(Class::LineBreak), 2);
    }
}
