//! How to cut.

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
    /// Whether headings, fences and comments of Markdown are recognised; without, the text is one section.
    pub markdown: bool,
}
