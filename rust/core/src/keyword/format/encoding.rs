//! A finished segment: what goes into the tables.

use super::header::Header;
use super::rows::{EncodedRow, FinishedRows, RowWriter};
use crate::segments::{IdRanges, SegmentError, SegmentId};

/// A segment in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedSegment {
    /// Ids, lengths, totals.
    pub header: Vec<u8>,
    /// Posting lists, by key.
    pub rows: Vec<EncodedRow>,
    /// The number of chunks.
    pub chunks: u32,
    /// The number of postings.
    pub postings: u64,
    /// Terms of all chunks, repeats included.
    pub total_length: u64,
}

impl EncodedSegment {
    /// Seals the header over the finished rows.
    pub(crate) fn new(
        id: &SegmentId,
        ids: impl IntoIterator<Item = i64>,
        lengths: &[u32],
        rows: RowWriter<'_>,
    ) -> Result<Self, SegmentError> {
        let ids =
            IdRanges::new(ids).ok_or(SegmentError::Refused("a keyword id was given twice"))?;
        let FinishedRows {
            rows,
            postings,
            codes,
        } = rows.finish()?;
        Ok(Self {
            header: Header::encode(id, &ids, lengths, postings, &codes),
            rows,
            chunks: ids.len(),
            postings,
            total_length: lengths.iter().copied().map(u64::from).sum(),
        })
    }
}
