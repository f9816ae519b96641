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

/// A batch of rows, ready to be written in blocks.
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
    #[pyo3(signature = (columns, ids = None))]
    fn new(
        py: Python<'_>,
        columns: Vec<(String, String, Bound<'_, PyAny>)>,
        ids: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        caught(|| Self::taken(py, columns, ids))
    }

    /// Number of rows.
    #[getter]
    fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that a buffer must at least have.
    #[getter]
    fn largest_row(&self) -> usize {
        self.largest_row
    }

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

/// Columns of Python values out of a binary COPY stream.
#[pyfunction]
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

/// Columns of buffers out of a binary COPY stream.
#[pyfunction]
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
