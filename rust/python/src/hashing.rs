//! `hash_rows`: identities of a batch of rows.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyList};
use semlex_core::hashing::identity;

use crate::errors::detached;

/// Return the identity of each row: 16 bytes of SHA-256 over the label and the row's texts, each after a NUL.
///
/// Args:
///     label: Kind of the rows; equal texts under different labels have different identities.
///     columns: One list of texts for each field, all of the same length.
///
/// Returns:
///     One identity a row.
///
/// Raises:
///     ValueError: The columns have different lengths.
///     UnicodeEncodeError: A text holds a lone surrogate.
#[pyfunction]
#[pyo3(signature = (label: "str", columns: "Sequence[Sequence[str]]") -> "list[bytes]")]
pub(crate) fn hash_rows<'py>(
    py: Python<'py>,
    label: &str,
    columns: Vec<Vec<PyBackedStr>>,
) -> PyResult<Bound<'py, PyList>> {
    let rows = columns.first().map_or(0, Vec::len);
    if let Some(other) = columns.iter().find(|column| column.len() != rows) {
        return Err(PyValueError::new_err(format!(
            "columns: expected {rows} texts in each, found {}",
            other.len()
        )));
    }
    let identities = detached(py, || {
        (0..rows)
            .map(|row| {
                let fields = columns
                    .iter()
                    .filter_map(|column| column.get(row).map(AsRef::as_ref));
                identity(label, fields)
            })
            .collect::<Vec<_>>()
    })?;
    PyList::new(py, identities.iter().map(|bytes| PyBytes::new(py, bytes)))
}
