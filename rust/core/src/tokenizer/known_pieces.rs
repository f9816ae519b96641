//! Tokens of whole pieces: of pieces that are one token, and of pieces that were encoded recently.

use rustc_hash::FxHashMap;

use crate::short_string::{FIXED_SEED, ShortString};

/// Tokens of a piece that is remembered: more are rare, and would make every place larger.
const REMEMBERED_TOKENS: usize = 3;
const REMEMBERED_PIECES: usize = 1 << 14;

/// A piece of a text, if it is short.
#[inline]
pub(super) fn short(text: &[u8], start: usize, end: usize) -> Option<ShortString> {
    let inside = ShortString::inside(text, start, end);
    inside.or_else(|| ShortString::new(text.get(start..end)?))
}

/// Pieces that are one token.
#[derive(Default)]
pub(super) struct KnownPieces {
    short: FxHashMap<ShortString, u32>,
    long: FxHashMap<Box<[u8]>, u32>,
}

impl KnownPieces {
    /// Adds a piece.
    pub(super) fn insert(&mut self, piece: &[u8], id: u32) {
        match ShortString::new(piece) {
            Some(key) => self.short.insert(key, id),
            None => self.long.insert(piece.into(), id),
        };
    }

    /// Looks up a short piece.
    pub(super) fn short(&self, key: ShortString) -> Option<u32> {
        self.short.get(&key).copied()
    }

    /// Looks up a piece that is not short.
    pub(super) fn long(&self, piece: &[u8]) -> Option<u32> {
        self.long.get(piece).copied()
    }
}

/// Short pieces met lately, each in the one place that its bytes choose: texts repeat their words.
pub(super) struct RecentPieces {
    places: Vec<Remembered>,
}

/// A piece and its tokens.
#[derive(Clone, Copy, Default)]
pub(super) struct Remembered {
    key: ShortString,
    ids: [u32; REMEMBERED_TOKENS],
    count: u32,
}

impl Remembered {
    /// The tokens.
    #[inline]
    pub(super) fn ids(&self) -> &[u32] {
        self.ids.get(..self.count as usize).unwrap_or_default()
    }
}

impl RecentPieces {
    pub(super) fn new() -> Self {
        Self {
            places: vec![Remembered::default(); REMEMBERED_PIECES],
        }
    }

    /// The piece, where it is remembered.
    #[inline]
    pub(super) fn get(&self, key: ShortString) -> Option<&Remembered> {
        self.places
            .get(key.place(FIXED_SEED, REMEMBERED_PIECES))
            .filter(|found| found.key == key)
    }

    /// Remembers a piece instead of the one that has its place.
    pub(super) fn set(&mut self, key: ShortString, ids: &[u32]) {
        let (Some(slot), Ok(count)) = (
            self.places
                .get_mut(key.place(FIXED_SEED, REMEMBERED_PIECES)),
            u32::try_from(ids.len()),
        ) else {
            return;
        };
        let mut kept = [0; REMEMBERED_TOKENS];
        if let Some(room) = kept.get_mut(..ids.len()) {
            room.copy_from_slice(ids);
            *slot = Remembered {
                key,
                ids: kept,
                count,
            };
        }
    }
}
