"""Read the rows that a caller gives, in memory (Arrow, NumPy) or in files (Parquet, JSON Lines), in bounded batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import numpy as np

from semlex.errors import ConfigurationError, FieldError, MissingExtraError, ValidationError
from semlex.ingest.bulk.row_batch import (
    RowBatch,
    batch_of,
    check_fields,
    found_in,
    id_field,
    metadata_fields,
    unequal,
    used_fields,
)
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.records import parse_json
from semlex.json_values import json_tree
from semlex.validation import refuse, wrong_type

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from semlex.ingest.bulk.row_batch import RowFields


# A column of a row group is read in pieces of this size, not at once: a row group may be as large as its file.
BUFFER_BYTES = 1024 * 1024


def arrow() -> ModuleType:
    """Import pyarrow; if it is not installed, raise an error that names the extra to install."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - of an extra
    except ImportError:
        raise MissingExtraError("pyarrow", "arrow", "reading and writing Arrow and Parquet") from None
    return cast("ModuleType", pa)


def stream_batches(table: Any, fields: RowFields, most_rows: int, *, first: int = 0) -> Iterator[RowBatch]:
    """Yield the rows of an object with an Arrow stream."""
    pyarrow = arrow()
    if hasattr(table, "__arrow_c_stream__"):
        reader = pyarrow.RecordBatchReader.from_stream(table)
    else:
        batch = pyarrow.record_batch(table)
        reader = pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])
    check_schema(reader.schema, fields, "the table")
    with understood("the table"):
        for batch in reader:
            for start in range(0, batch.num_rows, most_rows):
                part = batch.slice(start, most_rows)
                yield _rows(part, fields, "", first)
                first += part.num_rows


class ParquetRows:
    """The rows of a Parquet file."""

    def __init__(self, path: Path, fields: RowFields) -> None:
        arrow()
        self._path, self._fields = path, fields
        # Closed again: a folder may hold more files than a process can have open.
        with self._opened() as file:
            self.count: int = file.metadata.num_rows

    def batches(self, most_rows: int) -> Iterator[RowBatch]:
        """Yield the rows in batches."""
        with self._opened() as file, understood(self._path.name), found_in(self._path.name):
            names = file.schema_arrow.names
            wanted = used_fields(self._fields, names)
            first = 0
            for batch in file.iter_batches(most_rows, columns=[name for name in names if name in wanted]):
                yield _rows(batch, self._fields, self._path.name, first)
                first += batch.num_rows

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        """Open the file and check its fields again, since it may have changed after the first check."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

        with understood(self._path.name):
            file = pq.ParquetFile(
                self._path, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            )
        with file:
            check_schema(file.schema_arrow, self._fields, self._path.name)
            yield file


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Turn pyarrow's errors about a file or stream into semlex's."""
    pyarrow = arrow()
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ConfigurationError(
            f"{where} cannot be read: {reason}; write it again, with columns of simple types"
        ) from None


def check_schema(schema: pa.Schema, fields: RowFields, where: str) -> None:
    """Refuse columns of the wrong types before any row is read."""
    check_fields(fields, schema.names, where)
    types = arrow().types
    text = _plain(schema.field(fields.text).type)
    if not _is_text(text):
        raise _other_type(where, fields.text, "text", text)
    if fields.has_vectors and not _is_vector(vector := schema.field(fields.vector).type):
        raise _other_type(where, fields.vector, "lists of numbers", vector)
    own = id_field(fields, schema.names)
    if own is not None and not (_is_text(kind := _plain(schema.field(own).type)) or types.is_integer(kind)):
        raise _other_type(where, own, "text or whole numbers", kind)
    for name in metadata_fields(fields, schema.names):
        if not _is_json(kind := schema.field(name).type):
            raise ConfigurationError(
                f"{where}: field {name!r} is of type {str(kind)[:80]}, which JSON does not have: cast it to text or a "
                "number, or name the fields that are to be kept (metadata_fields=, --metadata-field)"
            )


def _other_type(where: str, field: str, wanted: str, found: pa.DataType) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: field {field!r} must hold {wanted}, but is of type {str(found)[:80]}: name another field, or cast it"
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if arrow().types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_vector(kind: pa.DataType) -> bool:
    types = arrow().types
    storage = getattr(kind, "storage_type", kind)  # a tensor of fixed shape
    return _is_list(storage) and bool(types.is_floating(storage.value_type) or types.is_integer(storage.value_type))


def _is_json(kind: pa.DataType) -> bool:
    types = arrow().types
    kind = _plain(kind)
    if _is_list(kind):
        return _is_json(kind.value_type)
    if types.is_struct(kind):
        return all(_is_json(kind.field(number).type) for number in range(kind.num_fields))
    simple = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)
    return bool(simple or types.is_date(kind) or types.is_timestamp(kind) or _is_text(kind))


def _rows(batch: pa.RecordBatch, fields: RowFields, where: str, first: int) -> RowBatch:
    names = batch.schema.names
    wanted = used_fields(fields, names) - {fields.vector}
    columns: dict[str, Any] = {name: _values(batch.column(name)) for name in names if name in wanted}
    if fields.has_vectors:
        columns[fields.vector] = _vectors(batch.column(fields.vector), fields.vector, first)
    return batch_of(columns, batch.num_rows, fields, where=where, first=first)


def _values(column: pa.Array) -> list[Any]:
    """Return a column as JSON values."""
    pyarrow = arrow()
    kind = column.type
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    values = column.to_pylist()
    return [json_tree(value) for value in values] if _holds_times(kind) else values


def _holds_times(kind: pa.DataType) -> bool:
    types = arrow().types
    if _is_list(kind):
        return _holds_times(kind.value_type)
    if types.is_struct(kind):
        return any(_holds_times(kind.field(number).type) for number in range(kind.num_fields))
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _vectors(column: pa.Array, field: str, first: int) -> NDArray[np.float32]:
    """Return a column of lists as an array, shape (n, d); a column of float32 is not copied."""
    pyarrow = arrow()
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    if column.null_count:
        raise _refused(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)), first, field, "missing")
    if not len(column):
        return np.empty((0, 0), np.float32)
    flat = column.flatten()
    if pyarrow.types.is_fixed_size_list(column.type):
        length = column.type.list_size
    else:
        lengths = np.diff(np.asarray(column.offsets))
        length = int(lengths[0])
        if (other := np.flatnonzero(lengths != length)).size:
            raise _refused(other, first, field, *unequal(length, int(lengths[other[0]])))
    if flat.null_count:
        rows = np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False)) // max(length, 1)
        raise _refused(np.unique(rows), first, field, "not_finite")
    numbers: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # an infinite number is refused with its row
        return np.ascontiguousarray(numbers, dtype=np.float32).reshape(len(column), length)


def _refused(rows: NDArray[np.int64], first: int, field: str, code: str, *found: str) -> ValidationError:
    return ValidationError(FieldError(first + int(row), None, field, code, *found) for row in rows)


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
            check_fields(fields, list(first), f"the first row of {path.name}", whole=False)

    def batches(self, most_rows: int) -> Iterator[RowBatch]:
        """Yield the rows in batches, without blank lines."""
        objects = self._objects()
        first = 0
        while True:
            with found_in(self._path.name):
                if not (rows := list(islice(objects, most_rows))):
                    return
                names = dict.fromkeys(name for row in rows for name in row)
                names |= dict.fromkeys(filter(None, (self._fields.text, self._fields.vector, self._fields.id)))
                columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
                batch = batch_of(columns, len(rows), self._fields, where=self._path.name, first=first)
            yield batch
            first += len(rows)

    def _objects(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                for line, text in enumerate(self._lines(file), 1):
                    if text.strip():
                        yield self._object(text, line)
        except OSError as error:
            raise ConfigurationError(f"{self._path.name} cannot be read: {error.strerror}") from None

    def _lines(self, file: BinaryIO) -> Iterator[str]:
        for number, data in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
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
    """A source of rows: a file, or data in memory."""

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
        check_fields(self._fields, list(part), "the batch")
        wanted = used_fields(self._fields, list(part))
        columns = {name: _column(part[name], name) for name in part if name in wanted}
        lengths = {name: len(values) for name, values in columns.items()}
        count = lengths[self._fields.text]
        if wrong := next((name for name, length in lengths.items() if length != count), None):
            rows_of_text = f"{count} rows of {self._fields.text!r}"
            raise ValidationError(refuse(wrong, "unequal_lengths", rows_of_text, str(lengths[wrong])))
        for start in range(0, count, most_rows):
            cut = {name: values[start : start + most_rows] for name, values in columns.items()}
            # NumPy's numbers are not JSON.
            lists = {name: _listed(values, name == self._fields.vector) for name, values in cut.items()}
            rows = min(most_rows, count - start)
            yield batch_of(lists, rows, self._fields, first=first + start)


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
    paths = [given] if isinstance(given, (str, PathLike)) else given
    if isinstance(paths, (list, tuple)) and paths and all(isinstance(one, (str, PathLike)) for one in paths):
        return [Path(one) for one in paths]
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
        raise ValidationError(wrong_type(name, "a list or an array", values))
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
