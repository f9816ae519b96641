//! One argument of Python into one column: arrays are borrowed, lists are converted, every refusal is noted by row.

use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use semlex_core::field_error::{Code, FieldError, RuleError};
use semlex_core::json::Limits;
use semlex_core::pgcopy::{
    Column, MAX_SPARSE_DIMENSIONS, OwnedColumn, OwnedLists, OwnedSparse, Type,
};

use crate::arrays::{ArraySource, Borrowed, one_dimensional};
use crate::cells::push;
use crate::json::append_json;
use crate::objects::{snapshot, wrong_type};

/// Where a column's values live.
pub(crate) enum Source {
    /// Converted from a list.
    Owned(OwnedColumn),
    /// An array of the caller's.
    Array(ArraySource),
}

impl Source {
    /// Converts `data`; refusals of single rows go to `errors` and leave NULL in their place.
    pub(crate) fn take(
        kind: Type,
        name: &str,
        data: &Bound<'_, PyAny>,
        errors: &mut Vec<FieldError>,
    ) -> Option<Self> {
        let taken = match data.cast::<PyUntypedArray>() {
            Ok(array) => ArraySource::take(kind, array).map(Self::Array),
            Err(_) if kind == Type::Sparsevec => sparse(name, data, errors).map(Self::Owned),
            Err(_) => match snapshot(data) {
                None => Err(wrong_type(data, expected(kind))),
                Some(rows) if kind == Type::Jsonb => Ok(Self::Owned(jsonb(name, &rows, errors))),
                Some(rows) => Ok(Self::Owned(listed(kind, name, &rows, errors))),
            },
        };
        taken
            .map_err(|error| errors.push(error.at(None, name)))
            .ok()
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Owned(column) => column.count(),
            Self::Array(array) => array.rows(),
        }
    }

    /// Holds an array for reading; nothing to hold for what is owned.
    pub(crate) fn borrow<'py>(&self, py: Python<'py>) -> Result<Option<Borrowed<'py>>, RuleError> {
        match self {
            Self::Owned(_) => Ok(None),
            Self::Array(array) => array.borrow(py).map(Some),
        }
    }

    /// The column as the encoder reads it.
    pub(crate) fn column<'a>(
        &'a self,
        borrowed: Option<&'a Borrowed<'_>>,
    ) -> Result<Column<'a>, RuleError> {
        match (self, borrowed) {
            (Self::Owned(column), _) => Ok(column.lend()),
            (Self::Array(array), Some(borrowed)) => array.column(borrowed),
            (Self::Array(_), None) => Err(RuleError::new(Code::WrongLayout)),
        }
    }
}

fn expected(kind: Type) -> &'static str {
    match kind {
        Type::Scalar(semlex_core::pgcopy::Scalar::Text)
        | Type::Array(_)
        | Type::Jsonb
        | Type::Bytea => "list",
        _ => "array or list",
    }
}

fn listed(
    kind: Type,
    name: &str,
    rows: &Bound<'_, PyTuple>,
    errors: &mut Vec<FieldError>,
) -> OwnedColumn {
    let mut column = OwnedColumn::new(kind);
    // Many rows are of one time, and asking Python what it is takes longest.
    let mut time: Option<Bound<'_, PyAny>> = None;
    for (row, value) in rows.iter().enumerate() {
        if time.as_ref().is_some_and(|time| time.is(&value)) && column.repeat_time() {
            continue;
        }
        if value.is_none() {
            column.push_null();
        } else if let Err(error) = push(&mut column, &value) {
            errors.push(error.at(Some(row), name));
            column.push_null();
        } else {
            time = Some(value);
            continue;
        }
        time = None;
    }
    column
}

fn jsonb(name: &str, rows: &Bound<'_, PyTuple>, errors: &mut Vec<FieldError>) -> OwnedColumn {
    let mut values = Vec::new();
    let mut ranges = Vec::with_capacity(rows.len());
    for (row, value) in rows.iter().enumerate() {
        let start = values.len();
        if value.is_none() {
            ranges.push(None);
        } else if let Err(error) = append_json(&mut values, &value, Limits::default()) {
            errors.push(error.at(Some(row), name));
            ranges.push(None);
        } else {
            ranges.push(Some(start..values.len()));
        }
    }
    OwnedColumn::Jsonb(OwnedLists {
        values,
        rows: ranges,
    })
}

/// `(dimensions, [(indices, values) | None, …])`.
fn sparse(
    name: &str,
    data: &Bound<'_, PyAny>,
    errors: &mut Vec<FieldError>,
) -> Result<OwnedColumn, RuleError> {
    let wanted = "(dimensions, list of (indices, values) or None)";
    let pair = data
        .cast::<PyTuple>()
        .ok()
        .filter(|pair| pair.len() == 2)
        .ok_or_else(|| wrong_type(data, wanted))?;
    let (dimensions, rows) = (pair.get_item(0), pair.get_item(1));
    let (Ok(dimensions), Ok(rows)) = (dimensions, rows) else {
        return Err(wrong_type(data, wanted));
    };
    let dimension = dimensions.extract::<i32>().ok().filter(|dimension| {
        usize::try_from(*dimension)
            .is_ok_and(|dimension| (1..=MAX_SPARSE_DIMENSIONS).contains(&dimension))
    });
    let Some(dimension) = dimension else {
        let integer = dimensions.is_instance_of::<PyInt>();
        let error =
            RuleError::new(Code::WrongDimension).limit(format!("1 to {MAX_SPARSE_DIMENSIONS}"));
        return Err(if integer {
            error
        } else {
            wrong_type(&dimensions, "int")
        });
    };
    let rows = snapshot(&rows).ok_or_else(|| wrong_type(&rows, "list"))?;
    let mut column = OwnedSparse::default();
    for (row, value) in rows.iter().enumerate() {
        if value.is_none() {
            column.push(None);
        } else if let Err(error) = push_sparse(&mut column, dimension, &value) {
            errors.push(error.at(Some(row), name));
            column.push(None);
        }
    }
    Ok(OwnedColumn::Sparsevec(column))
}

fn push_sparse(
    column: &mut OwnedSparse,
    dimension: i32,
    value: &Bound<'_, PyAny>,
) -> Result<(), RuleError> {
    let wrong = || wrong_type(value, "(indices, values)");
    let pair = snapshot(value)
        .filter(|pair| pair.len() == 2)
        .ok_or_else(wrong)?;
    let indices = one_dimensional::<i32>(&pair.get_item(0).map_err(|_| wrong())?, "int32 (m,)")?;
    let values = one_dimensional::<f32>(&pair.get_item(1).map_err(|_| wrong())?, "float32 (m,)")?;
    let layout = |_| RuleError::new(Code::WrongLayout);
    let (indices, values) = (
        indices.as_slice().map_err(layout)?,
        values.as_slice().map_err(layout)?,
    );
    column.push(Some((dimension, indices, values)));
    Ok(())
}
