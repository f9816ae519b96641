//! Rows: sorted terms with their lists, cut so that a term is found by the greatest first term that is not above it.
//!
//! A row begins with its form. A long list has a row of its own. Others share one: the first term's list, then for each
//! further term the bytes that it shares with the one before, the bytes that follow, and its list.

use super::header::Header;
use super::list::{List, each_posting, encode_list};
use super::sealed::{Kind, Read, Reader, open, seal, write_varint};
use super::{EncodedRow, LONGEST_TERM, Posting, SegmentError, SegmentId};

/// A list above this many bytes has a row of its own.
const LONG_LIST: usize = 512;

/// Content of a shared row at most: Postgres adds some 92 bytes a row (heap and index), a search reads one row a term.
const SHARED_ROW: usize = 1_100;

const ALONE: u8 = 0;
const SHARED: u8 = 1;

/// Lengths of prefix and suffix below this share a byte.
const NIBBLE: usize = 15;

/// Takes terms in order, and makes rows.
pub(crate) struct RowWriter {
    id: SegmentId,
    chunks: u32,
    rows: Vec<EncodedRow>,
    postings: u64,
    first_term: Vec<u8>,
    last_term: Vec<u8>,
    shared: Vec<u8>,
    list: Vec<u8>,
    entry: Vec<u8>,
}

impl RowWriter {
    /// For a segment of this many chunks.
    pub(crate) fn new(id: &SegmentId, chunks: usize) -> Self {
        Self {
            id: *id,
            chunks: u32::try_from(chunks).unwrap_or(u32::MAX),
            rows: Vec::new(),
            postings: 0,
            first_term: Vec::new(),
            last_term: Vec::new(),
            shared: Vec::new(),
            list: Vec::new(),
            entry: Vec::new(),
        }
    }

    /// Adds a term, greater than all before, with at least one posting.
    pub(crate) fn push(&mut self, term: &[u8], postings: &[Posting]) {
        self.postings += postings.len() as u64;
        self.list.clear();
        encode_list(postings, self.chunks, &mut self.list);
        if self.list.len() > LONG_LIST {
            self.flush();
            self.list.insert(0, ALONE);
            self.row(term.to_vec());
            return;
        }
        let mut room = SHARED_ROW.saturating_sub(self.shared.len());
        if !self.shared.is_empty() {
            self.write_entry(term);
            if self.entry.len() <= room {
                self.shared.extend_from_slice(&self.entry);
                room = usize::MAX;
            }
        }
        if room != usize::MAX {
            self.flush();
            self.shared.push(SHARED);
            self.shared.extend_from_slice(&self.list);
            self.first_term.clear();
            self.first_term.extend_from_slice(term);
        }
        self.last_term.clear();
        self.last_term.extend_from_slice(term);
    }

    fn write_entry(&mut self, term: &[u8]) {
        let shared = self
            .last_term
            .iter()
            .zip(term)
            .take_while(|(left, right)| left == right)
            .count();
        let suffix = term.get(shared..).unwrap_or_default();
        let (front, back) = (shared.min(NIBBLE), suffix.len().min(NIBBLE));
        self.entry.clear();
        self.entry
            .push(u8::try_from(front << 4 | back).unwrap_or(u8::MAX));
        for (length, written) in [(shared, front), (suffix.len(), back)] {
            if written == NIBBLE {
                write_varint((length - NIBBLE) as u64, &mut self.entry);
            }
        }
        self.entry.extend_from_slice(suffix);
        self.entry.extend_from_slice(&self.list);
    }

    fn flush(&mut self) {
        if !self.shared.is_empty() {
            std::mem::swap(&mut self.list, &mut self.shared);
            let first_term = std::mem::take(&mut self.first_term);
            self.row(first_term);
            std::mem::swap(&mut self.list, &mut self.shared);
            self.shared.clear();
        }
    }

    /// Seals what `list` holds.
    fn row(&mut self, first_term: Vec<u8>) {
        let data = seal(Kind::Row, &self.id, &first_term, &self.list);
        self.rows.push(EncodedRow { first_term, data });
    }

    /// The rows, and the number of postings in them.
    pub(crate) fn finish(mut self) -> (Vec<EncodedRow>, u64) {
        self.flush();
        (self.rows, self.postings)
    }
}

/// Walks over the terms of one row.
pub(crate) struct RowReader<'a> {
    content: Reader<'a>,
    shared: bool,
    begun: bool,
    /// The term at hand.
    pub(crate) term: Vec<u8>,
}

impl<'a> RowReader<'a> {
    pub(crate) fn open(
        id: &SegmentId,
        first_term: &[u8],
        data: &'a [u8],
    ) -> Result<Self, SegmentError> {
        let mut content = Reader::new(open(Kind::Row, id, first_term, data)?);
        let form = content.byte().and_then(|form| match form {
            ALONE | SHARED => Ok(form),
            _ => Err("a row has an unknown form"),
        });
        let form = form.map_err(SegmentError::damaged(id))?;
        if first_term.is_empty() || first_term.len() > LONGEST_TERM {
            return Err(SegmentError::damaged(id)(
                "a row's first term has no usable length",
            ));
        }
        Ok(Self {
            content,
            shared: form == SHARED,
            begun: false,
            term: first_term.to_vec(),
        })
    }

    /// Steps to the next term; false at the end. The list of the term before must have been read.
    pub(crate) fn next(&mut self) -> Read<bool> {
        if !self.begun {
            self.begun = true;
            return Ok(true);
        }
        if !self.shared || self.content.left() == 0 {
            return self.content.end().map(|()| false);
        }
        let lengths = usize::from(self.content.byte()?);
        let mut length = |written: usize| -> Read<usize> {
            if written < NIBBLE {
                return Ok(written);
            }
            let more = self.content.varint_usize()?;
            more.checked_add(NIBBLE)
                .filter(|length| *length <= LONGEST_TERM)
                .ok_or("a term is too long")
        };
        let (shared, suffix) = (length(lengths >> 4)?, length(lengths & 15)?);
        let suffix = self.content.take(suffix)?;
        let replaced = self
            .term
            .get(shared..)
            .ok_or("a term shares more than there is")?;
        // Greater than the one before, and sharing all that can be shared: one form for each row.
        if suffix.first() <= replaced.first() || shared + suffix.len() > LONGEST_TERM {
            return Err("terms do not ascend");
        }
        self.term.truncate(shared);
        self.term.extend_from_slice(suffix);
        Ok(true)
    }

    /// Reads the postings of the term at hand.
    pub(crate) fn postings(&mut self, chunks: u32, visit: impl FnMut(Posting)) -> Read<()> {
        each_posting(&mut self.content, chunks, visit).map(|_| ())
    }
}

/// The list of `term` in the row that may hold it.
pub(crate) fn find_term(
    header: &Header,
    first_term: &[u8],
    data: &[u8],
    term: &[u8],
) -> Result<Option<List>, SegmentError> {
    let damaged = SegmentError::damaged(&header.id);
    if first_term > term {
        return Err(SegmentError::refused(
            "rows: a row begins above the term it was read for",
        ));
    }
    let mut row = RowReader::open(&header.id, first_term, data)?;
    while row.next().map_err(&damaged)? {
        if row.term.as_slice() == term {
            return List::read(&mut row.content, header)
                .map(Some)
                .map_err(&damaged);
        }
        if row.term.as_slice() > term {
            return Ok(None);
        }
        row.postings(header.chunks(), |_| {}).map_err(&damaged)?;
    }
    Ok(None)
}
