"""Convert values of Python, NumPy and pandas to the JSON values that semlex stores and that filters compare with."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

# What ids may be given as.
AnyId = str | int | UUID | np.integer[Any]
# Containers below are left as they are: nothing so deep is stored.
MAX_DEPTH = 64
MAX_ID_BITS = 1024
_DAYS = ("Y", "M", "W", "D")


def json_scalar(value: Any) -> Any:
    """Return a single value as a JSON value; a value that has none is returned unchanged.

    Times become ISO 8601 texts to the microsecond, in UTC if they have a zone, so that texts sort by time.
    """
    made = (convert(value) for kind, convert in _SCALARS if isinstance(value, kind))
    return next(made, value)


def json_tree(value: Any, depth: int = 0) -> Any:
    """Return a copy of nested dicts, lists and tuples in which every value is a JSON value."""
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: json_tree(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_tree(item, depth + 1) for item in value]
    return json_scalar(value)


def id_text(value: Any) -> Any:
    """Return the text of an id that is a whole number or a UUID; return anything else unchanged."""
    if value is None or type(value) is str:  # most are
        return value
    if isinstance(value, UUID):
        return str(value)
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return str(int(value)) if is_whole and int(value).bit_length() <= MAX_ID_BITS else value


def _of_datetime64(value: np.datetime64) -> Any:
    unit = "D" if np.datetime_data(value)[0] in _DAYS else "us"
    found = value.astype(f"datetime64[{unit}]").item()
    return value if isinstance(found, int) else json_scalar(found)  # a number: outside of the years 1 to 9999


def _of_datetime(value: datetime) -> Any:
    if value != value:  # noqa: PLR0124 - pandas' NaT: no time
        return None
    try:
        return datetime.isoformat(value if value.utcoffset() is None else value.astimezone(UTC))
    except OverflowError:
        return value


def _of_decimal(value: Decimal) -> int | float:
    if not value.is_finite():
        return math.nan
    is_integer = value == value.to_integral_value() and value.adjusted() <= MAX_ID_BITS
    return int(value) if is_integer else float(value)


# The first that fits; a datetime is a date, too.
_SCALARS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (np.datetime64, _of_datetime64),
    (datetime, _of_datetime),
    (date, date.isoformat),
    (UUID, str),
    (Decimal, _of_decimal),
    (np.bool_, bool),
    (np.timedelta64, lambda value: value),  # an integer of NumPy, but not a number
    (np.integer, int),
    (np.floating, float),
)
