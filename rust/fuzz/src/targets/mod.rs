//! The targets: every decoder, and every reader of texts.

mod copy;
#[path = "../../../core/src/tests/every_form.rs"]
mod every_form;
mod segments;
mod texts;
mod tokenizer;

use std::hash::{DefaultHasher, Hash, Hasher};

/// One reader.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Reads an input. The answer names what happened, so coarsely that equal behaviour has one answer.
    pub(crate) run: fn(&[u8]) -> u64,
    /// Inputs to begin with.
    pub(crate) examples: fn() -> Vec<Vec<u8>>,
    /// Pieces that the format gives a meaning to.
    pub(crate) words: &'static [&'static [u8]],
}

/// All of them.
pub(crate) const TARGETS: &[Target] = &[
    segments::HEADER,
    segments::ROW,
    segments::TOMBSTONE,
    segments::MERGE,
    copy::DECODE,
    copy::ENCODE,
    texts::HTML,
    texts::MARKDOWN,
    texts::RESTRUCTURED,
    texts::CODE,
    texts::SENTENCES,
    texts::QUERY,
    texts::ANALYZER,
    tokenizer::FILE,
    tokenizer::TEXT,
];

/// A number for a behaviour.
fn behaviour(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// A count, so coarsely that it does not make each input a behaviour of its own.
fn coarse(count: usize) -> u32 {
    usize::BITS - count.leading_zeros()
}
