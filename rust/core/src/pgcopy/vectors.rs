//! pgvector's types and `bit(n)` to bytes: the loops that decide how fast a load is.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::buffer::{Buffer, Refusal, too_long};
use super::column::{Lists, SparseVectors};
use super::{MAX_DIMENSIONS, MAX_SPARSE_DIMENSIONS};
use crate::field_error::{Code, RuleError};

/// Dimension and an unused field.
const VECTOR_HEADER_BYTES: usize = 4;
/// Dimension, number of components, an unused field.
pub(super) const SPARSE_HEADER_BYTES: usize = 12;
/// Bits that are all set in NaN and infinity, and in no other float32.
const EXPONENT: u32 = 0x7f80_0000;

/// Components that are rounded to float16 by one call, which looks for the processor's instructions.
const ROUNDED_AT_ONCE: usize = 256;

pub(super) fn vector_size(dimension: usize, component: usize) -> usize {
    dimension
        .saturating_mul(component)
        .saturating_add(VECTOR_HEADER_BYTES)
}

/// Writes length, dimension and the unused field of a dense vector; the components go into the slice it returns.
fn vector_space<'b>(
    values: &[f32],
    component: usize,
    out: &mut Buffer<'b>,
) -> Result<&'b mut [u8], Refusal> {
    let dimension = dimension(values)?;
    out.put_length(vector_size(values.len(), component))?;
    out.put(&dimension.to_be_bytes())?;
    out.put(&0_u16.to_be_bytes())?;
    out.take(values.len().saturating_mul(component))
}

pub(super) fn write_vector(values: &[f32], out: &mut Buffer<'_>) -> Result<(), Refusal> {
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

pub(super) fn write_halfvec(values: &[f32], out: &mut Buffer<'_>) -> Result<(), Refusal> {
    let (space, _) = vector_space(values, 2, out)?.as_chunks_mut::<2>();
    let mut rounded = [f16::ZERO; ROUNDED_AT_ONCE];
    let mut refused = false;
    let blocks = space.chunks_mut(ROUNDED_AT_ONCE);
    for (places, values) in blocks.zip(values.chunks(ROUNDED_AT_ONCE)) {
        let halves = rounded.get_mut(..values.len()).unwrap_or_default();
        halves.convert_from_f32_slice(values);
        for (place, half) in places.iter_mut().zip(halves) {
            refused |= !half.is_finite();
            *place = half.to_be_bytes();
        }
    }
    if refused {
        Err(half_refused(values).into())
    } else {
        Ok(())
    }
}

/// The first component that is NaN, infinite or rounds to an infinite float16.
pub(crate) fn half_refused(values: &[f32]) -> RuleError {
    let place = values
        .iter()
        .position(|value| !f16::from_f32(*value).is_finite());
    match place.and_then(|place| values.get(place)) {
        Some(value) if value.is_finite() => RuleError::new(Code::OutOfRange)
            .limit("below 65520")
            .actual(component(place)),
        _ => not_finite(values),
    }
}

/// The first component that is NaN or infinite.
pub(crate) fn not_finite(values: &[f32]) -> RuleError {
    RuleError::new(Code::NotFinite).actual(component(
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

pub(super) fn write_bits(
    lists: &Lists<'_, u8>,
    row: usize,
    out: &mut Buffer<'_>,
) -> Result<(), Refusal> {
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

pub(super) fn write_sparse(
    sparse: &SparseVectors<'_>,
    row: usize,
    out: &mut Buffer<'_>,
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
pub(super) type SparseRow<'a> = (i32, &'a [i32], &'a [f32]);

/// The row under all rules of pgvector's `sparsevec_recv`; `None` is NULL.
pub(super) fn sparse_row<'a>(
    sparse: &SparseVectors<'a>,
    row: usize,
) -> Result<Option<SparseRow<'a>>, RuleError> {
    let (Some(indices), Some(values)) = (sparse.indices.get(row)?, sparse.values.get(row)?) else {
        return Ok(None);
    };
    let dimension = sparse
        .dimensions
        .get(row)
        .copied()
        .ok_or_else(|| RuleError::new(Code::LengthDiffers))?;
    if !usize::try_from(dimension)
        .is_ok_and(|dimension| (1..=MAX_SPARSE_DIMENSIONS).contains(&dimension))
    {
        return Err(RuleError::new(Code::WrongDimension)
            .limit("1 to 1000000000")
            .actual(dimension.to_string()));
    }
    if indices.len() != values.len() {
        let actual = format!("{} indices, {} values", indices.len(), values.len());
        return Err(RuleError::new(Code::WrongDimension)
            .limit(indices.len().to_string())
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
        return Err(RuleError::new(Code::OutOfRange)
            .limit(limit)
            .actual(format!("index {place}")));
    }
    if let Some(place) = indices
        .windows(2)
        .position(|pair| matches!(pair, [left, right] if left >= right))
    {
        return Err(
            RuleError::new(Code::NotAscending).actual(format!("index {}", place.saturating_add(1)))
        );
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(not_finite(values));
    }
    if let Some(place) = values.iter().position(|value| *value == 0.0) {
        return Err(RuleError::new(Code::ZeroValue).actual(format!("component {place}")));
    }
    Ok(Some((dimension, indices, values)))
}

pub(super) fn all_binary(bits: &[u8]) -> Result<(), RuleError> {
    if bits.iter().any(|&bit| bit > 1) {
        Err(not_binary(bits))
    } else {
        Ok(())
    }
}

fn not_binary(bits: &[u8]) -> RuleError {
    let place = bits.iter().position(|&bit| bit > 1).unwrap_or(0);
    RuleError::new(Code::NotBinary).actual(format!("bit {place}"))
}

pub(super) fn dimension(values: &[f32]) -> Result<u16, RuleError> {
    let actual = values.len();
    match u16::try_from(actual) {
        Ok(dimension) if (1..=MAX_DIMENSIONS).contains(&actual) => Ok(dimension),
        _ => Err(RuleError::new(Code::WrongDimension)
            .limit("1 to 16000")
            .actual(actual.to_string())),
    }
}
