//! Decoded columns as lists of Python values, for reading back and for tests.

use numpy::PyArray1;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString};
use semlex_core::pgcopy::{OwnedColumn, OwnedScalar, OwnedSparse};

use crate::cells::epoch;

/// The column's values, None for NULL.
pub(crate) fn to_list<'py>(py: Python<'py>, column: &OwnedColumn) -> PyResult<Bound<'py, PyList>> {
    let values = (0..column.count())
        .map(|row| value(py, column, row))
        .collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, values)
}

fn value<'py>(py: Python<'py>, column: &OwnedColumn, row: usize) -> PyResult<Bound<'py, PyAny>> {
    match column {
        OwnedColumn::Scalar(values) => scalar(py, values, row),
        OwnedColumn::Array(elements, rows) => match rows.get(row).cloned().flatten() {
            None => Ok(py.None().into_bound(py)),
            Some(range) => {
                let items = range
                    .map(|index| scalar(py, elements, index))
                    .collect::<PyResult<Vec<_>>>()?;
                Ok(PyList::new(py, items)?.into_any())
            }
        },
        OwnedColumn::Jsonb(lists) => match lists.get(row) {
            None => Ok(py.None().into_bound(py)),
            Some(text) => py
                .import("json")?
                .call_method1("loads", (PyBytes::new(py, text),)),
        },
        OwnedColumn::Bytea(lists) => lists
            .get(row)
            .map(|bytes| PyBytes::new(py, bytes))
            .into_bound_py_any(py),
        OwnedColumn::Vector(lists) | OwnedColumn::Halfvec(lists) => lists
            .get(row)
            .map(|values| PyArray1::from_slice(py, values))
            .into_bound_py_any(py),
        OwnedColumn::Bit(lists) => {
            let text = |bits: &[u8]| {
                bits.iter()
                    .map(|&bit| if bit == 0 { '0' } else { '1' })
                    .collect::<String>()
            };
            lists.get(row).map(text).into_bound_py_any(py)
        }
        OwnedColumn::Sparsevec(sparse) => sparse_row(py, sparse, row),
    }
}

fn scalar<'py>(py: Python<'py>, column: &OwnedScalar, row: usize) -> PyResult<Bound<'py, PyAny>> {
    match column {
        OwnedScalar::Int2(cells) | OwnedScalar::Int4(cells) | OwnedScalar::Int8(cells) => {
            cells.get(row).into_bound_py_any(py)
        }
        OwnedScalar::Float4(cells) => cells.get(row).into_bound_py_any(py),
        OwnedScalar::Float8(cells) => cells.get(row).into_bound_py_any(py),
        OwnedScalar::Bool(cells) => cells.get(row).map(|truth| truth != 0).into_bound_py_any(py),
        OwnedScalar::Uuid(cells) => match cells.get(row) {
            None => Ok(py.None().into_bound(py)),
            Some(bytes) => py
                .import("uuid")?
                .getattr("UUID")?
                .call1((py.None(), PyBytes::new(py, &bytes))),
        },
        OwnedScalar::Timestamptz(cells) => match cells.get(row) {
            None => Ok(py.None().into_bound(py)),
            Some(microseconds) => instant(py, microseconds),
        },
        OwnedScalar::Text(lists) => match lists.get(row) {
            None => Ok(py.None().into_bound(py)),
            Some(bytes) => Ok(PyString::from_bytes(py, bytes)?.into_any()),
        },
    }
}

fn instant(py: Python<'_>, microseconds: i64) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let since = py
        .import("datetime")?
        .getattr("timedelta")?
        .call1((0, 0, microseconds))?;
    EPOCH.get_or_try_init(py, || epoch(py))?.bind(py).add(since)
}

fn sparse_row<'py>(
    py: Python<'py>,
    sparse: &OwnedSparse,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    match (
        sparse.dimensions.get(row),
        sparse.indices.get(row),
        sparse.values.get(row),
    ) {
        (Some(dimension), Some(indices), Some(values)) => (
            *dimension,
            PyArray1::from_slice(py, indices),
            PyArray1::from_slice(py, values),
        )
            .into_bound_py_any(py),
        _ => Ok(py.None().into_bound(py)),
    }
}
