"""One process at a time builds indexes of a collection."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from psycopg import IsolationLevel, sql

from semlex.store.postgres.direct import own_connection
from semlex.store.postgres.settings import SETTINGS, begin_writing, of_role, set_for_session, set_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

# A concurrent build waits so long for transactions that began before it. It holds up nobody meanwhile.
CONCURRENT_LOCK_TIMEOUT = "30min"


def building_lock(collection: CollectionInfo) -> int:
    """Key of the advisory lock of whoever builds an index of a collection."""
    return int.from_bytes(collection.collection_id.bytes[4:12], signed=True)


async def is_alone(connection: Connection, collection: CollectionInfo) -> bool:
    """Takes the lock until the transaction ends, unless another process has it."""
    # No bound value: the portal of a statement that has one keeps its snapshot until the next statement.
    statement = sql.SQL("SELECT pg_catalog.pg_try_advisory_xact_lock({})")
    cursor = await connection.execute(statement.format(building_lock(collection)))
    row = await cursor.fetchone()
    return bool(row and row[0])


@asynccontextmanager
async def concurrent_session(database: Database, collection: CollectionInfo) -> AsyncIterator[Connection | None]:
    """A session that may build concurrently, alone; None where another process builds.

    A concurrent build waits for every transaction that has a snapshot from before it, so it would wait for a lock's
    holder that reads, and for whoever waits for the lock. The holder is a connection that reads nothing, in READ
    COMMITTED, where a statement without bound values leaves no snapshot behind; and nobody waits.
    """
    assert database.url is not None  # noqa: S101 - the caller has looked
    async with (
        own_connection(database.url, database.timeout) as holder,
        own_connection(database.url, database.timeout) as builder,
    ):
        await holder.set_isolation_level(IsolationLevel.READ_COMMITTED)
        async with holder.transaction():
            await begin_writing(holder, database.role)
            await set_local(holder, idle_in_transaction_session_timeout=0)
            if not await is_alone(holder, collection):
                yield None
                return
            await set_for_session(
                builder,
                **SETTINGS,
                **of_role(database.role),
                lock_timeout=CONCURRENT_LOCK_TIMEOUT,
                statement_timeout=0,
            )
            yield builder
