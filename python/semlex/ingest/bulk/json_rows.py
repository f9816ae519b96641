"""Rows out of JSON Lines: an object a line."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.ingest.bulk.row_batch import RowBatch, batch_of, found_in
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.records.json_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from semlex.ingest.bulk.row_fields import RowFields

# A vector of 16,000 components has up to 400 KB as text, a chunk 128 KiB, its metadata 1 MiB.
MAX_LINE_BYTES = 8 * 1024 * 1024


class JsonRows:
    """The rows of a file of JSON Lines."""

    count = None

    def __init__(self, path: Path, fields: RowFields) -> None:
        self._path, self._fields = path, fields
        with found_in(path.name):
            first = next(self._objects(), None)
        if first is not None:
            fields.check(list(first), f"the first row of {path.name}", whole=False)

    def batches(self, most_rows: int) -> Iterator[RowBatch]:
        """The rows, in batches; a blank line is none."""
        objects = self._objects()
        first = 0
        while rows := self._next(objects, most_rows):
            names = dict.fromkeys(name for row in rows for name in row)
            names |= dict.fromkeys(filter(None, (self._fields.text, self._fields.vector, self._fields.id)))
            columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
            with found_in(self._path.name):
                batch = batch_of(columns, len(rows), self._fields, where=self._path.name, first=first)
            yield batch
            first += len(rows)

    def _next(self, objects: Iterator[dict[str, Any]], most_rows: int) -> list[dict[str, Any]]:
        with found_in(self._path.name):
            return list(islice(objects, most_rows))

    def _objects(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                for line, text in enumerate(self._lines(file), 1):
                    if text.strip():
                        yield self._object(text, line)
        except OSError as error:
            raise ConfigurationError(f"{self._path.name} cannot be read: {error.strerror}") from None

    def _lines(self, file: BinaryIO) -> Iterator[str]:
        number = 0
        while data := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(data) > MAX_LINE_BYTES:
                raise self._refused(number, f"has more than {MAX_LINE_BYTES:,} bytes: shorten it")
            try:
                yield data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise self._refused(number, "is not UTF-8: convert the file") from None

    def _object(self, text: str, line: int) -> dict[str, Any]:
        try:
            row = parse_json(text, line=line)
        except LoadError as error:
            raise ConfigurationError(f"{self._path.name}: {error.message}") from None
        if not isinstance(row, dict):
            raise ValidationError([FieldError(line - 1, None, "row", "wrong_type", "an object", type(row).__name__)])
        return row

    def _refused(self, line: int, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._path.name}: line {line} {what}")
