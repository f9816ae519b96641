//! `CopyEncoder`, `decode_copy` and `decode_copy_buffers`: columns to binary COPY and back.

use std::sync::atomic::{AtomicUsize, Ordering};

use numpy::{PyArray1, PyArrayMethods, PyUntypedArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyList, PyTuple};
use semlex_core::field_error::{Code, FieldError, RuleError, sort_by_row};
use semlex_core::pgcopy::{Batch, EncodeError, Malformed, OwnedColumn, Type, decode};

use crate::arrays::described;
use crate::buffers;
use crate::columns::Source;
use crate::decoded::to_list;
use crate::errors::{caught, detached, validation_error};
use crate::objects::{snapshot, type_name, wrong_type};

/// Columns of rows, written as Postgres' binary COPY in blocks of the caller's size.
///
/// Format: "Binary Format" on the COPY page of the PostgreSQL manual, and the receive functions of pgvector. Every type
/// takes NULL: a list with None in it. Numbers take an array instead, which is borrowed, not copied: until the last
/// block is written no other thread may write to it or resize it, nor to the buffer while `encode_into` runs. All other
/// functions but `validate_rows` copy the arrays that they are given before they release the interpreter.
///
/// ==================  =======================================================  ==============================
/// type                list of                                                  or C-contiguous array
/// ==================  =======================================================  ==============================
/// int2, int4, int8    int (not bool)                                           int64 (n,), range checked
/// float4, float8      float or NumPy's, or int up to 2**53 (no Decimal)        float32 (n,), float64 (n,)
/// bool                bool                                                     bool (n,)
/// text                str
/// jsonb               dict, list, str, int, float, bool (see `to_json`)
/// bytea               bytes
/// uuid                uuid.UUID or 16 bytes                                    uint8 (n, 16)
/// timestamptz         datetime with a zone, years 1 to 9999                    int64 (n,), microseconds since 1970
/// vector, halfvec     float32 (d,) arrays, 1 to 16,000 dimensions              float32 (n, d)
/// bit                 str of 0 and 1                                           uint8 or bool (n, d)
/// sparsevec           ``(dimensions, list)`` of (int32 (m,), float32 (m,)): ascending indices from 0, values not 0
/// T[]                 lists of the above, None inside allowed; T is a number, bool, text, uuid or timestamptz
/// ==================  =======================================================  ==============================
///
/// halfvec rounds to the nearest float16, ties to even; values that would become infinite are refused.
///
/// Example:
///     >>> encoder = CopyEncoder([("id", "text", ids), ("embedding", "vector", vectors)], ids)
///     >>> buffer, position = np.empty(max(encoder.largest_row, 1 << 20), np.uint8), 0
///     >>> while position <= encoder.rows:
///     ...     position, written = encoder.encode_into(buffer, position)
///     ...     send(buffer[:written])  # must have left the buffer before the next block
///
/// Args:
///     columns: (field name, type, values) of each column, in the order in which the COPY statement names them.
///     ids: One id a row, used only to name rows in errors.
///
/// Raises:
///     semlex.errors.ValidationError: With every rule that any row breaks, except those of the components of dense
///         vectors: `encode_into` checks these in the pass that copies them (`validate_rows` finds all of them before).
#[pyclass(frozen, module = "semlex._core")]
pub(crate) struct CopyEncoder {
    columns: Vec<(String, Source)>,
    ids: Option<Py<PyTuple>>,
    rows: usize,
    largest_row: usize,
    /// Where the next block begins.
    next: AtomicUsize,
}

#[pymethods]
impl CopyEncoder {
    #[new]
    #[pyo3(signature = (
        columns: "Sequence[tuple[str, str, object]]",
        ids: "Sequence[str] | None" = None,
    ))]
    fn new(
        py: Python<'_>,
        columns: Vec<(String, String, Bound<'_, PyAny>)>,
        ids: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        caught(|| Self::taken(py, columns, ids))
    }

    /// Number of rows.
    #[getter] // -> int
    fn rows(&self) -> usize {
        self.rows
    }

    /// Minimum size of a buffer in bytes: the largest row with the stream's header and trailer.
    #[getter] // -> int
    fn largest_row(&self) -> usize {
        self.largest_row
    }

    /// Write as many rows from ``position`` on as fit.
    ///
    /// Reuse one buffer: with a fresh one per block the page faults cost more than the encoding.
    ///
    /// Args:
    ///     buffer: Writable uint8 (n,), C-contiguous, at least `largest_row` bytes; 1 MiB is best
    ///         (smaller ones take up to 50 % longer).
    ///     position: 0 to begin (again), else what the previous call returned.
    ///
    /// Returns:
    ///     (next position, bytes written). The stream is complete, trailer included, when the next position is
    ///     ``rows + 1``.
    ///
    /// Raises:
    ///     ValueError: For another position, or a buffer that is too small or read-only.
    ///     TypeError: When the buffer is not a one-dimensional uint8 array.
    ///     semlex.errors.ValidationError: When a component is NaN or infinite or overflows float16, or an array was
    ///         changed since construction so that it breaks a rule.
    #[pyo3(signature = (buffer: "NDArray[np.uint8]", position: "int") -> "tuple[int, int]")]
    fn encode_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        position: i64,
    ) -> PyResult<(usize, usize)> {
        let expected = self.next.load(Ordering::Acquire);
        let position = usize::try_from(position)
            .ok()
            .filter(|position| *position == 0 || *position == expected);
        let Some(position) = position.filter(|position| *position <= self.rows) else {
            let end = if expected > self.rows {
                " (the stream is complete)"
            } else {
                ""
            };
            return Err(PyValueError::new_err(format!(
                "position: expected 0 or {expected}{end}"
            )));
        };
        let mut space = writable(buffer)?;
        let bytes = space
            .as_slice_mut()
            .map_err(|_| PyValueError::new_err("buffer: expected a contiguous array"))?;
        let encoded = self.with_batch(py, |batch| batch.encode_into(bytes, position))?;
        match encoded.map_err(|errors| self.refused(py, errors))? {
            Ok((next, written)) => {
                self.next.store(next, Ordering::Release);
                Ok((next, written))
            }
            Err(EncodeError::Value(error)) => Err(self.refused(py, vec![error])),
            Err(EncodeError::BufferTooSmall { needed, available }) => {
                Err(PyValueError::new_err(format!(
                    "buffer: the next row needs {needed} bytes, the buffer has {available}; largest_row is always enough"
                )))
            }
            Err(EncodeError::WrongPosition { last }) => Err(PyValueError::new_err(format!(
                "position: expected at most {last}"
            ))),
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "CopyEncoder({} columns, {} rows)",
            self.columns.len(),
            self.rows
        )
    }
}

impl CopyEncoder {
    /// Takes columns, and checks all of them.
    fn taken(
        py: Python<'_>,
        columns: Vec<(String, String, Bound<'_, PyAny>)>,
        ids: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut errors = Vec::new();
        let ids = ids.and_then(|ids| match snapshot(&ids) {
            Some(ids) => Some(ids),
            None => {
                errors.push(wrong_type(&ids, "list").at(None, "ids"));
                None
            }
        });
        let names: Vec<String> = columns.iter().map(|(name, ..)| name.clone()).collect();
        let mut taken = Vec::with_capacity(columns.len());
        for (name, kind, data) in columns {
            match Type::parse(&kind) {
                None => errors.push(
                    RuleError::new(Code::UnknownType)
                        .limit(Type::NAMES)
                        .at(None, &name),
                ),
                Some(kind) => taken.extend(
                    Source::take(kind, &name, &data, &mut errors).map(|source| (name, source)),
                ),
            }
        }
        let rows = taken.first().map_or(0, |(_, source)| source.rows());
        if let Some(ids) = ids
            .as_ref()
            .filter(|ids| ids.len() != rows && !taken.is_empty())
        {
            let error = RuleError::new(Code::LengthDiffers)
                .limit(rows.to_string())
                .actual(ids.len().to_string());
            errors.push(error.at(None, "ids"));
        }
        let encoder = Self {
            columns: taken,
            ids: ids.map(Bound::unbind),
            rows,
            largest_row: 0,
            next: AtomicUsize::new(0),
        };
        let largest = encoder.with_batch(py, |batch| {
            let found = batch.check();
            if found.is_empty() {
                batch.largest_row().map_err(|error| vec![error])
            } else {
                Err(found)
            }
        });
        match largest?.and_then(|checked| checked) {
            Ok(largest_row) if errors.is_empty() => Ok(Self {
                largest_row,
                ..encoder
            }),
            found => {
                errors.extend(found.err().unwrap_or_default());
                let place = |error: &FieldError| names.iter().position(|name| *name == error.field);
                errors.sort_by_cached_key(place);
                sort_by_row(&mut errors);
                Err(encoder.refused(py, errors))
            }
        }
    }

    /// Runs `work` on the columns with the interpreter released; or says which of them have changed, or do not fit.
    fn with_batch<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&Batch<'_>) -> T,
    ) -> PyResult<Result<T, Vec<FieldError>>> {
        let mut errors = Vec::new();
        let mut held = Vec::with_capacity(self.columns.len());
        for (name, source) in &self.columns {
            match source.borrow(py) {
                Ok(borrowed) => held.push((name, source, borrowed)),
                Err(error) => errors.push(error.at(None, name)),
            }
        }
        let mut columns = Vec::with_capacity(held.len());
        for (name, source, borrowed) in &held {
            match source.column(borrowed.as_ref()) {
                Ok(column) => columns.push((name.as_str(), column)),
                Err(error) => errors.push(error.at(None, name)),
            }
        }
        if !errors.is_empty() {
            return Ok(Err(errors));
        }
        match Batch::new(columns) {
            Ok(batch) => detached(py, || work(&batch)).map(Ok),
            Err(error) => Ok(Err(vec![error])),
        }
    }

    fn refused(&self, py: Python<'_>, errors: Vec<FieldError>) -> PyErr {
        validation_error(py, errors, self.ids.as_ref().map(|ids| ids.bind(py)))
    }
}

/// The buffer, held for writing.
fn writable<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<numpy::PyReadwriteArray1<'py, u8>> {
    let found = || match buffer.cast::<PyUntypedArray>() {
        Ok(array) => described(array),
        Err(_) => type_name(buffer),
    };
    let wanted = "buffer: expected a uint8 array (n,)";
    let array = buffer
        .cast::<PyArray1<u8>>()
        .map_err(|_| PyTypeError::new_err(format!("{wanted}, got {}", found())))?;
    array
        .try_readwrite()
        .map_err(|error| PyValueError::new_err(format!("buffer: {error}")))
}

/// Read a whole binary COPY stream.
///
/// Args:
///     data: The stream, header to trailer.
///     types: Type of each column, by the names that `CopyEncoder` takes.
///
/// Returns:
///     One list a column. vector and halfvec become float32 (d,), bit a str, sparsevec (dimensions, int32 (m,),
///     float32 (m,)), timestamptz a datetime in UTC, jsonb the result of ``json.loads``; NULL is None.
///
/// Raises:
///     semlex.errors.ValidationError: Code ``malformed_copy``, with the place, for anything that the server would not
///         send for these types; ``unknown_type``.
#[pyfunction]
#[pyo3(signature = (data: "bytes", types: "Sequence[str]") -> "list[list[Any]]")]
pub(crate) fn decode_copy<'py>(
    py: Python<'py>,
    data: PyBackedBytes,
    types: Vec<String>,
) -> PyResult<Bound<'py, PyList>> {
    let columns = decoded(py, &data, &types)?;
    caught(|| {
        let lists = columns
            .iter()
            .map(|column| to_list(py, column))
            .collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, lists)
    })
}

/// Read a whole binary COPY stream without making a Python object for each value.
///
/// Args:
///     data: The stream, header to trailer.
///     types: Type of each column, by the names that `CopyEncoder` takes; not sparsevec.
///
/// Returns:
///     (nulls, offsets, values) a column, as Arrow lays it out. nulls is bool (n,), None where no row is null. offsets
///     is int32 (n + 1,): where each row begins in the values, None where each row is one value. values are those of
///     all rows, one after another: int64 of whole numbers and of timestamptz (microseconds since 1970), float32,
///     float64, uint8 of text, jsonb, bytea, bool, bit (one a bit) and uuid (16 a row), float32 of vectors; of arrays
///     such a tuple of the elements.
///
/// Raises:
///     semlex.errors.ValidationError: As `decode_copy` does.
///     TypeError: For sparsevec.
///     OverflowError: When a column has more than 2 GiB.
#[pyfunction]
#[pyo3(signature = (data: "bytes", types: "Sequence[str]") -> "list[tuple[Any, Any, Any]]")]
pub(crate) fn decode_copy_buffers<'py>(
    py: Python<'py>,
    data: PyBackedBytes,
    types: Vec<String>,
) -> PyResult<Bound<'py, PyList>> {
    let columns = decoded(py, &data, &types)?;
    caught(|| {
        let tuples = columns
            .into_iter()
            .map(|column| buffers::to_buffers(py, column))
            .collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, tuples)
    })
}

fn decoded(py: Python<'_>, data: &[u8], names: &[String]) -> PyResult<Vec<OwnedColumn>> {
    let unknown = |name: &String| {
        RuleError::new(Code::UnknownType)
            .limit(Type::NAMES)
            .at(None, name)
    };
    let types = names
        .iter()
        .map(|name| Type::parse(name).ok_or_else(|| unknown(name)))
        .collect::<Result<Vec<_>, _>>();
    let types = types.map_err(|error| validation_error(py, vec![error], None))?;
    detached(py, || decode(data, &types))?.map_err(|malformed| {
        let Malformed {
            row,
            column,
            offset,
            reason,
        } = malformed;
        let field = column.map_or_else(|| "stream".to_owned(), |column| format!("column {column}"));
        let error = RuleError::new(Code::MalformedCopy).actual(format!("byte {offset}: {reason}"));
        validation_error(py, vec![error.at(row, &field)], None)
    })
}
