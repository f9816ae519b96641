"""Server settings that every transaction fixes, so that a session of any kind reads and writes the same.

They come from a role, a database, the environment or the user's own connection. Ours are local to a transaction.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.pq import Format

from semlex.errors import UnsupportedServerError

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection

# All names of semlex are qualified; built-in functions and operators are found here and nowhere else, so that a schema
# that somebody else can write to cannot put its own in front.
SEARCH_PATH = "pg_catalog, pg_temp"
SETTINGS = {
    "search_path": SEARCH_PATH,
    # COPY sends UTF-8.
    "client_encoding": "UTF8",
    # The driver escapes bytes by it.
    "standard_conforming_strings": "on",
    # Else NULL in an array is the word "NULL".
    "array_nulls": "on",
}
# Compiling a query that runs for a few milliseconds takes longer than the query.
READ_SETTINGS = SETTINGS | {"jit": "off"}
# What the driver asks its own connection for before it encodes a parameter, and the value that it must see.
_TRACKED = {b"client_encoding": (b"UTF8", b"UTF-8"), b"standard_conforming_strings": (b"on",)}
LOCK_TIMEOUT_SECONDS = 60
TIMESTAMPTZ = psycopg.postgres.types["timestamptz"].oid
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
FIRST_TIME = datetime.min.replace(tzinfo=UTC)
LAST_TIME = datetime.max.replace(tzinfo=UTC)


def check_encoding(connection: Connection) -> None:
    """Refuses a database that cannot hold every text. No query is sent: the server reports it with the connection."""
    encoding = connection.pgconn.parameter_status(b"server_encoding")
    if encoding not in (None, b"UTF8"):
        raise UnsupportedServerError(
            f"the database {connection.info.dbname!r} has the encoding {encoding.decode('ascii', 'replace')}, which "
            "cannot hold every text; make one with: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0;"
        )


def knows_settings(connection: Connection) -> bool:
    """Whether the driver knows that the session has semlex's settings, so that it sends nothing in another form."""
    return all(connection.pgconn.parameter_status(name) in (None, *known) for name, known in _TRACKED.items())


async def set_local(connection: Connection, **settings: str | int) -> None:
    """Sets server settings for the rest of the transaction; a double underscore stands for the dot in a name."""
    await connection.execute(_setting_calls(tuple(settings.items())))


async def set_for_session(connection: Connection, **settings: str | int) -> None:
    """As `set_local`, until the connection is closed; for one of our own, outside a transaction."""
    calls = _calls(tuple(settings.items()), local=False)
    await connection.execute(sql.SQL("SELECT {}").format(calls))


def of_role(role: str | None) -> dict[str, str]:
    """The setting that makes a transaction that of a role; None leaves it the login's."""
    return {} if role is None else {"role": role}


async def begin_writing(connection: Connection, role: str | None = None) -> None:
    """The settings of a write that has its own transaction.

    A lock is not waited for without end, unless the session has its own limit. The server notices within about a
    minute that we have vanished, and lets go of what we have locked.

    Args:
        connection: In the transaction.
    """
    await connection.execute(_write_settings(role))


async def server_time(connection: Connection) -> datetime:
    """The server's clock, as a value: what several programs go by is no time of one of them."""
    cursor = cursor_with_times(connection)
    await cursor.execute("SELECT pg_catalog.clock_timestamp()")
    [row] = await cursor.fetchall()
    now: datetime = row[0]
    return now


async def current_settings(connection: Connection, *, role: bool = False) -> dict[str, str]:
    """The present values of the settings that a write inside a caller's transaction changes.

    Args:
        connection: In the transaction.
    """
    cursor = await connection.execute(_CURRENT_SETTINGS)
    row = await cursor.fetchone()
    found = dict(zip(_CHANGED, row or (), strict=True))
    return found if role else {name: value for name, value in found.items() if name != "role"}


@lru_cache(maxsize=256)
def _setting_calls(settings: tuple[tuple[str, str | int], ...]) -> bytes:
    return sql.SQL("SELECT {}").format(_calls(settings)).as_bytes()


def _calls(settings: tuple[tuple[str, str | int], ...], *, local: bool = True) -> sql.Composed:
    # Qualified, because the search path may not be ours yet.
    return sql.SQL(", ").join(
        sql.SQL("pg_catalog.set_config({}, {}, {})").format(name.replace("__", "."), str(value), local)
        for name, value in settings
    )


# Changes of tables wait for their locks in their own way.
_CHANGED = (*SETTINGS, "lock_timeout", "role")
_CURRENT_SETTINGS = (
    sql.SQL("SELECT {}")
    .format(sql.SQL(", ").join(sql.SQL("pg_catalog.current_setting({})").format(name) for name in _CHANGED))
    .as_bytes()
)
_KEEPALIVES = (("tcp_keepalives_idle", 30), ("tcp_keepalives_interval", 10), ("tcp_keepalives_count", 3))


@lru_cache(maxsize=256)
def _write_settings(role: str | None) -> bytes:
    calls = _calls((*SETTINGS.items(), *of_role(role).items()))
    # Of systems that lack tcp_user_timeout each attempt would stand in the server's log.
    statement = sql.SQL(
        "SELECT {}, {}, pg_catalog.set_config('lock_timeout', "
        "CASE WHEN pg_catalog.current_setting('lock_timeout') OPERATOR(pg_catalog.=) '0' THEN {} "
        "ELSE pg_catalog.current_setting('lock_timeout') END, true), "
        "CASE WHEN pg_catalog.version() OPERATOR(pg_catalog.~~) '%linux%' "
        "THEN pg_catalog.set_config('tcp_user_timeout', '60s', true) END"
    )
    return statement.format(calls, _calls(_KEEPALIVES), sql.Literal(f"{LOCK_TIMEOUT_SECONDS}s")).as_bytes()


class _UtcLoader(Loader):
    """A timestamptz as UTC, whatever the session's zone; a time beyond Python's years as the first or last of them.

    The driver moves a time to the session's zone, and then one row near the end of the years fails the whole answer.
    """

    format = Format.BINARY

    def load(self, data: Any) -> datetime:
        microseconds = int.from_bytes(data, "big", signed=True)
        try:
            return EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            return FIRST_TIME if microseconds < 0 else LAST_TIME


def read_times_as_utc(connection: Connection) -> None:
    """Makes all times UTC that are read, in binary form, through a connection of semlex's pool."""
    connection.adapters.register_loader("timestamptz", _UtcLoader)


def cursor_with_times(connection: Connection) -> psycopg.AsyncCursor[Any]:
    """A cursor whose times are UTC."""
    cursor = connection.cursor(binary=True)
    if connection.adapters.get_loader(TIMESTAMPTZ, Format.BINARY) is not _UtcLoader:  # the user's own connection
        cursor.adapters.register_loader(TIMESTAMPTZ, _UtcLoader)
    return cursor
