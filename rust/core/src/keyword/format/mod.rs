//! Posting lists as they are stored: a segment is a header and rows of lists. In memory a list is packed once more.

mod ascending;
mod bits;
mod encoding;
mod header;
mod impacts;
pub(crate) mod list;
mod long_postings;
mod postings;
mod prefix_code;
pub(crate) mod rows;

pub use encoding::EncodedSegment;
pub use header::Header;
pub use rows::{EncodedRow, keys_hash};

use crate::segments::{SegmentError, impossible};

/// Bytes of a term at most; the analyzer cuts longer ones.
pub const MAX_TERM: usize = 128;

/// One chunk in a posting list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Posting {
    /// The chunk's place in its segment.
    pub ordinal: u16,
    /// How often the chunk holds the term; at least 1.
    pub frequency: u32,
}

impl Posting {
    /// The frequency as it is stored.
    pub(crate) fn tf_minus_one(&self) -> Result<u32, SegmentError> {
        let less = self.frequency.checked_sub(1);
        less.ok_or_else(|| impossible("a posting has the frequency 0"))
    }
}
