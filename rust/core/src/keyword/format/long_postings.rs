//! Posting lists with a row of their own, stored so that they are read fast.
//!
//! A list is its count; how many of its frequencies are above 1, and if any are: which ones, by their place in the list,
//! and how far they are above; then the ordinals. Places, sums and ordinals ascend, and are stored as such numbers are:
//! how far a frequency is above 1 is a step of a sum; behind the sums stands what steps are beyond the longest one.

use super::Posting;
use super::ascending::{AscendingReader, BLOCK, SIZE, write_ascending};
use crate::segments::sealed::{ByteReader, Read, write_varint};
use crate::segments::{SegmentError, impossible};

const LOST: &str = "a posting list has more frequencies than postings";

/// Longest step; few frequencies need a longer one, and these are stored as exceptions.
const MAX_STEP: u32 = 24;

/// Appends a list, of at least one posting. Ordinals ascend below `chunks`, frequencies are at least 1.
pub(crate) fn write_long_list(
    postings: &[Posting],
    chunks: u32,
    out: &mut Vec<u8>,
) -> Result<(), SegmentError> {
    let count = u32::try_from(postings.len());
    let count = count.map_err(|_| impossible("more postings than chunks"))?;
    let (mut places, mut sums, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sum, mut longer, mut passed) = (0, 0, 0);
    for (place, posting) in (0..).zip(postings) {
        let tf_minus_one = posting.tf_minus_one()?;
        if tf_minus_one == 0 {
            continue;
        }
        sum += tf_minus_one.min(MAX_STEP);
        places.push(place);
        sums.push(sum - 1);
        if tf_minus_one > MAX_STEP {
            write_varint(passed, &mut beyond);
            write_varint(u64::from(tf_minus_one - MAX_STEP), &mut beyond);
            (longer, passed) = (longer + 1, 0);
        } else {
            passed += 1;
        }
    }
    write_varint(u64::from(count), out);
    write_varint(places.len() as u64, out);
    if !places.is_empty() {
        write_varint(u64::from(sum), out);
        write_ascending(&places, count, out)?;
        write_ascending(&sums, sum, out)?;
        write_varint(longer, out);
        out.append(&mut beyond);
    }
    let ordinals = postings.iter().map(|posting| u32::from(posting.ordinal));
    write_ascending(&ordinals.collect::<Vec<_>>(), chunks, out)
}

/// Reads a list, checks it, and calls `visit` with block after block: ordinals, and frequencies less 1. Gives the number
/// of postings.
#[inline]
pub(crate) fn each_block(
    mut reader: ByteReader<'_>,
    chunks: u32,
    mut visit: impl FnMut(&[u32], &[u32]) -> Read<()>,
) -> Read<u32> {
    let count = reader.varint_u32()?;
    if count == 0 || count > chunks {
        return Err("a posting list is empty or has more postings than the segment has chunks");
    }
    let repeats = Repeats::read(&mut reader, count)?;
    let mut ordinals = [0; BLOCK];
    let mut tf_minus_one = [0; BLOCK];
    let mut repeating = 0;
    let mut numbers = AscendingReader::open(reader, count, chunks)?;
    let (mut places, mut more) = (repeats.places.as_slice(), repeats.tf_minus_one.as_slice());
    let mut end = 0;
    loop {
        let filled = numbers.block(&mut ordinals)?;
        if filled == 0 {
            break;
        }
        let start = end;
        end += SIZE;
        if repeating > 0 {
            tf_minus_one.fill(0);
            repeating = 0;
        }
        let own = places.iter().zip(more);
        for (place, more) in own.take_while(|(place, _)| **place < end) {
            let repeated = tf_minus_one.get_mut(place.wrapping_sub(start) as usize);
            *repeated.ok_or(LOST)? = *more;
            repeating += 1;
        }
        places = places.get(repeating..).ok_or(LOST)?;
        more = more.get(repeating..).ok_or(LOST)?;
        visit(
            ordinals.get(..filled).ok_or(LOST)?,
            tf_minus_one.get(..filled).ok_or(LOST)?,
        )?;
    }
    numbers.behind()?.end()?;
    Ok(count)
}

/// The postings whose frequency is above 1: their places, and their frequencies less 1.
#[derive(Default)]
struct Repeats {
    places: Vec<u32>,
    tf_minus_one: Vec<u32>,
}

impl Repeats {
    fn read(reader: &mut ByteReader<'_>, count: u32) -> Read<Self> {
        let mut repeats = Self::default();
        let number = reader.varint_u32()?;
        if number == 0 {
            return Ok(repeats);
        }
        let most = reader.varint_u32()?;
        let mut block = [0; BLOCK];
        let mut places = AscendingReader::open(*reader, number, count)?;
        repeats.places.reserve_exact(number as usize);
        loop {
            let filled = places.block(&mut block)?;
            if filled == 0 {
                break;
            }
            let own = block.get(..filled).ok_or(LOST)?;
            repeats.places.extend_from_slice(own);
        }
        let mut sums = AscendingReader::open(places.behind()?, number, most)?;
        repeats.tf_minus_one.reserve_exact(number as usize);
        // Sums are stored less 1.
        let mut before = u32::MAX;
        loop {
            let filled = sums.block(&mut block)?;
            let own = block.get(..filled).ok_or(LOST)?;
            let (Some(first), Some(last)) = (own.first(), own.last()) else {
                break;
            };
            repeats.tf_minus_one.push(first.wrapping_sub(before));
            let pairs = own.iter().zip(own.iter().skip(1));
            let steps = pairs.map(|(before, sum)| sum.wrapping_sub(*before));
            repeats.tf_minus_one.extend(steps);
            before = *last;
        }
        *reader = sums.behind()?;
        repeats.read_beyond(reader)?;
        Ok(repeats)
    }

    /// Reads the exceptions: frequencies beyond the longest step.
    fn read_beyond(&mut self, reader: &mut ByteReader<'_>) -> Read<()> {
        let mut next = self.tf_minus_one.iter_mut();
        for _ in 0..reader.varint_usize()? {
            let place = next.nth(reader.varint_usize()?);
            let tf_minus_one =
                place.ok_or("a frequency names a posting that the list does not have")?;
            let beyond = reader.varint_u32()?;
            // The frequency itself must fit, too.
            let more = tf_minus_one
                .checked_add(beyond)
                .filter(|more| *more < u32::MAX);
            *tf_minus_one = more.ok_or("a frequency is too large")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ByteReader, Posting, each_block, write_long_list};

    fn read(bytes: &[u8], chunks: u32) -> Result<Vec<Posting>, &'static str> {
        let mut postings = Vec::new();
        let count = each_block(ByteReader::new(bytes), chunks, |ordinals, tf_minus_one| {
            for (ordinal, tf_minus_one) in ordinals.iter().zip(tf_minus_one) {
                postings.push(Posting {
                    ordinal: u16::try_from(*ordinal).unwrap_or(u16::MAX),
                    frequency: tf_minus_one + 1,
                });
            }
            Ok(())
        })?;
        assert_eq!(postings.len(), count as usize);
        Ok(postings)
    }

    proptest! {
        #[test]
        fn a_list_comes_back(
            ordinals in prop::collection::btree_set(any::<u16>(), 1..1_000),
            frequencies in prop::collection::vec(prop_oneof![4 => Just(1), 1 => 1_u32..100, 1 => any::<u32>()], 1_000),
            share in 0_u32..3,
            damage in any::<prop::sample::Index>(),
            value: u8,
        ) {
            let postings: Vec<_> = ordinals.iter().zip(&frequencies).map(|(ordinal, frequency)| Posting {
                ordinal: *ordinal,
                frequency: if share == 0 { 1 } else { (*frequency).max(1) },
            }).collect();
            let mut bytes = Vec::new();
            prop_assert!(write_long_list(&postings, 1 << 16, &mut bytes).is_ok());
            prop_assert_eq!(read(&bytes, 1 << 16), Ok(postings));
            let place = damage.index(bytes.len());
            prop_assert!(read(&bytes[..place], 1 << 16).is_err());
            bytes[place] ^= value;
            let (_, _) = (read(&bytes, 1 << 16), read(&bytes, u32::from(value)));
        }
    }
}
