"""Decide which fields of a row are text, metadata or its id, and parse JSON within bounds."""

from __future__ import annotations

import difflib
import json
import math
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from semlex.ingest.loaders.base import LoadedDocument, LoadError, Record
from semlex.types.documents import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, StoredPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from semlex.ingest.loaders.base import LoadOptions


# A value takes up to 150 bytes in memory, whatever it takes in the file.
MAX_VALUES = 2_000_000
# A text up to its end or the file's, in linear time: possessive repeats never backtrack.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


class _RefusedError(ValueError):
    """A value that is not valid JSON, or that cannot be stored."""


def parse_json(text: str, *, line: int | None = None, max_depth: int = MAX_METADATA_DEPTH) -> Any:
    """Parse JSON within bounds of depth and size."""
    _check_structure(text, line, max_depth)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno if line is None else line}, column {error.colno}"
        raise LoadError("bad_json", f"{place} is not JSON: {error.msg.lower()}; correct the file") from None
    except _RefusedError as error:
        raise LoadError("bad_json", f"{_where(line)}{error}") from None
    except ValueError:  # more digits than Python reads
        raise LoadError("bad_json", f"{_where(line)}a number has too many digits: make it a text") from None
    except RecursionError:  # the caller's stack is nearly full
        raise LoadError("bad_json", f"{_where(line)}the values are nested too deeply: make them flat") from None


def check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    """Refuse metadata that is too large."""
    size = len(json.dumps(metadata, ensure_ascii=False, check_circular=False).encode())
    if size > MAX_METADATA_BYTES:
        message = f"the metadata has {size} bytes, the limit is {MAX_METADATA_BYTES}; name long fields as text fields"
        raise LoadError("metadata_too_large", f"{where}: {message}")


def _check_structure(text: str, line: int | None, max_depth: int) -> None:
    structure = _STRING.sub("", text)
    values = structure.count(",") + structure.count("[") + structure.count("{")
    if values > MAX_VALUES:
        message = f"more than {MAX_VALUES} values: split the file"
        raise LoadError("too_many_values", f"{_where(line)}{message}")
    depth = 0
    for found in _BRACKET.finditer(structure):
        depth += 1 if found[0] in "[{" else -1
        if depth > max_depth:
            message = f"the values are nested more than {max_depth} deep: make them flat"
            raise LoadError("bad_json", f"{_where(line)}{message}")


def _where(line: int | None) -> str:
    return "" if line is None else f"line {line}: "


def _refuse_constant(name: str) -> None:
    raise _RefusedError(f"{name} is not a JSON number: write null or leave it out")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RefusedError("a number is too large: make it a text")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError("an object has one name twice: keep one of them")
    return made


# Made once: it takes longer than to parse a line.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object)


# Between records, and between the fields of one.
BLANK_LINE = "\n\n"
# Every record becomes a chunk, and all chunks of a file are in memory.
MAX_RECORDS = 250_000
SHOWN_FIELDS = 20
SHOWN_CHARACTERS = 60


class RecordText:
    """Collects the texts of records into one text, with blank lines between them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._end = 0
        self.records: list[Record] = []

    def add(self, text: str, **record: Any) -> None:
        """Add a record."""
        if len(self.records) == MAX_RECORDS:
            raise _too_many()
        start = self._end + len(BLANK_LINE) if self._texts else 0
        self._end = start + len(text)
        self._texts.append(text)
        self.records.append(Record(start, self._end, **record))

    @property
    def text(self) -> str:
        """The whole text."""
        return BLANK_LINE.join(self._texts)


class Rows:
    """The rows of one file."""

    def __init__(self, options: LoadOptions) -> None:
        self._text_fields = list(dict.fromkeys(options.text_fields))
        self._id_field = options.id_field
        # Fields that are text whatever they hold.
        self.texts = frozenset((*self._text_fields, self._id_field))
        self._lines: dict[tuple[type, object], int] = {}
        self._made = RecordText()
        self._count = 0

    def check_fields(self, known: Collection[str]) -> None:
        """Refuse options that name an unknown field."""
        wanted = self._text_fields if self._id_field is None else [*self._text_fields, self._id_field]
        for name in wanted:
            if name not in known:
                raise LoadError("unknown_field", _unknown(name, known))

    def add(self, row: Mapping[str, Any], line: int, number: int) -> bool:
        """Add a row, which begins on a line; returns False for one without text, which is left out."""
        self._count += 1
        if self._count > MAX_RECORDS:  # rows without text take time, too
            raise _too_many()
        if self._id_field is not None:
            if self._id_field not in row:
                raise LoadError("missing_id", f"line {line}: {_unknown(self._id_field, row)}")
            self._check_id(row[self._id_field], line)
        if self._text_fields:
            found = [_field_text(name, row[name], line) for name in self._text_fields if name in row]
            texts, taken = [text for text in found if text.strip()], set(self._text_fields)
            joint = BLANK_LINE
        else:
            taken = {name for name, value in row.items() if isinstance(value, str) and value.strip()}
            texts, joint = [f"{name}: {row[name]}" for name in row if name in taken], "\n"
        metadata = {name: value for name, value in row.items() if name == self._id_field or name not in taken}
        check_metadata(metadata, f"line {line}")
        if texts:
            place = StoredPlace(row=number)
            self._made.add(joint.join(texts), metadata=metadata, line=line, place=place)
        return bool(texts)

    def add_numbers(self, place: int, fields: Mapping[str, str], line: int) -> None:
        """Store fields of a record as numbers; blank ones are left out."""
        numbers = {name: float(text) if "." in text else int(text) for name, text in fields.items() if text}
        record = self._made.records[place]
        metadata = {name: value for name, value in record.metadata.items() if name not in fields} | numbers
        check_metadata(metadata, f"line {line}")
        self._made.records[place] = replace(record, metadata=metadata)

    def document(self, encoding: str | None, repaired: int) -> LoadedDocument:
        """Return all rows as a document."""
        records = self._made.records
        return LoadedDocument(
            self._made.text, "plain", records=records, encoding=encoding, repaired=repaired, has_lines=False
        )

    def _check_id(self, value: object, line: int) -> None:
        shown = _shown(self._id_field or "")
        if (
            isinstance(value, bool)
            or not isinstance(value, str | int)
            or (isinstance(value, str) and not value.strip())
        ):
            message = f"line {line}: the field {shown}, which names a record, holds no text and no whole number"
            raise LoadError("missing_id", f"{message}: fill it in")
        first = self._lines.setdefault((type(value), value), line)
        if first != line:
            message = f"lines {first} and {line} have the same value of {shown}, which names a record: change one"
            raise LoadError("repeated_id", message)


def _too_many() -> LoadError:
    return LoadError("too_many_records", f"more than {MAX_RECORDS} records: split the file")


def _field_text(name: str, value: object, line: int) -> str:
    if isinstance(value, list | dict):
        message = f"line {line}: the text field {_shown(name)} is an array or an object: make it a text"
        raise LoadError("bad_field", message)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _unknown(name: str, known: Collection[str]) -> str:
    """Return the message for an unknown field, with the known ones."""
    near = difflib.get_close_matches(name, [one for one in known if len(one) <= SHOWN_CHARACTERS], n=1)
    hint = f"did you mean {_shown(near[0])}? " if near else ""
    listed = ", ".join(map(_shown, islice(known, SHOWN_FIELDS))) + (", …" if len(known) > SHOWN_FIELDS else "")
    return f"unknown field {_shown(name)}: {hint}The fields are {listed or 'none'}"


def _shown(name: str) -> str:
    return repr(name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}…")
