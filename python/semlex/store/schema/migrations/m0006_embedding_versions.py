"""Several sets of vectors beside each other: one answers, one may be in the making, others may stand by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names


def registry(schema: str) -> Sequence[sql.Composed]:
    """What is known of a version beside its model, and the last number that a collection has given to one.

    `token_counter` is what counts the tokens of chunks while the version answers; NULL: as the collection says.
    `run_number` and `run_until` are of the run that fills it, `served_until` is NULL for one that answers or never did,
    and `last_used_at` is of searches by processes that hold its model while another version answers.
    """
    return (
        sql.SQL("""
            ALTER TABLE {}
                ADD COLUMN building bool NOT NULL DEFAULT false,
                ADD COLUMN token_counter text,
                ADD COLUMN run_number bigint NOT NULL DEFAULT 0,
                ADD COLUMN run_until timestamptz,
                ADD COLUMN served_until timestamptz,
                ADD COLUMN last_used_at timestamptz""").format(sql.Identifier(schema, "embedding_version")),
        sql.SQL("ALTER TABLE {} ADD COLUMN last_embedding_version int NOT NULL DEFAULT 0").format(
            sql.Identifier(schema, "collection")
        ),
    )


def collection(names: Names) -> Sequence[sql.Composed]:
    """No statement: the number alone keeps out older programs, which would change texts beside a version's vectors."""
    del names
    return ()
