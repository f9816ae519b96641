//! Building a segment from texts: terms are counted chunk by chunk, their postings distributed, sorted and encoded.

use std::hint::select_unpredictable;

use super::vocabulary::{NO_TERM, Overflow, UNCOUNTED, Vocabulary};
use crate::keyword::format::rows::RowWriter;
use crate::keyword::format::{EncodedSegment, Posting};
use crate::keyword::{TermSource, is_typed};
use crate::segments::{MAX_CHUNKS, SegmentError, SegmentId, impossible};

/// Minimum number of counts that memory is reserved for.
const MIN_ROOM: usize = 1 << 10;

const UNKNOWN_TERM: &str = "a term has no count";
const UNCOUNTED_CHUNK: &str = "a chunk has no counts";
const LOST_POSTINGS: &str = "a posting list has no postings";

struct Chunk {
    id: i64,
    length: u32,
    end: usize,
}

/// State of a term in the current segment.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Behind its place in `counts`, as of the last chunk that has it.
    behind: u32,
    /// How many chunks have it.
    chunks: u32,
}

/// Collects chunks, and makes a segment of them.
#[derive(Default)]
pub struct SegmentBuilder {
    vocabulary: Vocabulary,
    counts: Counts,
    chunks: Vec<Chunk>,
}

/// The terms of chunk after chunk.
#[derive(Default)]
struct Counts {
    /// By number of term.
    known: Vec<Known>,
    /// (term, frequency) of chunk after chunk, then room for more. The first of each chunk counts what is no term.
    counts: Vec<(u32, u32)>,
    /// Where the counts of the current chunk begin, and where the room does.
    start: usize,
    end: usize,
    /// Number of terms of the current chunk, repeats included, and of its tokens without a term.
    length: u64,
}

impl Counts {
    /// Counts a term of the current chunk, or a token without a term.
    ///
    /// Whether a chunk has had a term before cannot be guessed, so that this is done without a branch.
    #[inline]
    fn add(&mut self, term: u32) -> Result<(), Overflow> {
        self.length += u64::from(term < UNCOUNTED);
        let term = term & !UNCOUNTED;
        if self.end >= self.counts.len() || term as usize >= self.known.len() {
            self.make_room(term)?;
        }
        let known = self.known.get_mut(term as usize).ok_or(Overflow)?;
        let is_new = known.behind as usize <= self.start;
        let behind = select_unpredictable(is_new, self.end + 1, known.behind as usize);
        let count = self.counts.get_mut(behind - 1).ok_or(Overflow)?;
        *count = (
            term,
            select_unpredictable(is_new, 0, count.1).wrapping_add(1),
        );
        known.behind = u32::try_from(behind).map_err(|_| Overflow)?;
        known.chunks += u32::from(is_new);
        self.end += usize::from(is_new);
        Ok(())
    }

    #[inline(never)]
    fn make_room(&mut self, term: u32) -> Result<(), Overflow> {
        if self.end >= self.counts.len() {
            let room = (2 * self.end).max(MIN_ROOM);
            u32::try_from(room).map_err(|_| Overflow)?;
            self.counts.resize(room, (NO_TERM, 0));
        }
        if term as usize >= self.known.len() {
            let room = (term as usize + 1).next_power_of_two();
            self.known.resize(room, Known::default());
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Overflow> {
        self.start = self.end;
        self.length = 0;
        self.add(NO_TERM)
    }

    /// The number of terms of the current chunk, repeats included.
    fn length(&self) -> Result<u32, SegmentError> {
        let no_terms = self.counts.get(self.start);
        let (_, no_terms) = no_terms.ok_or_else(|| impossible(UNCOUNTED_CHUNK))?;
        let length = u32::try_from(self.length).map_err(|_| Overflow.refused())?;
        Ok(length - no_terms)
    }

    /// Takes back what was counted since the beginning of the current chunk.
    fn take_back(&mut self) -> Result<(), SegmentError> {
        let counted = self.counts.get(self.start..self.end);
        for (term, _) in counted.ok_or_else(|| impossible(UNCOUNTED_CHUNK))? {
            let known = known_of(&mut self.known, *term)?;
            known.behind = 0;
            known.chunks -= 1;
        }
        self.end = self.start;
        Ok(())
    }
}

impl SegmentBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of chunks so far.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Takes what another builder has learnt of the source that this one will see, unless it has chunks already.
    pub fn adopt(&mut self, vocabulary: &mut Vocabulary) {
        if self.chunks.is_empty() {
            self.vocabulary = std::mem::take(vocabulary);
        }
    }

    /// Hands over what was learnt of the source, when there are no chunks and it has not grown too large.
    pub fn release(&mut self) -> Option<Vocabulary> {
        (self.chunks.is_empty() && self.vocabulary.is_worth_keeping())
            .then(|| std::mem::take(&mut self.vocabulary))
    }

    /// Forgets what tokens stand for: texts that follow are analysed by another source.
    pub fn forget_source(&mut self) {
        self.vocabulary.forget_tokens();
    }

    /// Adds a chunk with its texts, analysed by `source`, the same as before or else [`Self::forget_source`] comes first.
    ///
    /// # Errors
    ///
    /// Refuses one chunk too many, and terms that are empty or too long; the chunk is left out then.
    pub fn add<S: TermSource>(
        &mut self,
        id: i64,
        source: &S,
        texts: &[&str],
    ) -> Result<(), SegmentError> {
        self.vocabulary.make_room();
        self.chunk(id, |vocabulary, counts| {
            texts
                .iter()
                .try_for_each(|text| vocabulary.text(text, source, |term| counts.add(term)))
        })
    }

    /// Adds a chunk with its terms, repeats included.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub fn add_terms<'t>(
        &mut self,
        id: i64,
        terms: impl IntoIterator<Item = &'t str>,
    ) -> Result<(), SegmentError> {
        self.chunk(id, |vocabulary, counts| {
            terms.into_iter().try_for_each(|term| {
                let mut number = vocabulary.number(term)?;
                if is_typed(term) {
                    number |= UNCOUNTED;
                }
                counts.add(number).map_err(Overflow::refused)
            })
        })
    }

    fn chunk(
        &mut self,
        id: i64,
        fill: impl FnOnce(&mut Vocabulary, &mut Counts) -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        if self.chunks.len() >= MAX_CHUNKS {
            return Err(SegmentError::Refused(
                "a segment holds at most 65,536 chunks",
            ));
        }
        let begun = self.counts.begin().map_err(Overflow::refused);
        let result = begun
            .and_then(|()| fill(&mut self.vocabulary, &mut self.counts))
            .and_then(|()| self.counts.length());
        match result {
            Ok(length) => self.chunks.push(Chunk {
                id,
                length,
                end: self.counts.end,
            }),
            Err(_) => self.counts.take_back()?,
        }
        result.map(|_| ())
    }

    /// The segment of all chunks; the builder is empty afterwards, but remembers tokens.
    ///
    /// # Errors
    ///
    /// Refuses an id that was given twice.
    pub fn finish(&mut self, id: &SegmentId) -> Result<EncodedSegment, SegmentError> {
        let chunks = std::mem::take(&mut self.chunks);
        let Counts {
            mut known,
            counts,
            end,
            ..
        } = std::mem::take(&mut self.counts);
        let starts = std::iter::once(0).chain(chunks.iter().map(|chunk| chunk.end));
        let mut order: Vec<_> = chunks.iter().zip(starts).collect();
        order.sort_unstable_by_key(|(chunk, _)| chunk.id);

        // Most terms differ in their first bytes, and these are at hand.
        let used = (0..).zip(&known);
        let used = used.filter(|(term, known)| *term != NO_TERM && known.chunks > 0);
        let sorted =
            used.map(|(term, _)| Some((first_bytes(self.vocabulary.spelling(term)?), term)));
        let sorted: Option<Vec<(u64, u32)>> = sorted.collect();
        let mut sorted = sorted.ok_or_else(|| impossible(UNKNOWN_TERM))?;
        sorted.sort_unstable_by(|(left, one), (right, other)| {
            let spelling = |term: &u32| self.vocabulary.spelling(*term);
            left.cmp(right)
                .then_with(|| spelling(one).cmp(&spelling(other)))
        });
        // Postings of one term stand together: sum up, distribute.
        let mut sum = 0;
        for (_, term) in &sorted {
            let known = known_of(&mut known, *term)?;
            known.behind = sum;
            sum += known.chunks;
        }
        let mut postings = vec![
            Posting {
                ordinal: 0,
                frequency: 0
            };
            end - chunks.len()
        ];
        for ((chunk, start), ordinal) in order.iter().zip(0..=u16::MAX) {
            let counts = counts.get(start + 1..chunk.end);
            for (term, frequency) in counts.ok_or_else(|| impossible(UNCOUNTED_CHUNK))? {
                let known = known_of(&mut known, *term)?;
                let posting = postings.get_mut(known.behind as usize);
                *posting.ok_or_else(|| impossible(LOST_POSTINGS))? = Posting {
                    ordinal,
                    frequency: *frequency,
                };
                known.behind += 1;
            }
        }
        let lengths: Vec<_> = order.iter().map(|(chunk, _)| chunk.length).collect();
        let mut rows = RowWriter::new(id, &lengths)?;
        let mut postings = postings.as_slice();
        for (_, term) in &sorted {
            let spelling = self.vocabulary.spelling(*term);
            let split = postings.split_at_checked(known_of(&mut known, *term)?.chunks as usize);
            let (list, behind) = split.ok_or_else(|| impossible(LOST_POSTINGS))?;
            rows.push(spelling.ok_or_else(|| impossible(UNKNOWN_TERM))?, list)?;
            postings = behind;
        }
        EncodedSegment::new(id, order.iter().map(|(chunk, _)| chunk.id), &lengths, rows)
    }
}

fn known_of(known: &mut [Known], term: u32) -> Result<&mut Known, SegmentError> {
    let known = known.get_mut(term as usize);
    known.ok_or_else(|| impossible(UNKNOWN_TERM))
}

/// The first eight bytes as a number of the same order.
fn first_bytes(term: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(term) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}
