//! `plan_batches`, `TokenPlan` and `common_prefix`.

use numpy::{PyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use semlex_core::batch;

use crate::arguments::{at_least, vector};
use crate::errors::detached;

/// Rows in batches; see the stub.
#[pyclass(frozen, get_all, module = "semlex._core")]
pub(crate) struct BatchPlan {
    order: Py<PyArray1<i64>>,
    boundaries: Py<PyArray1<i64>>,
    inverse: Py<PyArray1<i64>>,
    real_tokens: i64,
    computed_tokens: i64,
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

/// Plans batches within a budget of tokens; see the stub.
#[pyfunction]
#[pyo3(signature = (lengths, *, token_budget, max_rows, padded))]
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

/// Rows of token ids in packed batches; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct TokenPlan {
    inner: batch::TokenPlan,
}

#[pymethods]
impl TokenPlan {
    #[new]
    #[pyo3(signature = (ids, offsets, *, token_budget, max_rows, padded=false, skip=0))]
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

    #[getter]
    fn real_tokens(&self) -> i64 {
        self.inner.plan.real_tokens
    }

    #[getter]
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

    fn batch(&self, py: Python<'_>, number: i64) -> PyResult<TokenBatch> {
        let found = detached(py, || self.inner.batch(usize::try_from(number).ok()?))?;
        let batch = found.ok_or_else(|| {
            PyIndexError::new_err(format!(
                "number: must be from 0 and below {}, found {number}",
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

/// The rows of one batch as one sequence; see the stub.
#[pyclass(frozen, get_all, module = "semlex._core")]
pub(crate) struct TokenBatch {
    rows: Py<PyArray1<i64>>,
    ids: Py<PyArray1<i64>>,
    positions: Py<PyArray1<i64>>,
    documents: Py<PyArray1<i64>>,
    offsets: Py<PyArray1<i64>>,
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

/// Tokens that all rows begin with; see the stub.
#[pyfunction]
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
