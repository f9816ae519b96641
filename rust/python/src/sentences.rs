//! `split_sentences` and `rank_sentences`.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyString;
use semlex_core::chunk::offsets::OffsetConverter;
use semlex_core::keyword::analyzer::parse_query;
use semlex_core::sentences::rank::{self, Passage};
use semlex_core::sentences::split::{self, Kind};

use crate::analyzing::Analyzer;
use crate::arguments::utf8;
use crate::errors::detached;

/// Most words of a question that are looked for.
const MAX_TERMS: usize = 64;

/// (start, end, kind)
type Place = (usize, usize, &'static str);
/// (passage, start, end, kind, score, own)
type Score = (usize, usize, usize, &'static str, f64, f64);

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Prose => "prose",
        Kind::Heading => "heading",
        Kind::Code => "code",
    }
}

/// Start, end and kind of every sentence; see the stub.
#[pyfunction]
pub(crate) fn split_sentences(py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<Vec<Place>> {
    let text = utf8("text", text)?;
    detached(py, || {
        let mut characters = OffsetConverter::new(text);
        let places = split::sentences(text).into_iter().filter_map(|one| {
            let start = characters.character(one.range.start)?;
            let end = characters.character(one.range.end)?;
            Some((start, end, name(one.kind)))
        });
        places.collect()
    })
}

/// Every sentence of the passages with its score; see the stub.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
pub(crate) fn rank_sentences(
    py: Python<'_>,
    analyzer: &Analyzer,
    question: &Bound<'_, PyString>,
    passages: Vec<(PyBackedStr, PyBackedStr)>,
) -> PyResult<Vec<Score>> {
    let question = utf8("question", question)?;
    detached(py, || {
        let terms = analyzer.inner.query(&parse_query(question), MAX_TERMS);
        let wanted: Vec<String> = terms.wanted.into_iter().map(|(_, term)| term).collect();
        let passages: Vec<Passage<'_>> = passages
            .iter()
            .map(|(text, headings)| Passage { text, headings })
            .collect();
        let mut converters: Vec<OffsetConverter<'_>> = passages
            .iter()
            .map(|passage| OffsetConverter::new(passage.text))
            .collect();
        let ranked = rank::rank(&analyzer.inner, &wanted, &passages);
        let scores = ranked.into_iter().filter_map(|one| {
            let characters = converters.get_mut(one.passage)?;
            let start = characters.character(one.range.start)?;
            let end = characters.character(one.range.end)?;
            let kind = name(one.kind);
            Some((one.passage, start, end, kind, one.score, one.own))
        });
        scores.collect()
    })
}
