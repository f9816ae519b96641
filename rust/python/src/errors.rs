//! The one door into Rust: release the interpreter, run, turn a panic into an ordinary exception.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Runs `work` with the interpreter released.
///
/// A panic in `work` would otherwise reach Python as a `BaseException`, which `except Exception` misses.
pub(crate) fn detached<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Send,
    F: Send + FnOnce() -> T,
{
    py.detach(|| catch_unwind(AssertUnwindSafe(work)))
        .map_err(|_| {
            PyRuntimeError::new_err(
                "internal error in semlex._core; please report it with the inputs' shapes",
            )
        })
}
