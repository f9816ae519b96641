"""Read tables with values separated by commas or other marks."""

from __future__ import annotations

import csv
import io
import re
import threading
from contextlib import contextmanager, suppress
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions
from semlex.ingest.loaders.decoding import decode
from semlex.ingest.loaders.records import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        """Return the text of a file without blank lines and rows without text."""
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
    """Raise the field limit of the csv module, which is global, inside the block."""
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
