"""The statements that put rows into the tables of chunks and vectors, and the rows that they select from.

A few rows travel as arrays: a temporary table for one row bloats the catalogs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.store.embedding_versions import vector_type_of
from semlex.store.write.chunk_batch import AS_JSON, COLUMNS, KEYWORD_ID

if TYPE_CHECKING:
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names
    from semlex.store.write.chunk_batch import ChunkBatch, Column


# Casts by the column's type, for types to which Postgres does not cast elements of an array automatically.
FROM_ARRAY = {
    "text[]": sql.SQL("ARRAY(SELECT jsonb_array_elements_text({}::jsonb))"),
    "jsonb": sql.SQL("{}::jsonb"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, as far as texts of statements depend on it."""

    names: Names
    columns: tuple[Column, ...]  # of the chunk table
    version: int | None  # number of the vectors that are written
    vector_type: str  # SQL

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
    """Rows that a statement selects from."""

    table: sql.Composed  # a table, or arrays in its place
    parameters: dict[str, Any]  # bound in it
    staged: bool  # whether it is a table


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


_REPLACED = sql.SQL("{name} = excluded.{name}")
_KEPT_PLACE = sql.SQL(
    "{name} = CASE WHEN c.char_start IS NOT NULL AND excluded.char_start IS NULL THEN c.{name} ELSE excluded.{name} END"
)


def insertion(target: Target, table: sql.Composed) -> sql.Composed:
    """Insert rows in the order of their keys; what happens with those that are there comes behind."""
    return sql.SQL(
        "INSERT INTO {} AS c ({}) SELECT {} FROM {} AS s ORDER BY s.document_id, s.chunk_id "
        "ON CONFLICT (document_id, chunk_id) DO "
    ).format(target.names.chunk, target.column_list, target.column_list, table)


def merging(target: Target, source: Source, *, replaces: bool) -> sql.Composed | bytes:
    """Insert rows with their vectors, or replaces those that are there."""
    # Of arrays it is always the same text, and composing it takes longer than sending it.
    return _merging(target, source.table, replaces=replaces) if source.staged else _merging_arrays(target, replaces)


@lru_cache(maxsize=256)
def _merging_arrays(target: Target, replaces: bool) -> bytes:
    return _merging(target, arrays_table(target), replaces=replaces).as_bytes()


def _merging(target: Target, table: sql.Composed, *, replaces: bool) -> sql.Composed:
    action: sql.Composable = sql.SQL("NOTHING")
    if replaces:
        assignments = [
            (_KEPT_PLACE if column.is_place else _REPLACED).format(name=sql.Identifier(column.name))
            for column in COLUMNS
            if column.is_updated
        ]
        # A text that did not change keeps its id, and with it what the keyword index has of it.
        new_id = sql.SQL(
            "previous_id = c.keyword_id, keyword_id = CASE WHEN c.content_hash = excluded.content_hash "
            "AND c.language IS NOT DISTINCT FROM excluded.language THEN c.keyword_id ELSE excluded.keyword_id END"
        )
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join([*assignments, new_id]))
    returned = sql.SQL("document_id, chunk_id, keyword_id, previous_id")
    merged = sql.SQL("WITH merged AS ({}{} RETURNING {})").format(insertion(target, table), action, returned)
    if target.vectors is not None:
        merged += sql.SQL(
            ", embedded AS (INSERT INTO {} SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN merged USING (document_id, chunk_id) WHERE s.embedding IS NOT NULL "
            "ORDER BY s.document_id, s.chunk_id ON CONFLICT (document_id, chunk_id) "
            "DO UPDATE SET embedding = excluded.embedding)"
        ).format(target.vectors, table)
    return merged + sql.SQL(
        " SELECT count(*), array_send(array_agg(keyword_id)), "
        "array_send(array_agg(previous_id) FILTER (WHERE previous_id <> keyword_id)) FROM merged"
    )


@lru_cache(maxsize=256)
def inserting_new(target: Target) -> bytes:
    """Insert a few rows with their vectors where none of them is there, and the collection is as it was."""
    names = target.names
    vectors: sql.Composable = sql.SQL("")
    if target.vectors is not None:
        vectors = sql.SQL(
            ", embedded AS (INSERT INTO {} SELECT s.document_id, s.chunk_id, s.embedding FROM rows AS s "
            "JOIN inserted USING (document_id, chunk_id) WHERE s.embedding IS NOT NULL)"
        ).format(target.vectors)
    return (
        sql.SQL(
            "WITH rows AS MATERIALIZED (SELECT * FROM {table} AS s), inserted AS (INSERT INTO {chunk} ({columns}) "
            "SELECT {columns} FROM rows AS s WHERE ({state}) = %(expected)s "
            "AND NOT EXISTS (SELECT FROM rows JOIN {chunk} AS c USING (document_id, chunk_id)) "
            "ORDER BY s.document_id, s.chunk_id RETURNING document_id, chunk_id){vectors} "
            "SELECT count(*) FROM inserted"
        )
        .format(
            table=arrays_table(target),
            chunk=names.chunk,
            columns=target.column_list,
            state=collection_state(names),
            vectors=vectors,
        )
        .as_bytes()
    )


def collection_state(names: Names, *, is_held: bool = False) -> sql.Composed:
    """A text that changes with anything that a writer relies on: generations, sets of vectors, the collection.

    Args:
        is_held: Whether the row is locked, and the number of the serving set of vectors read as well.
    """
    return sql.SQL(
        "SELECT md5(r::text){} FROM {} AS r WHERE r.name = %(name)s AND r.collection_id = %(collection_id)s{}"
    ).format(
        sql.SQL(", r.embedding_version" if is_held else ""),
        names.registry,
        sql.SQL(" FOR SHARE OF r" if is_held else ""),
    )
