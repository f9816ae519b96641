//! Rules of field values. Each function returns every rule that the value breaks, so that a caller can fix all at once.

use half::f16;
use half::slice::HalfFloatSliceExt;
use half::vec::HalfFloatVecExt;

use crate::field_error::{Code, RuleError};
use crate::normalise::sum_of_squares;
use crate::pgcopy::{MAX_DIMENSIONS, half_refused, not_finite, timestamp as shifted};

/// Bytes of an id: a B-tree key ends at 2,704 bytes, and a chunk's key holds more than its id.
pub const MAX_ID_BYTES: usize = 512;
/// Characters of an identifier: every name that is derived from it then fits Postgres' 63 bytes.
pub const MAX_IDENTIFIER_CHARACTERS: usize = 48;

/// Bounds of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextLimits {
    /// Minimum number of characters.
    pub min_chars: usize,
    /// Maximum bytes of UTF-8; `None`: no limit.
    pub max_bytes: Option<usize>,
}

/// Bounds of a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorLimits {
    /// The dimension it must have; `None` is any that pgvector stores.
    pub dimension: Option<usize>,
    /// True when it will be rounded to float16.
    pub half: bool,
}

/// Rules of a text: no NUL, long enough, short enough.
#[must_use]
pub fn text(text: &str, limits: TextLimits) -> Vec<RuleError> {
    let mut errors = Vec::new();
    if text.contains('\0') {
        let characters = text.chars().take_while(|&letter| letter != '\0').count();
        errors.push(RuleError::new(Code::Nul).actual(format!("character {characters}")));
    }
    // Bytes bound characters from above, so the count is only taken where it can matter.
    if limits.min_chars > 0 && text.len() < limits.min_chars.saturating_mul(4) {
        let characters = text.chars().count();
        if characters < limits.min_chars {
            let limit = format!("{} characters", limits.min_chars);
            errors.push(
                RuleError::new(Code::TooShort)
                    .limit(limit)
                    .actual(format!("{characters} characters")),
            );
        }
    }
    if let Some(max_bytes) = limits.max_bytes.filter(|&max_bytes| text.len() > max_bytes) {
        let error = RuleError::new(Code::TooLong).limit(format!("{max_bytes} bytes"));
        errors.push(error.actual(format!("{} bytes", text.len())));
    }
    errors
}

/// Rules of an id: not empty, at most [`MAX_ID_BYTES`], no NUL.
#[must_use]
pub fn id(id: &str) -> Vec<RuleError> {
    let mut errors = text(
        id,
        TextLimits {
            min_chars: 0,
            max_bytes: Some(MAX_ID_BYTES),
        },
    );
    if id.is_empty() {
        errors.push(RuleError::new(Code::Blank).limit("1 character").actual("0"));
    }
    errors
}

/// Rules of a vector: the dimension, finite components, and a length of which a cosine can be computed.
///
/// pgvector adds up squares in float32 (`VectorCosineSimilarity`), so the squared length must be a normal float32:
/// components near 1e-30 underflow to 0 and components near 3e38 overflow, and the cosine is then NaN. The sum here is
/// taken in float64, which holds every sum of squares of float32.
#[must_use]
pub fn vector(values: &[f32], limits: VectorLimits) -> Vec<RuleError> {
    let mut errors = Vec::new();
    let wanted = limits.dimension.unwrap_or(values.len());
    if values.len() != wanted {
        let error = RuleError::new(Code::WrongDimension).limit(wanted.to_string());
        errors.push(error.actual(values.len().to_string()));
    } else if !(1..=MAX_DIMENSIONS).contains(&values.len()) {
        let error = RuleError::new(Code::WrongDimension).limit(format!("1 to {MAX_DIMENSIONS}"));
        errors.push(error.actual(values.len().to_string()));
    }
    errors.extend(if limits.half {
        half_length(values)
    } else {
        length(values)
    });
    errors
}

fn length(values: &[f32]) -> Option<RuleError> {
    let sum = sum_of_squares(values);
    if !sum.is_finite() {
        return Some(not_finite(values));
    }
    if values.is_empty() {
        return None; // the dimension's error
    }
    if sum == 0.0 {
        return Some(RuleError::new(Code::AllZero));
    }
    if sum < f64::from(f32::MIN_POSITIVE) || sum > f64::from(f32::MAX) {
        return Some(
            RuleError::new(Code::NormOutOfRange)
                .limit("1.1e-19 to 1.8e19")
                .actual(format!("{:.1e}", sum.sqrt())),
        );
    }
    None
}

/// The rules for what is left after rounding to float16.
fn half_length(values: &[f32]) -> Option<RuleError> {
    let rounded = Vec::<f16>::from_f32_slice(values).to_f32_vec();
    if rounded.iter().all(|value| value.is_finite()) {
        length(&rounded)
    } else {
        Some(half_refused(values))
    }
}

/// Rules of an instant in microseconds since 1970: Postgres takes the largest values for infinity, silently, and stores
/// years that Python cannot read.
#[must_use]
pub fn timestamp(microseconds: i64) -> Vec<RuleError> {
    shifted(microseconds).err().into_iter().collect()
}

/// Rules of a name that becomes part of SQL identifiers: `[a-z_][a-z0-9_]{0,47}`, not beginning with `pg_`.
#[must_use]
pub fn identifier(name: &str) -> Vec<RuleError> {
    let mut errors = Vec::new();
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let strange = name.chars().position(|letter| {
        !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    });
    let pattern = "[a-z_][a-z0-9_]{0,47}";
    if let Some(place) = strange {
        errors.push(
            RuleError::new(Code::BadIdentifier)
                .limit(pattern)
                .actual(format!("character {place}")),
        );
    } else if !begins {
        let actual = if name.is_empty() {
            "0 characters"
        } else {
            "character 0"
        };
        errors.push(
            RuleError::new(Code::BadIdentifier)
                .limit(pattern)
                .actual(actual),
        );
    }
    let characters = name.chars().count();
    if characters > MAX_IDENTIFIER_CHARACTERS {
        let limit = format!("{MAX_IDENTIFIER_CHARACTERS} characters");
        errors.push(
            RuleError::new(Code::TooLong)
                .limit(limit)
                .actual(format!("{characters} characters")),
        );
    }
    if name.starts_with("pg_") {
        errors.push(RuleError::new(Code::ReservedName).limit("not pg_"));
    }
    errors
}
