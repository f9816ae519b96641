"""Backends are ended under writers and searchers: no call fails, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from semlex.proof.faults import Fault
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.traffic import Traffic, begun
from semlex.store.proving.ground import backends, connected, end_backends

if TYPE_CHECKING:
    import random

WRITERS, SEARCHERS = 3, 2
ROUNDS = 8


class EndedBackends(Scenario):
    """End one or two backends whenever every client has made a call."""

    name = "backends"
    what = "one or two of a client's backends ended at a time under writers and searchers, whose calls must not fail"

    def attempt(self) -> Tries:
        ended = asyncio.run(self._round())
        self.check_texts()
        return Tries(ROUNDS, ended)

    async def _round(self) -> int:
        application = self.site.application(self.name)
        ended = 0
        async with self.site.async_client(application) as client:
            collection = client.collection(self.names.collection)
            await begun(collection, self.texts)
            async with Traffic(collection, self.texts, self.chance) as traffic:
                traffic.start(WRITERS, SEARCHERS)
                for _ in range(ROUNDS):
                    await traffic.progress()
                    most = self.chance.choice((1, 1, 2))
                    ended += await asyncio.to_thread(end_some, self.site.url, application, most, self.chance)
                await traffic.progress()
                await traffic.stop()
            if traffic.failed:
                raise Fault("wrong", f"a call failed although only a backend was ended: {traffic.failed[0]}")
        return ended


def end_some(url: str, application: str, most: int, chance: random.Random) -> int:
    """End up to `most` backends of a client; return how many were ended."""
    with connected(url) as connection:
        found = backends(connection, application)
        return end_backends(connection, chance.sample(found, min(len(found), most)))
