"""A connection of its own beside the pool, for work that needs a session to itself."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict

from semlex.store.postgres.addresses import describe
from semlex.store.postgres.errors import translate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.postgres.connection import Connection

# A peer that vanished is noticed after about a minute instead of the system's two hours.
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}


def connection_options(url: str) -> dict[str, Any]:
    """How every connection of ours to a server is made."""
    named = conninfo_to_dict(url)
    options: dict[str, Any] = {name: value for name, value in KEEPALIVES.items() if name not in named}
    return options | {"autocommit": True, "prepare_threshold": None, "client_encoding": "utf8"}


def pooled_options(url: str, timeout: float) -> dict[str, Any]:
    """How a connection of the pool is made: an attempt that nothing answers ends, so that another one can begin."""
    limit = {} if "connect_timeout" in conninfo_to_dict(url) else {"connect_timeout": max(1, round(timeout))}
    return connection_options(url) | limit


@asynccontextmanager
async def own_connection(url: str, timeout: float) -> AsyncIterator[Connection]:  # noqa: ASYNC109 - of the driver
    """Opens a connection, and closes it at the end.

    Args:
        timeout: Seconds to wait for the server.
    """
    try:
        connection = await psycopg.AsyncConnection.connect(
            url, connect_timeout=max(1, round(timeout)), **connection_options(url)
        )
    except psycopg.Error as error:
        raise translate(error, f"connect to {describe(url)}", url) from None
    try:
        yield connection
    finally:
        await connection.close()


Pooling = Literal["none", "session", "transaction"]
"""No pooler; one that lends a session for as long as it looks; one that has lent several to one connection."""
POOLING_LOOKS = 5


async def look_for_pooler(connection: Connection) -> Pooling:
    """What stands between this connection and the server.

    A pooler in transaction mode that has one idle session may lend the same one every time.

    Args:
        connection: Idle, and in no transaction: every statement is one of its own.
    """
    served = set()
    for _ in range(POOLING_LOOKS):
        cursor = await connection.execute("SELECT pg_catalog.pg_backend_pid()")
        served |= {pid for (pid,) in await cursor.fetchall()}
    if len(served) > 1:
        return "transaction"
    return "none" if served == {connection.info.backend_pid} else "session"


async def is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between: its connections are told another process than the one that serves them."""
    cursor = await connection.execute("SELECT pg_backend_pid()")
    row = await cursor.fetchone()
    return row is None or row[0] != connection.info.backend_pid
