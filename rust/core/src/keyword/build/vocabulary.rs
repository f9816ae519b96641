//! The vocabulary of a builder: the terms of tokens, and the numbers of terms.

use super::dictionary::{Dictionary, NOT_FOUND};
use crate::keyword::format::MAX_TERM;
use crate::keyword::{TermSource, is_typed};
use crate::segments::{SegmentError, impossible};

/// Longer tokens are not remembered: they seldom come again.
const MAX_REMEMBERED_TOKEN: usize = 64;

/// Number for tokens without a term, such as stop words; terms are numbered from 1.
pub(super) const NO_TERM: u32 = 0;

/// In the number of a term that does not add to the length of its chunk. Only lists of several terms hold such.
pub(super) const UNCOUNTED: u32 = 1 << 31;

/// What a token stands for: one term, [`NO_TERM`] or several terms; as the dictionary keeps it, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meaning(u32);

impl Meaning {
    /// The token has to be looked up.
    const UNKNOWN: Self = Self(NOT_FOUND);

    /// From here on a meaning is a place among the lists of terms, below it the number of a term.
    const FIRST_LIST: u32 = 1 << 31;

    /// Several terms, by the place of their list; `None` if no such number exists.
    fn list(place: usize) -> Option<Self> {
        let meaning = Self(u32::try_from(place).ok()?.checked_add(Self::FIRST_LIST)?);
        (meaning != Self::UNKNOWN).then_some(meaning)
    }

    /// The only term, or [`NO_TERM`].
    #[inline]
    fn term(self) -> Option<u32> {
        (self.0 < Self::FIRST_LIST).then_some(self.0)
    }

    /// The place of the list of several terms.
    fn place(self) -> usize {
        (self.0 & (Self::FIRST_LIST - 1)) as usize
    }
}

/// With more bytes of remembered tokens, all are forgotten: the memory of a long load stays bounded.
const MAX_REMEMBERED_BYTES: usize = 64 << 20;

/// Bytes of a vocabulary that is worth keeping when its segment is finished.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// More than 32 bits can count.
pub(super) struct Overflow;

impl Overflow {
    pub(super) fn refused(self) -> SegmentError {
        SegmentError::Refused("the segment is too large for 32-bit counters; finish it earlier")
    }
}

/// Vocabularies of several sources within one budget. Those that were used last are kept.
pub struct Vocabularies {
    budget: usize,
    /// By the number of the source, the longest unused first.
    kept: Vec<(u64, Vocabulary)>,
}

impl Vocabularies {
    /// No vocabulary yet; all together take at most `budget` bytes.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self {
            budget,
            kept: Vec::new(),
        }
    }

    /// Takes out the vocabulary of a source; an empty one if none is kept, or another builder has it.
    pub fn take(&mut self, source: u64) -> Vocabulary {
        let place = self.kept.iter().position(|(own, _)| *own == source);
        place.map_or_else(Vocabulary::default, |place| self.kept.remove(place).1)
    }

    /// Keeps the vocabulary of a source, unless another builder has learnt more of the source meanwhile.
    pub fn put(&mut self, source: u64, vocabulary: Vocabulary) {
        let known = self.take(source);
        let more = if known.memory() > vocabulary.memory() {
            known
        } else {
            vocabulary
        };
        self.kept.push((source, more));
        while self.memory() > self.budget {
            self.kept.remove(0);
        }
    }

    /// Bytes of memory, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let memories = self.kept.iter().map(|(_, vocabulary)| vocabulary.memory());
        memories.sum()
    }
}

/// Terms of the tokens of one source, which a builder learns and the next one need not learn again.
///
/// It changes no segment, only the time that it takes to build one.
#[derive(Default)]
pub struct Vocabulary {
    /// The number of each token is its meaning.
    tokens: Dictionary,
    /// For each token with several terms: their number, then the terms.
    lists: Vec<u32>,
    terms: Dictionary,
    /// For each term its place in the dictionary's bytes, but for the first.
    spelled: Vec<(u32, u32)>,
    /// Start, end and meaning of the tokens of the current text.
    at_hand: Vec<(usize, usize, Meaning)>,
}

impl Vocabulary {
    /// Bytes of memory, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.tokens.memory()
            + self.terms.memory()
            + self.lists.capacity() * size_of::<u32>()
            + self.spelled.capacity() * size_of::<(u32, u32)>()
    }

    /// Whether it may be kept for the next builder: it has not grown beyond 64 MiB.
    pub(super) fn is_worth_keeping(&self) -> bool {
        self.memory() <= MAX_KEPT_BYTES
    }

    /// Forgets tokens, but no terms, when there are too many.
    pub(super) fn make_room(&mut self) {
        if self.tokens.memory() > MAX_REMEMBERED_BYTES {
            self.forget_tokens();
        }
    }

    /// Forgets what tokens mean, but no numbers of terms.
    pub(super) fn forget_tokens(&mut self) {
        self.tokens = Dictionary::default();
        self.lists = Vec::new();
    }

    /// A term's bytes.
    pub(super) fn spelling(&self, term: u32) -> Option<&[u8]> {
        let place = (term as usize).checked_sub(1)?;
        let (start, end) = *self.spelled.get(place)?;
        self.terms.bytes(start, end)
    }

    /// Hands out the numbers of the terms of a text, and [`NO_TERM`] for some tokens that have none.
    pub(super) fn text<S: TermSource>(
        &mut self,
        text: &str,
        source: &S,
        mut term: impl FnMut(u32) -> Result<(), Overflow>,
    ) -> Result<(), SegmentError> {
        let mut tokens = std::mem::take(&mut self.at_hand);
        tokens.clear();
        source.offsets(text, |start, end| {
            tokens.push((start, end, Meaning::UNKNOWN))
        });
        // A loop in which nothing has to be guessed waits for the memory of many tokens at once.
        for (start, end, meaning) in &mut tokens {
            *meaning = Meaning(self.tokens.glance(text.as_bytes(), *start, *end));
        }
        for (start, end, meaning) in &tokens {
            if let Some(number) = meaning.term() {
                term(number).map_err(Overflow::refused)?;
            } else {
                let token = text.get(*start..*end);
                let token = token.ok_or_else(|| impossible("a token lies outside its text"))?;
                self.token(token, *meaning, source, &mut term)?;
            }
        }
        self.at_hand = tokens;
        Ok(())
    }

    fn token<S: TermSource>(
        &mut self,
        token: &str,
        mut meaning: Meaning,
        source: &S,
        mut term: impl FnMut(u32) -> Result<(), Overflow>,
    ) -> Result<(), SegmentError> {
        if meaning == Meaning::UNKNOWN {
            meaning = match self.tokens.find(token.as_bytes()) {
                Some(known) => Meaning(known),
                None => self.learn(token, source)?,
            };
        }
        if let Some(number) = meaning.term() {
            return term(number).map_err(Overflow::refused);
        }
        let list = self.lists.get(meaning.place()..);
        let (count, terms) = list
            .and_then(<[u32]>::split_first)
            .ok_or_else(|| impossible("a token has no list of terms"))?;
        let result = terms
            .iter()
            .take(*count as usize)
            .try_for_each(|number| term(*number));
        if token.len() > MAX_REMEMBERED_TOKEN {
            self.lists.truncate(meaning.place());
        }
        result.map_err(Overflow::refused)
    }

    /// Asks the source what a token means.
    #[inline(never)]
    fn learn<S: TermSource>(&mut self, token: &str, source: &S) -> Result<Meaning, SegmentError> {
        let place = self.lists.len();
        self.lists.push(0);
        let mut result = Ok(());
        source.terms(token, |term| match self.number(term) {
            Ok(number) if is_typed(term) => self.lists.push(number | UNCOUNTED),
            Ok(number) => self.lists.push(number),
            Err(error) => result = Err(error),
        });
        let count = self.lists.len() - place - 1;
        let (Ok(count), Some(mut meaning)) = (u32::try_from(count), Meaning::list(place)) else {
            self.lists.truncate(place);
            return Err(Overflow.refused());
        };
        if let Err(error) = result {
            self.lists.truncate(place);
            return Err(error);
        }
        let Some([first, terms @ ..]) = self.lists.get_mut(place..) else {
            return Err(impossible("a token has no list of terms"));
        };
        *first = count;
        if token.len() > MAX_REMEMBERED_TOKEN {
            return Ok(meaning);
        }
        if let [] | [_] = terms {
            meaning = Meaning(terms.first().map_or(NO_TERM, |only| *only));
            self.lists.truncate(place);
        }
        let inserted = self.tokens.insert(token.as_bytes(), meaning.0);
        inserted.map(|_| meaning).ok_or_else(|| Overflow.refused())
    }

    /// The number of a term.
    pub(super) fn number(&mut self, term: &str) -> Result<u32, SegmentError> {
        if let Some(number) = self.terms.find(term.as_bytes()) {
            return Ok(number);
        }
        if term.is_empty() || term.len() > MAX_TERM {
            return Err(SegmentError::Refused("a term must have 1 to 128 bytes"));
        }
        let number = u32::try_from(self.spelled.len() + 1)
            .ok()
            .filter(|number| *number < Meaning::FIRST_LIST);
        let number = number.ok_or_else(|| Overflow.refused())?;
        let place = self
            .terms
            .insert(term.as_bytes(), number)
            .ok_or_else(|| Overflow.refused())?;
        self.spelled.push(place);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test fails by panicking

    use super::{Vocabularies, Vocabulary};

    fn learnt(terms: usize) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for number in 0..terms {
            assert!(vocabulary.number(&format!("term{number}")).is_ok());
        }
        vocabulary
    }

    #[test]
    fn those_used_last_are_kept_within_the_budget() {
        let each = learnt(1_000).memory();
        let mut kept = Vocabularies::new(3 * each);
        for source in 0..20 {
            kept.put(source, learnt(1_000));
            assert!(kept.memory() <= 3 * each);
        }
        assert_eq!(kept.take(5).memory(), 0);
        let taken = kept.take(17);
        assert_eq!(taken.memory(), each);
        assert_eq!(kept.take(17).memory(), 0);
        kept.put(17, learnt(10));
        kept.put(17, taken);
        kept.put(17, learnt(10));
        assert_eq!(kept.take(17).memory(), each);
        kept.put(99, learnt(100_000));
        assert_eq!(kept.memory(), 0);
    }
}
