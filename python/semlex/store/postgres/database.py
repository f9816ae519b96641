"""Run transactions on a pool or a caller's connection, with retries, write guards and translated errors."""

# Nothing here keeps session state: settings are local to a transaction, no session locks. Statements are prepared only
# on semlex's own connections, where no pooler lends their sessions to others. So it works behind PgBouncer in
# transaction mode, on standbys, and on a caller's connection.

from __future__ import annotations

import asyncio
import copy
import logging
import math
import random
import threading
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from semlex.clock import SYSTEM, Clock
from semlex.errors import CollectionDroppedError, ConfigurationError, PrivilegeError, SearchTimeoutError, SemlexError
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.connection import (
    Connection,
    check_usable,
    class_of,
    closed_inside_copy,
    connected,
    join,
    plain_cursors,
    pooled_options,
)
from semlex.store.postgres.errors import is_outdated, is_retryable, translate
from semlex.store.postgres.pool import (
    RECONNECT_SECONDS,
    ConnectionQueue,
    PooledConnection,
    configure,
    figures_of,
    reconnect,
    starting_with,
)
from semlex.store.postgres.roles import checked_role, explain, is_refusal, of_login
from semlex.store.postgres.settings import (
    READ_SETTINGS,
    SETTINGS,
    begin_writing,
    check_encoding,
    current_settings,
    of_role,
    set_local,
)
from semlex.store.postgres.snapshot import NO_SETTINGS, SingleSnapshot, Snapshot, Turns, open_snapshot, send_transaction
from semlex.telemetry import NAMESPACE, RETRY, SQLSTATE, Work, span
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from semlex.store.postgres.snapshot import Lasting


T = TypeVar("T")
WriteGuard: TypeAlias = "Callable[[Connection], AbstractAsyncContextManager[None]]"

# Of the current task and those that it starts. Entered when a transaction has begun, left right before its commit;
# an error of it rolls the transaction back.
write_guard: ContextVar[WriteGuard | None] = ContextVar("write_guard", default=None)


async def guarded(connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` inside the current task's write guard, if set: a context whose errors roll the transaction back."""
    guard = write_guard.get()
    async with nullcontext() if guard is None else guard(connection):
        return await work(connection)


logger = logging.getLogger("semlex")

RETRY_ATTEMPTS = 4
RETRY_BASE_SECONDS = 0.05
MAX_CONNECTIONS = 10_000
# The server's own time-out gets this much longer before semlex gives up the connection.
DEADLINE_GRACE_SECONDS = 0.25
# How long a cancelled statement may take to end on a caller's connection.
ENDING_SECONDS = 5.0


def check_access(url: str | None, *, pool: object, connection: object, max_connections: int, timeout: float) -> None:
    """Refuse arguments that cannot lead to a database, without connecting."""
    if url is not None:
        describe(url)
    if pool is not None and not isinstance(pool, AsyncConnectionPool):
        raise ConfigurationError(f"pool must be a psycopg_pool.AsyncConnectionPool; got {class_of(pool)}")
    if connection is not None and not isinstance(connection, psycopg.AsyncConnection):
        raise ConfigurationError(f"connection must be a psycopg.AsyncConnection; got {class_of(connection)}")
    check_range("max_connections", max_connections, 1, MAX_CONNECTIONS)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise ConfigurationError(f"timeout must be a number of seconds; got {class_of(timeout)}")
    if not 0 < timeout <= threading.TIMEOUT_MAX or math.isnan(timeout):
        raise ConfigurationError(f"timeout must be a number of seconds above 0; got {timeout}")


async def _nothing(_: Snapshot) -> None:
    """Do nothing: the work of a transaction that only runs the check of `Watch`."""


class Watch(Protocol):
    """Checks in each reading transaction whether the opened collection still exists."""

    is_gone: bool

    def question(self, *, with_vectors: bool = False) -> tuple[bytes, list[Any]]:
        """Return the check as SQL that selects one value, with the values that it binds."""
        # If `with_vectors`, the check also reads which sets of vectors are incomplete.
        # All names in it are qualified, operators included. It is sent before all other statements.
        ...

    async def check(self, answer: psycopg.AsyncCursor[Any]) -> None:
        """Raise `CollectionDroppedError` if the collection was dropped."""
        ...

    def check_failed(self, answer: psycopg.AsyncCursor[Any]) -> None:
        """Raise if the check had answered, before the transaction failed, that the collection is gone."""
        ...


class Replica(Protocol):
    """Reads on a standby, or on the primary while no standby answers."""

    async def read_snapshot(
        self,
        primary: Database,
        doing: str,
        work: Callable[[Snapshot], Awaitable[T]],
        *,
        deadline: float | None,
        **options: Any,
    ) -> T:
        """Run `work` as `Database.read_snapshot` does, on a standby if possible."""
        ...

    async def close(self) -> None:
        """Close the connections to the standby."""


class Database:
    """Runs transactions on semlex's own pool, or on a caller's pool or connection."""

    # Whether others answer in its place: then a lost connection is not replaced within a call.
    is_replica: ClassVar[bool] = False

    def __init__(
        self,
        url: str | None = None,
        *,
        pool: AsyncConnectionPool[Any] | None = None,
        connection: Connection | None = None,
        max_size: int = 8,
        timeout: float = 10.0,
        queue_timeout: float | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        # `connection` is the caller's and open: all work joins its transaction and begins it if needed. In autocommit
        # and outside a transaction, work has transactions of its own. `timeout` is in seconds, for the server or for a
        # free connection, `queue_timeout` for the latter if it differs.
        if sum(given is not None for given in (url, pool, connection)) != 1:
            raise ConfigurationError("give exactly one of db_url, pool and connection")
        check_access(url, pool=pool, connection=connection, max_connections=max_size, timeout=timeout)
        self.url = url
        self.timeout = timeout
        self.clock = clock
        self._max_size, self._queue_timeout = max_size, timeout if queue_timeout is None else queue_timeout
        self._pool = pool
        self._owns_pool = pool is None and connection is None
        # For the connections of semlex's own pool.
        self._queue: ConnectionQueue | None = None
        self._connection = connection
        # Whose rights transactions have; None: the login's.
        self.role: str | None = None
        self._watch: Watch | None = None
        # A standby that reads may use, and the database to which writes go if this one reads there.
        self._replica: Replica | None = None
        self._primary: Database | None = None
        # Whether the server has left a read without any answer.
        self.is_silent = False
        # One connection cannot carry two searches at once; callers queue here.
        self._connection_lock = asyncio.Lock()
        self._turns = Turns()

    @property
    def joins_transaction(self) -> bool:
        """Whether all work uses a single connection of the caller's."""
        return self._connection is not None

    @property
    def has_several_connections(self) -> bool:
        """Whether two transactions can be open at a time."""
        return self._connection is None and (self._max_size if self._pool is None else self._pool.max_size) > 1

    @property
    def pool_figures(self) -> dict[str, int]:
        """The pool's connections (``size``, ``idle``) and the callers ``waiting`` for one; empty without a pool."""
        return {} if self._pool is None else figures_of(self._pool, self._queue)

    def acting_as(self, role: str) -> Database:
        """Return a `Database` on the same connections with a role's rights; usable while this object is open."""
        return self._on_same_connections(role=checked_role(role))

    def watched_by(self, watch: Watch) -> Database:
        """Return a `Database` on the same connections; its reads fail if `watch` finds the collection dropped."""
        return self._on_same_connections(_watch=watch)

    def with_view_of(self, other: Database) -> Database:
        """Return a `Database` on these connections with the role and the `Watch` of `other`."""
        return self._on_same_connections(role=other.role, _watch=other._watch)

    def _on_same_connections(self, **attributes: Any) -> Database:
        """Return a copy with these attributes, which does not close the pool."""
        made = copy.copy(self)
        vars(made).update(attributes, _owns_pool=False)
        return made

    def beside(self, replica: Replica) -> None:
        """Set the standby that `reader` uses; `close` also closes the connections to it."""
        self._replica = replica

    @property
    def reader(self) -> Database:
        """The `Database` for reads that may be a little behind: on a standby if one is set, else this object."""
        if self._replica is None or self._primary is not None:
            return self
        return self._on_same_connections(_primary=self)

    async def renew_connections(self) -> None:
        """Replace the idle connections of the pool after the server was unavailable."""
        if self._pool is not None:
            await self._pool.drain()

    async def open(self) -> None:
        """Open the pool; connect once before that, because the pool would report any error only as a timeout."""
        if not self._owns_pool or self._pool is not None or self.url is None:
            return
        first = await connected(self.url, self.timeout, PooledConnection)
        try:
            check_encoding(first)
        except BaseException:
            await first.close()
            raise
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self.url,
            connection_class=starting_with(first),
            min_size=1,
            max_size=self._max_size,
            timeout=self.timeout,
            kwargs=pooled_options(self.url, self.timeout),
            configure=configure,
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=reconnect,
            open=False,
        )
        try:
            await pool.open(wait=True, timeout=self.timeout)
        except BaseException as error:
            await pool.close()
            if isinstance(error, psycopg.Error):
                raise translate(error, f"connect to {describe(self.url)}", self.url) from None
            raise
        self._pool, self._queue = pool, ConnectionQueue(self._max_size, self._queue_timeout, self.clock)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close semlex's pool; a caller's pool or connection stays open."""
        if not self._owns_pool:
            return
        replica, self._replica = self._replica, None
        try:
            if replica is not None:
                await replica.close()
        finally:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection for a short piece of work."""
        if self._connection is not None:
            async with self._connection_lock:
                check_usable(self._connection)
                check_encoding(self._connection)
                with plain_cursors(self._connection):
                    await join(self._connection)
                    yield self._connection
        elif self._pool is not None:
            async with (
                nullcontext() if self._queue is None else self._queue.place(),
                self._pool.connection() as connection,
            ):
                check_encoding(connection)
                with plain_cursors(connection):
                    yield connection
        else:
            raise ConfigurationError("the database is not open: use 'async with', or call initialize() first")

    async def read(self, doing: str, work: Callable[[Connection], Awaitable[T]], *, deadline: float | None = None) -> T:
        """Run `work` as `read_snapshot` does, but pass it only the connection."""
        return await self.read_snapshot(doing, lambda snapshot: work(snapshot.connection), deadline=deadline)

    async def read_whole(self, doing: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` as `read` does, but without a time limit, for reading whole tables by COPY."""

        async def unlimited(snapshot: Snapshot) -> T:
            await set_local(snapshot.connection, statement_timeout=0)
            return await work(snapshot.connection)

        return await self._run(doing, partial(self._read, unlimited, pipelined=False))

    async def read_snapshot(
        self,
        doing: str,
        work: Callable[[Snapshot], Awaitable[T]],
        *,
        deadline: float | None = None,
        with_vectors: bool = False,
        lasting: Lasting = "whole",
        settings: Mapping[str, str | int] = NO_SETTINGS,
    ) -> T:
        """Run `work` in one REPEATABLE READ, READ ONLY transaction; retry it for up to `timeout` seconds."""
        # All statements have one snapshot, in the form that standbys and poolers accept. With `lasting="statement"`
        # nobody checks whether the collection still exists: the statement has to. `settings` are what the snapshot
        # probably needs; they are set in the statement that sets those of all snapshots.
        options: dict[str, Any] = {"with_vectors": with_vectors, "lasting": lasting, "settings": settings}
        if self._replica is not None and self._primary is not None:
            return await self._replica.read_snapshot(self._primary, doing, work, deadline=deadline, **options)
        transaction = partial(self._read, work, **options)
        # After `deadline` seconds, a server that does not answer at all is given up. Normally the server's
        # statement_timeout ends late work; the deadline is for a network that swallows the answer.
        with self._turns.reader():
            if deadline is None:
                return await self._run(doing, transaction)
            return await self._give_up_after(deadline, doing, transaction)

    async def _read(
        self,
        work: Callable[[Snapshot], Awaitable[T]],
        connection: Connection,
        *,
        pipelined: bool = True,
        with_vectors: bool = False,
        lasting: Lasting = "whole",
        settings: Mapping[str, str | int] = NO_SETTINGS,
    ) -> T:
        await self._turns.take()
        if self.joins_transaction and connection.info.transaction_status != TransactionStatus.IDLE:
            try:
                return await self._read_joined(work, connection, with_vectors=with_vectors)
            except CollectionDroppedError:
                raise
            except Exception:
                if connection.info.transaction_status == TransactionStatus.INTRANS:
                    with suppress(psycopg.Error):  # the first error is the one to report
                        await self._read_joined(_nothing, connection)
                raise
        ahead: AbstractContextManager[None] = nullcontext()
        if lasting != "whole" and isinstance(connection, PooledConnection):
            await connection.note_search()
            ahead = connection.reading_ahead()
        with ahead:
            if lasting == "statement" and self.role is None and SingleSnapshot.possible(connection):
                return await work(SingleSnapshot(connection, turns=self._turns))
            opened = open_snapshot(
                connection,
                role=self.role,
                settings=settings,
                pipelined=pipelined,
                may_end=lasting != "whole",
                turns=self._turns,
                question=None if self._watch is None else self._watch.question(with_vectors=with_vectors),
            )
            async with opened as snapshot:
                return await self._watched(work, snapshot, with_vectors=with_vectors)

    async def _read_joined(
        self, work: Callable[[Snapshot], Awaitable[T]], connection: Connection, *, with_vectors: bool = False
    ) -> T:
        """Read inside the caller's transaction, with the isolation level and snapshot of that transaction."""
        async with connection.transaction() as savepoint:
            await set_local(connection, **READ_SETTINGS, **of_role(self.role))
            result = await work(Snapshot(connection))
            # Where a statement has failed and `work` knows, it goes on in another transaction, which is checked.
            if self._watch is not None and connection.info.transaction_status != TransactionStatus.INERROR:
                # In READ COMMITTED each statement sees another state. The tables that were read are locked by now.
                text, values = self._watch.question(with_vectors=with_vectors)
                await self._watch.check(await connection.execute(text, values))
            raise psycopg.Rollback(savepoint)  # takes our settings away again
        return result

    async def _watched(self, work: Callable[[Snapshot], Awaitable[T]], snapshot: Snapshot, *, with_vectors: bool) -> T:
        if self._watch is None:
            return await work(snapshot)
        answer = snapshot.answer
        if answer is None:
            text, values = self._watch.question(with_vectors=with_vectors)
            answer = await snapshot.connection.execute(text, values)
        try:
            result = await work(snapshot)
        except Exception:
            self._watch.check_failed(answer)
            raise
        await self._watch.check(answer)
        return result

    async def _give_up_after(self, deadline: float, doing: str, transaction: Callable[[Connection], Awaitable[T]]) -> T:
        held: list[Connection] = []

        async def remembering(connection: Connection) -> T:
            held[:] = [connection]
            return await transaction(connection)

        task = asyncio.ensure_future(self._run(doing, remembering))
        try:
            await self.clock.wait_for_tasks({task}, deadline + DEADLINE_GRACE_SECONDS)
        except asyncio.CancelledError:
            await self._abandon(task, held)
            raise
        if task.done():
            return task.result()
        is_queued = not held and self._queue is not None and self._queue.waiting > 0
        if self._connection is None:
            # Without this, cancelling would wait for the server's answer to the cancellation. The pool replaces the
            # connection. One that is the user's is left to them.
            for connection in held:
                connection.pgconn.finish()
        await self._abandon(task, held)
        late = "no connection became free" if is_queued else "the server did not answer"
        self.is_silent = not is_queued
        raise SearchTimeoutError(f"{doing}: {late} within {deadline:g} s")

    async def _abandon(self, task: asyncio.Task[Any], held: list[Connection]) -> None:
        """End a task, and wait until it has released its connection."""
        # On a caller's connection the task rolls back to a savepoint; if the caller went on earlier, its statements
        # would be undone.
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
        task.cancel()
        with suppress(asyncio.CancelledError):
            await self.clock.wait_for_tasks({task}, ENDING_SECONDS)
        if not task.done():
            for connection in held:
                connection.pgconn.finish()
            task.cancel()  # what waits for a closed connection does not notice

    async def write(self, doing: str, work: Callable[[Connection], Awaitable[T]], *, one_snapshot: bool = False) -> T:
        """Run `work` in one READ COMMITTED transaction, or inside the caller's; retry it if that is safe."""
        # `work` must be idempotent: after a connection is lost during COMMIT nobody knows whether it took effect.

        async def transaction(connection: Connection) -> T:
            joined = self.joins_transaction and connection.info.transaction_status != TransactionStatus.IDLE
            if joined and one_snapshot:
                raise ConfigurationError(
                    f"{doing}: this needs its own transaction; end yours first, or use a connection in autocommit"
                )
            async with connection.transaction():
                if not joined:
                    await begin_writing(connection, self.role, one_snapshot=one_snapshot)
                    with closed_inside_copy(connection) if self._connection is None else nullcontext():
                        return await guarded(connection, work)
                previous = await current_settings(connection, role=self.role is not None)
                await set_local(connection, **SETTINGS, **of_role(self.role))
                result = await guarded(connection, work)
                await set_local(connection, **previous)
                return result

        return await self._run(doing, transaction, writing=True)

    async def write_in_one_go(self, doing: str, send: Callable[[Connection], Awaitable[None]]) -> None:
        """Run a transaction whose statements are sent together, in one round trip; retry it if that is safe."""
        if self.joins_transaction:
            raise ConfigurationError(f"{doing}: this needs its own transaction")
        await self._run(doing, partial(send_transaction, send, role=self.role), writing=True)

    async def _run(self, doing: str, transaction: Callable[[Connection], Awaitable[T]], *, writing: bool = False) -> T:
        with span(Work.DATABASE, doing, is_call=True) as recorded:
            # Connections are not checked before use: that would cost a round trip for every search, and work on a dead
            # one is retried anyway.
            attempt, begun = 0, self.clock.monotonic()
            while True:
                attempt += 1
                connection: Connection | None = None
                try:
                    async with self.connection() as connection:
                        if recorded.is_recorded:
                            recorded.note({NAMESPACE: connection.info.dbname})
                        return await transaction(connection)
                except CollectionDroppedError:
                    if self._watch is not None and not self.is_replica:  # which may be behind
                        self._watch.is_gone = True
                    raise
                except PrivilegeError as error:  # of a stage that asks further before it gives up
                    raise await self._explained(error) from None
                except psycopg.Error as error:
                    # A read is retried for as long as semlex waits for a server.
                    is_over = attempt >= RETRY_ATTEMPTS and (writing or self.clock.monotonic() - begun >= self.timeout)
                    is_lost = connection is None or connection.closed
                    is_vain = not is_retryable(error) or (is_lost and self.is_replica)
                    if self.joins_transaction or is_over or is_vain:
                        recorded.note({SQLSTATE: error.sqlstate})
                        raise await self._explained(translate(error, doing, self.url, writing=writing)) from None
                    if is_outdated(error) and isinstance(connection, PooledConnection):
                        connection.prepare_threshold = None  # nothing is prepared any more
                    if self._pool is not None and connection is not None and is_lost:
                        await self._pool.drain()  # the server may have gone, and every connection with it
                    # Full jitter: clients that failed together must not come back together.
                    pause = random.uniform(0, RETRY_BASE_SECONDS * 4 ** min(attempt - 1, 3))  # noqa: S311 - not a secret
                    recorded.tell(RETRY, {SQLSTATE: error.sqlstate})
                    logger.info("%s: retry %d after %s", doing, attempt, error.sqlstate or type(error).__name__)
                    await self.clock.sleep(pause)

    async def _explained(self, error: BaseException) -> BaseException:
        """Return the error; if a right is missing, add the GRANT statement or the page that shows it."""
        if not is_refusal(error):
            return error
        if self.role is None:
            return of_login(error)
        try:
            async with self.connection() as connection:
                return await explain(connection, error, self.role)
        except (psycopg.Error, SemlexError):
            return error  # the reason is unknown; the refusal is certain


class SnapshotReads(Database):
    """Reads within one snapshot, each in a savepoint, so that a failing one does not affect the others."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(connection=snapshot.connection)
        self._snapshot = snapshot

    async def read_snapshot(self, doing: str, work: Callable[[Snapshot], Awaitable[T]], **_: Any) -> T:
        """Run `work` in the snapshot; settings that `work` changes are undone when it returns."""
        # The options change nothing: the time limits of statements end late work, and the caller that opened the
        # snapshot checks the collection.
        try:
            async with self._snapshot.savepoint(force_rollback=True):
                return await work(replace(self._snapshot))  # what it sets ends with the savepoint
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            raise translate(error, doing) from None
