"""Locks that transactions take, in this order: of all set-up, of a collection's writers, of its row in the registry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from semlex.errors import StoreError
from semlex.store.postgres.errors import LOCK_NOT_AVAILABLE
from semlex.store.postgres.settings import set_local
from semlex.store.schema.presence import hold_collection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import CollectionIdentity

T = TypeVar("T")

# One lock for all set-up in a database: it is short and rare. "semlex" read as a number.
SETUP_LOCK = 0x73656D6C6578
# Nobody writes while somebody waits for those who are at it: after so long it lets the others through first.
LOCK_TIMEOUT = "2s"
LOCK_ATTEMPTS = 100


def writing_lock(collection: CollectionIdentity) -> int:
    """Key of the advisory lock that writers share, and that whoever changes a generation or a version takes alone.

    The lock that counts is the one of the registry's row (on a distributed Postgres, advisory locks are per node). But
    those who share a row pass by whoever waits for it alone, for ever if there are enough of them; for this lock they
    queue.
    """
    return int.from_bytes(collection.collection_id.bytes[8:], signed=True)


async def without_writers(
    database: Database,
    doing: str,
    collection: CollectionIdentity,
    work: Callable[[Connection], Awaitable[T]],
    *,
    sets_up: bool = False,
) -> T:
    """Runs a transaction while nobody writes into a collection.

    Args:
        database: An open database.
        doing: What it is for, for error messages.
        collection: As opened.
        work: Gets the connection; it may be run again.
        sets_up: Whether it makes or drops tables.

    Raises:
        StoreError: Writers left no moment for it.
        CollectionNotFoundError: The collection was dropped.
    """

    async def locked(connection: Connection) -> T:
        # A limit of the role is for statements that others wait for, not for this.
        await set_local(
            connection, lock_timeout=LOCK_TIMEOUT, statement_timeout=0, idle_in_transaction_session_timeout=0
        )
        if sets_up:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [SETUP_LOCK])
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [writing_lock(collection)])
        await hold_collection(connection, collection, alone=True)
        return await work(connection)

    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            return await database.write(doing, locked)
        except StoreError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE or attempt == LOCK_ATTEMPTS:
                raise
        await database.clock.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - not a secret
    raise AssertionError  # the loop returns or raises
