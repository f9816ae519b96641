"""Builds of indexes that continue after the load that wanted them, in the event loop of their client."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from semlex.errors import CollectionNotFoundError, SemlexError
from semlex.store.indexes.build import IndexBuilder, analyze, without_indexes

if TYPE_CHECKING:
    from semlex.store.indexes.build import TellBuild
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

    class Ended(Protocol):
        """Called when a build has ended."""

        def __call__(self, *, is_built: bool) -> None:
            """Take note of it."""


@dataclass(slots=True)
class _Build:
    """A build that is under way."""

    task: asyncio.Task[list[str]]
    listeners: list[TellBuild] = field(default_factory=list)


class IndexBuilds:
    """The builds of a client: one of a collection at a time, each beside all other work."""

    def __init__(self) -> None:
        self._builds: dict[Names, _Build] = {}

    def begin(self, database: Database, collection: CollectionInfo, ended: Ended | None = None) -> None:
        """Begin to build what a collection lacks, unless that is under way.

        Args:
            database: With connections of its own.
            ended: Called at the end.
        """
        if not all(build.task.done() for build in self._of(collection.names)):
            return
        # Not in the context of the load: its guard of writes and its span have ended by then.
        build = _Build(asyncio.create_task(self._run(database, collection, ended), context=Context()))
        self._builds[collection.names] = build
        build.task.add_done_callback(lambda _: self._forget(build))

    async def _run(self, database: Database, collection: CollectionInfo, ended: Ended | None) -> list[str]:
        is_built = False
        try:
            # Until the indexes are there, searches are planned by these figures.
            await database.write("analyze", lambda connection: analyze(connection, collection))
            built = await IndexBuilder(database, collection, self._teller(collection)).run(concurrently=True)
            is_built = True
        except CollectionNotFoundError:
            return []  # it was dropped
        except SemlexError as error:
            return [without_indexes(collection, error)]
        finally:
            if ended is not None:
                ended(is_built=is_built)
        return built.warnings

    def _teller(self, collection: CollectionInfo) -> TellBuild:
        def tell(name: str, done: int, total: int | None, unit: str) -> None:
            build = self._builds.get(collection.names)
            for listener in [] if build is None else build.listeners:
                listener(name, done, total, unit)

        return tell

    def are_running(self, names: Names) -> bool:
        """Whether indexes of a collection are being built here."""
        build = self._builds.get(names)
        return build is not None and not build.task.done()

    async def wait(self, names: Names | None = None, tell: TellBuild | None = None) -> list[str]:
        """Wait until the indexes of a collection, or of all, are built; return warnings."""
        waited = self._of(names)
        if tell is not None:
            for build in waited:
                build.listeners.append(tell)
        ends = await asyncio.gather(*(asyncio.shield(build.task) for build in waited), return_exceptions=True)
        return [warning for end in ends if isinstance(end, list) for warning in end]

    async def stop(self, names: Names | None = None) -> None:
        """End the builds of a collection, or all; the next load, a worker or `create_index` begins them again."""
        stopped = self._of(names)
        for build in stopped:
            build.task.cancel()
        await asyncio.gather(*(build.task for build in stopped), return_exceptions=True)

    def after_fork(self) -> None:
        """Leave the builds to the parent."""
        self._builds = {}

    def _forget(self, build: _Build) -> None:
        self._builds = {key: one for key, one in self._builds.items() if one is not build}

    def _of(self, names: Names | None) -> list[_Build]:
        """The builds of this event loop; others ended with theirs."""
        loop = asyncio.get_running_loop()
        return [build for key, build in self._builds.items() if build.task.get_loop() is loop and names in (None, key)]
