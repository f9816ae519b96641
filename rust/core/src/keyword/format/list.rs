//! Posting lists in memory, packed so that a search reads them fast, or skips what it does not need.
//!
//! A list is, for each full block of 128 postings, a skip entry (last ordinal, bits of a gap, bits of a frequency), then
//! the blocks, bit-packed, then the ordinals of the rest and their frequencies in whole bytes, if any is above 1. Gaps are
//! those between ordinals, less 1; frequencies are kept less 1.

use std::sync::atomic::{AtomicU64, Ordering};

use bitpacking::{BitPacker, BitPacker4x};

use super::ascending::{BLOCK, packed_bytes};
use super::bits::BitReader;
use super::impacts::{Impact, read_impacts};
use super::long_postings::each_block;
use super::postings::each_posting;
use crate::segments::sealed::{ByteReader, Read};
use crate::segments::{SegmentError, impossible};

/// Looking one chunk up costs about as much as reading this many postings.
pub(crate) const POSTINGS_PER_LOOKUP: usize = 8;

/// Message for a list that cannot be unpacked: only a defect of the program, because lists are checked when read.
const UNPACKED: &str = "a posting list in memory is inconsistent";

/// Bytes of a skip entry.
const SKIP_BYTES: usize = 4;

/// Packs a list, posting after posting or block after block.
struct BlockEncoder {
    packer: BitPacker4x,
    skips: Vec<u8>,
    blocks: Vec<u8>,
    /// The last ordinal of the block before.
    before: Option<u32>,
    ordinals: [u32; BLOCK],
    tf_minus_one: [u32; BLOCK],
    filled: usize,
}

impl BlockEncoder {
    /// With room for this number of bytes.
    fn new(bytes: usize) -> Self {
        Self {
            packer: BitPacker4x::new(),
            skips: Vec::new(),
            blocks: Vec::with_capacity(bytes),
            before: None,
            ordinals: [0; BLOCK],
            tf_minus_one: [0; BLOCK],
            filled: 0,
        }
    }

    #[inline]
    fn push(&mut self, ordinal: u32, tf_minus_one: u32) -> Read<()> {
        *self.ordinals.get_mut(self.filled).ok_or(UNPACKED)? = ordinal;
        *self.tf_minus_one.get_mut(self.filled).ok_or(UNPACKED)? = tf_minus_one;
        self.filled += 1;
        if self.filled == BLOCK {
            let (ordinals, tf_minus_one) = (self.ordinals, self.tf_minus_one);
            self.filled = 0;
            self.block(&ordinals, &tf_minus_one)?;
        }
        Ok(())
    }

    fn block(&mut self, ordinals: &[u32], tf_minus_one: &[u32]) -> Read<()> {
        let packer = self.packer;
        let gap_bits = packer.num_bits_strictly_sorted(self.before, ordinals);
        let frequency_bits = packer.num_bits(tf_minus_one);
        let start = self.blocks.len();
        let (gaps, others) = (packed_bytes(gap_bits), packed_bytes(frequency_bits));
        self.blocks.resize(start + gaps + others, 0);
        let (gaps, others) = self.blocks.split_at_mut(start).1.split_at_mut(gaps);
        packer.compress_strictly_sorted(self.before, ordinals, gaps, gap_bits);
        packer.compress(tf_minus_one, others, frequency_bits);
        let last = *ordinals.last().ok_or(UNPACKED)?;
        let [low, high, ..] = last.to_le_bytes();
        self.skips
            .extend_from_slice(&[low, high, gap_bits, frequency_bits]);
        self.before = Some(last);
        Ok(())
    }

    fn finish(mut self, count: u32, impacts: Option<Box<[Impact]>>) -> List {
        let rest = self
            .ordinals
            .iter()
            .zip(&self.tf_minus_one)
            .take(self.filled);
        let most = rest
            .clone()
            .fold(0, |most, (_, tf_minus_one)| most.max(*tf_minus_one));
        let width = match most {
            0 => 0,
            1..256 => 1,
            _ => 4,
        };
        for (ordinal, _) in rest.clone() {
            self.blocks.extend(ordinal.to_le_bytes().iter().take(2));
        }
        for (_, tf_minus_one) in rest {
            self.blocks
                .extend(tf_minus_one.to_le_bytes().iter().take(width));
        }
        List {
            bytes: [self.skips, self.blocks].concat().into(),
            count,
            width,
            impacts,
            dead: AtomicU64::new(0),
        }
    }
}

/// One term's postings in one segment, packed.
#[derive(Debug)]
pub(crate) struct List {
    bytes: Box<[u8]>,
    count: u32,
    /// Bytes of a frequency in the rest.
    width: usize,
    /// Only for a list with a row of its own.
    impacts: Option<Box<[Impact]>>,
    /// Number of a state of the segment, and how many of the postings are dead in it.
    dead: AtomicU64,
}

/// Bits of a number of dead postings: up to 65,536.
const DEAD_BITS: u32 = 17;

impl List {
    /// Takes the list at the reader's place, in a segment of this many chunks, and checks all of it.
    pub(crate) fn read(reader: &mut BitReader<'_>, chunks: u32) -> Read<Self> {
        let mut encoder = BlockEncoder::new(0);
        let count = each_posting(reader, chunks, |ordinal, tf_minus_one| {
            encoder.push(ordinal, tf_minus_one)
        })?;
        Ok(encoder.finish(count, None))
    }

    /// Takes the list of a row of its own, and checks all of it.
    pub(crate) fn read_long(mut content: ByteReader<'_>, chunks: u32) -> Read<Self> {
        let impacts = read_impacts(&mut content)?;
        let mut encoder = BlockEncoder::new(content.left() * 2);
        let count = each_block(content, chunks, |ordinals, tf_minus_one| {
            if ordinals.len() == BLOCK {
                return encoder.block(ordinals, tf_minus_one);
            }
            let mut rest = ordinals.iter().zip(tf_minus_one);
            rest.try_for_each(|(ordinal, tf_minus_one)| encoder.push(*ordinal, *tf_minus_one))
        })?;
        Ok(encoder.finish(count, Some(impacts)))
    }

    /// The number of postings.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// How many postings are dead in a state of the segment, whose number is not 0, if that was counted last.
    pub(crate) fn dead(&self, state: u64) -> Option<u32> {
        let known = self.dead.load(Ordering::Relaxed);
        let counted = u32::try_from(known & ((1 << DEAD_BITS) - 1));
        counted.ok().filter(|_| known >> DEAD_BITS == state)
    }

    /// Notes how many postings are dead in a state of the segment.
    pub(crate) fn keep_dead(&self, state: u64, counted: u32) {
        let noted = state << DEAD_BITS | u64::from(counted);
        self.dead.store(noted, Ordering::Relaxed);
    }

    /// Bytes in memory.
    pub(crate) fn memory(&self) -> usize {
        let impacts = self.impacts.as_deref().map_or(0, size_of_val);
        size_of::<Self>() + self.bytes.len() + impacts
    }

    /// The impacts of a long list; nothing for a short one.
    pub(crate) fn impacts(&self) -> Option<&[Impact]> {
        self.impacts.as_deref()
    }

    /// Full blocks, and what is left over as one more.
    pub(crate) fn all_blocks(&self) -> u64 {
        u64::from(self.count).div_ceil(BLOCK as u64)
    }

    /// Full blocks.
    fn blocks(&self) -> usize {
        self.count as usize / BLOCK
    }

    /// Calls `visit` with block after block: ordinals, and frequencies less 1.
    pub(crate) fn each_block(
        &self,
        mut visit: impl FnMut(&[u32], &[u32]) -> Result<(), SegmentError>,
    ) -> Result<Unpacked, SegmentError> {
        let mut cursor = Cursor::new(self);
        while cursor.advance() {
            let (ordinals, tf_minus_one) = cursor.rest().ok_or_else(|| impossible(UNPACKED))?;
            visit(ordinals, tf_minus_one)?;
        }
        let unpacked = cursor.finish()?;
        if unpacked.postings != u64::from(self.count) {
            return Err(impossible("a posting list ends early"));
        }
        Ok(unpacked)
    }

    /// All ordinals, ascending.
    pub(crate) fn each_ordinal(
        &self,
        mut visit: impl FnMut(u32) -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        let visited =
            self.each_block(|ordinals, _| ordinals.iter().try_for_each(|one| visit(*one)));
        visited.map(|_| ())
    }
}

/// What was unpacked of a list, and what was not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unpacked {
    pub(crate) postings: u64,
    /// Blocks that were passed over, or lie behind the last one that was looked at.
    pub(crate) skipped: u64,
}

impl Unpacked {
    pub(crate) fn add(&mut self, other: Self) {
        self.postings += other.postings;
        self.skipped += other.skipped;
    }
}

/// Looks ordinals up in a list, ascending; unpacks a block only when one of them may stand in it.
pub(crate) struct Cursor<'a> {
    list: &'a List,
    /// The block that comes next; the rest of the list counts as the last block.
    next: usize,
    /// Where its bytes begin.
    at: usize,
    /// The last ordinal before it.
    before: Option<u32>,
    ordinals: [u32; BLOCK],
    tf_minus_one: [u32; BLOCK],
    filled: usize,
    /// The last of its ordinals.
    last: u32,
    place: usize,
    /// What was unpacked so far.
    blocks: u64,
    postings: u64,
    is_broken: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(list: &'a List) -> Self {
        Self {
            list,
            next: 0,
            at: list.blocks() * SKIP_BYTES,
            before: None,
            ordinals: [0; BLOCK],
            tf_minus_one: [0; BLOCK],
            filled: 0,
            last: 0,
            place: 0,
            blocks: 0,
            postings: 0,
            is_broken: false,
        }
    }

    /// What was unpacked. A list that cannot be unpacked is found out here.
    pub(crate) fn finish(self) -> Result<Unpacked, SegmentError> {
        if self.is_broken {
            return Err(impossible(UNPACKED));
        }
        let skipped = self.list.all_blocks().checked_sub(self.blocks);
        Ok(Unpacked {
            postings: self.postings,
            skipped: skipped.ok_or_else(|| impossible(UNPACKED))?,
        })
    }

    /// The frequency in a chunk, 0 where the term is not. Each call's ordinal is at least that of the call before.
    #[inline]
    pub(crate) fn frequency(&mut self, ordinal: u32) -> u32 {
        while self.filled == 0 || self.last < ordinal {
            self.skip(ordinal);
            if !self.advance() {
                return 0;
            }
        }
        let Some((ordinals, tf_minus_one)) = self.rest() else {
            self.is_broken = true;
            return 0;
        };
        let step = ordinals.partition_point(|other| *other < ordinal);
        let frequency = match (ordinals.get(step), tf_minus_one.get(step)) {
            (Some(found), Some(tf_minus_one)) if *found == ordinal => tf_minus_one + 1,
            _ => 0,
        };
        self.place += step;
        frequency
    }

    /// What is left of the current block: ordinals, and frequencies less 1.
    fn rest(&self) -> Option<(&[u32], &[u32])> {
        let rest = self.place..self.filled;
        Some((
            self.ordinals.get(rest.clone())?,
            self.tf_minus_one.get(rest)?,
        ))
    }

    /// The skip entry of a block: last ordinal, bits of a gap, bits of a frequency.
    fn entry(&self, block: usize) -> Option<(u32, u8, u8)> {
        if block >= self.list.blocks() {
            return None;
        }
        let at = block * SKIP_BYTES;
        let entry = self.list.bytes.get(at..)?.first_chunk::<SKIP_BYTES>()?;
        let [low, high, gap_bits, frequency_bits] = *entry;
        Some((
            u32::from(u16::from_le_bytes([low, high])),
            gap_bits,
            frequency_bits,
        ))
    }

    /// Passes over the blocks that end before `ordinal`.
    fn skip(&mut self, ordinal: u32) {
        while let Some((last, gap_bits, frequency_bits)) = self.entry(self.next) {
            if last >= ordinal {
                return;
            }
            self.at += packed_bytes(gap_bits) + packed_bytes(frequency_bits);
            self.before = Some(last);
            self.next += 1;
        }
    }

    /// Unpacks the next block; false at the end of the list.
    fn advance(&mut self) -> bool {
        self.place = 0;
        if self.next > self.list.blocks() {
            return self.exhaust();
        }
        let Some(bytes) = self.list.bytes.get(self.at..) else {
            return self.fail();
        };
        if let Some((last, gap_bits, frequency_bits)) = self.entry(self.next) {
            let mut reader = ByteReader::new(bytes);
            let widths = (gap_bits, frequency_bits);
            if unpack(
                &mut reader,
                self.before,
                widths,
                &mut self.ordinals,
                &mut self.tf_minus_one,
            )
            .is_err()
            {
                return self.fail();
            }
            self.at += bytes.len() - reader.left();
            self.before = Some(last);
            (self.last, self.filled) = (last, BLOCK);
        } else if self.next == self.list.blocks() {
            let (rest, width) = (self.list.count as usize % BLOCK, self.list.width);
            let parts = bytes.split_at_checked(rest * 2);
            let parts = parts.filter(|(_, tf_minus_one)| tf_minus_one.len() == rest * width);
            let Some((ordinals, tf_minus_one)) = parts else {
                return self.fail();
            };
            let Some(last) = ordinals.last_chunk::<2>() else {
                return self.exhaust();
            };
            for (place, bytes) in self.ordinals.iter_mut().zip(ordinals.chunks_exact(2)) {
                *place = number(bytes);
            }
            match width {
                0 => self.tf_minus_one.fill(0),
                width => {
                    for (place, bytes) in self
                        .tf_minus_one
                        .iter_mut()
                        .zip(tf_minus_one.chunks_exact(width))
                    {
                        *place = number(bytes);
                    }
                }
            }
            (self.last, self.filled) = (number(last), rest);
        } else {
            return self.fail();
        }
        self.next += 1;
        self.blocks += 1;
        self.postings += self.filled as u64;
        true
    }

    fn fail(&mut self) -> bool {
        self.is_broken = true;
        self.exhaust()
    }

    fn exhaust(&mut self) -> bool {
        self.next = usize::MAX;
        self.filled = 0;
        false
    }
}

/// A number of at most four bytes.
#[inline]
fn number(bytes: &[u8]) -> u32 {
    let mut number = [0; 4];
    number
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    u32::from_le_bytes(number)
}

/// Unpacks a block of full size.
fn unpack(
    reader: &mut ByteReader<'_>,
    before: Option<u32>,
    (gap_bits, frequency_bits): (u8, u8),
    ordinals: &mut [u32; BLOCK],
    tf_minus_one: &mut [u32; BLOCK],
) -> Read<()> {
    let packer = BitPacker4x::new();
    packer.decompress_strictly_sorted(
        before,
        reader.take(packed_bytes(gap_bits))?,
        ordinals,
        gap_bits,
    );
    if frequency_bits == 0 {
        tf_minus_one.fill(0);
    } else {
        packer.decompress(
            reader.take(packed_bytes(frequency_bits))?,
            tf_minus_one,
            frequency_bits,
        );
    }
    Ok(())
}
