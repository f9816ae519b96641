"""The fields that filters name (metadata paths, ``@`` fields, ``@row.`` columns), and checks of values to compare."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, TypeGuard

from semlex.errors import ValidationError
from semlex.json_values import json_scalar
from semlex.validation import refuse, text_errors

OwnKind = Literal["text", "texts", "instant", "key", "number"]
# Fields of semlex's own, and what their values are.
OWN: dict[str, OwnKind] = {
    "source": "text",
    "source_document": "text",
    "title": "text",
    "heading": "texts",
    "chapter": "text",
    "section": "text",
    "type": "text",
    "language": "text",
    "created": "instant",
    "updated": "instant",
    "document": "key",
    "parent": "text",
    "page": "number",
    "id": "text",
}
# Before a column of the followed table that a chunk's text is in: ``@row.status``, and deeper into JSON.
ROW = "row"
# Names that mean a field of semlex's own in mappings; in quotes they are keys of the metadata there, too.
COLUMNS = {
    "source_document": "source_document",
    "chapter_title": "chapter",
    "section_title": "section",
    "chunk_type": "type",
    "parent_chunk_id": "parent",
}
# Operators that the text form writes as a word between a field and a value.
WORDS = ("in", "contains", "any", "all", "between", "startswith", "like", "ilike")
RESERVED = frozenset((*WORDS, "and", "or", "not", "exists", "empty", "true", "false", "null"))
MAX_PATH_PARTS = 64
SHOWN_CHARACTERS = 40
WORD = re.compile(r"[^\W\d][\w-]*")
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^".][^.]*', re.DOTALL)
_NAME_FORM = 'the name of a field: keys with dots between them, and a key that contains a dot in quotes, as "a.b"'


def refusal(place: str, code: str, limit: str | None = None, actual: str | None = None) -> ValidationError:
    """Return the error about a part of a filter."""
    return ValidationError(refuse(place, code, limit, actual))


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with a similar name, or ""."""
    found = get_close_matches(name[:SHOWN_CHARACTERS], list(names), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a condition tests: its keys, outermost first, or one of semlex's own names, without ``@``."""

    # A live column is stored as one of semlex's own fields: `row`, the column, and keys inside its JSON.

    path: tuple[str, ...]
    is_own: bool = False

    def __str__(self) -> str:
        if self.kind is not None:
            return f"@{self.path[0]}"
        keys = self.path[1:] if self.is_row else self.path
        written = ".".join(_written(key, is_first=not number) for number, key in enumerate(keys))
        return f"@{ROW}.{written}" if self.is_row else written

    @property
    def kind(self) -> OwnKind | None:
        """Return the kind of values that one of semlex's own fields has; None for a field with any values."""
        return OWN[self.path[0]] if self.is_own and not self.is_row else None

    @property
    def is_row(self) -> bool:
        """Return whether the field is a live column: a column of a followed table, read there by each search."""
        return self.is_own and self.path[0] == ROW

    @property
    def is_id(self) -> bool:
        """Return whether the field is the id of the chunk."""
        return self.is_own and self.path == ("id",)

    def place(self, outer: str) -> str:
        """Return where a condition on this field is, for a message."""
        return f"{outer}.{str(self)[:SHOWN_CHARACTERS]}"


def _written(part: str, *, is_first: bool) -> str:
    is_bare = WORD.fullmatch(part) and part.lower() not in RESERVED
    is_index = not is_first and part.isascii() and part.isdigit()
    return part if is_bare or is_index else json.dumps(part, ensure_ascii=False)


def own_field(name: str, place: str) -> Field:
    """Return semlex's own field with this name (without ``@``); refuse an unknown name."""
    if name == ROW:
        raise refusal(place, "syntax", "expected a live column of a followed table after @row, such as @row.status")
    if name not in OWN:
        near = nearest(name, (*OWN, ROW)).replace("mean ", "mean @")
        raise refusal(place, "unknown_field", ", ".join(f"@{one}" for one in (*OWN, "row.COLUMN")) + near)
    return Field((name,), is_own=True)


def row_field(parts: tuple[str, ...], place: str) -> Field:
    """Return the field for a live column of a followed table (``@row.COLUMN``), or for a path into its JSON."""
    return Field((ROW, *metadata_field(parts, place).path), is_own=True)


def metadata_field(parts: tuple[str, ...], place: str) -> Field:
    """Return the metadata field at a path, given as keys from the outermost to the innermost."""
    if len(parts) > MAX_PATH_PARTS:
        raise refusal(place, "too_deep", str(MAX_PATH_PARTS), f"{len(parts)} levels")
    errors = [error for part in parts for error in text_errors(place, part)]
    if errors:
        raise ValidationError(errors[:1])
    return Field(parts)


def field_named(name: object, place: str) -> Field:
    """Parse a field's name as written in Python or a mapping: any characters but ``.``, unless in double quotes."""
    if not isinstance(name, str):
        raise refusal(place, "wrong_type", "str", type(name).__name__)
    if name.startswith(f"@{ROW}."):
        return row_field(_keys(name[len(ROW) + 2 :], place), place)
    if name.startswith("@"):
        return own_field(name[1:], place)
    return metadata_field(_keys(name, place), place)


def _keys(name: str, place: str) -> tuple[str, ...]:
    parts, position = [], 0
    while found := _PART.match(name, position):
        parts.append(unquoted(found[0], place) if found[0].startswith('"') else found[0])
        position = found.end()
        if position == len(name):
            return tuple(parts)
        if name[position] != ".":
            break
        position += 1
    raise refusal(place, "wrong_type", _NAME_FORM, "something else")


def unquoted(text: str, place: str) -> str:
    """Return the text of a JSON string."""
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        raise refusal(place, "syntax", r"expected a text in JSON's form, with a backslash written as \\") from None


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
    """Return a number as it is stored in JSON: the float 0.1 becomes the decimal number 0.1."""
    return Decimal(json_text(number)) if isinstance(number, float) else number


def checked_value(value: object, place: str, depth: int = 0) -> Any:
    """Return a checked copy of a value that consists of JSON types (and Decimal)."""
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
        is_too_long = len(value.as_tuple().digits) > MAX_DIGITS or abs(value.adjusted()) > MAX_DIGITS
    else:
        is_too_long = abs(value) >= _TOO_LARGE
    if is_too_long:
        raise refusal(place, "out_of_range", f"{MAX_DIGITS} digits")
    return _plainest(value) if isinstance(value, Decimal) else int(value)


def _plainest(number: Decimal) -> Number:
    """Return the int or float that has exactly this value; if none has it, return the number unchanged."""
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
            place,
            "wrong_type",
            r"a pattern that does not end with a single \ (write \\ for a backslash)",
            "one that does",
        )
    if len(pieces) - 1 > MAX_WILDCARDS:
        raise refusal(place, "out_of_range", f"a pattern with at most {MAX_WILDCARDS} %", f"{len(pieces) - 1}")
    return pattern


def pattern_pieces(pattern: str) -> list[list[str | None]] | None:
    r"""Split a pattern at ``%`` into lists of characters, with None for ``_``; None if it ends with a single ``\``."""
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
    """Return a time in UTC, from a datetime with a zone or an ISO 8601 text; a text without a zone is in UTC."""
    found = value
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            limit = "a time in ISO form, year first, as datetime.isoformat() writes it"
            raise refusal(place, "wrong_type", limit, "another text") from None
        if isinstance(found, datetime) and found.utcoffset() is None:
            found = found.replace(tzinfo=UTC)
    if not isinstance(found, datetime):
        raise refusal(
            place, "wrong_type", "a time: a datetime, or a text as datetime.isoformat() writes it", type(value).__name__
        )
    if found.utcoffset() is None:
        raise refusal(place, "naive_timestamp")
    try:
        return found.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise refusal(place, "out_of_range", "years 1 to 9999") from None


# An encoder for all values: `json.dumps` would make one for each, and filters have a hundred thousand.
_encoded = json.JSONEncoder(ensure_ascii=False).encode


def json_text(value: object) -> str:
    """Return a checked value as JSON; instants become texts."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    if isinstance(value, list):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json_text(key)}: {json_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, float):
        return repr(value) if abs(value) < _ALL_DIGITS else f"{value:.1f}"  # as metadata is stored
    return str(value) if isinstance(value, Decimal) else _encoded(value)
