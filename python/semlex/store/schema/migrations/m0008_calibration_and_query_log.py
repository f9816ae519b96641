"""What a similarity means, learned from judgements, and the questions that were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names


def registry(schema: str) -> Sequence[sql.Composed]:
    """The curve from similarities to probabilities belongs to its vectors: that of another model is another one."""
    return (sql.SQL("ALTER TABLE {} ADD COLUMN calibration jsonb").format(sql.Identifier(schema, "embedding_version")),)


def collection(names: Names) -> Sequence[sql.Composed]:
    """A table for each collection, so that whoever may read one collection sees no question asked of another.

    `query` is NULL where the texts of questions are not kept; `query_hash` is there always.
    """
    return (
        sql.SQL("""
            CREATE TABLE {} (
                query_id uuid PRIMARY KEY,
                asked_at timestamptz NOT NULL,
                query_hash bytea NOT NULL,
                query text,
                mode text NOT NULL,
                filtered bool NOT NULL,
                hits int NOT NULL
            )""").format(names.query_log),
        sql.SQL("CREATE INDEX ON {} (asked_at)").format(names.query_log),
    )
