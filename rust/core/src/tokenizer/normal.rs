//! Unicode's normal form C, and which characters of the text its characters stand for.

use std::borrow::Cow;

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::characters::CharacterProperties;

/// The form that a text is converted to before it is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It stays as it is.
    AsGiven,
    /// Normal form C.
    Composed,
    /// A mark in front, and one for every space.
    Spaced,
}

/// Characters below this one are inert.
const FIRST_MARK: char = '\u{300}';

/// The text in normal form C; borrowed where it surely is already.
pub(super) fn normalised<'a>(text: &'a str, characters: &CharacterProperties) -> Cow<'a, str> {
    let is_inert =
        |character: char| character < FIRST_MARK || characters.properties(character).is_inert;
    if text.is_ascii()
        || text.chars().all(is_inert)
        || is_nfc_quick(text.chars()) == IsNormalized::Yes
    {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().map(|(character, _)| character).collect())
}

/// A character of a text in normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Aligned {
    /// Its bytes.
    pub(super) bytes: usize,
    /// First character of the text as given that it stands for, from 0.
    pub(super) start: usize,
    /// The one behind the last.
    pub(super) end: usize,
}

/// The characters of a text that is left as it is.
pub(super) fn unchanged(text: &str) -> impl Iterator<Item = Aligned> + '_ {
    text.chars().enumerate().map(|(start, character)| Aligned {
        bytes: character.len_utf8(),
        start,
        end: start + 1,
    })
}

/// The characters of its normal form. One that was composed stands for the first of its parts; where one was
/// decomposed, the parts behind the first stand for what lies before the next character.
pub(super) fn composed(text: &str) -> impl Iterator<Item = Aligned> + '_ {
    let mut next: usize = 0;
    text.nfc().map(move |(character, change)| {
        let start = if change > 0 {
            next.saturating_sub(1)
        } else {
            let start = next;
            next += 1 + change.unsigned_abs();
            start
        };
        Aligned {
            bytes: character.len_utf8(),
            start,
            end: start + 1,
        }
    })
}
