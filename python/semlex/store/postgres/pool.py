"""Connections of semlex's pool, which release Python's interpreter lock (GIL) less often than the driver does."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import deque
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg import IsolationLevel
from psycopg.abc import RV, PQGen
from psycopg.waiting import READY_R, READY_W, WAIT_R, WAIT_W

from semlex.errors import ConnectionFailedError
from semlex.store.postgres.rows import fetch_value, read_times_as_utc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from psycopg.pq.abc import PGconn
    from psycopg_pool import AsyncConnectionPool

    from semlex.clock import Clock
    from semlex.store.postgres.connection import Connection
    from semlex.types.results import ReadServer

# The system may allow less.
SEND_BUFFER_BYTES = 1024 * 1024
# How long a server may take to accept the request to cancel a statement, on a connection of the pool.
CANCEL_SECONDS = 1.0
# The pool's pauses between two attempts to connect double until this time is over, from one second on.
RECONNECT_SECONDS = 2.0
# A connection prepares the statements of its searches from this search on: a program that asks once gains nothing.
PREPARED_FROM = 2
# A pooler lends a session to many clients, whose prepared statements would meet. It tells its clients other numbers of
# sessions than the server's. As these may meet by chance, the server must see the port of this program as well, if it
# has one. In a transaction each use of a statement is planned for its values, as if it was not prepared: a plan that is
# kept may be that of a table that was empty. A statement that runs alone names the size of its collection.
IS_DIRECT = (
    b"SELECT pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s::pg_catalog.int4 "
    b"AND coalesce(pg_catalog.inet_client_port(), 0) OPERATOR(pg_catalog.=) %s::pg_catalog.int4"
)


class ConnectionQueue:
    """Admits as many callers as there are connections; the others wait in their order of arrival."""

    def __init__(self, count: int, seconds: float, clock: Clock) -> None:
        # Callers wait as long as connections continue to become free, however many wait. A caller is refused if no
        # connection became free for `seconds`.
        self._count, self._seconds, self._clock = count, seconds, clock
        self._free = count
        self._given = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return sum(not one.done() for one in self._waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait until a connection is free, and reserve it inside the block."""
        if self._free:
            self._free -= 1
            self._given += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            while not mine.done():
                given = self._given
                with suppress(TimeoutError):
                    async with self._clock.timeout(self._seconds):
                        await asyncio.wait([mine])
                if not mine.done() and given == self._given:
                    raise ConnectionFailedError(  # noqa: TRY301 - leaves the queue as every other end does
                        f"too many calls at once: {self.waiting} wait for {self._count} connections, and none became "
                        f"free for {self._seconds:g} s; raise max_connections=, or limit the callers"
                    )
        except BaseException:
            if not mine.cancel():  # it came in the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            next_one = self._waiting.popleft()
            if not next_one.done():
                self._given += 1
                next_one.set_result(None)
                return
        self._free += 1


class PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection of semlex's pool. Cancelling does not wait for a server that does not respond."""

    _searches = 0
    _reads_ahead = False
    # Where it leads, with the time when that was asked; only of connections to a standby.
    seen_server: tuple[float, ReadServer] | None = None

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        """Open a pipeline: inside the block, statements are sent without waiting for answers."""
        async with self.lock:
            self._check_connection_ok()
            pipeline = self._pipeline = self._pipeline or Pipeline(self)
        try:
            async with pipeline:
                yield pipeline
        finally:
            if pipeline.level == 0:
                self._pipeline = None

    async def wait(self, gen: PQGen[RV], *limits: Any, **named: Any) -> RV:
        """Run a generator of the driver to its end, and return its result."""
        if limits or named:
            return await super().wait(gen, *limits, **named)
        try:
            return await waited(gen, self.pgconn, reads_ahead=self._reads_ahead)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as reason:
            if self.closed:
                raise
            # The driver cancels the statement, or closes the connection.
            return await super().wait(cast("PQGen[RV]", Interrupted(gen, reason)))

    @contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Read without releasing the interpreter lock; a caller whose connection is lost must run the block again."""
        self._reads_ahead = True
        try:
            yield
        finally:
            self._reads_ahead = False

    async def note_search(self) -> None:
        """Count a search; from the second on, let statements be prepared unless the connection goes to a pooler."""
        self._searches += 1
        if self._searches == PREPARED_FROM and await fetch_value(
            self, IS_DIRECT, [self.info.backend_pid, _own_port(self)]
        ):
            self.prepare_threshold = sys.maxsize  # only what asks for it is prepared

    async def cancel_safe(self, *, timeout: float = CANCEL_SECONDS) -> None:  # noqa: ASYNC109 - the driver's
        """Ask the server to cancel the running statement, for up to a second."""
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_SECONDS))
        except psycopg.Error:
            self.pgconn.finish()  # the pool makes another
            raise


def is_prepared(connection: Connection, text: object) -> bool | None:
    """Return `prepare` for the driver: True for a statement in bytes on a connection of the pool, because it recurs."""
    # None leaves a caller's connection to its own rules.
    return (isinstance(connection, PooledConnection) and isinstance(text, bytes)) or None


def _own_port(connection: Connection) -> int:
    """Return the client's port of a connection over TCP; 0 over a Unix socket."""
    with socket.fromfd(connection.fileno(), -1, -1) as copy:
        return int(copy.getsockname()[1]) if copy.family in (socket.AF_INET, socket.AF_INET6) else 0


def starting_with(first: PooledConnection) -> type[PooledConnection]:
    """Return a connection class whose first `connect` returns `first`, which is open already."""
    opened = [first]

    class Started(PooledConnection):
        @classmethod
        async def connect(cls, *arguments: Any, **options: Any) -> PooledConnection:  # type: ignore[override]
            return opened.pop() if opened else await super().connect(*arguments, **options)

    return Started


async def configure(connection: Connection) -> None:
    """Set up a new connection of semlex's pool: times, isolation level, size of the send buffer."""
    read_times_as_utc(connection)
    # Sent with BEGIN, whatever the default of the database is.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    # So that a server on this machine has work while COPY rows are made. A Unix socket holds about 100 kB of rows, half
    # a millisecond of work for the server. (TCP adapts automatically.)
    if connection.info.host.startswith("/"):
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


async def reconnect(pool: AsyncConnectionPool[Any]) -> None:
    """Restart the pool's attempts to connect, so that pauses are short again, if a caller waits for a connection."""
    if pool.get_stats().get("requests_waiting"):
        await pool.check()  # without a connection, it only makes one


def figures_of(pool: AsyncConnectionPool[Any], queue: ConnectionQueue | None = None) -> dict[str, int]:
    """Return the connections of a pool (``size``, ``idle``) and the callers ``waiting`` for one."""
    found = pool.get_stats()
    names = {"size": "pool_size", "idle": "pool_available", "waiting": "requests_waiting"}
    figures = {name: int(found.get(own, 0)) for name, own in names.items()}
    return figures if queue is None else figures | {"waiting": figures["waiting"] + queue.waiting}


# Each system call that releases the interpreter lets a busy thread take it, for 5 ms. The driver releases it when it
# looks whether it can write, when it writes, when it reads, and in the second round of the event loop before the task
# continues. A pipeline writes without releasing it. Below, only the read is left, and if reading ahead is allowed, not
# even that: the answer is read before the driver reads, which then finds nothing to do. Only work that can be repeated
# may read ahead: the driver's own read finds the end of a connection that the server has closed behind its answer, and
# gives up that answer.

# A task that never has to wait lets others run after this time.
BUSY_SECONDS = 0.01
_others_ran = 0.0


async def waited(gen: PQGen[RV], pgconn: PGconn, *, reads_ahead: bool = False) -> RV:
    """Run a generator of the driver to its end, on a connection in non-blocking mode, and return its result."""
    global _others_ran  # noqa: PLW0603 - of the process, like the driver's own
    try:
        wanted = next(gen)
        if wanted & WAIT_W:
            wanted = gen.send(READY_W)
    except StopIteration as ended:
        if time.monotonic() - _others_ran >= BUSY_SECONDS:
            await asyncio.sleep(0)
            _others_ran = time.monotonic()
        value: RV = ended.value
        return value
    answer = Answer(gen, pgconn, wanted, reads_ahead=reads_ahead)
    try:
        return await answer
    finally:
        answer.stop_listening()
        _others_ran = time.monotonic()


class Answer(asyncio.Future[RV]):
    """Runs a generator of the driver; the callback that receives the result resumes the awaiting task at once."""

    def __init__(self, gen: PQGen[RV], pgconn: PGconn, wanted: int, *, reads_ahead: bool) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self._gen, self._pgconn = gen, pgconn
        self._reads_ahead = reads_ahead
        self._socket = pgconn.socket
        self._reads = self._writes = False
        self._go_on: Callable[[], object] | None = None
        self._listen(wanted)

    def _listen(self, wanted: int) -> None:
        """Call `_ready` when the socket is ready to be read, or to be written while data are still to be sent."""
        loop, reads = self.get_loop(), bool(wanted & WAIT_R)
        writes = bool(wanted & WAIT_W or self._pgconn.flush())
        try:
            if reads and not self._reads:
                loop.add_reader(self._socket, self._ready, READY_R)
            elif self._reads and not reads:
                loop.remove_reader(self._socket)
            if writes and not self._writes:
                loop.add_writer(self._socket, self._ready, READY_W)
            elif self._writes and not writes:
                loop.remove_writer(self._socket)
        except OSError as error:
            raise psycopg.OperationalError("connection socket closed") from error
        self._reads, self._writes = reads, writes
        self._wanted = wanted

    def stop_listening(self) -> None:
        """Stop watching the socket."""
        if self._reads:
            self.get_loop().remove_reader(self._socket)
        if self._writes:
            self.get_loop().remove_writer(self._socket)
        self._reads = self._writes = False

    def _ready(self, ready: int) -> None:
        """Resume the generator; when the generator has ended, resume the task that awaits its result."""
        if self.done():
            return
        if self._reads_ahead and ready == READY_R:
            with suppress(psycopg.OperationalError):  # which the driver meets as well
                self._pgconn.consume_input()
        try:
            # A socket that can be written although nobody wants it takes the rest of what was sent.
            self._listen(self._gen.send(ready) if ready & self._wanted else self._wanted)
        except StopIteration as ended:
            self.set_result(ended.value)
        except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
            self.set_exception(error)
        else:
            return
        self.stop_listening()
        # Without what refers back to it, an answer is freed with its rows as soon as they were taken.
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()

    def add_done_callback(self, go_on: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Keep the callback with which asyncio resumes the awaiting task; it is called right when the result is set."""
        self._go_on = partial((context or copy_context()).run, go_on, self)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel; the awaiting task continues in the next iteration of the event loop."""
        if not super().cancel(msg):
            return False
        self.stop_listening()
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            self.get_loop().call_soon(go_on)
        return True


class Interrupted:
    """Wraps a generator; raises an interruption first, so that the driver's `wait` handles it, and then continues."""

    def __init__(self, gen: PQGen[Any], reason: BaseException) -> None:
        self._gen = gen
        self._reason: BaseException | None = reason

    def __next__(self) -> int:
        """Raise the interruption; when resumed, continue."""
        if self._reason is not None:
            reason, self._reason = self._reason, None
            raise reason
        return next(self._gen)

    def send(self, ready: int) -> int:
        """Continue the wrapped generator."""
        return self._gen.send(ready)


class Pipeline(psycopg.AsyncPipeline):
    """A pipeline of the driver that sends each statement immediately, and reads answers only when they are wanted."""

    # If a later driver has no such method, it sends as it is made.

    def _communicate_gen(self) -> PQGen[None]:
        is_wanted = bool(self.command_queue) and self.command_queue[-1] == self.pgconn.pipeline_sync
        while self.command_queue:
            self.command_queue.popleft()()
        self.pgconn.flush()  # the rest, if the server does not take all of it, while waiting
        if is_wanted:
            yield from super()._communicate_gen()
