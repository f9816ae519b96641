//! Posting lists in memory, packed so that a search reads them fast, or skips what it does not need.
//!
//! A list is, for each full block of 128 postings, a skip entry (last ordinal, bits of a gap, bits of a frequency), then
//! the blocks, bit-packed, then the rest as it is stored. Gaps are those between ordinals, less 1; frequencies are kept
//! less 1.

use std::sync::atomic::{AtomicU64, Ordering};

use bitpacking::{BitPacker, BitPacker4x};

use super::bits::{BitReader, BitWriter};
use super::header::Header;
use super::postings::{Widths, each_posting, read_posting, write_posting};
use super::sealed::{Read, Reader};

/// Postings of a block.
pub(crate) const BLOCK: usize = BitPacker4x::BLOCK_LEN;

/// Looking one chunk up costs about as much as reading this many postings.
pub(crate) const LOOK_UP: usize = 8;

/// Bytes of a skip entry.
const SKIP_BYTES: usize = 4;

/// Packs a list, posting after posting.
struct Packing {
    skips: Vec<u8>,
    blocks: Vec<u8>,
    /// The last ordinal of the block before.
    before: Option<u32>,
    ordinals: [u32; BLOCK],
    above: [u32; BLOCK],
    filled: usize,
}

impl Packing {
    fn new() -> Self {
        Self {
            skips: Vec::new(),
            blocks: Vec::new(),
            before: None,
            ordinals: [0; BLOCK],
            above: [0; BLOCK],
            filled: 0,
        }
    }

    #[inline]
    fn push(&mut self, ordinal: u16, above: u32) {
        let place = self.ordinals.get_mut(self.filled);
        if let (Some(place), Some(frequency)) = (place, self.above.get_mut(self.filled)) {
            (*place, *frequency) = (u32::from(ordinal), above);
            self.filled += 1;
        }
        if self.filled == BLOCK {
            self.block(ordinal);
        }
    }

    fn block(&mut self, last: u16) {
        let packer = BitPacker4x::new();
        let gap_bits = packer.num_bits_strictly_sorted(self.before, &self.ordinals);
        let frequency_bits = packer.num_bits(&self.above);
        let start = self.blocks.len();
        let (gaps, others) = (packed_bytes(gap_bits), packed_bytes(frequency_bits));
        self.blocks.resize(start + gaps + others, 0);
        let packed = self.blocks.get_mut(start..);
        if let Some((gaps, others)) = packed.and_then(|bytes| bytes.split_at_mut_checked(gaps)) {
            packer.compress_strictly_sorted(self.before, &self.ordinals, gaps, gap_bits);
            packer.compress(&self.above, others, frequency_bits);
        }
        self.skips.extend_from_slice(&last.to_le_bytes());
        self.skips.extend_from_slice(&[gap_bits, frequency_bits]);
        self.before = Some(u32::from(last));
        self.filled = 0;
    }

    fn finish(mut self, widths: Widths, repeats: bool) -> Box<[u8]> {
        let mut rest = BitWriter::default();
        for (ordinal, above) in self.ordinals.iter().zip(&self.above).take(self.filled) {
            write_posting(
                &mut rest,
                widths,
                self.before,
                *ordinal,
                repeats.then_some(*above),
            );
            self.before = Some(*ordinal);
        }
        [self.skips, self.blocks, rest.finish()].concat().into()
    }
}

const fn packed_bytes(bits: u8) -> usize {
    bits as usize * BLOCK / 8
}

/// Largest frequency and shortest chunk among postings of about the same frequency: what bounds their scores,
/// whatever the average length is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extreme {
    pub(crate) frequency: u32,
    pub(crate) length: u32,
}

/// Frequencies 1, 2, 3, 4 to 7, 8 and above.
const CLASSES: usize = 5;

fn class(frequency: u32) -> usize {
    match frequency {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4..8 => 3,
        _ => 4,
    }
}

/// One term's postings in one segment, packed.
#[derive(Debug)]
pub(crate) struct List {
    bytes: Box<[u8]>,
    chunks: u32,
    count: u32,
    repeats: bool,
    extremes: Option<Box<[Extreme; CLASSES]>>,
    /// Number of a view, and how many of the postings are dead in it.
    dead: AtomicU64,
}

/// Bits of a number of dead postings: up to 65,536.
const DEAD_BITS: u32 = 17;

impl List {
    /// Takes the list at the reader's place, and checks all of it.
    pub(crate) fn read(reader: &mut BitReader<'_>, header: &Header) -> Read<Self> {
        let mut extremes = [Extreme::default(); CLASSES];
        let mut packing = Packing::new();
        let (count, repeats) = each_posting(reader, header.chunks(), |posting| {
            packing.push(posting.ordinal, posting.frequency.saturating_sub(1));
            let length = header.length(u32::from(posting.ordinal));
            if let Some(extreme) = extremes.get_mut(class(posting.frequency)) {
                if extreme.frequency == 0 || length < extreme.length {
                    extreme.length = length;
                }
                extreme.frequency = extreme.frequency.max(posting.frequency);
            }
        })?;
        Ok(Self {
            bytes: packing.finish(Widths::new(header.chunks(), count as usize), repeats),
            chunks: header.chunks(),
            count,
            repeats,
            extremes: (count as usize >= BLOCK).then(|| Box::new(extremes)),
            dead: AtomicU64::new(0),
        })
    }

    /// The number of postings.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// How many postings are dead in a view, whose number is not 0; counted when another view asked last.
    pub(crate) fn dead(&self, view: u64, count: impl FnOnce() -> u32) -> u32 {
        let known = self.dead.load(Ordering::Relaxed);
        if known >> DEAD_BITS == view {
            return u32::try_from(known & ((1 << DEAD_BITS) - 1)).unwrap_or(0);
        }
        let counted = count();
        self.dead
            .store(view << DEAD_BITS | u64::from(counted), Ordering::Relaxed);
        counted
    }

    /// Bytes in memory.
    pub(crate) fn memory(&self) -> usize {
        let extremes = self
            .extremes
            .as_ref()
            .map_or(0, |_| size_of::<[Extreme; CLASSES]>());
        size_of::<Self>() + self.bytes.len() + extremes
    }

    /// What bounds the scores of a long list; nothing for a short one.
    pub(crate) fn extremes(&self) -> Option<impl Iterator<Item = Extreme> + '_> {
        let extremes = self.extremes.as_ref()?;
        Some(
            extremes
                .iter()
                .copied()
                .filter(|extreme| extreme.frequency > 0),
        )
    }

    fn blocks(&self) -> usize {
        self.count as usize / BLOCK
    }

    /// Calls `visit` with block after block: ordinals, and frequencies less 1.
    pub(crate) fn each_block(&self, mut visit: impl FnMut(&[u32], &[u32])) {
        let mut cursor = Cursor::new(self);
        while cursor.advance() {
            let filled = cursor.filled;
            if let (Some(ordinals), Some(above)) =
                (cursor.ordinals.get(..filled), cursor.above.get(..filled))
            {
                visit(ordinals, above);
            }
        }
    }

    /// All ordinals, ascending.
    pub(crate) fn each_ordinal(&self, mut visit: impl FnMut(u32)) {
        self.each_block(|ordinals, _| ordinals.iter().for_each(|ordinal| visit(*ordinal)));
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
    above: [u32; BLOCK],
    filled: usize,
    place: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(list: &'a List) -> Self {
        Self {
            list,
            next: 0,
            at: list.blocks() * SKIP_BYTES,
            before: None,
            ordinals: [0; BLOCK],
            above: [0; BLOCK],
            filled: 0,
            place: 0,
        }
    }

    /// The frequency in a chunk, 0 where the term is not. Each call's ordinal is at least that of the call before.
    pub(crate) fn frequency(&mut self, ordinal: u32) -> u32 {
        while self.filled == 0 || self.last() < ordinal {
            self.skip(ordinal);
            if !self.advance() {
                return 0;
            }
        }
        let rest = self
            .ordinals
            .get(self.place..self.filled)
            .unwrap_or_default();
        self.place += rest.partition_point(|other| *other < ordinal);
        if self.ordinals.get(self.place) == Some(&ordinal) {
            self.above
                .get(self.place)
                .map_or(0, |above| above.saturating_add(1))
        } else {
            0
        }
    }

    fn last(&self) -> u32 {
        self.filled
            .checked_sub(1)
            .and_then(|last| self.ordinals.get(last))
            .copied()
            .unwrap_or(0)
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
        let bytes = self.list.bytes.get(self.at..).unwrap_or_default();
        if let Some((last, gap_bits, frequency_bits)) = self.entry(self.next) {
            let mut reader = Reader::new(bytes);
            let widths = (gap_bits, frequency_bits);
            // The list was packed here: nothing can be wrong with it any more.
            if unpack(
                &mut reader,
                self.before,
                widths,
                &mut self.ordinals,
                &mut self.above,
            )
            .is_err()
            {
                return self.exhaust();
            }
            self.at += bytes.len() - reader.left();
            self.before = Some(last);
            self.filled = BLOCK;
        } else if self.next == self.list.blocks() {
            let widths = Widths::new(self.list.chunks, self.list.count as usize);
            let mut reader = BitReader::new(bytes);
            self.filled = 0;
            let rest = self.list.count as usize % BLOCK;
            for (ordinal, above) in self.ordinals.iter_mut().zip(&mut self.above).take(rest) {
                let Ok((next, more)) =
                    read_posting(&mut reader, widths, self.before, self.list.repeats)
                else {
                    return self.exhaust();
                };
                (*ordinal, *above) = (next, more);
                self.before = Some(next);
                self.filled += 1;
            }
            if rest == 0 {
                return self.exhaust();
            }
        } else {
            return self.exhaust();
        }
        self.next += 1;
        true
    }

    fn exhaust(&mut self) -> bool {
        self.next = usize::MAX;
        self.filled = 0;
        false
    }
}

/// Unpacks a block of full size.
fn unpack(
    reader: &mut Reader<'_>,
    before: Option<u32>,
    (gap_bits, frequency_bits): (u8, u8),
    ordinals: &mut [u32; BLOCK],
    above: &mut [u32; BLOCK],
) -> Read<()> {
    let packer = BitPacker4x::new();
    packer.decompress_strictly_sorted(
        before,
        reader.take(packed_bytes(gap_bits))?,
        ordinals,
        gap_bits,
    );
    if frequency_bits == 0 {
        above.fill(0);
    } else {
        packer.decompress(
            reader.take(packed_bytes(frequency_bits))?,
            above,
            frequency_bits,
        );
    }
    Ok(())
}
