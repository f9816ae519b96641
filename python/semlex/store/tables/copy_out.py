"""Whole tables of a collection out of the server, by binary COPY."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.store.postgres.settings import set_local
from semlex.store.tables.columns import CHUNKS, TABLES, VECTOR, table_of
from semlex.store.write.copy import HEADER, TRAILER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo

# Bytes of rows that are decoded at a time.
PART_BYTES = 8 * 1024 * 1024
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


@dataclass(frozen=True, slots=True)
class RowPart:
    """Rows of a table as the server sent them.

    Attributes:
        messages: One a row, with the stream's header before the first row and its trailer after the last.
        types: Of the columns.
    """

    messages: list[bytes | bytearray | memoryview]
    types: list[str]

    def decoded(self) -> list[list[Any]]:
        """A list a column, in any thread.

        uuid and jsonb are text, timestamptz microseconds since 1970, vectors float32 (d,) arrays, NULL None.
        """
        first, last = bytes(self.messages[0][: len(HEADER)]), self.messages[-1]
        before = b"" if first == HEADER else HEADER
        after = b"" if len(last) in _ENDS and bytes(last).endswith(TRAILER) else TRAILER
        return _core.decode_copy(b"".join((before, *self.messages, after)), self.types)


async def copy_out(connection: Connection, collection: CollectionInfo, table: str) -> AsyncIterator[RowPart]:
    """The rows of a table, in the order of its key, in parts of about 8 MiB.

    Args:
        connection: In a transaction.
        collection: As opened.
        table: A key of `TABLES`. Chunks have one column more where the collection has vectors: their vectors.
    """
    wires = TABLES[table]
    read = {name: _READ.get(wire, _AS_IS) for name, wire in wires.items()}
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
        # Both tables are read in the order of their keys; a hash of one of them would be written to disk and read back.
        await set_local(connection, enable_hashjoin="off")
    statement = sql.SQL("COPY (SELECT {} FROM {} ORDER BY {}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(columns), source, sql.SQL(", ").join(sql.Identifier("t", name) for name in key)
    )
    messages: list[bytes | bytearray | memoryview] = []
    size = 0
    async with connection.cursor().copy(statement) as copy:
        async for message in copy:
            messages.append(message)
            size += len(message)
            if size >= PART_BYTES:
                yield RowPart(messages, types)
                messages, size = [], 0
    if messages:
        yield RowPart(messages, types)
