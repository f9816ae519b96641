"""Set server settings in every transaction, so that results do not depend on how a session was set up."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from psycopg import IsolationLevel, sql

from semlex.errors import UnsupportedServerError
from semlex.store.postgres.rows import fetch_value, only_row

if TYPE_CHECKING:
    from datetime import datetime

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


def local_settings(**settings: str | int) -> sql.Composed:
    """Return the statement of `set_local`."""
    return sql.SQL("SELECT {}").format(_calls(tuple(settings.items())))


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
    return local_settings(**dict(settings)).as_bytes()


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
