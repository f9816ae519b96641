//! The caller's buffer, to which values are appended.

use super::MAX_VALUE_BYTES;
use crate::field_error::{Code, RuleError};

/// Why a value was not written.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The buffer is full.
    Space,
    /// The value is not allowed.
    Rule(RuleError),
}

impl From<RuleError> for Refusal {
    fn from(error: RuleError) -> Self {
        Self::Rule(error)
    }
}

/// The part of the caller's buffer that is still free.
pub(super) struct Buffer<'b> {
    rest: &'b mut [u8],
}

impl<'b> Buffer<'b> {
    pub(super) fn new(buffer: &'b mut [u8]) -> Self {
        Self { rest: buffer }
    }

    pub(super) fn free(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'b mut [u8], Refusal> {
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

    pub(super) fn put_length(&mut self, length: usize) -> Result<(), Refusal> {
        self.put(&to_i32(length)?.to_be_bytes())
    }

    /// Writes a value: its length, then its bytes.
    pub(super) fn put_value(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.put_length(bytes.len())?;
        self.put(bytes)
    }

    pub(super) fn put_null(&mut self) -> Result<(), Refusal> {
        self.put(&(-1_i32).to_be_bytes())
    }
}

fn to_i32(length: usize) -> Result<i32, RuleError> {
    i32::try_from(length).map_err(|_| too_long(MAX_VALUE_BYTES, length, "bytes"))
}

pub(super) fn too_long(limit: usize, actual: usize, unit: &str) -> RuleError {
    RuleError::new(Code::TooLong)
        .limit(format!("{limit} {unit}"))
        .actual(format!("{actual} {unit}"))
}
