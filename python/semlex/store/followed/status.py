"""How far the followed tables of a collection are in step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.followed.definitions import may_read, read_tables
from semlex.store.followed.queue import ChangeQueue
from semlex.types.followed import FollowedStatus

if TYPE_CHECKING:
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


async def read_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus]:
    """Every followed table, by name, with its rows, what waits and what went wrong."""
    return [await _status(connection, collection, stored) for stored in await read_tables(connection, collection.names)]


async def readable_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus] | None:
    """As `read_status`; None if the role may not read definitions or the queue, which readers of hits need not."""
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
