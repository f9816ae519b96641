//! Posting segments out: `PostingCache`, `PostingPlan`, `PostingSnapshot`.

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList, PyString};
use semlex_core::keyword::segment::{
    self, GivenRow, GivenSegment, GivenTombstone, LanguageQuery, Parameters, SegmentId,
};

use crate::arguments::{at_least, vector};
use crate::errors::{caught, detached};
use crate::segments::{id, segment_error};

type Query = (
    String,
    Vec<(u64, String)>,
    Vec<Vec<String>>,
    Vec<Vec<String>>,
);
type Segment = (PyBackedBytes, PyBackedStr, Option<PyBackedBytes>);
type Tombstone = (PyBackedBytes, Option<PyBackedBytes>);
type Row = (
    PyBackedBytes,
    PyBackedBytes,
    Option<PyBackedBytes>,
    Option<PyBackedBytes>,
);
type Scored<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
);

/// Rows that searches have read; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingCache {
    core: segment::PostingCache,
}

#[pymethods]
impl PostingCache {
    #[new]
    #[pyo3(signature = (limit = 67108864))]
    fn new(limit: i64) -> PyResult<Self> {
        let limit = at_least("limit", limit, 0)?;
        Ok(Self {
            core: segment::PostingCache::new(limit),
        })
    }

    #[getter]
    fn hits(&self) -> u64 {
        self.core.counters().hits
    }

    #[getter]
    fn misses(&self) -> u64 {
        self.core.counters().misses
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.core.counters().bytes
    }

    fn resize(&self, py: Python<'_>, limit: i64) -> PyResult<()> {
        let limit = at_least("limit", limit, 0)?;
        detached(py, || self.core.resize(limit))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.core.clear())
    }

    fn plan(&self, py: Python<'_>, queries: Vec<Query>) -> PyResult<PostingPlan> {
        let queries = queries
            .into_iter()
            .map(|(language, wanted, phrases, excluded)| LanguageQuery {
                language,
                wanted,
                phrases,
                excluded,
            });
        let queries: Vec<_> = queries.collect();
        let plan = detached(py, || self.core.plan(&queries))?;
        Ok(PostingPlan {
            core: plan.map_err(|error| segment_error(py, error))?,
        })
    }

    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn snapshot(
        &self,
        py: Python<'_>,
        plan: &PostingPlan,
        segments: Vec<Segment>,
        tombstones: Vec<Tombstone>,
        rows: Vec<Row>,
    ) -> PyResult<PostingSnapshot> {
        let segments = segments.iter().map(
            |(segment, language, header)| -> PyResult<GivenSegment<'_>> {
                Ok((id("segments", segment)?, language, header.as_deref()))
            },
        );
        let segments = segments.collect::<PyResult<Vec<_>>>()?;
        let tombstones =
            tombstones
                .iter()
                .map(|(tombstone, data)| -> PyResult<GivenTombstone<'_>> {
                    Ok((id("tombstones", tombstone)?, data.as_deref()))
                });
        let tombstones = tombstones.collect::<PyResult<Vec<_>>>()?;
        let rows = given_rows(&rows)?;
        let snapshot = detached(py, || {
            self.core
                .snapshot(&plan.core, &segments, &tombstones, &rows)
        })?;
        Ok(PostingSnapshot {
            core: snapshot.map_err(|error| segment_error(py, error))?,
        })
    }

    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn complete(
        &self,
        py: Python<'_>,
        plan: &PostingPlan,
        rows: Vec<Row>,
    ) -> PyResult<PostingSnapshot> {
        let rows = given_rows(&rows)?;
        let snapshot = detached(py, || self.core.complete(&plan.core, &rows))?;
        Ok(PostingSnapshot {
            core: snapshot.map_err(|error| segment_error(py, error))?,
        })
    }

    fn __repr__(&self) -> String {
        let counters = self.core.counters();
        format!(
            "PostingCache({} bytes, {} hits, {} misses)",
            counters.bytes, counters.hits, counters.misses
        )
    }
}

fn given_rows(rows: &[Row]) -> PyResult<Vec<GivenRow<'_>>> {
    let rows = rows.iter().map(|(segment, term, first_term, data)| {
        let row = match (first_term.as_deref(), data.as_deref()) {
            (Some(first_term), Some(data)) => Some((first_term, data)),
            (None, None) => None,
            _ => {
                return Err(PyValueError::new_err(
                    "rows: first term and data must both be given, or neither",
                ));
            }
        };
        Ok(GivenRow {
            segment: id("rows", segment)?,
            term,
            row,
        })
    });
    rows.collect()
}

/// What a query needs; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingPlan {
    core: segment::PostingPlan,
}

type Missing<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;
type Terms<'py> = Vec<(Bound<'py, PyString>, Bound<'py, PyBytes>)>;

impl PostingPlan {
    fn terms<'py>(&self, py: Python<'py>, cold: bool) -> Terms<'py> {
        let terms = self.core.terms(cold);
        terms
            .map(|(language, term)| {
                (
                    PyString::new(py, language),
                    PyBytes::new(py, term.as_bytes()),
                )
            })
            .collect()
    }
}

#[pymethods]
impl PostingPlan {
    #[getter]
    fn known_segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        caught(|| ids(py, self.core.known_segments()))
    }

    #[getter]
    fn known_tombstones<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        caught(|| ids(py, self.core.known_tombstones()))
    }

    #[getter]
    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Missing<'py>> {
        caught(|| {
            let missing = self.core.missing();
            let pairs = missing.map(|(segment, term)| {
                (PyBytes::new(py, segment), PyBytes::new(py, term.as_bytes()))
            });
            Ok(pairs.collect())
        })
    }

    #[getter]
    fn cold<'py>(&self, py: Python<'py>) -> PyResult<Terms<'py>> {
        caught(|| Ok(self.terms(py, true)))
    }

    #[getter]
    fn warm<'py>(&self, py: Python<'py>) -> PyResult<Terms<'py>> {
        caught(|| Ok(self.terms(py, false)))
    }
}

fn ids<'a, 'py>(
    py: Python<'py>,
    ids: impl Iterator<Item = &'a SegmentId>,
) -> PyResult<Bound<'py, PyList>> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    PyList::new(py, ids.into_iter().map(|id| PyBytes::new(py, id)))
}

/// A query over one snapshot; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingSnapshot {
    core: segment::Snapshot,
}

#[pymethods]
impl PostingSnapshot {
    #[getter]
    fn languages(&self) -> Vec<String> {
        self.core.languages().to_vec()
    }

    #[getter]
    fn missing_languages(&self) -> Vec<String> {
        self.core.missing_languages().to_vec()
    }

    #[getter]
    fn chunks(&self) -> u64 {
        self.core.chunks()
    }

    #[getter]
    fn postings(&self) -> u64 {
        self.core.postings()
    }

    fn coverage<'py>(
        &self,
        py: Python<'py>,
        keyword_ids: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let ids = vector::<i64>(&|| "keyword_ids".to_owned(), keyword_ids)?;
        let found = detached(py, || self.core.coverage(&ids))?;
        let found = found.map_err(|error| segment_error(py, error))?;
        Ok(PyArray1::from_vec(py, found))
    }

    #[pyo3(signature = (k, *, k1 = 1.2, b = 0.75, allowed = None, score_ids = None))]
    fn search<'py>(
        &self,
        py: Python<'py>,
        k: i64,
        k1: f64,
        b: f64,
        allowed: Option<&Bound<'py, PyAny>>,
        score_ids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Scored<'py>> {
        let k = at_least("k", k, 0)?;
        let taken = |name: &str, ids: Option<&Bound<'py, PyAny>>| {
            ids.map(|ids| vector::<i64>(&|| name.to_owned(), ids))
                .transpose()
        };
        let allowed = taken("allowed", allowed)?;
        let score_ids = taken("score_ids", score_ids)?.unwrap_or_default();
        let found = detached(py, || {
            self.core
                .search(k, Parameters { k1, b }, allowed.as_deref(), &score_ids)
        })?;
        let found = found.map_err(|error| segment_error(py, error))?;
        let (scores, ids): (Vec<f64>, Vec<i64>) = found.best.into_iter().unzip();
        Ok((
            PyArray1::from_vec(py, ids),
            PyArray1::from_vec(py, scores),
            PyArray1::from_vec(py, found.scores),
        ))
    }
}
