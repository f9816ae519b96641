//! Rows: sorted terms with their lists, cut so that a term is found by the greatest key that is not above it.
//!
//! A row begins with its form. A long list has a row of its own, whose key is the term. Others share one: the number of
//! terms, then bits: for each term how many bytes it shares with the one before (the first of a row none, and does not say
//! so), the bytes that follow with a mark behind them, and its list. The key of such a row is the shortest beginning of
//! its first term that is above the last term of the row before.

use std::cmp::Ordering;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::bits::{BitReader, BitWriter};
use super::header::Header;
use super::impacts::{read_impacts, write_impacts};
use super::list::List;
use super::long_postings::{each_block, write_long_list};
use super::postings::{each_posting, write_list};
use super::prefix_code::{Counts, PrefixCode, TermCodes};
use super::{MAX_TERM, Posting};
use crate::segments::sealed::{BlobKind, ByteReader, FRONT_BYTES, Read, open, seal, write_varint};
use crate::segments::{SegmentError, SegmentId, impossible};

/// A list of more postings has a row of its own.
const LONG_LIST: usize = 512;

/// Bytes of a row's key and data at most, when terms share it: four of them fill a page of Postgres (2,032 bytes each,
/// 44 of them the tuple's own), and none is moved out of the table.
const SHARED_ROW: usize = 1_980;

const LOST: &str = "a term of a posting row is missing";

const ALONE: u8 = 0;
const SHARED: u8 = 1;

/// Ends each term; UTF-8 does not contain this byte.
const END: u8 = 0xff;

/// One row of posting lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRow {
    /// The row's key within the segment: its first term, or a beginning of it that is above all terms before.
    pub first_term: Vec<u8>,
    /// The lists.
    pub data: Vec<u8>,
}

/// The rows of a segment, and what belongs into its header.
pub(crate) struct FinishedRows {
    pub(crate) rows: Vec<EncodedRow>,
    pub(crate) postings: u64,
    pub(crate) codes: TermCodes,
}

/// A term that waits for its row.
struct Entry {
    /// Where its bytes end among those of all waiting terms, and its postings among theirs.
    term_end: usize,
    postings_end: usize,
    /// The content of a row of its own.
    alone: Option<Vec<u8>>,
}

/// Takes terms in order, and makes rows.
pub(crate) struct RowWriter<'l> {
    id: SegmentId,
    /// The length of each chunk.
    lengths: &'l [u32],
    chunks: u32,
    count: u64,
    terms: Vec<u8>,
    postings: Vec<Posting>,
    entries: Vec<Entry>,
    /// The last term that may share a row.
    last: std::ops::Range<usize>,
    text: Counts,
    shared: Counts,
}

impl<'l> RowWriter<'l> {
    /// For a segment whose chunks have these lengths.
    pub(crate) fn new(id: &SegmentId, lengths: &'l [u32]) -> Result<Self, SegmentError> {
        let chunks = u32::try_from(lengths.len());
        Ok(Self {
            id: *id,
            lengths,
            chunks: chunks.map_err(|_| impossible("more chunks than a segment holds"))?,
            count: 0,
            terms: Vec::new(),
            postings: Vec::new(),
            entries: Vec::new(),
            last: 0..0,
            text: Counts::default(),
            shared: Counts::default(),
        })
    }

    /// Adds a term, greater than all before, with at least one posting.
    pub(crate) fn push(&mut self, term: &[u8], postings: &[Posting]) -> Result<(), SegmentError> {
        self.count += postings.len() as u64;
        let mut content = None;
        if postings.len() > LONG_LIST {
            content = Some(alone(postings, self.lengths, self.chunks)?);
        } else {
            // Codes are made for what is written if all terms stand in one row: then no byte is without a code.
            let last = self.terms.get(self.last.clone());
            let (shared, own) = apart(last.ok_or_else(|| impossible(LOST))?, term)?;
            self.shared.add(shared);
            own.iter().for_each(|byte| self.text.add(*byte));
            self.text.add(END);
            self.last = self.terms.len()..self.terms.len() + term.len();
            self.postings.extend_from_slice(postings);
        }
        self.terms.extend_from_slice(term);
        self.entries.push(Entry {
            term_end: self.terms.len(),
            postings_end: self.postings.len(),
            alone: content,
        });
        Ok(())
    }

    /// The rows.
    pub(crate) fn finish(self) -> Result<FinishedRows, SegmentError> {
        let codes = TermCodes {
            text: PrefixCode::new(&self.text),
            shared: PrefixCode::new(&self.shared),
        };
        let mut packer = RowPacker {
            id: &self.id,
            lengths: self.lengths,
            chunks: self.chunks,
            codes: &codes,
            rows: Vec::new(),
            key: Vec::new(),
            before: &[],
            terms: 0,
            bits: BitWriter::default(),
        };
        let (mut term_start, mut postings_start) = (0, 0);
        for entry in self.entries {
            let term = self.terms.get(term_start..entry.term_end);
            let postings = self.postings.get(postings_start..entry.postings_end);
            let (term, postings) = term.zip(postings).ok_or_else(|| impossible(LOST))?;
            packer.add(term, postings, entry.alone)?;
            (term_start, postings_start) = (entry.term_end, entry.postings_end);
        }
        packer.flush();
        Ok(FinishedRows {
            rows: packer.rows,
            postings: self.count,
            codes,
        })
    }
}

/// The content of a row with one list.
fn alone(postings: &[Posting], lengths: &[u32], chunks: u32) -> Result<Vec<u8>, SegmentError> {
    let mut content = vec![ALONE];
    write_impacts(postings, lengths, &mut content)?;
    write_long_list(postings, chunks, &mut content)?;
    Ok(content)
}

/// How many bytes a term shares with the one before, and those behind them.
fn apart<'t>(before: &[u8], term: &'t [u8]) -> Result<(u8, &'t [u8]), SegmentError> {
    let pairs = before.iter().zip(term);
    let shared = pairs.take_while(|(left, right)| left == right).count();
    let own = u8::try_from(shared).ok().zip(term.get(shared..));
    own.ok_or_else(|| impossible("a term is too long"))
}

/// Puts entries into rows.
struct RowPacker<'a> {
    id: &'a SegmentId,
    lengths: &'a [u32],
    chunks: u32,
    codes: &'a TermCodes,
    rows: Vec<EncodedRow>,
    /// The current row: its key, the number of its terms, and their bits.
    key: Vec<u8>,
    terms: u64,
    bits: BitWriter,
    /// The term before.
    before: &'a [u8],
}

impl<'a> RowPacker<'a> {
    fn add(
        &mut self,
        term: &'a [u8],
        postings: &[Posting],
        mut alone_content: Option<Vec<u8>>,
    ) -> Result<(), SegmentError> {
        let (shared, own) = apart(self.before, term)?;
        if alone_content.is_none() && !(self.terms > 0 && self.fits(shared, own, postings)?) {
            self.flush();
            let key = term.get(..=usize::from(shared));
            let key = key.ok_or_else(|| impossible("terms do not ascend"))?;
            self.key.extend_from_slice(key);
            if !self.fits(0, term, postings)? {
                // Only frequencies beyond all measure bring it so far.
                alone_content = Some(alone(postings, self.lengths, self.chunks)?);
            }
        }
        if let Some(content) = alone_content {
            self.flush();
            self.row(term, &content);
        }
        self.before = term;
        Ok(())
    }

    /// Writes a term into the current row, if there is room: how many bytes it shares with the one before, and its own.
    fn fits(&mut self, shared: u8, own: &[u8], postings: &[Posting]) -> Result<bool, SegmentError> {
        let mark = self.bits.mark();
        if self.terms > 0 {
            self.codes.shared.write(shared, &mut self.bits)?;
        }
        for byte in own {
            self.codes.text.write(*byte, &mut self.bits)?;
        }
        self.codes.text.write(END, &mut self.bits)?;
        write_list(postings, self.chunks, &mut self.bits)?;
        // The form, and two bytes for the number of terms, of which there are never more than bits.
        let front = FRONT_BYTES + 1 + 2;
        let fits = self.key.len() + front + self.bits.bytes() <= SHARED_ROW;
        if fits {
            self.terms += 1;
        } else {
            self.bits.back(mark);
        }
        Ok(fits)
    }

    /// Ends the current row.
    fn flush(&mut self) {
        let key = std::mem::take(&mut self.key);
        let mut bits = self.bits.finish();
        if self.terms > 0 {
            let mut content = vec![SHARED];
            write_varint(self.terms, &mut content);
            content.append(&mut bits);
            self.row(&key, &content);
        }
        self.terms = 0;
    }

    fn row(&mut self, key: &[u8], content: &[u8]) {
        self.rows.push(EncodedRow {
            first_term: key.to_vec(),
            data: seal(BlobKind::Row, self.id, key, content),
        });
    }
}

/// The hash that a segment keeps of the keys of its rows.
pub fn keys_hash<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for key in keys {
        hash.update(key);
    }
    hash.finalize().into()
}

/// Walks over the terms of one row.
pub(crate) struct RowReader<'a> {
    /// The bits of a row of several terms.
    bits: BitReader<'a>,
    /// The list of a row of one term.
    alone: Option<ByteReader<'a>>,
    /// The beginning of the first term, or all of it.
    key: &'a [u8],
    begun: bool,
    left: u64,
    /// The current term.
    pub(crate) term: Vec<u8>,
}

impl<'a> RowReader<'a> {
    pub(crate) fn open(
        id: &SegmentId,
        key: &'a [u8],
        data: &'a [u8],
    ) -> Result<Self, SegmentError> {
        let mut content = ByteReader::new(open(BlobKind::Row, id, key, data)?);
        let mut read = || {
            if key.is_empty() || key.len() > MAX_TERM || key.contains(&END) {
                return Err("the key of a posting row cannot begin a term");
            }
            let (shared, left) = match content.byte()? {
                ALONE => (false, 1),
                SHARED => (true, content.varint()?),
                _ => return Err("a posting row has an unknown form"),
            };
            if left == 0 {
                return Err("a posting row has no terms");
            }
            Ok((shared, left))
        };
        let (shared, left) = read().map_err(SegmentError::damaged(id))?;
        Ok(Self {
            bits: BitReader::new(if shared { content.rest() } else { &[] }),
            alone: (!shared).then_some(content),
            key,
            begun: false,
            left,
            term: Vec::new(),
        })
    }

    /// Steps to the next term; false at the end. The list of the term before must have been read.
    pub(crate) fn next(&mut self, codes: &TermCodes) -> Read<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return self.bits.end().map(|()| false);
        };
        self.left = left;
        let first = !std::mem::replace(&mut self.begun, true);
        if self.alone.is_some() {
            self.term.extend_from_slice(self.key);
            return Ok(true);
        }
        let shared = match first {
            true => 0,
            false => usize::from(codes.shared.read(&mut self.bits)?),
        };
        let replaced = match self.term.get(shared..) {
            Some(rest) => rest.first().copied(),
            None => return Err("a term shares more bytes than the previous term has"),
        };
        self.term.truncate(shared);
        loop {
            let byte = codes.text.read(&mut self.bits)?;
            if byte == END {
                break;
            }
            if self.term.len() == MAX_TERM {
                return Err("a term has more than 128 bytes");
            }
            self.term.push(byte);
        }
        // Greater than the one before, and sharing all that can be shared: one form for each row.
        if self.term.get(shared).copied() <= replaced {
            return Err("terms are not in ascending order");
        }
        if first && !self.term.starts_with(self.key) {
            return Err("the first term of a posting row does not begin with the row's key");
        }
        Ok(true)
    }

    /// Reads the postings of the current term.
    pub(crate) fn postings(
        &mut self,
        chunks: u32,
        mut visit: impl FnMut(Posting) -> Read<()>,
    ) -> Read<()> {
        let mut one = |ordinal: u32, tf_minus_one: u32| {
            visit(Posting {
                ordinal: u16::try_from(ordinal).map_err(|_| "an ordinal is too large")?,
                frequency: tf_minus_one + 1,
            })
        };
        let Some(mut content) = self.alone else {
            return each_posting(&mut self.bits, chunks, one).map(|_| ());
        };
        read_impacts(&mut content)?;
        let read = each_block(content, chunks, |ordinals, tf_minus_one| {
            let mut postings = ordinals.iter().zip(tf_minus_one);
            postings.try_for_each(|(ordinal, tf_minus_one)| one(*ordinal, *tf_minus_one))
        });
        read.map(|_| ())
    }

    /// Takes the list of the current term.
    fn list(&mut self, chunks: u32) -> Read<List> {
        match self.alone {
            Some(content) => List::read_long(content, chunks),
            None => List::read(&mut self.bits, chunks),
        }
    }

    /// Bytes of the lists, or of the only list.
    fn content_bytes(&self) -> usize {
        self.alone
            .map_or_else(|| self.bits.bytes(), |content| content.left())
    }

    /// Passes over the list of the current term.
    fn skip(&mut self, chunks: u32) -> Read<()> {
        match self.alone {
            Some(_) => Ok(()),
            None => each_posting(&mut self.bits, chunks, |_, _| Ok(())).map(|_| ()),
        }
    }
}

/// A row that is read repeatedly, for other terms each time.
#[derive(Debug)]
pub(crate) struct IndexedRow {
    key: Box<[u8]>,
    data: Box<[u8]>,
    /// Made by the first look-up of a term.
    places: OnceLock<Places>,
}

/// Where the terms and lists of a row are.
#[derive(Debug)]
struct Places {
    /// Where the bits of the lists begin, or the only list.
    content: usize,
    is_alone: bool,
    /// All terms, one after the other.
    terms: Box<[u8]>,
    /// Of each term, where it ends, and at which bit its list begins.
    entries: Box<[(usize, usize)]>,
}

/// Bytes that a row takes in memory for each of its own, with the places of its terms.
const INDEXED_RATIO: usize = 3;

impl IndexedRow {
    pub(crate) fn new(key: &[u8], data: &[u8]) -> Self {
        Self {
            key: key.into(),
            data: data.into(),
            places: OnceLock::new(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// About how many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        INDEXED_RATIO * (self.key.len() + self.data.len())
    }

    /// The list of a term; `None` if the row does not hold it.
    pub(crate) fn list(&self, header: &Header, term: &[u8]) -> Result<Option<List>, SegmentError> {
        let places = match self.places.get() {
            Some(places) => places,
            None => {
                let places = Places::of(header, &self.key, &self.data)?;
                self.places.get_or_init(|| places)
            }
        };
        let Some(content) = self.data.get(places.content..) else {
            return Err(impossible(LOST));
        };
        let Some(place) = places.find(term)? else {
            return Ok(None);
        };
        let list = match places.is_alone {
            true => List::read_long(ByteReader::new(content), header.chunks()),
            false => List::read(&mut BitReader::from(content, place), header.chunks()),
        };
        list.map(Some).map_err(SegmentError::damaged(&header.id))
    }
}

impl Places {
    /// Walks over the whole row, and so checks it.
    fn of(header: &Header, key: &[u8], data: &[u8]) -> Result<Self, SegmentError> {
        let damaged = SegmentError::damaged(&header.id);
        let mut row = RowReader::open(&header.id, key, data)?;
        let is_alone = row.alone.is_some();
        let (mut terms, mut entries) = (Vec::new(), Vec::new());
        while row.next(&header.codes).map_err(&damaged)? {
            terms.extend_from_slice(&row.term);
            entries.push((terms.len(), row.bits.place()));
            row.skip(header.chunks()).map_err(&damaged)?;
        }
        let content = data.len().checked_sub(row.content_bytes());
        Ok(Self {
            content: content.ok_or_else(|| impossible(LOST))?,
            is_alone,
            terms: terms.into(),
            entries: entries.into(),
        })
    }

    /// At which bit the list of a term begins.
    fn find(&self, term: &[u8]) -> Result<Option<usize>, SegmentError> {
        let (mut first, mut behind) = (0, self.entries.len());
        while first < behind {
            let middle = usize::midpoint(first, behind);
            let before = middle.checked_sub(1).map(|place| self.entries.get(place));
            let start = before.map_or(Some(0), |entry| entry.map(|(end, _)| *end));
            let own = start.zip(self.entries.get(middle));
            let own =
                own.and_then(|(start, (end, place))| Some((self.terms.get(start..*end)?, place)));
            let (own, place) = own.ok_or_else(|| impossible(LOST))?;
            match own.cmp(term) {
                Ordering::Equal => return Ok(Some(*place)),
                Ordering::Less => first = middle + 1,
                Ordering::Greater => behind = middle,
            }
        }
        Ok(None)
    }
}

/// The lists of ascending terms, none of them twice, in the row that may hold them, which is read once for all.
pub(crate) fn find_terms<'t>(
    header: &Header,
    key: &[u8],
    data: &[u8],
    terms: impl IntoIterator<Item = &'t [u8]>,
) -> Result<Vec<Option<List>>, SegmentError> {
    let damaged = SegmentError::damaged(&header.id);
    let mut row = RowReader::open(&header.id, key, data)?;
    let mut has_term = row.next(&header.codes).map_err(&damaged)?;
    let mut is_read = false;
    let mut found = Vec::new();
    for term in terms {
        while has_term && row.term.as_slice() < term {
            if !std::mem::take(&mut is_read) {
                row.skip(header.chunks()).map_err(&damaged)?;
            }
            has_term = row.next(&header.codes).map_err(&damaged)?;
        }
        is_read |= has_term && row.term.as_slice() == term;
        let list = is_read.then(|| row.list(header.chunks()));
        found.push(list.transpose().map_err(&damaged)?);
    }
    Ok(found)
}
