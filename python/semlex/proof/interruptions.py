"""Servers and networks that go away under writers and searchers: what was acknowledged is stored, clients come back."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING

from semlex.errors import SemlexError
from semlex.proof.check import check_stored
from semlex.proof.embedder import WordDirections
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.traffic import PAUSE_SECONDS, Traffic, begun, in_time

if TYPE_CHECKING:
    from semlex.retriever.collection import Collection

WRITERS, SEARCHERS = 3, 2


class Interrupted(Scenario):
    """Interrupt something repeatedly while clients write, search and merge."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The server that clients name."""

    @property
    def stored_at(self) -> str:
        """The server that holds the stored data."""
        return self.address

    @abstractmethod
    async def interrupt(self, application: str, traffic: Traffic) -> None:
        """Interrupt, and mend it."""

    def attempt(self) -> Tries:
        asyncio.run(self._round())
        self.check_texts(self.stored_at)
        return Tries(kills=1)

    async def _round(self) -> None:
        await self.with_traffic()

    async def with_traffic(self) -> None:
        """Start traffic, interrupt it, and compare the stored data."""
        application = self.site.application(self.name)
        async with self.site.async_client(application, self.address) as client:
            collection = client.collection(self.names.collection)
            await begun(collection, self.texts)
            async with Traffic(collection, self.texts, self.chance) as traffic:
                traffic.start(WRITERS, SEARCHERS, optimizer=True)
                await traffic.progress(self.chance.randint(1, 4))
                await self.interrupt(application, traffic)
                await traffic.stop()
            self.notes["calls that failed meanwhile"] += len(traffic.failed)
            states = traffic.states()
            self.texts = await asyncio.to_thread(check_stored, self.stored_at, self.names, states, WordDirections())
            await _comes_back(collection)


async def _comes_back(collection: Collection) -> None:
    """Check that the same client can search again."""
    async with in_time("a search after an interruption"):
        while True:
            try:
                await collection.search("key vault", 5)
            except SemlexError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return
