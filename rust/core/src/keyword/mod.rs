//! Keyword search: the analyzer, which makes terms of texts, and the index of these terms.

pub mod analyzer;
pub mod build;
pub mod format;
pub mod search;

/// What a term begins with that keeps the accents of its word, beside the folded term of the same word.
pub const TYPED: char = '=';

/// Whether a term is a second one of its word, which does not add to a chunk's length.
#[must_use]
pub fn is_typed(term: &str) -> bool {
    term.starts_with(TYPED)
}

/// The part of a text between two places.
#[inline]
pub(crate) fn between(text: &str, start: usize, end: usize) -> &str {
    text.split_at(end).0.split_at(start).1
}

/// Cuts text into tokens, and tokens into terms. A token's terms depend on the token alone, so callers may remember them.
pub trait TermSource {
    /// Calls `token` with the bytes at which each token of the text begins and ends, in order.
    fn offsets(&self, text: &str, token: impl FnMut(usize, usize));
    /// Calls `term` with every term that a token stands for, in order; none for a stop word.
    fn terms(&self, token: &str, term: impl FnMut(&str));
    /// Calls `token` with every token of the text, in order.
    fn tokens<'t>(&self, text: &'t str, mut token: impl FnMut(&'t str)) {
        self.offsets(text, |start, end| {
            token(between(text, start, end));
        });
    }
}
