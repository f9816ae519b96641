//! What a builder learns of the words that it sees: terms of tokens, and numbers of terms.

use super::dictionary::{Dictionary, UNSEEN};
use super::{MAX_TERM, SegmentError};
use crate::keyword::TermSource;

/// Longer tokens are not remembered: they seldom come again.
const MAX_REMEMBERED_TOKEN: usize = 64;

/// Number of tokens that stand for no term, such as stop words; numbers of terms begin behind it.
pub(super) const NOTHING: u32 = 0;

/// Numbers of tokens that stand for several terms begin here.
const SEVERAL: u32 = 1 << 31;

/// Bytes of remembered tokens, above which all are forgotten: the memory of a long load stays bounded.
const MAX_REMEMBERED_BYTES: usize = 64 << 20;

/// Bytes of a vocabulary that is worth keeping when its segment is finished.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// Numbers have come to their end.
pub(super) struct TooMuch;

impl TooMuch {
    pub(super) fn refused(self) -> SegmentError {
        SegmentError::refused("a segment holds more than 32 bits can count; finish it earlier")
    }
}

/// What builders have learnt of several sources, within one budget: those that were used last.
pub struct Vocabularies {
    budget: usize,
    /// By the number of the source, the longest unused first.
    kept: Vec<(u64, Vocabulary)>,
}

impl Vocabularies {
    /// None yet, and never more than so many bytes.
    #[must_use]
    pub const fn new(budget: usize) -> Self {
        Self {
            budget,
            kept: Vec::new(),
        }
    }

    /// Takes that of a source out; an empty one where there is none, or another builder has it.
    pub fn take(&mut self, source: u64) -> Vocabulary {
        let place = self.kept.iter().position(|(own, _)| *own == source);
        place.map_or_else(Vocabulary::default, |place| self.kept.remove(place).1)
    }

    /// Keeps that of a source, unless another builder has learnt more of it meanwhile.
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
    /// A token's number is its term's, `NOTHING`, or `SEVERAL` more than its place in `meanings`.
    tokens: Dictionary,
    /// The number of a token's terms, then the terms.
    meanings: Vec<u32>,
    terms: Dictionary,
    /// For each term its place in the dictionary's bytes, but for the first.
    spelled: Vec<(u32, u32)>,
    /// Start, end and number of the tokens of the text at hand.
    at_hand: Vec<(usize, usize, u32)>,
}

impl Vocabulary {
    /// Bytes of memory, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.tokens.memory()
            + self.terms.memory()
            + self.meanings.capacity() * size_of::<u32>()
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
        self.meanings = Vec::new();
    }

    /// A term's bytes.
    pub(super) fn spelling(&self, term: u32) -> &[u8] {
        let place = (term as usize)
            .checked_sub(1)
            .and_then(|it| self.spelled.get(it))
            .copied();
        let (start, end) = place.unwrap_or_default();
        self.terms.bytes(start, end)
    }

    /// Hands out the numbers of the terms of a text, and `NOTHING` for some tokens that have none.
    pub(super) fn text<S: TermSource>(
        &mut self,
        text: &str,
        source: &S,
        mut term: impl FnMut(u32) -> Result<(), TooMuch>,
    ) -> Result<(), SegmentError> {
        let mut tokens = std::mem::take(&mut self.at_hand);
        tokens.clear();
        source.places(text, |start, end| tokens.push((start, end, UNSEEN)));
        // A loop in which nothing has to be guessed waits for the memory of many tokens at once.
        for (start, end, number) in &mut tokens {
            *number = self.tokens.glance(text.as_bytes(), *start, *end);
        }
        for (start, end, number) in &tokens {
            if *number < SEVERAL {
                term(*number).map_err(TooMuch::refused)?;
            } else {
                let token = text.get(*start..*end).unwrap_or_default();
                self.token(token, *number, source, &mut term)?;
            }
        }
        self.at_hand = tokens;
        Ok(())
    }

    fn token<S: TermSource>(
        &mut self,
        token: &str,
        mut number: u32,
        source: &S,
        mut term: impl FnMut(u32) -> Result<(), TooMuch>,
    ) -> Result<(), SegmentError> {
        if number == UNSEEN {
            number = match self.tokens.find(token.as_bytes()) {
                Some(number) => number,
                None => self.learn(token, source)?,
            };
        }
        let Some(place) = number.checked_sub(SEVERAL) else {
            return term(number).map_err(TooMuch::refused);
        };
        let (count, meaning) = self
            .meanings
            .get(place as usize..)
            .and_then(<[u32]>::split_first)
            .unwrap_or((&0, &[]));
        let result = meaning
            .iter()
            .take(*count as usize)
            .try_for_each(|number| term(*number));
        if token.len() > MAX_REMEMBERED_TOKEN {
            self.meanings.truncate(place as usize);
        }
        result.map_err(TooMuch::refused)
    }

    /// Asks the source what a token means.
    #[inline(never)]
    fn learn<S: TermSource>(&mut self, token: &str, source: &S) -> Result<u32, SegmentError> {
        let place = self.meanings.len();
        self.meanings.push(0);
        let mut result = Ok(());
        source.terms(token, |term| match self.number(term) {
            Ok(number) => self.meanings.push(number),
            Err(error) => result = Err(error),
        });
        let count = self.meanings.len() - place - 1;
        let number = u32::try_from(place)
            .ok()
            .and_then(|place| place.checked_add(SEVERAL))
            .filter(|number| *number != UNSEEN);
        let (Ok(count), Some(mut number)) = (u32::try_from(count), number) else {
            self.meanings.truncate(place);
            return Err(TooMuch.refused());
        };
        if result.is_err() {
            self.meanings.truncate(place);
            return result.map(|()| 0);
        }
        if let Some(first) = self.meanings.get_mut(place) {
            *first = count;
        }
        if token.len() > MAX_REMEMBERED_TOKEN {
            return Ok(number);
        }
        if count <= 1 {
            number = self.meanings.get(place + 1).copied().unwrap_or(NOTHING);
            self.meanings.truncate(place);
        }
        let inserted = self.tokens.insert(token.as_bytes(), number);
        inserted.map(|_| number).ok_or_else(|| TooMuch.refused())
    }

    /// The number of a term.
    pub(super) fn number(&mut self, term: &str) -> Result<u32, SegmentError> {
        if let Some(number) = self.terms.find(term.as_bytes()) {
            return Ok(number);
        }
        if term.is_empty() || term.len() > MAX_TERM {
            return Err(SegmentError::refused("a term must have 1 to 128 bytes"));
        }
        let number = u32::try_from(self.spelled.len() + 1)
            .ok()
            .filter(|number| *number < SEVERAL);
        let number = number.ok_or_else(|| TooMuch.refused())?;
        let place = self
            .terms
            .insert(term.as_bytes(), number)
            .ok_or_else(|| TooMuch.refused())?;
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
