"""Lock collections and tables in transactions, and check whether an open collection still exists."""

# Transactions take locks in this order: the set-up lock, the lock of a collection's writers, its row in the registry.
# Then documents, chunks and vectors, each in the order of their keys.

from __future__ import annotations

import logging
import random
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import AsyncCursor, sql
from psycopg.pq import ExecStatus

from semlex.errors import CollectionDroppedError, CollectionNotFoundError, StoreError
from semlex.store.postgres.errors import LOCK_NOT_AVAILABLE
from semlex.store.postgres.rows import execute_all, fetch_row, fetch_rows
from semlex.store.postgres.settings import local_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import CollectionIdentity, Names


SHOWN_NAMES = 10


def gone(collection: CollectionIdentity) -> CollectionDroppedError:
    """Return the error for a collection that was dropped since it was opened."""
    name = collection.names.collection
    return CollectionDroppedError(
        f"collection {name!r} was dropped after it was opened; if a collection of this name exists now, it is a new "
        "one: try again"
    )


class Presence:
    """Checks with each read whether an open collection still exists, and which embedding versions lack vectors."""

    def __init__(self, collection: CollectionIdentity) -> None:
        self._collection, names = collection, collection.names
        # Composed once: every read sends one of them. Reading the versions adds a third to the server's time.
        here = sql.SQL(
            "FROM {} AS c WHERE c.name OPERATOR(pg_catalog.=) %s AND c.collection_id OPERATOR(pg_catalog.=) %s"
        ).format(names.registry)
        lacking = sql.SQL(
            "SELECT e.version FROM {} AS e "
            "WHERE e.name OPERATOR(pg_catalog.=) c.name AND e.lacking_writes OPERATOR(pg_catalog.>) 0"
        )
        self._question = (sql.SQL("SELECT 1 ") + here).as_bytes()
        self._with_vectors = (
            sql.SQL("SELECT ARRAY({}) {}").format(lacking.format(names.embedding_version), here).as_bytes()
        )
        self.is_gone = False
        # Numbers of the sets of vectors that chunks lack, because their writers held another model.
        self.incomplete: list[int] = []

    def question(self, *, with_vectors: bool = False) -> tuple[bytes, list[Any]]:
        """Return the check as SQL that selects one value, with the values that it binds."""
        text = self._with_vectors if with_vectors else self._question
        return text, [self._collection.names.collection, self._collection.collection_id]

    async def check(self, answer: AsyncCursor[Any]) -> None:
        """Read the check's answer at the end of the transaction; raise if the collection was dropped."""
        try:
            row = await answer.fetchone()
        except psycopg.ProgrammingError:  # the question failed, and with it all that was read after it
            return
        if row is None or row[0] is None:
            raise gone(self._collection)
        if isinstance(row[0], list):
            self.incomplete = row[0]

    def check_failed(self, answer: AsyncCursor[Any]) -> None:
        """Raise if the check had answered, before the transaction failed, that the collection is gone."""
        result = answer.pgresult
        if result is None or result.status != ExecStatus.TUPLES_OK:
            return
        if not result.ntuples or result.get_value(0, 0) is None:
            raise gone(self._collection)


async def hold_collection(connection: Connection, collection: CollectionIdentity, *, alone: bool = False) -> None:
    """Keep a collection from being dropped until the transaction ends; `alone` also keeps other writers waiting."""
    # Every write calls it first: a collection that was dropped and made again has tables of the same names, and nothing
    # in them would show it.
    lock = sql.SQL("NO KEY UPDATE" if alone else "SHARE")
    statement = sql.SQL("SELECT 1 FROM {} WHERE name = %s AND collection_id = %s FOR {}")
    values = [collection.names.collection, collection.collection_id]
    if await fetch_row(connection, statement.format(collection.names.registry, lock), values) is None:
        raise gone(collection)


async def share_writing(connection: Connection, collection: CollectionIdentity) -> None:
    """Take the locks that every writer takes first, before it writes into any table."""
    await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(collection)])
    await hold_collection(connection, collection)


async def check_present(connection: Connection, collection: CollectionIdentity) -> None:
    """Refuse a dropped collection, for roles that may not lock its row; the transaction must be READ COMMITTED."""
    # Call it after a statement on one of its tables: from then on, a drop of the table waits for this transaction.
    presence = Presence(collection)
    await presence.check(await connection.execute(*presence.question()))


def no_such_collection(name: str, known: Sequence[str]) -> CollectionNotFoundError:
    """Return the error for a collection that does not exist, with similar or known names."""
    near = get_close_matches(name, known, n=1)
    meant = f": did you mean {near[0]!r}? Known" if near else ";"
    return CollectionNotFoundError(f"collection {name!r} does not exist here{meant} collections: {shortened(known)}")


def shortened(names: Sequence[str], most: int = SHOWN_NAMES) -> str:
    """Return the first names of a list, and how many more it has."""
    more = f", and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


logger = logging.getLogger("semlex")

T = TypeVar("T")

# One lock for all set-up in a database: it is short and rare. "semlex" read as a number.
SETUP_LOCK = 0x73656D6C6578
# New writers wait behind a process that waits for the current ones: after this time it lets them through first.
LOCK_TIMEOUT = "2s"
WRITERS_SECONDS = 300.0
# Searches queue behind a process that waits to lock their table exclusively, so that one try is short.
TABLE_LOCK_TIMEOUT = "100ms"
TABLE_SECONDS = 60.0
# After this time the log names the sessions that are waited for.
TELL_SECONDS = 2.0
SHOWN_HOLDERS = 3


def writing_lock(collection: CollectionIdentity) -> int:
    """Return the key of the advisory lock that writers share; changes of generation or version take it exclusively."""
    # The lock that counts is that of the registry's row (on a distributed Postgres, advisory locks are per node). But
    # shared locks of a row overtake a process that waits for an exclusive one, forever if enough of them come; for this
    # lock they queue.
    return int.from_bytes(collection.collection_id.bytes[8:], signed=True)


async def without_writers(
    database: Database,
    doing: str,
    collection: CollectionIdentity,
    work: Callable[[Connection], Awaitable[T]],
    *,
    sets_up: bool = False,
) -> T:
    """Run a transaction while nobody writes into a collection; wait for writers up to `WRITERS_SECONDS`."""

    async def locked(connection: Connection) -> T:
        # A limit of the role is for statements that others wait for, not for this.
        await take_locks(
            connection,
            *([SETUP_LOCK] if sets_up else []),
            writing_lock(collection),
            lock_timeout=LOCK_TIMEOUT,
            statement_timeout=0,
            idle_in_transaction_session_timeout=0,
        )
        await hold_collection(connection, collection, alone=True)
        return await work(connection)

    return await _until_free(database, doing, _of_collection(collection.names), locked, WRITERS_SECONDS)


async def between_searches(
    database: Database, doing: str, names: Names, work: Callable[[Connection], Awaitable[T]]
) -> T:
    """Run a transaction that locks a collection's table exclusively; each try is short, so searches hardly wait."""
    # `work` calls `lock_briefly` before it locks a table; it may run again.
    return await _until_free(database, doing, _of_collection(names), work, TABLE_SECONDS)


async def between_writes(
    database: Database,
    doing: str,
    relations: Sequence[int],
    work: Callable[[Connection], Awaitable[T]],
    seconds: float = TABLE_SECONDS,
) -> T:
    """Run a transaction that locks users' tables, given by oid; each try is short, so that users hardly wait."""
    # `work` calls `lock_briefly` before it locks a table; it may run again, for up to `seconds`.
    held = sql.SQL("c.oid = ANY({})").format(sql.Literal(list(relations)))
    return await _until_free(database, doing, held, work, seconds)


async def lock_briefly(connection: Connection, *statements: sql.Composed) -> None:
    """Let the transaction wait only briefly for exclusive locks on tables; then run statements, if any are given."""
    await execute_all(connection, [local_settings(lock_timeout=TABLE_LOCK_TIMEOUT), *statements])


async def take_locks(connection: Connection, *keys: int, **limits: str | int) -> None:
    """Set limits for the rest of the transaction, then take advisory locks in their order, until it ends."""
    locks = [sql.SQL("SELECT pg_advisory_xact_lock({})").format(key) for key in keys]
    await execute_all(connection, [*([local_settings(**limits)] if limits else []), *locks])


def _of_collection(names: Names) -> sql.Composed:
    """Return the SQL condition on `pg_class` (alias ``c``) that selects the tables of a collection."""
    return sql.SQL("c.relnamespace = to_regnamespace({}) AND starts_with(c.relname, {})").format(
        f'"{names.schema}"', f"{names.collection}_"
    )


async def _until_free(
    database: Database, doing: str, tables: sql.Composed, work: Callable[[Connection], Awaitable[T]], seconds: float
) -> T:
    begun, logged = database.clock.monotonic(), ""
    while True:
        try:
            return await database.write(doing, work)
        except StoreError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
        waited = database.clock.monotonic() - begun
        if waited >= min(TELL_SECONDS, seconds):
            holders = await _holders(database, tables)
            if waited >= seconds:
                raise StoreError(
                    f"{doing}: gave up after {waited:.0f} s, because other transactions hold locks that this needs"
                    f"{holders and f' ({holders})'}; end those transactions, then try again",
                    sqlstate=LOCK_NOT_AVAILABLE,
                )
            if holders and not logged:
                logger.warning("%s: waits for other transactions (%s)", doing, holders)
            logged = logged or holders
        await database.clock.sleep(random.uniform(0.5, 1.5))  # noqa: S311 - not a secret


async def _holders(database: Database, tables: sql.Composed) -> str:
    """Return, as text for a message, the sessions that have held locks on these tables for longest."""
    statement = sql.SQL(
        "SELECT a.pid, a.state, extract(epoch FROM clock_timestamp() - min(a.xact_start))::int "
        "FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_stat_activity AS a USING (pid) "
        "WHERE l.granted AND l.pid <> pg_backend_pid() AND {} AND a.xact_start IS NOT NULL "
        "GROUP BY a.pid, a.state ORDER BY min(a.xact_start) LIMIT {}"
    ).format(tables, SHOWN_HOLDERS)
    found = await database.read("list holders of locks", lambda connection: fetch_rows(connection, statement))
    return ", ".join(f"process {pid}, {state or 'state unknown'}, began {age} s ago" for pid, state, age in found)
