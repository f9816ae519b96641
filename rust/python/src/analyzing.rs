//! `Analyzer` and `Query`.

use std::sync::atomic::{AtomicU64, Ordering};

use numpy::PyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use semlex_core::keyword::analyzer::{self, AnalyzerError, QueryTerms, parse_query};

use crate::arguments::at_least;
use crate::errors::detached;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Terms of texts and of queries; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct Analyzer {
    pub(crate) inner: analyzer::Analyzer,
    /// Its number in this process: what builders have learnt of its words is kept by it.
    pub(crate) number: u64,
}

/// The terms of a query.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct Query {
    terms: QueryTerms,
}

/// The canonical name of a language; see the stub.
#[pyfunction]
pub(crate) fn language_named(name: &str) -> PyResult<&'static str> {
    analyzer::language_named(name).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl Analyzer {
    #[new]
    #[pyo3(signature = (language, stop_words = true))]
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
    #[getter]
    fn language(&self) -> &'static str {
        self.inner.language()
    }

    fn __repr__(&self) -> String {
        format!("Analyzer({:?})", self.inner.language())
    }

    /// All terms of a text.
    fn terms(&self, py: Python<'_>, text: &str) -> PyResult<Vec<String>> {
        detached(py, || {
            let mut terms = Vec::new();
            self.inner
                .text_terms(text, |term| terms.push(term.to_owned()));
            terms
        })
    }

    /// The terms of a query.
    #[pyo3(signature = (text, max_terms = 64))]
    fn query(&self, py: Python<'_>, text: &str, max_terms: i64) -> PyResult<Query> {
        let max_terms = at_least("max_terms", max_terms, 0)?;
        let terms = detached(py, || self.inner.query(&parse_query(text), max_terms))?;
        Ok(Query { terms })
    }

    /// For each text, whether it holds the phrases and nothing that is excluded.
    #[pyo3(signature = (texts, phrases, excluded = Vec::new()))]
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

    /// The place of the first matched word of each text.
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn first_matches(
        &self,
        py: Python<'_>,
        texts: Vec<PyBackedStr>,
        terms: Vec<String>,
    ) -> PyResult<Vec<Option<usize>>> {
        detached(py, || {
            let texts = texts.iter().map(|text| &**text);
            self.inner.first_matches(texts, &terms)
        })
    }

    /// An excerpt of each text.
    #[pyo3(signature = (texts, terms, max_characters = 240))]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn excerpts(
        &self,
        py: Python<'_>,
        texts: Vec<PyBackedStr>,
        terms: Vec<String>,
        max_characters: i64,
    ) -> PyResult<Vec<String>> {
        let most = at_least("max_characters", max_characters, 1)?;
        detached(py, || {
            let texts = texts.iter().map(|text| &**text);
            self.inner.excerpts(texts, &terms, most)
        })
    }
}

#[pymethods]
impl Query {
    /// (slot, term) of each wanted term.
    #[getter]
    fn wanted(&self) -> Vec<(u64, String)> {
        self.terms.wanted.clone()
    }

    /// Terms of each phrase.
    #[getter]
    fn phrases(&self) -> Vec<Vec<String>> {
        self.terms.phrases.clone()
    }

    /// Terms of each exclusion.
    #[getter]
    fn excluded(&self) -> Vec<Vec<String>> {
        self.terms.excluded.clone()
    }

    /// Wanted terms before the cut.
    #[getter]
    fn total(&self) -> usize {
        self.terms.total
    }

    /// Terms of all phrases and exclusions.
    #[getter]
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
