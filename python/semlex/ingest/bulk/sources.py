"""Read the rows that a caller gives, in memory or in files, in batches of bounded size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.ingest.bulk.arrow_rows import ParquetRows, stream_batches
from semlex.ingest.bulk.row_batch import RowBatch, batch_of, found_in
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.records import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from semlex.ingest.bulk.row_batch import RowFields


# A vector of 16,000 components has up to 400 KB as text, a chunk 128 KiB, its metadata 1 MiB.
MAX_LINE_BYTES = 8 * 1024 * 1024


class JsonRows:
    """The rows of a JSON Lines file."""

    count = None

    def __init__(self, path: Path, fields: RowFields) -> None:
        self._path, self._fields = path, fields
        with found_in(path.name):
            first = next(self._objects(), None)
        if first is not None:
            fields.check(list(first), f"the first row of {path.name}", whole=False)

    def batches(self, most_rows: int) -> Iterator[RowBatch]:
        """Yield the rows in batches, without blank lines."""
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


# Maximum size of a batch's vectors in memory; the next one is read while it is written.
MAX_VECTOR_BYTES = 32 * 1024 * 1024
READ_ROWS = 1_024
MATRIX = 2  # dimensions


class RowSource(Protocol):
    """Something that rows are read from: a file, or data in memory."""

    @property
    def count(self) -> int | None:
        """The number of rows, or None if unknown."""
        ...

    def batches(self, most_rows: int) -> Iterator[RowBatch]:
        """Return the rows in batches of up to `most_rows`."""
        ...


FILES: dict[str, Callable[[Path, RowFields], RowSource]] = {
    ".parquet": ParquetRows,
    ".jsonl": JsonRows,
    ".ndjson": JsonRows,
}


class GivenRows:
    """Rows in memory, or produced batch by batch by an iterator."""

    def __init__(self, given: Any, fields: RowFields) -> None:
        self._given, self._fields = given, fields
        counted = getattr(given, "num_rows", None)
        self.count = counted if isinstance(counted, int) else None

    def batches(self, most_rows: int) -> Iterator[RowBatch]:
        """Yield the rows in batches."""
        first = 0
        for part in [self._given] if _is_table(self._given) else self._given:
            for batch in self._of(part, most_rows, first):
                yield batch
                first += len(batch)

    def _of(self, part: Any, most_rows: int, first: int) -> Iterator[RowBatch]:
        if not isinstance(part, Mapping):
            if not _is_table(part):
                raise _no_rows("each batch", part)
            yield from stream_batches(part, self._fields, most_rows, first=first)
            return
        self._fields.check(list(part), "the batch")
        columns = {name: _column(part[name], name) for name in part if name in self._wanted(part)}
        lengths = {name: len(values) for name, values in columns.items()}
        count = lengths[self._fields.text]
        if wrong := next((name for name, length in lengths.items() if length != count), None):
            text = f"{count} rows of {self._fields.text!r}"
            raise ValidationError([FieldError(-1, None, wrong, "unequal_lengths", text, str(lengths[wrong]))])
        for start in range(0, count, most_rows):
            cut = {name: values[start : start + most_rows] for name, values in columns.items()}
            # NumPy's numbers are not JSON.
            lists = {name: _listed(values, name == self._fields.vector) for name, values in cut.items()}
            rows = min(most_rows, count - start)
            yield batch_of(lists, rows, self._fields, first=first + start)

    def _wanted(self, part: Mapping[str, Any]) -> set[str]:
        own = self._fields.id_in(part)
        needed = {self._fields.text, self._fields.vector, *self._fields.metadata_in(list(part))}
        return needed if own is None else needed | {own}


def opened_sources(given: Any, fields: RowFields) -> list[RowSource]:
    """Open and check every file or table before any of them is loaded."""
    paths = _paths(given)
    if paths is None:
        if not _is_table(given) and (isinstance(given, (str, bytes)) or not isinstance(given, Iterable)):
            raise _no_rows("rows", given)
        return [GivenRows(given, fields)]
    return [FILES[path.suffix.lower()](path, fields) for path in _files(paths)]


def joined_batches(sources: Sequence[RowSource], most_rows: int) -> Iterator[RowBatch]:
    """Yield the rows of all sources in large batches; the first are smaller, so that writing starts soon."""
    most = READ_ROWS
    for source in sources:
        waiting: list[RowBatch] = []
        for batch in source.batches(min(most_rows, READ_ROWS)):
            rows = len(batch) + sum(map(len, waiting))
            if waiting and not (batch.follows(waiting[-1]) and rows <= min(most, _most(batch, most_rows))):
                yield RowBatch.joined(waiting)
                waiting, most = [], most * 2
            waiting.append(batch)
        if waiting:
            yield RowBatch.joined(waiting)


def _most(batch: RowBatch, most_rows: int) -> int:
    return min(most_rows, max(1, MAX_VECTOR_BYTES // max(batch.vectors[:1].nbytes, 1)))


def _paths(given: Any) -> list[Path] | None:
    if isinstance(given, (str, PathLike)):
        return [Path(given)]
    if isinstance(given, (list, tuple)) and given and all(isinstance(one, (str, PathLike)) for one in given):
        return [Path(one) for one in given]
    return None


def _files(paths: Sequence[Path]) -> list[Path]:
    kinds = ", ".join(FILES)
    found: list[Path] = []
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - says False where Path would raise
            below = sorted(one for one in path.iterdir() if one.suffix.lower() in FILES and one.is_file())
            if not below:
                raise ConfigurationError(f"{path} contains no file that can be loaded ({kinds})")
            found += below
        elif not os.path.exists(path):  # noqa: PTH110 - as above
            raise ConfigurationError(f"the file {path} does not exist")
        elif path.suffix.lower() not in FILES or not path.is_file():
            raise ConfigurationError(f"{path}: unsupported file type; convert it to one of: {kinds}")
        else:
            found.append(path)
    return found


def _is_table(given: Any) -> bool:
    return isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")


def _column(values: Any, name: str) -> Any:
    """Return a column that has a length and can be sliced."""
    if isinstance(values, np.ndarray) and values.ndim:
        return values
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ValidationError([FieldError(-1, None, name, "wrong_type", "a list or an array", type(values).__name__)])
    return list(values)


def _listed(values: Any, is_vector: bool) -> Any:
    if not isinstance(values, np.ndarray):
        return values
    if not is_vector or values.ndim != MATRIX or values.dtype.kind not in "fiu":
        return values.tolist()
    with np.errstate(over="ignore"):  # an infinite number is refused with its row
        return np.ascontiguousarray(values, dtype=np.float32)


def _no_rows(name: str, given: Any) -> ConfigurationError:
    return ConfigurationError(
        f"{name} must be a table with an Arrow stream, a mapping of columns, or the path of a file "
        f"({', '.join(FILES)}); got {type(given).__name__}"
    )
