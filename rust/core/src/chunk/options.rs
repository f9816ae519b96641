//! How to cut.

use super::code::Language;

/// The bytes of the longest character in UTF-8: a smaller byte bound could not hold one character.
pub const MIN_MAX_BYTES: usize = 4;

/// How to cut a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most tokens of a chunk, from 1.
    pub max_tokens: usize,
    /// Most tokens that two neighbours share; 0 for none.
    pub overlap_tokens: usize,
    /// Smaller sections are joined with the next one when the result fits.
    pub min_tokens: usize,
    /// Most bytes of a chunk, from `MIN_MAX_BYTES`.
    pub max_bytes: usize,
    /// What kind of text it is.
    pub structure: Structure,
}

/// How the structure of a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Not at all: the text is one section.
    Plain,
    /// As Markdown.
    Markdown,
    /// As reStructuredText.
    Restructured,
    /// As source code.
    Code(Language),
}
