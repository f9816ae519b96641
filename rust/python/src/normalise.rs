//! `normalise_rows`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use semlex_core::normalise::{self, NormaliseError};

use crate::arguments::{at_least, matrix};
use crate::errors::detached;

/// Cut vectors to their leading components and scale them to norm 1, with sums of squares in float64.
///
/// Args:
///     vectors: (n, d).
///     dimensions: Leading components that are kept, 1 to d.
///
/// Returns:
///     (n, dimensions); a row of zeros stays unchanged, and a row that is not finite stays so.
///
/// Raises:
///     ValueError: `dimensions` is out of its range, or the array has another dtype or shape; the message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (vectors: "NDArray[np.float32]", dimensions: "int") -> "NDArray[np.float32]")]
pub(crate) fn normalise_rows<'py>(
    py: Python<'py>,
    vectors: &Bound<'py, PyAny>,
    dimensions: i64,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let wanted = at_least("dimensions", dimensions, 1)?;
    let (values, rows, width) = matrix::<f32>(&|| "vectors".to_owned(), vectors)?;
    let flat = detached(py, || normalise::normalise_rows(&values, width, wanted))?.map_err(
        |NormaliseError::Dimensions { width, wanted }| {
            PyValueError::new_err(format!(
                "dimensions: must be at most {width}, found {wanted}"
            ))
        },
    )?;
    PyArray1::from_vec(py, flat).reshape([rows, wanted])
}
