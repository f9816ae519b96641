//! `split_text` and `word_offsets`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use semlex_core::chunk::code::Language;
use semlex_core::chunk::offsets::OffsetConverter;
use semlex_core::chunk::outline::Path;
use semlex_core::chunk::tokens::Tokens;
use semlex_core::chunk::{self, Options, Structure};

use crate::arguments::{at_least, pairs, utf8};
use crate::errors::detached;

/// The chunks of a text, in its order; row i of every array is chunk i.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct Chunks {
    #[pyo3(get)]
    starts: Py<PyArray1<i64>>,
    #[pyo3(get)]
    ends: Py<PyArray1<i64>>,
    #[pyo3(get)]
    token_counts: Py<PyArray1<i64>>,
    #[pyo3(get)]
    lines: Py<PyArray1<i64>>,
    #[pyo3(get)]
    code: Py<PyArray1<bool>>,
    #[pyo3(get)]
    headings: Py<PyList>,
    #[pyo3(get)]
    introductions: Py<PyList>,
    #[pyo3(get)]
    title: Option<Py<PyString>>,
}

/// The same, as Rust makes it.
struct Columns {
    starts: Vec<i64>,
    ends: Vec<i64>,
    token_counts: Vec<i64>,
    lines: Vec<i64>,
    code: Vec<bool>,
    paths: Vec<Path>,
    introductions: Vec<Option<String>>,
    titles: Vec<String>,
    title: Option<u32>,
}

#[pymethods]
impl Chunks {
    fn __len__(&self, py: Python<'_>) -> usize {
        self.headings.bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("Chunks({} chunks)", self.__len__(py))
    }
}

/// Cuts a text into chunks; see the stub for the rules.
#[pyfunction]
#[pyo3(signature = (text, token_offsets, *, max_tokens, overlap_tokens, min_tokens, structure, max_bytes))]
#[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn split_text(
    py: Python<'_>,
    text: &Bound<'_, PyString>,
    token_offsets: Option<&Bound<'_, PyAny>>,
    max_tokens: i64,
    overlap_tokens: i64,
    min_tokens: i64,
    structure: &str,
    max_bytes: i64,
) -> PyResult<Chunks> {
    let options = Options {
        max_tokens: at_least("max_tokens", max_tokens, 1)?,
        overlap_tokens: at_least("overlap_tokens", overlap_tokens, 0)?,
        min_tokens: at_least("min_tokens", min_tokens, 0)?,
        max_bytes: at_least("max_bytes", max_bytes, chunk::MIN_MAX_BYTES)?,
        structure: structure_named(structure)?,
    };
    if options.overlap_tokens >= options.max_tokens {
        return Err(PyValueError::new_err(format!(
            "overlap_tokens: must be below max_tokens, {max_tokens}; found {overlap_tokens}"
        )));
    }
    let text = utf8("text", text)?;
    let offsets = token_offsets
        .map(|offsets| pairs::<i64>(&|| "token_offsets".to_owned(), offsets))
        .transpose()?;
    let columns = detached(py, || {
        let tokens = match &offsets {
            None => Tokens::of_words(text),
            Some(offsets) => Tokens::from_characters(text, offsets)
                .map_err(|error| PyValueError::new_err(format!("token_offsets: {error}")))?,
        };
        cut(text, &tokens, &options)
    })??;
    columns.wrap(py)
}

fn structure_named(name: &str) -> PyResult<Structure> {
    match (name, name.strip_prefix("code:")) {
        ("plain", _) => Ok(Structure::Plain),
        ("markdown", _) => Ok(Structure::Markdown),
        ("restructuredtext", _) => Ok(Structure::Restructured),
        (_, Some(suffix)) => Ok(Structure::Code(Language::of_suffix(suffix))),
        _ => Err(PyValueError::new_err(format!(
            "structure: must be 'plain', 'markdown', 'restructuredtext' or 'code:' with a suffix; found {name:?}"
        ))),
    }
}

/// Start and end of every word; see the stub.
#[pyfunction]
pub(crate) fn word_offsets<'py>(
    py: Python<'py>,
    text: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let text = utf8("text", text)?;
    let flat = detached(py, || {
        let words = chunk::words::word_offsets(text);
        words
            .into_iter()
            .flat_map(|(start, end)| [start, end])
            .map(integer)
            .collect::<PyResult<Vec<i64>>>()
    })??;
    let rows = flat.len() / 2;
    PyArray1::from_vec(py, flat).reshape([rows, 2])
}

fn cut(text: &str, tokens: &Tokens, options: &Options) -> PyResult<Columns> {
    let found = chunk::split_text(text, tokens, options);
    let count = found.chunks.len();
    let mut columns = Columns {
        starts: Vec::with_capacity(count),
        ends: Vec::with_capacity(count),
        token_counts: Vec::with_capacity(count),
        lines: Vec::with_capacity(count),
        code: Vec::with_capacity(count),
        paths: Vec::with_capacity(count),
        introductions: Vec::with_capacity(count),
        titles: found.titles,
        title: found.title,
    };
    let (mut starts, mut ends) = (OffsetConverter::new(text), OffsetConverter::new(text));
    let character = |cursor: &mut OffsetConverter<'_>, byte: usize| {
        let found = cursor.character(byte);
        found.map_or_else(|| Err(out_of_order()), integer)
    };
    for chunk in found.chunks {
        columns
            .starts
            .push(character(&mut starts, chunk.range.start)?);
        columns.ends.push(character(&mut ends, chunk.range.end)?);
        columns.token_counts.push(integer(chunk.tokens)?);
        columns.lines.push(integer(chunk.line)?);
        columns.code.push(chunk.code);
        columns.paths.push(chunk.path);
        let introduction = chunk.introduction.and_then(|range| text.get(range));
        columns.introductions.push(introduction.map(str::to_owned));
    }
    Ok(columns)
}

impl Columns {
    fn wrap(self, py: Python<'_>) -> PyResult<Chunks> {
        // One object per title: a title stands above many chunks.
        let titles: Vec<Bound<'_, PyString>> = self
            .titles
            .iter()
            .map(|title| PyString::new(py, title))
            .collect();
        let titled = |number: u32| titles.get(usize::try_from(number).ok()?).cloned();
        let headings = PyList::empty(py);
        let mut last = None;
        for path in self.paths {
            let tuple = match last {
                Some((before, ref tuple)) if before == path => Bound::clone(tuple),
                _ => PyTuple::new(
                    py,
                    path.0
                        .into_iter()
                        .flatten()
                        .filter_map(titled)
                        .collect::<Vec<_>>(),
                )?,
            };
            headings.append(&tuple)?;
            last = Some((path, tuple));
        }
        Ok(Chunks {
            starts: PyArray1::from_vec(py, self.starts).unbind(),
            ends: PyArray1::from_vec(py, self.ends).unbind(),
            token_counts: PyArray1::from_vec(py, self.token_counts).unbind(),
            lines: PyArray1::from_vec(py, self.lines).unbind(),
            code: PyArray1::from_vec(py, self.code).unbind(),
            headings: headings.unbind(),
            introductions: PyList::new(py, self.introductions)?.unbind(),
            title: self.title.and_then(titled).map(Bound::unbind),
        })
    }
}

fn integer(value: usize) -> PyResult<i64> {
    i64::try_from(value).map_err(|_| out_of_order())
}

fn out_of_order() -> PyErr {
    PyValueError::new_err("text: its chunks cannot be counted in characters")
}
