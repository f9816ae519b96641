"""Use a caller's connection inside the caller's transaction, and open connections of semlex outside the pool."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from semlex.errors import ConfigurationError, ConnectionFailedError
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.errors import translate

if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Iterator


Connection = psycopg.AsyncConnection[Any]
C = TypeVar("C", bound=Connection)
EXPECTED = "connection must be one of psycopg 3, of Django, or of SQLAlchemy on psycopg 3"


class DjangoConnection(Protocol):
    """A connection object of Django, which wraps the driver's connection."""

    def ensure_connection(self) -> None:
        """Connect to the server unless it is connected already."""


class SqlalchemyConnection(Protocol):
    """A session or a connection of SQLAlchemy."""

    def in_transaction(self) -> bool:
        """Return whether it has begun a transaction."""
        ...


CallersConnection: TypeAlias = (
    "psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | DjangoConnection | SqlalchemyConnection"
)
# How often a lock that another thread holds is tried again.
LOCK_SECONDS = 0.001


class _OwnersLock:
    """The lock of a caller's synchronous connection; while it is held, no thread of the caller sends a statement."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - a thread releases it
            await asyncio.sleep(LOCK_SECONDS)

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class SharedConnection(psycopg.AsyncConnection[Any]):
    """Runs statements on a caller's synchronous connection from an event loop, in the same transaction."""

    # It never begins or ends its owner's transaction. It prepares no statements, whose names could be the owner's.

    def __init__(self, owner: psycopg.Connection[Any]) -> None:
        session = owner.pgconn
        handlers = session.notice_handler, session.notify_handler
        super().__init__(session)
        session.notice_handler, session.notify_handler = handlers
        self.owner = owner
        self.lock = _OwnersLock(owner.lock)  # type: ignore[assignment]
        self.prepare_threshold = None
        self._autocommit = True

    def __del__(self, *_: object) -> None:
        """Do nothing, because the owner closes the session."""


def callers_connection(given: Any) -> Connection:
    """Return the driver's connection behind a caller's object; make SQLAlchemy begin its transaction first."""
    if isinstance(given, psycopg.AsyncConnection):
        return given
    if isinstance(given, psycopg.Connection):
        return SharedConnection(given)
    if callable(getattr(given, "ensure_connection", None)):
        given.ensure_connection()
        return _of_psycopg(given.connection)
    if hasattr(given, "sync_session"):
        raise ConfigurationError(
            "an AsyncSession cannot be used directly: give its connection, by 'await session.connection()'"
        )
    given = getattr(given, "sync_connection", given)
    if callable(getattr(given, "connection", None)):
        given = given.connection()
    if not hasattr(getattr(given, "connection", None), "driver_connection"):
        return _of_psycopg(given)
    # SQLAlchemy ends only transactions that it has begun.
    if not given.in_transaction():
        given.begin()
    return _of_psycopg(given.connection.driver_connection)


def _of_psycopg(given: object) -> Connection:
    if isinstance(given, (psycopg.AsyncConnection, psycopg.Connection)):
        return callers_connection(given)
    raise ConfigurationError(f"{EXPECTED}; got {class_of(given)}")


def class_of(value: object) -> str:
    """Return the name of a value's class for a message, with the module unless the class is built in."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")


async def join(connection: Connection) -> None:
    """Begin a transaction on the caller's connection, unless one has begun or the connection is in autocommit."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        return
    # The driver sends BEGIN, as the caller wants it, before the first statement.
    if isinstance(connection, SharedConnection):
        if not connection.owner.autocommit:
            await asyncio.to_thread(connection.owner.execute, "SELECT")
    elif not connection.autocommit:
        await connection.execute("SELECT")


@contextmanager
def plain_cursors(connection: Connection) -> Iterator[None]:
    """Inside the block, return rows as tuples and take named placeholders, whatever the caller has set."""
    own = connection.row_factory, connection.cursor_factory
    connection.row_factory, connection.cursor_factory = tuple_row, psycopg.AsyncCursor
    try:
        yield
    finally:
        connection.row_factory, connection.cursor_factory = own


@contextmanager
def closed_inside_copy(connection: Connection) -> Iterator[None]:
    """Close the connection if the block is interrupted inside a COPY, which only the server can roll back then."""
    try:
        yield
    except BaseException:
        if connection.info.transaction_status == TransactionStatus.ACTIVE:
            connection.pgconn.finish()
        raise


def check_usable(connection: Connection) -> None:
    """Refuse a caller's connection on which no statement can run."""
    if connection.closed:
        raise ConnectionFailedError("the given connection is closed; open another")
    if connection.info.transaction_status == TransactionStatus.INERROR:
        raise ConfigurationError("the transaction of the given connection has failed; roll it back first")
    if isinstance(connection, SharedConnection) and connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConfigurationError("the connection is inside a 'with connection.pipeline()' block: leave the block first")


# A peer that vanished is noticed after about a minute instead of the system's two hours.
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}


def connection_options(url: str) -> dict[str, Any]:
    """Return the options for every connection that semlex opens."""
    named = conninfo_to_dict(url)
    options: dict[str, Any] = {name: value for name, value in KEEPALIVES.items() if name not in named}
    return options | {"autocommit": True, "prepare_threshold": None, "client_encoding": "utf8"}


def pooled_options(url: str, timeout: float) -> dict[str, Any]:
    """Return options of the pool's connections, with a time limit for an attempt to connect."""
    limit = {} if "connect_timeout" in conninfo_to_dict(url) else {"connect_timeout": max(1, round(timeout))}
    return connection_options(url) | limit


async def connected(url: str, timeout: float, kind: type[C]) -> C:  # noqa: ASYNC109 - of the driver
    """Open a connection of the class `kind`; wait for the server for up to `timeout` seconds."""
    try:
        return await kind.connect(url, connect_timeout=max(1, round(timeout)), **connection_options(url))
    except psycopg.Error as error:
        raise translate(error, f"connect to {describe(url)}", url) from None


@asynccontextmanager
async def own_connection(url: str, timeout: float) -> AsyncIterator[Connection]:  # noqa: ASYNC109 - of the driver
    """Open a connection, and close it at the end."""
    connection = await connected(url, timeout, psycopg.AsyncConnection)
    try:
        yield connection
    finally:
        await connection.close()


Pooling = Literal["none", "session", "transaction"]
"""``none``: no pooler; ``session``: a pooler served all checks by one session; ``transaction``: by several sessions."""
POOLING_LOOKS = 5


async def look_for_pooler(connection: Connection) -> Pooling:
    """Detect a pooler between a connection and the server; the connection must be outside a transaction."""
    # A pooler in transaction mode with a single idle session may lend the same session every time.
    served = set()
    for _ in range(POOLING_LOOKS):
        served.add(await server_process(connection))
    if len(served) > 1:
        return "transaction"
    return "none" if served == {connection.info.backend_pid} else "session"


async def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler is in between: then the process id that the client was given is not the server's."""
    return await server_process(connection) != connection.info.backend_pid


async def server_process(connection: Connection) -> int:
    """Return the process id of the server's session that runs this statement."""
    [(session,)] = await (await connection.execute("SELECT pg_catalog.pg_backend_pid()")).fetchall()
    return int(session)
