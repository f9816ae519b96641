"""What the indexer asks of the store beside writing chunks: sources, documents, what is already there, the log."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql

from semlex import _core
from semlex.errors import CollectionNotFoundError
from semlex.store.settings import cursor_with_times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from semlex.store.connection import Connection
    from semlex.store.legs import Key
    from semlex.store.schema import Collection


# document_id, chunk_id, content_hash, context, chunk_text
Unembedded = tuple[UUID, str, bytes, str, str]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """What was read from a source."""

    document_id: UUID
    source_id: UUID
    uri: str
    title: str
    format: str
    content_hash: bytes
    size_bytes: int
    modified_at: datetime
    chunk_count: int
    metadata: dict[str, Any] = field(default_factory=dict)


def source_id(uri: str) -> UUID:
    """Key of a source."""
    return UUID(bytes=_core.hash_rows("source", [[uri]])[0])


def client_name() -> str:
    """Who is indexing, for the log."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


async def write_source(connection: Connection, collection: Collection, uri: str, kind: str, now: datetime) -> UUID:
    """Makes sure that a source is known."""
    key = source_id(uri)
    await connection.execute(
        sql.SQL(
            "INSERT INTO {} (source_id, root, name, key, kind, created_at, updated_at) "
            "VALUES (%(key)s, %(uri)s, %(uri)s, %(uri)s, %(kind)s, %(now)s, %(now)s) "
            "ON CONFLICT (source_id) DO UPDATE SET updated_at = excluded.updated_at"
        ).format(collection.names.source),
        {"key": key, "uri": uri, "kind": kind, "now": now},
    )
    return key


async def write_documents(
    connection: Connection, collection: Collection, rows: Sequence[DocumentRow], now: datetime
) -> None:
    """Writes the rows of documents, in key order.

    They are the first locks that a writer takes, so that two writers of one document come one after the other.
    """
    ordered = sorted(rows, key=lambda row: row.document_id.bytes)
    await connection.execute(
        sql.SQL(
            "INSERT INTO {} (document_id, source_id, uri, title, format, content_hash, size_bytes, modified_at, "
            "chunk_count, metadata, created_at, updated_at) "
            "SELECT d.*, %(now)s, %(now)s FROM unnest(%(document_id)s::uuid[], %(source_id)s::uuid[], %(uri)s::text[], "
            "%(title)s::text[], %(format)s::text[], %(content_hash)s::bytea[], %(size_bytes)s::bigint[], "
            "%(modified_at)s::timestamptz[], %(chunk_count)s::int[], %(metadata)s::jsonb[]) AS d "
            "ON CONFLICT (document_id) DO UPDATE SET title = excluded.title, format = excluded.format, "
            "content_hash = excluded.content_hash, size_bytes = excluded.size_bytes, "
            "modified_at = excluded.modified_at, chunk_count = excluded.chunk_count, metadata = excluded.metadata, "
            "updated_at = excluded.updated_at"
        ).format(collection.names.document),
        {
            "document_id": [row.document_id for row in ordered],
            "source_id": [row.source_id for row in ordered],
            "uri": [row.uri for row in ordered],
            "title": [row.title for row in ordered],
            "format": [row.format for row in ordered],
            "content_hash": [row.content_hash for row in ordered],
            "size_bytes": [row.size_bytes for row in ordered],
            "modified_at": [row.modified_at for row in ordered],
            "chunk_count": [row.chunk_count for row in ordered],
            "metadata": [_core.to_json(row.metadata).decode() for row in ordered],
            "now": now,
        },
    )


async def share_documents(connection: Connection, collection: Collection, documents: Sequence[UUID]) -> None:
    """Lets nobody replace or delete these documents until the transaction ends; locked in key order."""
    await connection.execute(
        sql.SQL("SELECT FROM {} WHERE document_id = ANY(%s) ORDER BY document_id FOR SHARE").format(
            collection.names.document
        ),
        [list(documents)],
    )


async def settle_chunk_settings(
    connection: Connection, collection: Collection, chunk_tokens: int, overlap_tokens: int
) -> tuple[int, int]:
    """How the files of a collection are cut: as stored, else as given, which is stored then.

    Raises:
        CollectionNotFoundError: The collection was dropped.
    """
    names = collection.names
    chosen = "SELECT chunk_tokens, overlap_tokens FROM {} WHERE name = %(name)s AND collection_id = %(id)s"
    values = {
        "name": names.collection,
        "id": collection.collection_id,
        "tokens": chunk_tokens,
        "shared": overlap_tokens,
    }
    cursor = await connection.execute(sql.SQL(chosen).format(names.registry), values)
    row = await cursor.fetchone()
    if row is not None and row[0] is None:
        # Of two first runs one waits here, and then finds what the other has stored.
        cursor = await connection.execute(
            sql.SQL(
                "UPDATE {} SET chunk_tokens = coalesce(chunk_tokens, %(tokens)s), "
                "overlap_tokens = coalesce(overlap_tokens, %(shared)s) "
                "WHERE name = %(name)s AND collection_id = %(id)s RETURNING chunk_tokens, overlap_tokens"
            ).format(names.registry),
            values,
        )
        row = await cursor.fetchone()
    if row is None:
        raise CollectionNotFoundError(f"collection {names.collection!r} was dropped in the meantime")
    return row[0], row[1]


async def known_documents(connection: Connection, collection: Collection, source: UUID) -> dict[UUID, bytes]:
    """Content hash of every document that was read from a source."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        sql.SQL("SELECT document_id, content_hash FROM {} WHERE source_id = %s").format(collection.names.document),
        [source],
    )
    return dict(await cursor.fetchall())


async def embedded_hashes(connection: Connection, collection: Collection, keys: Sequence[Key]) -> dict[Key, bytes]:
    """Content hash of those of these chunks that have a vector."""
    if collection.embedding is None or not keys:
        return {}
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.content_hash "
            "FROM unnest(%s::uuid[], %s::text[]) AS k(document_id, chunk_id) "
            "JOIN {} AS c USING (document_id, chunk_id) JOIN {} AS e USING (document_id, chunk_id)"
        ).format(collection.names.chunk, collection.names.embedding(collection.embedding.version)),
        [[key[0] for key in keys], [key[1] for key in keys]],
    )
    return {(row[0], row[1]): row[2] for row in await cursor.fetchall()}


async def is_empty(connection: Connection, collection: Collection) -> bool:
    """Whether the collection holds no chunk."""
    cursor = await connection.execute(sql.SQL("SELECT NOT EXISTS (SELECT 1 FROM {})").format(collection.names.chunk))
    row = await cursor.fetchone()
    return bool(row and row[0])


async def count_unembedded(connection: Connection, collection: Collection) -> int:
    """Number of chunks without a vector."""
    cursor = await connection.execute(_unembedded(collection, sql.SQL("count(*)"), sql.SQL("")))
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def unembedded_chunks(
    connection: Connection, collection: Collection, after: Key | None, limit: int
) -> list[Unembedded]:
    """A page of chunks without a vector, in key order: document_id, chunk_id, content_hash, context, chunk_text."""
    first = (UUID(int=0), "")
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        _unembedded(
            collection,
            sql.SQL("c.document_id, c.chunk_id, c.content_hash, c.context, c.chunk_text"),
            sql.SQL("AND (c.document_id, c.chunk_id) > (%s, %s) ORDER BY c.document_id, c.chunk_id LIMIT %s"),
        ),
        [*(after or first), limit],
    )
    return await cursor.fetchall()


def _unembedded(collection: Collection, columns: sql.SQL, rest: sql.SQL) -> sql.Composed:
    embedding = collection.embedding
    if embedding is None:
        return sql.SQL("SELECT {} FROM {} AS c WHERE TRUE {}").format(columns, collection.names.chunk, rest)
    return sql.SQL(
        "SELECT {} FROM {} AS c WHERE NOT EXISTS (SELECT 1 FROM {} AS e "
        "WHERE e.document_id = c.document_id AND e.chunk_id = c.chunk_id) {}"
    ).format(columns, collection.names.chunk, collection.names.embedding(embedding.version), rest)


async def log_run(connection: Connection, collection: Collection, entry: dict[str, Any]) -> None:
    """Writes or completes one entry of the ingestion log; `entry` has a value for every column."""
    names = list(entry)
    values = entry | {"problems": _core.to_json(entry["problems"]).decode()}
    await connection.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (run_id) DO UPDATE SET {}").format(
            collection.names.ingestion_log,
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join(map(sql.Placeholder, names)),
            sql.SQL(", ").join(
                sql.SQL("{} = excluded.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in names[1:]
            ),
        ),
        values,
    )


async def last_run(connection: Connection, collection: Collection) -> dict[str, Any] | None:
    """The newest entry of the ingestion log."""
    cursor = cursor_with_times(connection)
    await cursor.execute(
        sql.SQL("SELECT * FROM {} ORDER BY started_at DESC LIMIT 1").format(collection.names.ingestion_log)
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return {column.name: value for column, value in zip(cursor.description or (), row, strict=True)}
