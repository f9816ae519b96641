"""The driver's connection, as the store's functions take it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from semlex.errors import ConfigurationError, ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.AsyncConnection[Any]


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
