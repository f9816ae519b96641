"""The statements that put rows into the tables of chunks and vectors: into what is there, or new ones only."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.write.arrays import arrays_table
from semlex.store.write.chunk_batch import COLUMNS

if TYPE_CHECKING:
    from semlex.store.schema.names import Names
    from semlex.store.write.arrays import Source, Target

_REPLACED = sql.SQL("{name} = excluded.{name}")
_KEPT_PLACE = sql.SQL(
    "{name} = CASE WHEN c.char_start IS NOT NULL AND excluded.char_start IS NULL THEN c.{name} ELSE excluded.{name} END"
)


def insertion(target: Target, table: sql.Composed) -> sql.Composed:
    """Inserts rows in the order of their keys; what happens with those that are there comes behind."""
    return sql.SQL(
        "INSERT INTO {} AS c ({}) SELECT {} FROM {} AS s ORDER BY s.document_id, s.chunk_id "
        "ON CONFLICT (document_id, chunk_id) DO "
    ).format(target.names.chunk, target.column_list, target.column_list, table)


def merging(target: Target, source: Source, *, replaces: bool) -> sql.Composed | bytes:
    """Inserts rows with their vectors, or replaces those that are there."""
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
    """Inserts a few rows with their vectors where none of them is there, and the collection is as it was."""
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
    """A text that changes when anything does that a writer goes by: generations, sets of vectors, the collection.

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
