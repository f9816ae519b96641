"""Copy whole tables of a collection by binary COPY: from the server for a dump, into the server for a restore."""

from __future__ import annotations

import asyncio
import select
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.errors import error_from_result

from semlex import _core
from semlex.store.postgres.rows import only_row
from semlex.store.postgres.settings import set_local
from semlex.store.write.chunk_batch import COLUMNS
from semlex.store.write.copy import HEADER, TRAILER, copy_rows
from semlex.store.write.documents import DOCUMENT_COLUMNS, TIMES, LogEntry, column_types
from semlex.store.write.sources import Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from psycopg.pq.abc import PGconn

    from semlex.store.postgres.connection import Connection
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names


# Tables of a dump, in the order of restoring. Keyword ids are left out: the keyword index is made again.
TABLES: Mapping[str, Mapping[str, str]] = {
    "sources": {**column_types(Source), **TIMES},
    "documents": {**DOCUMENT_COLUMNS, **TIMES},
    "runs": column_types(LogEntry),
    "chunks": {column.name: column.wire for column in COLUMNS},
}
CHUNKS = "chunks"
VECTOR = "embedding"
NOTHING = sql.SQL("")


def table_of(names: Names, table: str) -> sql.Identifier:
    """Return the SQL name of a table that `TABLES` lists."""
    tables = {"sources": names.source, "documents": names.document, "runs": names.ingestion_log, "chunks": names.chunk}
    return tables[table]


async def copy_in(
    connection: Connection, collection: CollectionInfo, table: str, columns: Mapping[str, Sequence[Any]]
) -> int:
    """Write rows of any table except that of the chunks; return how many."""
    wires = TABLES[table]
    values = [(name, wire, _uuids(columns[name]) if wire == "uuid" else columns[name]) for name, wire in wires.items()]
    target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        table_of(collection.names, table), sql.SQL(", ").join(map(sql.Identifier, wires))
    )
    return await copy_rows(connection, target, [_core.CopyEncoder(values)])


def _uuids(values: Sequence[str | None]) -> list[bytes | None]:
    return [None if value is None else uuid.UUID(value).bytes for value in values]


async def count_rows(connection: Connection, collection: CollectionInfo) -> dict[str, int]:
    """Return the number of rows of each table of a dump, and of vectors, by the table's name in the dump."""
    counted = {table: table_of(collection.names, table) for table in TABLES}
    if collection.embedding is not None:
        counted["vectors"] = collection.names.embedding(collection.embedding.version)
    selected = [sql.SQL("(SELECT count(*) FROM {})").format(table) for table in counted.values()]
    row = await only_row(connection, sql.SQL("SELECT {}").format(sql.SQL(", ").join(selected)))
    return {"vectors": 0} | dict(zip(counted, row, strict=True))


# Bytes of rows that are decoded at a time.
PART_BYTES = 8 * 1024 * 1024
# How often a thread that waits for the server checks whether it was cancelled.
STOP_MILLISECONDS = 20
# How a value is read that has another type in the file, with the type in which it travels.
_READ = {
    "uuid": ("{}::text", "text"),
    "jsonb": ("{}::text", "text"),
    # Microseconds since 1970: whole numbers, exact for every time.
    "timestamptz": ("(extract(epoch FROM {}) * 1000000)::bigint", "int8"),
}
_AS_IS = ("{}", "")
# Sizes of a last message: the trailer alone, or with the header of a table without rows.
_ENDS = (len(TRAILER), len(HEADER) + len(TRAILER))


class ColumnBuffers(NamedTuple):
    """A column in the memory layout of Arrow."""

    nulls: NDArray[np.bool_] | None  # bool (n,), or None if no row is null
    # int32 (n + 1,): where each row begins in the values, and where the last one ends; None if each row is one value.
    offsets: NDArray[np.int32] | None
    # Of all rows, concatenated: int64, float64 or float32, of text uint8; of arrays a column.
    values: Any


@dataclass(frozen=True, slots=True)
class RowPart:
    """Rows of a table as the server sent them."""

    # One a row, with the stream's header before the first row and its trailer after the last.
    messages: list[bytes | bytearray | memoryview]
    types: list[str]  # of the columns

    def decoded(self) -> list[list[Any]]:
        """Decode the rows into one list for each column; callable in any thread."""
        # uuid and jsonb are text, timestamptz microseconds since 1970, vectors float32 (d,) arrays, NULL None.
        return _core.decode_copy(self._stream(), self.types)

    def buffers(self) -> list[ColumnBuffers]:
        """Return the columns in Arrow's layout, without a Python object for each value; callable in any thread."""
        return [ColumnBuffers(*column) for column in _core.decode_copy_buffers(self._stream(), self.types)]

    def _stream(self) -> bytes:
        first, last = bytes(self.messages[0][: len(HEADER)]), self.messages[-1]
        before = b"" if first == HEADER else HEADER
        after = b"" if len(last) in _ENDS and bytes(last).endswith(TRAILER) else TRAILER
        return b"".join((before, *self.messages, after))


async def copy_out(
    connection: Connection,
    collection: CollectionInfo,
    table: str,
    *,
    names: Iterable[str] | None = None,
    where: sql.Composable = NOTHING,
    limit: sql.Composable = NOTHING,
) -> AsyncIterator[RowPart]:
    """Yield the rows of a table, in the order of its key, in parts of about 8 MiB; `names` chooses columns."""
    wires = TABLES[table]
    read = {name: _READ.get(wires[name], _AS_IS) for name in names or wires}
    types = [own or wires[name] for name, (_, own) in read.items()]
    columns = [sql.SQL(form).format(sql.Identifier("t", name)) for name, (form, _) in read.items()]
    source = sql.SQL("{} AS t").format(table_of(collection.names, table))
    key = ["document_id", "chunk_id"] if table == CHUNKS else [next(iter(wires))]
    embedding = collection.embedding
    if table == CHUNKS and embedding is not None:
        types.append(embedding.storage)
        columns.append(sql.SQL("{}").format(sql.Identifier("e", VECTOR)))
        source += sql.SQL(" LEFT JOIN {} AS e USING (document_id, chunk_id)").format(
            collection.names.embedding(embedding.version)
        )
        # Both tables are read in the order of their keys; a hash of one of them would be written to disk and read back,
        # and for a page of them it would be of the whole table.
        await set_local(connection, enable_hashjoin="off")
    statement = sql.SQL("COPY (SELECT {} FROM {} {} ORDER BY {} {}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(columns), source, where, sql.SQL(", ").join(sql.Identifier("t", name) for name in key), limit
    )
    async for part in copy_parts(connection, statement, types):
        yield part


# Columns of `copy_page`.
PAGE_COLUMNS = ("chunk_id", "chunk_text", "metadata", "source_document")


async def copy_page(
    connection: Connection,
    collection: CollectionInfo,
    documents: tuple[uuid.UUID, uuid.UUID],
    after: Key | None,
    limit: int,
) -> list[RowPart]:
    """Return chunks in the order of their keys: `PAGE_COLUMNS`, and `VECTOR` if the collection has vectors.

    `documents` are the first and the last document key to read.
    """
    first, last = map(sql.Literal, documents)
    begin = (
        sql.SQL("t.document_id >= {}").format(first)
        if after is None
        else sql.SQL("(t.document_id, t.chunk_id) > ({}, {})").format(*map(sql.Literal, after))
    )
    where = sql.SQL("WHERE {} AND t.document_id <= {}").format(begin, last)
    some = sql.SQL("LIMIT {}").format(limit)
    page = copy_out(connection, collection, CHUNKS, names=PAGE_COLUMNS, where=where, limit=some)
    return [part async for part in page]


async def copy_parts(connection: Connection, statement: sql.Composed, types: list[str]) -> AsyncIterator[RowPart]:
    """Yield the rows of a binary COPY out of the server, in parts of about 8 MiB."""
    async with connection.cursor().copy(statement) as copy:
        while first := await copy.read():
            reading = _Reading(connection.pgconn, [first])
            try:
                await asyncio.to_thread(reading.run)
            finally:
                reading.stop()
            yield RowPart(reading.messages, types)


class _Reading:
    """Reads COPY messages in a thread until they fill a part; the event loop would wait longer for each message."""

    def __init__(self, pgconn: PGconn, messages: list[bytes | bytearray | memoryview]) -> None:
        self._pgconn = pgconn
        self.messages = messages
        self._stopped = False
        self._ended = threading.Lock()

    def run(self) -> None:
        """Read until the part is full, the stream has ended, or `stop` is called."""
        with self._ended:
            message = self.messages[0]
            size = len(message)
            incoming = select.poll()
            incoming.register(self._pgconn.socket, select.POLLIN)
            # The trailer marks the end, which only the driver can read.
            while size < PART_BYTES and not (len(message) in _ENDS and bytes(message).endswith(TRAILER)):
                length, message = self._pgconn.get_copy_data(1)
                while not length:
                    if self._stopped:
                        return
                    incoming.poll(STOP_MILLISECONDS)
                    self._pgconn.consume_input()
                    length, message = self._pgconn.get_copy_data(1)
                if length < 0:
                    raise self._error()
                self.messages.append(message)
                size += length

    def _error(self) -> psycopg.Error:
        """Return the stream's error; read the rest of the stream, so that the connection can be used again."""
        result = self._pgconn.get_result()
        while self._pgconn.get_result() is not None:
            pass
        return psycopg.OperationalError("the stream ended too early") if result is None else error_from_result(result)

    def stop(self) -> None:
        """Wait until reading has stopped, which takes a moment."""
        self._stopped = True
        with self._ended:
            pass
