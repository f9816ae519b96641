"""Where the file of a document is, and by what it is known: states of files, and documents whose file has moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from psycopg import sql

from semlex.store.query.filters import Filter
from semlex.store.schema.embedding_versions import stored_versions
from semlex.store.schema.presence import hold_collection
from semlex.store.write.deletes import Selection, delete_within
from semlex.store.write.keyword_index import begin_write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


@dataclass(frozen=True, slots=True)
class FileState:
    """By what the file of a document is known from now on.

    Attributes:
        document_id: Key of the document.
        content_hash: What it must have, so that nothing is said of a text that another run has stored meanwhile.
        state: Of the file.
    """

    document_id: UUID
    content_hash: bytes
    state: str


@dataclass(frozen=True, slots=True)
class DocumentMove:
    """A document whose file has another name now.

    Attributes:
        old: Its key.
        new: The key that follows from the new name.
        old_uri: The path below the root of its source, as it was.
        uri: The new path below the root of its source.
        content_hash: What it must have.
        state: Of the file, or None.
    """

    old: UUID
    new: UUID
    old_uri: str
    uri: str
    content_hash: bytes
    state: str | None


async def store_file_states(connection: Connection, collection: CollectionInfo, states: Sequence[FileState]) -> None:
    """Stores by what files are known that did not change."""
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
    """Gives documents the names of their files, with the keys that follow from those.

    Chunks, vectors and what the keyword index has of them stay; only keys and places change. Names may be exchanged
    in any way. A document that stands under a new name, and does not move itself, is replaced.

    Args:
        connection: In a transaction.
    """
    async with begin_write(connection, collection) as index:
        keys = sorted({key for move in moves for key in (move.old, move.new)}, key=lambda key: key.bytes)
        cursor = connection.cursor(binary=True)
        await cursor.execute(
            sql.SQL(
                "SELECT document_id, content_hash FROM {} WHERE document_id = ANY(%s) ORDER BY document_id FOR UPDATE"
            ).format(collection.names.document),
            [keys],
        )
        stored = dict(await cursor.fetchall())
        possible = [move for move in moves if stored.get(move.old) == move.content_hash]
        old, new = {move.old for move in possible}, {move.new for move in possible}
        if replaced := sorted((new & stored.keys()) - old, key=lambda key: key.bytes):
            await delete_within(connection, collection, Selection(replaced, Filter(), whole=True), index)
        # Keys are compared row by row: whoever stands where another one is to stand steps aside first.
        aside = {key: uuid4() for key in old & new}
        await _rename(connection, collection, list(aside.items()))
        await _rename(connection, collection, [(aside.get(move.old, move.old), move.new) for move in possible])
        await connection.execute(
            sql.SQL(
                "UPDATE {} AS d SET uri = m.uri, file_state = m.state, updated_at = %s "
                "FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS m(document_id, uri, state) "
                "WHERE d.document_id = m.document_id"
            ).format(collection.names.document),
            [
                now,
                [move.new for move in possible],
                [move.uri for move in possible],
                [move.state for move in possible],
            ],
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
    """Gives documents other keys; ids of chunks begin with the key of their document."""
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
    # What a chunk names as its parent may be a chunk of another document.
    new_id = sql.SQL("CASE WHEN starts_with({0}, k.old_hex) THEN k.new_hex || substr({0}, 33) ELSE {0} END")
    await connection.execute(sql.SQL("UPDATE {} AS t SET document_id = k.new ").format(names.document) + keyed, values)
    for version in await stored_versions(connection, collection):
        await connection.execute(
            sql.SQL("UPDATE {} AS t SET document_id = k.new, chunk_id = {} ").format(
                names.embedding(version), new_id.format(sql.SQL("t.chunk_id"))
            )
            + keyed,
            values,
        )
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
