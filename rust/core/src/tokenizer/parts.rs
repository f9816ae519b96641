//! Reading the parts of a file, and why a file cannot be read.

use std::fmt;

use serde_json::Value;

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The file is malformed.
    Malformed(String),
    /// The file needs a feature that this encoder lacks.
    Unsupported(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(out, "malformed: {what}"),
            Self::Unsupported(what) => write!(out, "unsupported: {what}"),
        }
    }
}

/// Refuses a file for what it asks for.
pub(super) fn unsupported<T>(what: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Unsupported(what.into()))
}

/// The type that a part states.
pub(super) fn kind(part: &Value) -> &str {
    let missing = if part.is_null() {
        "null"
    } else {
        "without a type"
    };
    part.get("type").and_then(Value::as_str).unwrap_or(missing)
}

/// Whether a part has a switch in this position.
pub(super) fn is(part: &Value, name: &str, wanted: bool) -> bool {
    part.get(name).and_then(Value::as_bool) == Some(wanted)
}
