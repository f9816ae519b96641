"""Values of filters: JSON, with numbers that are compared exactly, and instants."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeGuard

from semlex.errors import ValidationError
from semlex.filters.fields import refusal
from semlex.json_values import json_scalar
from semlex.validation import text_errors

MAX_VALUE_DEPTH = 64
MAX_DIGITS = 4300
_TOO_LARGE = 10**MAX_DIGITS
# A float from here on is stored with all digits of its value.
_ALL_DIGITS = 1e16
# Each piece between two `%` of a pattern is looked for in the rest of a text.
MAX_PATTERN_BYTES = 1024
MAX_WILDCARDS = 32

Number = int | float | Decimal


def is_number(value: object) -> TypeGuard[Number]:
    """Return whether a value is a JSON number; true and false are not."""
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def is_scalar(value: object) -> bool:
    """Return whether a value is neither a list nor an object."""
    return not isinstance(value, (list, dict))


def exact(number: Number) -> int | Decimal:
    """Return the exact value as stored: 0.1 is a tenth, and a larger float is exactly the number that it represents."""
    return Decimal(json_text(number)) if isinstance(number, float) else number


def checked_value(value: object, place: str, depth: int = 0) -> Any:
    """Return a copy of a value, of JSON's types (and Decimal)."""
    if value is None or isinstance(value, bool):
        return value
    if is_number(value):
        return _checked_number(value, place)
    if isinstance(value, str):
        return checked_text(value, place)
    if depth == MAX_VALUE_DEPTH:
        raise refusal(place, "too_deep", str(MAX_VALUE_DEPTH))
    if isinstance(value, (list, tuple)):
        return [checked_value(item, place, depth + 1) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise refusal(place, "key_not_string", None, type(key).__name__)
        return {checked_text(key, place): checked_value(item, place, depth + 1) for key, item in value.items()}
    stored = json_scalar(value)
    if stored is value:
        raise refusal(place, "unsupported_type", None, type(value).__name__)
    return checked_value(stored, place, depth)


def _checked_number(value: Number, place: str) -> Number:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise refusal(place, "not_finite")
        return float(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise refusal(place, "not_finite")
        if len(value.as_tuple().digits) > MAX_DIGITS or abs(value.adjusted()) > MAX_DIGITS:
            raise refusal(place, "out_of_range", f"{MAX_DIGITS} digits")
        return _plainest(value)
    if abs(value) >= _TOO_LARGE:
        raise refusal(place, "out_of_range", f"{MAX_DIGITS} digits")
    return int(value)


def _plainest(number: Decimal) -> Number:
    """Return an int or a float of the same value, if one exists."""
    if number == number.to_integral_value():
        return int(number)
    near = float(number)
    return near if math.isfinite(near) and exact(near) == number else number


def checked_text(value: object, place: str) -> str:
    """Return a text that Postgres can store; refuse any other."""
    if errors := text_errors(place, value):
        raise ValidationError(errors[:1])
    return str.__str__(value)  # of a subclass, the text


def checked_pattern(value: object, place: str) -> str:
    r"""Return a checked pattern for ``like``: ``%`` is any characters, ``_`` one, ``\`` escapes the next."""
    pattern = checked_text(value, place)
    if len(pattern.encode()) > MAX_PATTERN_BYTES:
        raise refusal(place, "too_long", f"{MAX_PATTERN_BYTES} bytes", f"{len(pattern.encode())} bytes")
    pieces = pattern_pieces(pattern)
    if pieces is None:
        raise refusal(
            place, "wrong_type", r"a pattern that does not end within an escape (\\ is a backslash)", "one that does"
        )
    if len(pieces) - 1 > MAX_WILDCARDS:
        raise refusal(place, "out_of_range", f"a pattern with at most {MAX_WILDCARDS} %", f"{len(pieces) - 1}")
    return pattern


def pattern_pieces(pattern: str) -> list[list[str | None]] | None:
    r"""Split a pattern at ``%`` into lists of characters, None for any single one; None if it ends with one ``\``."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            pieces.append([])
        elif character == "_":
            pieces[-1].append(None)
        elif character == "\\":
            taken = next(characters, None)
            if taken is None:
                return None
            pieces[-1].append(taken)
        else:
            pieces[-1].append(character)
    return pieces


def checked_instant(value: object, place: str) -> datetime:
    """Return a point in time in UTC, from a datetime with a zone or an ISO 8601 text (UTC if it has none)."""
    found = value
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            limit = "a time as ISO writes it, year first, such as datetime.isoformat() gives"
            raise refusal(place, "wrong_type", limit, "another text") from None
        if isinstance(found, datetime) and found.utcoffset() is None:
            found = found.replace(tzinfo=UTC)
    if not isinstance(found, datetime):
        raise refusal(
            place, "wrong_type", "a time: a datetime, or a text as its isoformat() gives", type(value).__name__
        )
    if found.utcoffset() is None:
        raise refusal(place, "naive_timestamp")
    try:
        return found.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise refusal(place, "out_of_range", "years 1 to 9999") from None


def json_text(value: object) -> str:
    """Return a checked value as JSON; instants become texts."""
    if isinstance(value, list):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json_text(key)}: {json_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, float):
        return repr(value) if abs(value) < _ALL_DIGITS else f"{value:.1f}"  # as metadata is stored
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
