"""The driver's connection, as the store's functions take it."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from semlex.errors import ConfigurationError, ConnectionFailedError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

Connection = psycopg.AsyncConnection[Any]
EXPECTED = "connection must be one of psycopg 3, of Django, or of SQLAlchemy on psycopg 3"


class DjangoConnection(Protocol):
    """Django's wrapper of a connection."""

    def ensure_connection(self) -> None:
        """Connect if need be."""


class SqlalchemyConnection(Protocol):
    """A session or a connection of SQLAlchemy."""

    def in_transaction(self) -> bool:
        """Whether it has begun a transaction."""
        ...


CallersConnection: TypeAlias = (
    "psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | DjangoConnection | SqlalchemyConnection"
)
# So often a lock that another thread holds is asked for again.
LOCK_SECONDS = 0.001


class _OwnersLock:
    """The lock of a synchronous connection: while it is held, no thread of the owner sends a statement."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - a thread releases it
            await asyncio.sleep(LOCK_SECONDS)

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class SharedConnection(psycopg.AsyncConnection[Any]):
    """The session of a synchronous connection, driven by an event loop; the transaction is one and the same.

    It never begins or ends its owner's transaction. It prepares no statements, whose names could be the owner's.
    """

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
        """The owner closes the session."""


def callers_connection(given: Any) -> Connection:
    """Return the driver's connection behind what a caller gives, with SQLAlchemy in a transaction that it knows of."""
    if isinstance(given, psycopg.AsyncConnection):
        return given
    if isinstance(given, psycopg.Connection):
        return SharedConnection(given)
    if callable(getattr(given, "ensure_connection", None)):
        given.ensure_connection()
        return _of_psycopg(given.connection)
    if hasattr(given, "sync_session"):
        raise ConfigurationError("an AsyncSession gets its connection by an await: give 'await session.connection()'")
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
    kind = type(given)
    raise ConfigurationError(f"{EXPECTED}; got {kind.__module__}.{kind.__name__}".replace("builtins.", ""))


async def join(connection: Connection) -> None:
    """Begin the caller's transaction if it has not begun; in autocommit there is none to begin."""
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
    """Rows as tuples and placeholders by name, whatever cursors the user's connections make."""
    own = connection.row_factory, connection.cursor_factory
    connection.row_factory, connection.cursor_factory = tuple_row, psycopg.AsyncCursor
    try:
        yield
    finally:
        connection.row_factory, connection.cursor_factory = own


def check_usable(connection: Connection) -> None:
    """Refuses a connection of the user's on which no statement can run."""
    if connection.closed:
        raise ConnectionFailedError("the connection that was given as connection= is closed; open another")
    if connection.info.transaction_status == TransactionStatus.INERROR:
        raise ConfigurationError(
            "the transaction of the connection that was given as connection= has failed; roll it back first"
        )
    if isinstance(connection, SharedConnection) and connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConfigurationError("the connection is inside a 'with connection.pipeline()': leave that first")
