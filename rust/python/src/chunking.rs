//! `split_text`, `word_offsets` and `count_words`.

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

/// The chunks of a text in its order; row i of every array is chunk i.
///
/// Attributes:
///     starts: (c,) where each begins, in characters; strictly ascending.
///     ends: (c,) where each ends, in characters (exclusive); strictly ascending.
///     token_counts: (c,) tokens that touch each.
///     lines: (c,) line on which each begins, from 1; a line ends with ``\n``, ``\r`` or both.
///     code: (c,) whether each is code, or lies inside one block of it.
///     headings: c paths of titles, outermost first; levels without a title are left out. A chunk with text of several
///         sections has the common part of their paths. Titles are cut at 256 characters.
///     introductions: c texts: the words that introduce the list, table or code that a chunk continues, or None.
///     title: The first title of level 1, or None.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct Chunks {
    #[pyo3(get)]
    starts: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    #[pyo3(get)]
    ends: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    #[pyo3(get)]
    token_counts: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    #[pyo3(get)]
    lines: Py<PyArray1<i64>>, // -> NDArray[np.int64]
    #[pyo3(get)]
    code: Py<PyArray1<bool>>, // -> NDArray[np.bool_]
    #[pyo3(get)]
    headings: Py<PyList>, // -> list[tuple[str, ...]]
    #[pyo3(get)]
    introductions: Py<PyList>, // -> list[str | None]
    #[pyo3(get)]
    title: Option<Py<PyString>>, // -> str | None
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

/// Split a text into chunks of up to `max_tokens` tokens, in time linear in its length.
///
/// Sections end at headings: of Markdown (CommonMark 0.31: ATX and setext, not in fenced code, comments or front
/// matter), of reStructuredText (underlines, and directives that describe an object), or the definitions of source
/// code. A section below `min_tokens` is joined with the following sibling or child where both fit; headings without
/// text are joined with what follows. Inside a section the text is packed greedily: paragraphs (code stays whole
/// where it fits), then lines, sentences, words, parts of words, graphemes, characters. An introduction (a heading,
/// words that end with a colon, a directive, the header of a table) stays with the first part of what it introduces if
/// both fit.
///
/// Together the chunks hold every character that is not blank (``str.isspace``); none is blank. A token that is cut in
/// two counts on both sides. A single character with more tokens than `max_tokens` is a chunk nevertheless.
///
/// Args:
///     text: The text.
///     token_offsets: (t, 2) start and end of every token in characters, both columns ascending; None where the
///         tokens are the words of `word_offsets`.
///     max_tokens: Maximum tokens of a chunk, from 1.
///     overlap_tokens: Maximum tokens that neighbours of one section share, below `max_tokens`; 0 for none. No
///         character is in more than two chunks.
///     min_tokens: Sections with fewer tokens are joined with a neighbour; from 0.
///     structure: ``plain`` (one section), ``markdown``, ``restructuredtext``, or ``code:`` with the suffix of such
///         files (``code:py``).
///     max_bytes: Maximum bytes of a chunk in UTF-8, from 4.
///
/// Raises:
///     ValueError: A number is out of its range, the offsets have another dtype or shape, a row of them lies outside
///         the text or out of order, or the text holds a lone surrogate; the message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (
    text: "str",
    token_offsets: "NDArray[np.int64] | None",
    *,
    max_tokens: "int",
    overlap_tokens: "int",
    min_tokens: "int",
    structure: "str",
    max_bytes: "int",
) -> "Chunks")]
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

/// Find the words that contain a letter or a digit (Unicode Standard Annex 29, section 4).
///
/// Args:
///     text: The text.
///
/// Returns:
///     (w, 2) start and end in characters, in ascending order, without overlap.
///
/// Raises:
///     ValueError: The text holds a lone surrogate; the message names the character.
#[pyfunction]
#[pyo3(signature = (text: "str") -> "NDArray[np.int64]")]
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

/// Count the words of `word_offsets` in each text.
///
/// Args:
///     texts: n texts.
///
/// Returns:
///     (n,) numbers of words.
///
/// Raises:
///     ValueError: A text holds a lone surrogate; the message names the text and the character.
#[pyfunction]
#[pyo3(signature = (texts: "Sequence[str]") -> "NDArray[np.int64]")]
pub(crate) fn count_words<'py>(
    py: Python<'py>,
    texts: Vec<Bound<'py, PyString>>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let texts: Vec<&str> = texts
        .iter()
        .enumerate()
        .map(|(row, text)| utf8(&format!("texts[{row}]"), text))
        .collect::<PyResult<_>>()?;
    let counts = detached(py, || {
        texts
            .iter()
            .map(|text| integer(chunk::words::count_words(text)))
            .collect::<PyResult<Vec<i64>>>()
    })??;
    Ok(PyArray1::from_vec(py, counts))
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
    PyValueError::new_err("text: the offsets of its chunks are out of range")
}
