//! Borrowed columns: what the encoder reads. Nothing is copied until it is written into the caller's buffer.

use std::ops::Range;

use super::Scalar;
use crate::field_error::{Code, RuleError};

/// One value a row, with an optional mask of NULLs.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a, T> {
    /// One value a row; the value of a NULL row is ignored.
    pub values: &'a [T],
    /// True where the row is NULL; as long as `values`.
    pub nulls: Option<&'a [bool]>,
}

impl<T> Cells<'_, T> {
    fn count(&self) -> usize {
        self.values.len()
    }
}

impl<T: Copy> Cells<'_, T> {
    /// The row's value; `None` is NULL.
    ///
    /// # Errors
    /// `length_differs` when there is no such row.
    pub fn get(&self, row: usize) -> Result<Option<T>, RuleError> {
        let null = self
            .nulls
            .is_some_and(|nulls| nulls.get(row).copied().unwrap_or(false));
        let value = self.values.get(row).copied().ok_or_else(row_missing)?;
        Ok(if null { None } else { Some(value) })
    }
}

/// Where each row's part of a flat slice lies.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// `count` rows of `width` each, without gaps: a matrix.
    Dense {
        /// Length of a row.
        width: usize,
        /// Number of rows.
        count: usize,
    },
    /// Any ranges; `None` is NULL.
    Ranges(&'a [Option<Range<usize>>]),
}

impl Rows<'_> {
    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Dense { count, .. } => *count,
            Self::Ranges(ranges) => ranges.len(),
        }
    }

    pub(super) fn get(&self, row: usize) -> Result<Option<Range<usize>>, RuleError> {
        match self {
            Self::Dense { width, count } if row < *count => {
                let start = row.checked_mul(*width);
                let end = start.and_then(|start| start.checked_add(*width));
                start
                    .zip(end)
                    .map(|(start, end)| Some(start..end))
                    .ok_or_else(row_missing)
            }
            Self::Dense { .. } => Err(row_missing()),
            Self::Ranges(ranges) => ranges.get(row).cloned().ok_or_else(row_missing),
        }
    }
}

/// Any number of values a row.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a, T> {
    /// The values of all rows.
    pub values: &'a [T],
    /// Where each row lies in them.
    pub rows: Rows<'a>,
}

impl<'a, T> Lists<'a, T> {
    fn count(&self) -> usize {
        self.rows.count()
    }

    /// The row's values; `None` is NULL.
    ///
    /// # Errors
    /// `length_differs` when there is no such row.
    pub fn get(&self, row: usize) -> Result<Option<&'a [T]>, RuleError> {
        match self.rows.get(row)? {
            None => Ok(None),
            Some(range) => self.values.get(range).map(Some).ok_or_else(row_missing),
        }
    }
}

/// Rows of pgvector's `sparsevec`.
#[derive(Clone, Copy, Debug)]
pub struct SparseVectors<'a> {
    /// Dimension of each row.
    pub dimensions: &'a [i32],
    /// Components that are not zero, counted from 0.
    pub indices: Lists<'a, i32>,
    /// Their values, in the same order.
    pub values: Lists<'a, f32>,
}

macro_rules! scalar_columns {
    ($($(#[$doc:meta])* $kind:ident $name:literal $oid:literal $cells:ident $owned:ident $value:ty,)*) => {
        /// A column of a type that may also be an array's element.
        #[derive(Clone, Copy, Debug)]
        pub enum ScalarColumn<'a> {
            $($(#[$doc])* $kind($cells<'a, $value>),)*
        }

        impl ScalarColumn<'_> {
            /// Number of rows, or of elements.
            #[must_use]
            pub fn count(&self) -> usize {
                match self { $(Self::$kind(cells) => cells.count(),)* }
            }

            pub(super) fn kind(&self) -> Scalar {
                match self { $(Self::$kind(_) => Scalar::$kind,)* }
            }
        }
    };
}
scalars!(scalar_columns);

/// A column of any type.
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// One value a row.
    Scalar(ScalarColumn<'a>),
    /// The elements of all rows, and where each row's lie.
    Array(ScalarColumn<'a>, Rows<'a>),
    /// JSON text as [`crate::json`] writes it.
    Jsonb(Lists<'a, u8>),
    /// Bytes.
    Bytea(Lists<'a, u8>),
    /// vector.
    Vector(Lists<'a, f32>),
    /// halfvec: rounded to the nearest float16 when it is written, ties to even.
    Halfvec(Lists<'a, f32>),
    /// bit(n): one byte for each bit, 0 or 1.
    Bit(Lists<'a, u8>),
    /// sparsevec.
    Sparsevec(SparseVectors<'a>),
}

impl Column<'_> {
    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Scalar(scalar) => scalar.count(),
            Self::Array(_, rows) => rows.count(),
            Self::Jsonb(lists) | Self::Bytea(lists) | Self::Bit(lists) => lists.count(),
            Self::Vector(lists) | Self::Halfvec(lists) => lists.count(),
            Self::Sparsevec(sparse) => sparse.dimensions.len(),
        }
    }
}

fn row_missing() -> RuleError {
    RuleError::new(Code::LengthDiffers)
}
