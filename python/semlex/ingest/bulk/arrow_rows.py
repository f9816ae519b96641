"""Read rows from Arrow: any object with an Arrow stream, and Parquet files, in batches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from semlex.errors import ConfigurationError, FieldError, MissingExtraError, ValidationError
from semlex.ingest.bulk.row_batch import RowBatch, batch_of, found_in, unequal
from semlex.json_values import json_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from semlex.ingest.bulk.row_batch import RowFields

# A column of a row group is read in pieces of this size, not at once: a row group may be as large as its file.
BUFFER_BYTES = 1024 * 1024


def arrow() -> ModuleType:
    """Import pyarrow; raise the error that names the extra if it is not installed."""
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
            fields = self._fields
            wanted = {fields.text, fields.vector, fields.id_in(names), *fields.metadata_in(names)}
            first = 0
            for batch in file.iter_batches(most_rows, columns=[name for name in names if name in wanted]):
                yield _rows(batch, fields, self._path.name, first)
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
            f"{where} cannot be read: {reason}; make it again, with columns of simple types"
        ) from None


def check_schema(schema: pa.Schema, fields: RowFields, where: str) -> None:
    """Refuse columns of the wrong types before any row is read."""
    fields.check(schema.names, where)
    types = arrow().types
    text, vector = _plain(schema.field(fields.text).type), schema.field(fields.vector).type
    if not _is_text(text):
        raise _other_type(where, fields.text, "text", text)
    if not _is_vector(vector):
        raise _other_type(where, fields.vector, "lists of numbers", vector)
    own = fields.id_in(schema.names)
    if own is not None and not (_is_text(kind := _plain(schema.field(own).type)) or types.is_integer(kind)):
        raise _other_type(where, own, "text or whole numbers", kind)
    for name in fields.metadata_in(schema.names):
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
    wanted = {fields.text, fields.id_in(names), *fields.metadata_in(names)} - {None}
    columns: dict[str, Any] = {name: _values(batch.column(name)) for name in names if name in wanted}
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
