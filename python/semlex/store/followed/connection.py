"""Connect to the database of a followed table, and fix the text form in which its values are read."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.errors import ConfigurationError
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.connection import Connection, own_connection, plain_cursors
from semlex.store.postgres.errors import translate
from semlex.store.postgres.settings import set_local
from semlex.store.postgres.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from semlex.store.postgres.database import Database
    from semlex.types.followed import FollowedTable

T = TypeVar("T")
ENVIRONMENT = "env:"
FIRST_WITH_REQUIRED_WAYS = 160_000  # version of libpq; PSYCOPG_IMPL=python loads the one of the system
# Values as text are the same in every session.
FORMATTING: Mapping[str, str | int] = {
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": 1,
    "bytea_output": "hex",
    "lc_monetary": "C",
}


def source_address(definition: FollowedTable) -> str | None:
    """Return the connection string of the table's database; None if the table is in the collection's database."""
    named = definition.source_database
    if named is None:
        return None
    if not named.startswith(ENVIRONMENT):
        # A role that may write definitions chose the server: it must not read a password of this process.
        knows = psycopg.pq.version() >= FIRST_WITH_REQUIRED_WAYS and "require_auth" not in conninfo_to_dict(named)
        return make_conninfo(named, require_auth="!password,!md5") if knows else named
    variable = named.removeprefix(ENVIRONMENT)
    address = os.environ.get(variable, "").strip()
    if not address:
        raise ConfigurationError(
            f"the environment variable {variable} is not set; it must hold the address of the database of "
            f"{definition.schema}.{definition.table}: set it, or name another variable or address (source_database=, "
            "--source-database)"
        )
    return address


def check_address(address: str) -> None:
    """Refuse an address that contains a password, because definitions are stored and shown."""
    if address.startswith(ENVIRONMENT):
        return
    describe(address)
    parts = conninfo_to_dict(address)
    if any(parts.get(name) for name in ("password", "sslpassword")):
        raise ConfigurationError(
            "source_database holds a password, which would be stored in the collection: put the address into an "
            "environment variable and give that variable's name (env:NAME), or put the password into ~/.pgpass"
        )


@asynccontextmanager
async def source_connection(database: Database, definition: FollowedTable) -> AsyncIterator[Connection]:
    """Yield a new connection, outside a transaction, to a followed table's own database."""
    address = source_address(definition)
    assert address is not None  # noqa: S101 - the callers have looked
    try:
        async with own_connection(address, database.timeout) as connection:
            with plain_cursors(connection):
                yield connection
    except psycopg.Error as error:
        raise translate(error, f"read {definition.schema}.{definition.table}", address) from None


async def fix_formatting(connection: Connection) -> None:
    """Fix how values are written as text, for the rest of the transaction."""
    await set_local(connection, **FORMATTING)


def formatted(work: Callable[[Connection], Awaitable[T]]) -> Callable[[Connection], Awaitable[T]]:
    """Return `work` with a call of `fix_formatting` before it."""

    async def run(connection: Connection) -> T:
        await fix_formatting(connection)
        return await work(connection)

    return run


async def read_source(
    database: Database, definition: FollowedTable, doing: str, work: Callable[[Connection], Awaitable[T]]
) -> T:
    """Run `work` in one read-only snapshot of the table's database, with `fix_formatting`."""
    if definition.source_database is None:
        return await database.read(doing, formatted(work))
    async with source_connection(database, definition) as connection, open_snapshot(connection, pipelined=False):
        return await formatted(work)(connection)
