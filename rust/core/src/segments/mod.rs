//! Immutable segments of an index: which chunks each one holds, and which of those are deleted.
//!
//! Nothing here knows what an index keeps of a chunk. A segment numbers its chunks 0, 1, 2 … in ascending order of their
//! ids; these numbers are its ordinals. Every blob that is stored is sealed: version, checksum over all that it belongs
//! to, content. What is read back is checked before it is used, so a damaged blob is an error and never a wrong answer. A
//! role that can write to the tables can seal other contents; these give at worst a wrong answer: every step of reading
//! is bounded.

pub(crate) mod bitmap;
mod id_set;
mod ids;
pub(crate) mod known_index;
pub(crate) mod liveness;
pub(crate) mod sealed;
pub(crate) mod spans;
mod tombstone;

use std::fmt;

pub use id_set::IdSet;
pub use ids::IdRanges;
pub use tombstone::{decode_tombstone, encode_tombstone};

/// Version of the format of every blob.
pub const FORMAT_VERSION: u8 = 2;

/// Identity of a segment or tombstone: 128 random bits, never used again.
pub type SegmentId = [u8; 16];

/// Chunks that a segment holds at most: their ordinals fit 16 bits, and one accumulator of floats fits a core's cache.
pub const MAX_CHUNKS: usize = 1 << 16;

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
    Refused(&'static str),
    /// What this module made itself does not fit together: a defect of the program, and not of the bytes.
    Impossible(&'static str),
}

/// The error of a state that cannot be.
pub(crate) fn impossible(what: &'static str) -> SegmentError {
    SegmentError::Impossible(what)
}

impl SegmentError {
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
                write!(f, ": format version {found}, expected {FORMAT_VERSION}")
            }
            Self::Refused(what) | Self::Impossible(what) => f.write_str(what),
        }
    }
}

fn write_id(f: &mut fmt::Formatter<'_>, id: &SegmentId) -> fmt::Result {
    id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl std::error::Error for SegmentError {}
