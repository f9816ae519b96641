"""Whether a collection is there, and whether it is still the one that was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.pq import ExecStatus

from semlex.errors import CollectionDroppedError, CollectionNotFoundError

SHOWN_NAMES = 10

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncCursor

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity


def gone(collection: CollectionIdentity) -> CollectionDroppedError:
    """Return the error of a collection that was dropped since it was opened."""
    name = collection.names.collection
    return CollectionDroppedError(
        f"collection {name!r} was dropped since it was opened; if it exists now, it is another one: try again"
    )


class Presence:
    """Whether an open collection still exists and which of its vectors are incomplete, as each reading finds out."""

    def __init__(self, collection: CollectionIdentity) -> None:
        self._collection, names = collection, collection.names
        # Composed once: every read sends one of them. Reading the versions adds a third to the server's time.
        here = sql.SQL("FROM {} AS c WHERE c.name = %s AND c.collection_id = %s").format(names.registry)
        lacking = sql.SQL("SELECT e.version FROM {} AS e WHERE e.name = c.name AND e.lacking_writes > 0")
        self._question = (sql.SQL("SELECT 1 ") + here).as_bytes()
        self._with_vectors = (
            sql.SQL("SELECT ARRAY({}) {}").format(lacking.format(names.embedding_version), here).as_bytes()
        )
        self.is_gone = False
        # Numbers of the sets of vectors that chunks lack, because their writers held another model.
        self.incomplete: list[int] = []

    async def ask(self, connection: Connection, *, with_vectors: bool = False) -> AsyncCursor[Any]:
        """Send the question; in a pipeline it costs no round trip."""
        given = [self._collection.names.collection, self._collection.collection_id]
        return await connection.execute(self._with_vectors if with_vectors else self._question, given)

    async def check(self, answer: AsyncCursor[Any]) -> None:
        """Read the answer at the end of the transaction."""
        try:
            row = await answer.fetchone()
        except psycopg.ProgrammingError:  # the question failed, and with it all that was read after it
            return
        if row is None:
            raise gone(self._collection)
        if isinstance(row[0], list):
            self.incomplete = row[0]

    def check_failed(self, answer: AsyncCursor[Any]) -> None:
        """Read the answer, if it has arrived, of a transaction that has failed."""
        result = answer.pgresult
        if result is not None and result.status == ExecStatus.TUPLES_OK and result.ntuples == 0:
            raise gone(self._collection)


async def hold_collection(connection: Connection, collection: CollectionIdentity, *, alone: bool = False) -> None:
    """Keep a collection from being dropped until the transaction ends.

    Every write calls it first: a collection that was dropped and made again has tables of the same names, and nothing
    in them would show it.

    Args:
        connection: In a transaction.
        alone: Whether other writers wait until then.
    """
    lock = sql.SQL("NO KEY UPDATE" if alone else "SHARE")
    statement = sql.SQL("SELECT 1 FROM {} WHERE name = %s AND collection_id = %s FOR {}")
    cursor = await connection.execute(
        statement.format(collection.names.registry, lock),
        [collection.names.collection, collection.collection_id],
    )
    if await cursor.fetchone() is None:
        raise gone(collection)


async def check_present(connection: Connection, collection: CollectionIdentity) -> None:
    """Refuse a dropped collection, for roles that may not lock its row.

    Call it after a statement on one of its tables: from then on, a drop of the table waits for this transaction.

    Args:
        connection: In a READ COMMITTED transaction.
    """
    presence = Presence(collection)
    await presence.check(await presence.ask(connection))


def no_such_collection(name: str, known: Sequence[str]) -> CollectionNotFoundError:
    """The error of a collection that does not exist."""
    shown = ", ".join(known[:SHOWN_NAMES]) or "none"
    if len(known) > SHOWN_NAMES:
        shown += f", and {len(known) - SHOWN_NAMES:,} more"
    return CollectionNotFoundError(f"there is no collection {name!r} here; collections: {shown}")
