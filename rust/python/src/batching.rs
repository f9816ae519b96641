//! `plan_batches`, `TokenPlan` and `common_prefix`.

use numpy::{PyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use semlex_core::batch;

use crate::arguments::{at_least, vector};
use crate::errors::detached;

/// Rows grouped into batches.
///
/// Attributes:
///     order: (n,) row numbers, longest row first; rows of equal length in their own order.
///     boundaries: (b + 1,) batch i is ``order[boundaries[i] : boundaries[i + 1]]``; begins with 0 and ends with n.
///     inverse: (n,) place of every row in `order`: ``np.concatenate(results)[plan.inverse]`` is in the rows' order.
///     real_tokens: Tokens of all rows.
///     computed_tokens: Tokens that a model computes; ``1 - real_tokens / computed_tokens`` is what padding wastes.
#[pyclass(frozen, get_all, module = "semlex._core")]
pub(crate) struct BatchPlan {
    order: Py<PyArray1<i64>>,      // -> NDArray[np.int64]
    boundaries: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    inverse: Py<PyArray1<i64>>,    // -> NDArray[np.int64]
    real_tokens: i64,              // -> int
    computed_tokens: i64,          // -> int
}

#[pymethods]
impl BatchPlan {
    fn __repr__(&self) -> String {
        format!(
            "BatchPlan({} real tokens, {} computed)",
            self.real_tokens, self.computed_tokens
        )
    }
}

/// Plan batches of rows of similar length.
///
/// A batch is cut before it costs more than `token_budget` or has more than `max_rows` rows; a row above the budget is
/// a batch of its own.
///
/// Args:
///     lengths: (n,) tokens per row, from 0.
///     token_budget: Maximum tokens of a batch, from 1.
///     max_rows: Maximum rows of a batch, from 1.
///     padded: Whether a batch costs its longest row times its rows; else it costs the sum of its rows.
///
/// Raises:
///     ValueError: A number is out of its range, a length is negative, their sum passes 64 bits, or the array has
///         another dtype or shape; the message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (
    lengths: "NDArray[np.int64]",
    *,
    token_budget: "int",
    max_rows: "int",
    padded: "bool",
) -> "BatchPlan")]
pub(crate) fn plan_batches(
    py: Python<'_>,
    lengths: &Bound<'_, PyAny>,
    token_budget: i64,
    max_rows: i64,
    padded: bool,
) -> PyResult<BatchPlan> {
    at_least("token_budget", token_budget, 1)?;
    at_least("max_rows", max_rows, 1)?;
    let lengths = vector::<i64>(&|| "lengths".to_owned(), lengths)?;
    let plan = detached(py, || {
        batch::plan_batches(&lengths, token_budget, max_rows, padded)
    })?
    .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(BatchPlan {
        order: PyArray1::from_vec(py, plan.order).unbind(),
        boundaries: PyArray1::from_vec(py, plan.boundaries).unbind(),
        inverse: PyArray1::from_vec(py, plan.inverse).unbind(),
        real_tokens: plan.real_tokens,
        computed_tokens: plan.computed_tokens,
    })
}

/// Rows of token ids in packed batches: the plan of `plan_batches` with the buffers that a model takes.
///
/// Attributes:
///     real_tokens: Tokens of all rows, without the skipped ones.
///     computed_tokens: Tokens that the budget counts: the same number, unless `padded`.
///
/// Args:
///     ids: (t,) token ids from 0, row after row.
///     offsets: (n + 1,) row i is ``ids[offsets[i] : offsets[i + 1]]``.
///     token_budget: Maximum tokens of a batch, from 1; a row above it is a batch of its own.
///     max_rows: Maximum rows of a batch, from 1.
///     padded: Whether the budget counts a batch's longest row times its rows, for attention that pads; else the sum of
///         its rows. The buffers are the same.
///     skip: Tokens at the beginning of every row that the batches leave out, because a model has read them already.
///
/// Raises:
///     ValueError: A number is out of its range, the offsets do not fit the ids, a row has no token after those that
///         are skipped, an id is negative, or an array has another dtype or shape; the message names it.
///     TypeError: An argument has another type.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct TokenPlan {
    inner: batch::TokenPlan,
}

#[pymethods]
impl TokenPlan {
    #[new]
    #[pyo3(signature = (
        ids: "NDArray[np.int64]",
        offsets: "NDArray[np.int64]",
        *,
        token_budget: "int",
        max_rows: "int",
        padded: "bool" = false,
        skip: "int" = 0,
    ))]
    fn new(
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        token_budget: i64,
        max_rows: i64,
        padded: bool,
        skip: i64,
    ) -> PyResult<Self> {
        at_least("token_budget", token_budget, 1)?;
        at_least("max_rows", max_rows, 1)?;
        let skip = at_least("skip", skip, 0)?;
        let ids = vector::<i64>(&|| "ids".to_owned(), ids)?;
        let offsets = vector::<i64>(&|| "offsets".to_owned(), offsets)?;
        let inner = detached(py, || {
            batch::TokenPlan::new(ids, &offsets, token_budget, max_rows, padded, skip)
        })?
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { inner })
    }

    #[getter] // -> int
    fn real_tokens(&self) -> i64 {
        self.inner.plan.real_tokens
    }

    #[getter] // -> int
    fn computed_tokens(&self) -> i64 {
        self.inner.plan.computed_tokens
    }

    fn __len__(&self) -> usize {
        self.inner.batches()
    }

    fn __repr__(&self) -> String {
        format!(
            "TokenPlan({} batches, {} tokens)",
            self.inner.batches(),
            self.inner.plan.computed_tokens
        )
    }

    /// Fill the buffers of one batch.
    ///
    /// Args:
    ///     number: The batch, from 0.
    ///
    /// Raises:
    ///     IndexError: There are fewer batches.
    #[pyo3(signature = (number: "int") -> "TokenBatch")]
    fn batch(&self, py: Python<'_>, number: i64) -> PyResult<TokenBatch> {
        let found = detached(py, || self.inner.batch(usize::try_from(number).ok()?))?;
        let batch = found.ok_or_else(|| {
            PyIndexError::new_err(format!(
                "number: must be at least 0 and below {}, found {number}",
                self.inner.batches()
            ))
        })?;
        Ok(TokenBatch {
            rows: PyArray1::from_vec(py, batch.rows).unbind(),
            ids: PyArray1::from_vec(py, batch.ids).unbind(),
            positions: PyArray1::from_vec(py, batch.positions).unbind(),
            documents: PyArray1::from_vec(py, batch.documents).unbind(),
            offsets: PyArray1::from_vec(py, batch.offsets).unbind(),
        })
    }
}

/// The rows of one batch as one sequence, without padding; the arrays are the buffers that were filled, not copies.
///
/// Attributes:
///     rows: (b,) numbers of the rows, longest first.
///     ids: (t,) token ids, row after row, without the tokens that the plan skips.
///     positions: (t,) place of every token in its own row, the skipped ones counted.
///     documents: (t,) which row of the batch every token belongs to, from 0.
///     offsets: (b + 1,) row i of the batch is ``ids[offsets[i] : offsets[i + 1]]``; none is empty.
#[pyclass(frozen, get_all, module = "semlex._core")]
pub(crate) struct TokenBatch {
    rows: Py<PyArray1<i64>>,      // -> NDArray[np.int64]
    ids: Py<PyArray1<i64>>,       // -> NDArray[np.int64]
    positions: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    documents: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    offsets: Py<PyArray1<i64>>,   // -> NDArray[np.int64]
}

#[pymethods]
impl TokenBatch {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "TokenBatch({} rows, {} tokens)",
            self.rows.bind(py).len(),
            self.ids.bind(py).len()
        )
    }
}

/// Count the tokens with which all rows begin.
///
/// Args:
///     ids: (t,) token ids, row after row.
///     offsets: (n + 1,) row i is ``ids[offsets[i] : offsets[i + 1]]``.
///
/// Returns:
///     Up to one less than the tokens of the shortest row, so that every row keeps one; 0 for fewer than two rows.
///
/// Raises:
///     ValueError: The offsets do not fit the ids, or an array has another dtype or shape; the message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (ids: "NDArray[np.int64]", offsets: "NDArray[np.int64]") -> "int")]
pub(crate) fn common_prefix(
    py: Python<'_>,
    ids: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let ids = vector::<i64>(&|| "ids".to_owned(), ids)?;
    let offsets = vector::<i64>(&|| "offsets".to_owned(), offsets)?;
    detached(py, || batch::common_prefix(&ids, &offsets))?
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
