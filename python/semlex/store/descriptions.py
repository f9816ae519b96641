"""Read and write chunk descriptions, which a language model wrote, and find chunks that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from psycopg import sql

from semlex.store.embedding_versions import note_lacking, stored_versions, write_embeddings
from semlex.store.postgres.rows import fetch_rows, fetch_value
from semlex.store.query.leg import Key, key_arrays
from semlex.store.write.documents import FIRST_KEY, begin_write, share_documents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


# A description is the last line of its chunk's context, so it is embedded and found by words, but never part of the
# text. Whether a chunk has one is shown by its content hash: after the hash of context and text it holds a mark of the
# model and its prompt. So no table or column is needed, a dump includes the descriptions, and a killed run leaves
# nothing behind, because chunks without a description are found by looking at the chunks themselves.

# Bytes of the hash of context and text, before the mark.
TEXT_HASH_BYTES = 16


class ChunkWithoutLine(NamedTuple):
    """A chunk whose context has no description, or has one by another model."""

    document_id: UUID
    chunk_id: str
    content_hash: bytes
    context: str
    text: str

    @property
    def plain_context(self) -> str:
        """The context without a description."""
        return without_line(self.context, self.content_hash)


def has_line(content_hash: bytes) -> bool:
    """Return whether the chunk with this hash has a description."""
    return len(content_hash) > TEXT_HASH_BYTES


def without_line(context: str, content_hash: bytes) -> str:
    """Return a chunk's context (titles and headings) without the description that may be its last line."""
    return context.rpartition("\n")[0] if has_line(content_hash) else context


def with_line(context: str, line: str) -> str:
    """Return a context with a description, which must be one line and not empty."""
    return f"{context}\n{line}" if context else line


class LineSelection(NamedTuple):
    """The chunks to check for a missing description."""

    # Of the model and prompt that will write; a description with another mark counts as missing.
    mark: bytes
    documents: Sequence[UUID] | None = None  # keys; None selects all
    source: UUID | None = None  # key; None selects all sources and added documents

    def condition(self, collection: CollectionInfo) -> sql.Composed:
        """Return the SQL condition that selects the chunks (table alias ``c``); bind `values` with it."""
        parts: list[sql.Composable] = [sql.SQL("substring(c.content_hash FROM %(behind)s) <> %(mark)s")]
        if self.documents is not None:
            parts.append(sql.SQL("c.document_id = ANY(%(documents)s)"))
        if self.source is not None:
            parts.append(
                sql.SQL("c.document_id IN (SELECT d.document_id FROM {} AS d WHERE d.source_id = %(source)s)").format(
                    collection.names.document
                )
            )
        return sql.SQL(" AND ").join(parts)

    @property
    def values(self) -> dict[str, object]:
        """The values that the condition binds."""
        documents = None if self.documents is None else list(self.documents)
        return {"behind": TEXT_HASH_BYTES + 1, "mark": self.mark, "documents": documents, "source": self.source}


async def count_without_line(connection: Connection, collection: CollectionInfo, selection: LineSelection) -> int:
    """Count chunks without a description."""
    statement = sql.SQL("SELECT count(*) FROM {} AS c WHERE {}").format(
        collection.names.chunk, selection.condition(collection)
    )
    return int(await fetch_value(connection, statement, selection.values))


async def chunks_without_line(
    connection: Connection, collection: CollectionInfo, selection: LineSelection, after: Key | None, limit: int
) -> list[ChunkWithoutLine]:
    """Return a page of the chunks that lack a description, in key order."""
    statement = sql.SQL(
        "SELECT c.document_id, c.chunk_id, c.content_hash, c.context, c.chunk_text FROM {} AS c WHERE {} "
        "AND (c.document_id, c.chunk_id) > (%(document)s, %(chunk)s) ORDER BY c.document_id, c.chunk_id LIMIT %(most)s"
    ).format(collection.names.chunk, selection.condition(collection))
    document, chunk = after or FIRST_KEY
    values = selection.values | {"document": document, "chunk": chunk, "most": limit}
    return [ChunkWithoutLine(*row) for row in await fetch_rows(connection, statement, values)]


async def stored_lines(
    connection: Connection, collection: CollectionInfo, keys: Sequence[Key]
) -> dict[Key, tuple[str, bytes]]:
    """Return the context and content hash of each of these chunks that has a description."""
    statement = sql.SQL(
        "SELECT c.document_id, c.chunk_id, c.context, c.content_hash "
        "FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) AS k(document_id, chunk_id) "
        "JOIN {} AS c USING (document_id, chunk_id) WHERE octet_length(c.content_hash) > %(hash_bytes)s"
    ).format(collection.names.chunk)
    found = await fetch_rows(connection, statement, {**key_arrays(keys), "hash_bytes": TEXT_HASH_BYTES})
    return {(row[0], row[1]): (row[2], row[3]) for row in found}


async def write_lines(
    connection: Connection,
    collection: CollectionInfo,
    chunks: Sequence[ChunkWithoutLine],
    *,
    contexts: Sequence[str],
    content_hashes: Sequence[bytes],
    embeddings: NDArray[np.float32] | None,
) -> int:
    """Write descriptions into chunks, with new vectors and postings; remove the chunks' vectors of other models."""
    # `embeddings` has the shape (n, d); it is None if the collection holds no vectors.
    async with begin_write(connection, collection, len(chunks)) as index:
        await share_documents(connection, collection, sorted({chunk.document_id for chunk in chunks}))
        places = {(chunk.document_id, chunk.chunk_id): place for place, chunk in enumerate(chunks)}
        found = await fetch_rows(
            connection,
            sql.SQL(
                "SELECT c.document_id, c.chunk_id, c.language, c.keyword_id FROM unnest(%(document_ids)s::uuid[], "
                "%(chunk_ids)s::text[], %(hashes)s::bytea[]) AS k(document_id, chunk_id, hash) "
                "JOIN {} AS c USING (document_id, chunk_id) WHERE c.content_hash = k.hash "
                "ORDER BY c.document_id, c.chunk_id FOR UPDATE OF c"
            ).format(collection.names.chunk),
            {**key_arrays(list(places)), "hashes": [chunk.content_hash for chunk in chunks]},
        )
        keys = [(row[0], row[1]) for row in found]
        kept = [places[key] for key in keys]
        if not kept:
            return 0
        own = [contexts[place] for place in kept]
        ids = None
        if index is not None:
            texts = [chunks[place].text for place in kept]
            ids = index.assign_ids([row[2] for row in found], own, texts).tolist()
        hashes = [content_hashes[place] for place in kept]
        await connection.execute(
            sql.SQL(
                "UPDATE {} AS c SET context = k.context, content_hash = k.hash, "
                "keyword_id = coalesce(k.id, c.keyword_id) FROM unnest(%(document_ids)s::uuid[], "
                "%(chunk_ids)s::text[], %(contexts)s::text[], %(hashes)s::bytea[], %(ids)s::int8[]) "
                "AS k(document_id, chunk_id, context, hash, id) "
                "WHERE c.document_id = k.document_id AND c.chunk_id = k.chunk_id"
            ).format(collection.names.chunk),
            {**key_arrays(keys), "contexts": own, "hashes": hashes, "ids": ids or [None] * len(kept)},
        )
        for version in await stored_versions(connection, collection):
            await connection.execute(
                sql.SQL(
                    "DELETE FROM {} AS e USING unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
                    "AS k(document_id, chunk_id) WHERE e.document_id = k.document_id AND e.chunk_id = k.chunk_id"
                ).format(collection.names.embedding(version)),
                key_arrays(keys),
            )
        if embeddings is not None:
            await write_embeddings(connection, collection, keys, hashes, embeddings[kept])
            await note_lacking(connection, collection)
        if index is not None:
            await index.write(connection, None, np.sort(np.array([row[3] for row in found], dtype=np.int64)))
        return len(kept)
