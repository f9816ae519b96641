//! Merging segments into one: byte for byte what building it from the chunks that are left would give.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::keyword::format::rows::{RowReader, RowWriter};
use crate::keyword::format::{EncodedSegment, Header, Posting};
use crate::segments::{IdSet, MAX_CHUNKS, SegmentError, SegmentId, impossible};

/// A stored segment.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Its id.
    pub id: SegmentId,
    /// Its header.
    pub header: &'a [u8],
    /// All its rows as (first term, data), by first term.
    pub rows: Vec<(&'a [u8], &'a [u8])>,
}

/// Walks over the terms of one source, row after row.
struct SegmentCursor<'a> {
    header: Header,
    /// The new ordinal of each chunk; `None` for deleted chunks.
    moved: Vec<Option<u16>>,
    rows: std::vec::IntoIter<(&'a [u8], &'a [u8])>,
    row: Option<RowReader<'a>>,
    before: Vec<u8>,
    postings: u64,
}

impl<'a> SegmentCursor<'a> {
    /// Goes to the next term and writes it into `term`; false after the last term.
    fn next(&mut self, term: &mut Vec<u8>) -> Result<bool, SegmentError> {
        let damaged = SegmentError::damaged(&self.header.id);
        loop {
            if let Some(row) = &mut self.row
                && row.next(&self.header.codes).map_err(&damaged)?
            {
                if row.term <= self.before {
                    return Err(SegmentError::Refused(
                        "sources: rows must be sorted by their first term",
                    ));
                }
                self.before.clone_from(&row.term);
                term.clone_from(&row.term);
                return Ok(true);
            }
            let Some((first_term, data)) = self.rows.next() else {
                self.row = None;
                if self.postings != self.header.postings {
                    return Err(damaged("posting rows are missing"));
                }
                return Ok(false);
            };
            self.row = Some(RowReader::open(&self.header.id, first_term, data)?);
        }
    }

    /// Appends the postings of the current term, renumbered, without the dead.
    fn postings(&mut self, out: &mut Vec<Posting>) -> Result<(), SegmentError> {
        let row = self.row.as_mut();
        let row = row.ok_or_else(|| impossible("postings are read without a row"))?;
        let (moved, count) = (&self.moved, &mut self.postings);
        row.postings(self.header.chunks(), |posting| {
            *count += 1;
            let moved = moved.get(usize::from(posting.ordinal));
            if let Some(ordinal) =
                *moved.ok_or("a posting names a chunk that the segment does not have")?
            {
                out.push(Posting { ordinal, ..posting });
            }
            Ok(())
        })
        .map_err(SegmentError::damaged(&self.header.id))
    }
}

/// Merges segments of one language. `dead` are the ids to leave out; others than the sources' do no harm.
///
/// # Errors
///
/// Damaged sources; more living chunks than a segment holds, or a living id in two sources.
pub fn merge(
    id: &SegmentId,
    sources: Vec<Source<'_>>,
    dead: &IdSet,
) -> Result<EncodedSegment, SegmentError> {
    let mut cursors = Vec::with_capacity(sources.len());
    let mut living = Vec::new();
    for (number, source) in sources.into_iter().enumerate() {
        let header = Header::decode(&source.id, source.header)?;
        for (ordinal, chunk) in (0_u32..).zip(header.ids.iter()) {
            if !dead.contains(chunk) {
                living.push((chunk, number, ordinal));
            }
        }
        cursors.push(SegmentCursor {
            moved: vec![None; header.chunks() as usize],
            header,
            rows: source.rows.into_iter(),
            row: None,
            before: Vec::new(),
            postings: 0,
        });
        if living.len() > MAX_CHUNKS {
            return Err(SegmentError::Refused(
                "sources: together they have more live chunks than a segment can hold (65,536)",
            ));
        }
    }
    living.sort_unstable();
    let mut lengths = Vec::with_capacity(living.len());
    for ((_, number, ordinal), new) in living.iter().zip(0..=u16::MAX) {
        let cursor = cursors.get_mut(*number);
        let cursor = cursor.ok_or_else(|| impossible("a chunk belongs to no source"))?;
        lengths.push(cursor.header.length(*ordinal)?);
        let moved = cursor.moved.get_mut(*ordinal as usize);
        *moved.ok_or_else(|| impossible("a chunk belongs to no source"))? = Some(new);
    }
    let rows = merge_terms(id, &lengths, &mut cursors)?;
    EncodedSegment::new(
        id,
        living.iter().map(|(chunk, _, _)| *chunk),
        &lengths,
        rows,
    )
}

fn merge_terms<'l>(
    id: &SegmentId,
    lengths: &'l [u32],
    cursors: &mut [SegmentCursor<'_>],
) -> Result<RowWriter<'l>, SegmentError> {
    let mut heads = BinaryHeap::with_capacity(cursors.len());
    for (number, cursor) in cursors.iter_mut().enumerate() {
        let mut term = Vec::new();
        if cursor.next(&mut term)? {
            heads.push(Reverse((term, number)));
        }
    }
    let mut rows = RowWriter::new(id, lengths)?;
    let mut postings = Vec::new();
    let mut at_hand = Vec::new();
    while let Some(Reverse((mut term, number))) = heads.pop() {
        if term != at_hand {
            push(&mut rows, &at_hand, &mut postings)?;
            at_hand.clone_from(&term);
        }
        let cursor = cursors.get_mut(number);
        let cursor = cursor.ok_or_else(|| impossible("a term belongs to no source"))?;
        cursor.postings(&mut postings)?;
        if cursor.next(&mut term)? {
            heads.push(Reverse((term, number)));
        }
    }
    push(&mut rows, &at_hand, &mut postings)?;
    Ok(rows)
}

/// Writes a term whose postings came source by source.
fn push(
    rows: &mut RowWriter<'_>,
    term: &[u8],
    postings: &mut Vec<Posting>,
) -> Result<(), SegmentError> {
    // Stable sorting takes ascending runs as they are; sources mostly hold ids of their own ranges.
    postings.sort_by_key(|posting| posting.ordinal);
    if !postings.is_empty() {
        rows.push(term, postings)?;
    }
    postings.clear();
    Ok(())
}
