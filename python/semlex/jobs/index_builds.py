"""Builds of indexes that a program has left unfinished, taken up again by a worker beside its jobs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from semlex.errors import SemlexError
from semlex.store.indexes.build import can_build_beside
from semlex.store.indexes.running import collections_with_leftovers
from semlex.store.schema.names import Names
from semlex.store.schema.registry import find_collection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from semlex.store.indexes.background import IndexBuilds
    from semlex.store.postgres.database import Database

LOOK_SECONDS = 60.0
# After a build was begun, that collection is left alone for so long: an index that cannot be built fails every time.
PAUSE_SECONDS = 3_600.0


class UnfinishedIndexes:
    """Finds indexes whose build was interrupted, and builds them."""

    def __init__(self, database: Database, schema: str, builds: IndexBuilds, tell: Callable[[str], None]) -> None:
        # The builds are those of the worker's client, which ends them when it stops; `tell` is called with a line about
        # each collection.
        self._database, self._schema, self._builds, self._tell = database, schema, builds, tell
        self._not_before: dict[str, float] = {}

    async def serve(self, stopped: asyncio.Task[Any], *, drain: bool = False) -> None:
        """Look every minute until `stopped` is done; or once."""
        clock = self._database.clock
        while not stopped.done():
            with suppress(SemlexError):  # the loop that takes jobs reports a lost server
                await self._begin()
            if drain:
                return
            await clock.wait_for_tasks({stopped}, LOOK_SECONDS)

    async def _begin(self) -> None:
        now = self._database.clock.monotonic()
        found = await self._database.read(
            "look for unfinished indexes", lambda connection: collections_with_leftovers(connection, self._schema)
        )
        due = [name for name in found if self._not_before.get(name, now) <= now]
        if not due or not await can_build_beside(self._database):
            return
        for name in due:
            self._not_before[name] = now + PAUSE_SECONDS
            collection = await find_collection(self._database, Names(self._schema, name))
            if collection is not None:
                self._builds.begin(self._database, collection)
                self._tell(f"collection {name}: its unfinished indexes are being built")
