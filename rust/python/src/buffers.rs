//! Decoded columns as the buffers of Arrow: no Python object for a value.

use std::ops::Range;

use numpy::{Element, IntoPyArray};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use semlex_core::pgcopy::{OwnedCells, OwnedColumn, OwnedLists, OwnedScalar};

type Rows = Vec<Option<Range<usize>>>;

/// (nulls, offsets, values): arrays of bool (n,), of int32 (n + 1,), and of the values, one behind another; the first
/// two are None where no row is null, and where each row is one value. The values of an array are such a tuple again.
pub(crate) fn to_buffers(py: Python<'_>, column: OwnedColumn) -> PyResult<Bound<'_, PyTuple>> {
    match column {
        OwnedColumn::Scalar(values) => scalar(py, values),
        OwnedColumn::Array(elements, rows) => {
            let (nulls, offsets) = places(py, &rows)?;
            (nulls, offsets, scalar(py, elements)?).into_pyobject(py)
        }
        OwnedColumn::Jsonb(values) | OwnedColumn::Bytea(values) | OwnedColumn::Bit(values) => {
            lists(py, values)
        }
        OwnedColumn::Vector(values) | OwnedColumn::Halfvec(values) => lists(py, values),
        OwnedColumn::Sparsevec(_) => Err(PyTypeError::new_err(
            "a sparsevec column cannot be returned as buffers",
        )),
    }
}

fn scalar(py: Python<'_>, column: OwnedScalar) -> PyResult<Bound<'_, PyTuple>> {
    match column {
        OwnedScalar::Int2(values)
        | OwnedScalar::Int4(values)
        | OwnedScalar::Int8(values)
        | OwnedScalar::Timestamptz(values) => cells(py, values),
        OwnedScalar::Float4(values) => cells(py, values),
        OwnedScalar::Float8(values) => cells(py, values),
        OwnedScalar::Bool(values) => cells(py, values),
        OwnedScalar::Uuid(OwnedCells { values, nulls }) => cells(
            py,
            OwnedCells {
                values: values.into_flattened(),
                nulls,
            },
        ),
        OwnedScalar::Text(values) => lists(py, values),
    }
}

fn cells<T: Element>(py: Python<'_>, cells: OwnedCells<T>) -> PyResult<Bound<'_, PyTuple>> {
    let nulls = marked(py, cells.nulls)?;
    (nulls, py.None(), cells.values.into_pyarray(py)).into_pyobject(py)
}

fn lists<T: Element>(py: Python<'_>, lists: OwnedLists<T>) -> PyResult<Bound<'_, PyTuple>> {
    let (nulls, offsets) = places(py, &lists.rows)?;
    (nulls, offsets, lists.values.into_pyarray(py)).into_pyobject(py)
}

fn places<'py>(py: Python<'py>, rows: &Rows) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut offsets = Vec::with_capacity(rows.len().saturating_add(1));
    let mut end = 0;
    offsets.push(end);
    for row in rows {
        if let Some(range) = row {
            end = i32::try_from(range.end)
                .map_err(|_| PyOverflowError::new_err("a column has more than 2 GiB of values"))?;
        }
        offsets.push(end);
    }
    let nulls = marked(py, rows.iter().map(Option::is_none).collect())?;
    Ok((nulls, offsets.into_pyarray(py).into_any()))
}

fn marked(py: Python<'_>, nulls: Vec<bool>) -> PyResult<Bound<'_, PyAny>> {
    if nulls.contains(&true) {
        nulls.into_pyarray(py).into_bound_py_any(py)
    } else {
        Ok(py.None().into_bound(py))
    }
}
