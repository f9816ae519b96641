"""The tables of a dump: what a Parquet file of one has, written and read."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import DumpError
from semlex.ingest.bulk.arrow_rows import arrow
from semlex.maintenance.dump_files import VERSION, DumpedFile, file_of
from semlex.store.tables import CHUNKS, TABLES, VECTOR, ColumnBuffers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa

    from semlex.store.schema.collection import EmbeddingVersion

BUFFER_BYTES = 8 * 1024 * 1024
# Numbers of vectors, not vectors, that Parquet's writer takes at a time: with its own 1,024 the lists take three times
# as long as their bytes.
BATCH_VALUES = 256 * 1024


class HashedFile:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Writes bytes at the end."""
        self._hash.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._bytes

    def flush(self) -> None:
        """Hands them on."""
        self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self.closed = True

    def written(self, rows: int) -> DumpedFile:
        """What was written."""
        return DumpedFile(rows, self._bytes, self._hash.hexdigest())


class TableWriter:
    """Writes the rows of a table into its file."""

    def __init__(self, file: BinaryIO, table: str, embedding: EmbeddingVersion | None) -> None:
        pyarrow = arrow()
        import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

        self._table = table
        self._embedding = embedding if table == CHUNKS else None
        self._schema = arrow_schema(table, embedding)
        self._hashed = HashedFile(file)
        self._rows = self.vectors = 0
        # Vectors do not get smaller, and of long texts a dictionary is no gain.
        plain = f"{VECTOR}.list.element"
        names = [name for name in self._schema.names if name != VECTOR]
        # Whoever writes into a Python object waits for the interpreter each time, which the one who reads rows holds.
        self._buffered = pyarrow.BufferedOutputStream(pyarrow.PythonFile(self._hashed, "w"), BUFFER_BYTES)
        self._writer = pq.ParquetWriter(
            self._buffered,
            self._schema,
            compression=dict.fromkeys(names, "zstd") | ({plain: "none"} if self._embedding else {}),
            use_dictionary=[name for name in names if name not in ("chunk_id", "chunk_text", "context")],
            write_statistics=names,
            write_batch_size=BATCH_VALUES,
        )

    def write(self, columns: Sequence[ColumnBuffers]) -> int:
        """Writes rows; returns how many."""
        arrays = [_array(field.type, column) for field, column in zip(self._schema, columns, strict=True)]
        rows = arrow().record_batch(arrays, schema=self._schema)
        self._writer.write_batch(rows)
        if self._embedding is not None:
            self.vectors += rows.num_rows - arrays[-1].null_count
        self._rows += rows.num_rows
        return int(rows.num_rows)

    def close(self) -> DumpedFile:
        """Ends the file, and tells what it is."""
        self._writer.close()
        self._buffered.close()
        return self._hashed.written(self._rows)

    def abandon(self) -> None:
        """Lets go of a file that is not wanted any more."""
        with suppress(Exception):  # whatever came before is what is told
            self._writer.close()


def arrow_schema(table: str, embedding: EmbeddingVersion | None) -> pa.Schema:
    """The columns of a file."""
    pyarrow = arrow()
    kinds = {
        "uuid": pyarrow.string(),
        "text": pyarrow.string(),
        "jsonb": pyarrow.string(),
        "int4": pyarrow.int32(),
        "int8": pyarrow.int64(),
        "float8": pyarrow.float64(),
        "bytea": pyarrow.binary(),
        "text[]": pyarrow.list_(pyarrow.string()),
        "timestamptz": pyarrow.timestamp("us", "UTC"),
    }
    columns = [(name, kinds[wire]) for name, wire in TABLES[table].items()]
    if table == CHUNKS and embedding is not None:
        number = pyarrow.float16() if embedding.storage == "halfvec" else pyarrow.float32()
        columns.append((VECTOR, pyarrow.list_(number, embedding.dimensions)))
    return pyarrow.schema(columns)


def _array(kind: pa.DataType, column: ColumnBuffers) -> pa.Array:
    """A column of a part as an array; most of it is not copied."""
    pyarrow = arrow()
    nulls, offsets, values = column
    buffer = pyarrow.py_buffer
    valid = None if nulls is None else buffer(np.packbits(~nulls, bitorder="little"))
    if pyarrow.types.is_fixed_size_list(kind):
        numbers = values.astype(kind.value_type.to_pandas_dtype(), copy=False)
        if nulls is not None:  # there is a place for a vector that is missing
            numbers, given = np.zeros((len(nulls), kind.list_size), numbers.dtype), numbers
            numbers[~nulls] = given.reshape(-1, kind.list_size)
        flat = pyarrow.array(numbers.reshape(-1))
        return pyarrow.Array.from_buffers(kind, len(flat) // kind.list_size, [valid], children=[flat])
    if offsets is None:
        numbers = values.astype(np.int32, copy=False) if pyarrow.types.is_int32(kind) else values
        return pyarrow.Array.from_buffers(kind, len(numbers), [valid, buffer(numbers)])
    if pyarrow.types.is_list(kind):
        elements = _array(kind.value_type, ColumnBuffers(*values))
        return pyarrow.Array.from_buffers(kind, len(offsets) - 1, [valid, buffer(offsets)], children=[elements])
    return pyarrow.Array.from_buffers(kind, len(offsets) - 1, [valid, buffer(offsets), buffer(values)])


def table_parts(folder: Path, table: str, embedding: EmbeddingVersion | None, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in parts."""
    pyarrow = arrow()
    import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

    path = file_of(folder, table)
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1024 * 1024) as file:
            if not file.schema_arrow.equals(arrow_schema(table, embedding)):
                raise DumpError(f"{path} has other columns than a dump of version {VERSION}: dump again")
            yield from file.iter_batches(rows)
    except pyarrow.ArrowException as error:
        raise DumpError(f"{path} is damaged ({type(error).__name__}): copy it again, or dump again") from None
