"""Named sources, the settings that texts are cut with, ids of parts, and *keyword* instead of *lexical*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names


def registry(schema: str) -> Sequence[sql.Composed]:
    """How the texts of a collection are cut; NULL until its first file is."""
    table = sql.Identifier(schema, "collection")
    return (
        sql.SQL("ALTER TABLE {} RENAME COLUMN lexical_engine TO keyword_engine").format(table),
        sql.SQL("ALTER TABLE {} RENAME COLUMN lexical_generation TO keyword_generation").format(table),
        sql.SQL("ALTER TABLE {} ADD COLUMN chunk_tokens int, ADD COLUMN overlap_tokens int").format(table),
    )


def collection(names: Names) -> Sequence[sql.Composed]:
    """A source gets a name; its documents' keys are made of its `key`, so that they stay when its folder moves.

    A source that was made before keeps the folder of that time as its key, and is named after it. The versions and
    settings of a document are NULL where `content_hash` is the first version's, which has them inside.
    """
    return (*_sources(names), *_documents(names), *_chunks(names))


def _sources(names: Names) -> Sequence[sql.Composed]:
    return (
        sql.SQL("ALTER TABLE {} RENAME COLUMN uri TO root").format(names.source),
        sql.SQL("ALTER TABLE {} ADD COLUMN name text, ADD COLUMN key text").format(names.source),
        # The second of two folders of one name gets a number; where a third has that as its name, a part of its key.
        sql.SQL("""
            WITH named AS (
                SELECT source_id, coalesce(substring(rtrim(root, '/') FROM '[^/]+$'), 'root') AS folder FROM {source}
            ), numbered AS (
                SELECT source_id, folder, row_number() OVER (PARTITION BY folder ORDER BY source_id) AS number
                FROM named
            )
            UPDATE {source} AS s SET key = s.root, name = CASE
                WHEN n.number = 1 THEN n.folder
                WHEN EXISTS (SELECT 1 FROM named AS o WHERE o.folder = n.folder || '-' || n.number)
                    THEN n.folder || '-' || substr(s.source_id::text, 1, 8)
                ELSE n.folder || '-' || n.number END
            FROM numbered AS n WHERE n.source_id = s.source_id""").format(source=names.source),
        sql.SQL("ALTER TABLE {} ALTER COLUMN name SET NOT NULL, ALTER COLUMN key SET NOT NULL").format(names.source),
    )


def _documents(names: Names) -> Sequence[sql.Composed]:
    return (
        sql.SQL(
            "ALTER TABLE {} ADD COLUMN loader_version int, ADD COLUMN chunker_version int, "
            "ADD COLUMN chunk_tokens int, ADD COLUMN overlap_tokens int"
        ).format(names.document),
    )


def _chunks(names: Names) -> Sequence[sql.Composed]:
    def rename(old: str, new: str) -> sql.Composed:
        index = sql.Identifier(names.schema, f"{names.collection}_{old}")
        return sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}").format(index, names.index(new))

    # The server has named the sequence, and has shortened that where the collection's name is long.
    rename_sequence = sql.SQL(
        "BEGIN EXECUTE pg_catalog.format('ALTER SEQUENCE %s RENAME TO %I', "
        "pg_catalog.pg_get_serial_sequence({}, 'keyword_id'), {}); END"
    ).format(names.chunk.as_string(), f"{names.collection}_keyword_seq")
    return (
        sql.SQL("ALTER TABLE {} RENAME COLUMN lexical_id TO keyword_id").format(names.chunk),
        rename("lexical_id", "keyword_id"),
        rename("lexical_words", "keyword_words"),  # pg_search
        rename("lexical_text", "keyword_text"),  # pg_textsearch
        sql.SQL("DO {}").format(rename_sequence.as_string()),
        sql.SQL(
            "ALTER TABLE {} ADD COLUMN child_ids text[] NOT NULL DEFAULT '{{}}', "
            "ADD COLUMN timestamp_start text, ADD COLUMN timestamp_end text"
        ).format(names.chunk),
    )
