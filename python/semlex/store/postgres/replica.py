"""Read on a standby: connections to it, how far it lags, and reading on the primary while it cannot answer."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.errors import ConfigurationError, ConnectionFailedError, ModelMismatchError, SearchTimeoutError, StoreError
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.connection import Connection, own_connection
from semlex.store.postgres.database import Database
from semlex.store.postgres.rows import only_row
from semlex.types.results import ReadServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.clock import Clock
    from semlex.store.postgres.pool import PooledConnection
    from semlex.store.postgres.snapshot import Snapshot

T = TypeVar("T")
logger = logging.getLogger("semlex")

# How long a replica may take to accept a connection, or to say how far it lags.
CONNECT_SECONDS = 2.0
# A replica that could not be reached is tried again after this time, beside the reads that the primary answers.
RETRY_SECONDS = 5.0
# A connection asks at most this often how far its server lags.
LOOK_SECONDS = 1.0
# Share of a deadline that a replica has; the rest is for the primary.
DEADLINE_SHARE = 0.5
# Reasons are shown to everybody who searches: no addresses of servers.
NOT_LOOKED = "no replica has answered yet"
UNREACHABLE = "no replica can be reached; the log says why"
CLOSED = "the client was closed"
# Attributes of an address that lead to the primary, or leave it open.
OF_PRIMARY = (None, "any", "primary", "read-write")
# The standby knows what it has received; what the primary has not sent yet it cannot know. Without a receiver, or after
# all is replayed long ago, the age of the newest transaction is an upper bound.
LAG = (
    b"SELECT pg_catalog.pg_is_in_recovery(), CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_wal_lsn_diff("
    b"pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())::pg_catalog.int8 END, "
    b"CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN NULL "
    b"WHEN pg_catalog.pg_last_wal_receive_lsn() OPERATOR(pg_catalog.<=) pg_catalog.pg_last_wal_replay_lsn() "
    b"AND EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver) THEN 0 ELSE EXTRACT(epoch FROM "
    b"pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.pg_last_xact_replay_timestamp()) END"
    b"::pg_catalog.float8"
)
IN_RECOVERY = b"SELECT pg_catalog.pg_is_in_recovery(), NULL, NULL"


def address_of_primary(url: str) -> str:
    """Return the address with which writes find the primary, even if it names several hosts."""
    given = conninfo_to_dict(url).get("target_session_attrs")
    if given not in OF_PRIMARY:
        raise ConfigurationError(
            "with read_from='replica', semlex itself chooses the servers for reads and for writes: leave "
            f"target_session_attrs={given} out of the database URL"
        )
    return url if given in ("primary", "read-write") else make_conninfo(url, target_session_attrs="primary")


class StandbyReads(Database):
    """Reads on connections to a standby; a read whose connection is lost is not retried here: the primary answers."""

    is_replica = True

    async def _read(self, work: Callable[[Snapshot], Awaitable[T]], connection: Connection, **options: Any) -> T:
        read_from = await self._look(cast("PooledConnection", connection))

        async def known(snapshot: Snapshot) -> T:
            snapshot.read_from = read_from
            return await work(snapshot)

        return await super()._read(known, connection, **options)

    async def _look(self, connection: PooledConnection) -> ReadServer:
        """Return the standby to which a connection leads, with its lag; raise if that server has become a primary."""
        now = self.clock.monotonic()
        seen = connection.seen_server
        if seen is not None and now - seen[0] < LOOK_SECONDS:
            return seen[1]
        try:
            async with self.clock.timeout(CONNECT_SECONDS):
                try:
                    is_standby, lag_bytes, lag_seconds = await only_row(connection, LAG)
                except psycopg.Error:
                    if connection.closed:
                        raise
                    # Some managed standbys have no such functions.
                    is_standby, lag_bytes, lag_seconds = await only_row(connection, IN_RECOVERY)
        except TimeoutError:
            connection.pgconn.finish()
            raise psycopg.OperationalError("the replica did not answer in time") from None
        if not is_standby:
            connection.pgconn.finish()  # for another one, to a standby
            raise psycopg.OperationalError("the replica has become a primary")
        found = ReadServer("replica", lag_seconds, lag_bytes)
        connection.seen_server = (now, found)
        return found


class Replica:
    """A standby for reads, with whether it can be reached now; while it cannot, the primary answers."""

    def __init__(self, url: str, *, max_size: int, timeout: float, clock: Clock) -> None:
        # `timeout` is in seconds, for a free connection.
        self._url = make_conninfo(url, target_session_attrs="standby")
        self._clock = clock
        self._database = StandbyReads(
            self._url, max_size=max_size, timeout=min(timeout, CONNECT_SECONDS), queue_timeout=timeout, clock=clock
        )
        self._is_open = False
        # Why it cannot be read; None if it can. Tried again from `_retry_at` on.
        self._away: str | None = NOT_LOOKED
        self._retry_at = -1.0
        self._probe: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close the connections; reads that are under way go to the primary."""
        self._away, self._retry_at = CLOSED, math.inf  # what was opened now would stay open
        try:
            if self._probe is not None:
                self._probe.cancel()
                await asyncio.wait([self._probe])
        finally:
            await self._database.close()

    async def read_snapshot(
        self,
        primary: Database,
        doing: str,
        work: Callable[[Snapshot], Awaitable[T]],
        *,
        deadline: float | None = None,
        **options: Any,
    ) -> T:
        """Run `work` on a standby as `Database.read_snapshot` does; if it cannot answer, on the primary."""
        # A standby may lack what the primary has already: a collection, a column, a set of vectors.
        ends = None if deadline is None else self._clock.monotonic() + deadline
        for _ in range(2):
            reason = await self._unreachable(ends)
            if reason is not None:
                break
            reading = self._database.with_view_of(primary)
            try:
                return await reading.read_snapshot(doing, work, deadline=self._share(ends), **options)
            except (StoreError, ModelMismatchError, SearchTimeoutError) as error:
                reason, is_lost = self._reason(error), isinstance(error, ConnectionFailedError)
                if is_lost or reading.is_silent:
                    self._doubt(NOT_LOOKED if is_lost else reason, error)
                if not is_lost:
                    break

        async def known(snapshot: Snapshot) -> T:
            snapshot.read_from = ReadServer("primary", reason=reason)
            return await work(snapshot)

        left = None if ends is None else max(ends - self._clock.monotonic(), 0.0)
        return await primary.read_snapshot(doing, known, deadline=left, **options)

    def _share(self, ends: float | None) -> float | None:
        """Return how many of the seconds until `ends` a standby may take."""
        return None if ends is None else max(ends - self._clock.monotonic(), 0.0) * DEADLINE_SHARE

    async def _unreachable(self, ends: float | None) -> str | None:
        """Return why no standby can be read now, or None; start the next attempt to reach one if it is due."""
        if self._away is not None and self._clock.monotonic() >= self._retry_at:
            probe = self._probing()
            # A standby that was there is waited for, for a moment, and so is the first one.
            if self._away is NOT_LOOKED:
                share = self._share(ends)
                await self._clock.wait_for_tasks(
                    {probe}, CONNECT_SECONDS if share is None else min(CONNECT_SECONDS, share)
                )
        return self._away

    def _reason(self, error: Exception) -> str:
        if isinstance(error, ConnectionFailedError):
            return UNREACHABLE
        if isinstance(error, SearchTimeoutError):
            return "the replica did not answer in time"
        return f"the replica could not answer: {_first_line(error)}"

    def _doubt(self, reason: str, error: Exception) -> None:
        """Read on the primary until a new connection shows that the standby is available."""
        if self._away is None:
            self._away, self._retry_at = reason, -1.0
            logger.warning("a replica did not answer: %s", _first_line(error))
            self._probing()

    def _probing(self) -> asyncio.Task[None]:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().create_task(self._try())
        return self._probe

    async def _try(self) -> None:
        try:
            if self._is_open:
                async with own_connection(self._url, CONNECT_SECONDS):
                    await self._database.renew_connections()
            else:
                await self._database.open()
                self._is_open = True
        except Exception as error:  # noqa: BLE001 - whatever it is, the primary answers
            if self._away != UNREACHABLE:
                logger.warning("no replica can be reached; reads go to the primary: %s", _first_line(error))
            self._away = UNREACHABLE
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        else:
            if self._away is not None:
                logger.info("reads go to a replica: %s", describe(self._url))
            self._away = None


def _first_line(error: Exception) -> str:
    # The driver lists what failed at every host.
    return str(error).partition("\n")[0]
