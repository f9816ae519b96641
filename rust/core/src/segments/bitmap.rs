//! One bit for each chunk of a segment.

use super::{SegmentError, impossible};

/// A set of ordinals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// The empty set, with room for `size` ordinals.
    pub(crate) fn empty(size: u32) -> Self {
        Self {
            words: vec![0; (size as usize).div_ceil(64)],
        }
    }

    /// All ordinals below `size`.
    pub(crate) fn full(size: u32) -> Self {
        let mut words = vec![u64::MAX; (size as usize).div_ceil(64)];
        let rest = size % 64;
        if let (Some(last), true) = (words.last_mut(), rest > 0) {
            *last = (1 << rest) - 1;
        }
        Self { words }
    }

    /// Adds an ordinal below the size.
    #[inline]
    pub(crate) fn insert(&mut self, ordinal: u32) -> Result<(), SegmentError> {
        let word = self.words.get_mut(ordinal as usize / 64);
        *word.ok_or_else(|| impossible("an ordinal is outside its segment"))? |=
            1 << (ordinal % 64);
        Ok(())
    }

    /// Takes an ordinal out.
    #[inline]
    pub(crate) fn remove(&mut self, ordinal: u32) {
        if let Some(word) = self.words.get_mut(ordinal as usize / 64) {
            *word &= !(1 << (ordinal % 64));
        }
    }

    #[inline]
    pub(crate) fn contains(&self, ordinal: u32) -> bool {
        self.words
            .get(ordinal as usize / 64)
            .is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }

    /// Keeps what the other set holds as well.
    pub(crate) fn intersect(&mut self, other: &Self) {
        let words = other.words.iter().chain(std::iter::repeat(&0));
        for (word, other) in self.words.iter_mut().zip(words) {
            *word &= other;
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The ordinals, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..)
            .step_by(64)
            .zip(&self.words)
            .flat_map(|(first, word)| {
                let mut rest = *word;
                std::iter::from_fn(move || {
                    let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                    rest &= rest - 1;
                    Some(first + bit)
                })
            })
    }
}
