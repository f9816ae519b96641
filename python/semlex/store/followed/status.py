"""How far the followed tables of a collection are in step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.followed.definitions import read_tables
from semlex.store.followed.queue import ChangeQueue
from semlex.types.followed import FollowedStatus

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


async def read_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus]:
    """Every followed table, by name, with its rows, what waits and what went wrong."""
    names, found = collection.names, []
    for stored in await read_tables(connection, names):
        counted = sql.SQL("SELECT count(*) FROM {} WHERE source_id = %s").format(names.document)
        [(rows,)] = await (await connection.execute(counted, [stored.source_id])).fetchall()
        queue = ChangeQueue(names, stored.source_id)
        counts = await queue.count(connection)
        found.append(
            FollowedStatus(
                table=stored.table,
                rows=rows,
                waiting=counts.waiting,
                failed=counts.problems,
                problems=await queue.problems(connection),
                last_run=stored.last_run,
                synced_at=stored.synced_at,
                error=stored.error_message,
            )
        )
    return found
