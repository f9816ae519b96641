//! One value to bytes: its size, a check without writing, and the writing itself, for every type.

use super::buffer::{Buffer, Refusal, too_long};
use super::column::{Cells, Column, Rows, ScalarColumn};
use super::vectors::{
    SPARSE_HEADER_BYTES, all_binary, dimension, sparse_row, vector_size, write_bits, write_halfvec,
    write_sparse, write_vector,
};
use super::{EPOCH_MICROSECONDS, FIRST_MICROSECOND, LAST_MICROSECOND, MAX_VALUE_BYTES};
use crate::field_error::{Code, RuleError};

/// Bytes of an array before its elements: dimensions, null flag, element type, then length and lower bound.
const ARRAY_HEADER_BYTES: usize = 20;
/// An array without elements has no length and no lower bound.
const EMPTY_ARRAY_BYTES: usize = 12;
/// The format's first byte: version 1.
const JSONB_VERSION: u8 = 1;

impl ScalarColumn<'_> {
    /// Bytes of the value; `None` is NULL.
    fn size(&self, row: usize) -> Result<Option<usize>, RuleError> {
        Ok(match self {
            Self::Int2(cells) => cells.get(row)?.map(|_| 2),
            Self::Int4(cells) => cells.get(row)?.map(|_| 4),
            Self::Int8(cells) | Self::Timestamptz(cells) => cells.get(row)?.map(|_| 8),
            Self::Float4(cells) => cells.get(row)?.map(|_| 4),
            Self::Float8(cells) => cells.get(row)?.map(|_| 8),
            Self::Bool(cells) => cells.get(row)?.map(|_| 1),
            Self::Uuid(cells) => cells.get(row)?.map(|_| 16),
            Self::Text(lists) => lists.get(row)?.map(<[u8]>::len),
        })
    }

    fn check(&self, row: usize) -> Result<(), RuleError> {
        match self {
            Self::Int2(cells) => keeps(cells.get(row)?, int2),
            Self::Int4(cells) => keeps(cells.get(row)?, int4),
            Self::Timestamptz(cells) => keeps(cells.get(row)?, timestamp),
            Self::Bool(cells) => keeps(cells.get(row)?, truth),
            Self::Text(lists) => keeps(lists.get(row)?, no_nul),
            Self::Int8(_) | Self::Float4(_) | Self::Float8(_) | Self::Uuid(_) => Ok(()),
        }
    }

    fn write(&self, row: usize, out: &mut Buffer<'_>) -> Result<(), Refusal> {
        match self {
            Self::Int2(cells) => put(cells, row, out, |value| Ok(int2(value)?.to_be_bytes())),
            Self::Int4(cells) => put(cells, row, out, |value| Ok(int4(value)?.to_be_bytes())),
            Self::Int8(cells) => put(cells, row, out, |value| Ok(value.to_be_bytes())),
            Self::Float4(cells) => put(cells, row, out, |value| Ok(value.to_be_bytes())),
            Self::Float8(cells) => put(cells, row, out, |value| Ok(value.to_be_bytes())),
            Self::Bool(cells) => put(cells, row, out, |value| Ok([truth(value)?])),
            Self::Uuid(cells) => put(cells, row, out, Ok),
            Self::Timestamptz(cells) => {
                put(cells, row, out, |value| Ok(timestamp(value)?.to_be_bytes()))
            }
            Self::Text(lists) => match lists.get(row)? {
                Some(value) => out.put_value(value),
                None => out.put_null(),
            },
        }
    }
}

/// Whether a value that is not NULL keeps a rule.
fn keeps<T, U>(
    value: Option<T>,
    rule: impl FnOnce(T) -> Result<U, RuleError>,
) -> Result<(), RuleError> {
    value.map_or(Ok(()), |value| rule(value).map(drop))
}

fn put<T: Copy, const N: usize>(
    cells: &Cells<'_, T>,
    row: usize,
    out: &mut Buffer<'_>,
    bytes: impl FnOnce(T) -> Result<[u8; N], RuleError>,
) -> Result<(), Refusal> {
    match cells.get(row)? {
        Some(value) => out.put_value(&bytes(value)?),
        None => out.put_null(),
    }
}

impl Column<'_> {
    /// Bytes of the value without its length; 0 for NULL.
    pub(super) fn size(&self, row: usize) -> Result<usize, RuleError> {
        let size = match self {
            Self::Scalar(scalar) => scalar.size(row)?.unwrap_or(0),
            Self::Array(elements, rows) => array_size(elements, *rows, row)?,
            Self::Jsonb(lists) => lists
                .get(row)?
                .map_or(0, |text| text.len().saturating_add(1)),
            Self::Bytea(lists) => lists.get(row)?.map_or(0, <[u8]>::len),
            Self::Vector(lists) => lists.get(row)?.map_or(0, |row| vector_size(row.len(), 4)),
            Self::Halfvec(lists) => lists.get(row)?.map_or(0, |row| vector_size(row.len(), 2)),
            Self::Bit(lists) => lists
                .get(row)?
                .map_or(0, |row| row.len().div_ceil(8).saturating_add(4)),
            Self::Sparsevec(sparse) => sparse.values.get(row)?.map_or(0, |row| {
                row.len()
                    .saturating_mul(8)
                    .saturating_add(SPARSE_HEADER_BYTES)
            }),
        };
        if size > MAX_VALUE_BYTES {
            return Err(too_long(MAX_VALUE_BYTES, size, "bytes"));
        }
        Ok(size)
    }

    /// Every rule of the type, but for the components of dense vectors: `write` checks those while it copies them.
    pub(super) fn check(&self, row: usize) -> Result<(), RuleError> {
        match self {
            Self::Scalar(scalar) => scalar.check(row),
            Self::Array(elements, rows) => rows.get(row)?.map_or(Ok(()), |range| {
                range.enumerate().try_for_each(|(place, index)| {
                    elements
                        .check(index)
                        .map_err(|error| error.in_element(place))
                })
            }),
            Self::Jsonb(lists) => keeps(lists.get(row)?, no_nul),
            Self::Bytea(_) => Ok(()),
            Self::Vector(lists) | Self::Halfvec(lists) => keeps(lists.get(row)?, dimension),
            Self::Bit(lists) => keeps(lists.get(row)?, all_binary),
            Self::Sparsevec(sparse) => sparse_row(sparse, row).map(drop),
        }
    }

    /// Writes the value: its length, then its bytes.
    pub(super) fn write(&self, row: usize, out: &mut Buffer<'_>) -> Result<(), Refusal> {
        match self {
            Self::Scalar(scalar) => scalar.write(row, out),
            Self::Array(elements, rows) => write_array(elements, *rows, row, out),
            Self::Jsonb(lists) => match lists.get(row)? {
                Some(text) => {
                    out.put_length(text.len().saturating_add(1))?;
                    out.put(&[JSONB_VERSION])?;
                    out.put(text)
                }
                None => out.put_null(),
            },
            Self::Bytea(lists) => match lists.get(row)? {
                Some(bytes) => out.put_value(bytes),
                None => out.put_null(),
            },
            Self::Vector(lists) => match lists.get(row)? {
                Some(values) => write_vector(values, out),
                None => out.put_null(),
            },
            Self::Halfvec(lists) => match lists.get(row)? {
                Some(values) => write_halfvec(values, out),
                None => out.put_null(),
            },
            Self::Bit(lists) => write_bits(lists, row, out),
            Self::Sparsevec(sparse) => write_sparse(sparse, row, out),
        }
    }
}

fn array_size(elements: &ScalarColumn<'_>, rows: Rows<'_>, row: usize) -> Result<usize, RuleError> {
    let Some(range) = rows.get(row)? else {
        return Ok(0);
    };
    if range.is_empty() {
        return Ok(EMPTY_ARRAY_BYTES);
    }
    range
        .into_iter()
        .try_fold(ARRAY_HEADER_BYTES, |sum, index| {
            Ok(sum
                .saturating_add(4)
                .saturating_add(elements.size(index)?.unwrap_or(0)))
        })
}

fn write_array(
    elements: &ScalarColumn<'_>,
    rows: Rows<'_>,
    row: usize,
    out: &mut Buffer<'_>,
) -> Result<(), Refusal> {
    let Some(range) = rows.get(row)? else {
        return out.put_null();
    };
    out.put_length(array_size(elements, rows, row)?)?;
    let mut nulls = false;
    for index in range.clone() {
        nulls = nulls || elements.size(index)?.is_none();
    }
    out.put(&i32::from(!range.is_empty()).to_be_bytes())?;
    out.put(&i32::from(nulls).to_be_bytes())?;
    out.put(&elements.kind().oid().to_be_bytes())?;
    if !range.is_empty() {
        out.put_length(range.len())?;
        out.put(&1_i32.to_be_bytes())?;
    }
    for index in range {
        elements.write(index, out)?;
    }
    Ok(())
}

fn int2(value: i64) -> Result<i16, RuleError> {
    i16::try_from(value).map_err(|_| RuleError::new(Code::OutOfRange).limit("-32768 to 32767"))
}

fn int4(value: i64) -> Result<i32, RuleError> {
    i32::try_from(value)
        .map_err(|_| RuleError::new(Code::OutOfRange).limit("-2147483648 to 2147483647"))
}

/// Microseconds as Postgres counts them.
pub(crate) fn timestamp(value: i64) -> Result<i64, RuleError> {
    if !(FIRST_MICROSECOND..=LAST_MICROSECOND).contains(&value) {
        return Err(RuleError::new(Code::OutOfRange).limit("years 0001 to 9999"));
    }
    Ok(value.saturating_sub(EPOCH_MICROSECONDS))
}

fn truth(value: u8) -> Result<u8, RuleError> {
    if value > 1 {
        Err(RuleError::new(Code::NotBinary))
    } else {
        Ok(value)
    }
}

fn no_nul(text: &[u8]) -> Result<(), RuleError> {
    // `contains` looks at many bytes at once; the place matters only when there is one.
    if !text.contains(&0) {
        return Ok(());
    }
    // Python counts characters: the bytes that do not continue one.
    let begins = text
        .iter()
        .take_while(|&&byte| byte != 0)
        .filter(|&&byte| byte & 0xc0 != 0x80);
    Err(RuleError::new(Code::Nul).actual(format!("character {}", begins.count())))
}
