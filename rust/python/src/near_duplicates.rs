//! `shared_shingles`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use semlex_core::near_duplicates;

use crate::errors::detached;

/// Return how much of each text each other text contains, by shingles: runs of 5 Unicode words in lower case.
///
/// A text of fewer words is one shingle; one without a word is equal to the same text only.
///
/// Args:
///     texts: n texts.
///
/// Returns:
///     (n, n); row i, column j: share of the distinct shingles of text i that occur in text j, 0 to 1.
///
/// Raises:
///     TypeError: An element is not a str.
///     UnicodeEncodeError: A text holds a lone surrogate.
#[pyfunction]
#[pyo3(signature = (texts: "Sequence[str]") -> "NDArray[np.float64]")]
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
