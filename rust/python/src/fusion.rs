//! `completed_fusion`, `reciprocal_rank_fusion` and `linear_fusion`.

use numpy::{Element, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use semlex_core::fusion::{self, FusionError, Spread};

use crate::arguments::{self, at_least};
use crate::errors::{caught, detached};

// Fusing costs about 20 ns an id. Below 50 us of work, handing the interpreter over costs more than it gives: another
// thread that takes it keeps it for up to 5 ms.
const IDS_WORTH_RELEASING: usize = 2_000;

type Ids<'py> = Bound<'py, PyArray1<i64>>;
type Scores<'py> = Bound<'py, PyArray1<f64>>;
type Ranked<'py> = (Ids<'py>, Scores<'py>);
type Explained<'py> = (Ids<'py>, Scores<'py>, Scores<'py>, Scores<'py>);

/// Fuses complete scores; see the stub.
#[pyfunction]
#[pyo3(signature = (vector, keyword, *, mean, deviation, vector_weight))]
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

/// Fuses by rank; see the stub.
#[pyfunction]
#[pyo3(signature = (rankings, *, weights = None, k = 60.0, limit = None))]
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

/// Fuses by score; see the stub.
#[pyfunction]
#[pyo3(signature = (rankings, scores, *, weights = None, limit = None))]
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
    let fused = if ids < IDS_WORTH_RELEASING {
        caught(|| Ok(work()))?
    } else {
        detached(py, work)?
    };
    fused.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn ranked(py: Python<'_>, fused: fusion::Fused) -> Ranked<'_> {
    (
        PyArray1::from_vec(py, fused.ids),
        PyArray1::from_vec(py, fused.scores),
    )
}
