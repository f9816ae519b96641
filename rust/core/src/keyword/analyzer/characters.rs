//! The kind of each character of Unicode, in one table.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

const CODE_POINTS: usize = 0x11_0000;

/// Kind of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum CharacterKind {
    /// Separates words.
    #[default]
    Break,
    /// A letter or number of a script whose marks are accents: they are dropped.
    Accented,
    /// A letter of a script whose marks are letters: they stay.
    Letter,
    /// A Korean syllable or a part of one.
    Hangul,
    /// A character of a script without spaces whose tokens are pairs of characters.
    Pair,
    /// A character of a script without spaces whose tokens are three characters long.
    Triple,
    /// Combines with the character before it.
    Mark,
    /// Invisible; belongs to what stands before it.
    Format,
    /// An apostrophe, hyphen or similar character, which belongs to a word if letters are on both sides.
    Joiner,
}

/// Later rules win.
const RULES: [(&str, CharacterKind); 10] = [
    (r"[\p{L}\p{N}]", CharacterKind::Letter),
    // Common holds the digits. Vowel points of Hebrew, Arabic and Syriac are left out in most writing.
    (
        r"(?x)[[\p{L}\p{N}]&&[
            \p{Latin}\p{Greek}\p{Coptic}\p{Cyrillic}\p{Armenian}\p{Georgian}
            \p{Hebrew}\p{Arabic}\p{Syriac}\p{Common}\p{Nd}
        ]]",
        CharacterKind::Accented,
    ),
    (r"[\p{L}&&\p{Hangul}]", CharacterKind::Hangul),
    (
        r"[[\p{L}\p{Nl}]&&[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Tangut}\p{Nushu}]]",
        CharacterKind::Pair,
    ),
    // The sign of a long vowel, and the like, belong to both kana; half-width voicing marks combine but are letters.
    (r"[\x{3006}\x{30FC}\x{FF70}]", CharacterKind::Pair),
    (r"[\p{Mn}\p{Mc}\p{Me}\x{FF9E}\x{FF9F}]", CharacterKind::Mark),
    (
        r"[[\p{L}\p{M}]&&[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}]]",
        CharacterKind::Triple,
    ),
    (
        r"[\p{Cf}\x{FE00}-\x{FE0F}\x{180B}-\x{180D}\x{E0100}-\x{E01EF}]",
        CharacterKind::Format,
    ),
    // Letters by category, punctuation by use: apostrophes, hyphens, the dot inside of Catalan words, Hebrew geresh.
    (
        r"[\x{2019}\x{2BC}\x{2BB}\x{FF07}\x{2010}\x{2011}\x{B7}\x{5F3}\x{5F4}]",
        CharacterKind::Joiner,
    ),
    // The zero-width space marks words in Thai and Khmer.
    (r"\x{200B}", CharacterKind::Break),
];

// The tokenizer has its own: one type for both was longer, and made building an index 1 % slower.
/// The kinds of all characters.
pub(super) struct CharacterKinds {
    kinds: Vec<CharacterKind>,
    /// First and last of each run of decimal digits; runs are whole tens.
    digits: Vec<(char, char)>,
}

static KINDS: LazyLock<Option<CharacterKinds>> = LazyLock::new(CharacterKinds::build);

impl CharacterKinds {
    /// The only table, made once; `None` if the tables of Unicode are missing.
    pub(super) fn shared() -> Option<&'static Self> {
        KINDS.as_ref()
    }

    /// The kind of a character.
    #[inline]
    pub(super) fn kind(&self, character: char) -> CharacterKind {
        let kind = self.kinds.get(character as usize);
        // Every character has a place.
        kind.copied().unwrap_or_default()
    }

    /// Whether it belongs to words that end at spaces.
    #[inline]
    pub(super) fn is_word(&self, character: char) -> bool {
        matches!(
            self.kind(character),
            CharacterKind::Accented | CharacterKind::Letter
        )
    }

    /// Whether it is a letter or number of any script; marks are none.
    pub(super) fn is_letter(&self, character: char) -> bool {
        !matches!(
            self.kind(character),
            CharacterKind::Break
                | CharacterKind::Mark
                | CharacterKind::Format
                | CharacterKind::Joiner
        )
    }

    /// The ASCII form of a digit; other characters are unchanged.
    pub(super) fn ascii_digit(&self, character: char) -> char {
        if character.is_ascii() {
            return character;
        }
        let after = self.digits.partition_point(|&(_, last)| last < character);
        match self.digits.get(after) {
            Some(&(first, _)) if first <= character => {
                let value = (u32::from(character) - u32::from(first)) % 10;
                // The value is below 10, so that it has a digit.
                char::from_digit(value, 10).unwrap_or(character)
            }
            _ => character,
        }
    }

    fn build() -> Option<Self> {
        let mut kinds = vec![CharacterKind::Break; CODE_POINTS];
        for (pattern, kind) in RULES {
            for (first, last) in ranges(pattern)? {
                kinds.get_mut(first as usize..=last as usize)?.fill(kind);
            }
        }
        let digits = ranges(r"\p{Nd}")?;
        Some(Self { kinds, digits })
    }
}

/// Whether a letter has a lower-case form; this includes Unicode's title case letters.
pub(super) fn is_upper(character: char) -> bool {
    character.is_uppercase() || character.to_lowercase().next() != Some(character)
}

/// The characters of a class, as ranges in ascending order.
fn ranges(pattern: &str) -> Option<Vec<(char, char)>> {
    let parsed = regex_syntax::parse(pattern).ok()?;
    match parsed.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class.ranges().iter();
            Some(ranges.map(|range| (range.start(), range.end())).collect())
        }
        // A class of one character is a literal to the parser.
        HirKind::Literal(literal) => {
            let character = std::str::from_utf8(&literal.0).ok()?.chars().next()?;
            Some(vec![(character, character)])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // a test fails by panicking

    use super::{CharacterKind, CharacterKinds};

    #[test]
    fn kinds_of_characters() {
        let characters = CharacterKinds::shared().expect("the features of regex-syntax");
        for (text, kind) in [
            ("aß1é²АёΩאبܐ", CharacterKind::Accented),
            ("कத", CharacterKind::Letter),
            ("한ᄀ", CharacterKind::Hangul),
            ("漢々〇ひカｶー", CharacterKind::Pair),
            ("กำ่ກខက", CharacterKind::Triple),
            ("\u{301}\u{5b0}\u{64b}\u{93f}\u{3099}ﾞ", CharacterKind::Mark),
            (
                "\u{200d}\u{200c}\u{ad}\u{feff}\u{fe0f}\u{202a}",
                CharacterKind::Format,
            ),
            ("’‐·״", CharacterKind::Joiner),
            (
                "\u{200b} \u{fffd}。・「😀™\u{3000}\u{a0}",
                CharacterKind::Break,
            ),
        ] {
            for character in text.chars() {
                assert_eq!(characters.kind(character), kind, "{character:?}");
            }
        }
        assert_eq!(characters.ascii_digit('٣'), '3');
        assert_eq!(characters.ascii_digit('๙'), '9');
        assert_eq!(characters.ascii_digit('x'), 'x');
        assert_eq!(characters.ascii_digit('7'), '7');
    }
}
