//! How long an excerpt is.

/// Maximum characters of the text in an excerpt.
pub(super) const MAX_CHARACTERS: usize = 300;
/// Maximum characters of an excerpt that is a single sentence.
pub(super) const LONGEST_SENTENCE: usize = 400;
/// A shorter excerpt is extended by the next pieces.
pub(super) const WANTED_CHARACTERS: usize = 180;
/// Maximum lines of code.
pub(super) const MAX_CODE_LINES: usize = 8;
