//! Posting segments in: `SegmentBuilder`, `EncodedSegment`, `merge_segments`, tombstones.

use std::sync::{Arc, Mutex, PoisonError};

use numpy::PyArray1;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList};
use semlex_core::lexical::segment::{
    self, Header, IdRanges, SegmentError, SegmentId, Source, Vocabulary,
};

use crate::analyzing::Analyzer;
use crate::arguments::vector;
use crate::errors::detached;

/// Either misuse, or `semlex.errors.DamagedSegmentError`.
pub(crate) fn segment_error(py: Python<'_>, error: SegmentError) -> PyErr {
    match error {
        SegmentError::Refused(message) => PyValueError::new_err(message),
        SegmentError::Damaged { id, what } => {
            let build = || -> PyResult<PyErr> {
                let uuid = py.import("uuid")?.getattr("UUID")?.call1((py.None(), id))?;
                let class = py.import("semlex.errors")?.getattr("DamagedSegmentError")?;
                Ok(PyErr::from_value(class.call1((uuid.str()?, what))?))
            };
            build().unwrap_or_else(|error| error)
        }
    }
}

/// The 16 bytes of an id.
pub(crate) fn id(name: &str, bytes: &[u8]) -> PyResult<SegmentId> {
    bytes.try_into().map_err(|_| {
        PyValueError::new_err(format!(
            "{name}: an id must have 16 bytes, found {}",
            bytes.len()
        ))
    })
}

/// A finished segment; see the stub.
#[pyclass(frozen, get_all, module = "semlex._core")]
pub(crate) struct EncodedSegment {
    header: Py<PyBytes>,
    first_terms: Py<PyList>,
    data: Py<PyList>,
    chunks: u32,
    postings: u64,
    total_length: u64,
}

#[pymethods]
impl EncodedSegment {
    fn __repr__(&self, py: Python<'_>) -> String {
        let rows = self.data.bind(py).len();
        format!(
            "EncodedSegment({} chunks, {} postings, {rows} rows)",
            self.chunks, self.postings
        )
    }
}

fn wrapped(
    py: Python<'_>,
    encoded: Result<segment::EncodedSegment, SegmentError>,
) -> PyResult<EncodedSegment> {
    let encoded = encoded.map_err(|error| segment_error(py, error))?;
    let first_terms = encoded
        .rows
        .iter()
        .map(|row| PyBytes::new(py, &row.first_term));
    let data = encoded.rows.iter().map(|row| PyBytes::new(py, &row.data));
    Ok(EncodedSegment {
        header: PyBytes::new(py, &encoded.header).unbind(),
        first_terms: PyList::new(py, first_terms)?.unbind(),
        data: PyList::new(py, data)?.unbind(),
        chunks: encoded.chunks,
        postings: encoded.postings,
        total_length: encoded.total_length,
    })
}

/// Chunks that become a segment; see the stub.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct SegmentBuilder {
    building: Mutex<Building>,
}

#[derive(Default)]
struct Building {
    core: segment::SegmentBuilder,
    /// Where the vocabulary of the analyzer that was used last goes back to.
    home: Option<Arc<Mutex<Vocabulary>>>,
}

impl Building {
    /// Makes ready for texts of an analyzer.
    fn use_analyzer(&mut self, analyzer: &Analyzer) {
        let home = &analyzer.vocabulary;
        match &self.home {
            Some(known) if Arc::ptr_eq(known, home) => return,
            Some(_) => self.core.forget_source(),
            None => {
                let mut kept = home.lock().unwrap_or_else(PoisonError::into_inner);
                self.core.adopt(&mut kept);
            }
        }
        self.home = Some(Arc::clone(home));
    }

    /// Makes the segment, and gives the vocabulary back.
    fn finish(&mut self, id: &SegmentId) -> Result<segment::EncodedSegment, SegmentError> {
        let encoded = self.core.finish(id);
        if let (Some(home), Some(vocabulary)) = (self.home.take(), self.core.release()) {
            let mut kept = home.lock().unwrap_or_else(PoisonError::into_inner);
            // Another builder may have learnt more meanwhile.
            if vocabulary.memory() > kept.memory() {
                *kept = vocabulary;
            }
        }
        encoded
    }
}

impl SegmentBuilder {
    /// Runs `work` on the builder, with the interpreter released.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Building) -> Result<T, SegmentError> + Send,
    ) -> PyResult<T> {
        detached(py, || {
            work(&mut self.building.lock().unwrap_or_else(PoisonError::into_inner))
        })?
        .map_err(|error| segment_error(py, error))
    }
}

#[pymethods]
impl SegmentBuilder {
    #[new]
    fn new() -> Self {
        Self {
            building: Mutex::default(),
        }
    }

    /// The number of chunks so far.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |building| Ok(building.core.chunks()))
    }

    /// Adds one chunk.
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn add_terms(&self, py: Python<'_>, lexical_id: i64, terms: Vec<PyBackedStr>) -> PyResult<()> {
        self.with(py, |building| {
            let terms = terms.iter().map(|term| &**term);
            building.core.add_terms(lexical_id, terms)
        })
    }

    /// Adds chunks by their texts.
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn add_texts(
        &self,
        py: Python<'_>,
        analyzer: &Analyzer,
        lexical_ids: &Bound<'_, PyAny>,
        columns: Vec<Vec<PyBackedStr>>,
    ) -> PyResult<()> {
        let ids = vector::<i64>(&|| "lexical_ids".to_owned(), lexical_ids)?;
        for (number, column) in columns.iter().enumerate() {
            if column.len() != ids.len() {
                return Err(PyValueError::new_err(format!(
                    "columns[{number}]: one text per id, expected {}, found {}",
                    ids.len(),
                    column.len()
                )));
            }
        }
        self.with(py, |building| {
            building.use_analyzer(analyzer);
            for (row, id) in ids.iter().enumerate() {
                let texts = columns.iter().filter_map(|column| column.get(row));
                let texts: Vec<&str> = texts.map(|text| &**text).collect();
                building.core.add(*id, &*analyzer.inner, &texts)?;
            }
            Ok(())
        })
    }

    /// The segment.
    fn finish(&self, py: Python<'_>, segment_id: &[u8]) -> PyResult<EncodedSegment> {
        let segment_id = id("segment_id", segment_id)?;
        let encoded = self.with(py, |building| Ok(building.finish(&segment_id)))?;
        wrapped(py, encoded)
    }
}

type StoredSegment = (
    PyBackedBytes,
    PyBackedBytes,
    Vec<(PyBackedBytes, PyBackedBytes)>,
);

/// Several segments as one; see the stub.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
pub(crate) fn merge_segments(
    py: Python<'_>,
    segment_id: &[u8],
    sources: Vec<StoredSegment>,
    dead: &Bound<'_, PyAny>,
) -> PyResult<EncodedSegment> {
    let segment_id = id("segment_id", segment_id)?;
    let dead = vector::<i64>(&|| "dead".to_owned(), dead)?;
    let sources = sources.iter().map(|(source, header, rows)| {
        Ok(Source {
            id: id("sources", source)?,
            header,
            rows: rows
                .iter()
                .map(|(first_term, data)| (&**first_term, &**data))
                .collect(),
        })
    });
    let sources = sources.collect::<PyResult<Vec<_>>>()?;
    let encoded = detached(py, || segment::merge(&segment_id, sources, dead))?;
    wrapped(py, encoded)
}

/// A tombstone's data; see the stub.
#[pyfunction]
pub(crate) fn encode_tombstone<'py>(
    py: Python<'py>,
    tombstone_id: &[u8],
    lexical_ids: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let tombstone_id = id("tombstone_id", tombstone_id)?;
    let ids = vector::<i64>(&|| "lexical_ids".to_owned(), lexical_ids)?;
    let data = detached(py, || segment::encode_tombstone(&tombstone_id, ids))?;
    Ok(PyBytes::new(
        py,
        &data.map_err(|error| segment_error(py, error))?,
    ))
}

/// The ids in a tombstone; see the stub.
#[pyfunction]
pub(crate) fn decode_tombstone<'py>(
    py: Python<'py>,
    tombstone_id: &[u8],
    data: &[u8],
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let tombstone_id = id("tombstone_id", tombstone_id)?;
    let ids =
        segment::decode_tombstone(&tombstone_id, data).map_err(|error| segment_error(py, error))?;
    array(py, &ids)
}

/// The ids in a segment; see the stub.
#[pyfunction]
pub(crate) fn segment_ids<'py>(
    py: Python<'py>,
    segment_id: &[u8],
    header: &[u8],
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let segment_id = id("segment_id", segment_id)?;
    let header = Header::decode(&segment_id, header).map_err(|error| segment_error(py, error))?;
    array(py, &header.ids)
}

fn array<'py>(py: Python<'py>, ids: &IdRanges) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let mut all = Vec::new();
    all.try_reserve_exact(ids.len() as usize)
        .map_err(|_| PyMemoryError::new_err(format!("no memory for {} ids", ids.len())))?;
    all.extend(ids.iter());
    Ok(PyArray1::from_vec(py, all))
}
