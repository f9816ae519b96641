"""The part of a worker that syncs the followed tables of a schema."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from semlex.errors import (
    CollectionNotFoundError,
    ConnectionFailedError,
    SemlexError,
    StoreError,
    WorkAbandonedError,
    failure_reason,
)
from semlex.ingest.followed.run import NEXT_LOOK, TableRun
from semlex.store.followed.definitions import (
    StoredTable,
    TableState,
    bound_times,
    end_lease,
    read_states,
    read_tables,
    remove_strays,
    take_lease,
)
from semlex.store.followed.queue import ChangeQueue
from semlex.store.postgres.database import Database, WriteGuard, write_guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.ingest.indexer import Indexer
    from semlex.options.collection import WantedOptions
    from semlex.store.postgres.connection import Connection
    from semlex.types.followed import TableSync

logger = logging.getLogger("semlex")

# Share of a lease after which it is renewed.
RENEWED_AFTER = 1 / 3


class TableKeeper:
    """Syncs one followed table, under a lease that is renewed during the sync."""

    # A lease only saves effort: two workers that do the same work write the same rows.
    def __init__(self, indexer: Indexer, name: str, wanted: WantedOptions, guard: WriteGuard, seconds: float) -> None:
        self._indexer, self._name, self._wanted = indexer, name, wanted
        # The guard is set around every transaction of a run; `seconds` is the length of a lease.
        self._guard, self._seconds = guard, seconds
        self._database, self._names = indexer.database, indexer.collection.names

    async def look(self, compare_every: float) -> TableSync | None:
        """Sync the table; return None if another worker does, or if the table is not followed any more."""
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
        """Apply queued changes to the collection; return None if none can be claimed or the table is not followed."""
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
        """Sync the table in a task, and call `_guard` in each transaction of this task and of tasks that it starts."""

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
                    logger.info("followed table %s: the lease could not be renewed: %s", self._name, error)

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


# Of a table of a collection: look at it, or store what its triggers noticed.
Key = tuple[str, str, str]
# Between two reads of what is due: with triggers, whose changes should be found at once, and without.
WATCHING_SECONDS, IDLE_SECONDS = 0.15, 2.0
# Until a table that failed is tried again: doubled each time.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 5.0, 60.0
# Between removals of what is old.
REMOVING_SECONDS = 3_600.0


class FollowedTables:
    """Syncs followed tables when they are due, and stores changes that their triggers recorded."""

    def __init__(
        self,
        database: Database,
        schema: str,
        # Returns the open collection of a name.
        opened: Callable[[str], Awaitable[tuple[Indexer, WantedOptions]]],
        *,
        # Maximum number of tables that are compared, and of tables whose recorded changes are stored, at a time.
        concurrency: int,
        # Seconds after which another worker continues with a table.
        lease: float,
        # Seconds between two comparisons of a table that is followed by comparison.
        compare_every: float,
        # Called with a line about each run that did something, and about a table that fails, once.
        tell: Callable[[str], None],
    ) -> None:
        self._database, self._schema, self._opened = database, schema, opened
        self._concurrency, self._lease, self._compare_every, self._tell = concurrency, lease, compare_every, tell
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}
        self._errors: dict[Key, str] = {}
        self._warnings: dict[Key, list[str]] = {}
        self._unreadable = ""
        self._is_stopping = False
        self._remove_at = self._bound_at = 0.0

    async def serve(self, stopped: asyncio.Task[Any], *, drain: bool = False) -> None:
        """Sync tables until `stopped` is done or, with `drain`, until no table is due."""
        clock = self._database.clock
        while not stopped.done():
            try:
                seconds = await self._begin_due()
            except StoreError as error:
                self._note_unreadable(error)
                seconds = IDLE_SECONDS
            if drain and not self._running:
                return
            await clock.wait_for_tasks({stopped, *self._running.values()}, seconds, asyncio.FIRST_COMPLETED)

    def _note_unreadable(self, error: StoreError) -> None:
        said = "" if isinstance(error, ConnectionFailedError) else str(error)  # the loop that takes jobs reports those
        if said and said != self._unreadable:
            self._tell(f"followed tables cannot be synced; semlex keeps trying: {said}")
        self._unreadable = said

    async def end(self, seconds: float) -> None:
        """Let running syncs finish their batch, waiting at most this many seconds."""
        self._is_stopping = True
        if self._running:
            await self._database.clock.wait_for_tasks(self._running.values(), seconds)
        self.abandon()
        if self._running:
            await asyncio.wait(self._running.values())

    def abandon(self) -> None:
        """End running syncs now; their current batches are rolled back."""
        self._is_stopping = True
        for task in self._running.values():
            task.cancel()

    async def _begin_due(self) -> float:
        """Start the syncs that are due; return the seconds until the next check."""
        now = self._database.clock.monotonic()
        if now >= self._remove_at:
            await self._database.write("remove old changes", lambda c: remove_strays(c, self._schema))
            self._remove_at = now + REMOVING_SECONDS
        if now >= self._bound_at:
            looks = NEXT_LOOK | {"comparison": self._compare_every}
            await self._database.write("limit waits", lambda c: bound_times(c, self._schema, self._lease, looks))
            self._bound_at = now + self._lease
        states = await self._database.read("look for due tables", lambda c: read_states(c, self._schema))
        for state in states:
            for task, is_due in (("look", state.looks), ("changes", state.has_changes)):
                key: Key = (state.collection, state.name, task)
                taken = sum(one[2] == task for one in self._running)
                if (
                    is_due
                    and key not in self._running
                    and self._not_before.get(key, now) <= now
                    and taken < self._concurrency
                ):
                    self._begin(key)
        return _pause(states)

    def _begin(self, key: Key) -> None:
        task = self._running[key] = asyncio.create_task(self._keep(key))
        task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _keep(self, key: Key) -> None:
        collection, name, task = key
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** self._failures.get(key, 0), LAST_PAUSE_SECONDS)
        try:
            indexer, wanted = await self._opened(collection)
            keeper = TableKeeper(indexer, name, wanted, self._guard, self._lease)
            report = await (keeper.look(self._compare_every) if task == "look" else keeper.store_changes(pause))
        except (asyncio.CancelledError, WorkAbandonedError):
            return
        except CollectionNotFoundError:
            return  # it was dropped
        except Exception as error:  # noqa: BLE001 - models of users raise anything
            self._note_failure(key, error, pause)
        else:
            self._note_success(key, report)

    @asynccontextmanager
    async def _guard(self, _: Connection) -> AsyncIterator[None]:
        """Refuse to begin a transaction once the worker is being stopped."""
        if self._is_stopping:
            raise WorkAbandonedError("the worker is being stopped; another one continues")
        yield

    def _note_failure(self, key: Key, error: Exception, pause: float) -> None:
        self._failures[key] = self._failures.get(key, 0) + 1
        self._not_before[key] = self._database.clock.monotonic() + pause
        collection, name, _ = key
        said = failure_reason(error)
        if not isinstance(error, SemlexError):
            logger.error("the followed table %s of %s failed", name, collection, exc_info=error)
        if self._errors.get(key) != said:
            self._errors[key] = said
            self._tell(f"table {collection}/{name} could not be synced, and will be tried again: {said}")

    def _note_success(self, key: Key, report: TableSync | None) -> None:
        collection, name, _ = key
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        if self._errors.pop(key, None) is not None:
            self._tell(f"table {collection}/{name} is synced again")
        if report is None:
            return
        counts = {
            "added": report.added,
            "changed": report.changed + report.refreshed,
            "deleted": report.deleted,
            "failed": report.failed,
        }
        if any(counts.values()):
            said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
            self._tell(f"table {collection}/{name}: {said}")
        for warning in report.warnings:
            if warning not in self._warnings.get(key, ()):
                self._tell(f"table {collection}/{name}: {warning}")
        self._warnings[key] = list(report.warnings)


def _pause(states: list[TableState]) -> float:
    """Return the seconds until the states of the tables are read again."""
    if any(state.by_trigger for state in states):
        return WATCHING_SECONDS
    waits = [state.seconds for state in states if state.seconds > 0]
    return max(WATCHING_SECONDS, min([IDLE_SECONDS, *waits]))
