"""Read tables with separated values; decide which fields of a row are text, metadata or its id; parse JSON."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions, Record
from semlex.ingest.loaders.decoding import decode
from semlex.types.documents import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, StoredPlace

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
        raise LoadError("bad_json", f"{_where(line)}the values are nested too deeply: flatten them") from None


def check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    """Refuse metadata that is too large."""
    size = len(json.dumps(metadata, ensure_ascii=False, check_circular=False).encode())
    if size > MAX_METADATA_BYTES:
        message = f"the metadata has {size} bytes, the limit is {MAX_METADATA_BYTES}; name long fields as text fields"
        raise LoadError("metadata_too_large", f"{where}: {message}")


def _check_structure(text: str, line: int | None, max_depth: int) -> None:
    structure = _STRING.sub("", text)
    values = sum(map(structure.count, ",[{"))
    if values > MAX_VALUES:
        raise LoadError("too_many_values", f"{_where(line)}more than {MAX_VALUES:,} values: split the file")
    depth = 0
    for found in _BRACKET.finditer(structure):
        depth += 1 if found[0] in "[{" else -1
        if depth > max_depth:
            message = f"the values are nested more than {max_depth} levels deep: flatten them"
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
        raise _RefusedError("an object has the same key twice: keep one of them")
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
        """Add a record with this text; the other arguments are fields of `Record`."""
        if len(self.records) == MAX_RECORDS:
            raise _too_many()
        start = self._end + len(BLANK_LINE) if self._texts else 0
        self._end = start + len(text)
        self._texts.append(text)
        self.records.append(Record(start, self._end, **record))

    def document(self, title: str | None = None, structure: str = "plain", **options: Any) -> LoadedDocument:
        """Return all records as a document; the other arguments are fields of `LoadedDocument`."""
        text = BLANK_LINE.join(self._texts)
        return LoadedDocument(text, structure, title, records=self.records, has_lines=False, **options)


class Rows:
    """Makes records of the rows of one file."""

    def __init__(self, options: LoadOptions) -> None:
        self._text_fields = list(dict.fromkeys(options.text_fields))
        self._id_field = options.id_field
        # Fields that are text whatever they hold.
        self.texts = frozenset((*self._text_fields, self._id_field))
        self._lines: dict[object, int] = {}
        self._made = RecordText()
        self._count = 0

    def check_fields(self, known: Collection[str]) -> None:
        """Refuse options (`text_fields`, `id_field`) that name a field which the file lacks."""
        for name in (*self._text_fields, self._id_field):
            if name is not None and name not in known:
                raise LoadError("unknown_field", _unknown(name, known))

    def add(self, row: Mapping[str, Any], line: int, number: int) -> bool:
        """Add the row that begins on this line; return False if it has no text and is left out."""
        self._count += 1
        if self._count > MAX_RECORDS:  # rows without text take time, too
            raise _too_many()
        if self._id_field is not None:
            if self._id_field not in row:
                raise LoadError("missing_id", f"line {line}: {_unknown(self._id_field, row)}")
            self._check_id(row[self._id_field], line)
        if self._text_fields:
            found = [_field_text(name, row[name], line) for name in self._text_fields if name in row]
            texts, taken, joint = [text for text in found if text.strip()], set(self._text_fields), BLANK_LINE
        else:
            taken = {name for name, value in row.items() if isinstance(value, str) and value.strip()}
            texts, joint = [f"{name}: {row[name]}" for name in row if name in taken], "\n"
        metadata = {name: value for name, value in row.items() if name == self._id_field or name not in taken}
        check_metadata(metadata, f"line {line}")
        if texts:
            self._made.add(joint.join(texts), metadata=metadata, line=line, place=StoredPlace(row=number))
        return bool(texts)

    def add_numbers(self, place: int, fields: Mapping[str, str], line: int) -> None:
        """Convert metadata fields of the record number `place` to numbers; blank fields are removed."""
        numbers = {name: float(text) if "." in text else int(text) for name, text in fields.items() if text}
        record = self._made.records[place]
        metadata = {name: value for name, value in record.metadata.items() if name not in fields} | numbers
        check_metadata(metadata, f"line {line}")
        self._made.records[place] = replace(record, metadata=metadata)

    def document(self, encoding: str | None, repaired: int) -> LoadedDocument:
        """Return all rows as a document."""
        return self._made.document(encoding=encoding, repaired=repaired)

    def _check_id(self, value: object, line: int) -> None:
        shown = _shown(self._id_field or "")
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            message = f"line {line}: the field {shown}, which names a record, holds neither text nor a whole number"
            raise LoadError("missing_id", f"{message}: fill it in")
        first = self._lines.setdefault(value, line)
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
    """Return the message for an unknown field; it lists the known fields."""
    near = difflib.get_close_matches(name, [one for one in known if len(one) <= SHOWN_CHARACTERS], n=1)
    hint = f"did you mean {_shown(near[0])}? " if near else ""
    listed = ", ".join(map(_shown, islice(known, SHOWN_FIELDS))) + (", …" if len(known) > SHOWN_FIELDS else "")
    return f"unknown field {_shown(name)}: {hint}The fields are {listed or 'none'}"


def _shown(name: str) -> str:
    return repr(name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}…")


MAX_FIELD_CHARACTERS = 1024 * 1024
# Of these, the first that fits best; tables of another kind have one column.
DELIMITERS = (",", ";", "\t", "|")
SNIFFED_ROWS, SNIFFED_CHARACTERS = 20, 1024 * 1024

# What JSON has as the same number everywhere, or nothing; a number that begins with 0 is a code, and stays a text.
_NUMBER = re.compile(r"\s*(?:[-+]?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?)?\s*", re.ASCII)

_limit_lock = threading.Lock()


class TableLoader:
    """Reads CSV and TSV: the first row names the columns, every other row is a record."""

    name = "table"
    suffixes = ("csv", "tsv")
    version = 3
    reads_fields = True

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file; blank lines and rows without text are left out."""
        # Without `LoadOptions.text_fields` all fields of a row are its text. A column of numbers, except ids, becomes
        # numeric metadata.
        text, encoding, repaired = decode(file.data, options)
        rows = Rows(options)
        with _field_limit():
            delimiter = "\t" if file.suffix == "tsv" else _delimiter(text)
            read = _rows(text, delimiter)
            header = next(read, None)
            if header is None:
                return rows.document(encoding, repaired)
            names = _checked_header(header)
            rows.check_fields(names)
            numeric = {place for place, name in enumerate(names) if name not in rows.texts}
            kept: list[_Row] = []
            for row in read:
                if len(row.fields) != len(names):
                    counts = f"{_counted(len(row.fields))}, the header has {len(names)}"
                    message = f"line {row.line} has {counts}: quote values that hold {delimiter!r} or a line break"
                    raise LoadError("bad_row", message)
                numeric = {place for place in numeric if _NUMBER.fullmatch(row.fields[place])}
                if rows.add(dict(zip(names, row.fields, strict=True)), row.line, row.number) and numeric:
                    kept.append(row)
        numbers = [place for place in sorted(numeric) if any(row.fields[place].strip() for row in kept)]
        if numbers:
            for number, row in enumerate(kept):
                rows.add_numbers(number, {names[place]: row.fields[place].strip() for place in numbers}, row.line)
        return rows.document(encoding, repaired)


class _Row(NamedTuple):
    fields: list[str]
    line: int
    number: int  # as spreadsheets count rows, blank ones and the header included


@contextmanager
def _field_limit() -> Iterator[None]:
    """Raise the csv module's limit of a field, which is global to the process, for the duration of the block."""
    with _limit_lock:
        before = csv.field_size_limit()
        csv.field_size_limit(max(before, MAX_FIELD_CHARACTERS))
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _delimiter(text: str) -> str:
    """Return the delimiter that splits most of the first rows into as many fields as the header."""
    found, best = DELIMITERS[0], (0, 0)
    for delimiter in DELIMITERS:
        counts: list[int] = []
        with suppress(LoadError):  # it is raised when the table is read, if this is its delimiter
            counts.extend(len(row.fields) for row in islice(_rows(text[:SNIFFED_CHARACTERS], delimiter), SNIFFED_ROWS))
        fit = (counts.count(counts[0]), counts[0]) if counts and counts[0] > 1 else (0, 0)
        if fit > best:
            found, best = delimiter, fit
    return found


def _rows(text: str, delimiter: str) -> Iterator[_Row]:
    """Yield the rows that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for number in count(1):
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if "field limit" in str(error):
                raise _too_large(line) from None
            raise LoadError("bad_row", f"the row on line {line} cannot be read: {error}; correct its quotes") from None
        if fields is None:
            return
        if not fields:
            continue
        if any(len(field) > MAX_FIELD_CHARACTERS for field in fields):
            raise _too_large(line)
        yield _Row(fields, line, number)


def _too_large(line: int) -> LoadError:
    message = f"line {line}: a field has more than {MAX_FIELD_CHARACTERS} characters: split it, or close its quotes"
    return LoadError("field_too_large", message)


def _checked_header(header: _Row) -> list[str]:
    seen: dict[str, int] = {}
    for number, name in enumerate(header.fields, 1):
        if not name.strip():
            message = f"line {header.line}: column {number} has no name: the first row must name every column"
            raise LoadError("bad_header", message)
        first = seen.setdefault(name, number)
        if first != number:
            message = f"line {header.line}: columns {first} and {number} have the same name: rename one"
            raise LoadError("bad_header", message)
    return header.fields


def _counted(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"
