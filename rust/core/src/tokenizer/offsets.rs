//! The offsets of tokens in the text as it was given.

use super::normal::{Aligned, Form, composed, unchanged};
use super::sink::{Sink, signed};
use super::spaced::aligned;

/// Collects start and end of every token, in characters. A token that holds a part of a character covers all of it.
pub(super) struct Offsets<'a> {
    lengths: &'a [usize],
    pairs: Vec<(i64, i64)>,
    /// Characters before the stretch.
    before: usize,
    /// Characters of the stretch as given.
    given: usize,
    /// The characters of the stretch that are still to come.
    coming: Box<dyn Iterator<Item = Aligned> + 'a>,
    /// The one that was reached, and the bytes up to its end.
    current: Aligned,
    reached: usize,
    /// Bytes of the tokens so far.
    taken: usize,
}

impl<'a> Offsets<'a> {
    /// `lengths` are the bytes of the vocabulary's tokens, by id.
    pub(super) fn new(lengths: &'a [usize]) -> Self {
        Self {
            lengths,
            pairs: Vec::new(),
            before: 0,
            given: 0,
            coming: Box::new(std::iter::empty()),
            current: Aligned::default(),
            reached: 0,
            taken: 0,
        }
    }

    pub(super) fn into_pairs(self) -> Vec<(i64, i64)> {
        self.pairs
    }

    fn take(&mut self, bytes: usize) {
        let start = self.at(self.taken).start;
        self.taken += bytes;
        let end = self.at(self.taken.saturating_sub(1)).end;
        self.pairs
            .push((signed(self.before + start), signed(self.before + end)));
    }

    /// The character that holds a byte, which may not lie before the last one asked for.
    fn at(&mut self, byte: usize) -> Aligned {
        while self.reached <= byte {
            let Some(next) = self.coming.next() else {
                break;
            };
            self.reached += next.bytes;
            self.current = next;
        }
        self.current
    }
}

impl<'a> Sink<'a> for Offsets<'a> {
    fn stretch(&mut self, given: &'a str, form: Form) {
        self.before += self.given;
        self.given = given.chars().count();
        self.coming = match form {
            Form::AsGiven => Box::new(unchanged(given)),
            Form::Composed => Box::new(composed(given)),
            Form::Spaced => Box::new(aligned(given)),
        };
        (self.current, self.reached, self.taken) = (Aligned::default(), 0, 0);
    }

    fn tokens(&mut self, ids: &[u32]) {
        for &id in ids {
            let length = self.lengths.get(id as usize).copied().unwrap_or_default();
            self.take(length);
        }
    }

    fn added(&mut self, _id: u32, bytes: usize) {
        self.take(bytes);
    }
}
