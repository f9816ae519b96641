"""Where the tables of another library are: a snapshot of their database."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import TransactionStatus

from semlex.errors import ConfigurationError
from semlex.store.foreign_tables.read import READING
from semlex.store.postgres.connection import plain_cursors
from semlex.store.postgres.direct import own_connection
from semlex.store.postgres.errors import translate
from semlex.store.postgres.settings import set_local
from semlex.store.postgres.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database


@asynccontextmanager
async def source_snapshot(database: Database, url: str | None) -> AsyncIterator[Connection]:
    """A connection in a REPEATABLE READ, READ ONLY transaction of the source, as long as the block lasts.

    It is a connection of its own: rows are written through others while it reads.
    """
    address = url or database.url
    if address is None and not database.has_several_connections:
        raise ConfigurationError(
            "a table is read through one connection and written through another, and only one was given: name the "
            "address of its database (source_url=), or open the collection with a pool or an address"
        )
    async with AsyncExitStack() as stack:
        if address is None:
            connection = await stack.enter_async_context(database.connection())
        else:
            connection = await stack.enter_async_context(own_connection(address, database.timeout))
            stack.enter_context(plain_cursors(connection))
        try:
            role = None if url is not None else database.role
            async with open_snapshot(connection, role=role, pipelined=False):
                await set_local(connection, **READING)
                try:
                    yield connection
                except BaseException:
                    if connection.info.transaction_status == TransactionStatus.ACTIVE:
                        # Interrupted inside a COPY: it cannot be rolled back, so the server does it.
                        connection.pgconn.finish()
                    raise
        except psycopg.Error as error:
            raise translate(error, "read the table", address, writing=True) from None
