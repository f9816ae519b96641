"""Fields of filters: a path into the metadata, one of semlex's own fields (``@``), or a column of a row (``@row.``)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from semlex.errors import ValidationError
from semlex.validation import refuse, text_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

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
RESERVED = frozenset(
    ("and", "or", "not", "exists", "empty", "in", "contains", "any", "all", "between", "startswith", "like", "ilike")
) | {"true", "false", "null"}
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
    """A field that a condition tests: keys from the outside in, or one of semlex's own names, without ``@``."""

    # A live column is stored as one of semlex's own fields: `row`, the column, and keys inside its JSON.

    path: tuple[str, ...]
    is_own: bool = False

    def __str__(self) -> str:
        if self.is_row:
            return (
                f"@{ROW}.{'.'.join(_written(part, is_first=not number) for number, part in enumerate(self.path[1:]))}"
            )
        if self.is_own:
            return f"@{self.path[0]}"
        return ".".join(_written(part, is_first=not number) for number, part in enumerate(self.path))

    @property
    def kind(self) -> OwnKind | None:
        """Return the kind of values that one of semlex's own fields has; None for a field with any values."""
        return OWN[self.path[0]] if self.is_own and not self.is_row else None

    @property
    def is_row(self) -> bool:
        """Return whether the field is a live column of a followed table."""
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
    """Return the field of semlex with this name."""
    if name == ROW:
        raise refusal(place, "syntax", "expected a live column after @row, such as @row.status")
    if name not in OWN:
        near = nearest(name, (*OWN, ROW)).replace("mean ", "mean @")
        raise refusal(place, "unknown_field", ", ".join(f"@{one}" for one in (*OWN, "row.COLUMN")) + near)
    return Field((name,), is_own=True)


def row_field(parts: tuple[str, ...], place: str) -> Field:
    """Return the field of a live column, or of a path into its JSON."""
    return Field((ROW, *metadata_field(parts, place).path), is_own=True)


def metadata_field(parts: tuple[str, ...], place: str) -> Field:
    """Return the field of a path into the metadata."""
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
    """Return the keys of a path."""
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
        raise refusal(place, "syntax", r"a text in JSON's form, with a backslash written as \\") from None
