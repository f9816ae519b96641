//! `plan_batches`.

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
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
    .map_err(|fault| PyValueError::new_err(fault.to_string()))?;
    Ok(BatchPlan {
        order: PyArray1::from_vec(py, plan.order).unbind(),
        boundaries: PyArray1::from_vec(py, plan.boundaries).unbind(),
        inverse: PyArray1::from_vec(py, plan.inverse).unbind(),
        real_tokens: plan.real_tokens,
        computed_tokens: plan.computed_tokens,
    })
}
