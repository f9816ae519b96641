"""Keep followed tables in step, in a worker: compare the table, or store the changes in its queue."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from semlex.errors import SemlexError, StoreError, WorkAbandonedError
from semlex.ingest.followed.run import TableRun
from semlex.store.followed.definitions import end_lease, read_tables, take_lease
from semlex.store.followed.queue import ChangeQueue
from semlex.store.postgres.database import write_guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.ingest.indexer import Indexer
    from semlex.parameters import WantedOptions
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import WriteGuard
    from semlex.types.followed import TableSync

logger = logging.getLogger("semlex")

# Share of a lease after which it is renewed.
RENEWED_AFTER = 1 / 3


class TableKeeper:
    """Keeps one followed table in step, under a lease that is renewed while it works."""

    # A lease only saves effort: two workers that do the same work write the same rows.
    def __init__(self, indexer: Indexer, name: str, wanted: WantedOptions, guard: WriteGuard, seconds: float) -> None:
        self._indexer, self._name, self._wanted = indexer, name, wanted
        # The guard is set around every transaction of a run; `seconds` is the length of a lease.
        self._guard, self._seconds = guard, seconds
        self._database, self._names = indexer.database, indexer.collection.names

    async def look(self, compare_every: float) -> TableSync | None:
        """Read the table's changes; return None if another worker does, or if it is not followed any more."""
        # `compare_every` is the number of seconds until the next comparison, if changes are noticed by comparison.
        stored = await self._read()

        async def take(connection: Connection) -> bool:
            return stored is not None and await take_lease(connection, self._names, stored, self._seconds)

        if stored is None or not await self._database.write("take a followed table", take):
            return None

        next_in = compare_every if stored.table.changes == "comparison" else None
        try:
            async with self._renewed(lambda c: take_lease(c, self._names, stored, self._seconds, again=True)):
                return await self._run(stored, next_in=next_in)
        finally:
            await self._end("release a followed table", lambda c: end_lease(c, self._names, stored))

    async def store_changes(self, delay: float) -> TableSync | None:
        """Store the changes in the queue; return None if other workers do, or if the table is not followed any more."""
        # Entries that could not be stored are due again after `delay` seconds.
        stored = await self._read()
        if stored is None:
            return None
        queue = ChangeQueue(self._names, stored.source_id)
        changes = await self._database.write("claim changes", lambda c: queue.claim(c, seconds=self._seconds))
        if not changes:
            return None
        seconds = delay
        try:
            async with self._renewed(lambda c: queue.release(c, changes, seconds=self._seconds)):
                report = await self._run(stored, changes=changes)
            seconds = 0  # of rows that go on changing
        except (asyncio.CancelledError, WorkAbandonedError):
            seconds = 0
            raise
        finally:
            await self._end("give changes back", lambda c: queue.release(c, changes, seconds=seconds))
        return report

    async def _read(self) -> StoredTable | None:
        found = await self._database.read("read a followed table", lambda c: read_tables(c, self._names, self._name))
        return found[0] if found else None

    async def _run(self, stored: StoredTable, **options: Any) -> TableSync:
        """Run in a task whose transactions, and those of the tasks that it starts, are guarded."""

        async def guarded() -> TableSync:
            write_guard.set(self._guard)
            return await TableRun(self._indexer, stored, self._wanted).run(**options)

        return await asyncio.create_task(guarded())

    @asynccontextmanager
    async def _renewed(self, renew: Callable[[Connection], Awaitable[object]]) -> AsyncIterator[None]:
        """Renew a lease until the block ends."""

        async def keep() -> None:
            while True:
                await self._database.clock.sleep(self._seconds * RENEWED_AFTER)
                try:
                    await self._database.write("renew the lease of a followed table", renew)
                except StoreError as error:  # once more in a moment
                    logger.info("%s: its lease could not be renewed: %s", self._name, error)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})

    async def _end(self, doing: str, work: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            await self._database.write(doing, work)
        except SemlexError as error:  # the lease ends without it
            logger.info("%s: %s", self._name, error)
