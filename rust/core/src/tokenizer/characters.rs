//! Classes of characters, as the splitting pattern and the normaliser ask for them, in one table of all of Unicode.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex_syntax::hir::{Class as CharacterClass, HirKind};
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

const PAGE: usize = 256;
const CODE_POINTS: usize = 0x11_0000;

/// The classes of the splitting pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    Other,
}

/// Properties of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Properties {
    /// Its class.
    pub(super) class: Class,
    /// Whether NFC leaves it as it is, and where it is, beside any neighbour of which this holds as well.
    pub(super) is_inert: bool,
}

/// Properties of all characters: pages of 256 code points, equal ones stored once.
pub(super) struct CharacterProperties {
    pages: Vec<u16>,
    properties: Vec<Properties>,
}

static PROPERTIES: LazyLock<Option<CharacterProperties>> =
    LazyLock::new(CharacterProperties::build);

impl CharacterProperties {
    /// The only table, made once; `None` if the tables of Unicode are missing.
    pub(super) fn shared() -> Option<&'static Self> {
        PROPERTIES.as_ref()
    }

    /// The properties of a character.
    #[inline]
    pub(super) fn properties(&self, character: char) -> Properties {
        let code = character as usize;
        let page = self.pages.get(code / PAGE).copied().unwrap_or_default();
        let place = usize::from(page) * PAGE + code % PAGE;
        self.properties.get(place).copied().unwrap_or(Properties {
            class: Class::Other,
            is_inert: false,
        })
    }

    /// Its class.
    #[inline]
    pub(super) fn class(&self, character: char) -> Class {
        self.properties(character).class
    }

    fn build() -> Option<Self> {
        let mut classes = vec![Class::Other; CODE_POINTS];
        let rules = [
            (r"\p{L}", Class::Letter),
            (r"\p{N}", Class::Number),
            (r"\s", Class::Space),
            (r"[\r\n]", Class::LineBreak),
        ];
        for (pattern, class) in rules {
            let parsed = regex_syntax::parse(pattern).ok()?;
            let HirKind::Class(CharacterClass::Unicode(ranges)) = parsed.kind() else {
                return None;
            };
            for range in ranges.ranges() {
                classes
                    .get_mut(range.start() as usize..=range.end() as usize)?
                    .fill(class);
            }
        }
        let mut known: HashMap<Vec<Properties>, u16> = HashMap::new();
        let (mut pages, mut properties) = (Vec::new(), Vec::new());
        for (codes, page) in (0_u32..).step_by(PAGE).zip(classes.chunks(PAGE)) {
            let page: Vec<Properties> = (codes..)
                .zip(page)
                .map(|(code, &class)| Properties {
                    class,
                    is_inert: char::from_u32(code).is_some_and(is_inert),
                })
                .collect();
            let number = u16::try_from(known.len()).ok()?;
            let number = *known.entry(page.clone()).or_insert(number);
            if usize::from(number) * PAGE == properties.len() {
                properties.extend(page);
            }
            pages.push(number);
        }
        Some(Self { pages, properties })
    }
}

fn is_inert(character: char) -> bool {
    canonical_combining_class(character) == 0
        && is_nfc_quick([character].into_iter()) == IsNormalized::Yes
}
