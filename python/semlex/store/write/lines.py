"""Lines of a language model written into chunks that are stored; `semlex.store.query.lines` says where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex.store.query.leg import key_arrays
from semlex.store.schema.embedding_versions import stored_versions
from semlex.store.write.documents import share_documents
from semlex.store.write.embedding_version import note_lacking
from semlex.store.write.embeddings import write_embeddings
from semlex.store.write.keyword_index import begin_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.query.lines import ChunkWithoutLine
    from semlex.store.schema.collection import CollectionInfo


async def write_lines(
    connection: Connection,
    collection: CollectionInfo,
    chunks: Sequence[ChunkWithoutLine],
    *,
    contexts: Sequence[str],
    content_hashes: Sequence[bytes],
    embeddings: NDArray[np.float32] | None,
) -> int:
    """Gives chunks their line, with the vectors and postings that follow from it.

    Vectors of other models are removed, as those of any text that changes.

    Args:
        connection: In a transaction.
        embeddings: float32, shape (n, d); None where the collection holds no vectors.
    """
    async with begin_write(connection, collection, len(chunks)) as index:
        await share_documents(connection, collection, sorted({chunk.document_id for chunk in chunks}))
        places = {(chunk.document_id, chunk.chunk_id): place for place, chunk in enumerate(chunks)}
        cursor = connection.cursor(binary=True)
        await cursor.execute(
            sql.SQL(
                "SELECT c.document_id, c.chunk_id, c.language, c.keyword_id FROM unnest(%(document_ids)s::uuid[], "
                "%(chunk_ids)s::text[], %(hashes)s::bytea[]) AS k(document_id, chunk_id, hash) "
                "JOIN {} AS c USING (document_id, chunk_id) WHERE c.content_hash = k.hash "
                "ORDER BY c.document_id, c.chunk_id FOR UPDATE OF c"
            ).format(collection.names.chunk),
            {**key_arrays(list(places)), "hashes": [chunk.content_hash for chunk in chunks]},
        )
        found = await cursor.fetchall()
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
