"""Report how far the followed tables of a collection are in step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from semlex.store.followed.definitions import may_read, read_tables
from semlex.store.followed.queue import ChangeQueue
from semlex.types.followed import FollowedStatus

if TYPE_CHECKING:
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


async def read_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus]:
    """Return every followed table, by name, with its number of rows, waiting changes and problems."""
    return [await _status(connection, collection, stored) for stored in await read_tables(connection, collection.names)]


async def readable_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus] | None:
    """Return the answer of `read_status`; None if the role may not read definitions or the queue."""
    names = collection.names
    if await may_read(connection, names.followed_table, names.row_change):
        return await read_status(connection, collection)
    return None


async def _status(connection: Connection, collection: CollectionInfo, stored: StoredTable) -> FollowedStatus:
    counted = sql.SQL("SELECT count(*) FROM {} WHERE source_id = %s").format(collection.names.document)
    [(rows,)] = await (await connection.execute(counted, [stored.source_id])).fetchall()
    queue = ChangeQueue(collection.names, stored.source_id)
    counts = await queue.count(connection)
    return FollowedStatus(
        table=stored.table,
        rows=rows,
        waiting=counts.waiting,
        failed=counts.problems,
        problems=await queue.problems(connection),
        last_run=stored.last_run,
        synced_at=stored.synced_at,
        error=stored.error_message,
    )


class TableState(NamedTuple):
    """The work that is due for a followed table."""

    collection: str
    name: str
    looks: bool  # its table is to be looked at, and no worker does that
    has_changes: bool  # entries of the queue are due
    by_trigger: bool
    seconds: float  # until it is looked at; negative: since


async def read_states(connection: Connection, schema: str) -> list[TableState]:
    """Return every followed table of a schema, by collection and name, in one statement."""
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
    """Remove entries that transactions have queued for a table after it ceased to be followed."""
    await connection.execute(
        sql.SQL("DELETE FROM {} AS r WHERE NOT EXISTS (SELECT FROM {} AS f WHERE f.source_id = r.source_id)").format(
            sql.Identifier(schema, "row_change"), sql.Identifier(schema, "followed_table")
        )
    )
