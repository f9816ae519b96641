"""Checks of the arguments of calls; they return what is wrong as a list of errors, or raise it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from os import PathLike
from types import NoneType
from typing import Any

from semlex.errors import ConfigurationError, FieldError, ValidationError

Errors = list[FieldError]
# Larger whole numbers are not spelled out: they may have thousands of digits.
HUGE = 2**63
# The longest text that a message repeats.
SHOWN_CHARACTERS = 40
# Rows that a message about many rows names.
SHOWN_ROWS = 10


def refuse(field: str, code: str, limit: str | None = None, actual: str | None = None) -> Errors:
    """Return the error of one value of a call, as a list."""
    return [FieldError(-1, None, field, code, limit, actual)]


def wrong_type(field: str, expected: str, value: object) -> Errors:
    """Return the error of a value of the wrong type, as a list."""
    return refuse(field, "wrong_type", expected, type(value).__name__)


def text_errors(
    field: str,
    text: object,
    *,
    max_bytes: int | None = None,
    max_characters: int | None = None,
    blank: bool = True,
    nul: bool = False,
) -> Errors:
    """Return what is wrong with a text.

    Args:
        max_bytes: Maximum bytes of UTF-8.
        max_characters: Maximum characters.
        nul: Whether the text may hold NUL characters, which Postgres cannot store.
    """
    if not isinstance(text, str):
        return wrong_type(field, "str", text)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        return refuse(field, "lone_surrogate", None, f"character {error.start}")
    errors: Errors = []
    if not blank and not text.strip():
        errors += refuse(field, "blank", "1 character after trimming", "0")
    if max_bytes is not None and size > max_bytes:
        errors += refuse(field, "too_long", f"{max_bytes} bytes", f"{size} bytes")
    if max_characters is not None and len(text) > max_characters:
        errors += refuse(field, "too_long", f"{max_characters} characters", f"{len(text)} characters")
    if not nul and "\0" in text:
        errors += refuse(field, "nul", None, f"character {text.index(chr(0))}")
    return errors


def shown(value: object) -> str:
    """Return a refused argument for a message; long or large values are replaced by their type."""
    if isinstance(value, (float, bool, NoneType)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < HUGE else "a huge number"
    return repr(value) if isinstance(value, str) and len(value) <= SHOWN_CHARACTERS else type(value).__name__


def check_rows(field: str, rows: Sequence[object], **rules: Any) -> None:
    """Refuse texts that break the rules of `text_errors`."""
    found = (replace(error, row=row) for row, text in enumerate(rows) for error in text_errors(field, text, **rules))
    if errors := list(found):
        raise ValidationError(errors)


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return texts as a list; refuse texts that no model can read."""
    if isinstance(texts, str):
        raise ValidationError(refuse("texts", "wrong_type", "sequence of str", "str"))
    rows = list(texts)
    check_rows("text", rows, nul=True)
    return rows


def shown_rows(rows: Sequence[int]) -> str:
    """Return the first row numbers of a list, for a message: ``rows 3, 5, 8``."""
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"rows {', '.join(map(str, rows[:SHOWN_ROWS]))}{more}"


def whole_number_errors(field: str, value: object, minimum: int, maximum: int | None = None) -> Errors:
    """Return what is wrong with a whole number that must be from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        return wrong_type(field, "int", value)
    if value < minimum or (maximum is not None and value > maximum):
        limit = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
        return refuse(field, "out_of_range", limit, str(value) if abs(value) < HUGE else "huge")
    return []


def check_range(name: str, value: object, minimum: int, maximum: int | None = None) -> None:
    """Refuse a parameter that is not a whole number from `minimum` to `maximum`."""
    check_parameters(whole_number_errors(name, value, minimum, maximum))


def number_errors(
    field: str, value: object, minimum: float = -math.inf, maximum: float = math.inf, *, above: float | None = None
) -> Errors:
    """Return what is wrong with a number that must be finite, from `minimum` (or above `above`) to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return wrong_type(field, "float", value)
    limit = f"{minimum:g} to {maximum:g}" if above is None else f"above {above:g} and at most {maximum:,g}"
    if abs(value) >= HUGE and isinstance(value, int):
        return refuse(field, "out_of_range", limit, "huge")
    if not math.isfinite(value):
        return refuse(field, "not_finite")
    is_in = minimum <= value <= maximum and (above is None or value > above)
    return [] if is_in else refuse(field, "out_of_range", limit, f"{value:g}")


def callable_errors(field: str, value: object) -> Errors:
    """Return what is wrong with a value that must be a function or None."""
    return [] if value is None or callable(value) else wrong_type(field, "function", value)


def kind_errors(field: str, value: object, *kinds: type) -> Errors:
    """Return what is wrong with a value that must be an instance of one of these classes."""
    limit = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
    return [] if isinstance(value, kinds) else wrong_type(field, limit, value)


def is_one_of(value: object, choices: Collection[str]) -> bool:
    """Return whether a value is one of these texts; an array, which would compare item by item, never is."""
    return isinstance(value, str) and value in choices


def path_errors(field: str, value: object) -> Errors:
    """Return what is wrong with the path of a file or folder, which may be None."""
    if isinstance(value, str) and not value:  # `Path` would take it for the working directory
        return refuse(field, "blank", "1 character", "0")
    return kind_errors(field, value, str, PathLike, NoneType)


def needed_path_errors(field: str, value: object) -> Errors:
    """Return what is wrong with the path of a file or folder that must be given."""
    return wrong_type(field, "str or PathLike", value) if value is None else path_errors(field, value)


def text_parameter(field: str, value: object) -> Errors:
    """Return what is wrong with a name, which may be None."""
    return [] if value is None else text_errors(field, value, blank=False)


def model_errors(field: str, value: object, *calls: str) -> Errors:
    """Return what is wrong with a model: it must be None, a name, or an object with these methods or attributes."""
    if value is None or isinstance(value, str):
        return []
    # Looked up without being called: an attribute may wait for the model.
    names = {*dir(type(value)), *getattr(value, "__dict__", ())}
    fits = not isinstance(value, type) and names.issuperset(calls)
    return [] if fits else wrong_type(field, f"str, None or an object with {' and '.join(calls)}", value)


def strings_errors(field: str, value: object, most: int | None = None) -> Errors:
    """Return what is wrong with a list of at most `most` strings; a single string is not accepted as a list."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | AbstractSet):
        return wrong_type(field, "list of str", value)
    wrong = [item for item in value if not isinstance(item, str)]
    if wrong:
        return refuse(field, "wrong_type", "list of str", f"{type(wrong[0]).__name__} in it")
    return (
        [] if most is None or len(value) <= most else refuse(field, "too_long", f"{most} texts", f"{len(value)} texts")
    )


def check_parameters(*found: Errors) -> None:
    """Raise one error with the faults of several parameters, if there are any."""
    errors = [str(error) for each in found for error in each]
    if errors:
        raise ConfigurationError("; ".join(errors))


def time_errors(field: str, value: object) -> Errors:
    """Return what is wrong with a point in time."""
    if not isinstance(value, datetime):
        return wrong_type(field, "datetime", value)
    return refuse(field, "naive_timestamp") if value.utcoffset() is None else []


def vector_of(field: str, value: Any) -> tuple[tuple[float, ...], Errors]:
    """Return the numbers of a vector, which is a list or an array of any library, and what is wrong with them."""
    items = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        return (), wrong_type(field, "numbers", value)
    numbers = list(items)
    if any(isinstance(number, bool) or not isinstance(number, (int, float)) for number in numbers):
        return (), refuse(field, "wrong_type", "numbers", "ragged or not numbers")
    if not (numbers and all(map(math.isfinite, numbers)) and any(numbers)):
        return (), refuse(field, "not_usable", "finite values, not all zero")
    return tuple(map(float, numbers)), []
