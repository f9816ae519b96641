"""A caller's connection with a snapshot in which a search runs, and all that is stored in the same snapshot."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.schema.names import Names

AsyncConnection = psycopg.AsyncConnection[Any]


@asynccontextmanager
async def connection_of(url: str) -> AsyncIterator[AsyncConnection]:
    """Connect in autocommit mode."""
    async with await AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@asynccontextmanager
async def in_snapshot(connection: AsyncConnection) -> AsyncIterator[None]:
    """Run the block in a transaction that sees one state."""
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


async def texts_and_vectors(connection: AsyncConnection, names: Names) -> dict[str, tuple[str, list[float] | None]]:
    """Return text and vector of every chunk by its id."""
    statement = sql.SQL(
        "SELECT chunk_id, chunk_text, embedding::real[] FROM {} LEFT JOIN {} USING (document_id, chunk_id)"
    ).format(names.chunk, names.embedding(1))
    cursor = await connection.execute(statement)
    return {chunk_id: (text, vector) for chunk_id, text, vector in await cursor.fetchall()}
