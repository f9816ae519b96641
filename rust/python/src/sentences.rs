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

/// Maximum number of a question's words that are searched for.
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

/// Split a text into sentences, in order and without overlap.
///
/// Blank lines, list items, table rows, titles, code fences and literal blocks after ``::`` end a block of text.
/// In prose a sentence ends after a full stop or similar, but not after abbreviations, initials and ordinal numbers.
///
/// Returns:
///     (start, end, kind) of each, in characters; never empty, without blanks at its ends. ``kind`` is ``prose``,
///     ``heading`` or ``code``: up to eight lines without a blank one.
///
/// Raises:
///     ValueError: The text holds half of a surrogate pair.
#[pyfunction]
#[pyo3(signature = (text: "str") -> "list[tuple[int, int, str]]")]
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

/// Rank the sentences of passages by how well they answer a question.
///
/// A sentence scores by the question's words that it contains, weighted by their idf over all these sentences. Words of
/// neighbouring sentences, titles and the rest of the passage count less. The result is deterministic.
///
/// Args:
///     analyzer: Of the passages' language.
///     question: Its first 64 words count.
///     passages: (text, titles) of each, the best passage first.
///
/// Returns:
///     (passage, start, end, kind, score, own) of every sentence, passage by passage: the place as `split_sentences`
///     gives it; the score from 0, comparable within one question; ``own``, 0 to 1: the share of the question's weight
///     that comes from words in the sentence itself.
///
/// Raises:
///     ValueError: The question holds half of a surrogate pair.
#[pyfunction]
#[pyo3(signature = (
    analyzer: "Analyzer",
    question: "str",
    passages: "Sequence[tuple[str, str]]",
) -> "list[tuple[int, int, int, str, float, float]]")]
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
