//! Reads from Python values: the name of the type, the items, the text.

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use semlex_core::field_error::{Code, RuleError};

/// The value is of another type than the field needs.
pub(crate) fn wrong_type(value: &Bound<'_, PyAny>, wanted: &'static str) -> RuleError {
    RuleError::new(Code::WrongType)
        .limit(wanted)
        .actual(type_name(value))
}

/// Name of the value's type, for messages.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(
        |_| "?".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The items of a list or tuple, as they stand now: other threads may change a list while its items are read.
pub(crate) fn snapshot<'py>(data: &Bound<'py, PyAny>) -> Option<Bound<'py, PyTuple>> {
    match data.cast::<PyTuple>() {
        Ok(tuple) => Some(tuple.clone()),
        Err(_) => data.cast::<PyList>().ok().map(PyListMethods::to_tuple),
    }
}

/// The text of a string; Python allows half a surrogate pair in it, UTF-8 does not.
pub(crate) fn utf8<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str, RuleError> {
    text.to_str().map_err(|undecodable| {
        let error = RuleError::new(Code::LoneSurrogate);
        let value = undecodable.value(text.py());
        match value
            .is_instance_of::<PyUnicodeEncodeError>()
            .then(|| value.getattr("start"))
        {
            Some(Ok(start)) => error.actual(format!("character {start}")),
            _ => error,
        }
    })
}
