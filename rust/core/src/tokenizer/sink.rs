//! Sinks take the tokens of a text: one writes them down, one counts; [`super::offsets`] notes where they stand.

use super::normal::Form;

/// Takes the tokens of a text in their order.
pub(super) trait Sink<'a> {
    /// A stretch of the text begins: as it was given, and the form in which it follows.
    fn stretch(&mut self, _given: &'a str, _form: Form) {}

    /// Tokens of the vocabulary follow.
    fn tokens(&mut self, ids: &[u32]);

    /// An added token follows, which takes this many bytes.
    fn added(&mut self, id: u32, bytes: usize);

    /// Whether the rest of the text does not matter.
    fn is_full(&self) -> bool {
        false
    }
}

/// Writes the tokens down. It is full with one more than `end`.
pub(super) struct Ids<'a> {
    pub(super) ids: &'a mut Vec<i64>,
    pub(super) end: usize,
}

impl Sink<'_> for Ids<'_> {
    #[inline]
    fn tokens(&mut self, ids: &[u32]) {
        if let &[id] = ids {
            self.ids.push(i64::from(id));
        } else {
            self.ids.extend(ids.iter().map(|&id| i64::from(id)));
        }
    }

    fn added(&mut self, id: u32, _bytes: usize) {
        self.ids.push(i64::from(id));
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.ids.len() > self.end
    }
}

/// Counts the tokens.
pub(super) struct Count(pub(super) i64);

impl Sink<'_> for Count {
    #[inline]
    fn tokens(&mut self, ids: &[u32]) {
        self.0 += signed(ids.len());
    }

    fn added(&mut self, _id: u32, _bytes: usize) {
        self.0 += 1;
    }
}

/// No length passes 63 bits.
pub(super) fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
