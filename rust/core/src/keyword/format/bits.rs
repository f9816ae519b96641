//! Numbers of a few bits each: R. F. Rice's codes (1979) for gaps, unary codes for small counts.

use std::num::NonZeroU32;

use crate::segments::sealed::Read;

/// Unary codes of counts end here; larger ones follow with all their bits.
const MAX_COUNT: u32 = 16;

/// Appends bits to bytes, the lowest first.
#[derive(Default)]
pub(crate) struct BitWriter {
    out: Vec<u8>,
    pending: u64,
    filled: u32,
}

/// A place in what was written.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    bytes: usize,
    pending: u64,
    filled: u32,
}

impl BitWriter {
    /// The place behind what was written.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.out.len(),
            pending: self.pending,
            filled: self.filled,
        }
    }

    /// Forgets what was written behind a place.
    pub(crate) fn back(&mut self, mark: Mark) {
        self.out.truncate(mark.bytes);
        (self.pending, self.filled) = (mark.pending, mark.filled);
    }

    /// Bytes, the begun one included.
    pub(crate) fn bytes(&self) -> usize {
        self.out.len() + self.filled.div_ceil(8) as usize
    }

    /// The lowest `bits` (at most 32) of a value that has no others.
    #[inline]
    pub(crate) fn bits(&mut self, value: u32, bits: u32) {
        self.pending |= u64::from(value) << self.filled;
        self.filled += bits;
        if self.filled >= 32 {
            let [a, b, c, d, ..] = self.pending.to_le_bytes();
            self.out.extend_from_slice(&[a, b, c, d]);
            self.pending >>= 32;
            self.filled -= 32;
        }
    }

    /// Zeros, and a one behind them.
    #[inline]
    pub(crate) fn unary(&mut self, zeros: u32) {
        let mut left = zeros;
        while left >= 32 {
            self.bits(0, 32);
            left -= 32;
        }
        self.bits(1 << left, left + 1);
    }

    /// A number as its multiples of 2^k, in unary, and the k bits that are left.
    #[inline]
    pub(crate) fn rice(&mut self, value: u32, k: u32) {
        self.unary(value >> k);
        self.bits(value & ((1 << k) - 1), k);
    }

    /// A number that is small most of the time.
    #[inline]
    pub(crate) fn count(&mut self, value: u32) {
        if value < MAX_COUNT {
            self.unary(value);
        } else {
            self.bits(0, MAX_COUNT);
            self.bits(value, 32);
        }
    }

    /// How many bits a number has, in unary, and those below the highest (P. Elias's gamma code, 1975).
    pub(crate) fn gamma(&mut self, value: NonZeroU32) {
        let below = value.ilog2();
        self.unary(below);
        self.bits(value.get() & ((1 << below) - 1), below);
    }

    /// The bytes, the last one filled; nothing is left.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let bytes = self.filled.div_ceil(8) as usize;
        let pending = self.pending.to_le_bytes();
        self.out.extend(pending.iter().take(bytes));
        (self.pending, self.filled) = (0, 0);
        std::mem::take(&mut self.out)
    }
}

/// Reads what [`BitWriter`] wrote.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

const ENDS_EARLY: &str = "the bits end early";
/// One look sees this many zeros, a one, 16 bits and a count of 16 bits.
const SOON: u32 = 24;
const GAP: &str = "a gap between ordinals is too large";

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads on from a place where another reader stood.
    pub(crate) fn from(bytes: &'a [u8], place: usize) -> Self {
        Self { bytes, at: place }
    }

    /// Bytes from the first bit to the last.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many bits were read.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    /// At least 57 bits from here on, zeros behind the end.
    #[inline]
    fn window(&self) -> u64 {
        // Behind the end nothing is left; `step` finds that out.
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = match rest.first_chunk::<8>() {
            Some(word) => *word,
            None => {
                let mut word = [0; 8];
                word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                word
            }
        };
        u64::from_le_bytes(word) >> (self.at % 8)
    }

    #[inline]
    fn step(&mut self, bits: u32) -> Read<()> {
        self.at += bits as usize;
        if self.at > self.bytes.len() * 8 {
            Err(ENDS_EARLY)
        } else {
            Ok(())
        }
    }

    /// Returns an error if the end was passed.
    pub(crate) fn within(&mut self) -> Read<()> {
        self.step(0)
    }

    /// A value of at most 32 bits.
    pub(crate) fn bits(&mut self, bits: u32) -> Read<u32> {
        let value = self.window() & ((1 << bits) - 1);
        self.step(bits)?;
        u32::try_from(value).map_err(|_| ENDS_EARLY)
    }

    /// A symbol of a code: `meaning` tells from the next bits what it is, and how many of them it takes.
    #[inline]
    pub(crate) fn symbol(&mut self, meaning: impl FnOnce(u64) -> Read<(u8, u8)>) -> Read<u8> {
        let (symbol, bits) = meaning(self.window())?;
        self.step(u32::from(bits))?;
        Ok(symbol)
    }

    /// What `rice` and then `count` wrote. Most of the time one look is enough; then the end is not looked for: behind it
    /// there are zeros, so that the next number finds it.
    #[inline]
    pub(crate) fn rice_and_count(&mut self, k: u32) -> Read<(u32, u32)> {
        let window = self.window();
        let multiples = window.trailing_zeros();
        if multiples < SOON {
            let rest = window >> (multiples + 1);
            let count = (rest >> k).trailing_zeros();
            if count < MAX_COUNT {
                self.at += (multiples + k + count + 2) as usize;
                let low = u32::try_from(rest & ((1 << k) - 1)).map_err(|_| GAP)?;
                return Ok((multiples << k | low, count));
            }
        }
        self.apart(k)
    }

    #[cold]
    fn apart(&mut self, k: u32) -> Read<(u32, u32)> {
        Ok((self.rice(k)?, self.count()?))
    }

    pub(crate) fn rice(&mut self, k: u32) -> Read<u32> {
        let mut multiples = 0;
        loop {
            let zeros = self.window().trailing_zeros().min(56);
            multiples += zeros;
            if zeros < 56 {
                self.step(zeros + 1)?;
                break;
            }
            self.step(zeros)?;
        }
        let high = multiples.checked_mul(1 << k).ok_or(GAP)?;
        Ok(high | self.bits(k)?)
    }

    #[inline]
    pub(crate) fn count(&mut self) -> Read<u32> {
        let zeros = self.window().trailing_zeros();
        if zeros < MAX_COUNT {
            self.step(zeros + 1)?;
            return Ok(zeros);
        }
        self.step(MAX_COUNT)?;
        let value = self.bits(32)?;
        if value < MAX_COUNT {
            Err("a count is not in its shortest form")
        } else {
            Ok(value)
        }
    }

    pub(crate) fn gamma(&mut self) -> Read<u32> {
        let below = self.window().trailing_zeros();
        if below > 31 {
            return Err("a number is too large");
        }
        self.step(below + 1)?;
        Ok(1 << below | self.bits(below)?)
    }

    /// Returns an error if more is left than the filling of the last byte.
    pub(crate) fn end(&self) -> Read<()> {
        if self.at.div_ceil(8) == self.bytes.len() && self.window() == 0 {
            Ok(())
        } else {
            Err("unexpected bits follow the content")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BitReader, BitWriter, NonZeroU32};

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((0_u32..70_000, 8_u32..17, any::<u32>(), 0_u32..32), 0..50)) {
            let mut writer = BitWriter::default();
            for (gap, k, count, shift) in &numbers {
                writer.rice(*gap, *k);
                writer.count(count >> shift);
                writer.bits(*gap, 17);
                let mark = writer.mark();
                writer.rice(*count >> shift >> 16, *k);
                writer.back(mark);
                writer.gamma(NonZeroU32::new(count >> shift).unwrap_or(NonZeroU32::MIN));
                writer.rice(*gap, *k);
                writer.count(count >> shift);
            }
            let expected = writer.bytes();
            let bytes = writer.finish();
            prop_assert_eq!(bytes.len(), expected);
            let mut reader = BitReader::new(&bytes);
            for (gap, k, count, shift) in &numbers {
                prop_assert_eq!(reader.rice(*k), Ok(*gap));
                prop_assert_eq!(reader.count(), Ok(count >> shift));
                prop_assert_eq!(reader.bits(17), Ok(*gap));
                prop_assert_eq!(reader.gamma(), Ok((count >> shift).max(1)));
                prop_assert_eq!(reader.rice_and_count(*k), Ok((*gap, count >> shift)));
            }
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }
}
