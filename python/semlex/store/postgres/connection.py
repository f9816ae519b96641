"""The driver's connection, as the store's functions take it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row

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
