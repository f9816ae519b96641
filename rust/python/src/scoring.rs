//! Posting segments out: `PostingCache`, `PostingPlan`, `PostingSnapshot`.

use std::collections::HashSet;

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList, PyString};
use semlex_core::keyword::search::{
    self, Changes, GivenRow, GivenSegment, GivenTombstone, LanguageQuery, NewSegment, Parameters,
};
use semlex_core::segments::SegmentId;

use crate::arguments::{at_least, vector};
use crate::errors::{caught, detached, run};
use crate::segments::{id, segment_error};

/// Nanoseconds, at most, of planning a term; of keeping a byte of a row that was read; of the coverage of a chunk; of an id
/// that a search is restricted to. A posting takes up to one.
const TERM_NANOSECONDS: usize = 2_000;
const ROW_BYTE_NANOSECONDS: usize = 2;
const COVERAGE_NANOSECONDS: usize = 1_000;
const ID_NANOSECONDS: usize = 20;

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
type Earlier<'py> = (
    Py<PostingSnapshot>,
    i64,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
);
type Scored<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    (u64, u64, u64),
);

/// Cache of what searches have read of one collection's keyword index. Stored rows never change, so entries never
/// become stale.
///
/// Posting lists are kept up to a limit, those of the terms used last; headers and tombstones as long as snapshots
/// list them. All methods may be called from several threads.
///
/// A search: `plan`, then in one snapshot of the database all segments, all tombstones and the rows that the plan
/// lacks, then `snapshot`, then `PostingSnapshot.search`.
///
/// Args:
///     limit: Maximum bytes of posting lists.
///     small_limit: Maximum bytes of small segments, which are kept with all their rows.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingCache {
    core: search::PostingCache,
}

#[pymethods]
impl PostingCache {
    #[new]
    #[pyo3(signature = (limit: "int" = 67108864, small_limit: "int" = 48000000))]
    fn new(limit: i64, small_limit: i64) -> PyResult<Self> {
        let limit = at_least("limit", limit, 0)?;
        let small_limit = at_least("small_limit", small_limit, 0)?;
        Ok(Self {
            core: search::PostingCache::with_small(limit, small_limit),
        })
    }

    /// Lists, or known absences, that were cached when a search needed them.
    #[getter] // -> int
    fn hits(&self) -> u64 {
        self.core.counters().hits
    }

    /// Lists that had to be read.
    #[getter] // -> int
    fn misses(&self) -> u64 {
        self.core.counters().misses
    }

    /// Bytes of cached posting lists.
    #[getter] // -> int
    fn used_bytes(&self) -> usize {
        self.core.counters().bytes
    }

    /// Bytes of small segments.
    #[getter] // -> int
    fn small_bytes(&self) -> usize {
        self.core.counters().small_bytes
    }

    /// Change the limit; the least recently used terms are evicted until the rest fits.
    ///
    /// Raises:
    ///     ValueError: It is negative.
    #[pyo3(signature = (limit: "int") -> "None")]
    fn resize(&self, py: Python<'_>, limit: i64) -> PyResult<()> {
        let limit = at_least("limit", limit, 0)?;
        detached(py, || self.core.resize(limit))?.map_err(|error| segment_error(py, error))
    }

    /// Drop all posting lists; headers and tombstones stay.
    #[pyo3(signature = () -> "None")]
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.core.clear())
    }

    /// Plan what a query needs, and pin the cached part of it.
    ///
    /// Args:
    ///     queries: The query as analysed in each language: (language, wanted, phrases, excluded).
    ///         ``wanted`` are (slot, term): a slot is one word of the query, with the same number in all languages.
    ///         Every chunk found must hold all terms of all ``phrases``. A chunk is left out if it holds the term of a
    ///         one-term group in ``excluded``; longer groups are phrases, which the caller looks for in the text.
    ///
    /// Raises:
    ///     ValueError: When a language is named twice, or a slot has two terms in one language.
    #[pyo3(signature = (
        queries: "Sequence[tuple[str, Sequence[tuple[int, str]], Sequence[Sequence[str]], Sequence[Sequence[str]]]]",
    ) -> "PostingPlan")]
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
        let terms = queries
            .iter()
            .map(|query| query.wanted.len())
            .sum::<usize>();
        // Rows of small segments may have to be walked over.
        let small = self.core.counters().small_bytes;
        let nanoseconds = terms.saturating_mul(TERM_NANOSECONDS).saturating_add(small);
        let plan = run(py, nanoseconds, || self.core.plan(&queries))?;
        Ok(PostingPlan {
            core: plan.map_err(|error| segment_error(py, error))?,
        })
    }

    /// Complete a plan with the rows of one database snapshot, and cache them.
    ///
    /// Args:
    ///     plan: A plan of this cache.
    ///     segments: (segment id, language, header) of every segment; the header may be None for known ones.
    ///     tombstones: (tombstone id, data) of every tombstone; the data may be None for known ones.
    ///     rows: (segment id, term, first term, data): for each cold term the row of each segment of its language, for
    ///         each warm term that of each such segment that was not known. None and None if the row does not exist.
    ///     ended: How many transactions had ended when the snapshot was taken. The cache then knows the segments and
    ///         tombstones of this snapshot, unless one with a greater number was completed before.
    ///
    /// Raises:
    ///     ValueError: When something is missing.
    ///     semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
    #[pyo3(signature = (
        plan: "PostingPlan",
        segments: "Sequence[tuple[bytes, str, bytes | None]]",
        tombstones: "Sequence[tuple[bytes, bytes | None]]",
        rows: "Sequence[tuple[bytes, bytes, bytes | None, bytes | None]]",
        ended: "int" = 0,
    ) -> "PostingSnapshot")]
    #[allow(
        clippy::needless_pass_by_value,
        clippy::too_many_arguments,
        reason = "what Python gives is taken"
    )]
    fn snapshot(
        &self,
        py: Python<'_>,
        plan: &PostingPlan,
        segments: Vec<Segment>,
        tombstones: Vec<Tombstone>,
        rows: Vec<Row>,
        ended: u64,
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
                .snapshot(&plan.core, &segments, &tombstones, &rows, ended)
        })?;
        Ok(PostingSnapshot {
            core: snapshot.map_err(|error| segment_error(py, error))?,
        })
    }

    /// Complete a plan for the segments and tombstones that it knows, and cache what was read.
    ///
    /// Args:
    ///     plan: A plan of this cache.
    ///     rows: (segment id, term, first term, data) for each of the plan's ``missing``. None and None if the row does
    ///         not exist.
    ///
    /// Raises:
    ///     ValueError: When something is missing.
    ///     semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
    #[pyo3(signature = (
        plan: "PostingPlan",
        rows: "Sequence[tuple[bytes, bytes, bytes | None, bytes | None]]",
    ) -> "PostingSnapshot")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn complete(
        &self,
        py: Python<'_>,
        plan: &PostingPlan,
        rows: Vec<Row>,
    ) -> PyResult<PostingSnapshot> {
        let rows = given_rows(&rows)?;
        let nanoseconds = self.assembling(plan, &rows);
        let snapshot = run(py, nanoseconds, || self.core.complete(&plan.core, &rows))?;
        Ok(PostingSnapshot {
            core: snapshot.map_err(|error| segment_error(py, error))?,
        })
    }

    /// Return the index as a later state of the database lists it; None if parts of it were neither known nor given.
    ///
    /// Args:
    ///     plan: A plan of this cache.
    ///     segments: Ids of all segments, joined.
    ///     tombstones: Ids of all tombstones, joined.
    ///     new: Rows of five columns. Of a new segment ``b"1"``, id, language, header, hash of its rows' keys; of a new
    ///         tombstone ``b"2"``, id, nothing, data, nothing; of a new segment's row, in ascending order, ``b"3"``, id,
    ///         nothing, first term, data.
    ///
    /// Raises:
    ///     ValueError: For other rows.
    ///     semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
    #[pyo3(signature = (
        plan: "PostingPlan",
        segments: "bytes",
        tombstones: "bytes",
        new: "Sequence[Sequence[bytes]]",
    ) -> "PostingChanges | None")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn changes(
        &self,
        py: Python<'_>,
        plan: &PostingPlan,
        segments: &[u8],
        tombstones: &[u8],
        new: Vec<[PyBackedBytes; 5]>,
    ) -> PyResult<Option<PostingChanges>> {
        let segments = split("segments", segments)?;
        let tombstones = split("tombstones", tombstones)?;
        let (new, dead) = new_parts(&new)?;
        let rows = new.iter().flat_map(|segment| &segment.rows);
        let bytes = rows.map(|(_, data)| data.len()).sum::<usize>();
        let nanoseconds = bytes.saturating_mul(ROW_BYTE_NANOSECONDS);
        let changes = run(py, nanoseconds, || {
            Changes::new(&plan.core, &segments, &tombstones, &new, &dead)
        })?;
        let changes = changes.map_err(|error| segment_error(py, error))?;
        Ok(changes.map(|core| PostingChanges { core, bytes }))
    }

    /// Complete a plan for a later state of the database, and cache what was read.
    ///
    /// Args:
    ///     plan: A plan of this cache.
    ///     changes: The state.
    ///     rows: (segment id, term, first term, data) for each of the plan's ``missing``. None and None if the row does
    ///         not exist.
    ///     ended: As in `snapshot`.
    ///
    /// Raises:
    ///     ValueError: When something is missing.
    ///     semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
    #[pyo3(signature = (
        plan: "PostingPlan",
        changes: "PostingChanges",
        rows: "Sequence[tuple[bytes, bytes, bytes | None, bytes | None]]",
        ended: "int",
    ) -> "PostingSnapshot")]
    #[allow(clippy::needless_pass_by_value, reason = "what Python gives is taken")]
    fn follow(
        &self,
        py: Python<'_>,
        plan: &PostingPlan,
        changes: &PostingChanges,
        rows: Vec<Row>,
        ended: u64,
    ) -> PyResult<PostingSnapshot> {
        let rows = given_rows(&rows)?;
        // Rows of new segments are walked over, too.
        let new = changes.bytes.saturating_mul(3 * ROW_BYTE_NANOSECONDS);
        let nanoseconds = self.assembling(plan, &rows).saturating_add(new);
        let snapshot = run(py, nanoseconds, || {
            self.core.follow(&plan.core, &changes.core, &rows, ended)
        })?;
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

impl PostingCache {
    /// The nanoseconds that completing a plan takes, at most.
    fn assembling(&self, plan: &PostingPlan, rows: &[GivenRow<'_>]) -> usize {
        let read = rows.iter().filter_map(|given| given.row);
        let read = read.map(|(_, data)| data.len()).sum::<usize>();
        let nanoseconds = read.saturating_mul(ROW_BYTE_NANOSECONDS);
        nanoseconds.saturating_add(self.core.uncounted_postings(&plan.core))
    }
}

fn given_rows(rows: &[Row]) -> PyResult<Vec<GivenRow<'_>>> {
    let rows = rows.iter().map(|(segment, term, first_term, data)| {
        let row = match (first_term.as_deref(), data.as_deref()) {
            (Some(first_term), Some(data)) => Some((first_term, data)),
            (None, None) => None,
            _ => {
                return Err(PyValueError::new_err(
                    "rows: first term and data must both be given or both be None",
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

/// Ids that were joined.
fn split(name: &str, joined: &[u8]) -> PyResult<Vec<SegmentId>> {
    let (ids, rest) = joined.as_chunks();
    match rest {
        [] => Ok(ids.to_vec()),
        _ => Err(PyValueError::new_err(format!(
            "{name}: each id must have 16 bytes, found {} bytes in all",
            joined.len()
        ))),
    }
}

type NewParts<'a> = (Vec<NewSegment<'a>>, Vec<(SegmentId, &'a [u8])>);

/// New segments with their rows, and new tombstones.
fn new_parts(rows: &[[PyBackedBytes; 5]]) -> PyResult<NewParts<'_>> {
    let (mut segments, mut tombstones) = (Vec::<NewSegment<'_>>::new(), Vec::new());
    for [kind, part, language, first, second] in rows {
        let part = id("new", part)?;
        match &**kind {
            b"1" => segments.push(NewSegment {
                id: part,
                language: std::str::from_utf8(language).map_err(|_| {
                    PyValueError::new_err("new: the language of a segment is not UTF-8")
                })?,
                header: first,
                row_keys: second,
                rows: Vec::new(),
            }),
            b"2" => tombstones.push((part, &**first)),
            b"3" => {
                let segment = segments.iter_mut().find(|segment| segment.id == part);
                let segment = segment.ok_or_else(|| {
                    PyValueError::new_err("new: a row of a segment must come after the segment")
                })?;
                segment.rows.push((&**first, &**second));
            }
            _ => {
                return Err(PyValueError::new_err(
                    "new: the kind of a row must be b\"1\", b\"2\" or b\"3\"",
                ));
            }
        }
    }
    Ok((segments, tombstones))
}

/// The index as a later state of the database lists it.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingChanges {
    core: Changes,
    /// Of the new segments' rows.
    bytes: usize,
}

#[pymethods]
impl PostingChanges {
    /// How many segments and tombstones there are.
    #[getter] // -> int
    fn parts(&self) -> usize {
        self.core.parts()
    }

    /// How many new segments lack rows, or have rows that differ from those written.
    #[getter] // -> int
    fn damaged(&self) -> usize {
        self.core.damaged()
    }

    /// Languages of the segments.
    #[getter] // -> set[str]
    fn languages(&self) -> HashSet<&str> {
        self.core.languages().collect()
    }
}

/// What a query needs, and what of it is cached.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingPlan {
    core: search::PostingPlan,
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
    /// Ids of the segments whose headers are cached, in ascending order.
    #[getter] // -> list[bytes]
    fn known_segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        caught(|| ids(py, self.core.known_segments()))
    }

    /// Ids of the cached tombstones, in ascending order.
    #[getter] // -> list[bytes]
    fn known_tombstones<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        caught(|| ids(py, self.core.known_tombstones()))
    }

    /// Ids of the cached segments and of the cached tombstones, each joined.
    #[getter] // -> tuple[bytes, bytes]
    fn state<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        caught(|| {
            let segments = joined(py, self.core.known_segments());
            Ok((segments, joined(py, self.core.known_tombstones())))
        })
    }

    /// (segment id, term) of the lists of known segments that are needed and not cached.
    #[getter] // -> list[tuple[bytes, bytes]]
    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Missing<'py>> {
        caught(|| {
            let missing = self.core.missing();
            let pairs = missing.map(|(segment, term)| {
                (PyBytes::new(py, segment), PyBytes::new(py, term.as_bytes()))
            });
            Ok(pairs.collect())
        })
    }

    /// (language, term) of the terms to read from all segments of their language.
    #[getter] // -> list[tuple[str, bytes]]
    fn cold<'py>(&self, py: Python<'py>) -> PyResult<Terms<'py>> {
        caught(|| Ok(self.terms(py, true)))
    }

    /// (language, term) of the terms to read from those segments of their language that are not known.
    #[getter] // -> list[tuple[str, bytes]]
    fn warm<'py>(&self, py: Python<'py>) -> PyResult<Terms<'py>> {
        caught(|| Ok(self.terms(py, false)))
    }
}

fn joined<'a, 'py>(
    py: Python<'py>,
    ids: impl Iterator<Item = &'a SegmentId>,
) -> Bound<'py, PyBytes> {
    let mut ids: Vec<_> = ids.copied().collect();
    ids.sort_unstable();
    PyBytes::new(py, ids.as_flattened())
}

fn ids<'a, 'py>(
    py: Python<'py>,
    ids: impl Iterator<Item = &'a SegmentId>,
) -> PyResult<Bound<'py, PyList>> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    PyList::new(py, ids.into_iter().map(|id| PyBytes::new(py, id)))
}

/// A query over one snapshot of the database, with everything that it needs. Immutable.
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct PostingSnapshot {
    core: search::Snapshot,
}

#[pymethods]
impl PostingSnapshot {
    /// Languages of the segments.
    #[getter] // -> list[str]
    fn languages(&self) -> Vec<String> {
        self.core.languages().to_vec()
    }

    /// Languages that the plan lacks: plan again with them, then take the snapshot again, before searching.
    #[getter] // -> list[str]
    fn missing_languages(&self) -> Vec<String> {
        self.core.missing_languages().to_vec()
    }

    /// Whether no snapshot of a later state was completed before.
    #[getter] // -> bool
    fn is_latest(&self) -> bool {
        self.core.is_latest()
    }

    /// Number of live chunks.
    #[getter] // -> int
    fn chunks(&self) -> u64 {
        self.core.chunks()
    }

    /// Postings of the wanted terms, those of dead chunks included.
    #[getter] // -> int
    fn postings(&self) -> u64 {
        self.core.postings()
    }

    /// Return how much of the query each chunk contains: the share of its terms' weight (idf) that occurs in the chunk.
    ///
    /// Args:
    ///     keyword_ids: int64 (n,), in any order.
    ///
    /// Returns:
    ///     float64 (n,), 0 to 1; exactly 1 if all terms occur. A word in no chunk of the collection counts with the
    ///     greatest weight. NaN for chunks that are in no segment or deleted, and for those in whose language the query
    ///     has no term.
    ///
    /// Raises:
    ///     ValueError: For another array, or when languages are missing.
    #[pyo3(signature = (keyword_ids: "NDArray[np.int64]") -> "NDArray[np.float64]")]
    fn coverage<'py>(
        &self,
        py: Python<'py>,
        keyword_ids: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let ids = vector::<i64>(&|| "keyword_ids".to_owned(), keyword_ids)?;
        let nanoseconds = ids.len().saturating_mul(COVERAGE_NANOSECONDS);
        let found = run(py, nanoseconds, || self.core.coverage(&ids))?;
        let found = found.map_err(|error| segment_error(py, error))?;
        Ok(PyArray1::from_vec(py, found))
    }

    /// Find the best chunks by exact BM25 over the live chunks of all languages.
    ///
    /// The sum over wanted slots of ``idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length))`` with
    /// ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))``: Robertson and Zaragoza, "The Probabilistic Relevance Framework:
    /// BM25 and Beyond" (2009), with the idf of Lucene. A slot's df counts the chunks that hold its term in their own
    /// language. Chunks with equal terms have equal scores, wherever they are stored.
    ///
    /// Args:
    ///     k: How many chunks to find.
    ///     k1: Term-frequency saturation, 0 to 1,000; higher values let repetitions count more.
    ///     b: Weight of length normalisation, 0 to 1.
    ///     allowed: Only these keyword ids are found; int64 (n,), in any order, ascending is fastest. None: all.
    ///     score_ids: Keyword ids of chunks that are scored in any case, ``allowed`` or not; int64 (m,).
    ///     before: An earlier search that makes this one faster, with the same plan, ``k1`` and ``b`` and without
    ///         ``allowed``, on a slightly earlier state of the database: (snapshot, ``k``, ids found, their scores).
    ///
    /// Returns:
    ///     (ids, scores, scores of ``score_ids``, work). The ids, int64 (n,), are those of the best ``k`` chunks that hold a
    ///     wanted term, and of up to 1,000 more whose score equals the k-th; by score descending, then by id. Scores
    ///     are float64 (n,). Those of ``score_ids``, float64 (m,), are 0 without a wanted term, NaN for chunks that
    ///     are in no segment, deleted, excluded or without a term of a phrase. ``work`` does not include ``score_ids``:
    ///     postings unpacked, blocks of up to 128 postings skipped, chunks scored again in double precision.
    ///
    /// Raises:
    ///     ValueError: For arguments out of range, or when languages are missing.
    #[pyo3(signature = (
        k: "int",
        *,
        k1: "float" = 1.2,
        b: "float" = 0.75,
        allowed: "NDArray[np.int64] | None" = None,
        score_ids: "NDArray[np.int64] | None" = None,
        before: "tuple[PostingSnapshot, int, NDArray[np.int64], NDArray[np.float64]] | None" = None,
    ) -> "tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], tuple[int, int, int]]")]
    #[allow(clippy::too_many_arguments, reason = "what Python gives is taken")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        k: i64,
        k1: f64,
        b: f64,
        allowed: Option<&Bound<'py, PyAny>>,
        score_ids: Option<&Bound<'py, PyAny>>,
        before: Option<Earlier<'py>>,
    ) -> PyResult<Scored<'py>> {
        let k = at_least("k", k, 0)?;
        let taken = |name: &str, ids: Option<&Bound<'py, PyAny>>| {
            ids.map(|ids| vector::<i64>(&|| name.to_owned(), ids))
                .transpose()
        };
        let allowed = taken("allowed", allowed)?;
        let score_ids = taken("score_ids", score_ids)?.unwrap_or_default();
        let before = before.map(|(snapshot, k, ids, scores)| {
            let ids = vector::<i64>(&|| "before".to_owned(), &ids)?;
            let scores = vector::<f64>(&|| "before".to_owned(), &scores)?;
            if ids.len() != scores.len() {
                return Err(PyValueError::new_err(format!(
                    "before: must have one score per id, expected {}, found {}",
                    ids.len(),
                    scores.len()
                )));
            }
            let best: Vec<_> = scores.into_iter().zip(ids).collect();
            Ok((snapshot, at_least("before", k, 0)?, best))
        });
        let before = before.transpose()?;
        let before = before.as_ref().map(|(snapshot, k, best)| search::Before {
            snapshot: &snapshot.get().core,
            k: *k,
            best,
        });
        let parameters = Parameters { k1, b };
        let found_before = before.map_or(0, |before| before.best.len());
        let ids = allowed.as_ref().map_or(0, Vec::len) + score_ids.len() + found_before;
        let postings = usize::try_from(self.core.postings()).unwrap_or(usize::MAX);
        let nanoseconds = ids.saturating_mul(ID_NANOSECONDS).saturating_add(postings);
        let found = run(py, nanoseconds, || {
            self.core
                .search_again(k, parameters, allowed.as_deref(), &score_ids, before)
        })?;
        let found = found.map_err(|error| segment_error(py, error))?;
        let work = found.work;
        let (scores, ids): (Vec<f64>, Vec<i64>) = found.best.into_iter().unzip();
        Ok((
            PyArray1::from_vec(py, ids),
            PyArray1::from_vec(py, scores),
            PyArray1::from_vec(py, found.scores),
            (work.postings, work.skipped_blocks, work.rescored),
        ))
    }
}
