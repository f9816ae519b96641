//! Classes of characters, as the splitting pattern and the normaliser ask for them, in one table of all of Unicode.

use std::sync::LazyLock;

use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

use crate::character_table::CharacterTable;

/// The classes of the splitting pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Class {
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\s` without `[\r\n]`
    Space,
    /// `[\r\n]`
    LineBreak,
    /// `[^\s\p{L}\p{N}]`
    #[default]
    Other,
}

/// Properties of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Properties {
    /// Its class.
    pub(super) class: Class,
    /// Whether NFC leaves it as it is, and where it is, beside any neighbour of which this holds as well.
    pub(super) is_inert: bool,
}

/// Properties of all characters.
pub(super) struct CharacterProperties(CharacterTable<Properties>);

static PROPERTIES: LazyLock<Option<CharacterProperties>> =
    LazyLock::new(CharacterProperties::build);

impl CharacterProperties {
    /// The one table; nothing where the tables of Unicode are not to be had.
    pub(super) fn shared() -> Option<&'static Self> {
        PROPERTIES.as_ref()
    }

    /// The properties of a character.
    #[inline]
    pub(super) fn properties(&self, character: char) -> Properties {
        self.0.get(character)
    }

    /// Its class.
    #[inline]
    pub(super) fn class(&self, character: char) -> Class {
        self.properties(character).class
    }

    fn build() -> Option<Self> {
        let rules = [
            (r"\p{L}", Class::Letter),
            (r"\p{N}", Class::Number),
            (r"\s", Class::Space),
            (r"[\r\n]", Class::LineBreak),
        ];
        let properties = |code, class| Properties {
            class,
            is_inert: char::from_u32(code).is_some_and(is_inert),
        };
        CharacterTable::new(Class::Other, &rules, properties).map(Self)
    }
}

fn is_inert(character: char) -> bool {
    canonical_combining_class(character) == 0
        && is_nfc_quick([character].into_iter()) == IsNormalized::Yes
}
