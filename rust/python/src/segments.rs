//! Posting segments in: `SegmentBuilder`, `EncodedSegment`, `merge_segments`, tombstones.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::PyArray1;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList};
use semlex_core::keyword::build::{self, Source, Vocabularies};
use semlex_core::keyword::format::{self, Header};
use semlex_core::segments::{self, FORMAT_VERSION, IdSet as Ids, SegmentError, SegmentId};

use crate::analyzing::Analyzer;
use crate::arguments::vector;
use crate::errors::{caught, defect, detached};

/// Misuse, `semlex.errors.DamagedSegmentError`, or a defect of the program.
pub(crate) fn segment_error(py: Python<'_>, error: SegmentError) -> PyErr {
    match error {
        SegmentError::Refused(message) => PyValueError::new_err(message),
        SegmentError::Impossible(what) => defect(what),
        SegmentError::Damaged { id, what } => {
            let build = || -> PyResult<PyErr> {
                let uuid = py.import("uuid")?.getattr("UUID")?.call1((py.None(), id))?;
                let class = py.import("semlex.errors")?.getattr("DamagedSegmentError")?;
                Ok(PyErr::from_value(class.call1((uuid.str()?, what))?))
            };
            build().unwrap_or_else(|error| error)
        }
        SegmentError::OtherVersion { id, found } => {
            let build = || -> PyResult<PyErr> {
                let uuid = py.import("uuid")?.getattr("UUID")?.call1((py.None(), id))?;
                let class = py
                    .import("semlex.errors")?
                    .getattr("AnalyzerVersionError")?;
                let message = format!(
                    "segment {} of the keyword index is stored in version {found} of its format, but this \
                     semlex reads version {FORMAT_VERSION}; use the semlex that wrote it, or rebuild the index \
                     from the texts with: semlex maintain reindex",
                    uuid.str()?
                );
                Ok(PyErr::from_value(class.call1((message,))?))
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

/// A segment of the keyword index in its stored form: a header, and rows of posting lists.
///
/// A term's list is in the row with the greatest first term (in the order of bytes) that is not above the term.
#[pyclass(frozen, get_all, module = "semlex._core")]
pub(crate) struct EncodedSegment {
    /// Ids and lengths of the chunks.
    header: Py<PyBytes>, // -> bytes
    /// First term of each row, ascending; with the segment's id the row's key.
    first_terms: Py<PyList>, // -> list[bytes]
    /// Data of each row.
    data: Py<PyList>, // -> list[bytes]
    /// Number of chunks.
    chunks: u32, // -> int
    /// Number of (term, chunk) pairs.
    postings: u64, // -> int
    /// Terms of all chunks, repeats included.
    total_length: u64, // -> int
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
    encoded: Result<format::EncodedSegment, SegmentError>,
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

/// Builds a segment from up to 65,536 chunks of one language.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct SegmentBuilder {
    building: Mutex<Building>,
}

#[derive(Default)]
struct Building {
    core: build::SegmentBuilder,
    /// The analyzer that was used last.
    source: Option<u64>,
}

/// Bytes of what builders have learnt of the words of all analyzers.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// What builders have learnt of each analyzer's words: one builder at a time has it, others begin with nothing.
fn kept() -> MutexGuard<'static, Vocabularies> {
    static KEPT: Mutex<Vocabularies> = Mutex::new(Vocabularies::new(MAX_KEPT_BYTES));
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Building {
    /// Makes ready for texts of an analyzer.
    fn use_analyzer(&mut self, analyzer: &Analyzer) {
        match self.source {
            Some(known) if known == analyzer.number => return,
            Some(_) => self.core.forget_source(),
            None => self.core.adopt(&mut kept().take(analyzer.number)),
        }
        self.source = Some(analyzer.number);
    }

    /// Makes the segment, and gives the vocabulary back.
    fn finish(&mut self, id: &SegmentId) -> Result<format::EncodedSegment, SegmentError> {
        let encoded = self.core.finish(id);
        if let (Some(source), Some(vocabulary)) = (self.source.take(), self.core.release()) {
            kept().put(source, vocabulary);
        }
        encoded
    }
}

/// Message for a builder that cannot be used any more.
const HALF_DONE: &str =
    "an internal error left this builder half-done; build the segment with a new one";

impl SegmentBuilder {
    /// Runs `work` on the builder, with the interpreter released.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Building) -> Result<T, SegmentError> + Send,
    ) -> PyResult<T> {
        let done = detached(py, || {
            let mut building = self.building.lock().map_err(|_| HALF_DONE)?;
            Ok(work(&mut building))
        })?;
        done.map_err(|why: &str| PyRuntimeError::new_err(why))?
            .map_err(|error| segment_error(py, error))
    }
}

#[pymethods]
impl SegmentBuilder {
    #[new]
    #[pyo3(signature = ())]
    fn new() -> Self {
        Self {
            building: Mutex::default(),
        }
    }

    /// Number of chunks so far.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |building| Ok(building.core.chunks()))
    }

    /// Add a chunk.
    ///
    /// Args:
    ///     keyword_id: The chunk's id in the keyword index.
    ///     terms: Its terms of 1 to 128 bytes, repeats included, in any order.
    ///
    /// Raises:
    ///     ValueError: For other terms, or too many chunks; the chunk is then left out.
    #[pyo3(signature = (keyword_id: "int", terms: "Sequence[str]") -> "None")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn add_terms(&self, py: Python<'_>, keyword_id: i64, terms: Vec<PyBackedStr>) -> PyResult<()> {
        self.with(py, |building| {
            let terms = terms.iter().map(|term| &**term);
            building.core.add_terms(keyword_id, terms)
        })
    }

    /// Add chunks by their texts.
    ///
    /// Args:
    ///     analyzer: Analyzer of the segment's language. It keeps a cache of analysed words (64 MiB for all
    ///         analyzers) for the next builder.
    ///     keyword_ids: Ids of the chunks in the keyword index; int64 (n,).
    ///     columns: The parts of the texts, n of each: ``columns[j][i]`` is part j of text i.
    ///
    /// Raises:
    ///     ValueError: For columns of another length, or one chunk too many; those before it stay.
    #[pyo3(signature = (
        analyzer: "Analyzer",
        keyword_ids: "NDArray[np.int64]",
        columns: "Sequence[Sequence[str]]",
    ) -> "None")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn add_texts(
        &self,
        py: Python<'_>,
        analyzer: &Analyzer,
        keyword_ids: &Bound<'_, PyAny>,
        columns: Vec<Vec<PyBackedStr>>,
    ) -> PyResult<()> {
        let ids = vector::<i64>(&|| "keyword_ids".to_owned(), keyword_ids)?;
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
                building.core.add(*id, &analyzer.inner, &texts)?;
            }
            Ok(())
        })
    }

    /// Build the segment and empty the builder.
    ///
    /// Args:
    ///     segment_id: 16 random bytes that are never used again. The data is bound to it.
    ///
    /// Raises:
    ///     ValueError: When an id was added twice; the chunks are gone then, too.
    #[pyo3(signature = (segment_id: "bytes") -> "EncodedSegment")]
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

/// Merge segments of one language. The result equals a segment built from the live chunks, byte by byte.
///
/// Args:
///     segment_id: Id of the new segment.
///     sources: (segment id, header, rows) of each, with all rows as (first term, data), sorted by first term.
///     dead: Keyword ids to leave out.
///
/// Raises:
///     ValueError: When more than 65,536 chunks are live, or one is in two sources.
///     semlex.errors.DamagedSegmentError: When stored bytes are not those that were written, or rows are missing.
#[pyfunction]
#[pyo3(signature = (
    segment_id: "bytes",
    sources: "Sequence[tuple[bytes, bytes, Sequence[tuple[bytes, bytes]]]]",
    dead: "IdSet",
) -> "EncodedSegment")]
#[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
pub(crate) fn merge_segments(
    py: Python<'_>,
    segment_id: &[u8],
    sources: Vec<StoredSegment>,
    dead: &IdSet,
) -> PyResult<EncodedSegment> {
    let segment_id = id("segment_id", segment_id)?;
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
    let encoded = detached(py, || build::merge(&segment_id, sources, &dead.core))?;
    wrapped(py, encoded)
}

/// Return the hash that a segment keeps of the keys of its rows.
#[pyfunction]
#[pyo3(signature = (keys: "Sequence[bytes]") -> "bytes")]
#[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
pub(crate) fn keys_hash(py: Python<'_>, keys: Vec<PyBackedBytes>) -> PyResult<Bound<'_, PyBytes>> {
    let hash = detached(py, || format::keys_hash(keys.iter().map(|key| &**key)))?;
    Ok(PyBytes::new(py, &hash))
}

/// Encode ids of deleted chunks.
///
/// Args:
///     tombstone_id: 16 random bytes that are never used again. The data is bound to it.
///     keyword_ids: Fewer than 2**32 ids.
///
/// Raises:
///     ValueError: For more ids.
#[pyfunction]
#[pyo3(signature = (tombstone_id: "bytes", keyword_ids: "IdSet") -> "bytes")]
pub(crate) fn encode_tombstone<'py>(
    py: Python<'py>,
    tombstone_id: &[u8],
    keyword_ids: &IdSet,
) -> PyResult<Bound<'py, PyBytes>> {
    let tombstone_id = id("tombstone_id", tombstone_id)?;
    let data = detached(py, || {
        segments::encode_tombstone(&tombstone_id, &keyword_ids.core)
    })?;
    Ok(PyBytes::new(
        py,
        &data.map_err(|error| segment_error(py, error))?,
    ))
}

/// Return the ids in a tombstone.
///
/// Raises:
///     semlex.errors.DamagedSegmentError: When the data is damaged.
#[pyfunction]
#[pyo3(signature = (tombstone_id: "bytes", data: "bytes") -> "IdSet")]
pub(crate) fn decode_tombstone(
    py: Python<'_>,
    tombstone_id: &[u8],
    data: &[u8],
) -> PyResult<IdSet> {
    let tombstone_id = id("tombstone_id", tombstone_id)?;
    let ids = detached(py, || {
        segments::decode_tombstone(&tombstone_id, data).map(|ids| Ids::from(&ids))
    })?;
    let core = ids.map_err(|error| segment_error(py, error))?;
    Ok(IdSet { core })
}

/// Return the keyword ids in a segment, deleted ones included.
///
/// Raises:
///     semlex.errors.DamagedSegmentError: When the header is damaged.
#[pyfunction]
#[pyo3(signature = (segment_id: "bytes", header: "bytes") -> "IdSet")]
pub(crate) fn segment_ids(py: Python<'_>, segment_id: &[u8], header: &[u8]) -> PyResult<IdSet> {
    let segment_id = id("segment_id", segment_id)?;
    let ids = detached(py, || {
        Header::decode(&segment_id, header).map(|header| Ids::from(&header.ids))
    })?;
    let core = ids.map_err(|error| segment_error(py, error))?;
    Ok(IdSet { core })
}

/// An immutable set of ids, stored as ranges, because a few bytes of a tombstone can name billions.
///
/// Args:
///     ids: In any order, repeated or not; int64 (n,). None: no ids.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct IdSet {
    core: Ids,
}

/// Ids that an array may have: 8 GiB.
const MAX_LISTED: u64 = 1 << 30;

#[pymethods]
impl IdSet {
    #[new]
    #[pyo3(signature = (ids: "NDArray[np.int64] | None" = None))]
    fn new(py: Python<'_>, ids: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let ids = ids.map(|ids| vector::<i64>(&|| "ids".to_owned(), ids));
        let ids = ids.transpose()?.unwrap_or_default();
        let core = detached(py, || Ids::new(ids))?;
        Ok(Self { core })
    }

    /// Return all ids that are in any of the sets.
    #[staticmethod]
    #[pyo3(signature = (sets: "Sequence[IdSet]") -> "IdSet")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn union(py: Python<'_>, sets: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let sets: Vec<&Ids> = sets.iter().map(|set| &set.core).collect();
        let core = detached(py, || Ids::union(sets))?;
        Ok(Self { core })
    }

    /// Number of ids.
    #[getter] // -> int
    fn count(&self) -> u64 {
        self.core.len()
    }

    /// Whether the set has ids.
    fn __bool__(&self) -> bool {
        !self.core.is_empty()
    }

    /// The ids that are in both.
    fn __and__(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let core = detached(py, || self.core.intersection(&other.core))?;
        Ok(Self { core })
    }

    /// The ids that are not in the other.
    fn __sub__(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let core = detached(py, || self.core.difference(&other.core))?;
        Ok(Self { core })
    }

    /// The ids, ascending: int64 (n,).
    ///
    /// Raises:
    ///     MemoryError: For more than 2**30 ids, or than there is memory for.
    #[pyo3(signature = () -> "NDArray[np.int64]")]
    fn to_array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let count = self.core.len();
        let refused = || PyMemoryError::new_err(format!("no memory for {count} ids"));
        if count > MAX_LISTED {
            return Err(refused());
        }
        let ids = detached(py, || {
            let mut all = Vec::new();
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            all.try_reserve_exact(count).ok()?;
            all.extend(self.core.iter());
            Some(all)
        })?;
        Ok(PyArray1::from_vec(py, ids.ok_or_else(refused)?))
    }

    fn __repr__(&self) -> String {
        format!("IdSet({} ids)", self.core.len())
    }
}

/// Panic on purpose, for tests; with a builder, in the middle of its work.
#[pyfunction]
#[pyo3(signature = (
    message: "str",
    *,
    builder: "SegmentBuilder | None" = None,
    held: "bool" = false,
) -> "None")]
#[allow(clippy::panic, reason = "on purpose")]
pub(crate) fn _panic(
    py: Python<'_>,
    message: &str,
    builder: Option<&SegmentBuilder>,
    held: bool,
) -> PyResult<()> {
    if held {
        return caught(|| panic!("{message}"));
    }
    match builder {
        Some(builder) => builder.with(py, |_| panic!("{message}")),
        None => detached(py, || panic!("{message}")),
    }
}
