"""Set server settings in every transaction, so that results do not depend on how a session was set up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import IsolationLevel, sql
from psycopg.adapt import Loader
from psycopg.pq import Format

from semlex.errors import UnsupportedServerError

if TYPE_CHECKING:
    from psycopg.abc import Params
    from psycopg.abc import QueryNoTemplate as Query

    from semlex.store.postgres.connection import Connection

# All names of semlex are qualified; built-in functions and operators are found only here, so that a schema that others
# can write to cannot shadow them.
SEARCH_PATH = "pg_catalog, pg_temp"
# A role, a database, the environment or the user's own connection may change these settings. Semlex's are local to a
# transaction.
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
# A plan that is kept may be that of a table that was empty.
READ_SETTINGS = SETTINGS | {"jit": "off", "plan_cache_mode": "force_custom_plan"}
# Parameters of the connection by which the driver encodes values, and what they must be.
_TRACKED = {b"client_encoding": (b"UTF8", b"UTF-8"), b"standard_conforming_strings": (b"on",)}
LOCK_TIMEOUT_SECONDS = 60
TIMESTAMPTZ = psycopg.postgres.types["timestamptz"].oid
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
FIRST_TIME = datetime.min.replace(tzinfo=UTC)
LAST_TIME = datetime.max.replace(tzinfo=UTC)


def check_encoding(connection: Connection) -> None:
    """Refuse a database whose encoding cannot store every text."""
    encoding = connection.pgconn.parameter_status(b"server_encoding")
    if encoding not in (None, b"UTF8"):
        raise UnsupportedServerError(
            f"the database {connection.info.dbname!r} has the encoding {encoding.decode('ascii', 'replace')}, which "
            "cannot hold every text; make another one with: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0;"
        )


def knows_settings(connection: Connection) -> bool:
    """Return whether the driver knows that semlex's settings are in force, so that it encodes values by them."""
    return all(connection.pgconn.parameter_status(name) in (None, *known) for name, known in _TRACKED.items())


async def set_local(connection: Connection, **settings: str | int) -> None:
    """Set server settings for the rest of the transaction; write a double underscore for a dot in a name."""
    await connection.execute(_setting_calls(tuple(settings.items())))


@lru_cache(maxsize=256)
def asking_calls(question: bytes, settings: tuple[tuple[str, str | int], ...]) -> bytes:
    """Return a statement that selects the value of `question`, then sets settings as `set_local` does."""
    # The settings hold from the next statement on: all names in the question are qualified.
    return sql.SQL("SELECT ({}), {}").format(sql.SQL(question.decode()), _calls(settings)).as_bytes()


async def set_for_session(connection: Connection, **settings: str | int) -> None:
    """Set server settings until the connection is closed; only for connections that semlex opened."""
    calls = _calls(tuple(settings.items()), local=False)
    await connection.execute(sql.SQL("SELECT {}").format(calls))


def of_role(role: str | None) -> dict[str, str]:
    """Return the setting that gives a transaction the rights of a role; None keeps the login's."""
    return {} if role is None else {"role": role}


async def begin_writing(connection: Connection, role: str | None = None, *, one_snapshot: bool = False) -> None:
    """Set isolation level and settings at the beginning of a write's own transaction."""
    # Waiting for a lock has a limit, unless the session has one of its own. If this process vanishes, the server
    # notices within about a minute and releases its locks.
    if one_snapshot:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    elif connection.isolation_level != IsolationLevel.READ_COMMITTED:  # of semlex's pool it is
        # Set it whatever the default of the database is: what is read behind a lock must be what its last holder has
        # written.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    await connection.execute(_write_settings(role))


async def server_time(connection: Connection) -> datetime:
    """Return the server's time, because programs on several machines that share data need one clock."""
    now: datetime = await fetch_value(connection, "SELECT pg_catalog.clock_timestamp()")
    return now


async def current_settings(connection: Connection, *, role: bool = False) -> dict[str, str]:
    """Return the present values of the settings that a write inside a caller's transaction changes."""
    found = dict(zip(_CHANGED, await only_row(connection, _CURRENT_SETTINGS), strict=True))
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
    # On systems without tcp_user_timeout each attempt would write a line into the server's log.
    statement = sql.SQL(
        "SELECT {}, {}, pg_catalog.set_config('lock_timeout', "
        "CASE WHEN pg_catalog.current_setting('lock_timeout') OPERATOR(pg_catalog.=) '0' THEN {} "
        "ELSE pg_catalog.current_setting('lock_timeout') END, true), "
        "CASE WHEN pg_catalog.version() OPERATOR(pg_catalog.~~) '%linux%' "
        "THEN pg_catalog.set_config('tcp_user_timeout', '60s', true) END"
    )
    return statement.format(calls, _calls(_KEEPALIVES), sql.Literal(f"{LOCK_TIMEOUT_SECONDS}s")).as_bytes()


class _UtcLoader(Loader):
    """Reads timestamptz as UTC, whatever the session's zone; clamps times beyond Python's range of years."""

    # The driver converts times to the session's zone, where one row near the end of the range fails the whole answer.

    format = Format.BINARY

    def load(self, data: Any) -> datetime:
        microseconds = int.from_bytes(data, "big", signed=True)
        try:
            return EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            return FIRST_TIME if microseconds < 0 else LAST_TIME


def read_times_as_utc(connection: Connection) -> None:
    """Read all binary times as UTC on a connection of semlex's pool."""
    connection.adapters.register_loader("timestamptz", _UtcLoader)


def cursor_with_times(connection: Connection) -> psycopg.AsyncCursor[Any]:
    """Return a cursor whose times are UTC."""
    cursor = connection.cursor(binary=True)
    if connection.adapters.get_loader(TIMESTAMPTZ, Format.BINARY) is not _UtcLoader:  # the user's own connection
        cursor.adapters.register_loader(TIMESTAMPTZ, _UtcLoader)
    return cursor


# The results are binary: the portal keeps its snapshot until the next statement (see `indexes.build.is_alone`).
async def fetch_rows(connection: Connection, statement: Query, values: Params | None = None) -> list[Any]:
    """Run a statement and return its rows as tuples; times are UTC."""
    cursor = await cursor_with_times(connection).execute(statement, values)
    return await cursor.fetchall()


async def fetch_row(connection: Connection, statement: Query, values: Params | None = None) -> tuple[Any, ...] | None:
    """Run a statement and return its first row, or None if it returns no row; times are UTC."""
    cursor = await cursor_with_times(connection).execute(statement, values)
    row: tuple[Any, ...] | None = await cursor.fetchone()
    return row


async def fetch_value(connection: Connection, statement: Query, values: Params | None = None) -> Any:
    """Run a statement and return the first value of its first row, or None if it returns no row; times are UTC."""
    row = await fetch_row(connection, statement, values)
    return None if row is None else row[0]


async def only_row(connection: Connection, statement: Query, values: Params | None = None) -> tuple[Any, ...]:
    """Return the row of a statement that always returns exactly one; times are UTC."""
    row: tuple[Any, ...]
    (row,) = await fetch_rows(connection, statement, values)
    return row
