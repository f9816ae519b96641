//! Posting lists: their encoding, and reading them without unpacking what is skipped.
//!
//! A list is its count (shifted left, the lowest bit tells whether any frequency is above 1), then for each full block
//! of 128 postings a skip entry (last ordinal, bits of a gap, bits of a frequency), then the blocks, bit-packed, then the
//! rest in Rice codes. Gaps are those between ordinals, less 1; frequencies are stored less 1.

use std::sync::atomic::{AtomicU64, Ordering};

use bitpacking::{BitPacker, BitPacker4x};

use super::Posting;
use super::bits::{BitReader, BitWriter};
use super::header::Header;
use super::sealed::{Read, Reader, write_varint};

/// Postings of a block.
pub(crate) const BLOCK: usize = BitPacker4x::BLOCK_LEN;

/// Looking one chunk up costs about as much as reading this many postings.
pub(crate) const LOOK_UP: usize = 8;

/// Bytes of a skip entry.
const SKIP_BYTES: usize = 4;

/// Bits of a gap at most: wider ones would leave the 16 bits of an ordinal, and the sums below could overflow.
const WIDEST_GAP: u8 = 16;

/// Appends the list to `out`. Ordinals ascend below `chunks`, frequencies are at least 1.
pub(crate) fn encode_list(postings: &[Posting], chunks: u32, out: &mut Vec<u8>) {
    let repeats = postings.iter().any(|posting| posting.frequency > 1);
    write_varint((postings.len() as u64) << 1 | u64::from(repeats), out);
    let packer = BitPacker4x::new();
    let (blocks, rest) = postings.as_chunks::<BLOCK>();
    let mut before: Option<u32> = None;
    let mut packed = Vec::new();
    for block in blocks {
        let ordinals = block.map(|posting| u32::from(posting.ordinal));
        let frequencies = block.map(|posting| posting.frequency.saturating_sub(1));
        let gap_bits = packer.num_bits_strictly_sorted(before, &ordinals);
        let frequency_bits = packer.num_bits(&frequencies);
        let start = packed.len();
        let gaps_end = start + packed_bytes(gap_bits);
        packed.resize(gaps_end + packed_bytes(frequency_bits), 0);
        if let Some((gaps, others)) = packed
            .get_mut(start..)
            .and_then(|bytes| bytes.split_at_mut_checked(packed_bytes(gap_bits)))
        {
            packer.compress_strictly_sorted(before, &ordinals, gaps, gap_bits);
            packer.compress(&frequencies, others, frequency_bits);
        }
        let last = block[BLOCK - 1].ordinal;
        out.extend_from_slice(&last.to_le_bytes());
        out.extend_from_slice(&[gap_bits, frequency_bits]);
        before = Some(u32::from(last));
    }
    out.append(&mut packed);
    let widths = Widths::new(chunks, postings.len());
    let mut writer = BitWriter::new(out);
    for posting in rest {
        let ordinal = u32::from(posting.ordinal);
        match before {
            None => writer.bits(ordinal, widths.ordinal),
            Some(before) => writer.rice(ordinal - before - 1, widths.gap),
        }
        if repeats {
            writer.count(posting.frequency.saturating_sub(1));
        }
        before = Some(ordinal);
    }
    writer.finish();
}

/// Bits outside the blocks: of the first ordinal, and the parameter of the gaps' Rice code.
struct Widths {
    ordinal: u32,
    gap: u32,
}

impl Widths {
    fn new(chunks: u32, postings: usize) -> Self {
        // Best for random gaps: the logarithm of ln 2 times their mean.
        let mean = (chunks as usize / postings.max(1)) * 11 / 16;
        Self {
            ordinal: u32::BITS - chunks.saturating_sub(1).leading_zeros(),
            gap: mean.max(1).ilog2(),
        }
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

/// One term's postings in one segment, packed, read in whole once and found sound.
#[derive(Debug)]
pub(crate) struct List {
    bytes: Box<[u8]>,
    chunks: u32,
    count: u32,
    repeats: bool,
    skips_at: u32,
    extremes: Option<Box<[Extreme; CLASSES]>>,
    /// Number of a view, and how many of the postings are dead in it.
    dead: AtomicU64,
}

/// Bits of a number of dead postings: up to 65,536.
const DEAD_BITS: u32 = 17;

impl List {
    /// Takes the list at the reader's place, checks all of it, and keeps its bytes.
    pub(crate) fn read(reader: &mut Reader<'_>, header: &Header) -> Read<Self> {
        let start = *reader;
        let mut extremes = [Extreme::default(); CLASSES];
        let (count, repeats) = each_posting(reader, header.chunks(), |posting| {
            let length = header.length(u32::from(posting.ordinal));
            if let Some(extreme) = extremes.get_mut(class(posting.frequency)) {
                if extreme.frequency == 0 || length < extreme.length {
                    extreme.length = length;
                }
                extreme.frequency = extreme.frequency.max(posting.frequency);
            }
        })?;
        let mut whole = start;
        let bytes = whole.take(start.left() - reader.left())?;
        let mut front = Reader::new(bytes);
        front.varint()?;
        Ok(Self {
            bytes: bytes.into(),
            chunks: header.chunks(),
            count,
            repeats,
            skips_at: u32::try_from(bytes.len() - front.left())
                .map_err(|_| "a list is too long")?,
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
            at: list.skips_at as usize + list.blocks() * SKIP_BYTES,
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
        let at = self.list.skips_at as usize + block * SKIP_BYTES;
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
            // The list was read in whole before: nothing can be wrong with it any more.
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
                    read_one(&mut reader, &widths, self.before, self.list.repeats)
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

/// Reads a posting that stands outside the blocks: ordinal, and frequency less 1.
fn read_one(
    reader: &mut BitReader<'_>,
    widths: &Widths,
    before: Option<u32>,
    repeats: bool,
) -> Read<(u32, u32)> {
    let ordinal = match before {
        None => Some(reader.bits(widths.ordinal)?),
        Some(before) => before
            .checked_add(reader.rice(widths.gap)?)
            .and_then(|ordinal| ordinal.checked_add(1)),
    };
    let above = if repeats { reader.count()? } else { 0 };
    Ok((ordinal.ok_or("an ordinal is too large")?, above))
}

/// Reads the list at the reader's place, checks it, and calls `visit` with every posting; gives the number of postings
/// and whether any frequency is above 1.
pub(crate) fn each_posting(
    reader: &mut Reader<'_>,
    chunks: u32,
    mut visit: impl FnMut(Posting),
) -> Read<(u32, bool)> {
    const OUTSIDE: &str = "a posting names a chunk that is not there";
    let front = reader.varint()?;
    let repeats = front & 1 == 1;
    let count = u32::try_from(front >> 1)
        .ok()
        .filter(|count| (1..=chunks).contains(count));
    let count = count.ok_or("a list has another number of postings than chunks allow")?;
    let blocks = count as usize / BLOCK;
    let (skips, _) = reader.take(blocks * SKIP_BYTES)?.as_chunks::<SKIP_BYTES>();
    let mut before = None;
    let (mut ordinals, mut above) = ([0; BLOCK], [0; BLOCK]);
    let mut any_repeat = false;
    for [low, high, gap_bits, frequency_bits] in skips {
        if *gap_bits > WIDEST_GAP || *frequency_bits > 32 {
            return Err("a block is wider than its values may be");
        }
        unpack(
            reader,
            before,
            (*gap_bits, *frequency_bits),
            &mut ordinals,
            &mut above,
        )?;
        let last = u32::from(u16::from_le_bytes([*low, *high]));
        if ordinals[BLOCK - 1] != last || last >= chunks {
            return Err(OUTSIDE);
        }
        any_repeat |= *frequency_bits > 0;
        for (ordinal, above) in ordinals.iter().zip(&above) {
            visit(posting(*ordinal, *above)?);
        }
        before = Some(last);
    }
    let widths = Widths::new(chunks, count as usize);
    let mut bits = BitReader::new(reader.rest());
    for _ in 0..count as usize % BLOCK {
        let (ordinal, above) = read_one(&mut bits, &widths, before, repeats)?;
        if ordinal >= chunks {
            return Err(OUTSIDE);
        }
        any_repeat |= above > 0;
        visit(posting(ordinal, above)?);
        before = Some(ordinal);
    }
    reader.take(bits.finish()?)?;
    if any_repeat != repeats {
        return Err("a list does not say whether it repeats");
    }
    Ok((count, repeats))
}

fn posting(ordinal: u32, above: u32) -> Read<Posting> {
    Ok(Posting {
        ordinal: u16::try_from(ordinal).map_err(|_| "an ordinal is too large")?,
        frequency: above.checked_add(1).ok_or("a frequency is too large")?,
    })
}
