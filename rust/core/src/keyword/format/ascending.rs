//! Ascending numbers, stored for reading many at once: R. F. Rice's codes (1979) of their gaps, taken apart.
//!
//! The lowest bits of all gaps stand together, full blocks bit-packed; behind them what is left of each gap, in unary: so
//! many zeros, and a one. Blocks are unpacked several numbers at a time, and the ones of a byte found in a table: nothing
//! waits for the length of the code before. Gaps are those between numbers, less 1; the first is the first number.

use bitpacking::{BitPacker, BitPacker4x};

use super::bits::{BitReader, BitWriter};
use crate::byte_table::ByteTable;
use crate::segments::sealed::{ByteReader, Read};
use crate::segments::{SegmentError, impossible};

/// Numbers that are read at once.
pub(crate) const BLOCK: usize = SIZE as usize;
pub(crate) const SIZE: u32 = 128;
const _: () = assert!(BLOCK == BitPacker4x::BLOCK_LEN);

/// Limits are up to this, so that no sum wraps.
const MAX_LIMIT: u32 = 1 << 22;

/// Bytes of a block whose numbers have this many bits each.
pub(crate) const fn packed_bytes(bits: u8) -> usize {
    bits as usize * BLOCK / 8
}

/// Number of lowest bits that are stored together, for this many numbers below a limit.
fn low_bits(count: u32, limit: u32) -> u8 {
    // Best for random gaps: the logarithm of ln 2 times their mean.
    let mean = limit / count.max(1);
    let [bits, ..] = (mean * 11 / 16).max(1).ilog2().to_le_bytes();
    bits
}

/// Appends ascending numbers below `limit`, which is at most 2^22.
pub(crate) fn write_ascending(
    numbers: &[u32],
    limit: u32,
    out: &mut Vec<u8>,
) -> Result<(), SegmentError> {
    let count = u32::try_from(numbers.len());
    let count = count.map_err(|_| impossible("more numbers than their limit allows"))?;
    let bits = low_bits(count, limit);
    let (mut lows, mut high) = (Vec::with_capacity(numbers.len()), BitWriter::default());
    let mut next = 0;
    for number in numbers {
        let gap = number - next;
        lows.push(gap & ((1 << bits) - 1));
        high.unary(gap >> bits);
        next = number + 1;
    }
    let blocks = lows.chunks_exact(BLOCK);
    let mut rest = BitWriter::default();
    for low in blocks.remainder() {
        rest.bits(*low, u32::from(bits));
    }
    for block in blocks {
        let start = out.len();
        out.resize(start + packed_bytes(bits), 0);
        BitPacker4x::new().compress(block, out.split_at_mut(start).1, bits);
    }
    out.append(&mut rest.finish());
    out.append(&mut high.finish());
    Ok(())
}

/// Reads what [`write_ascending`] wrote, block by block.
pub(crate) struct AscendingReader<'a> {
    packer: BitPacker4x,
    low: ByteReader<'a>,
    high: &'a [u8],
    bits: u8,
    limit: u32,
    left: u32,
    /// Numbers before the block.
    read: u32,
    /// The sum of their gaps' lowest bits, and 1 for each but the first.
    low_sum: Option<u32>,
    /// Where the next ones stand; a byte may have more than the block needs.
    ones: [u32; BLOCK + 8],
    found: usize,
    /// Bytes that were looked at, and the most that there may be.
    next: usize,
    most: usize,
}

const ENDS_EARLY: &str = "ascending numbers end early";

impl<'a> AscendingReader<'a> {
    /// Begins at the reader's place, with the count and the limit of the writer.
    pub(crate) fn open(mut reader: ByteReader<'a>, count: u32, limit: u32) -> Read<Self> {
        if limit > MAX_LIMIT || count > limit {
            return Err("more ascending numbers than their limit allows");
        }
        let bits = low_bits(count, limit);
        let (blocks, rest) = (count as usize / BLOCK, count as usize % BLOCK);
        let rest_bits = rest * usize::from(bits);
        let low = reader.take(blocks * packed_bytes(bits) + rest_bits.div_ceil(8))?;
        let high = reader.rest();
        Ok(Self {
            packer: BitPacker4x::new(),
            low: ByteReader::new(low),
            high,
            bits,
            limit,
            left: count,
            read: 0,
            low_sum: None,
            ones: [0; BLOCK + 8],
            found: 0,
            next: 0,
            most: high
                .len()
                .min((count + (limit >> bits)).div_ceil(8) as usize),
        })
    }

    /// Reads the next block, and gives how many numbers it has; none behind the end.
    pub(crate) fn block(&mut self, out: &mut [u32; BLOCK]) -> Read<usize> {
        let count = self.left.min(SIZE);
        let filled = count as usize;
        let Some(last) = filled.checked_sub(1) else {
            return Ok(0);
        };
        self.left -= count;
        self.lows(out, filled)?;
        self.highs(filled)?;
        self.low_sum = Some(*out.get(last).ok_or(ENDS_EARLY)?);
        // Nothing wraps: there are no more bits than `most` allows.
        for ((number, one), before) in out.iter_mut().zip(&self.ones).zip(self.read..) {
            *number = number.wrapping_add(one.wrapping_sub(before) << self.bits);
        }
        self.read += count;
        self.ones.copy_within(filled..self.found, 0);
        self.found -= filled;
        if out.get(last).is_none_or(|last| *last >= self.limit) {
            return Err("an ascending number is not below its limit");
        }
        Ok(filled)
    }

    /// Sums up the lowest bits of the next gaps, and 1 for each.
    #[inline]
    fn lows(&mut self, out: &mut [u32; BLOCK], filled: usize) -> Read<()> {
        if filled == BLOCK {
            let packed = self.low.take(packed_bytes(self.bits))?;
            self.packer
                .decompress_strictly_sorted(self.low_sum, packed, out, self.bits);
            return Ok(());
        }
        let mut reader = BitReader::new(self.low.rest());
        let mut next = self.low_sum.map_or(0, |sum| sum + 1);
        for place in out.iter_mut().take(filled) {
            *place = next + reader.bits(u32::from(self.bits))?;
            next = *place + 1;
        }
        Ok(())
    }

    /// Finds the ones of the next gaps.
    #[inline]
    fn highs(&mut self, filled: usize) -> Read<()> {
        let mut found = self.found;
        let rest = self.high.get(self.next..self.most).ok_or(ENDS_EARLY)?;
        let mut at = u32::try_from(self.next * 8).map_err(|_| ENDS_EARLY)?;
        let mut bytes = rest.iter();
        while found < filled {
            let byte = bytes.next().ok_or(ENDS_EARLY)?;
            let (ones, count) = ONES.of(*byte);
            let places = self.ones.get_mut(found..);
            let places = places.and_then(|places| places.first_chunk_mut::<8>());
            // All eight are written, which is faster than to ask how many there are.
            *places.ok_or(ENDS_EARLY)? = ones.map(|one| at.wrapping_add(one));
            found = found.wrapping_add(*count);
            at = at.wrapping_add(8);
        }
        self.next += rest.len() - bytes.len();
        self.found = found;
        Ok(())
    }

    /// What stands behind the numbers, once all were read.
    pub(crate) fn behind(&self) -> Read<ByteReader<'a>> {
        if self.left > 0 || self.found > 0 {
            return Err("unexpected bits follow the ascending numbers");
        }
        Ok(ByteReader::new(
            self.high.get(self.next..).ok_or(ENDS_EARLY)?,
        ))
    }
}

/// For each byte where its ones stand, and how many there are; as wide as they are needed.
#[allow(clippy::indexing_slicing, reason = "done by the compiler")]
static ONES: ByteTable<([u32; 8], usize)> = {
    let mut all = [([0; 8], 0); 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut count, mut bit) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                all[byte].0[count] = bit;
                count += 1;
            }
            bit += 1;
        }
        all[byte].1 = count;
        byte += 1;
    }
    ByteTable(all)
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{AscendingReader, BLOCK, ByteReader, Read, write_ascending};

    fn read(bytes: &[u8], count: u32, limit: u32) -> Read<(Vec<u32>, usize)> {
        let mut ascending = AscendingReader::open(ByteReader::new(bytes), count, limit)?;
        let (mut block, mut numbers) = ([0; BLOCK], Vec::new());
        loop {
            let filled = ascending.block(&mut block)?;
            numbers.extend_from_slice(&block[..filled]);
            if filled == 0 {
                return Ok((numbers, ascending.behind()?.left()));
            }
        }
    }

    fn numbers() -> impl Strategy<Value = (BTreeSet<u32>, u32)> {
        (1_u32..70_000, 0_usize..1_000, 0_u32..1_000).prop_flat_map(|(most, count, above)| {
            prop::collection::btree_set(0..most, 0..=count.min(most as usize))
                .prop_map(move |numbers| (numbers, most + above))
        })
    }

    proptest! {
        #[test]
        fn numbers_come_back((numbers, limit) in numbers(), behind in prop::collection::vec(any::<u8>(), 0..10)) {
            let mut bytes = Vec::new();
            let ascending: Vec<_> = numbers.iter().copied().collect();
            prop_assert!(write_ascending(&ascending, limit, &mut bytes).is_ok());
            bytes.extend_from_slice(&behind);
            let count = u32::try_from(ascending.len()).unwrap_or(u32::MAX);
            prop_assert_eq!(read(&bytes, count, limit), Ok((ascending, behind.len())));
        }

        #[test]
        fn any_bytes_are_ascending_numbers_or_an_error(
            bytes in prop::collection::vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..200),
            count in 0_u32..400,
            limit in prop_oneof![0_u32..500, 0_u32..100_000, any::<u32>()],
        ) {
            if let Ok((numbers, left)) = read(&bytes, count, limit) {
                prop_assert_eq!(numbers.len(), count as usize);
                prop_assert!(numbers.is_sorted_by(|number, next| number < next));
                prop_assert!(numbers.last().is_none_or(|last| *last < limit));
                prop_assert!(left <= bytes.len());
            }
        }
    }
}
