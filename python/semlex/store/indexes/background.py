"""Build indexes in the background after a load that needs them, in the event loop of the client."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Protocol

from semlex.errors import CollectionNotFoundError, SemlexError
from semlex.store.indexes.build import IndexBuilder, analyze, without_indexes

if TYPE_CHECKING:
    from semlex.clock import Clock
    from semlex.store.indexes.build import TellBuild
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

    class Ended(Protocol):
        """A function that is called when a build has ended."""

        def __call__(self, *, is_built: bool) -> None:
            """Handle the end of a build."""


# A build begins when nothing was written for so long, or at the latest after so long: rows that come during a build go
# into the graph one by one, which takes several times as long.
QUIET_SECONDS, MAX_DELAY_SECONDS = 10.0, 600.0


class _Build:
    """A build that waits for writes to pause, or is running."""

    def __init__(self) -> None:
        self.task: asyncio.Task[list[str]]
        self.listeners: list[TellBuild] = []
        self.written_at = 0.0  # by the clock of the database
        self._is_wanted_now = asyncio.Event()

    def hurry(self) -> None:
        """Let the build begin now, because a caller waits for it."""
        self._is_wanted_now.set()

    def tell(self, name: str, done: int, total: int | None, unit: str) -> None:
        """Report progress to every caller that waits for the build."""
        for listener in self.listeners:
            listener(name, done, total, unit)

    async def settle(self, clock: Clock) -> None:
        """Wait until writes have paused for some seconds, the maximum wait is over, or `hurry` is called."""
        began = now = clock.monotonic()
        wanted = asyncio.create_task(self._is_wanted_now.wait())
        try:
            while (left := min(self.written_at + QUIET_SECONDS, began + MAX_DELAY_SECONDS) - now) > 0:
                await clock.wait_for_tasks({wanted}, left)
                if wanted.done():
                    return
                now = clock.monotonic()
        finally:
            wanted.cancel()


class IndexBuilds:
    """The index builds of a client: one for each collection at a time, in the background."""

    def __init__(self) -> None:
        self._builds: dict[Names, _Build] = {}

    def begin(self, database: Database, collection: CollectionInfo, ended: Ended | None = None) -> None:
        """Build the missing indexes of a collection as soon as writes pause, unless a build has begun already."""
        # `database` must have connections of its own.
        if self.are_running(collection.names):
            return
        build = self._builds[collection.names] = _Build()
        build.written_at = database.clock.monotonic()
        # Not in the context of the load: its guard of writes and its span have ended by then.
        build.task = asyncio.create_task(self._run(build, database, collection, ended), context=Context())
        build.task.add_done_callback(lambda _: self._forget(build))

    async def _run(
        self, build: _Build, database: Database, collection: CollectionInfo, ended: Ended | None
    ) -> list[str]:
        is_built = False
        try:
            await build.settle(database.clock)
            # Until the indexes are there, searches are planned by these figures.
            await database.write("analyze", lambda connection: analyze(connection, collection))
            built = await IndexBuilder(database, collection, build.tell).run(concurrently=True)
            is_built = True
        except CollectionNotFoundError:
            return []  # it was dropped
        except SemlexError as error:
            return [without_indexes(collection, error)]
        finally:
            if ended is not None:
                ended(is_built=is_built)
        return built.warnings

    def note_write(self, names: Names, now: float) -> None:
        """Delay a build that has not begun, because more writes to the collection may follow."""
        build = self._builds.get(names)
        if build is not None:
            build.written_at = now

    def are_running(self, names: Names) -> bool:
        """Return whether this process is building indexes of a collection."""
        build = self._builds.get(names)
        return build is not None and not build.task.done()

    async def wait(self, names: Names | None = None, tell: TellBuild | None = None) -> list[str]:
        """Wait until the begun builds of a collection, or of all collections, have ended; return their warnings."""
        waited = self._of(names)
        for build in waited:
            build.hurry()
            if tell is not None:
                build.listeners.append(tell)
        ends = await asyncio.gather(*(asyncio.shield(build.task) for build in waited), return_exceptions=True)
        return [warning for end in ends if isinstance(end, list) for warning in end]

    async def stop(self, names: Names | None = None) -> None:
        """End the builds of one or all collections; the next load, a worker or `Indexes.create` begins them again."""
        stopped = self._of(names)
        for build in stopped:
            build.task.cancel()
        await asyncio.gather(*(build.task for build in stopped), return_exceptions=True)

    def after_fork(self) -> None:
        """Forget the builds in a forked child, because the parent continues them."""
        self._builds = {}

    def _forget(self, build: _Build) -> None:
        self._builds = {key: one for key, one in self._builds.items() if one is not build}

    def _of(self, names: Names | None) -> list[_Build]:
        """Return the builds of this event loop; builds of other event loops ended with those loops."""
        loop = asyncio.get_running_loop()
        return [build for key, build in self._builds.items() if build.task.get_loop() is loop and names in (None, key)]
