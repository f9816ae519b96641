//! Arguments, named in every message. NumPy arrays are copied before the interpreter is released (another thread may
//! write to them).

use numpy::{
    Element, PyArray, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
    ndarray::Dimension,
};
use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The values of a one-dimensional array.
pub(crate) fn vector<T: Element + Copy>(
    name: &dyn Fn() -> String,
    value: &Bound<'_, PyAny>,
) -> PyResult<Vec<T>> {
    values::<T, numpy::Ix1>(name, value, "(n,)")
}

/// The rows of an array of shape (n, 2).
pub(crate) fn pairs<T: Element + Copy>(
    name: &dyn Fn() -> String,
    value: &Bound<'_, PyAny>,
) -> PyResult<Vec<(T, T)>> {
    let flat = values::<T, numpy::Ix2>(name, value, "(n, 2)")?;
    let width = value.cast::<PyUntypedArray>()?.shape().get(1).copied();
    if width != Some(2) {
        return Err(refused::<T>(name, value, "(n, 2)"));
    }
    let (rows, _) = flat.as_chunks::<2>();
    Ok(rows
        .iter()
        .map(|&[first, second]| (first, second))
        .collect())
}

/// The values of an array of two dimensions, row by row, with its shape.
pub(crate) fn matrix<T: Element + Copy>(
    name: &dyn Fn() -> String,
    value: &Bound<'_, PyAny>,
) -> PyResult<(Vec<T>, usize, usize)> {
    let flat = values::<T, numpy::Ix2>(name, value, "(n, d)")?;
    match *value.cast::<PyUntypedArray>()?.shape() {
        [rows, width] => Ok((flat, rows, width)),
        _ => Err(refused::<T>(name, value, "(n, d)")),
    }
}

/// A number of at least `least`.
pub(crate) fn at_least(name: &str, value: i64, least: usize) -> PyResult<usize> {
    match usize::try_from(value) {
        Ok(value) if value >= least => Ok(value),
        _ => Err(PyValueError::new_err(format!(
            "{name}: must be at least {least}, found {value}"
        ))),
    }
}

/// A text as UTF-8, which has no form for a lone surrogate.
pub(crate) fn utf8<'a>(name: &str, text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text.to_str().map_err(|error| {
        let value = error.value(text.py());
        match value.getattr("start") {
            Ok(start) if error.is_instance_of::<PyUnicodeEncodeError>(text.py()) => {
                PyValueError::new_err(format!("{name}: lone surrogate at character {start}"))
            }
            _ => error,
        }
    })
}

fn values<T: Element + Copy, D: Dimension>(
    name: &dyn Fn() -> String,
    value: &Bound<'_, PyAny>,
    shape: &str,
) -> PyResult<Vec<T>> {
    let array = value
        .cast::<PyArray<T, D>>()
        .map_err(|_| refused::<T>(name, value, shape))?;
    if !array.is_aligned() {
        // Rust reads only what is aligned; a copy is.
        return values::<T, D>(name, &array.call_method0("copy")?, shape);
    }
    let held = array.try_readonly().map_err(|_| {
        PyValueError::new_err(format!("{}: another thread is writing to it", name()))
    })?;
    // The view's slice, not the array's: that one is also given for columns that stand one behind the other.
    let view = held.as_array();
    Ok(view
        .as_slice()
        .map_or_else(|| view.iter().copied().collect(), <[T]>::to_vec))
}

fn refused<T: Element>(name: &dyn Fn() -> String, value: &Bound<'_, PyAny>, shape: &str) -> PyErr {
    let name = name();
    let dtype = T::get_dtype(value.py());
    let wanted = format!("a NumPy array of {dtype}, shape {shape}");
    let Ok(array) = value.cast::<PyUntypedArray>() else {
        let found = value.get_type();
        return PyTypeError::new_err(format!("{name}: must be {wanted}, found {found}"));
    };
    let found = array.dtype();
    let swapped = matches!(found.byteorder(), b'>' | b'<') && found.itemsize() > 1;
    let order = if swapped && found.is_native_byteorder() == Some(false) {
        " in foreign byte order"
    } else {
        ""
    };
    let shape: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    PyValueError::new_err(format!(
        "{name}: must be {wanted}; found {}{order}, shape ({})",
        found
            .getattr("name")
            .map_or_else(|_| "?".to_owned(), |name| name.to_string()),
        shape.join(", "),
    ))
}
