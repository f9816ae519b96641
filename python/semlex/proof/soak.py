"""A program that goes on: so many searches and writes a second, while backends are ended; none may fail."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import sys
import time
from typing import TYPE_CHECKING

from semlex.errors import SemlexError
from semlex.proof.check import check_stored, draw_text
from semlex.proof.embedder import WordDirections
from semlex.proof.faults import Fault
from semlex.proof.scenarios import Kind, Scenario, Tries
from semlex.proof.works import WORDS, documents
from semlex.store.proving.ground import backends, connected, end_backends

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from semlex.proof.site import Site
    from semlex.retriever.collection import Collection

SECONDS = 6.0  # of a round
SEARCHES, WRITES = 50, 5  # a second
TEXTS = 500
ENDED, PAUSE_SECONDS = 2, 3.0  # backends that are ended, and after which time
POOL = 8
KEPT_TIMES = 10_000


class Soak(Scenario):
    """One client that lives through all rounds."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._names = site.names("soak")
        self._application = site.application("soak")
        self._texts = {f"d{n}": draw_text(chance, WORDS) for n in range(TEXTS)}
        self._times: list[float] = []
        self._memory = 0
        self._runner = asyncio.Runner()
        self._client = site.async_client(self._application, max_connections=POOL)
        self._collection: Collection = self._client.collection(self._names.collection)
        self._runner.run(self._begin())

    async def _begin(self) -> None:
        await self._collection.add_documents(documents(list(self._texts.items())))

    def attempt(self) -> Tries:
        tries, ended = self._runner.run(self._round())
        self._note()
        self.site.sabotage(self._names)
        check_stored(self.site.url, self._names, [self._texts], WordDirections())
        return Tries(tries, ended)

    async def _round(self) -> tuple[int, int]:
        ends = time.monotonic() + SECONDS
        calls = [self._paced(self._search, SEARCHES, ends), self._paced(self._write, WRITES, ends)]
        *counts, ended = await asyncio.gather(*calls, self._end_backends(ends))
        return sum(counts), ended

    async def _paced(self, call: Callable[[], Awaitable[None]], a_second: int, ends: float) -> int:
        """Begin calls at their times, whether earlier ones have come back or not."""
        began, tasks = time.monotonic(), []
        for number in range(math.ceil((ends - began) * a_second)):
            await asyncio.sleep(max(0.0, began + number / a_second - time.monotonic()))
            tasks.append(asyncio.ensure_future(call()))
        await asyncio.gather(*tasks)
        return len(tasks)

    async def _search(self) -> None:
        began = time.monotonic()
        try:
            await self._collection.search(draw_text(self.chance, WORDS, 3), 10)
        except SemlexError as error:
            raise Fault("wrong", f"a search failed: {error}") from None
        self._times.append(time.monotonic() - began)

    async def _write(self) -> None:
        one, text = f"d{self.chance.randrange(TEXTS)}", draw_text(self.chance, WORDS)
        while one in self._writing:
            one = f"d{self.chance.randrange(TEXTS)}"
        self._writing.add(one)
        try:
            await self._collection.add_documents(documents([(one, text)]))
        except SemlexError as error:
            raise Fault("wrong", f"a write failed: {error}") from None
        finally:
            self._writing.discard(one)
        self._texts[one] = text

    _writing: set[str] = set()  # noqa: RUF012 - of one scenario at a time

    async def _end_backends(self, ends: float) -> int:
        ended = 0
        while (left := ends - time.monotonic()) > PAUSE_SECONDS / 2:
            await asyncio.sleep(min(PAUSE_SECONDS, left / 2))
            ended += await asyncio.to_thread(self._end_some)
        return ended

    def _end_some(self) -> int:
        with connected(self.site.url) as connection:
            found = backends(connection, self._application)
            return end_backends(connection, self.chance.sample(found, min(len(found), ENDED)))

    def _note(self) -> None:
        del self._times[:-KEPT_TIMES]
        ordered = sorted(self._times)
        self.notes["p99 of the last searches in ms"] = round(1000 * ordered[int(0.99 * (len(ordered) - 1))])
        now = resident_kib()
        self._memory = self._memory or now  # after the first round
        self.notes["memory since the first round in KiB"] = now - self._memory

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


def resident_kib() -> int:
    """Return the memory that this process has now; where the system does not say, the most that it had."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a path of anybody's
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


KINDS = [
    Kind(
        "soak",
        "soak",
        f"one client with {SEARCHES} searches and {WRITES} writes a second, of whose backends {ENDED} are ended every "
        f"{PAUSE_SECONDS:g} s; no call may fail",
        Soak,
    )
]
