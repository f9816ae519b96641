//! `validate_rows`: every error of every row, before a byte is sent.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyString, PyTuple};
use semlex_core::field_error::{Code, FieldError, RuleError, sort_by_row};
use semlex_core::json::Limits;
use semlex_core::pgcopy::{Column, MAX_VALUE_BYTES, Scalar, ScalarColumn, Type};
use semlex_core::validate::{TextLimits, VectorLimits, id, identifier, text, timestamp, vector};

use crate::columns::Source;
use crate::errors::{FieldErrorTuple, caught, detached, field_error_tuple};
use crate::json::append_json;
use crate::objects::{snapshot, utf8, wrong_type};

/// What a field must be.
enum Rules {
    Id,
    Text(TextLimits),
    Jsonb(Limits),
    Vector(VectorLimits),
    Timestamptz,
}

/// A field's values, where its rules can read them without the interpreter.
enum Values {
    Strings(Vec<Option<PyBackedStr>>),
    Column(Source),
    /// JSON: checked while it was walked.
    Checked(usize),
}

type Field<'py> = (
    String,
    String,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyDict>>,
);

/// Find every broken rule of every row.
///
/// ============  ====================================================  ========================================
/// kind          limits, with their defaults                           rules
/// ============  ====================================================  ========================================
/// id                                                                  1 character to 512 bytes, no NUL
/// text          ``min_chars`` 0, ``max_bytes`` none                   no NUL
/// jsonb         ``max_depth`` 64 (at most 64), ``max_bytes`` 1 MiB    those of `to_json`
/// vector        ``dimension`` any                                     finite, not all zero, length usable
/// halfvec       ``dimension`` any                                     the same after rounding to float16
/// timestamptz                                                         years 1 to 9999
/// ============  ====================================================  ========================================
///
/// All kinds have ``nullable`` (False): whether None is allowed. A vector's length is usable when the sum of its
/// squares is a normal float32 (lengths of about 1.1e-19 to 1.8e19): pgvector sums squares in float32, and outside of
/// that cosines become NaN.
///
/// Args:
///     fields: (name, kind, values, limits) of each field; values as `CopyEncoder` takes them.
///     ids: One id a row, used only to name rows.
///
/// Returns:
///     (row, id, field, code, limit, actual) of each broken rule, the attributes of `semlex.errors.FieldError`, by row
///     and then by field; row -1 concerns the whole call. A JSON value or an array of one row reports its first error.
///
/// Raises:
///     ValueError: For an unknown kind or limit.
#[pyfunction]
#[pyo3(signature = (
    fields: "Sequence[tuple[str, str, object, Mapping[str, object] | None]]",
    ids: "Sequence[object] | None" = None,
) -> "list[tuple[int, str | None, str, str, str | None, str | None]]")]
pub(crate) fn validate_rows(
    py: Python<'_>,
    fields: Vec<Field<'_>>,
    ids: Option<Bound<'_, PyAny>>,
) -> PyResult<Vec<FieldErrorTuple>> {
    caught(|| checked(py, fields, ids))
}

fn checked(
    py: Python<'_>,
    fields: Vec<Field<'_>>,
    ids: Option<Bound<'_, PyAny>>,
) -> PyResult<Vec<FieldErrorTuple>> {
    let mut errors = Vec::new();
    let ids = ids
        .map(|ids| snapshot(&ids).ok_or_else(|| PyValueError::new_err("ids: expected a list")))
        .transpose()?;
    let mut rows = ids.as_ref().map(PyTupleMethods::len);
    let mut taken = Vec::with_capacity(fields.len());
    for (name, kind, data, limits) in fields {
        let (rules, nullable) = Rules::parse(&name, &kind, limits.as_ref())?;
        let Some(values) = rules.take(&name, &data, nullable, &mut errors) else {
            continue;
        };
        let wanted = *rows.get_or_insert(values.count());
        if values.count() != wanted {
            let error = RuleError::new(Code::LengthDiffers)
                .limit(wanted.to_string())
                .actual(values.count().to_string());
            errors.push(error.at(None, &name));
        }
        taken.push((name, rules, values));
    }
    let held = taken
        .iter()
        .map(|(name, _, values)| {
            values
                .source()
                .map_or(Ok(None), |source| source.borrow(py))
                .map_err(|error| (name, error))
        })
        .collect::<Result<Vec<_>, _>>();
    let held = held.map_err(|(name, error)| {
        crate::errors::validation_error(py, vec![error.at(None, name)], None)
    })?;
    let mut checks = Vec::with_capacity(taken.len());
    for ((name, rules, values), held) in taken.iter().zip(&held) {
        match values
            .source()
            .map(|source| source.column(held.as_ref()))
            .transpose()
        {
            Ok(column) => checks.push((name.as_str(), rules, values, column)),
            Err(error) => errors.push(error.at(None, name)),
        }
    }
    errors.extend(detached(py, || {
        let check = |(name, rules, values, column)| check(name, rules, values, column);
        checks.into_iter().flat_map(check).collect::<Vec<_>>()
    })?);
    // Fields were taken in order, but refusals of the walk came before those of the rules.
    let order = |error: &FieldError| taken.iter().position(|(name, ..)| *name == error.field);
    errors.sort_by_cached_key(order);
    sort_by_row(&mut errors);
    Ok(errors
        .into_iter()
        .map(|error| field_error_tuple(error, ids.as_ref()))
        .collect())
}

/// Check a name that becomes part of SQL identifiers: ``[a-z_][a-z0-9_]{0,47}``, not beginning with ``pg_``.
///
/// Returns:
///     The broken rules as in `validate_rows`, with row -1 and field ``name``.
#[pyfunction]
#[pyo3(signature = (
    name: "str",
) -> "list[tuple[int, str | None, str, str, str | None, str | None]]")]
pub(crate) fn validate_identifier(name: &Bound<'_, PyAny>) -> Vec<FieldErrorTuple> {
    let found = match name
        .cast::<PyString>()
        .map_err(|_| wrong_type(name, "str"))
        .and_then(utf8_owned)
    {
        Ok(text) => identifier(&text),
        Err(error) => vec![error],
    };
    found
        .into_iter()
        .map(|error| field_error_tuple(error.at(None, "name"), None))
        .collect()
}

fn utf8_owned(text: &Bound<'_, PyString>) -> Result<String, RuleError> {
    utf8(text).map(ToOwned::to_owned)
}

impl Rules {
    /// Kind and bounds; the second value says whether None is allowed.
    fn parse(name: &str, kind: &str, limits: Option<&Bound<'_, PyDict>>) -> PyResult<(Self, bool)> {
        let mut known = vec!["nullable"];
        let mut bound = |key: &'static str| -> PyResult<Option<usize>> {
            known.push(key);
            match limits
                .map(|limits| limits.get_item(key))
                .transpose()?
                .flatten()
            {
                Some(value) if !value.is_none() => value.extract().map(Some).map_err(|_| {
                    PyValueError::new_err(format!(
                        "{name}: limit {key} must be an int of at least 0"
                    ))
                }),
                _ => Ok(None),
            }
        };
        let at_most = |key: &str, value: usize, most: usize| {
            if value > most {
                Err(PyValueError::new_err(format!(
                    "{name}: limit {key} must be at most {most}, found {value}"
                )))
            } else {
                Ok(value)
            }
        };
        let most = Limits::default();
        let rules = match kind {
            "id" => Self::Id,
            "text" => Self::Text(TextLimits {
                min_chars: bound("min_chars")?.unwrap_or(0),
                max_bytes: bound("max_bytes")?,
            }),
            "jsonb" => Self::Jsonb(Limits {
                // The walk recurses: a larger bound could end the stack.
                max_depth: at_most(
                    "max_depth",
                    bound("max_depth")?.unwrap_or(most.max_depth),
                    most.max_depth,
                )?,
                max_bytes: at_most(
                    "max_bytes",
                    bound("max_bytes")?.unwrap_or(most.max_bytes),
                    MAX_VALUE_BYTES,
                )?,
            }),
            "vector" | "halfvec" => Self::Vector(VectorLimits {
                dimension: bound("dimension")?,
                half: kind == "halfvec",
            }),
            "timestamptz" => Self::Timestamptz,
            _ => {
                let kinds = "id, text, jsonb, vector, halfvec, timestamptz";
                return Err(PyValueError::new_err(format!(
                    "{name}: unknown kind {kind:?}; known kinds: {kinds}"
                )));
            }
        };
        let nullable = match limits
            .map(|limits| limits.get_item("nullable"))
            .transpose()?
            .flatten()
        {
            Some(value) => value.extract()?,
            None => false,
        };
        for key in limits.map(PyDictMethods::keys).iter().flatten() {
            if !key
                .extract::<PyBackedStr>()
                .is_ok_and(|key| known.contains(&&*key))
            {
                let message = format!(
                    "{name}: unknown limit; known limits of {kind}: {}",
                    known.join(", ")
                );
                return Err(PyValueError::new_err(message));
            }
        }
        Ok((rules, nullable))
    }

    /// Reads the values; what is of the wrong type goes to `errors`.
    fn take(
        &self,
        name: &str,
        data: &Bound<'_, PyAny>,
        nullable: bool,
        errors: &mut Vec<FieldError>,
    ) -> Option<Values> {
        let kind = match self {
            Self::Vector(limits) if limits.half => Type::Halfvec,
            Self::Vector(_) => Type::Vector,
            Self::Timestamptz => Type::Scalar(Scalar::Timestamptz),
            Self::Id | Self::Text(_) | Self::Jsonb(_) => {
                let Some(rows) = snapshot(data) else {
                    errors.push(wrong_type(data, "list").at(None, name));
                    return None;
                };
                missing(name, &rows, nullable, errors);
                return Some(match self {
                    Self::Jsonb(limits) => walk(name, &rows, *limits, errors),
                    _ => strings(name, &rows, errors),
                });
            }
        };
        if let Some(rows) = snapshot(data) {
            missing(name, &rows, nullable, errors);
        }
        Source::take(kind, name, data, errors).map(Values::Column)
    }
}

impl Values {
    fn count(&self) -> usize {
        match self {
            Self::Strings(strings) => strings.len(),
            Self::Column(source) => source.rows(),
            Self::Checked(rows) => *rows,
        }
    }

    fn source(&self) -> Option<&Source> {
        if let Self::Column(source) = self {
            Some(source)
        } else {
            None
        }
    }
}

fn missing(name: &str, rows: &Bound<'_, PyTuple>, nullable: bool, errors: &mut Vec<FieldError>) {
    if !nullable {
        let nones = rows.iter().enumerate().filter(|(_, value)| value.is_none());
        errors.extend(nones.map(|(row, _)| RuleError::new(Code::Missing).at(Some(row), name)));
    }
}

fn strings(name: &str, rows: &Bound<'_, PyTuple>, errors: &mut Vec<FieldError>) -> Values {
    let mut strings = Vec::with_capacity(rows.len());
    for (row, value) in rows.iter().enumerate() {
        let string = value
            .cast::<PyString>()
            .map_err(|_| wrong_type(&value, "str"));
        let string =
            string.and_then(|text| utf8(text).map(|_| PyBackedStr::try_from(text.clone()).ok()));
        strings.push(match string {
            Ok(string) => string,
            Err(_) if value.is_none() => None,
            Err(error) => {
                errors.push(error.at(Some(row), name));
                None
            }
        });
    }
    Values::Strings(strings)
}

fn walk(
    name: &str,
    rows: &Bound<'_, PyTuple>,
    limits: Limits,
    errors: &mut Vec<FieldError>,
) -> Values {
    let mut text = Vec::new();
    for (row, value) in rows
        .iter()
        .enumerate()
        .filter(|(_, value)| !value.is_none())
    {
        text.clear();
        let refused = append_json(&mut text, &value, limits).err();
        errors.extend(refused.map(|error| error.at(Some(row), name)));
    }
    Values::Checked(rows.len())
}

fn check(
    name: &str,
    rules: &Rules,
    values: &Values,
    column: Option<Column<'_>>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for row in 0..values.count() {
        let found = match (values, rules, &column) {
            (Values::Strings(strings), Rules::Id, _) => {
                strings.get(row).and_then(Option::as_deref).map(id)
            }
            (Values::Strings(strings), Rules::Text(limits), _) => strings
                .get(row)
                .and_then(Option::as_deref)
                .map(|string| text(string, *limits)),
            (_, Rules::Vector(limits), Some(Column::Vector(lists) | Column::Halfvec(lists))) => {
                lists
                    .get(row)
                    .ok()
                    .flatten()
                    .map(|values| vector(values, *limits))
            }
            (_, Rules::Timestamptz, Some(Column::Scalar(ScalarColumn::Timestamptz(cells)))) => {
                cells.get(row).ok().flatten().map(timestamp)
            }
            _ => None,
        };
        errors.extend(
            found
                .into_iter()
                .flatten()
                .map(|error| error.at(Some(row), name)),
        );
    }
    errors
}
