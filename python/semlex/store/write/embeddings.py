"""Vectors of chunks that were written without one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError
from semlex.store.schema.embedding_versions import dropped, stored_versions
from semlex.store.schema.presence import hold_collection
from semlex.store.write.copy import copy_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import CollectionInfo


def vector_type_of(collection: CollectionInfo) -> sql.Composed:
    """The type of the column of vectors."""
    embedding = collection.embedding
    if embedding is None:
        raise ConfigurationError("the collection holds no vectors")
    return sql.SQL("{}.{}({})").format(
        collection.server.extension, sql.Identifier(embedding.storage), sql.Literal(embedding.dimensions)
    )


async def write_embeddings(
    connection: Connection,
    collection: CollectionInfo,
    keys: Sequence[Key],
    content_hashes: Sequence[bytes],
    embeddings: NDArray[np.float32],
) -> int:
    """Adds vectors to chunks that have none.

    Args:
        connection: In a transaction.
        keys: (document_id, chunk_id) of each vector.
        embeddings: float32, shape (n, d).
    """
    if collection.embedding is None or not keys:
        return 0
    await hold_collection(connection, collection)
    if collection.embedding.version not in await stored_versions(connection, collection):
        raise dropped(collection)
    name = f"semlex_{secrets.token_hex(8)}"
    await connection.execute(
        sql.SQL(
            'CREATE TEMPORARY TABLE {} (document_id uuid, chunk_id text COLLATE "C", content_hash bytea, embedding {}) '
            "ON COMMIT DROP"
        ).format(sql.Identifier(name), vector_type_of(collection))
    )
    staging = sql.Identifier("pg_temp", name)
    ids = [chunk_id for _, chunk_id in keys]
    columns: list[tuple[str, str, object]] = [
        ("document_id", "uuid", [document_id for document_id, _ in keys]),
        ("chunk_id", "text", ids),
        ("content_hash", "bytea", list(content_hashes)),
        ("embedding", collection.embedding.storage, embeddings),
    ]
    await copy_rows(
        connection, sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(staging), [_core.CopyEncoder(columns, ids)]
    )
    cursor = await connection.execute(
        sql.SQL(
            # The lock makes a writer who is changing a text either wait, or be seen here.
            "INSERT INTO {} SELECT * FROM (SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN {} AS c USING (document_id, chunk_id) WHERE c.content_hash = s.content_hash "
            "ORDER BY s.document_id, s.chunk_id FOR SHARE OF c) AS unchanged "
            "ON CONFLICT (document_id, chunk_id) DO NOTHING"
        ).format(collection.names.embedding(collection.embedding.version), staging, collection.names.chunk)
    )
    return cursor.rowcount
