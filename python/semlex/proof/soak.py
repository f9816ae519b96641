"""A long-running program: a fixed rate of searches and writes while backends are ended; none may fail."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import sys
import time
from typing import TYPE_CHECKING

from semlex.errors import SemlexError
from semlex.proof.ended_backends import end_some
from semlex.proof.faults import Fault
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import documents, draw_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.retriever.collection import Collection

SECONDS = 6.0  # of a round
SEARCHES, WRITES = 50, 5  # a second
TEXTS = 500
ENDED, PAUSE_SECONDS = 2, 3.0  # backends that are ended, and after which time
POOL = 8
KEPT_TIMES = 10_000


class Soak(Scenario):
    """One client that lives through all rounds."""

    name = "soak"
    what = (
        f"one client with {SEARCHES} searches and {WRITES} writes a second, of whose backends {ENDED} are ended every "
        f"{PAUSE_SECONDS:g} s; no call may fail"
    )

    def begin(self) -> None:
        self._application = self.site.application(self.name)
        self.texts = {f"d{n}": draw_text(self.chance) for n in range(TEXTS)}
        self._times: list[float] = []
        self._writing: set[str] = set()
        self._memory = 0
        self._runner = asyncio.Runner()
        self.opened.callback(self._runner.close)
        client = self.site.async_client(self._application, max_connections=POOL)
        self.opened.callback(lambda: self._runner.run(client.close()))
        self._collection: Collection = client.collection(self.names.collection)
        self._runner.run(self._add(self.texts))

    async def _add(self, texts: dict[str, str]) -> None:
        await self._collection.add_documents(documents(texts))

    def attempt(self) -> Tries:
        tries, ended = self._runner.run(self._round())
        self._note()
        self.check_texts()
        return Tries(tries, ended)

    async def _round(self) -> tuple[int, int]:
        ends = time.monotonic() + SECONDS
        calls = [self._paced(self._search, SEARCHES, ends), self._paced(self._write, WRITES, ends)]
        *counts, ended = await asyncio.gather(*calls, self._end_backends(ends))
        return sum(counts), ended

    async def _paced(self, call: Callable[[], Awaitable[None]], a_second: int, ends: float) -> int:
        """Start calls at fixed times, whether or not earlier ones have returned."""
        began, tasks = time.monotonic(), []
        for number in range(math.ceil((ends - began) * a_second)):
            await asyncio.sleep(max(0.0, began + number / a_second - time.monotonic()))
            tasks.append(asyncio.ensure_future(call()))
        await asyncio.gather(*tasks)
        return len(tasks)

    async def _search(self) -> None:
        began = time.monotonic()
        try:
            await self._collection.search(draw_text(self.chance, 3), 10)
        except SemlexError as error:
            raise Fault("wrong", f"a search failed: {error}") from None
        self._times.append(time.monotonic() - began)

    async def _write(self) -> None:
        one, text = f"d{self.chance.randrange(TEXTS)}", draw_text(self.chance)
        while one in self._writing:
            one = f"d{self.chance.randrange(TEXTS)}"
        self._writing.add(one)
        try:
            await self._add({one: text})
        except SemlexError as error:
            raise Fault("wrong", f"a write failed: {error}") from None
        finally:
            self._writing.discard(one)
        self.texts[one] = text

    async def _end_backends(self, ends: float) -> int:
        ended = 0
        while (left := ends - time.monotonic()) > PAUSE_SECONDS / 2:
            await asyncio.sleep(min(PAUSE_SECONDS, left / 2))
            ended += await asyncio.to_thread(end_some, self.site.url, self._application, ENDED, self.chance)
        return ended

    def _note(self) -> None:
        del self._times[:-KEPT_TIMES]
        ordered = sorted(self._times)
        self.notes["p99 of the last searches in ms"] = round(1000 * ordered[int(0.99 * (len(ordered) - 1))])
        now = resident_kib()
        self._memory = self._memory or now  # after the first round
        self.notes["memory since the first round in KiB"] = now - self._memory


def resident_kib() -> int:
    """Return the memory that this process has now; if the system does not report it, the maximum so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a path of anybody's
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
