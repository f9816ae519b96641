"""The server crashes under writers and searchers: whatever was acknowledged is stored, and clients come back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from semlex.errors import SemlexError
from semlex.proof.check import check_stored
from semlex.proof.children import is_alive, until
from semlex.proof.embedder import WordDirections
from semlex.proof.scenarios import Kind, Scenario, Tries
from semlex.proof.traffic import PAUSE_SECONDS, Traffic, begun, eventually
from semlex.store.postgres.embedded.process import read_postmaster
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.proving.ground import backends, connected, set_server

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site
    from semlex.retriever.collection import Collection

WRITERS, SEARCHERS = 3, 2
# After a crash, a server asks the system to write everything, instead of each of its thousand files.
SETTINGS = {"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}
WAYS = ("server killed", "server stopped at once", "backend killed")


class Crashes(Scenario):
    """A server of its own that crashes again and again."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._server = site.server("crashing")
        with connected(self._server.url) as connection:
            set_server(connection, SETTINGS)
        self._names = site.names("crash")
        self._texts: dict[str, str] = {}

    def attempt(self) -> Tries:
        asyncio.run(self._round())
        self.site.sabotage(self._names, self._server.url)
        check_stored(self._server.url, self._names, [self._texts], WordDirections())
        return Tries(kills=1)

    async def _round(self) -> None:
        application = self.site.application("crash")
        way = self.chance.choice(WAYS)
        async with self.site.async_client(application, self._server.url) as client:
            collection = client.collection(self._names.collection)
            await begun(collection, self._texts)
            async with Traffic(collection, self._texts, self.chance) as traffic:
                traffic.start(WRITERS, SEARCHERS, optimizer=True)
                await traffic.progress(self.chance.randint(1, 4))
                await asyncio.to_thread(self._crash, way, application)
                await asyncio.to_thread(self._start)
                await traffic.stop()
            self.notes[way] += 1
            self.notes["calls that failed in a crash"] += len(traffic.failed)
            self._texts = dict(
                await asyncio.to_thread(check_stored, self._server.url, self._names, traffic.states(), WordDirections())
            )
            await self._comes_back(collection)

    def _crash(self, way: str, application: str) -> None:
        postmaster = read_postmaster(self._server.folder)
        pid = 0 if postmaster is None else postmaster.pid
        if way == "backend killed":
            with connected(self._server.url) as connection:
                victim = self.chance.choice(backends(connection, application))
            os.kill(victim, signal.SIGKILL)
            until(lambda: not is_alive(victim), "the end of a killed backend")
        else:
            os.kill(pid, signal.SIGKILL if way == "server killed" else signal.SIGQUIT)
            until(lambda: not is_alive(pid), "the end of a killed server")

    def _start(self) -> None:
        """Start the server if it is gone, and wait until it has recovered."""
        with EmbeddedServer(self._server.folder):
            pass

    @staticmethod
    async def _comes_back(collection: Collection) -> None:
        """Check that the same client searches again."""
        came_back = False

        async def search() -> None:
            nonlocal came_back
            while not came_back:
                try:
                    await collection.search("key vault", 5)
                    came_back = True
                except SemlexError:
                    await asyncio.sleep(PAUSE_SECONDS)

        searching = asyncio.create_task(search())
        await eventually(lambda: came_back or searching.done(), "a search after a crash")
        await searching


KINDS = [
    Kind(
        "crash",
        "crash",
        "the server killed or stopped at once, or one of its backends killed, under writers, searchers and a merger",
        Crashes,
        own_server=True,
        weight=2.0,
    )
]
