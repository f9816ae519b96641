//! Tokens of whole pieces: those that are one token, and those that were met a moment ago.

use rustc_hash::FxHashMap;

/// Pieces of up to this many bytes are packed into one number, with their length.
const PACKED_BYTES: usize = 15;
/// Tokens of a piece that is remembered: more are rare, and would make every place larger.
const REMEMBERED_TOKENS: usize = 3;
const REMEMBERED_PIECES: usize = 1 << 14;

/// A short piece as a number: never 0, and different for different pieces.
pub(super) fn packed(text: &[u8], start: usize, end: usize) -> Option<u128> {
    let length = end.checked_sub(start)?;
    if length == 0 || length > PACKED_BYTES {
        return None;
    }
    let bytes = match text.get(start..).and_then(<[u8]>::first_chunk::<16>) {
        Some(chunk) => u128::from_le_bytes(*chunk) & ((1 << (8 * length)) - 1),
        None => {
            let mut chunk = [0; 16];
            chunk
                .get_mut(..length)?
                .copy_from_slice(text.get(start..end)?);
            u128::from_le_bytes(chunk)
        }
    };
    Some(bytes | (length as u128) << 120)
}

/// Pieces that are one token.
#[derive(Default)]
pub(super) struct Words {
    short: FxHashMap<u128, u32>,
    long: FxHashMap<Box<[u8]>, u32>,
}

impl Words {
    /// Adds a piece.
    pub(super) fn insert(&mut self, piece: &[u8], id: u32) {
        match packed(piece, 0, piece.len()) {
            Some(key) => self.short.insert(key, id),
            None => self.long.insert(piece.into(), id),
        };
    }

    /// Looks up a short piece.
    pub(super) fn short(&self, key: u128) -> Option<u32> {
        self.short.get(&key).copied()
    }

    /// Looks up a piece that is too long to be packed.
    pub(super) fn long(&self, piece: &[u8]) -> Option<u32> {
        self.long.get(piece).copied()
    }
}

/// Short pieces met lately, each in the one place that its bytes choose: texts repeat their words.
pub(super) struct Recent {
    places: Vec<Remembered>,
}

/// A piece and its tokens.
#[derive(Clone, Copy, Default)]
pub(super) struct Remembered {
    key: u128,
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

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            places: vec![Remembered::default(); REMEMBERED_PIECES],
        }
    }

    /// The piece, where it is remembered.
    #[inline]
    pub(super) fn get(&self, key: u128) -> Option<&Remembered> {
        self.places.get(place(key)).filter(|found| found.key == key)
    }

    /// Remembers a piece instead of the one that has its place.
    pub(super) fn set(&mut self, key: u128, ids: &[u32]) {
        let (Some(slot), Ok(count)) = (self.places.get_mut(place(key)), u32::try_from(ids.len()))
        else {
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

/// Multiplies by odd numbers near the golden ratio and takes high bits, which every bit of the piece has reached.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the halves of the number")]
fn place(key: u128) -> usize {
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mixed =
        (low ^ high.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> (64 - REMEMBERED_PIECES.trailing_zeros())) as usize
}
