//! `excerpts`.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use semlex_core::excerpts::excerpt;

use crate::analyzing::Analyzer;
use crate::errors::detached;

/// Make excerpts of texts: the sentences with most of the matched words.
///
/// Lines that are only instructions for a renderer are left out. A matched word is between ``**``; ``…`` marks omitted
/// text. An excerpt has up to 300 characters of the text, or one sentence of up to 400.
///
/// Args:
///     texts: n texts.
///     analyzer: Analyzer of their language; None matches no word.
///     terms: The wanted terms of a query.
///
/// Returns:
///     (excerpt, match) of each text: ``match`` is the position, in characters of the text, of the first matched word
///     in the excerpt, else of the first one in the text; None if no word matches.
#[pyfunction]
#[pyo3(signature = (
    texts: "Sequence[str]",
    analyzer: "Analyzer | None" = None,
    terms: "Sequence[str]" = Vec::new(),
) -> "list[tuple[str, int | None]]")]
#[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
pub(crate) fn excerpts(
    py: Python<'_>,
    texts: Vec<PyBackedStr>,
    analyzer: Option<&Analyzer>,
    terms: Vec<String>,
) -> PyResult<Vec<(String, Option<usize>)>> {
    detached(py, || {
        let own = texts.iter().map(|text| &**text);
        let matches = analyzer.map(|it| it.inner.match_places(own.clone(), &terms));
        let matches = matches.unwrap_or_else(|| vec![Vec::new(); texts.len()]);
        let made = own.zip(&matches).map(|(text, matches)| {
            let found = excerpt(text, matches);
            (found.shown, found.first_match)
        });
        made.collect()
    })
}
