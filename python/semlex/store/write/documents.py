"""Begin writes; write documents, the settings for splitting and the ingestion log; find chunks without vectors."""

from __future__ import annotations

import getpass
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql

from semlex import _core
from semlex.options.collection import ChunkSettings
from semlex.store.postgres.rows import cursor_with_times, fetch_row, fetch_rows, fetch_value
from semlex.store.query.leg import Key, key_arrays
from semlex.store.schema.locks import gone, hold_collection, share_writing, writing_lock
from semlex.store.schema.names import Names, insertion
from semlex.store.write.copy import copy_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from semlex.store.keyword.bm25.write import BatchIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.chunk_batch import ChunkBatch


# Comes before the key of every chunk.
FIRST_KEY = (UUID(int=0), "")
# document_id, chunk_id, content_hash, context, chunk_text
Unembedded = tuple[UUID, str, bytes, str, str]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document read from a source."""

    document_id: UUID
    source_id: UUID
    uri: str
    title: str
    format: str
    content_hash: bytes
    size_bytes: int
    modified_at: datetime
    chunk_count: int
    loader_version: int
    chunker_version: int
    chunk_tokens: int
    overlap_tokens: int
    min_tokens: int
    metadata: dict[str, Any] = field(default_factory=dict)
    file_state: str | None = None
    encoding: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One run in the ingestion log; the attributes are the columns."""

    run_id: UUID
    source_uri: str  # what was read or deleted
    command: str  # for example ``index``
    client: str
    embedding_model: str | None
    started_at: datetime
    finished_at: datetime | None = None
    seconds: float | None = None
    added: int = 0  # numbers of documents
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0  # documents of which nothing is left
    failed: int = 0  # documents that could not be read
    chunks: int = 0  # written
    problems: Sequence[dict[str, str]] = ()  # document and code of those that could not be read


def client_name() -> str:
    """Return user and machine of this process (user@machine), for the ingestion log."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


# SQL types by the types of attributes.
_SQL_TYPES = {
    "UUID": "uuid",
    "bytes": "bytea",
    "datetime": "timestamptz",
    "dict[str, Any]": "jsonb",
    "float": "float8",
    "int": "int4",
    "Sequence[dict[str, str]]": "jsonb",
    "str": "text",
}


def column_types(row: type) -> dict[str, str]:
    """Return the SQL types of a table's columns, by name, from the dataclass of its rows."""
    return {one.name: _SQL_TYPES[str(one.type).removesuffix(" | None")] for one in fields(row)}


DOCUMENT_COLUMNS = column_types(DocumentRow) | {"size_bytes": "int8"}
TIMES = {"created_at": "timestamptz", "updated_at": "timestamptz"}
_FIXED_COLUMNS = ("document_id", "source_id", "uri")


@dataclass(slots=True, kw_only=True)
class RowDocuments:
    """Documents that are rows of a followed table: one list for each column; other columns have one value for all."""

    source_id: UUID
    chunker_version: int
    chunk_settings: ChunkSettings
    document_id: list[bytes]  # 16 bytes each
    uri: list[str]
    title: list[str]
    content_hash: list[bytes]
    file_state: list[str]
    size_bytes: list[int]
    chunk_count: list[int]

    def __len__(self) -> int:
        return len(self.document_id)

    def selected(self, numbers: Sequence[int]) -> RowDocuments:
        """Return the documents at these positions."""
        columns: dict[str, Any] = {
            name: [getattr(self, name)[number] for number in numbers] for name in _COLUMNS_OF_ROWS
        }
        return replace(self, **columns)

    def shared(self, now: datetime) -> dict[str, Any]:
        """Return the values that all of these documents share, by column."""
        return {
            "source_id": self.source_id,
            "format": "row",
            "modified_at": now,
            "loader_version": 1,
            "chunker_version": self.chunker_version,
            **self.chunk_settings._asdict(),
            "metadata": {},
            "encoding": None,
            "fields": {},
        }

    def rows(self, now: datetime) -> list[DocumentRow]:
        """Return the documents one by one, as rows."""
        shared = self.shared(now)
        columns = [
            [UUID(bytes=key) for key in self.document_id],
            *(getattr(self, name) for name in _COLUMNS_OF_ROWS[1:]),
        ]
        return [
            DocumentRow(**shared, **dict(zip(_COLUMNS_OF_ROWS, values, strict=True)))
            for values in zip(*columns, strict=True)
        ]


_COLUMNS_OF_ROWS = ("document_id", "uri", "title", "content_hash", "file_state", "size_bytes", "chunk_count")


async def write_documents(
    connection: Connection,
    collection: CollectionInfo,
    rows: Sequence[DocumentRow] | RowDocuments,
    now: datetime,
    *,
    direct: bool = False,
) -> set[bytes]:
    """Write the rows of documents, in key order; return the keys of those that existed."""
    # The rows are locked before any chunk, so that two writers of one document come one after the other. If `direct`,
    # rows of a table are copied as new ones; one that exists fails the transaction (23505).
    if isinstance(rows, RowDocuments):
        if direct:
            await _copy_documents(connection, collection, rows, now)
            return set()
        rows = rows.rows(now)
    ordered = sorted(rows, key=lambda row: row.document_id.bytes)
    changed = [sql.Identifier(name) for name in DOCUMENT_COLUMNS if name not in _FIXED_COLUMNS]
    # The time of a row that was there differs from that of a new one: partitions return no system column.
    replaced_at = now + timedelta(microseconds=1)
    found = await fetch_rows(
        connection,
        sql.SQL(
            "INSERT INTO {} ({}, created_at, updated_at) "
            "SELECT d.*, %s, %s FROM jsonb_to_recordset(%s::jsonb) AS d ({}) "
            "ON CONFLICT (document_id) DO UPDATE SET {}, updated_at = %s RETURNING document_id, updated_at = %s"
        ).format(
            collection.names.document,
            sql.SQL(", ").join(map(sql.Identifier, DOCUMENT_COLUMNS)),
            sql.SQL(", ").join(
                sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in DOCUMENT_COLUMNS.items()
            ),
            sql.SQL(", ").join(sql.SQL("{} = excluded.{}").format(name, name) for name in changed),
        ),
        # One text: the driver makes arrays value by value, which takes ten times as long.
        [now, now, f"[{','.join(_as_json(row) for row in ordered)}]", replaced_at, replaced_at],
    )
    return {document_id.bytes for document_id, existed in found if existed}


async def _copy_documents(
    connection: Connection, collection: CollectionInfo, rows: RowDocuments, now: datetime
) -> None:
    shared = {**rows.shared(now), "source_id": rows.source_id.bytes, "created_at": now, "updated_at": now}
    columns = [
        (name, kind, [shared[name]] * len(rows) if name in shared else getattr(rows, name))
        for name, kind in {**DOCUMENT_COLUMNS, **TIMES}.items()
    ]
    target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        collection.names.document, sql.SQL(", ").join(sql.Identifier(name) for name, *_ in columns)
    )
    await copy_rows(connection, target, [_core.CopyEncoder(columns)])


def _as_json(row: DocumentRow) -> str:
    values = {name: getattr(row, name) for name in DOCUMENT_COLUMNS}
    shown = {
        "document_id": str(row.document_id),
        "source_id": str(row.source_id),
        "content_hash": f"\\x{row.content_hash.hex()}",
        "modified_at": row.modified_at.astimezone(UTC).isoformat(),
    }
    return _core.to_json(values | shown).decode()


async def lock_documents(connection: Connection, names: Names, documents: Sequence[bytes]) -> set[bytes]:
    """Lock these documents until the transaction ends, in key order; return the keys of those that exist."""
    statement = sql.SQL(
        "SELECT uuid_send(document_id) FROM {} WHERE document_id = ANY(%s::uuid[]) ORDER BY document_id FOR UPDATE"
    )
    return {key for (key,) in await fetch_rows(connection, statement.format(names.document), [key_array(documents)])}


def key_array(documents: Iterable[bytes]) -> str:
    """Return keys in the text form of an SQL array, which is much faster than the driver's conversion of a list."""
    return f"{{{','.join(key.hex() for key in documents)}}}"


async def share_documents(connection: Connection, collection: CollectionInfo, documents: Sequence[UUID]) -> None:
    """Lock documents, in key order, so that nobody replaces or deletes them until the transaction ends."""
    statement = sql.SQL("SELECT FROM {} WHERE document_id = ANY(%s) ORDER BY document_id FOR SHARE")
    await connection.execute(statement.format(collection.names.document), [list(documents)])


async def stored_chunk_settings(connection: Connection, collection: CollectionInfo) -> ChunkSettings | None:
    """Return the stored settings for splitting files into chunks; None if they are not decided yet."""
    names = collection.names
    statement = sql.SQL(
        "SELECT chunk_tokens, overlap_tokens, min_tokens FROM {} WHERE name = %s AND collection_id = %s"
    )
    row = await fetch_row(connection, statement.format(names.registry), [names.collection, collection.collection_id])
    if row is None:
        raise gone(collection)
    return ChunkSettings.stored(*row)


async def settle_chunk_settings(
    connection: Connection, collection: CollectionInfo, settings: ChunkSettings
) -> ChunkSettings:
    """Return the stored settings for splitting files; if none are stored, store and return the given ones."""
    stored = await stored_chunk_settings(connection, collection)
    if stored is not None:
        return stored
    names = collection.names
    # The first lock of a writer: chunks may follow in this transaction.
    await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(collection)])
    # Of two first runs one waits here, and then finds what the other has stored.
    row = await fetch_row(
        connection,
        sql.SQL(
            "UPDATE {} SET chunk_tokens = coalesce(chunk_tokens, %s), overlap_tokens = coalesce(overlap_tokens, %s), "
            "min_tokens = coalesce(min_tokens, %s) WHERE name = %s AND collection_id = %s "
            "RETURNING chunk_tokens, overlap_tokens, min_tokens"
        ).format(names.registry),
        [*settings, names.collection, collection.collection_id],
    )
    if row is None:
        raise gone(collection)
    return ChunkSettings(*row)


async def store_chunk_settings(connection: Connection, collection: CollectionInfo, settings: ChunkSettings) -> None:
    """Replace the settings by which files are split into chunks from now on."""
    names = collection.names
    cursor = await connection.execute(
        sql.SQL(
            "UPDATE {} SET chunk_tokens = %s, overlap_tokens = %s, min_tokens = %s "
            "WHERE name = %s AND collection_id = %s"
        ).format(names.registry),
        [*settings, names.collection, collection.collection_id],
    )
    if cursor.rowcount == 0:
        raise gone(collection)


async def embedded_hashes(connection: Connection, collection: CollectionInfo, keys: Sequence[Key]) -> dict[Key, bytes]:
    """Return the content hash of each of these chunks that has a vector."""
    if collection.embedding is None or not keys:
        return {}
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.content_hash "
            "FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) AS k(document_id, chunk_id) "
            "JOIN {} AS c USING (document_id, chunk_id) JOIN {} AS e USING (document_id, chunk_id)"
        ).format(collection.names.chunk, collection.names.embedding(collection.embedding.version)),
        key_arrays(keys),
    )
    return {(row[0], row[1]): row[2] for row in found}


async def have_chunks(connection: Connection, collection: CollectionInfo, documents: Iterable[bytes]) -> bool:
    """Return whether any of these documents has a chunk."""
    statement = sql.SQL("SELECT EXISTS (SELECT 1 FROM {} WHERE document_id = ANY(%s::uuid[]))")
    return bool(await fetch_value(connection, statement.format(collection.names.chunk), [key_array(documents)]))


async def unchanged_rows(connection: Connection, collection: CollectionInfo, rows: ChunkBatch) -> set[Key]:
    """Return the keys of the rows that are stored with the same text and metadata and have a vector."""
    if collection.embedding is None or not len(rows):
        return set()
    metadata = [_core.to_json(value).decode() for value in rows.metadata]
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT c.document_id, c.chunk_id "
            "FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[], %(hashes)s::bytea[], %(metadata)s::text[]) "
            "AS k(document_id, chunk_id, content_hash, metadata) "
            "JOIN {} AS c USING (document_id, chunk_id) JOIN {} AS e USING (document_id, chunk_id) "
            "WHERE c.content_hash = k.content_hash AND c.metadata = k.metadata::jsonb"
        ).format(collection.names.chunk, collection.names.embedding(collection.embedding.version)),
        {**key_arrays(rows.keys()), "hashes": rows.content_hash, "metadata": metadata},
    )
    return set(found)


async def is_empty(connection: Connection, collection: CollectionInfo) -> bool:
    """Return whether the collection has no chunk."""
    statement = sql.SQL("SELECT NOT EXISTS (SELECT 1 FROM {})").format(collection.names.chunk)
    return bool(await fetch_value(connection, statement))


async def count_unembedded(connection: Connection, collection: CollectionInfo) -> int:
    """Return the number of chunks without a vector."""
    return int(await fetch_value(connection, _unembedded(collection, sql.SQL("count(*)"), sql.SQL(""))))


async def unembedded_chunks(
    connection: Connection, collection: CollectionInfo, after: Key | None, limit: int
) -> list[Unembedded]:
    """Return a page of chunks without a vector, in key order: document_id, chunk_id, content_hash, context, text."""
    return await fetch_rows(
        connection,
        _unembedded(
            collection,
            sql.SQL("c.document_id, c.chunk_id, c.content_hash, c.context, c.chunk_text"),
            sql.SQL("AND (c.document_id, c.chunk_id) > (%s, %s) ORDER BY c.document_id, c.chunk_id LIMIT %s"),
        ),
        [*(after or FIRST_KEY), limit],
    )


def _unembedded(collection: CollectionInfo, columns: sql.SQL, rest: sql.SQL) -> sql.Composed:
    embedding = collection.embedding
    if embedding is None:
        return sql.SQL("SELECT {} FROM {} AS c WHERE TRUE {}").format(columns, collection.names.chunk, rest)
    return sql.SQL(
        "SELECT {} FROM {} AS c WHERE NOT EXISTS (SELECT 1 FROM {} AS e "
        "WHERE e.document_id = c.document_id AND e.chunk_id = c.chunk_id) {}"
    ).format(columns, collection.names.chunk, collection.names.embedding(embedding.version), rest)


async def log_run(connection: Connection, collection: CollectionInfo, entry: LogEntry) -> None:
    """Write or complete one entry of the ingestion log."""
    await hold_collection(connection, collection)
    names = [column.name for column in fields(entry)]
    values = {name: getattr(entry, name) for name in names}
    values["problems"] = _core.to_json(list(entry.problems)).decode()
    await connection.execute(
        insertion(collection.names.ingestion_log, names)
        + sql.SQL(" ON CONFLICT (run_id) DO UPDATE SET {}").format(
            sql.SQL(", ").join(
                sql.SQL("{} = excluded.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in names[1:]
            )
        ),
        values,
    )


async def last_run(connection: Connection, collection: CollectionInfo) -> dict[str, Any] | None:
    """Return the newest entry of the ingestion log that is not about a deletion."""
    statement = sql.SQL("SELECT * FROM {} WHERE command <> 'delete' ORDER BY started_at DESC LIMIT 1")
    cursor = await cursor_with_times(connection).execute(statement.format(collection.names.ingestion_log))
    row = await cursor.fetchone()
    if row is None:
        return None
    return {column.name: value for column, value in zip(cursor.description or (), row, strict=True)}


@asynccontextmanager
async def begin_write(
    connection: Connection, collection: CollectionInfo, rows: int = 0
) -> AsyncIterator[BatchIndex | None]:
    """Take a writer's first locks; yield the keyword index's part of the write, or None without such an index."""
    index = collection.keyword.index
    if index is None:
        await share_writing(connection, collection)
        yield None
        return
    async with index.begin_write(connection, collection, rows) as share:
        yield share
