"""Connections: the pool, transactions, retries, and the translation of the driver's errors into ours.

Nothing here keeps session state: settings are local to a transaction, no prepared statements, no session locks. So it
works behind PgBouncer in transaction mode, on standbys, and on a connection that somebody else owns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout, TooManyRequests

from semlex.errors import (
    ConfigurationError,
    ConnectionFailedError,
    PrivilegeError,
    ReadOnlyError,
    SearchTimeoutError,
    SemlexError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Connection = psycopg.AsyncConnection[Any]

T = TypeVar("T")

logger = logging.getLogger("semlex")

RETRY_ATTEMPTS = 4
RETRY_BASE_SECONDS = 0.05
# Serialization failure, deadlock, shutdown, crash shutdown, cannot connect now.
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "57P01", "57P02", "57P03"})
# Connection, shutdown, resources, login, no such database.
CONNECTION_CLASSES = ("08", "57P", "53", "28", "3D")
# The system may allow less.
SEND_BUFFER_BYTES = 1024 * 1024
# The server's own time-out gets this much longer before the connection is given up.
DEADLINE_GRACE_SECONDS = 0.25
# Classes whose primary message quotes the offending value.
QUOTING_CLASSES = frozenset({"22", "23"})
# The parts of a connection string that are shown, and what none of them contains in earnest.
_SLIPPED_IN = {
    "host": re.compile(r"[@;=]"),
    "hostaddr": re.compile(r"[^0-9a-fA-F.:,%]"),
    "port": re.compile(r"[^0-9,]"),
    "dbname": re.compile(r"[@;=]"),
    "user": re.compile(r"[;=]"),
}


def describe(url: str) -> str:
    """Host, port, database and user of a connection string, without its password.

    Raises:
        ConfigurationError: The string cannot be parsed; its text is not repeated.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        parts = None
    # libpq also takes strings in which an unescaped password has slipped into a part that is shown.
    if parts is None or any(_SLIPPED_IN[name].search(str(parts.get(name) or "")) for name in _SLIPPED_IN):
        raise ConfigurationError(
            "the database URL cannot be parsed; check it for unescaped characters "
            "(%, @, / and blanks in a password must be percent-encoded)"
        )
    shown = {name: parts[name] for name in _SLIPPED_IN if parts.get(name)}
    return " ".join(f"{name}={value}" for name, value in shown.items()) or "the default server"


def is_retryable(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is run again."""
    if isinstance(error, TooManyRequests):
        return False
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and not isinstance(
            error, PoolTimeout
        )
    return state in RETRYABLE_SQLSTATES or state.startswith("08")


def translate(error: BaseException, doing: str, url: str | None = None) -> BaseException:
    """The error of our tree for an error of the driver; anything else comes back as it is.

    The server's DETAIL and CONTEXT are dropped because they quote rows, and so is the primary message of the classes
    that quote values.

    Args:
        error: What was caught.
        doing: What was being done, for the message ("search", "add documents").
        url: The connection string, so that its password can be removed from a message that repeats it.
    """
    if isinstance(error, SemlexError) or not isinstance(error, psycopg.Error):
        return error
    state = error.sqlstate
    message = error.diag.message_primary or str(error)
    if url is not None:
        password = conninfo_to_dict(url).get("password")
        if password:
            message = message.replace(str(password), "***")
    if state is None:
        waited = isinstance(error, (PoolTimeout, TooManyRequests))
        problem = "no connection became free in time" if waited else "the connection failed"
        return ConnectionFailedError(f"{doing}: {problem}: {message.strip()}")
    if state[:2] in QUOTING_CLASSES:
        message = f"the server refused a value ({type(error).__name__})"
    text = f"{doing}: {message} [{state}]"
    if state == "57014":
        return SearchTimeoutError(f"{text}; raise the deadline or the server's statement_timeout")
    if state == "25006":
        return ReadOnlyError(f"{text}; writes need the primary server and a role that may write", sqlstate=state)
    kind = PrivilegeError if state == "42501" else StoreError
    if state.startswith(CONNECTION_CLASSES):
        kind = ConnectionFailedError
    return kind(text, sqlstate=state)


class Database:
    """A pool of our own, or a pool or a single connection of the user's.

    Args:
        url: libpq connection string; needed unless `pool` or `connection` is given.
        pool: An open pool that the caller keeps and closes.
        connection: An open connection that the caller keeps; writes join its transaction when it is in one.
        max_size: Most connections of a pool of our own.
        timeout: Seconds to wait for the server or for a free connection.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        pool: AsyncConnectionPool[Any] | None = None,
        connection: Connection | None = None,
        max_size: int = 8,
        timeout: float = 10.0,
    ) -> None:
        if sum(given is not None for given in (url, pool, connection)) != 1:
            raise ConfigurationError("give exactly one of db_url, pool and connection")
        self.url = url
        self.timeout = timeout
        self._max_size = max_size
        self._pool = pool
        self._owns_pool = pool is None and connection is None
        self._connection = connection
        # One connection cannot carry two searches at once; callers queue here.
        self._connection_lock = asyncio.Lock()

    @property
    def joins_transaction(self) -> bool:
        """True when a single connection of the user's is in use."""
        return self._connection is not None

    async def open(self) -> None:
        """Opens the pool after one plain connection has shown that the server can be reached.

        Raises:
            ConnectionFailedError: It cannot; the message names host, database and user.
        """
        if not self._owns_pool or self._pool is not None or self.url is None:
            return
        where = describe(self.url)
        options: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
        # A server that vanished is noticed after about a minute instead of the system's two hours.
        options |= {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
        try:
            # The pool reports a time-out only; one plain connection gives the reason.
            probe = await psycopg.AsyncConnection.connect(
                self.url, connect_timeout=max(1, round(self.timeout)), **options
            )
            await probe.close()
        except psycopg.Error as error:
            raise translate(error, f"connect to {where}", self.url) from None
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self.url,
            min_size=1,
            max_size=self._max_size,
            timeout=self.timeout,
            max_waiting=self._max_size * 32,
            kwargs=options,
            configure=_widen_send_buffer,
            open=False,
        )
        await pool.open()
        self._pool = pool

    async def close(self) -> None:
        """Closes a pool of our own; a pool or connection of the user's stays open."""
        if self._owns_pool and self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for a short piece of work."""
        if self._connection is not None:
            async with self._connection_lock:
                yield self._connection
        elif self._pool is not None:
            async with self._pool.connection() as connection:
                yield connection
        else:
            raise ConfigurationError("not open: use 'async with', or call initialize() first")

    async def read(self, doing: str, work: Callable[[Connection], Awaitable[T]], *, deadline: float | None = None) -> T:
        """Runs `work` in one REPEATABLE READ, READ ONLY transaction; retried where that is safe.

        One snapshot for all statements, and the form that standbys and poolers accept.

        Args:
            doing: What it is for, for error messages.
            work: Gets the connection.
            deadline: Seconds after which a server that does not answer at all is given up. The server's own
                statement_timeout is what normally ends late work; this is for a network that swallows it.

        Raises:
            SearchTimeoutError: The deadline passed; the connection was closed.
        """

        async def transaction(connection: Connection) -> T:
            if self.joins_transaction and connection.info.transaction_status != TransactionStatus.IDLE:
                # The caller's snapshot rules. Rolling back to the savepoint takes our settings away again.
                async with connection.transaction() as savepoint:
                    await set_local(connection, **READ_SETTINGS)
                    result = await work(connection)
                    raise psycopg.Rollback(savepoint)
                return result
            return await _in_one_snapshot(connection, work)

        if deadline is None:
            return await self._run(doing, transaction)
        return await self._give_up_after(deadline, doing, transaction)

    async def _give_up_after(self, deadline: float, doing: str, transaction: Callable[[Connection], Awaitable[T]]) -> T:
        held: list[Connection] = []

        async def remembering(connection: Connection) -> T:
            held[:] = [connection]
            return await transaction(connection)

        task = asyncio.ensure_future(self._run(doing, remembering))
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline + DEADLINE_GRACE_SECONDS)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        if self._connection is None:
            # Without this, cancelling would wait for the server's answer to the cancellation: the driver gives a
            # silent server ten seconds. The pool replaces the connection. One that is the user's is left to them.
            for connection in held:
                connection.pgconn.finish()
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
        task.cancel()
        raise SearchTimeoutError(f"{doing}: the server did not answer within {deadline:g} s")

    async def write(self, doing: str, work: Callable[[Connection], Awaitable[T]], *, one_snapshot: bool = False) -> T:
        """Runs `work` in one transaction (READ COMMITTED), or inside the caller's; retried where that is safe.

        `work` must be idempotent: after a connection is lost during COMMIT nobody knows whether it took effect.

        Args:
            doing: What it is for, for error messages.
            work: Gets the connection.
            one_snapshot: Whether all statements see one state (REPEATABLE READ).

        Raises:
            ConfigurationError: `one_snapshot` inside a transaction that has begun.
        """

        async def transaction(connection: Connection) -> T:
            joined = self.joins_transaction and connection.info.transaction_status != TransactionStatus.IDLE
            if joined and one_snapshot:
                raise ConfigurationError(f"{doing}: this needs a transaction of its own; end yours first")
            async with connection.transaction():
                if one_snapshot:
                    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                previous = await _search_path(connection) if joined else None
                await set_local(connection, search_path=SEARCH_PATH)
                result = await work(connection)
                if previous is not None:
                    await set_local(connection, search_path=previous)
                return result

        return await self._run(doing, transaction)

    async def _run(self, doing: str, transaction: Callable[[Connection], Awaitable[T]]) -> T:
        # A connection is not asked whether it still lives before it is used: that would be a round trip for every
        # search, and work that meets a dead one is done again anyway.
        for attempt in range(1, RETRY_ATTEMPTS + 1):
            connection: Connection | None = None
            try:
                async with self.connection() as connection:
                    return await transaction(connection)
            except psycopg.Error as error:
                if self.joins_transaction or attempt == RETRY_ATTEMPTS or not is_retryable(error):
                    raise translate(error, doing, self.url) from None
                if self._pool is not None and connection is not None and connection.closed:
                    await self._pool.drain()  # the server may have gone, and every connection with it
                # Full jitter: clients that failed together must not come back together.
                pause = random.uniform(0, RETRY_BASE_SECONDS * 4 ** (attempt - 1))  # noqa: S311 - not a secret
                logger.info("%s: retry %d after %s", doing, attempt, error.sqlstate or type(error).__name__)
                await asyncio.sleep(pause)
        raise AssertionError  # the loop returns or raises


async def _in_one_snapshot(connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Runs `work` in a transaction of its own.

    Pipelined: the server gets the beginning together with the first statement whose rows are waited for. (The driver's
    own block of a transaction waits three times, which is longer than a search of words takes.)
    """
    if not connection.autocommit:
        # The user's own: the driver begins a transaction by itself before any statement.
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await set_local(connection, **READ_SETTINGS)
            return await work(connection)
    try:
        async with connection.pipeline() as pipeline:
            _pipelines[connection] = pipeline
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await set_local(connection, **READ_SETTINGS)
            result = await work(connection)
            await connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            with suppress(psycopg.Error):  # what happened first is what is told
                await connection.rollback()
        raise
    finally:
        _pipelines.pop(connection, None)
    return result


_pipelines: WeakKeyDictionary[Connection, psycopg.AsyncPipeline] = WeakKeyDictionary()


@asynccontextmanager
async def in_one_go(connection: Connection) -> AsyncIterator[None]:
    """Sends the statements of the block at once; at its end all have been answered, or the first failure is raised.

    Afterwards the connection can be used as far as its transaction allows.
    """
    pipeline = _pipelines.get(connection)
    if pipeline is None:
        async with connection.pipeline():
            yield
        return
    # A pipeline inside a pipeline would first wait for all that was sent before: one round trip more.
    try:
        yield
        await pipeline.sync()
    except psycopg.Error:
        if not connection.closed:
            with suppress(psycopg.Error):  # the rest of the answers
                await pipeline.sync()
        raise


async def _widen_send_buffer(connection: Connection) -> None:
    """Lets more of a COPY be on its way, so that a server on this machine is busy while we make the next rows.

    A Unix socket holds about 100 kB of rows, half a millisecond of work for the server. (TCP adapts by itself.)
    """
    if connection.info.host.startswith("/"):
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


# Everything of ours is qualified; built-in functions and operators are found here and nowhere else, so that a schema
# that somebody else can write to cannot put its own in front.
SEARCH_PATH = "pg_catalog, pg_temp"
# Compiling a query that runs for a few milliseconds takes longer than the query.
READ_SETTINGS = {"search_path": SEARCH_PATH, "jit": "off"}


async def set_local(connection: Connection, **settings: str | int) -> None:
    """Sets server settings for the rest of the transaction; a double underscore stands for the dot in a name."""
    await connection.execute(_setting_calls(tuple(settings.items())))


@lru_cache(maxsize=256)
def _setting_calls(settings: tuple[tuple[str, str | int], ...]) -> bytes:
    # Qualified, because the search path may not be ours yet.
    calls = sql.SQL(", ").join(
        sql.SQL("pg_catalog.set_config({}, {}, true)").format(name.replace("__", "."), str(value))
        for name, value in settings
    )
    return sql.SQL("SELECT {}").format(calls).as_bytes()


async def in_time(connection: Connection, work: Callable[[], Awaitable[T]]) -> T | None:
    """What `work` returns, or None when a statement of it took longer than its time limit.

    The transaction goes on either way, with the settings that it had.
    """
    try:
        async with connection.transaction():
            return await work()
    except psycopg.errors.QueryCanceled:
        return None


async def _search_path(connection: Connection) -> str:
    cursor = await connection.execute("SELECT pg_catalog.current_setting('search_path')")
    row = await cursor.fetchone()
    return str(row[0]) if row else ""
