//! Python values to JSON text for `jsonb`: the walk is here, the rules are the core's.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use semlex_core::fault::{Code, Fault};
use semlex_core::json::{JsonWriter, MAX_DIGITS};

use crate::errors::{caught, validation_error};
use crate::objects::{snapshot, type_name, utf8};

/// An integer of more bits has more than [`MAX_DIGITS`] digits (4300 / log10(2), rounded up).
const MAX_BITS: u64 = 14_285;

/// Appends `value`. The recursion ends where the writer refuses the next level.
pub(crate) fn write_json(writer: &mut JsonWriter, value: &Bound<'_, PyAny>) -> Result<(), Fault> {
    if let Ok(text) = value.cast::<PyString>() {
        return writer.string(utf8(text)?);
    }
    if value.is_none() {
        return writer.null();
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return writer.bool(truth.is_true());
    }
    if let Ok(integer) = value.cast::<PyInt>() {
        return write_integer(writer, integer);
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return writer.f64(float.value());
    }
    if let Ok(mapping) = value.cast::<PyDict>() {
        return write_object(writer, mapping);
    }
    let Some(items) = snapshot(value) else {
        return Err(Fault::new(Code::UnsupportedType).actual(type_name(value)));
    };
    writer.begin_array()?;
    for item in items.iter() {
        write_json(writer, &item)?;
    }
    writer.end_array()
}

fn write_object(writer: &mut JsonWriter, mapping: &Bound<'_, PyDict>) -> Result<(), Fault> {
    writer.begin_object()?;
    // A list of the items: walking the dict itself would panic when it changes size under the walk.
    for item in mapping.items().iter() {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item
            .extract()
            .map_err(|_| Fault::new(Code::UnsupportedType).actual(type_name(mapping)))?;
        let Ok(text) = key.cast::<PyString>() else {
            return Err(Fault::new(Code::KeyNotString).actual(type_name(&key)));
        };
        writer.key(utf8(text)?)?;
        write_json(writer, &value)?;
    }
    writer.end_object()
}

fn write_integer(writer: &mut JsonWriter, integer: &Bound<'_, PyInt>) -> Result<(), Fault> {
    if let Ok(small) = integer.extract::<i64>() {
        return writer.i64(small);
    }
    if let Ok(small) = integer.extract::<u64>() {
        return writer.u64(small);
    }
    let refused = || Fault::new(Code::OutOfRange).limit(format!("{MAX_DIGITS} digits"));
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
        .map_err(|_| refused())?;
    writer.integer_text(utf8(text.cast::<PyString>().map_err(|_| refused())?)?)
}

/// JSON text of a value, as `jsonb` takes it.
#[pyfunction]
pub(crate) fn to_json<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    caught(|| {
        let mut writer = JsonWriter::default();
        match write_json(&mut writer, value) {
            Ok(()) => Ok(PyBytes::new(py, &writer.into_bytes())),
            Err(fault) => Err(validation_error(py, vec![fault.at(None, "value")], None)),
        }
    })
}
