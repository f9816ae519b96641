//! One Python value into an owned column. A refused value leaves the column as it was.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};
use semlex_core::field_error::{Code, RuleError};
use semlex_core::pgcopy::{OwnedCells, OwnedColumn, OwnedScalar};

use crate::arrays::one_dimensional;
use crate::objects::{snapshot, utf8, wrong_type};

/// Larger integers are not exact in a float64.
const EXACT_INTEGER: i64 = 1 << 53;

/// Appends a value that is not None.
pub(crate) fn push(column: &mut OwnedColumn, value: &Bound<'_, PyAny>) -> Result<(), RuleError> {
    match column {
        OwnedColumn::Scalar(scalar) => push_scalar(scalar, value)?,
        OwnedColumn::Array(elements, rows) => {
            let items = snapshot(value).ok_or_else(|| wrong_type(value, "list"))?;
            let start = elements.count();
            for (place, item) in items.iter().enumerate() {
                if item.is_none() {
                    elements.push_null();
                } else {
                    push_scalar(elements, &item).map_err(|error| error.in_element(place))?;
                }
            }
            rows.push(Some(start..elements.count()));
        }
        OwnedColumn::Jsonb(_) => return Err(wrong_type(value, "JSON")), // columns.rs writes those
        OwnedColumn::Bytea(lists) => {
            let bytes = value
                .cast::<PyBytes>()
                .map_err(|_| wrong_type(value, "bytes"))?;
            lists.push(Some(bytes.as_bytes()));
        }
        OwnedColumn::Vector(lists) | OwnedColumn::Halfvec(lists) => {
            let array = one_dimensional::<f32>(value, "float32 (d,)")?;
            lists.push(Some(
                array
                    .as_slice()
                    .map_err(|_| RuleError::new(Code::WrongLayout))?,
            ));
        }
        OwnedColumn::Bit(lists) => {
            let text = value
                .cast::<PyString>()
                .map_err(|_| wrong_type(value, "str of 0 and 1"))?;
            let text = utf8(text)?;
            if let Some(place) = text
                .chars()
                .position(|letter| letter != '0' && letter != '1')
            {
                return Err(RuleError::new(Code::NotBinary).actual(format!("bit {place}")));
            }
            let bits: Vec<u8> = text.bytes().map(|byte| byte & 1).collect();
            lists.push(Some(&bits));
        }
        OwnedColumn::Sparsevec(_) => return Err(wrong_type(value, "sparse row")), // columns.rs knows the dimension
    }
    Ok(())
}

fn push_scalar(scalar: &mut OwnedScalar, value: &Bound<'_, PyAny>) -> Result<(), RuleError> {
    match scalar {
        OwnedScalar::Int2(cells) => push_integer(cells, value, "-32768 to 32767"),
        OwnedScalar::Int4(cells) => push_integer(cells, value, "-2147483648 to 2147483647"),
        OwnedScalar::Int8(cells) => {
            push_integer(cells, value, "-9223372036854775808 to 9223372036854775807")
        }
        OwnedScalar::Float4(cells) => {
            let double = float(value)?;
            let single = narrowed(double);
            if double.is_finite() && !single.is_finite() {
                return Err(RuleError::new(Code::OutOfRange).limit("-3.4028235e38 to 3.4028235e38"));
            }
            cells.push(Some(single));
            Ok(())
        }
        OwnedScalar::Float8(cells) => {
            cells.push(Some(float(value)?));
            Ok(())
        }
        OwnedScalar::Bool(cells) => {
            let truth: bool = value.extract().map_err(|_| wrong_type(value, "bool"))?;
            cells.push(Some(u8::from(truth)));
            Ok(())
        }
        OwnedScalar::Uuid(cells) => {
            cells.push(Some(uuid(value)?));
            Ok(())
        }
        OwnedScalar::Timestamptz(cells) => {
            cells.push(Some(microseconds(value)?));
            Ok(())
        }
        OwnedScalar::Text(lists) => {
            let text = value
                .cast::<PyString>()
                .map_err(|_| wrong_type(value, "str"))?;
            lists.push(Some(utf8(text)?.as_bytes()));
            Ok(())
        }
    }
}

/// int2 and int4 are narrowed by the encoder, which says the same as this does for what exceeds 64 bits.
fn push_integer(
    cells: &mut OwnedCells<i64>,
    value: &Bound<'_, PyAny>,
    limit: &'static str,
) -> Result<(), RuleError> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(value, "int"));
    }
    match value.extract::<i64>() {
        Ok(integer) => cells.push(Some(integer)),
        Err(_) if value.is_instance_of::<PyInt>() => {
            return Err(RuleError::new(Code::OutOfRange).limit(limit));
        }
        Err(_) => return Err(wrong_type(value, "int")),
    }
    Ok(())
}

fn float(value: &Bound<'_, PyAny>) -> Result<f64, RuleError> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(value, "float"));
    }
    if !value.is_instance_of::<PyFloat>() {
        let integer = value.extract::<i64>();
        if integer.is_ok() || value.is_instance_of::<PyInt>() {
            let exact =
                integer.is_ok_and(|integer| (-EXACT_INTEGER..=EXACT_INTEGER).contains(&integer));
            if !exact {
                return Err(RuleError::new(Code::OutOfRange)
                    .limit("-2**53 to 2**53 for an int in a float field"));
            }
        } else if !value.hasattr(intern!(value.py(), "dtype")).unwrap_or(false) {
            // Decimal and Fraction would be rounded; the scalars of NumPy are floats already.
            return Err(wrong_type(value, "float"));
        }
    }
    value
        .extract::<f64>()
        .map_err(|_| wrong_type(value, "float"))
}

#[allow(clippy::cast_possible_truncation)] // rounding to the nearest float32 is what a float4 does; overflow is refused
fn narrowed(value: f64) -> f32 {
    value as f32
}

fn uuid(value: &Bound<'_, PyAny>) -> Result<[u8; 16], RuleError> {
    static UUID: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let wrong = || wrong_type(value, "uuid.UUID or 16 bytes");
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return bytes.as_bytes().try_into().map_err(|_| {
            RuleError::new(Code::WrongType)
                .limit("16 bytes")
                .actual(format!("{} bytes", bytes.as_bytes().len()))
        });
    }
    let class = UUID
        .import(value.py(), "uuid", "UUID")
        .map_err(|_| wrong())?;
    if !value.is_instance(class).unwrap_or(false) {
        return Err(wrong());
    }
    let bytes = value
        .getattr(intern!(value.py(), "bytes"))
        .map_err(|_| wrong())?;
    bytes.extract::<[u8; 16]>().map_err(|_| wrong())
}

/// Microseconds since 1970-01-01 UTC of an aware datetime. The subtraction is Python's own, which knows zones and folds.
pub(crate) fn microseconds(value: &Bound<'_, PyAny>) -> Result<i64, RuleError> {
    static DATETIME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let wrong = || wrong_type(value, "datetime with a zone");
    let class = DATETIME
        .import(py, "datetime", "datetime")
        .map_err(|_| wrong())?;
    if !value.is_instance(class).unwrap_or(false) {
        return Err(wrong());
    }
    let zone = value
        .call_method0(intern!(py, "utcoffset"))
        .map_err(|_| wrong())?;
    if zone.is_none() {
        return Err(RuleError::new(Code::NaiveTimestamp));
    }
    let epoch = EPOCH
        .get_or_try_init(py, || epoch(py))
        .map_err(|_| wrong())?;
    let since = value
        .sub(epoch)
        .map_err(|_| RuleError::new(Code::OutOfRange).limit("years 0001 to 9999"))?;
    let part = |name| {
        since
            .getattr(name)
            .and_then(|part| part.extract::<i64>())
            .map_err(|_| wrong())
    };
    let seconds = part(intern!(py, "days"))?
        .saturating_mul(86_400)
        .saturating_add(part(intern!(py, "seconds"))?);
    Ok(seconds
        .saturating_mul(1_000_000)
        .saturating_add(part(intern!(py, "microseconds"))?))
}

/// `datetime(1970, 1, 1, tzinfo=timezone.utc)`.
pub(crate) fn epoch(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let module = py.import("datetime")?;
    let utc = module.getattr("timezone")?.getattr("utc")?;
    Ok(module
        .getattr("datetime")?
        .call1((1970, 1, 1, 0, 0, 0, 0, utc))?
        .unbind())
}
