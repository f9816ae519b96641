//! Columns that own their values: what the reader makes, and what Python lists become.

use std::ops::Range;

use super::column::{Cells, Column, Lists, Rows, ScalarColumn, SparseVectors};
use super::{Scalar, Type};

/// One value a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedCells<T> {
    /// One value a row; the default stands under a NULL.
    pub values: Vec<T>,
    /// True where the row is NULL.
    pub nulls: Vec<bool>,
}

impl<T: Copy + Default> OwnedCells<T> {
    /// Adds a row.
    pub fn push(&mut self, value: Option<T>) {
        self.nulls.push(value.is_none());
        self.values.push(value.unwrap_or_default());
    }

    /// The row's value; `None` is NULL (or no such row).
    #[must_use]
    pub fn get(&self, row: usize) -> Option<T> {
        if self.nulls.get(row).copied().unwrap_or(true) {
            None
        } else {
            self.values.get(row).copied()
        }
    }

    fn lend(&self) -> Cells<'_, T> {
        Cells {
            values: &self.values,
            nulls: Some(&self.nulls),
        }
    }
}

/// Any number of values a row, all in one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedLists<T> {
    /// The values of all rows.
    pub values: Vec<T>,
    /// Where each row lies in them; `None` is NULL.
    pub rows: Vec<Option<Range<usize>>>,
}

impl<T: Clone> OwnedLists<T> {
    /// Adds a row.
    pub fn push(&mut self, values: Option<&[T]>) {
        let start = self.values.len();
        self.values.extend_from_slice(values.unwrap_or_default());
        self.rows.push(values.map(|_| start..self.values.len()));
    }

    /// The row's values; `None` is NULL (or no such row).
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&[T]> {
        self.values.get(self.rows.get(row)?.clone()?)
    }

    pub(super) fn lend(&self) -> Lists<'_, T> {
        Lists {
            values: &self.values,
            rows: Rows::Ranges(&self.rows),
        }
    }
}

/// Rows of `sparsevec`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedSparse {
    /// Dimension of each row; 0 under a NULL.
    pub dimensions: Vec<i32>,
    /// Components that are not zero, counted from 0.
    pub indices: OwnedLists<i32>,
    /// Their values.
    pub values: OwnedLists<f32>,
}

impl OwnedSparse {
    /// Adds a row of (dimension, indices, values).
    pub fn push(&mut self, row: Option<(i32, &[i32], &[f32])>) {
        self.dimensions
            .push(row.map_or(0, |(dimension, _, _)| dimension));
        self.indices.push(row.map(|(_, indices, _)| indices));
        self.values.push(row.map(|(_, _, values)| values));
    }
}

macro_rules! owned_scalars {
    ($($(#[$doc:meta])* $kind:ident $name:literal $oid:literal $cells:ident $owned:ident $value:ty,)*) => {
        /// A column of a type that may also be an array's element.
        #[derive(Clone, Debug, PartialEq)]
        pub enum OwnedScalar {
            $($(#[$doc])* $kind($owned<$value>),)*
        }

        impl OwnedScalar {
            /// An empty column.
            #[must_use]
            pub fn new(kind: Scalar) -> Self {
                match kind { $(Scalar::$kind => Self::$kind($owned::default()),)* }
            }

            /// Adds a NULL.
            pub fn push_null(&mut self) {
                match self { $(Self::$kind(cells) => cells.push(None),)* }
            }

            pub(super) fn lend(&self) -> ScalarColumn<'_> {
                match self { $(Self::$kind(cells) => ScalarColumn::$kind(cells.lend()),)* }
            }

            /// Number of rows, or of elements.
            #[must_use]
            pub fn count(&self) -> usize {
                self.lend().count()
            }
        }
    };
}
scalars!(owned_scalars);

/// A column of any type; the meaning of each is that of [`Column`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // described on Column
pub enum OwnedColumn {
    Scalar(OwnedScalar),
    Array(OwnedScalar, Vec<Option<Range<usize>>>),
    Jsonb(OwnedLists<u8>),
    Bytea(OwnedLists<u8>),
    Vector(OwnedLists<f32>),
    Halfvec(OwnedLists<f32>),
    Bit(OwnedLists<u8>),
    Sparsevec(OwnedSparse),
}

impl OwnedColumn {
    /// An empty column.
    #[must_use]
    pub fn new(kind: Type) -> Self {
        match kind {
            Type::Scalar(scalar) => Self::Scalar(OwnedScalar::new(scalar)),
            Type::Array(element) => Self::Array(OwnedScalar::new(element), Vec::new()),
            Type::Jsonb => Self::Jsonb(OwnedLists::default()),
            Type::Bytea => Self::Bytea(OwnedLists::default()),
            Type::Vector => Self::Vector(OwnedLists::default()),
            Type::Halfvec => Self::Halfvec(OwnedLists::default()),
            Type::Bit => Self::Bit(OwnedLists::default()),
            Type::Sparsevec => Self::Sparsevec(OwnedSparse::default()),
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lend().count()
    }

    /// Adds a NULL.
    pub fn push_null(&mut self) {
        match self {
            Self::Scalar(scalar) => scalar.push_null(),
            Self::Array(_, rows) => rows.push(None),
            Self::Jsonb(lists) | Self::Bytea(lists) | Self::Bit(lists) => lists.push(None),
            Self::Vector(lists) | Self::Halfvec(lists) => lists.push(None),
            Self::Sparsevec(sparse) => sparse.push(None),
        }
    }

    /// Adds the last row again, where these are times and there is one; whether it did.
    pub fn repeat_time(&mut self) -> bool {
        let Self::Scalar(OwnedScalar::Timestamptz(cells)) = self else {
            return false;
        };
        let last = cells
            .values
            .len()
            .checked_sub(1)
            .and_then(|row| cells.get(row));
        if last.is_some() {
            cells.push(last);
        }
        last.is_some()
    }

    /// The column as the encoder reads it.
    #[must_use]
    pub fn lend(&self) -> Column<'_> {
        match self {
            Self::Scalar(scalar) => Column::Scalar(scalar.lend()),
            Self::Array(elements, rows) => Column::Array(elements.lend(), Rows::Ranges(rows)),
            Self::Jsonb(lists) => Column::Jsonb(lists.lend()),
            Self::Bytea(lists) => Column::Bytea(lists.lend()),
            Self::Vector(lists) => Column::Vector(lists.lend()),
            Self::Halfvec(lists) => Column::Halfvec(lists.lend()),
            Self::Bit(lists) => Column::Bit(lists.lend()),
            Self::Sparsevec(sparse) => Column::Sparsevec(SparseVectors {
                dimensions: &sparse.dimensions,
                indices: sparse.indices.lend(),
                values: sparse.values.lend(),
            }),
        }
    }
}
