//! `completed_fusion`, `fuse_legs`, `reciprocal_rank_fusion` and `linear_fusion`.

use numpy::{Element, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use semlex_core::fusion::{self, FusionError, LegScores, Spread};

use crate::arguments::{self, at_least};
use crate::errors;

/// Nanoseconds that fusing takes for an id.
const ID_NANOSECONDS: usize = 20;

type Ids<'py> = Bound<'py, PyArray1<i64>>;
type Scores<'py> = Bound<'py, PyArray1<f64>>;
type Ranked<'py> = (Ids<'py>, Scores<'py>);
type Explained<'py> = (Ids<'py>, Scores<'py>, Scores<'py>, Scores<'py>);
type Leg<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);
type FusedLegs<'py> = (
    Scores<'py>,
    Scores<'py>,
    Scores<'py>,
    Ids<'py>,
    Scores<'py>,
    Ids<'py>,
    Scores<'py>,
);

/// Fuse vector and keyword scores that are known for every candidate: score fusion.
///
/// ``(1 - w) * keyword / greatest keyword + w * z / 6``, ``z = (vector - mean) / deviation``. NaN means no score: that
/// search contributes nothing. Without a keyword score above 0 the first term is 0, without a deviation the second.
///
/// Args:
///     vector: (n,) vector scores, larger is better; NaN for a candidate without a vector.
///     keyword: (n,) keyword scores, from 0; NaN for none.
///     mean: Mean of the vector scores of a sample of all chunks.
///     deviation: Their standard deviation, from 0.
///     vector_weight: w, 0 to 1.
///
/// Returns:
///     order: (n,) places of the candidates in the input, best first; ties in the order of the input.
///     scores: (n,) their scores, the sums of the next two.
///     vector: (n,) what vector search contributed to each.
///     keyword: (n,) what keyword search contributed to each.
///
/// Raises:
///     ValueError: A number is out of its range, the arrays differ in length, or one has another dtype or shape; the
///         message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (
    vector: "NDArray[np.float64]",
    keyword: "NDArray[np.float64]",
    *,
    mean: "float",
    deviation: "float",
    vector_weight: "float",
) -> "tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]")]
pub(crate) fn completed_fusion<'py>(
    py: Python<'py>,
    vector: &Bound<'py, PyAny>,
    keyword: &Bound<'py, PyAny>,
    mean: f64,
    deviation: f64,
    vector_weight: f64,
) -> PyResult<Explained<'py>> {
    let vector = arguments::vector::<f64>(&|| "vector".to_owned(), vector)?;
    let keyword = arguments::vector::<f64>(&|| "keyword".to_owned(), keyword)?;
    let fused = run(py, vector.len(), || {
        fusion::completed_fusion(&vector, &keyword, Spread { mean, deviation }, vector_weight)
    })?;
    Ok((
        PyArray1::from_vec(py, fused.order),
        PyArray1::from_vec(py, fused.scores),
        PyArray1::from_vec(py, fused.vector),
        PyArray1::from_vec(py, fused.keyword),
    ))
}

/// Fuse the chunks that vector and keyword search found, as `completed_fusion` does.
///
/// Args:
///     vector: (numbers, scores, keyword scores) of the chunks that vector search found, (n,) each, best first. A chunk
///         has the same number in both searches. Keyword scores are NaN for none, and ignored for a chunk that keyword
///         search found as well.
///     keyword: (numbers, scores, vector scores) of the chunks that keyword search found, likewise, (m,) each.
///     mean: Mean of the vector scores of a sample of all chunks.
///     deviation: Their standard deviation, from 0.
///     vector_weight: Weight of vector search, 0 to 1.
///
/// Returns:
///     scores: (k,) fused scores of all candidates, best first; ties go to the smaller number.
///     near: (k,) what vector search contributed to each.
///     worded: (k,) what keyword search contributed to each.
///     vector_ranks: (k,) ranks in vector search, from 1; 0 for a chunk that it did not find.
///     vector_scores: (k,) vector scores; NaN for none.
///     keyword_ranks: (k,) ranks in keyword search, from 1; 0 for a chunk that it did not find.
///     keyword_scores: (k,) keyword scores; NaN for none.
///
/// Raises:
///     ValueError: A number is out of its range, arrays of one search differ in length, or one has another dtype or shape;
///         the message names it.
#[pyfunction]
#[pyo3(signature = (
    vector: "tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]",
    keyword: "tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]",
    *,
    mean: "float",
    deviation: "float",
    vector_weight: "float",
) -> "tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]")]
pub(crate) fn fuse_legs<'py>(
    py: Python<'py>,
    vector: Leg<'py>,
    keyword: Leg<'py>,
    mean: f64,
    deviation: f64,
    vector_weight: f64,
) -> PyResult<FusedLegs<'py>> {
    let (vector, keyword) = (
        OwnedLeg::of("vector", &vector)?,
        OwnedLeg::of("keyword", &keyword)?,
    );
    let ids = vector.numbers.len() + keyword.numbers.len();
    let spread = Spread { mean, deviation };
    let (fused, [near, worded]) = run(py, ids, || {
        fusion::fuse_legs(vector.scores(), keyword.scores(), spread, vector_weight)
    })?;
    Ok((
        PyArray1::from_vec(py, fused.scores),
        PyArray1::from_vec(py, fused.vector),
        PyArray1::from_vec(py, fused.keyword),
        PyArray1::from_vec(py, near.ranks),
        PyArray1::from_vec(py, near.scores),
        PyArray1::from_vec(py, worded.ranks),
        PyArray1::from_vec(py, worded.scores),
    ))
}

struct OwnedLeg {
    numbers: Vec<i64>,
    own: Vec<f64>,
    others: Vec<f64>,
}

impl OwnedLeg {
    fn of(name: &str, leg: &Leg<'_>) -> PyResult<Self> {
        let scores = |place: usize, column: &Bound<'_, PyAny>| {
            arguments::vector::<f64>(&|| format!("{name}[{place}]"), column)
        };
        Ok(Self {
            numbers: arguments::vector::<i64>(&|| format!("{name}[0]"), &leg.0)?,
            own: scores(1, &leg.1)?,
            others: scores(2, &leg.2)?,
        })
    }

    fn scores(&self) -> LegScores<'_> {
        LegScores {
            numbers: &self.numbers,
            own: &self.own,
            others: &self.others,
        }
    }
}

/// Fuse rankings by rank: ``score(d) = sum of weight / (k + rank of d)``, ranks from 1.
///
/// G. V. Cormack, C. L. A. Clarke and S. Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
/// Learning Methods", SIGIR 2009. An id that a ranking names twice counts there once, at its best rank.
///
/// Args:
///     rankings: Ids of each ranking, best first, each (n,); ties are broken by the smaller id.
///     weights: One per ranking, finite and not negative. Default: 1 each.
///     k: Constant, finite and not negative; larger values make the first ranks count less.
///     limit: Maximum number of ids returned, from 0. Default: all.
///
/// Returns:
///     ids: (m,) every id once, best first.
///     scores: (m,) their scores.
///
/// Raises:
///     ValueError: A weight, the constant or the limit is out of its range, there are more or fewer weights than
///         rankings, or an array has another dtype or shape; the message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (
    rankings: "Sequence[NDArray[np.int64]]",
    *,
    weights: "Sequence[float] | None" = None,
    k: "float" = 60.0,
    limit: "int | None" = None,
) -> "tuple[NDArray[np.int64], NDArray[np.float64]]")]
pub(crate) fn reciprocal_rank_fusion<'py>(
    py: Python<'py>,
    rankings: &Bound<'py, PyAny>,
    weights: Option<Vec<f64>>,
    k: f64,
    limit: Option<i64>,
) -> PyResult<Ranked<'py>> {
    let limit = limit.map_or(Ok(usize::MAX), |limit| at_least("limit", limit, 0))?;
    let rankings = vectors::<i64>("rankings", rankings)?;
    let ids: Vec<&[i64]> = rankings.iter().map(Vec::as_slice).collect();
    let fused = run(py, total(&ids), || {
        fusion::reciprocal_rank_fusion(&ids, weights.as_deref(), k, limit)
    })?;
    Ok(ranked(py, fused))
}

/// Fuse rankings by score: ``sum of weight * (s - least) / (greatest - least)`` over the rankings that contain an id.
///
/// If all scores of a ranking are equal, each counts as 1. An id that a ranking names twice counts there once, with
/// its first score.
///
/// Args:
///     rankings: Ids of each ranking, each (n,); ties are broken by the smaller id.
///     scores: ``scores[i][j]`` belongs to ``rankings[i][j]``; finite, may be negative.
///     weights: One per ranking, finite and not negative. Default: 1 each.
///     limit: Maximum number of ids returned, from 0. Default: all.
///
/// Returns:
///     ids: (m,) every id once, best first.
///     scores: (m,) their scores.
///
/// Raises:
///     ValueError: A weight, a score or the limit is out of its range, lists differ in number or length, or an array
///         has another dtype or shape; the message names it.
///     TypeError: An argument has another type.
#[pyfunction]
#[pyo3(signature = (
    rankings: "Sequence[NDArray[np.int64]]",
    scores: "Sequence[NDArray[np.float64]]",
    *,
    weights: "Sequence[float] | None" = None,
    limit: "int | None" = None,
) -> "tuple[NDArray[np.int64], NDArray[np.float64]]")]
pub(crate) fn linear_fusion<'py>(
    py: Python<'py>,
    rankings: &Bound<'py, PyAny>,
    scores: &Bound<'py, PyAny>,
    weights: Option<Vec<f64>>,
    limit: Option<i64>,
) -> PyResult<Ranked<'py>> {
    let limit = limit.map_or(Ok(usize::MAX), |limit| at_least("limit", limit, 0))?;
    let rankings = vectors::<i64>("rankings", rankings)?;
    let scores = vectors::<f64>("scores", scores)?;
    let ids: Vec<&[i64]> = rankings.iter().map(Vec::as_slice).collect();
    let values: Vec<&[f64]> = scores.iter().map(Vec::as_slice).collect();
    let fused = run(py, total(&ids), || {
        fusion::linear_fusion(&ids, &values, weights.as_deref(), limit)
    })?;
    Ok(ranked(py, fused))
}

fn vectors<T: Element + Copy>(name: &str, lists: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<T>>> {
    let lists = lists.try_iter()?.enumerate();
    lists
        .map(|(number, list)| arguments::vector(&|| format!("{name}[{number}]"), &list?))
        .collect()
}

fn total(rankings: &[&[i64]]) -> usize {
    rankings.iter().map(|ranking| ranking.len()).sum()
}

fn run<T: Send>(
    py: Python<'_>,
    ids: usize,
    work: impl Send + FnOnce() -> Result<T, FusionError>,
) -> PyResult<T> {
    let fused = errors::run(py, ids.saturating_mul(ID_NANOSECONDS), work)?;
    fused.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn ranked(py: Python<'_>, fused: fusion::Fused) -> Ranked<'_> {
    (
        PyArray1::from_vec(py, fused.ids),
        PyArray1::from_vec(py, fused.scores),
    )
}
