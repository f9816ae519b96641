//! `reciprocal_rank_fusion` and `linear_fusion`.

use numpy::{Element, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use semlex_core::fusion::{self, Fused, FusionFault};

use crate::arguments::{at_least, vector};
use crate::errors::detached;

// Fusing costs about 20 ns an id. Below 50 us of work, handing the interpreter over costs more than it gives: another
// thread that takes it keeps it for up to 5 ms.
const IDS_WORTH_RELEASING: usize = 2_000;

type Ranked<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

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
    run(py, &ids, || {
        fusion::reciprocal_rank_fusion(&ids, weights.as_deref(), k, limit)
    })
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
    run(py, &ids, || {
        fusion::linear_fusion(&ids, &values, weights.as_deref(), limit)
    })
}

fn vectors<T: Element + Copy>(name: &str, lists: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<T>>> {
    let lists = lists.try_iter()?.enumerate();
    lists
        .map(|(number, list)| vector(&|| format!("{name}[{number}]"), &list?))
        .collect()
}

fn run<'py>(
    py: Python<'py>,
    rankings: &[&[i64]],
    work: impl Send + FnOnce() -> Result<Fused, FusionFault>,
) -> PyResult<Ranked<'py>> {
    let ids: usize = rankings.iter().map(|ranking| ranking.len()).sum();
    let fused = if ids < IDS_WORTH_RELEASING {
        work()
    } else {
        detached(py, work)?
    };
    let fused = fused.map_err(|fault| PyValueError::new_err(fault.to_string()))?;
    Ok((
        PyArray1::from_vec(py, fused.ids),
        PyArray1::from_vec(py, fused.scores),
    ))
}
