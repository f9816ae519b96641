"""Run statements and return their rows; times are UTC, whatever the time zone of the session is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.pq import Format, PipelineStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.abc import Params
    from psycopg.abc import QueryNoTemplate as Query

    from semlex.store.postgres.connection import Connection

TIMESTAMPTZ = psycopg.postgres.types["timestamptz"].oid
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
FIRST_TIME = datetime.min.replace(tzinfo=UTC)
LAST_TIME = datetime.max.replace(tzinfo=UTC)


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


async def execute_all(connection: Connection, statements: Sequence[sql.Composed]) -> None:
    """Run statements that bind no values, in their order and in one round trip."""
    if statements and connection.pgconn.pipeline_status == PipelineStatus.OFF:  # a pipeline sends each separately
        statements = [sql.SQL(";\n").join(statements)]
    for statement in statements:
        await connection.execute(statement, prepare=False)
