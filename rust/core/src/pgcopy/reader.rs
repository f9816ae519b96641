//! Reads a stream into columns. A malformed stream is an error; memory use is bounded by the length of the stream.

use std::borrow::Cow;

use half::f16;

use super::owned::{OwnedCells, OwnedColumn, OwnedLists, OwnedScalar, OwnedSparse};
use super::{
    EPOCH_MICROSECONDS, FIRST_MICROSECOND, LAST_MICROSECOND, MAX_DIMENSIONS, MAX_SPARSE_DIMENSIONS,
    SIGNATURE, Type,
};

/// Where a stream is not what it should be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Row, counted from 0; `None` in the header.
    pub row: Option<usize>,
    /// Column, counted from 0; `None` between rows.
    pub column: Option<usize>,
    /// Where the value (or the framing) begins, in bytes from the beginning of the stream.
    pub offset: usize,
    /// What is wrong there.
    pub reason: Cow<'static, str>,
}

type Outcome<T> = Result<T, &'static str>;

const ENDS_EARLY: &str = "the data ends early";

/// The unread rest of a stream or of one value.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Outcome<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn int2(&mut self) -> Outcome<i16> {
        self.bytes().map(i16::from_be_bytes)
    }

    fn int4(&mut self) -> Outcome<i32> {
        self.bytes().map(i32::from_be_bytes)
    }

    fn length(&mut self) -> Outcome<usize> {
        usize::try_from(self.int4()?).map_err(|_| "a length is negative")
    }

    /// A value with its length; `None` is NULL.
    fn value(&mut self) -> Outcome<Option<&'a [u8]>> {
        match self.int4()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| "a length is negative")?;
                self.take(length).map(Some)
            }
        }
    }
}

/// Reads a whole stream, header to trailer.
///
/// # Errors
/// [`Malformed`] for anything that the server would not send for these types.
pub fn decode(data: &[u8], types: &[Type]) -> Result<Vec<OwnedColumn>, Malformed> {
    let mut input = Input { rest: data };
    let mut columns: Vec<OwnedColumn> = types.iter().map(|&kind| OwnedColumn::new(kind)).collect();
    let offset_of = |rest: &[u8]| data.len().saturating_sub(rest.len());
    let malformed = |row, column, offset, reason: &'static str| Malformed {
        row,
        column,
        offset,
        reason: reason.into(),
    };

    header(&mut input).map_err(|reason| malformed(None, None, offset_of(input.rest), reason))?;
    for row in 0_usize.. {
        let framing = offset_of(input.rest);
        let count = input.int2().map_err(|_| {
            malformed(
                Some(row),
                None,
                framing,
                "the data ends without the trailer",
            )
        })?;
        if count == -1 {
            let rest = input.rest.is_empty();
            return if rest {
                Ok(columns)
            } else {
                Err(malformed(
                    Some(row),
                    None,
                    framing,
                    "bytes follow the trailer",
                ))
            };
        }
        if usize::try_from(count) != Ok(columns.len()) {
            let reason = format!("the row has {count} fields, expected {}", columns.len());
            return Err(Malformed {
                row: Some(row),
                column: None,
                offset: framing,
                reason: reason.into(),
            });
        }
        for (index, column) in columns.iter_mut().enumerate() {
            let offset = offset_of(input.rest);
            let read = input.value().and_then(|value| match value {
                None => {
                    column.push_null();
                    Ok(())
                }
                Some(bytes) => push(column, bytes),
            });
            read.map_err(|reason| malformed(Some(row), Some(index), offset, reason))?;
        }
    }
    Ok(columns)
}

fn header(input: &mut Input<'_>) -> Outcome<()> {
    if input.bytes()? != SIGNATURE {
        return Err("the signature of binary COPY is missing");
    }
    // Bits 16 to 31 are critical, bit 16 meant OIDs; the others may be ignored.
    if u32::from_be_bytes(input.bytes()?) >> 16 != 0 {
        return Err("the header sets an unknown critical flag");
    }
    let extension = input.length()?;
    input.take(extension).map(drop)
}

/// Appends one value that is not NULL.
fn push(column: &mut OwnedColumn, bytes: &[u8]) -> Outcome<()> {
    let mut value = Input { rest: bytes };
    match column {
        OwnedColumn::Scalar(scalar) => return push_scalar(scalar, bytes),
        OwnedColumn::Array(elements, rows) => {
            let start = elements.count();
            push_elements(elements, &mut value)?;
            rows.push(Some(start..elements.count()));
        }
        OwnedColumn::Jsonb(lists) => {
            if value.bytes()? != [1] {
                return Err("the version of a jsonb value is not 1");
            }
            lists.push(Some(utf8(std::mem::take(&mut value.rest))?));
        }
        OwnedColumn::Bytea(lists) => lists.push(Some(std::mem::take(&mut value.rest))),
        OwnedColumn::Vector(lists) => push_vector(lists, &mut value, f32::from_be_bytes)?,
        OwnedColumn::Halfvec(lists) => {
            push_vector(lists, &mut value, |bytes| {
                f16::from_be_bytes(bytes).to_f32()
            })?;
        }
        OwnedColumn::Bit(lists) => {
            let bits = bits(&mut value)?;
            lists.push(Some(&bits));
        }
        OwnedColumn::Sparsevec(sparse) => push_sparse(sparse, &mut value)?,
    }
    if value.rest.is_empty() {
        Ok(())
    } else {
        Err("bytes follow the value")
    }
}

fn push_scalar(scalar: &mut OwnedScalar, bytes: &[u8]) -> Outcome<()> {
    match scalar {
        OwnedScalar::Int2(cells) => {
            cells.push(Some(i64::from(i16::from_be_bytes(exactly(bytes)?))))
        }
        OwnedScalar::Int4(cells) => {
            cells.push(Some(i64::from(i32::from_be_bytes(exactly(bytes)?))))
        }
        OwnedScalar::Int8(cells) => cells.push(Some(i64::from_be_bytes(exactly(bytes)?))),
        OwnedScalar::Float4(cells) => cells.push(Some(f32::from_be_bytes(exactly(bytes)?))),
        OwnedScalar::Float8(cells) => cells.push(Some(f64::from_be_bytes(exactly(bytes)?))),
        OwnedScalar::Bool(cells) => match exactly(bytes)? {
            [truth @ (0 | 1)] => cells.push(Some(truth)),
            [_] => return Err("a bool is neither 0 nor 1"),
        },
        OwnedScalar::Uuid(cells) => cells.push(Some(exactly(bytes)?)),
        OwnedScalar::Timestamptz(cells) => return push_timestamp(cells, bytes),
        OwnedScalar::Text(lists) => lists.push(Some(utf8(bytes)?)),
    }
    Ok(())
}

fn push_timestamp(cells: &mut OwnedCells<i64>, bytes: &[u8]) -> Outcome<()> {
    let value = i64::from_be_bytes(exactly(bytes)?).checked_add(EPOCH_MICROSECONDS);
    match value.filter(|value| (FIRST_MICROSECOND..=LAST_MICROSECOND).contains(value)) {
        Some(value) => {
            cells.push(Some(value));
            Ok(())
        }
        None => Err("a timestamp is outside the range of datetime"),
    }
}

fn push_elements(elements: &mut OwnedScalar, value: &mut Input<'_>) -> Outcome<()> {
    let dimensions = value.int4()?;
    let flagged = match value.int4()? {
        0 => false,
        1 => true,
        _ => return Err("the NULL flag of an array is neither 0 nor 1"),
    };
    if u32::from_be_bytes(value.bytes()?) != elements.lend().kind().oid() {
        return Err("the elements of an array do not have the type of the column");
    }
    match dimensions {
        0 if flagged => return Err("the NULL flag of an empty array is 1"),
        0 => return Ok(()),
        1 => {}
        _ => return Err("an array has more than one dimension"),
    }
    let count = value.length()?;
    if count == 0 {
        return Err("a dimension of an array has no elements");
    }
    if value.int4()? != 1 {
        return Err("the lower bound of an array is not 1");
    }
    let mut nulls = false;
    for _ in 0..count {
        match value.value()? {
            Some(bytes) => push_scalar(elements, bytes)?,
            None => {
                nulls = true;
                elements.push_null();
            }
        }
    }
    if nulls == flagged {
        Ok(())
    } else {
        Err("the NULL flag of an array contradicts its elements")
    }
}

/// Appends a dense vector whose components are `N` bytes each.
fn push_vector<const N: usize>(
    lists: &mut OwnedLists<f32>,
    value: &mut Input<'_>,
    read: impl Fn([u8; N]) -> f32,
) -> Outcome<()> {
    let dimension = usize::from(u16::from_be_bytes(value.bytes()?));
    if !(1..=MAX_DIMENSIONS).contains(&dimension) {
        return Err("a vector does not have 1 to 16,000 dimensions");
    }
    if value.int2()? != 0 {
        return Err("a reserved field is not 0");
    }
    let (parts, _) = value.take(dimension.saturating_mul(N))?.as_chunks::<N>();
    let start = lists.values.len();
    lists.values.extend(parts.iter().map(|&part| read(part)));
    let floats = lists.values.get(start..).unwrap_or_default();
    if !floats.iter().all(|float| float.is_finite()) {
        return Err("a component is not finite");
    }
    lists.rows.push(Some(start..lists.values.len()));
    Ok(())
}

fn bits(value: &mut Input<'_>) -> Outcome<Vec<u8>> {
    let length = value.length()?;
    let bytes = value.take(length.div_ceil(8))?;
    let mut bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |shift| (byte >> shift) & 1))
        .collect();
    if bits.get(length..).unwrap_or_default().contains(&1) {
        return Err("the unused bits of the last byte are not 0");
    }
    bits.truncate(length);
    Ok(bits)
}

fn push_sparse(sparse: &mut OwnedSparse, value: &mut Input<'_>) -> Outcome<()> {
    let dimension = value.int4()?;
    if !usize::try_from(dimension)
        .is_ok_and(|dimension| (1..=MAX_SPARSE_DIMENSIONS).contains(&dimension))
    {
        return Err("a sparse vector does not have 1 to 1,000,000,000 dimensions");
    }
    let count = value.length()?;
    if count > MAX_DIMENSIONS {
        return Err("a sparse vector has more than 16,000 components");
    }
    if value.int4()? != 0 {
        return Err("a reserved field is not 0");
    }
    let (index_parts, _) = value.take(count.saturating_mul(4))?.as_chunks::<4>();
    let (value_parts, _) = value.take(count.saturating_mul(4))?.as_chunks::<4>();
    let indices: Vec<i32> = index_parts
        .iter()
        .map(|&part| i32::from_be_bytes(part))
        .collect();
    let values: Vec<f32> = value_parts
        .iter()
        .map(|&part| f32::from_be_bytes(part))
        .collect();
    if indices
        .windows(2)
        .any(|pair| matches!(pair, [left, right] if left >= right))
        || indices.iter().any(|index| !(0..dimension).contains(index))
    {
        return Err("the indices of a sparse vector do not ascend or are out of range");
    }
    if values
        .iter()
        .any(|value| !value.is_finite() || *value == 0.0)
    {
        return Err("a component of a sparse vector is zero or not finite");
    }
    sparse.push(Some((dimension, &indices, &values)));
    Ok(())
}

fn exactly<const N: usize>(bytes: &[u8]) -> Outcome<[u8; N]> {
    bytes
        .try_into()
        .map_err(|_| "the length of the value does not fit its type")
}

fn utf8(bytes: &[u8]) -> Outcome<&[u8]> {
    match std::str::from_utf8(bytes) {
        Ok(_) if bytes.contains(&0) => Err("a text holds a NUL"),
        Ok(_) => Ok(bytes),
        Err(_) => Err("a text is not UTF-8"),
    }
}
