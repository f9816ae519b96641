"""The keyword index's share of a write, where the collection's engine has an index that semlex maintains."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from semlex.store.schema.locks import writing_lock
from semlex.store.schema.presence import hold_collection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.keyword.base import IndexShare
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


@asynccontextmanager
async def begin_write(
    connection: Connection, collection: CollectionInfo, rows: int = 0
) -> AsyncIterator[IndexShare | None]:
    """Takes the first lock of everyone who writes or deletes chunks.

    Args:
        connection: In a transaction.
    """
    index = collection.keyword.index
    if index is None:
        await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(collection)])
        await hold_collection(connection, collection)
        yield None
        return
    async with index.begin_write(connection, collection, rows) as share:
        yield share
