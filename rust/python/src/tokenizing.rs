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

/// Byte pair encoding as in the models of Qwen and in Llama 2.
///
/// Threads can share it and run in parallel. The first kind merges bytes of pieces that a pattern
/// cuts; the second writes ``▁`` for spaces and merges characters, or the bytes of those that its vocabulary lacks.
///
/// Ids, counts and offsets are those of the tokenizers library, for every text.
///
/// Args:
///     content: A ``tokenizer.json``.
///
/// Raises:
///     NotImplementedError: The file needs something that neither kind has: another model, normaliser,
///         splitting pattern or post-processor. The message names it.
///     ValueError: The file is malformed.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct BpeTokenizer {
    core: Tokenizer,
}

#[pymethods]
impl BpeTokenizer {
    #[new]
    #[pyo3(signature = (content: "bytes"))]
    fn new(py: Python<'_>, content: &Bound<'_, PyBytes>) -> PyResult<Self> {
        let bytes = content.as_bytes();
        let core = detached(py, || Tokenizer::read(bytes))?.map_err(|error| match error {
            ReadError::Malformed(_) => PyValueError::new_err(error.to_string()),
            ReadError::Unsupported(what) => PyNotImplementedError::new_err(what),
        })?;
        Ok(Self { core })
    }

    /// Ids that the file's own post-processor puts before and after a text; the methods leave them out.
    #[getter] // -> tuple[list[int], list[int]]
    fn special_prefix_suffix(&self) -> (Vec<i64>, Vec<i64>) {
        let (prefix, suffix) = self.core.special_prefix_suffix();
        (prefix.to_vec(), suffix.to_vec())
    }

    /// Return the id of a token, as the vocabulary spells it; None if it is unknown.
    #[pyo3(signature = (token: "str") -> "int | None")]
    fn token_id(&self, token: &str) -> Option<u32> {
        self.core.token_id(token)
    }

    /// Encode texts.
    ///
    /// Args:
    ///     texts: n texts.
    ///     head: Ids in front of every row.
    ///     tail: Ids after every row.
    ///     most: Maximum tokens of a text, from 0; longer texts lose their end. None: no limit.
    ///     special_tokens_as_text: Whether the spelling of a special token inside a text is ordinary text. Other added
    ///         tokens are found in either case.
    ///
    /// Returns:
    ///     ids: (t,) the rows one after the other: head, the text's ids, tail.
    ///     offsets: (n + 1,); row i is ``ids[offsets[i]:offsets[i + 1]]``.
    ///     cut: Numbers of the rows that lost tokens, ascending.
    ///
    /// Raises:
    ///     ValueError: `most` is negative.
    ///     UnicodeEncodeError: A text holds a lone surrogate.
    #[pyo3(signature = (
        texts: "Sequence[str]",
        *,
        head: "Sequence[int]",
        tail: "Sequence[int]",
        most: "int | None" = None,
        special_tokens_as_text: "bool" = false,
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]")]
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

    /// Count tokens: (n,) for n texts; arguments and errors as those of `encode`.
    #[pyo3(signature = (
        texts: "Sequence[str]",
        *,
        special_tokens_as_text: "bool" = false,
    ) -> "NDArray[np.int64]")]
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

    /// Find the position of each token.
    ///
    /// A token that holds a part of a character covers all of it. If normalisation joined several characters to one,
    /// its tokens cover the first of them.
    ///
    /// Args:
    ///     text: One text.
    ///     special_tokens_as_text: As in `encode`.
    ///
    /// Returns:
    ///     (t, 2) start and end in characters of the text as given, both columns ascending.
    ///
    /// Raises:
    ///     UnicodeEncodeError: The text holds a lone surrogate.
    #[pyo3(signature = (
        text: "str",
        *,
        special_tokens_as_text: "bool" = false,
    ) -> "NDArray[np.int64]")]
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
