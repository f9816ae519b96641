//! Building a segment from texts: tokens and terms become numbers once, postings are counted, sorted and encoded.

use super::dictionary::Dictionary;
use super::encoding::EncodedSegment;
use super::rows::RowWriter;
use super::{LONGEST_TERM, MOST_CHUNKS, Posting, SegmentError, SegmentId};
use crate::lexical::TermSource;

/// Longer tokens are not remembered: they seldom come again.
const LONGEST_REMEMBERED: usize = 64;

/// Numbers of tokens that stand for no term or for several begin here.
const SEVERAL: u32 = 1 << 31;

/// Bytes of remembered tokens, above which all are forgotten: the memory of a long load stays bounded.
const MOST_TOKEN_BYTES: usize = 64 << 20;

struct Chunk {
    id: i64,
    length: u32,
    end: usize,
}

/// Collects chunks, and makes a segment of them.
#[derive(Default)]
pub struct SegmentBuilder {
    /// A token's number is its term's, or `SEVERAL` more than its place in `meanings`.
    tokens: Dictionary,
    meanings: Vec<Vec<u32>>,
    terms: Dictionary,
    /// For each term its place in the dictionary's bytes.
    spelled: Vec<(u32, u32)>,
    /// For each term, its place in `counts` when it was last added there.
    places: Vec<u32>,
    /// (term, frequency) of chunk after chunk.
    counts: Vec<(u32, u32)>,
    chunks: Vec<Chunk>,
}

const TOO_MUCH: &str = "a segment holds more than 32 bits can count; finish it earlier";

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

    /// Adds a chunk with its texts, analysed by `source`. The builder must see one source only.
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
        self.chunk(id, |builder, counted| {
            let mut result = Ok(());
            for text in texts {
                source.tokens(text, |token| {
                    if result.is_ok() {
                        result = builder.token(token, source, counted);
                    }
                });
            }
            result
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
        self.chunk(id, |builder, counted| {
            terms.into_iter().try_for_each(|term| {
                let number = builder.known(term)?;
                builder.count(number, counted)
            })
        })
    }

    fn chunk(
        &mut self,
        id: i64,
        fill: impl FnOnce(&mut Self, &mut Counted) -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        if self.chunks.len() >= MOST_CHUNKS {
            return Err(SegmentError::refused(
                "a segment holds at most 65,536 chunks",
            ));
        }
        if self.tokens.memory() > MOST_TOKEN_BYTES {
            self.tokens = Dictionary::default();
            self.meanings.clear();
        }
        let mut counted = Counted {
            start: self.counts.len(),
            length: 0,
        };
        let result = fill(self, &mut counted);
        match result {
            Ok(()) => self.chunks.push(Chunk {
                id,
                length: counted.length,
                end: self.counts.len(),
            }),
            Err(_) => self.counts.truncate(counted.start),
        }
        result
    }

    fn token<S: TermSource>(
        &mut self,
        token: &str,
        source: &S,
        counted: &mut Counted,
    ) -> Result<(), SegmentError> {
        if token.len() > LONGEST_REMEMBERED {
            let mut result = Ok(());
            source.terms(token, |term| {
                if result.is_ok() {
                    result = self
                        .known(term)
                        .and_then(|number| self.count(number, counted));
                }
            });
            return result;
        }
        let number = match self.tokens.find(token.as_bytes()) {
            Some(number) => number,
            None => self.learn(token, source)?,
        };
        let Some(place) = number.checked_sub(SEVERAL) else {
            return self.count(number, counted);
        };
        let terms = self.meanings.get(place as usize).map_or(0, Vec::len);
        for term in 0..terms {
            let meaning = self
                .meanings
                .get(place as usize)
                .and_then(|terms| terms.get(term));
            if let Some(term) = meaning.copied() {
                self.count(term, counted)?;
            }
        }
        Ok(())
    }

    /// Asks the source once what a token means.
    fn learn<S: TermSource>(&mut self, token: &str, source: &S) -> Result<u32, SegmentError> {
        let mut terms = Vec::new();
        let mut result = Ok(());
        source.terms(token, |term| match self.known(term) {
            Ok(number) => terms.push(number),
            Err(error) => result = Err(error),
        });
        result?;
        let number = match terms.as_slice() {
            [term] => Some(*term),
            _ => {
                self.meanings.push(terms);
                u32::try_from(self.meanings.len() - 1)
                    .ok()
                    .and_then(|place| place.checked_add(SEVERAL))
            }
        };
        let number = number.ok_or_else(|| SegmentError::refused(TOO_MUCH))?;
        let inserted = self.tokens.insert(token.as_bytes(), number);
        inserted
            .map(|_| number)
            .ok_or_else(|| SegmentError::refused(TOO_MUCH))
    }

    /// The number of a term.
    fn known(&mut self, term: &str) -> Result<u32, SegmentError> {
        if let Some(number) = self.terms.find(term.as_bytes()) {
            return Ok(number);
        }
        if term.is_empty() || term.len() > LONGEST_TERM {
            return Err(SegmentError::refused("a term must have 1 to 128 bytes"));
        }
        let number = u32::try_from(self.spelled.len())
            .ok()
            .filter(|number| *number < SEVERAL);
        let number = number.ok_or_else(|| SegmentError::refused(TOO_MUCH))?;
        let place = self
            .terms
            .insert(term.as_bytes(), number)
            .ok_or_else(|| SegmentError::refused(TOO_MUCH))?;
        self.spelled.push(place);
        self.places.push(u32::MAX);
        Ok(number)
    }

    /// Counts a term of the chunk at hand.
    #[inline]
    fn count(&mut self, term: u32, counted: &mut Counted) -> Result<(), SegmentError> {
        let refused = || SegmentError::refused(TOO_MUCH);
        counted.length = counted.length.checked_add(1).ok_or_else(refused)?;
        let place = self.places.get_mut(term as usize).ok_or_else(refused)?;
        // What stands there may be an earlier chunk's, or that of a chunk that was taken back.
        if *place as usize >= counted.start
            && let Some((found, frequency)) = self.counts.get_mut(*place as usize)
            && *found == term
        {
            *frequency = frequency.checked_add(1).ok_or_else(refused)?;
            return Ok(());
        }
        *place = u32::try_from(self.counts.len()).map_err(|_| refused())?;
        self.counts.push((term, 1));
        Ok(())
    }

    /// The segment of all chunks; the builder is empty afterwards, but remembers tokens.
    ///
    /// # Errors
    ///
    /// Refuses an id that was given twice.
    pub fn finish(&mut self, id: &SegmentId) -> Result<EncodedSegment, SegmentError> {
        let chunks = std::mem::take(&mut self.chunks);
        let counts = std::mem::take(&mut self.counts);
        self.places.fill(u32::MAX);
        let starts = std::iter::once(0).chain(chunks.iter().map(|chunk| chunk.end));
        let mut order: Vec<_> = chunks.iter().zip(starts).collect();
        order.sort_unstable_by_key(|(chunk, _)| chunk.id);

        // Postings of one term stand together: count, sum up, distribute.
        let mut ends = vec![0_usize; self.spelled.len()];
        for (term, _) in &counts {
            if let Some(end) = ends.get_mut(*term as usize) {
                *end += 1;
            }
        }
        let mut sum = 0;
        for end in &mut ends {
            let count = std::mem::replace(end, sum);
            sum += count;
        }
        let mut postings = vec![
            Posting {
                ordinal: 0,
                frequency: 0
            };
            counts.len()
        ];
        for ((chunk, start), ordinal) in order.iter().zip(0..=u16::MAX) {
            for (term, frequency) in counts.get(*start..chunk.end).unwrap_or_default() {
                let Some(end) = ends.get_mut(*term as usize) else {
                    continue;
                };
                if let Some(posting) = postings.get_mut(*end) {
                    *posting = Posting {
                        ordinal,
                        frequency: *frequency,
                    };
                    *end += 1;
                }
            }
        }
        let starts = std::iter::once(&0).chain(&ends);
        let mut lists: Vec<_> = starts
            .zip(&ends)
            .enumerate()
            .filter(|(_, (start, end))| start < end)
            .filter_map(|(term, (start, end))| {
                let (from, to) = self.spelled.get(term)?;
                Some((self.terms.bytes(*from, *to), *start..*end))
            })
            .collect();
        lists.sort_unstable_by_key(|(term, _)| *term);
        let mut rows = RowWriter::new(id, order.len());
        for (term, place) in lists {
            rows.push(term, postings.get(place).unwrap_or_default());
        }
        let lengths: Vec<_> = order.iter().map(|(chunk, _)| chunk.length).collect();
        EncodedSegment::new(id, order.iter().map(|(chunk, _)| chunk.id), &lengths, rows)
    }
}

/// The chunk at hand: where its counts begin, and its terms so far.
struct Counted {
    start: usize,
    length: u32,
}
