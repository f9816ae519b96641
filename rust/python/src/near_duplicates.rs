//! `shared_shingles`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use semlex_core::near_duplicates;

use crate::errors::detached;

/// How much of each text stands in each other one; see the stub.
#[pyfunction]
pub(crate) fn shared_shingles(
    py: Python<'_>,
    texts: Vec<PyBackedStr>,
) -> PyResult<Bound<'_, PyArray2<f64>>> {
    let count = texts.len();
    let shares = detached(py, || {
        let given: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        near_duplicates::shared_shingles(&given)
    })?;
    PyArray1::from_vec(py, shares).reshape([count, count])
}
