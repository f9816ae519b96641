"""Rows as what statements select from: a few as arrays (a temporary table for one row bloats the catalogs)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.store.write.chunk_batch import AS_JSON, COLUMNS, KEYWORD_ID
from semlex.store.write.embeddings import vector_type_of

if TYPE_CHECKING:
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names
    from semlex.store.write.chunk_batch import ChunkBatch, Column

# How a value becomes the column's type, by that type, where Postgres casts the element of an array not by itself.
FROM_ARRAY = {
    "text[]": sql.SQL("ARRAY(SELECT jsonb_array_elements_text({}::jsonb))"),
    "jsonb": sql.SQL("{}::jsonb"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, as far as texts of statements depend on it.

    Attributes:
        names: The collection's tables.
        columns: Those of the chunk table that are written.
        version: Number of the vectors that are written, or None.
        vector_type: Type of the column of vectors, as SQL.
    """

    names: Names
    columns: tuple[Column, ...]
    version: int | None
    vector_type: str

    @classmethod
    def of(cls, collection: CollectionInfo, *, numbered: bool) -> Target:
        """The tables of a collection."""
        columns = (*COLUMNS, KEYWORD_ID) if numbered else COLUMNS
        if collection.embedding is None:
            return cls(collection.names, columns, None, "text")
        vector_type = vector_type_of(collection).as_bytes().decode()
        return cls(collection.names, columns, collection.embedding.version, vector_type)

    @property
    def vectors(self) -> sql.Identifier | None:
        """Table of the vectors that are written, or None."""
        return None if self.version is None else self.names.embedding(self.version)

    @property
    def column_list(self) -> sql.Composed:
        """The columns' names."""
        return sql.SQL(", ").join(sql.Identifier(column.name) for column in self.columns)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows that a statement selects from.

    Attributes:
        table: A table, or arrays in the place of one.
        parameters: Values bound in it.
        staged: Whether it is a table.
    """

    table: sql.Composed
    parameters: dict[str, Any]
    staged: bool


@lru_cache(maxsize=256)
def arrays_table(target: Target) -> sql.Composed:
    """An array a column, and one of vectors as text."""
    columns = target.columns
    arrays = [sql.SQL("{}::{}[]").format(sql.Placeholder(column.name), sql.SQL(column.array)) for column in columns]
    as_is = sql.SQL("{}")
    values = [
        sql.SQL("{} AS {}").format(
            FROM_ARRAY.get(column.wire, as_is).format(sql.Identifier("a", column.name)), sql.Identifier(column.name)
        )
        for column in columns
    ]
    return sql.SQL(
        "(SELECT {values}, a.embedding::{vector_type} AS embedding FROM unnest({arrays}, %(embedding)s::text[]) "
        "AS a({names}, embedding))"
    ).format(
        values=sql.SQL(", ").join(values),
        vector_type=sql.SQL(target.vector_type),
        arrays=sql.SQL(", ").join(arrays),
        names=sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
    )


def array_values(collection: CollectionInfo, target: Target, rows: ChunkBatch) -> dict[str, Any]:
    """The values for `arrays_table`."""
    values: dict[str, Any] = {column.name: rows.values(column.name) for column in target.columns}
    values["document_id"] = [UUID(bytes=document_id) for document_id in rows.document_id]
    for column in target.columns:
        if column.wire in AS_JSON:
            values[column.name] = [_core.to_json(value).decode() for value in rows.values(column.name)]
        elif column.wire == "timestamptz":  # as text the server takes no offset of 16 hours or more
            values[column.name] = [moment.astimezone(UTC) for moment in rows.values(column.name)]
    embedding = collection.embedding
    values["embedding"] = [None] * len(rows)
    if embedding is not None and rows.embeddings is not None:
        number = np.float16 if embedding.storage == "halfvec" else np.float32
        values["embedding"] = [None if row is None else str(row.astype(number).tolist()) for row in rows.embeddings]
    return values


def arrays_source(collection: CollectionInfo, target: Target, rows: ChunkBatch) -> Source:
    """A few rows."""
    return Source(arrays_table(target), array_values(collection, target, rows), staged=False)
