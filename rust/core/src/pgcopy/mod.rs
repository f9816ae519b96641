//! The binary format of Postgres' `COPY`: columns to bytes and back.
//!
//! Sources: "File Formats, Binary Format" on the COPY page of the PostgreSQL manual, and the `*_send` / `*_recv`
//! functions of PostgreSQL and pgvector. All numbers are big-endian. A stream is a header (signature, flags, length of
//! an extension), then per row a 16-bit field count and per field a 32-bit length (-1 for NULL) with the bytes, then a
//! field count of -1.

#[macro_use]
mod scalar;

mod buffer;
mod column;
mod encode;
mod owned;
mod reader;
mod vectors;
mod writer;

pub(crate) use encode::timestamp;
pub(crate) use vectors::{half_refused, not_finite};

pub use column::{Cells, Column, Lists, Rows, ScalarColumn, SparseVectors};
pub use owned::{OwnedCells, OwnedColumn, OwnedLists, OwnedScalar, OwnedSparse};
pub use reader::{Malformed, decode};
pub use scalar::Scalar;
pub use writer::{Batch, EncodeError};

/// What every stream begins with.
pub(crate) const SIGNATURE: [u8; 11] = *b"PGCOPY\n\xff\r\n\0";
/// Signature, flags and the length of the (empty) extension.
pub(crate) const HEADER_BYTES: usize = 19;
/// The field count of -1 that ends a stream.
pub(crate) const TRAILER_BYTES: usize = 2;
/// A value of Postgres is smaller than 1 GiB (`MaxAllocSize`).
pub const MAX_VALUE_BYTES: usize = 0x3fff_ffff;
/// A table has at most 1,600 columns (`MaxHeapAttributeNumber`).
pub const MAX_COLUMNS: usize = 1600;
/// Dimensions of pgvector's `vector` and `halfvec`, and stored components of `sparsevec`.
pub const MAX_DIMENSIONS: usize = 16_000;
/// Dimensions of pgvector's `sparsevec`.
pub const MAX_SPARSE_DIMENSIONS: usize = 1_000_000_000;
/// Microseconds from 1970-01-01 to 2000-01-01, where Postgres counts from.
pub(crate) const EPOCH_MICROSECONDS: i64 = 946_684_800_000_000;
/// 0001-01-01T00:00:00Z in microseconds since 1970; what is earlier cannot be read back by Python.
pub const FIRST_MICROSECOND: i64 = -62_135_596_800_000_000;
/// 9999-12-31T23:59:59.999999Z; the largest values of the type mean infinity, silently.
pub const LAST_MICROSECOND: i64 = 253_402_300_799_999_999;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// One value a row.
    Scalar(Scalar),
    /// A one-dimensional array a row.
    Array(Scalar),
    /// A JSON document, as text.
    Jsonb,
    /// Bytes.
    Bytea,
    /// pgvector's float32 vector.
    Vector,
    /// pgvector's float16 vector.
    Halfvec,
    /// `bit(n)`.
    Bit,
    /// pgvector's sparse vector.
    Sparsevec,
}

impl Type {
    /// Every name that [`Type::parse`] knows, for messages.
    pub const NAMES: &'static str = "int2, int4, int8, float4, float8, bool, uuid, timestamptz, text (each also with []), \
         jsonb, bytea, vector, halfvec, bit, sparsevec";

    /// The type of a name such as `vector` or `text[]`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(element) = name.strip_suffix("[]") {
            return Scalar::parse(element).map(Self::Array);
        }
        Some(match name {
            "jsonb" => Self::Jsonb,
            "bytea" => Self::Bytea,
            "vector" => Self::Vector,
            "halfvec" => Self::Halfvec,
            "bit" => Self::Bit,
            "sparsevec" => Self::Sparsevec,
            _ => return Scalar::parse(name).map(Self::Scalar),
        })
    }
}
