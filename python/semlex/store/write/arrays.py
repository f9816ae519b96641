"""A few rows as arrays: a temporary table for one row bloats the catalogs."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pgvector import HalfVector, Vector
from psycopg import sql

from semlex import _core
from semlex.store.write.chunk_batch import AS_JSON
from semlex.store.write.embeddings import vector_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.chunk_batch import ChunkBatch, Column

# How a value becomes the column's type, by that type, where Postgres casts the element of an array not by itself.
FROM_ARRAY = {
    "text[]": sql.SQL("ARRAY(SELECT jsonb_array_elements_text({}::jsonb))"),
    "jsonb": sql.SQL("{}::jsonb"),
}


def arrays_source(
    collection: CollectionInfo, columns: Sequence[Column], rows: ChunkBatch
) -> tuple[sql.Composed, dict[str, Any]]:
    """Rows as what a statement selects from, with its parameters: an array a column.

    Args:
        collection: With an embedding version if the rows have vectors.
        columns: Those that are written.
        rows: The rows.
    """
    parameters: dict[str, Any] = {column.name: rows.values(column.name) for column in columns}
    parameters["document_id"] = [UUID(bytes=document_id) for document_id in rows.document_id]
    for column in columns:
        if column.wire in AS_JSON:
            parameters[column.name] = [_core.to_json(value).decode() for value in rows.values(column.name)]
        elif column.wire == "timestamptz":  # as text the server takes no offset of 16 hours or more
            parameters[column.name] = [moment.astimezone(UTC) for moment in rows.values(column.name)]
    embedding = collection.embedding
    vector_type = sql.SQL("text") if embedding is None else vector_type_of(collection)
    parameters["embedding"] = [None] * len(rows)
    if embedding is not None and rows.embeddings is not None:
        as_text = HalfVector if embedding.storage == "halfvec" else Vector
        parameters["embedding"] = [None if row is None else as_text(row).to_text() for row in rows.embeddings]
    arrays = [sql.SQL("{}::{}[]").format(sql.Placeholder(column.name), sql.SQL(column.array)) for column in columns]
    as_is = sql.SQL("{}")
    values = [
        sql.SQL("{} AS {}").format(
            FROM_ARRAY.get(column.wire, as_is).format(sql.Identifier("a", column.name)), sql.Identifier(column.name)
        )
        for column in columns
    ]
    source = sql.SQL(
        "(SELECT {values}, a.embedding::{vector_type} AS embedding FROM unnest({arrays}, %(embedding)s::text[]) "
        "AS a({names}, embedding))"
    ).format(
        values=sql.SQL(", ").join(values),
        vector_type=vector_type,
        arrays=sql.SQL(", ").join(arrays),
        names=sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
    )
    return source, parameters
