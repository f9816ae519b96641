"""Connections of semlex's pool."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import psycopg

from semlex.store.postgres.settings import read_times_as_utc

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from semlex.store.postgres.connection import Connection

# The system may allow less.
SEND_BUFFER_BYTES = 1024 * 1024
# A server that is asked to cancel a statement gets this long to take the request, on a connection of the pool.
CANCEL_SECONDS = 1.0
# The pool's pauses between two attempts to connect double until this time is over, from one second on.
RECONNECT_SECONDS = 2.0


class PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection of semlex's pool: cancelling does not wait for a server that takes no request."""

    async def cancel_safe(self, *, timeout: float = CANCEL_SECONDS) -> None:  # noqa: ASYNC109 - the driver's
        """Asks the server to cancel what runs, in a second at most."""
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_SECONDS))
        except psycopg.Error:
            self.pgconn.finish()  # the pool makes another
            raise


async def configure(connection: Connection) -> None:
    """Prepares a new connection of semlex's pool."""
    read_times_as_utc(connection)
    _widen_send_buffer(connection)


async def reconnect(pool: AsyncConnectionPool[Any]) -> None:
    """Begin the attempts to connect again, from short pauses on, while somebody waits for a connection."""
    if figures_of(pool)["waiting"]:
        await pool.check()  # without a connection, all that it does is to make one


def _widen_send_buffer(connection: Connection) -> None:
    """Lets more of a COPY be on its way, so that a server on this machine is busy while we make the next rows.

    A Unix socket holds about 100 kB of rows, half a millisecond of work for the server. (TCP adapts by itself.)
    """
    if connection.info.host.startswith("/"):
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def figures_of(pool: AsyncConnectionPool[Any]) -> dict[str, int]:
    """Connections of a pool: ``size``, ``idle``, and how many callers are ``waiting`` for one."""
    found = pool.get_stats()
    names = {"size": "pool_size", "idle": "pool_available", "waiting": "requests_waiting"}
    return {name: int(found.get(own, 0)) for name, own in names.items()}
