//! Options for splitting a text.

use super::code::Language;

/// The bytes of the longest character in UTF-8: a smaller byte bound could not hold one character.
pub const MIN_MAX_BYTES: usize = 4;

/// Options for splitting a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Maximum tokens of a chunk, from 1.
    pub max_tokens: usize,
    /// Maximum tokens that two neighbours share; 0 for none.
    pub overlap_tokens: usize,
    /// Sections with fewer tokens are joined with the next one if both fit into a chunk.
    pub min_tokens: usize,
    /// Maximum bytes of a chunk, from `MIN_MAX_BYTES`.
    pub max_bytes: usize,
    /// What kind of text it is.
    pub structure: Structure,
}

/// How the structure of a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Plain text: one section.
    Plain,
    /// As Markdown.
    Markdown,
    /// As reStructuredText.
    Restructured,
    /// As source code.
    Code(Language),
}
