//! Numbers of a few bits each: R. F. Rice's codes (1979) for gaps, unary codes for small counts.

use super::sealed::Read;

/// Unary codes of counts end here; larger ones follow with all their bits.
const LONGEST_COUNT: u32 = 16;

/// Appends bits to bytes, the lowest first.
pub(crate) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    pending: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            pending: 0,
            filled: 0,
        }
    }

    /// The lowest `bits` (at most 32) of a value that has no others.
    pub(crate) fn bits(&mut self, value: u32, bits: u32) {
        self.pending |= u64::from(value) << self.filled;
        self.filled += bits;
        while self.filled >= 8 {
            self.out.push(self.pending.to_le_bytes()[0]);
            self.pending >>= 8;
            self.filled -= 8;
        }
    }

    fn zeros(&mut self, count: u32) {
        for _ in 0..count / 32 {
            self.bits(0, 32);
        }
        self.bits(0, count % 32);
    }

    /// A number as its multiples of 2^k, in unary, and the k bits that are left.
    pub(crate) fn rice(&mut self, value: u32, k: u32) {
        self.zeros(value >> k);
        self.bits(1, 1);
        self.bits(value & ((1 << k) - 1), k);
    }

    /// A number that is small most of the time.
    pub(crate) fn count(&mut self, value: u32) {
        self.zeros(value.min(LONGEST_COUNT));
        if value < LONGEST_COUNT {
            self.bits(1, 1);
        } else {
            self.bits(value, 32);
        }
    }

    /// Fills the last byte.
    pub(crate) fn finish(mut self) {
        if self.filled > 0 {
            self.bits(0, 8 - self.filled);
        }
    }
}

/// Reads what [`BitWriter`] wrote.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

const ENDS_EARLY: &str = "bits end early";

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// At least 57 bits from here on, zeros behind the end.
    fn window(&self) -> u64 {
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

    fn step(&mut self, bits: u32) -> Read<()> {
        self.at += bits as usize;
        if self.at > self.bytes.len() * 8 {
            Err(ENDS_EARLY)
        } else {
            Ok(())
        }
    }

    /// A value of at most 32 bits.
    pub(crate) fn bits(&mut self, bits: u32) -> Read<u32> {
        let value = self.window() & ((1 << bits) - 1);
        self.step(bits)?;
        u32::try_from(value).map_err(|_| ENDS_EARLY)
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
        let high = multiples.checked_mul(1 << k).ok_or("a gap is too large")?;
        Ok(high | self.bits(k)?)
    }

    pub(crate) fn count(&mut self) -> Read<u32> {
        let zeros = self.window().trailing_zeros();
        if zeros < LONGEST_COUNT {
            self.step(zeros + 1)?;
            return Ok(zeros);
        }
        self.step(LONGEST_COUNT)?;
        let value = self.bits(32)?;
        if value < LONGEST_COUNT {
            Err("a count has two forms")
        } else {
            Ok(value)
        }
    }

    /// The number of bytes that were read; the rest of the last one must be empty.
    pub(crate) fn finish(self) -> Read<usize> {
        let left = self.at.next_multiple_of(8) - self.at;
        if self.window() & ((1 << left) - 1) != 0 {
            return Err("bits go on after their end");
        }
        Ok(self.at.div_ceil(8))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BitReader, BitWriter};

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((0_u32..70_000, 8_u32..17, any::<u32>(), 0_u32..32), 0..50)) {
            let mut bytes = Vec::new();
            let mut writer = BitWriter::new(&mut bytes);
            for (gap, k, count, shift) in &numbers {
                writer.rice(*gap, *k);
                writer.count(count >> shift);
                writer.bits(*gap, 17);
            }
            writer.finish();
            let mut reader = BitReader::new(&bytes);
            for (gap, k, count, shift) in &numbers {
                prop_assert_eq!(reader.rice(*k), Ok(*gap));
                prop_assert_eq!(reader.count(), Ok(count >> shift));
                prop_assert_eq!(reader.bits(17), Ok(*gap));
            }
            prop_assert_eq!(reader.finish(), Ok(bytes.len()));
        }
    }
}
