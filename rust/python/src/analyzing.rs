//! `Analyzer` and `Query`.

use std::sync::atomic::{AtomicU64, Ordering};

use numpy::PyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use semlex_core::keyword::analyzer::{self, AnalyzerError, QueryTerms, parse_query};

use crate::arguments::at_least;
use crate::errors::{detached, run};

/// Nanoseconds, at most, of analysing a byte of a query.
const QUERY_BYTE_NANOSECONDS: usize = 200;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Splits documents and queries into terms. Threads can share it and run in parallel.
///
/// Words are folded (case, accents, widths; marks stay where they are letters, as in Indic scripts), then stemmed by
/// the language's Snowball stemmer. Languages without one, and ``simple``, keep their words as they are. Han and kana
/// become overlapping pairs and single characters, Thai, Lao, Khmer and Burmese overlapping threes, in every language.
/// Identifiers, paths, versions and words with hyphens are found whole and in parts. A term has at most 128 bytes.
///
/// Args:
///     language: A name or an ISO 639-1 code.
///     stop_words: Whether the language's stop words have no terms. The lists are those of NLTK, folded like the text.
///         Armenian, Czech, Esperanto, Estonian, Hindi, Irish, Lithuanian, Persian, Polish, Serbian, Sesotho,
///         Ukrainian, Yiddish and the languages without a stemmer have none; those of Arabic, Basque and Indonesian
///         are left out, because they hold words that people search for.
///
/// Raises:
///     ValueError: The language is unknown; the message lists the known ones.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct Analyzer {
    pub(crate) inner: analyzer::Analyzer,
    /// Its number in this process: what builders have learnt of its words is kept by it.
    pub(crate) number: u64,
}

/// The terms of a query in one language.
///
/// Attributes:
///     wanted: (slot, term) of each distinct term of the words and phrases, in order. The slot identifies the word of
///         the query and is the same in every language. A term with accents follows the folded one; its slot has bit 31
///         set. If there are more than `max_terms`, the first ones are kept.
///     phrases: The terms of each phrase, one per word position; no phrase is empty.
///     excluded: The terms of each excluded word or phrase, likewise.
///     total: Number of distinct wanted terms before the cut.
///     conditions: Number of terms of all phrases and exclusions, repeats included. If it exceeds `max_terms`,
///         ``phrases`` and ``excluded`` are empty, and the query must be refused.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct Query {
    terms: QueryTerms,
}

/// Return the name in `ANALYZER_LANGUAGES` for a name or an ISO 639-1 code, in any case.
///
/// Raises:
///     ValueError: The language is unknown; the message lists the known ones.
#[pyfunction]
#[pyo3(signature = (name: "str") -> "str")]
pub(crate) fn language_named(name: &str) -> PyResult<&'static str> {
    analyzer::language_named(name).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl Analyzer {
    #[new]
    #[pyo3(signature = (language: "str", stop_words: "bool" = true))]
    fn new(py: Python<'_>, language: &str, stop_words: bool) -> PyResult<Self> {
        let made = detached(py, || analyzer::Analyzer::new(language, stop_words))?;
        let inner = made.map_err(|error| match error {
            AnalyzerError::Language(_) => PyValueError::new_err(error.to_string()),
            AnalyzerError::Tables => PyRuntimeError::new_err(error.to_string()),
        })?;
        Ok(Self {
            inner,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The name of its language.
    #[getter] // -> str
    fn language(&self) -> &'static str {
        self.inner.language()
    }

    fn __repr__(&self) -> String {
        format!("Analyzer({:?})", self.inner.language())
    }

    /// Return all terms of a text in order, repetitions included.
    ///
    /// A word whose stem has accents has a second term, which keeps them and begins with ``=``.
    #[pyo3(signature = (text: "str") -> "list[str]")]
    fn terms(&self, py: Python<'_>, text: &str) -> PyResult<Vec<String>> {
        detached(py, || {
            let mut terms = Vec::new();
            self.inner
                .text_terms(text, |term| terms.push(term.to_owned()));
            terms
        })
    }

    /// Return the terms of a query. Every text is a valid query.
    ///
    /// ``"quotes"`` hold a phrase, straight or typographic; without a closing quote they mean nothing. ``-word`` and
    /// ``-"a phrase"`` exclude, at the start of the text or after white space; a letter or a quote must follow the
    /// dash, so ``-5`` is a number.
    ///
    /// Args:
    ///     text: The query.
    ///     max_terms: Maximum number of wanted terms, and of terms of phrases and exclusions, from 0.
    ///
    /// Raises:
    ///     ValueError: `max_terms` is negative.
    #[pyo3(signature = (text: "str", max_terms: "int" = 64) -> "Query")]
    fn query(&self, py: Python<'_>, text: &str, max_terms: i64) -> PyResult<Query> {
        let max_terms = at_least("max_terms", max_terms, 0)?;
        let nanoseconds = text.len().saturating_mul(QUERY_BYTE_NANOSECONDS);
        let terms = run(py, nanoseconds, || {
            self.inner.query(&parse_query(text), max_terms)
        })?;
        Ok(Query { terms })
    }

    /// Report which texts contain the phrases of a `Query`.
    ///
    /// The terms of a phrase must follow each other. Stop words take no position in the text, so the phrase
    /// ``bank of america`` is also found in ``bank, America``; punctuation takes none either. A phrase without terms is
    /// in every text.
    ///
    /// Args:
    ///     texts: n texts.
    ///     phrases: The terms of each phrase that a text must hold.
    ///     excluded: The terms of each word or phrase that it must not hold.
    ///
    /// Returns:
    ///     bool (n,): whether the text holds all phrases, and nothing that is excluded.
    #[pyo3(signature = (
        texts: "Sequence[str]",
        phrases: "Sequence[Sequence[str]]",
        excluded: "Sequence[Sequence[str]]" = Vec::new(),
    ) -> "NDArray[np.bool_]")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn matches<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<PyBackedStr>,
        phrases: Vec<Vec<String>>,
        excluded: Vec<Vec<String>>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let matched = detached(py, || {
            let texts = texts.iter().map(|text| &**text);
            self.inner.matches(texts, &phrases, &excluded)
        })?;
        Ok(PyArray1::from_vec(py, matched))
    }
}

#[pymethods]
impl Query {
    /// (slot, term) of each wanted term.
    #[getter] // -> list[tuple[int, str]]
    fn wanted(&self) -> Vec<(u64, String)> {
        self.terms.wanted.clone()
    }

    /// Terms of each phrase.
    #[getter] // -> list[list[str]]
    fn phrases(&self) -> Vec<Vec<String>> {
        self.terms.phrases.clone()
    }

    /// Terms of each exclusion.
    #[getter] // -> list[list[str]]
    fn excluded(&self) -> Vec<Vec<String>> {
        self.terms.excluded.clone()
    }

    /// Wanted terms before the cut.
    #[getter] // -> int
    fn total(&self) -> usize {
        self.terms.total
    }

    /// Terms of all phrases and exclusions.
    #[getter] // -> int
    fn conditions(&self) -> usize {
        self.terms.conditions
    }

    fn __repr__(&self) -> String {
        let terms = &self.terms;
        format!(
            "Query({} terms, {} phrases, {} exclusions)",
            terms.wanted.len(),
            terms.phrases.len(),
            terms.excluded.len()
        )
    }
}
