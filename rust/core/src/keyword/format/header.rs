//! A segment's header: ids and lengths of its chunks, and totals.

use super::prefix_code::{PrefixCode, TermCodes};
use crate::segments::IdRanges;
use crate::segments::sealed::{BlobKind, ByteReader, open, seal, write_varint};
use crate::segments::{MAX_CHUNKS, SegmentError, SegmentId, impossible};

/// Lengths below this are numbered through a table, longer ones (rare) by search, as are those of few chunks.
const TABLE_LENGTHS: usize = 1 << 16;

/// Minimum number of chunks for which a table is worth making.
const WORTH_A_TABLE: usize = 1 << 10;

/// Ids and lengths of a segment's chunks.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The segment.
    pub id: SegmentId,
    /// The chunks' ids, by ordinal.
    pub ids: IdRanges,
    /// Postings in all lists.
    pub postings: u64,
    /// Terms of all chunks, repeats included.
    pub total_length: u64,
    /// The lengths that occur, ascending.
    pub(crate) lengths: Vec<u32>,
    /// For each chunk, which of `lengths` it has.
    pub(crate) length_numbers: Vec<u16>,
    /// How terms are written.
    pub(crate) codes: TermCodes,
}

impl Header {
    /// The blob of a segment whose chunks have these ids and lengths.
    pub(crate) fn encode(
        id: &SegmentId,
        ids: &IdRanges,
        lengths: &[u32],
        postings: u64,
        codes: &TermCodes,
    ) -> Vec<u8> {
        let mut content = Vec::with_capacity(lengths.len() + 32);
        ids.write(&mut content);
        write_varint(postings, &mut content);
        for length in lengths {
            write_varint(u64::from(*length), &mut content);
        }
        codes.text.save(&mut content);
        codes.shared.save(&mut content);
        seal(BlobKind::Header, id, &[], &content)
    }

    /// Reads a blob.
    ///
    /// # Errors
    ///
    /// A damaged blob.
    pub fn decode(id: &SegmentId, blob: &[u8]) -> Result<Self, SegmentError> {
        let mut reader = ByteReader::new(open(BlobKind::Header, id, &[], blob)?);
        let mut read = || {
            let ids = IdRanges::read(&mut reader, MAX_CHUNKS)?;
            let postings = reader.varint()?;
            let lengths = (0..ids.len())
                .map(|_| reader.varint_u32())
                .collect::<Result<Vec<_>, _>>()?;
            let codes = TermCodes {
                text: PrefixCode::load(&mut reader)?,
                shared: PrefixCode::load(&mut reader)?,
            };
            reader.end()?;
            Ok((ids, postings, lengths, codes))
        };
        let (ids, postings, by_ordinal, codes) = read().map_err(SegmentError::damaged(id))?;
        let (lengths, length_numbers) = numbered(&by_ordinal)?;
        Ok(Self {
            id: *id,
            ids,
            postings,
            total_length: by_ordinal.iter().copied().map(u64::from).sum(),
            lengths,
            length_numbers,
            codes,
        })
    }

    /// The number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.ids.len()
    }

    /// The length of a chunk.
    ///
    /// # Errors
    ///
    /// No chunk has the ordinal.
    #[inline]
    pub fn length(&self, ordinal: u32) -> Result<u32, SegmentError> {
        self.length_numbers
            .get(ordinal as usize)
            .and_then(|number| self.lengths.get(usize::from(*number)))
            .copied()
            .ok_or_else(|| impossible("a chunk has no length"))
    }
}

/// The values that occur, ascending, and which of them each one is.
fn numbered(values: &[u32]) -> Result<(Vec<u32>, Vec<u16>), SegmentError> {
    let places = if values.len() < WORTH_A_TABLE {
        0
    } else {
        TABLE_LENGTHS
    };
    let mut table = vec![0_u16; places];
    let mut distinct = Vec::new();
    for value in values {
        match table.get_mut(*value as usize) {
            Some(seen) if *seen == 0 => {
                *seen = 1;
                distinct.push(*value);
            }
            Some(_) => {}
            None => distinct.push(*value),
        }
    }
    distinct.sort_unstable();
    distinct.dedup();
    for (number, value) in (0..=u16::MAX).zip(&distinct) {
        if let Some(place) = table.get_mut(*value as usize) {
            *place = number;
        }
    }
    let numbers = values.iter().map(|value| match table.get(*value as usize) {
        Some(number) => Ok(*number),
        None => u16::try_from(distinct.partition_point(|other| other < value))
            .map_err(|_| impossible("more lengths than chunks")),
    });
    let numbers = numbers.collect::<Result<_, _>>()?;
    Ok((distinct, numbers))
}
