"""Backends are ended under writers and searchers: no call fails, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from semlex.proof.check import check_stored
from semlex.proof.embedder import WordDirections
from semlex.proof.faults import Fault
from semlex.proof.scenarios import Kind, Scenario, Tries
from semlex.proof.traffic import Traffic, begun
from semlex.store.proving.ground import backends, connected, end_backends

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site

WRITERS, SEARCHERS = 3, 2
ROUNDS = 8


class EndedBackends(Scenario):
    """One or two backends are ended whenever everybody has made a call."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._names = site.names("backends")
        self._texts: dict[str, str] = {}

    def attempt(self) -> Tries:
        ended = asyncio.run(self._round())
        self.site.sabotage(self._names)
        check_stored(self.site.url, self._names, [self._texts], WordDirections())
        return Tries(ROUNDS, ended)

    async def _round(self) -> int:
        application = self.site.application("backends")
        ended = 0
        async with self.site.async_client(application) as client:
            collection = client.collection(self._names.collection)
            await begun(collection, self._texts)
            async with Traffic(collection, self._texts, self.chance) as traffic:
                traffic.start(WRITERS, SEARCHERS)
                for _ in range(ROUNDS):
                    await traffic.progress()
                    ended += await asyncio.to_thread(self._end_some, application)
                await traffic.progress()
                await traffic.stop()
            if traffic.failed:
                raise Fault("wrong", f"a call failed although a backend alone was ended: {traffic.failed[0]}")
        return ended

    def _end_some(self, application: str) -> int:
        with connected(self.site.url) as connection:
            found = backends(connection, application)
            return end_backends(connection, self.chance.sample(found, min(len(found), self.chance.choice((1, 1, 2)))))


KINDS = [
    Kind(
        "backends",
        "backends",
        "one or two of a client's backends ended at a time under writers and searchers, whose calls must not fail",
        EndedBackends,
    )
]
