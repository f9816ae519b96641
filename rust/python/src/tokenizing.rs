//! `BpeTokenizer`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;
use semlex_core::tokenizer::{ReadError, Tokenizer};

use crate::arguments::at_least;
use crate::errors::detached;

type TokenRows<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
);

/// Byte pair encoding; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct BpeTokenizer {
    core: Tokenizer,
}

#[pymethods]
impl BpeTokenizer {
    #[new]
    fn new(py: Python<'_>, content: &Bound<'_, PyBytes>) -> PyResult<Self> {
        let bytes = content.as_bytes();
        let core = detached(py, || Tokenizer::read(bytes))?.map_err(|error| match error {
            ReadError::Malformed(_) => PyValueError::new_err(error.to_string()),
            ReadError::Unsupported(what) => PyNotImplementedError::new_err(what),
        })?;
        Ok(Self { core })
    }

    /// Ids before and behind a text.
    #[getter]
    fn special_prefix_suffix(&self) -> (Vec<i64>, Vec<i64>) {
        let (prefix, suffix) = self.core.special_prefix_suffix();
        (prefix.to_vec(), suffix.to_vec())
    }

    /// The id of a token.
    fn token_id(&self, token: &str) -> Option<u32> {
        self.core.token_id(token)
    }

    /// Rows of ids.
    #[pyo3(signature = (texts, *, head, tail, most = None, special_tokens_as_text = false))]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<PyBackedStr>,
        head: Vec<i64>,
        tail: Vec<i64>,
        most: Option<i64>,
        special_tokens_as_text: bool,
    ) -> PyResult<TokenRows<'py>> {
        let most = most.map_or(Ok(usize::MAX), |most| at_least("most", most, 0))?;
        let rows = detached(py, || {
            let texts = texts.iter().map(|text| &**text);
            self.core
                .encode(texts, &head, &tail, most, special_tokens_as_text)
        })?;
        Ok((
            PyArray1::from_vec(py, rows.ids),
            PyArray1::from_vec(py, rows.offsets),
            PyArray1::from_vec(py, rows.cut),
        ))
    }

    /// Tokens of each text.
    #[pyo3(signature = (texts, *, special_tokens_as_text = false))]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn count<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<PyBackedStr>,
        special_tokens_as_text: bool,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let counts = detached(py, || {
            let texts = texts.iter().map(|text| &**text);
            self.core.count(texts, special_tokens_as_text)
        })?;
        Ok(PyArray1::from_vec(py, counts))
    }

    /// Where tokens stand.
    #[pyo3(signature = (text, *, special_tokens_as_text = false))]
    fn offsets<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        special_tokens_as_text: bool,
    ) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let pairs = detached(py, || self.core.offsets(text, special_tokens_as_text))?;
        let rows = pairs.len();
        let flat = pairs.into_iter().flat_map(|(start, end)| [start, end]);
        PyArray1::from_vec(py, flat.collect()).reshape([rows, 2])
    }
}
