//! Short byte strings as numbers, which are compared, hashed and stored at once: most words are short.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Bytes of a short string at most.
const MAX_BYTES: usize = 15;

/// Two odd numbers: who knows them can choose strings that collide.
pub(crate) type Seed = (u64, u64);

/// For a table in which a collision costs nothing: numbers without a pattern (those of wyhash and of the golden ratio).
pub(crate) const FIXED_SEED: Seed = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

/// A seed that nobody can foresee, the same as long as the process runs.
pub(crate) fn process_seed() -> Seed {
    static SEED: LazyLock<Seed> = LazyLock::new(|| {
        let random = || RandomState::new().build_hasher().finish();
        (random(), random())
    });
    *SEED
}

/// Up to 15 bytes, and in the last byte their number plus 1; the default value is not a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ShortString {
    low: u64,
    high: u64,
}

impl ShortString {
    /// A string, if it is short.
    pub(crate) fn new(string: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_BYTES + 1];
        bytes
            .first_chunk_mut::<MAX_BYTES>()?
            .get_mut(..string.len())?
            .copy_from_slice(string);
        Some(Self::of(u128::from_le_bytes(bytes), string.len()))
    }

    /// The string from `start` to `end` of a text, if it is short and the text has 16 bytes from `start`.
    #[inline]
    pub(crate) fn inside(text: &[u8], start: usize, end: usize) -> Option<Self> {
        let length = end.checked_sub(start)?;
        if length > MAX_BYTES {
            return None;
        }
        // Words differ in length without a pattern, so that telling lengths apart costs more than masking 16 bytes.
        let window = text.get(start..)?.first_chunk()?;
        let string = u128::from_le_bytes(*window) & ((1 << (8 * length)) - 1);
        Some(Self::of(string, length))
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "halves are wanted")]
    fn of(bytes: u128, length: usize) -> Self {
        let all = bytes | (length as u128 + 1) << (8 * MAX_BYTES);
        Self {
            low: all as u64,
            high: (all >> 64) as u64,
        }
    }

    /// The bytes, with zeros behind them, and their number.
    pub(crate) fn bytes(self) -> ([u8; MAX_BYTES + 1], usize) {
        let all = u128::from(self.high) << 64 | u128::from(self.low);
        let mut bytes = all.to_le_bytes();
        let length = bytes.last_mut().map(std::mem::take).unwrap_or_default();
        (bytes, usize::from(length).saturating_sub(1))
    }

    /// Whether it is the same string; without a branch.
    #[inline]
    pub(crate) fn equals(self, other: Self) -> bool {
        ((self.low ^ other.low) | (self.high ^ other.high)) == 0
    }

    /// The first place to look in a table of this many places, a power of two: halves of a product, folded, so that each
    /// bit moves all others.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "halves are wanted; a place is below the number of places"
    )]
    pub(crate) fn place(self, seed: Seed, places: usize) -> usize {
        let product = u128::from(self.low ^ seed.0) * u128::from(self.high ^ seed.1);
        let hash = product as u64 ^ (product >> 64) as u64;
        (hash & (places as u64).wrapping_sub(1)) as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test fails by panicking

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::{FIXED_SEED, MAX_BYTES, ShortString, process_seed};

    proptest! {
        #[test]
        fn what_goes_in_comes_out(string in "[a\\x00]{0,20}", behind in "[a\\x00]{0,20}") {
            let short = ShortString::new(string.as_bytes());
            prop_assert_eq!(short.is_some(), string.len() <= MAX_BYTES);
            let text = format!("{string}{behind}");
            if let Some(inside) = ShortString::inside(text.as_bytes(), 0, string.len()) {
                prop_assert_eq!(Some(inside), short);
            }
            if let Some(short) = short {
                let (bytes, length) = short.bytes();
                prop_assert_eq!(&bytes[..length], string.as_bytes());
                prop_assert!(short != ShortString::default());
            }
        }
    }

    /// Strings that were chosen to collide under a seed that is known do not under that of a process.
    #[test]
    fn places_cannot_be_chosen() {
        let short = |number: u32| ShortString::new(format!("w{number}").as_bytes()).unwrap();
        let chosen = (0..400_000)
            .map(short)
            .filter(|it| it.place(FIXED_SEED, 1024) == 0);
        let chosen: Vec<_> = chosen.collect();
        assert!(chosen.len() > 200);
        let seed = process_seed();
        assert_eq!(seed, process_seed());
        let places: HashSet<_> = chosen.iter().map(|it| it.place(seed, 1024)).collect();
        assert!(places.len() > 100, "{} places", places.len());
        // Nor does a table of 32-bit places put all strings into the first.
        let folded: HashSet<_> = (0..1_000)
            .map(|number| short(number).place(seed, 16))
            .collect();
        assert_eq!(folded.len(), 16);
    }
}
