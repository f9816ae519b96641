//! Every call of Rust goes through here: the interpreter is released, and a panic becomes an ordinary exception. The
//! core's errors become `semlex.errors.ValidationError` here, too.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use semlex_core::field_error::FieldError;

/// Longer ids are cut in messages.
const SHOWN_ID_CHARACTERS: usize = 80;

/// (row, id, field, code, limit, actual): the attributes of `semlex.errors.FieldError`, in their order.
pub(crate) type FieldErrorTuple = (
    i64,
    Option<String>,
    String,
    &'static str,
    Option<String>,
    Option<String>,
);

/// Work of fewer nanoseconds holds the interpreter, because a busy thread that takes it keeps it for 5 ms. Up to this
/// bound, keyword search runs on the event loop (`MAX_POSTINGS_ON_LOOP`).
const WORTH_RELEASING: usize = 500_000;

/// Runs `work`, which takes about this many nanoseconds; the interpreter is released if that is worth it.
pub(crate) fn run<T, F>(py: Python<'_>, nanoseconds: usize, work: F) -> PyResult<T>
where
    T: Send,
    F: Send + FnOnce() -> T,
{
    if nanoseconds < WORTH_RELEASING {
        caught(|| Ok(work()))
    } else {
        detached(py, work)
    }
}

/// Runs `work` with the interpreter released.
///
/// A panic in `work` would otherwise reach Python as a `BaseException`, which `except Exception` misses.
pub(crate) fn detached<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Send,
    F: Send + FnOnce() -> T,
{
    py.detach(|| catch_unwind(AssertUnwindSafe(work)))
        .map_err(internal_error)
}

/// Runs `work` with the interpreter held; a panic in it becomes an ordinary exception as well.
pub(crate) fn caught<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(internal_error)?
}

/// The exception for a panic, with its message.
#[allow(clippy::needless_pass_by_value, reason = "a panic is handed over")]
fn internal_error(panic: Box<dyn Any + Send>) -> PyErr {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    defect(said.unwrap_or("unknown"))
}

/// An error of the program itself.
pub(crate) fn defect(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "internal error in semlex._core: {what}; please report it with the inputs' shapes"
    ))
}

/// The error as Python sees it, with the id of its row.
pub(crate) fn field_error_tuple(
    found: FieldError,
    ids: Option<&Bound<'_, PyTuple>>,
) -> FieldErrorTuple {
    let row = found
        .row
        .and_then(|row| i64::try_from(row).ok())
        .unwrap_or(-1);
    let id = found
        .row
        .and_then(|row| ids?.get_item(row).ok())
        .and_then(|id| shortened(&id));
    let limit = found.rule.limit.map(std::borrow::Cow::into_owned);
    (
        row,
        id,
        found.field,
        found.rule.code.name(),
        limit,
        found.rule.actual,
    )
}

/// The id, or `None` if it is not a usable text.
fn shortened(id: &Bound<'_, PyAny>) -> Option<String> {
    let text = id.cast::<PyString>().ok()?.to_str().ok()?;
    Some(text.chars().take(SHOWN_ID_CHARACTERS).collect())
}

/// All errors as one `semlex.errors.ValidationError`.
pub(crate) fn validation_error(
    py: Python<'_>,
    errors: Vec<FieldError>,
    ids: Option<&Bound<'_, PyTuple>>,
) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let module = py.import("semlex.errors")?;
        let field_error = module.getattr("FieldError")?;
        let errors = errors
            .into_iter()
            .map(|found| field_error.call1(field_error_tuple(found, ids)))
            .collect::<PyResult<Vec<_>>>()?;
        Ok(PyErr::from_value(
            module.getattr("ValidationError")?.call1((errors,))?,
        ))
    };
    build().unwrap_or_else(|error| error)
}
