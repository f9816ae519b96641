"""Which followed tables of a schema a worker has something to do for: one statement for all collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection


class TableState(NamedTuple):
    """What is due of a followed table."""

    collection: str
    name: str
    looks: bool  # its table is to be looked at, and no worker does that
    has_changes: bool  # entries of the queue are due
    by_trigger: bool
    seconds: float  # until it is looked at; negative: since


async def read_states(connection: Connection, schema: str) -> list[TableState]:
    """Every followed table of a schema, by collection and name."""
    cursor = await connection.execute(
        sql.SQL(
            "SELECT f.collection, f.name, f.look_at <= statement_timestamp() "
            "AND coalesce(f.leased_until <= statement_timestamp(), true), "
            "EXISTS (SELECT FROM {} AS r WHERE r.source_id = f.source_id AND r.due_at <= statement_timestamp()), "
            "f.definition ->> 'changes' = 'trigger', "
            "extract(epoch FROM greatest(f.look_at, f.leased_until) - statement_timestamp())::float8 "
            "FROM {} AS f ORDER BY f.collection, f.name"
        ).format(sql.Identifier(schema, "row_change"), sql.Identifier(schema, "followed_table"))
    )
    return [TableState(*row) for row in await cursor.fetchall()]


async def remove_strays(connection: Connection, schema: str) -> None:
    """Remove entries of the queue whose table is not followed any more: of transactions that ended later.

    Args:
        connection: In a write transaction.
    """
    await connection.execute(
        sql.SQL("DELETE FROM {} AS r WHERE NOT EXISTS (SELECT FROM {} AS f WHERE f.source_id = r.source_id)").format(
            sql.Identifier(schema, "row_change"), sql.Identifier(schema, "followed_table")
        )
    )
