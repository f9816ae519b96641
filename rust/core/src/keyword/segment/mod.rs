//! Posting segments: an inverted index in immutable pieces, each a header and rows of posting lists.
//!
//! A segment numbers its chunks 0, 1, 2 … in ascending order of their keyword ids; these numbers are its ordinals. Every
//! blob that leaves this module is sealed: version, checksum over all that it belongs to, content. What is read back is
//! checked before it is used, so a damaged blob is an error and never a wrong answer. A blob that was sealed over other
//! contents (by who may write to the tables) is at worst a wrong answer: every step of its reading is bounded.

mod ascending;
mod bitmap;
mod bits;
mod bm25;
mod builder;
mod cache;
mod candidates;
mod dictionary;
mod encoding;
mod header;
mod id_set;
mod ids;
mod impacts;
mod known_index;
mod list;
mod liveness;
mod long_postings;
mod merge;
mod plan;
mod postings;
mod prefix_code;
mod read_segment;
#[cfg(test)]
mod resealed;
mod rows;
mod score;
mod sealed;
mod tombstone;
mod top;
mod view;
mod vocabulary;

use std::borrow::Cow;
use std::fmt;

pub use bm25::Parameters;
pub use builder::SegmentBuilder;
pub use cache::{Counters, GivenRow, GivenSegment, GivenTombstone, PostingCache};
pub use encoding::EncodedSegment;
pub use header::Header;
pub use id_set::IdSet;
pub use ids::IdRanges;
pub use merge::{Source, merge};
pub use plan::{LanguageQuery, PostingPlan};
pub use rows::EncodedRow;
pub use score::{Found, Snapshot, Work};
pub use tombstone::{decode_tombstone, encode_tombstone};
pub use vocabulary::{Vocabularies, Vocabulary};

/// Version of the format of every blob.
pub const FORMAT_VERSION: u8 = 2;

/// Identity of a segment or tombstone: 128 random bits, never used again.
pub type SegmentId = [u8; 16];

/// Chunks that a segment holds at most: their ordinals fit 16 bits, and one accumulator of floats fits a core's cache.
pub const MAX_CHUNKS: usize = 1 << 16;

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

/// Why a segment was not made or not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The bytes are not those that were written under this identity.
    Damaged {
        /// The segment or tombstone.
        id: SegmentId,
        /// What does not fit.
        what: &'static str,
    },
    /// The bytes are whole, and of another version of the format.
    OtherVersion {
        /// The segment or tombstone.
        id: SegmentId,
        /// The version.
        found: u8,
    },
    /// The caller gave something that cannot be done.
    Refused(Cow<'static, str>),
    /// What this module made itself does not fit together: a defect of the program, and not of the bytes.
    Impossible(&'static str),
}

/// The error of a state that cannot be.
pub(crate) fn impossible(what: &'static str) -> SegmentError {
    SegmentError::Impossible(what)
}

impl SegmentError {
    /// A refusal.
    pub(crate) fn refused(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(message.into())
    }

    /// Damage found in the blob of `id`.
    pub(crate) fn damaged(id: &SegmentId) -> impl Fn(&'static str) -> Self {
        move |what| Self::Damaged { id: *id, what }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { id, what } => {
                write_id(f, id)?;
                write!(f, ": {what}")
            }
            Self::OtherVersion { id, found } => {
                write_id(f, id)?;
                write!(
                    f,
                    ": version {found} of the format, expected {FORMAT_VERSION}"
                )
            }
            Self::Refused(message) => f.write_str(message),
            Self::Impossible(what) => f.write_str(what),
        }
    }
}

fn write_id(f: &mut fmt::Formatter<'_>, id: &SegmentId) -> fmt::Result {
    id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl std::error::Error for SegmentError {}
