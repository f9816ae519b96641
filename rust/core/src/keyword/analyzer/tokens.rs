//! The offsets of the tokens of a text.
//!
//! A token is a run of letters, numbers and their marks. In scripts that set spaces, these join two runs to one token:
//!
//! | between | joins |
//! |---|---|
//! | `-` `/` `@` apostrophe, middle dot | a letter or number on both sides |
//! | `_`, several of them, `::` | the same |
//! | `.` | the same, but not before an upper-case letter that follows a lower-case letter or a number (`end.Start`) |
//! | `,` | thousands (`1,000`) |
//!
//! `#` or `++` right behind a letter belongs to it (`C#`, `C++`) where no letter or number follows. Korean is cut from
//! other letters, because its particles stand behind foreign words. Han and kana become overlapping pairs and the last
//! character of the run; Thai and its like overlapping threes, or the run where it is shorter. A token longer than
//! [`MAX_TOKEN_BYTES`] is cut.

use super::characters::{CharacterKind, CharacterKinds, is_upper};

/// Longer tokens are cut into pieces.
pub const MAX_TOKEN_BYTES: usize = 512;

/// Calls `token` with the start and end of every token, in order of their starts.
pub(super) fn scan(text: &str, characters: &CharacterKinds, mut token: impl FnMut(usize, usize)) {
    let scanner = Scanner { text, characters };
    let bytes = text.as_bytes();
    let mut place = 0;
    while let Some(&byte) = bytes.get(place) {
        if byte.is_ascii() {
            if !byte.is_ascii_alphanumeric() {
                place += 1;
                continue;
            }
            let end = scanner.word_end(place);
            cut(text, place, end, &mut token);
            place = end;
            continue;
        }
        let Some(character) = scanner.at(place) else {
            return;
        };
        match characters.kind(character) {
            CharacterKind::Accented | CharacterKind::Letter => {
                let end = scanner.word_end(place);
                cut(text, place, end, &mut token);
                place = end;
            }
            CharacterKind::Hangul => {
                let end = scanner.run_end(place, CharacterKind::Hangul);
                cut(text, place, end, &mut token);
                place = end;
            }
            CharacterKind::Pair => place = scanner.pairs(place, &mut token),
            CharacterKind::Triple => place = scanner.triples(place, &mut token),
            CharacterKind::Break
            | CharacterKind::Mark
            | CharacterKind::Format
            | CharacterKind::Joiner => place += character.len_utf8(),
        }
    }
}

/// Hands out a token in pieces that are short enough.
fn cut(text: &str, start: usize, end: usize, token: &mut impl FnMut(usize, usize)) {
    let mut from = start;
    while end - from > MAX_TOKEN_BYTES {
        let to = character_start(text, from + MAX_TOKEN_BYTES);
        token(from, to);
        from = to;
    }
    token(from, end);
}

/// Where the character begins that the byte is part of.
pub(super) fn character_start(text: &str, mut byte: usize) -> usize {
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

struct Scanner<'a> {
    text: &'a str,
    characters: &'a CharacterKinds,
}

impl Scanner<'_> {
    fn at(&self, place: usize) -> Option<char> {
        self.text.get(place..)?.chars().next()
    }

    /// The character before a place; marks are skipped.
    fn before(&self, place: usize) -> Option<char> {
        let is_mark = |it: &char| {
            matches!(
                self.characters.kind(*it),
                CharacterKind::Mark | CharacterKind::Format
            )
        };
        self.text.get(..place)?.chars().rfind(|it| !is_mark(it))
    }

    fn byte(&self, place: usize) -> Option<u8> {
        self.text.as_bytes().get(place).copied()
    }

    fn is_word(&self, place: usize) -> bool {
        match self.byte(place) {
            Some(byte) if byte.is_ascii() => byte.is_ascii_alphanumeric(),
            Some(_) => self.at(place).is_some_and(|it| self.characters.is_word(it)),
            None => false,
        }
    }

    /// The end of the token that begins with a letter or number at `place`.
    fn word_end(&self, mut place: usize) -> usize {
        let bytes = self.text.as_bytes();
        loop {
            while let Some(eight) = bytes.get(place..).and_then(<[u8]>::first_chunk) {
                let letters = leading_alphanumeric(*eight);
                place += letters;
                if letters < eight.len() {
                    break;
                }
            }
            while bytes.get(place).is_some_and(u8::is_ascii_alphanumeric) {
                place += 1;
            }
            let Some(&byte) = bytes.get(place) else {
                return place;
            };
            if byte.is_ascii() {
                match self.joined(place, byte) {
                    Some(next) => place = next,
                    None => return self.suffix_end(place, byte),
                }
                continue;
            }
            let Some(character) = self.at(place) else {
                return place;
            };
            let behind = place + character.len_utf8();
            match self.characters.kind(character) {
                CharacterKind::Accented
                | CharacterKind::Letter
                | CharacterKind::Mark
                | CharacterKind::Format => place = behind,
                CharacterKind::Joiner if self.is_word(behind) => place = behind,
                _ => return place,
            }
        }
    }

    /// Where the token continues after the punctuation at `place`; `None` if it ends there.
    #[inline]
    fn joined(&self, place: usize, byte: u8) -> Option<usize> {
        let behind = match byte {
            b'-' | b'/' | b'@' | b'\'' => place + 1,
            b'.' if !self.ends_sentence(place) => place + 1,
            b',' if self.is_thousands(place) => place + 1,
            b':' if self.byte(place + 1) == Some(b':') => place + 2,
            b'_' => {
                let mut behind = place + 1;
                while self.byte(behind) == Some(b'_') {
                    behind += 1;
                }
                behind
            }
            _ => return None,
        };
        self.is_word(behind).then_some(behind)
    }

    /// `C#`, `C++`
    #[inline]
    fn suffix_end(&self, place: usize, byte: u8) -> usize {
        let end = match byte {
            b'#' => place + 1,
            b'+' if self.byte(place + 1) == Some(b'+') => place + 2,
            _ => return place,
        };
        let follows_letter = self.before(place).is_some_and(char::is_alphabetic);
        let again = matches!(self.byte(end), Some(b'#' | b'+'));
        if follows_letter && !again && !self.is_word(end) {
            end
        } else {
            place
        }
    }

    fn ends_sentence(&self, dot: usize) -> bool {
        self.at(dot + 1).is_some_and(is_upper) && !self.before(dot).is_some_and(is_upper)
    }

    /// Whether one to three digits stand before the comma, and exactly three behind it.
    fn is_thousands(&self, comma: usize) -> bool {
        let digits = |places: &mut dyn Iterator<Item = usize>| {
            places
                .take_while(|&it| self.byte(it).is_some_and(|it| it.is_ascii_digit()))
                .take(4)
                .count()
        };
        let before = digits(&mut (0..comma).rev());
        let behind = digits(&mut (comma + 1..));
        (1..=3).contains(&before) && behind == 3 && !self.is_letter_before(comma - before)
    }

    fn is_letter_before(&self, place: usize) -> bool {
        self.before(place).is_some_and(char::is_alphabetic)
    }

    fn run_end(&self, start: usize, kind: CharacterKind) -> usize {
        let mut end = start;
        while let Some(character) = self.at(end) {
            let found = self.characters.kind(character);
            if found != kind && !matches!(found, CharacterKind::Mark | CharacterKind::Format) {
                break;
            }
            end += character.len_utf8();
        }
        end
    }

    /// The end of the character at `start` with the marks behind it.
    fn character_end(&self, start: usize) -> usize {
        let mut end = start + self.at(start).map_or(0, char::len_utf8);
        while let Some(character) = self.at(end) {
            if !matches!(
                self.characters.kind(character),
                CharacterKind::Mark | CharacterKind::Format
            ) {
                break;
            }
            end += character.len_utf8();
        }
        end
    }

    fn is_kind(&self, place: usize, kind: CharacterKind) -> bool {
        self.at(place)
            .is_some_and(|it| self.characters.kind(it) == kind)
    }

    /// Hands out the pairs of a run and its last character; returns the end of the run.
    fn pairs(&self, start: usize, token: &mut impl FnMut(usize, usize)) -> usize {
        let (mut first, mut second) = (start, self.character_end(start));
        while self.is_kind(second, CharacterKind::Pair) {
            let end = self.character_end(second);
            cut(self.text, first, end, token);
            (first, second) = (second, end);
        }
        cut(self.text, first, second, token);
        second
    }

    /// Hands out the threes of a run; returns its end.
    fn triples(&self, start: usize, token: &mut impl FnMut(usize, usize)) -> usize {
        // Where the last two characters begin.
        let (mut first, mut second) = (start, start);
        let mut end = start;
        let mut characters = 0_usize;
        while self.is_kind(end, CharacterKind::Triple) {
            let next = self.character_end(end);
            characters += 1;
            if characters >= 3 {
                cut(self.text, first, next, token);
            }
            (first, second) = (second, end);
            end = next;
        }
        if characters < 3 {
            cut(self.text, start, end, token);
        }
        end
    }
}

/// How many ASCII letters and digits the bytes begin with, all compared at once: where a word ends cannot be guessed.
#[inline]
fn leading_alphanumeric(bytes: [u8; 8]) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = EACH << 7;
    let all = u64::from_le_bytes(bytes);
    // Without its top bit a byte leaves room for a sum that sets the bit from some value on.
    let from = |of: u64, least: u8| (of & !TOP) + EACH * u64::from(0x80 - least);
    let lower = all | (EACH * 0x20);
    let letter = from(lower, b'a') & !from(lower, b'z' + 1);
    let digit = from(all, b'0') & !from(all, b'9' + 1);
    let other = !((letter | digit) & !all) & TOP;
    (other.trailing_zeros() / 8) as usize
}

/// The end of the first of a pair's two characters; the length of the text where it is one character.
pub(super) fn first_character_end(text: &str, characters: &CharacterKinds) -> usize {
    let scanner = Scanner { text, characters };
    scanner.character_end(0)
}

#[cfg(test)]
mod tests {
    use super::leading_alphanumeric;

    #[test]
    fn eight_bytes_are_eight_times_one() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                for around in [b'a', b'Z', b'0', b' ', 0xff] {
                    let mut bytes = [around; 8];
                    bytes[place] = byte;
                    let plain = bytes.iter().take_while(|it| it.is_ascii_alphanumeric());
                    assert_eq!(leading_alphanumeric(bytes), plain.count(), "{bytes:?}");
                }
            }
        }
    }
}
