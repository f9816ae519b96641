//! Stored posting lists of terms that share a row: one after the other in a stream of bits, as small as their numbers
//! allow.
//!
//! A list is its count, a bit that tells whether any frequency is above 1, the first ordinal, then gaps in Rice codes;
//! behind each ordinal its frequency, less 1, where there are such. Gaps are those between ordinals, less 1.

use std::num::NonZeroU32;

use super::Posting;
use super::bits::{BitReader, BitWriter};
use crate::segments::sealed::Read;
use crate::segments::{SegmentError, impossible};

/// Appends a list. Ordinals ascend below `chunks`, frequencies are at least 1.
pub(crate) fn write_list(
    postings: &[Posting],
    chunks: u32,
    writer: &mut BitWriter,
) -> Result<(), SegmentError> {
    let repeats = postings.iter().any(|posting| posting.frequency > 1);
    let count = u32::try_from(postings.len()).ok().and_then(NonZeroU32::new);
    writer.gamma(count.ok_or_else(|| impossible("a posting list is empty or too long"))?);
    writer.bits(u32::from(repeats), 1);
    let widths = Widths::new(chunks, postings.len());
    let mut before = None;
    for posting in postings {
        let ordinal = u32::from(posting.ordinal);
        let tf_minus_one = posting.tf_minus_one()?;
        write_posting(
            writer,
            widths,
            before,
            ordinal,
            repeats.then_some(tf_minus_one),
        );
        before = Some(ordinal);
    }
    Ok(())
}

/// Reads the list at the reader's place, checks it, and calls `visit` with every ordinal and frequency less 1; gives the
/// number of postings.
pub(crate) fn each_posting(
    reader: &mut BitReader<'_>,
    chunks: u32,
    mut visit: impl FnMut(u32, u32) -> Read<()>,
) -> Read<u32> {
    let count = reader.gamma()?;
    if count > chunks {
        return Err("a posting list has more postings than the segment has chunks");
    }
    let repeats = reader.bits(1)? == 1;
    let widths = Widths::new(chunks, count as usize);
    let mut before = None;
    let mut any_tf_minus_one = 0;
    for _ in 0..count {
        let (ordinal, tf_minus_one) = read_posting(reader, widths, before, repeats)?;
        if ordinal >= chunks {
            return Err("a posting names a chunk that the segment does not have");
        }
        if tf_minus_one == u32::MAX {
            return Err("a frequency is too large");
        }
        any_tf_minus_one |= tf_minus_one;
        visit(ordinal, tf_minus_one)?;
        before = Some(ordinal);
    }
    reader.within()?;
    if (any_tf_minus_one > 0) != repeats {
        return Err("the repeats flag of a posting list contradicts its frequencies");
    }
    Ok(count)
}

/// Bits of the first ordinal, and the parameter of the gaps' Rice code.
#[derive(Clone, Copy)]
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

const TOO_LARGE: &str = "an ordinal is too large";

/// Appends an ordinal, and its frequency less 1 where there are frequencies.
fn write_posting(
    writer: &mut BitWriter,
    widths: Widths,
    before: Option<u32>,
    ordinal: u32,
    tf_minus_one: Option<u32>,
) {
    match before {
        None => writer.bits(ordinal, widths.ordinal),
        Some(before) => writer.rice(ordinal - before - 1, widths.gap),
    }
    if let Some(tf_minus_one) = tf_minus_one {
        writer.count(tf_minus_one);
    }
}

/// Reads what [`write_posting`] wrote: ordinal, and frequency less 1.
#[inline(always)]
fn read_posting(
    reader: &mut BitReader<'_>,
    widths: Widths,
    before: Option<u32>,
    repeats: bool,
) -> Read<(u32, u32)> {
    let Some(before) = before else {
        let ordinal = reader.bits(widths.ordinal)?;
        let tf_minus_one = if repeats { reader.count()? } else { 0 };
        return Ok((ordinal, tf_minus_one));
    };
    let (gap, tf_minus_one) = match repeats {
        true => reader.rice_and_count(widths.gap)?,
        false => (reader.rice(widths.gap)?, 0),
    };
    let ordinal = before.checked_add(gap).and_then(|sum| sum.checked_add(1));
    Ok((ordinal.ok_or(TOO_LARGE)?, tf_minus_one))
}
