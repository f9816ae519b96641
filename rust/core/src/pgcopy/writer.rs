//! Rows into the caller's buffer, as many as fit: a block at a time, no block ever allocated here.

use super::buffer::{Buffer, Refusal};
use super::column::Column;
use super::{HEADER_BYTES, MAX_COLUMNS, SIGNATURE, TRAILER_BYTES};
use crate::field_error::{Code, FieldError, RuleError, sort_by_row};

/// Why a block was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// Not even the next row fits.
    BufferTooSmall {
        /// Bytes that the next row needs, header included.
        needed: usize,
        /// Bytes of the buffer.
        available: usize,
    },
    /// There is no such position.
    WrongPosition {
        /// The last position: the number of rows (which stands for the trailer).
        last: usize,
    },
    /// A value is not allowed.
    Value(FieldError),
}

impl From<FieldError> for EncodeError {
    fn from(error: FieldError) -> Self {
        Self::Value(error)
    }
}

/// Columns of equal length with their names.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    columns: Vec<(&'a str, Column<'a>)>,
    field_count: i16,
    rows: usize,
}

impl<'a> Batch<'a> {
    /// Takes the columns in the order in which COPY names them.
    ///
    /// # Errors
    /// `length_differs` when the columns have unequal numbers of rows, `too_long` for more than 1,600 columns.
    pub fn new(columns: Vec<(&'a str, Column<'a>)>) -> Result<Self, FieldError> {
        let rows = columns.first().map_or(0, |(_, column)| column.count());
        for (name, column) in &columns {
            if column.count() != rows {
                let error = RuleError::new(Code::LengthDiffers)
                    .limit(rows.to_string())
                    .actual(column.count().to_string());
                return Err(error.at(None, name));
            }
        }
        match i16::try_from(columns.len()) {
            Ok(field_count) if columns.len() <= MAX_COLUMNS => Ok(Self {
                columns,
                field_count,
                rows,
            }),
            _ => {
                let error = RuleError::new(Code::TooLong)
                    .limit("1600 columns")
                    .actual(format!("{} columns", columns.len()));
                Err(error.at(None, "columns"))
            }
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Every broken rule of every row, by row. The components of `vector` and `halfvec` are not read here: that would
    /// cost as much as encoding them, which checks them anyway.
    #[must_use]
    pub fn check(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (name, column) in &self.columns {
            for row in 0..self.rows {
                if let Err(error) = column.check(row).and_then(|()| column.size(row).map(drop)) {
                    errors.push(error.at(Some(row), name));
                }
            }
        }
        sort_by_row(&mut errors);
        errors
    }

    fn row_size(&self, row: usize) -> Result<usize, FieldError> {
        self.columns
            .iter()
            .try_fold(2_usize, |sum, (name, column)| {
                let size = column
                    .size(row)
                    .map_err(|error| error.at(Some(row), name))?;
                Ok(sum.saturating_add(4).saturating_add(size))
            })
    }

    /// Bytes that a buffer must at least have: the largest row with header and trailer.
    ///
    /// # Errors
    /// `too_long` for a value of 1 GiB or more.
    pub fn largest_row(&self) -> Result<usize, FieldError> {
        let mut largest = 0;
        for row in 0..self.rows {
            largest = largest.max(self.row_size(row)?);
        }
        Ok(largest
            .saturating_add(HEADER_BYTES)
            .saturating_add(TRAILER_BYTES))
    }

    /// Writes rows from `position` on, as many as fit; returns where to continue, and the number of bytes written.
    ///
    /// The header stands before row 0, the trailer after the last row. Position `rows()` is the trailer's; the next
    /// position after it, `rows() + 1`, says that the stream is complete.
    ///
    /// # Errors
    /// See [`EncodeError`]. The content of the buffer is then undefined.
    pub fn encode_into(
        &self,
        buffer: &mut [u8],
        position: usize,
    ) -> Result<(usize, usize), EncodeError> {
        if position > self.rows {
            return Err(EncodeError::WrongPosition { last: self.rows });
        }
        let available = buffer.len();
        let mut out = Buffer::new(buffer);
        let mut next = position;
        let header = if position == 0 { HEADER_BYTES } else { 0 };
        while next <= self.rows {
            let head = if next == 0 { header } else { 0 };
            let body = if next == self.rows {
                TRAILER_BYTES
            } else {
                self.row_size(next)?
            };
            let needed = body.saturating_add(head);
            if needed > out.free() {
                if next == position {
                    return Err(EncodeError::BufferTooSmall { needed, available });
                }
                break;
            }
            self.write_row(next, head > 0, &mut out)
                .map_err(|(name, refusal)| match refusal {
                    Refusal::Space => EncodeError::BufferTooSmall { needed, available },
                    Refusal::Rule(error) => EncodeError::Value(error.at(Some(next), name)),
                })?;
            next = next.saturating_add(1);
        }
        Ok((next, available.saturating_sub(out.free())))
    }

    /// Writes one row, or the trailer after the last.
    fn write_row(
        &self,
        row: usize,
        header: bool,
        out: &mut Buffer<'_>,
    ) -> Result<(), (&'a str, Refusal)> {
        let framing = |refusal| ("", refusal);
        if header {
            out.put(&SIGNATURE).map_err(framing)?;
            out.put(&[0; HEADER_BYTES - SIGNATURE.len()])
                .map_err(framing)?;
        }
        if row == self.rows {
            return out.put(&(-1_i16).to_be_bytes()).map_err(framing);
        }
        out.put(&self.field_count.to_be_bytes()).map_err(framing)?;
        for (name, column) in &self.columns {
            column.write(row, out).map_err(|refusal| (*name, refusal))?;
        }
        Ok(())
    }

    /// The whole stream in one allocation, for small batches.
    ///
    /// # Errors
    /// As [`Batch::encode_into`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut size = HEADER_BYTES.saturating_add(TRAILER_BYTES);
        for row in 0..self.rows {
            size = size.saturating_add(self.row_size(row)?);
        }
        let mut bytes = vec![0; size];
        self.encode_into(&mut bytes, 0)?;
        Ok(bytes)
    }
}
