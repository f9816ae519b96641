//! One value to bytes: its size, a check without writing, and the writing itself, for every type.

use super::column::{Column, Lists, Rows, ScalarColumn, SparseVectors};
use super::half::{HALF_INFINITY, half_from_single};
use super::{
    EPOCH_MICROSECONDS, FIRST_MICROSECOND, LAST_MICROSECOND, MAX_DIMENSIONS, MAX_SPARSE_DIMENSIONS,
    MAX_VALUE_BYTES,
};
use crate::fault::{Code, Fault};

/// Bytes of an array before its elements: dimensions, null flag, element type, then length and lower bound.
const ARRAY_HEADER_BYTES: usize = 20;
/// An array without elements has no length and no lower bound.
const EMPTY_ARRAY_BYTES: usize = 12;
/// Dimension and an unused field.
const VECTOR_HEADER_BYTES: usize = 4;
/// Dimension, number of components, an unused field.
const SPARSE_HEADER_BYTES: usize = 12;
/// The format's first byte: version 1.
const JSONB_VERSION: u8 = 1;
/// Bits that are all set in NaN and infinity, and in no other float32.
const EXPONENT: u32 = 0x7f80_0000;

/// Why a value was not written.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The buffer is full.
    Space,
    /// The value is not allowed.
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The part of the caller's buffer that is still free.
pub(super) struct Cursor<'b> {
    rest: &'b mut [u8],
}

impl<'b> Cursor<'b> {
    pub(super) fn new(buffer: &'b mut [u8]) -> Self {
        Self { rest: buffer }
    }

    pub(super) fn free(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, length: usize) -> Result<&'b mut [u8], Refusal> {
        let (taken, rest) = std::mem::take(&mut self.rest)
            .split_at_mut_checked(length)
            .ok_or(Refusal::Space)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.take(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn put_length(&mut self, length: usize) -> Result<(), Refusal> {
        self.put(&to_i32(length)?.to_be_bytes())
    }

    /// Writes a value: its length, then its bytes.
    fn put_value(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.put_length(bytes.len())?;
        self.put(bytes)
    }

    fn put_null(&mut self) -> Result<(), Refusal> {
        self.put(&(-1_i32).to_be_bytes())
    }
}

impl ScalarColumn<'_> {
    /// Bytes of the value; `None` is NULL.
    fn size(&self, row: usize) -> Result<Option<usize>, Fault> {
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

    fn check(&self, row: usize) -> Result<(), Fault> {
        match self {
            Self::Int2(cells) => cells
                .get(row)?
                .map_or(Ok(()), |value| int2(value).map(drop)),
            Self::Int4(cells) => cells
                .get(row)?
                .map_or(Ok(()), |value| int4(value).map(drop)),
            Self::Timestamptz(cells) => cells
                .get(row)?
                .map_or(Ok(()), |value| timestamp(value).map(drop)),
            Self::Bool(cells) => cells
                .get(row)?
                .map_or(Ok(()), |value| truth(value).map(drop)),
            Self::Text(lists) => lists.get(row)?.map_or(Ok(()), no_nul),
            Self::Int8(_) | Self::Float4(_) | Self::Float8(_) | Self::Uuid(_) => Ok(()),
        }
    }

    fn write(&self, row: usize, out: &mut Cursor<'_>) -> Result<(), Refusal> {
        match self {
            Self::Int2(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&int2(value)?.to_be_bytes()),
                None => out.put_null(),
            },
            Self::Int4(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&int4(value)?.to_be_bytes()),
                None => out.put_null(),
            },
            Self::Int8(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&value.to_be_bytes()),
                None => out.put_null(),
            },
            Self::Float4(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&value.to_be_bytes()),
                None => out.put_null(),
            },
            Self::Float8(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&value.to_be_bytes()),
                None => out.put_null(),
            },
            Self::Bool(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&[truth(value)?]),
                None => out.put_null(),
            },
            Self::Uuid(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&value),
                None => out.put_null(),
            },
            Self::Timestamptz(cells) => match cells.get(row)? {
                Some(value) => out.put_value(&timestamp(value)?.to_be_bytes()),
                None => out.put_null(),
            },
            Self::Text(lists) => match lists.get(row)? {
                Some(value) => out.put_value(value),
                None => out.put_null(),
            },
        }
    }

    fn oid(&self) -> u32 {
        match self {
            Self::Int2(_) => super::Scalar::Int2,
            Self::Int4(_) => super::Scalar::Int4,
            Self::Int8(_) => super::Scalar::Int8,
            Self::Float4(_) => super::Scalar::Float4,
            Self::Float8(_) => super::Scalar::Float8,
            Self::Bool(_) => super::Scalar::Bool,
            Self::Uuid(_) => super::Scalar::Uuid,
            Self::Timestamptz(_) => super::Scalar::Timestamptz,
            Self::Text(_) => super::Scalar::Text,
        }
        .oid()
    }
}

impl Column<'_> {
    /// Bytes of the value without its length; 0 for NULL.
    pub(super) fn size(&self, row: usize) -> Result<usize, Fault> {
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
    pub(super) fn check(&self, row: usize) -> Result<(), Fault> {
        match self {
            Self::Scalar(scalar) => scalar.check(row),
            Self::Array(elements, rows) => rows.get(row)?.map_or(Ok(()), |range| {
                range.enumerate().try_for_each(|(place, index)| {
                    elements
                        .check(index)
                        .map_err(|fault| fault.actual(format!("element {place}")))
                })
            }),
            Self::Jsonb(lists) => lists.get(row)?.map_or(Ok(()), no_nul),
            Self::Bytea(_) => Ok(()),
            Self::Vector(lists) | Self::Halfvec(lists) => lists
                .get(row)?
                .map_or(Ok(()), |row| dimension(row).map(drop)),
            Self::Bit(lists) => lists.get(row)?.map_or(Ok(()), all_binary),
            Self::Sparsevec(sparse) => sparse_row(sparse, row).map(drop),
        }
    }

    /// Writes the value: its length, then its bytes.
    pub(super) fn write(&self, row: usize, out: &mut Cursor<'_>) -> Result<(), Refusal> {
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

fn array_size(elements: &ScalarColumn<'_>, rows: Rows<'_>, row: usize) -> Result<usize, Fault> {
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
    out: &mut Cursor<'_>,
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
    out.put(&elements.oid().to_be_bytes())?;
    if !range.is_empty() {
        out.put_length(range.len())?;
        out.put(&1_i32.to_be_bytes())?;
    }
    for index in range {
        elements.write(index, out)?;
    }
    Ok(())
}

fn vector_size(dimension: usize, component: usize) -> usize {
    dimension
        .saturating_mul(component)
        .saturating_add(VECTOR_HEADER_BYTES)
}

/// Writes length, dimension and the unused field of a dense vector; the components go into the slice it returns.
fn vector_space<'b>(
    values: &[f32],
    component: usize,
    out: &mut Cursor<'b>,
) -> Result<&'b mut [u8], Refusal> {
    let dimension = dimension(values)?;
    out.put_length(vector_size(values.len(), component))?;
    out.put(&dimension.to_be_bytes())?;
    out.put(&0_u16.to_be_bytes())?;
    out.take(values.len().saturating_mul(component))
}

fn write_vector(values: &[f32], out: &mut Cursor<'_>) -> Result<(), Refusal> {
    let (space, _) = vector_space(values, 4, out)?.as_chunks_mut::<4>();
    // One pass: the array may be changed by another thread, so what is checked must be what is copied. No early exit
    // and no branch, so that the loop becomes vector instructions.
    let mut refused = false;
    for (place, value) in space.iter_mut().zip(values) {
        let bits = value.to_bits();
        refused |= bits & EXPONENT == EXPONENT;
        *place = bits.to_be_bytes();
    }
    if refused {
        Err(not_finite(values).into())
    } else {
        Ok(())
    }
}

fn write_halfvec(values: &[f32], out: &mut Cursor<'_>) -> Result<(), Refusal> {
    let (space, _) = vector_space(values, 2, out)?.as_chunks_mut::<2>();
    let mut refused = false;
    for (place, value) in space.iter_mut().zip(values) {
        let half = half_from_single(*value);
        refused |= half & HALF_INFINITY == HALF_INFINITY;
        *place = half.to_be_bytes();
    }
    if refused {
        Err(half_refused(values).into())
    } else {
        Ok(())
    }
}

/// The first component that is NaN, infinite or rounds to an infinite float16.
pub(crate) fn half_refused(values: &[f32]) -> Fault {
    let place = values
        .iter()
        .position(|value| half_from_single(*value) & HALF_INFINITY == HALF_INFINITY);
    match place.and_then(|place| values.get(place)) {
        Some(value) if value.is_finite() => Fault::new(Code::OutOfRange)
            .limit("below 65520")
            .actual(component(place)),
        _ => not_finite(values),
    }
}

/// The first component that is NaN or infinite.
pub(crate) fn not_finite(values: &[f32]) -> Fault {
    Fault::new(Code::NotFinite).actual(component(
        values.iter().position(|value| !value.is_finite()),
    ))
}

fn component(place: Option<usize>) -> String {
    // None: another thread has already put it right again.
    place.map_or_else(
        || "a component".to_owned(),
        |place| format!("component {place}"),
    )
}

fn write_bits(lists: &Lists<'_, u8>, row: usize, out: &mut Cursor<'_>) -> Result<(), Refusal> {
    let Some(bits) = lists.get(row)? else {
        return out.put_null();
    };
    out.put_length(bits.len().div_ceil(8).saturating_add(4))?;
    out.put_length(bits.len())?;
    let mut seen = 0_u8;
    for (place, eight) in out
        .take(bits.len().div_ceil(8))?
        .iter_mut()
        .zip(bits.chunks(8))
    {
        *place = 0;
        for (bit, shift) in eight.iter().zip((0..8).rev()) {
            seen |= bit;
            *place |= (bit & 1) << shift;
        }
    }
    if seen > 1 {
        Err(not_binary(bits).into())
    } else {
        Ok(())
    }
}

fn write_sparse(
    sparse: &SparseVectors<'_>,
    row: usize,
    out: &mut Cursor<'_>,
) -> Result<(), Refusal> {
    let Some((dimension, indices, values)) = sparse_row(sparse, row)? else {
        return out.put_null();
    };
    out.put_length(
        indices
            .len()
            .saturating_mul(8)
            .saturating_add(SPARSE_HEADER_BYTES),
    )?;
    out.put(&dimension.to_be_bytes())?;
    out.put_length(indices.len())?;
    out.put(&0_i32.to_be_bytes())?;
    for index in indices {
        out.put(&index.to_be_bytes())?;
    }
    for value in values {
        out.put(&value.to_be_bytes())?;
    }
    Ok(())
}

/// Dimension, indices and values of one row.
type SparseRow<'a> = (i32, &'a [i32], &'a [f32]);

/// The row under all rules of pgvector's `sparsevec_recv`; `None` is NULL.
fn sparse_row<'a>(sparse: &SparseVectors<'a>, row: usize) -> Result<Option<SparseRow<'a>>, Fault> {
    let (Some(indices), Some(values)) = (sparse.indices.get(row)?, sparse.values.get(row)?) else {
        return Ok(None);
    };
    let dimension = sparse
        .dimensions
        .get(row)
        .copied()
        .ok_or_else(|| Fault::new(Code::LengthDiffers))?;
    if !usize::try_from(dimension)
        .is_ok_and(|dimension| (1..=MAX_SPARSE_DIMENSIONS).contains(&dimension))
    {
        return Err(Fault::new(Code::WrongDimension)
            .limit("1 to 1000000000")
            .actual(dimension.to_string()));
    }
    if indices.len() != values.len() {
        let actual = format!("{} indices, {} values", indices.len(), values.len());
        return Err(Fault::new(Code::WrongDimension)
            .limit("as many values as indices")
            .actual(actual));
    }
    if indices.len() > MAX_DIMENSIONS {
        return Err(too_long(MAX_DIMENSIONS, indices.len(), "components"));
    }
    if let Some(place) = indices
        .iter()
        .position(|index| !(0..dimension).contains(index))
    {
        let limit = format!("0 to {}", dimension.saturating_sub(1));
        return Err(Fault::new(Code::OutOfRange)
            .limit(limit)
            .actual(format!("index {place}")));
    }
    if let Some(place) = indices
        .windows(2)
        .position(|pair| matches!(pair, [left, right] if left >= right))
    {
        return Err(
            Fault::new(Code::NotAscending).actual(format!("index {}", place.saturating_add(1)))
        );
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(not_finite(values));
    }
    if let Some(place) = values.iter().position(|value| *value == 0.0) {
        return Err(Fault::new(Code::ZeroValue).actual(format!("component {place}")));
    }
    Ok(Some((dimension, indices, values)))
}

fn int2(value: i64) -> Result<i16, Fault> {
    i16::try_from(value).map_err(|_| Fault::new(Code::OutOfRange).limit("-32768 to 32767"))
}

fn int4(value: i64) -> Result<i32, Fault> {
    i32::try_from(value)
        .map_err(|_| Fault::new(Code::OutOfRange).limit("-2147483648 to 2147483647"))
}

fn to_i32(length: usize) -> Result<i32, Fault> {
    i32::try_from(length).map_err(|_| too_long(MAX_VALUE_BYTES, length, "bytes"))
}

/// Microseconds as Postgres counts them.
pub(crate) fn timestamp(value: i64) -> Result<i64, Fault> {
    if !(FIRST_MICROSECOND..=LAST_MICROSECOND).contains(&value) {
        return Err(Fault::new(Code::OutOfRange).limit("years 0001 to 9999"));
    }
    Ok(value.saturating_sub(EPOCH_MICROSECONDS))
}

fn truth(value: u8) -> Result<u8, Fault> {
    if value > 1 {
        Err(Fault::new(Code::NotBinary))
    } else {
        Ok(value)
    }
}

fn all_binary(bits: &[u8]) -> Result<(), Fault> {
    if bits.iter().any(|&bit| bit > 1) {
        Err(not_binary(bits))
    } else {
        Ok(())
    }
}

fn not_binary(bits: &[u8]) -> Fault {
    let place = bits.iter().position(|&bit| bit > 1).unwrap_or(0);
    Fault::new(Code::NotBinary).actual(format!("bit {place}"))
}

fn no_nul(text: &[u8]) -> Result<(), Fault> {
    match text.iter().position(|&byte| byte == 0) {
        Some(offset) => Err(Fault::new(Code::Nul).actual(format!("byte {offset}"))),
        None => Ok(()),
    }
}

fn dimension(values: &[f32]) -> Result<u16, Fault> {
    let actual = values.len();
    match u16::try_from(actual) {
        Ok(dimension) if (1..=MAX_DIMENSIONS).contains(&actual) => Ok(dimension),
        _ => Err(Fault::new(Code::WrongDimension)
            .limit("1 to 16000")
            .actual(actual.to_string())),
    }
}

fn too_long(limit: usize, actual: usize, unit: &str) -> Fault {
    Fault::new(Code::TooLong)
        .limit(format!("{limit} {unit}"))
        .actual(format!("{actual} {unit}"))
}
