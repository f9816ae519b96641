//! Python values to JSON text for `jsonb`.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use semlex_core::field_error::{Code, RuleError};
use semlex_core::json::{self, Limits, MAX_DIGITS};
use serde::ser::{Error, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::errors::{caught, validation_error};
use crate::objects::{snapshot, type_name, utf8};

/// An integer of more bits has more than [`MAX_DIGITS`] digits (4300 / log10(2), rounded up).
const MAX_BITS: u64 = 14_285;

/// Appends the text of a value, or nothing.
pub(crate) fn append_json(
    out: &mut Vec<u8>,
    value: &Bound<'_, PyAny>,
    limits: Limits,
) -> Result<(), RuleError> {
    let document = Document {
        max_depth: limits.max_depth,
        refusal: Cell::new(None),
    };
    let top = Value {
        value: value.clone(),
        depth: 0,
        document: &document,
    };
    json::append(out, &top, limits.max_bytes)
        .map_err(|too_long| document.refusal.take().unwrap_or(too_long))
}

/// What all values of a document share.
struct Document {
    max_depth: usize,
    /// The first broken rule.
    refusal: Cell<Option<RuleError>>,
}

/// A value, and how many containers it is in.
struct Value<'a, 'py> {
    value: Bound<'py, PyAny>,
    depth: usize,
    document: &'a Document,
}

impl Value<'_, '_> {
    fn allowed<T, E: Error>(&self, found: Result<T, RuleError>) -> Result<T, E> {
        found.map_err(|error| {
            self.document.refusal.set(Some(error));
            E::custom("refused")
        })
    }

    /// The level below, if there may be one.
    fn below<E: Error>(&self) -> Result<usize, E> {
        let max_depth = self.document.max_depth;
        let too_deep = || RuleError::new(Code::TooDeep).limit(format!("{max_depth} levels"));
        let fits = self.depth < max_depth;
        self.allowed(fits.then_some(self.depth + 1).ok_or_else(too_deep))
    }

    fn object<S: Serializer>(&self, mapping: &Bound<'_, PyDict>, to: S) -> Result<S::Ok, S::Error> {
        let (depth, document) = (self.below()?, self.document);
        let mut object = to.serialize_map(None)?;
        // A list of the items: iterating the dict itself would panic when it changes size meanwhile.
        for item in mapping.items().iter() {
            let pair = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
            let refused = |_| RuleError::new(Code::UnsupportedType).actual(type_name(mapping));
            let (key, value) = self.allowed(pair.map_err(refused))?;
            let refused = |_| RuleError::new(Code::KeyNotString).actual(type_name(&key));
            let key = self.allowed(key.cast::<PyString>().map_err(refused).and_then(string))?;
            object.serialize_entry(
                key,
                &Value {
                    value,
                    depth,
                    document,
                },
            )?;
        }
        object.end()
    }
}

impl Serialize for Value<'_, '_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let value = &self.value;
        if let Ok(text) = value.cast::<PyString>() {
            return to.serialize_str(self.allowed(string(text))?);
        }
        if value.is_none() {
            return to.serialize_unit();
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return to.serialize_bool(truth.is_true());
        }
        if let Ok(integer) = value.cast::<PyInt>() {
            if let Ok(small) = integer.extract::<i64>() {
                return to.serialize_i64(small);
            }
            return self.allowed(large_integer(integer))?.serialize(to);
        }
        if let Ok(float) = value.cast::<PyFloat>() {
            let finite = Some(float.value()).filter(|it| it.is_finite());
            let refused = || RuleError::new(Code::NotFinite).actual("a number in JSON");
            return to.serialize_f64(self.allowed(finite.ok_or_else(refused))?);
        }
        if let Ok(mapping) = value.cast::<PyDict>() {
            return self.object(mapping, to);
        }
        let items = snapshot(value);
        let refused = || RuleError::new(Code::UnsupportedType).actual(type_name(value));
        let items = self.allowed(items.ok_or_else(refused))?;
        let (depth, document) = (self.below()?, self.document);
        to.collect_seq(items.iter().map(|value| Value {
            value,
            depth,
            document,
        }))
    }
}

fn string<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str, RuleError> {
    json::string(utf8(text)?)
}

fn large_integer(integer: &Bound<'_, PyInt>) -> Result<Box<RawValue>, RuleError> {
    let refused = || RuleError::new(Code::OutOfRange).limit(format!("{MAX_DIGITS} digits"));
    let bits = integer
        .call_method0("bit_length")
        .and_then(|bits| bits.extract::<u64>())
        .map_err(|_| refused())?;
    if bits > MAX_BITS {
        return Err(refused());
    }
    // int's own __repr__, so that a subclass (an enum, say) writes its number. Fails above Python's limit of digits.
    let text = integer
        .py()
        .get_type::<PyInt>()
        .call_method1("__repr__", (integer,))
        .and_then(|text| text.extract::<String>())
        .map_err(|_| refused())?;
    if text.trim_start_matches('-').len() > MAX_DIGITS {
        return Err(refused());
    }
    RawValue::from_string(text).map_err(|_| refused())
}

/// Return the JSON text (UTF-8) that ``jsonb`` stores for a value.
///
/// Accepts dict with str keys, list, tuple, str, int up to 4,300 digits, float, bool and None, and subclasses of these.
/// jsonb keeps numbers as decimals: a float of 1e16 or more is read back as an int.
///
/// Raises:
///     semlex.errors.ValidationError: ``not_finite``, ``nul``, ``lone_surrogate``, ``key_not_string``,
///         ``unsupported_type``, ``out_of_range``, ``too_deep`` (64 levels), ``too_long`` (1 MiB).
#[pyfunction]
#[pyo3(signature = (value: "object") -> "bytes")]
pub(crate) fn to_json<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    caught(|| {
        let mut text = Vec::new();
        append_json(&mut text, value, Limits::default())
            .map_err(|error| validation_error(py, vec![error.at(None, "value")], None))?;
        Ok(PyBytes::new(py, &text))
    })
}
