"""Store sources (named folders and followed tables), and rename documents whose files have moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError
from semlex.options.collection import ChunkSettings
from semlex.store.embedding_versions import stored_versions
from semlex.store.postgres.rows import fetch_row, fetch_rows
from semlex.store.query.filters import Filter
from semlex.store.schema.locks import hold_collection
from semlex.store.write.deletes import Selection, delete_within
from semlex.store.write.documents import begin_write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names


@dataclass(frozen=True, slots=True)
class Source:
    """A named folder, or a followed table."""

    source_id: UUID
    name: str  # unique within the collection
    root: str  # absolute, on the machine that read it last; of a table its schema and name
    # What the keys of its documents are made of, so that they stay when the folder moves.
    key: str
    kind: str  # ``folder``, or ``removed``; ``table``, or ``stopped`` if it is not followed any more


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A source as users see it.

    Attributes:
        name: Its name, unique within the collection.
        root: The folder's absolute path; for a followed table, its schema and name.
        documents: Number of its documents.
        chunks: Number of their chunks.
        updated_at: When the folder was last indexed or moved, or when semlex began to follow the table, in UTC.
    """

    name: str
    root: str
    documents: int
    chunks: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """The stored state of a document that was read before."""

    uri: str  # path below the source's root
    chunk_settings: ChunkSettings
    content_hash: bytes  # SHA-256 of the file's bytes
    loader_version: int  # what made text of its bytes
    chunker_version: int  # what cut the text
    format: str  # name of the loader
    size_bytes: int
    # When it was read, if that shows that the file has not changed since.
    file_state: str | None
    # The fields that its rows were read by; see `Reading.fields_for`.
    fields: dict[str, Any]
    encoding: str | None  # the guessed encoding


def is_present(names: Names) -> sql.Composed:
    """Return SQL of whether a source (row ``s``) still exists for users: it is read, or has stored documents."""
    # A removed source keeps its row, so that its documents get the same keys if it comes back.
    return sql.SQL(
        "(s.kind IN ('folder', 'table') OR EXISTS (SELECT FROM {} AS o WHERE o.source_id = s.source_id))"
    ).format(names.document)


# Kinds of sources whose documents are rows: of a followed table, and of one that is not followed any more.
OF_TABLES = ("table", "stopped")


async def read_sources(connection: Connection, collection: CollectionInfo, *, tables: bool = False) -> list[Source]:
    """Return every source of files, ordered by name; with `tables`, also followed tables."""
    statement = sql.SQL(
        "SELECT source_id, name, root, key, kind FROM {} AS s WHERE {} AND (%s OR s.kind <> ALL(%s)) "
        "ORDER BY name, source_id"
    )
    composed = statement.format(collection.names.source, is_present(collection.names))
    return [Source(*row) for row in await fetch_rows(connection, composed, [tables, list(OF_TABLES)])]


async def write_source(
    connection: Connection, collection: CollectionInfo, name: str, root: str, now: datetime
) -> Source | None:
    """Store a source of files if it is not stored yet; return it, or None if it has another folder."""
    # The key of a new source derives from its name, so that two processes that make it at once make the same one.
    await hold_collection(connection, collection)
    table = collection.names.source
    touch = sql.SQL(
        "UPDATE {} AS s SET root = %(root)s, kind = 'folder', updated_at = %(now)s "
        "WHERE name = %(name)s AND (root = %(root)s OR NOT {})"
    ).format(table, is_present(collection.names))
    found = sql.SQL("SELECT source_id, name, root, key, kind FROM {} WHERE name = %(name)s").format(table)
    values: dict[str, Any] = {"name": name, "root": root, "now": now, "id": _source_id(name)}
    if (await connection.execute(touch, values)).rowcount == 0:
        await connection.execute(
            sql.SQL(
                "INSERT INTO {} (source_id, name, root, key, kind, created_at, updated_at) "
                "SELECT %(id)s, %(name)s, %(root)s, %(name)s, 'folder', %(now)s, %(now)s "
                "WHERE NOT EXISTS (SELECT 1 FROM {} WHERE name = %(name)s) ON CONFLICT (source_id) DO NOTHING"
            ).format(table, table),
            values,
        )
    row = await fetch_row(connection, found, values)
    source = None if row is None else Source(*row)
    if source is not None and source.kind in OF_TABLES:
        raise ConfigurationError(
            f"the source {name!r} holds the rows of a table: give the folder another name (source=, --source)"
        )
    return source if source is not None and source.root == root else None


def _source_id(key: str) -> UUID:
    return UUID(bytes=_core.hash_rows("source", [[key]])[0])


async def move_source(connection: Connection, collection: CollectionInfo, name: str, root: str, now: datetime) -> None:
    """Store the new folder of a source; call `hold_collection` first."""
    statement = sql.SQL("UPDATE {} SET root = %s, updated_at = %s WHERE name = %s").format(collection.names.source)
    await connection.execute(statement, [root, now, name])


async def remove_source(connection: Connection, collection: CollectionInfo, name: str, now: datetime) -> None:
    """Mark a source as removed after its documents were deleted; a table that is still followed stays."""
    await hold_collection(connection, collection)
    statement = sql.SQL("UPDATE {} SET kind = 'removed', updated_at = %s WHERE name = %s AND kind <> 'table'")
    await connection.execute(statement.format(collection.names.source), [now, name])


async def list_sources(connection: Connection, collection: CollectionInfo) -> list[SourceInfo]:
    """Return every source with the numbers of its documents and chunks, ordered by name."""
    names = collection.names
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT s.name, s.root, count(d.document_id)::int8, coalesce(sum(c.chunks), 0)::int8, s.updated_at "
            "FROM {} AS s LEFT JOIN {} AS d ON d.source_id = s.source_id "
            "LEFT JOIN (SELECT document_id, count(*) AS chunks FROM {} GROUP BY document_id) AS c "
            "ON c.document_id = d.document_id WHERE {} GROUP BY s.source_id, s.name, s.root, s.updated_at "
            "ORDER BY s.name, s.source_id"
        ).format(names.source, names.document, names.chunk, is_present(names)),
    )
    return [SourceInfo(*row) for row in found]


async def known_documents(
    connection: Connection, collection: CollectionInfo, sources: Sequence[UUID]
) -> dict[UUID, dict[UUID, KnownDocument]]:
    """Return the documents of sources: key of the source -> key of the document -> the document."""
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT source_id, document_id, uri, chunk_tokens, overlap_tokens, min_tokens, content_hash, "
            "loader_version, chunker_version, format, size_bytes, file_state, fields, encoding FROM {} "
            "WHERE source_id = ANY(%s)"
        ).format(collection.names.document),
        [list(sources)],
    )
    known: dict[UUID, dict[UUID, KnownDocument]] = {source: {} for source in sources}
    for source, document, uri, most, overlap, least, *rest in found:
        known[source][document] = KnownDocument(uri, ChunkSettings(most, overlap, least), *rest)
    return known


def unknown_source(name: str, known: Sequence[Source]) -> ConfigurationError:
    """Return the error for a source that does not exist."""
    names = ", ".join(source.name for source in known) or "none"
    return ConfigurationError(f"unknown source {name!r}; known sources: {names}")


@dataclass(frozen=True, slots=True)
class FileState:
    """A document and the new state of its file (such as the time), by which a later run sees whether it changed."""

    document_id: UUID
    # What it must have, so that the state is not stored for a text that another run has stored meanwhile.
    content_hash: bytes
    state: str


@dataclass(frozen=True, slots=True)
class DocumentMove:
    """A document whose file was renamed or moved, with the old and the new key."""

    old: UUID  # its key
    new: UUID  # the key that follows from the new name
    old_uri: str
    uri: str  # the new path below the root of its source
    content_hash: bytes  # what it must have
    state: str | None


async def store_file_states(connection: Connection, collection: CollectionInfo, states: Sequence[FileState]) -> None:
    """Store new states of files whose content has not changed."""
    await hold_collection(connection, collection)
    ordered = sorted(states, key=lambda one: one.document_id.bytes)
    # Rows are locked in key order, as all writers do: the join of an UPDATE has an order of its own.
    await connection.execute(
        sql.SQL(
            "WITH known AS (SELECT * FROM unnest(%s::uuid[], %s::bytea[], %s::text[]) AS k(document_id, hash, state)), "
            "locked AS MATERIALIZED (SELECT document_id, k.state FROM {document} AS d JOIN known AS k "
            "USING (document_id) WHERE d.content_hash = k.hash ORDER BY document_id FOR UPDATE OF d) "
            "UPDATE {document} AS d SET file_state = l.state FROM locked AS l WHERE d.document_id = l.document_id"
        ).format(document=collection.names.document),
        [[one.document_id for one in ordered], [one.content_hash for one in ordered], [one.state for one in ordered]],
    )


async def move_documents(
    connection: Connection, collection: CollectionInfo, moves: Sequence[DocumentMove], now: datetime
) -> set[UUID]:
    """Give documents their files' new paths and keys derived from these; return the old keys of the moved documents."""
    # Chunks, vectors and postings stay; only keys and places change. Names may be exchanged in any way. A document that
    # has a new name already, and does not move itself, is replaced.
    async with begin_write(connection, collection) as index:
        keys = sorted({key for move in moves for key in (move.old, move.new)}, key=lambda key: key.bytes)
        locked = sql.SQL(
            "SELECT document_id, content_hash FROM {} WHERE document_id = ANY(%s) ORDER BY document_id FOR UPDATE"
        )
        stored = dict(await fetch_rows(connection, locked.format(collection.names.document), [keys]))
        possible = [move for move in moves if stored.get(move.old) == move.content_hash]
        old, new = {move.old for move in possible}, {move.new for move in possible}
        if replaced := sorted((new & stored.keys()) - old, key=lambda key: key.bytes):
            await delete_within(connection, collection, Selection(replaced, Filter(), whole=True), index)
        # Keys are checked row by row: a document whose key another one will get takes a temporary key first.
        aside = {key: uuid4() for key in old & new}
        await _rename(connection, collection, list(aside.items()))
        await _rename(connection, collection, [(aside.get(move.old, move.old), move.new) for move in possible])
        await connection.execute(
            sql.SQL(
                "UPDATE {} AS d SET uri = m.uri, file_state = m.state, updated_at = %s "
                "FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS m(document_id, uri, state) "
                "WHERE d.document_id = m.document_id"
            ).format(collection.names.document),
            [now, [move.new for move in possible], [move.uri for move in possible], [move.state for move in possible]],
        )
        await connection.execute(
            sql.SQL(
                "UPDATE {} AS c SET source_document = m.uri FROM unnest(%s::uuid[], %s::text[]) "
                "AS m(document_id, uri) WHERE c.document_id = m.document_id"
            ).format(collection.names.chunk),
            [[move.new for move in possible], [move.uri for move in possible]],
        )
    return old


async def _rename(connection: Connection, collection: CollectionInfo, keys: Sequence[tuple[UUID, UUID]]) -> None:
    """Change the keys of documents, and the ids of their chunks, which begin with the document's key."""
    if not keys:
        return
    names = collection.names
    values = {
        "old": [old for old, _ in keys],
        "new": [new for _, new in keys],
        "old_hex": [old.hex for old, _ in keys],
        "new_hex": [new.hex for _, new in keys],
    }
    keyed = sql.SQL(
        "FROM unnest(%(old)s::uuid[], %(new)s::uuid[], %(old_hex)s::text[], %(new_hex)s::text[]) "
        "AS k(old, new, old_hex, new_hex) WHERE t.document_id = k.old"
    )
    # The parent of a chunk may be a chunk of another document.
    new_id = sql.SQL("CASE WHEN starts_with({0}, k.old_hex) THEN k.new_hex || substr({0}, 33) ELSE {0} END")
    await connection.execute(sql.SQL("UPDATE {} AS t SET document_id = k.new ").format(names.document) + keyed, values)
    await connection.execute(
        sql.SQL(
            "UPDATE {} AS t SET document_id = k.new, chunk_id = {}, parent_chunk_id = {}, "
            "child_ids = ARRAY(SELECT {} FROM unnest(t.child_ids) WITH ORDINALITY AS i(id, n) ORDER BY n) "
        ).format(
            names.chunk,
            new_id.format(sql.SQL("t.chunk_id")),
            new_id.format(sql.SQL("t.parent_chunk_id")),
            new_id.format(sql.SQL("i.id")),
        )
        + keyed,
        values,
    )
    # Vectors that a process is adding to these chunks are there only now: it shares the lock of the chunks.
    for version in await stored_versions(connection, collection):
        await connection.execute(
            sql.SQL("UPDATE {} AS t SET document_id = k.new, chunk_id = {} ").format(
                names.embedding(version), new_id.format(sql.SQL("t.chunk_id"))
            )
            + keyed,
            values,
        )
