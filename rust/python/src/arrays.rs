//! NumPy arrays as columns: borrowed, never copied, looked at before they are read.

use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArray1,
    PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use semlex_core::field_error::{Code, RuleError};
use semlex_core::pgcopy::{Cells, Column, Lists, Rows, Scalar, ScalarColumn, Type};

use crate::objects::wrong_type;

/// An array that a column reads.
pub(crate) struct ArraySource {
    kind: Type,
    rows: usize,
    width: usize,
    handle: Handle,
}

enum Handle {
    Int64(Py<PyArrayDyn<i64>>),
    Float32(Py<PyArrayDyn<f32>>),
    Float64(Py<PyArrayDyn<f64>>),
    Byte(Py<PyArrayDyn<u8>>),
}

/// The same array, held for reading while Rust works on it.
pub(crate) enum Borrowed<'py> {
    Int64(PyReadonlyArrayDyn<'py, i64>),
    Float32(PyReadonlyArrayDyn<'py, f32>),
    Float64(PyReadonlyArrayDyn<'py, f64>),
    Byte(PyReadonlyArrayDyn<'py, u8>),
}

impl ArraySource {
    /// Looks at dtype, shape and layout, and keeps the array.
    pub(crate) fn take(kind: Type, array: &Bound<'_, PyUntypedArray>) -> Result<Self, RuleError> {
        let (dtype, shape) = match kind {
            Type::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Timestamptz) => {
                ("int64", "(n,)")
            }
            Type::Scalar(Scalar::Float4) => ("float32", "(n,)"),
            Type::Scalar(Scalar::Float8) => ("float64", "(n,)"),
            Type::Scalar(Scalar::Bool) => ("bool", "(n,)"),
            Type::Scalar(Scalar::Uuid) => ("uint8", "(n, 16)"),
            Type::Vector | Type::Halfvec => ("float32", "(n, d)"),
            Type::Bit => ("uint8 or bool", "(n, d)"),
            _ => return Err(wrong_type(array, "list")),
        };
        let wanted = || format!("{dtype} {shape}");
        let wrong_dtype = || {
            RuleError::new(Code::WrongDtype)
                .limit(wanted())
                .actual(described(array))
        };
        let handle = match dtype {
            "int64" => Handle::Int64(cast(array).ok_or_else(wrong_dtype)?),
            "float32" => Handle::Float32(cast(array).ok_or_else(wrong_dtype)?),
            "float64" => Handle::Float64(cast(array).ok_or_else(wrong_dtype)?),
            _ => Handle::Byte(bytes(array, dtype).ok_or_else(wrong_dtype)?),
        };
        let dimensions = if shape == "(n,)" { 1 } else { 2 };
        let width = array.shape().get(1).copied().unwrap_or(1);
        if array.ndim() != dimensions || (shape == "(n, 16)" && width != 16) {
            return Err(RuleError::new(Code::WrongShape)
                .limit(wanted())
                .actual(described(array)));
        }
        let source = Self {
            kind,
            rows: array.shape().first().copied().unwrap_or(0),
            width,
            handle,
        };
        let borrowed = source.borrow(array.py())?;
        source.column(&borrowed)?;
        Ok(source)
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Holds the array for reading.
    pub(crate) fn borrow<'py>(&self, py: Python<'py>) -> Result<Borrowed<'py>, RuleError> {
        Ok(match &self.handle {
            Handle::Int64(array) => Borrowed::Int64(held(array.bind(py))?),
            Handle::Float32(array) => Borrowed::Float32(held(array.bind(py))?),
            Handle::Float64(array) => Borrowed::Float64(held(array.bind(py))?),
            Handle::Byte(array) => Borrowed::Byte(held(array.bind(py))?),
        })
    }

    /// The array as the encoder reads it. Looks at the shape again: arrays can be reshaped in place.
    pub(crate) fn column<'a>(&self, borrowed: &'a Borrowed<'_>) -> Result<Column<'a>, RuleError> {
        let rows = Rows::Dense {
            width: self.width,
            count: self.rows,
        };
        let scalar = match (borrowed, self.kind) {
            (Borrowed::Float32(array), Type::Vector) => {
                return Ok(Column::Vector(Lists {
                    values: self.slice(array)?,
                    rows,
                }));
            }
            (Borrowed::Float32(array), Type::Halfvec) => {
                return Ok(Column::Halfvec(Lists {
                    values: self.slice(array)?,
                    rows,
                }));
            }
            (Borrowed::Byte(array), Type::Bit) => {
                return Ok(Column::Bit(Lists {
                    values: self.slice(array)?,
                    rows,
                }));
            }
            (Borrowed::Byte(array), Type::Scalar(Scalar::Uuid)) => {
                ScalarColumn::Uuid(cells(self.slice(array)?.as_chunks::<16>().0))
            }
            (Borrowed::Byte(array), _) => ScalarColumn::Bool(cells(self.slice(array)?)),
            (Borrowed::Float32(array), _) => ScalarColumn::Float4(cells(self.slice(array)?)),
            (Borrowed::Float64(array), _) => ScalarColumn::Float8(cells(self.slice(array)?)),
            (Borrowed::Int64(array), Type::Scalar(Scalar::Int2)) => {
                ScalarColumn::Int2(cells(self.slice(array)?))
            }
            (Borrowed::Int64(array), Type::Scalar(Scalar::Int4)) => {
                ScalarColumn::Int4(cells(self.slice(array)?))
            }
            (Borrowed::Int64(array), Type::Scalar(Scalar::Int8)) => {
                ScalarColumn::Int8(cells(self.slice(array)?))
            }
            (Borrowed::Int64(array), _) => ScalarColumn::Timestamptz(cells(self.slice(array)?)),
        };
        Ok(Column::Scalar(scalar))
    }

    fn slice<'a, T: Element>(
        &self,
        array: &'a PyReadonlyArrayDyn<'_, T>,
    ) -> Result<&'a [T], RuleError> {
        let found = array.shape();
        if found.first() != Some(&self.rows) || found.get(1).copied().unwrap_or(1) != self.width {
            let wanted = format!("({}, {})", self.rows, self.width);
            return Err(RuleError::new(Code::WrongShape)
                .limit(wanted)
                .actual(format!("{found:?} after another thread changed it")));
        }
        let layout = |_| RuleError::new(Code::WrongLayout).actual(described(array.as_untyped()));
        if !array.is_c_contiguous() || !array.is_aligned() {
            return Err(layout(()));
        }
        array.as_slice().map_err(|_| layout(()))
    }
}

fn cells<T>(values: &[T]) -> Cells<'_, T> {
    Cells {
        values,
        nulls: None,
    }
}

fn cast<T: Element>(array: &Bound<'_, PyUntypedArray>) -> Option<Py<PyArrayDyn<T>>> {
    array
        .cast::<PyArrayDyn<T>>()
        .ok()
        .map(|array| array.clone().unbind())
}

/// An array of uint8, or of bool seen as uint8: memory that Python owns may hold any byte, a `bool` of Rust may not.
fn bytes(array: &Bound<'_, PyUntypedArray>, dtype: &str) -> Option<Py<PyArrayDyn<u8>>> {
    let bools = dtype != "uint8" && array.cast::<PyArrayDyn<bool>>().is_ok();
    if bools {
        let view = array.call_method1("view", ("uint8",)).ok()?;
        return view
            .cast::<PyArrayDyn<u8>>()
            .ok()
            .map(|view| view.clone().unbind());
    }
    if dtype == "bool" { None } else { cast(array) }
}

fn held<'py, T: Element>(
    array: &Bound<'py, PyArrayDyn<T>>,
) -> Result<PyReadonlyArrayDyn<'py, T>, RuleError> {
    array.try_readonly().map_err(|_| {
        RuleError::new(Code::WrongLayout).actual("memory that another thread is writing to")
    })
}

/// A one-dimensional array out of a list.
pub(crate) fn one_dimensional<'py, T: Element>(
    value: &Bound<'py, PyAny>,
    wanted: &'static str,
) -> Result<PyReadonlyArray1<'py, T>, RuleError> {
    let array = value
        .cast::<PyUntypedArray>()
        .map_err(|_| wrong_type(value, wanted))?;
    let Ok(typed) = array.cast::<PyArray1<T>>() else {
        let code = if array.cast::<PyArrayDyn<T>>().is_ok() {
            Code::WrongShape
        } else {
            Code::WrongDtype
        };
        return Err(RuleError::new(code).limit(wanted).actual(described(array)));
    };
    typed.try_readonly().map_err(|_| {
        RuleError::new(Code::WrongLayout).actual("memory that another thread is writing to")
    })
}

/// dtype and shape, for messages.
pub(crate) fn described(array: &Bound<'_, PyUntypedArray>) -> String {
    let dtype = array.dtype();
    let order = if matches!(dtype.byteorder(), b'>') && cfg!(target_endian = "little") {
        "big-endian "
    } else {
        ""
    };
    let shape: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let name = dtype
        .getattr("name")
        .map_or_else(|_| "?".to_owned(), |name| name.to_string());
    format!("{order}{name} ({}{comma})", shape.join(", "))
}
