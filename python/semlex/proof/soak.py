"""A long-running program: a fixed rate of searches and writes while backends are ended; none may fail."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections import Counter
from itertools import accumulate
from statistics import linear_regression
from typing import TYPE_CHECKING

from semlex.errors import SemlexError
from semlex.proof.check import Fault
from semlex.proof.interruptions import end_some
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
WARMING_SECONDS = 1_200.0  # in which caches and pools grow to their sizes


class Soak(Scenario):
    """Let one client search and write for many rounds while its backends are ended."""

    name = "soak"
    what = (
        f"one client with {SEARCHES} searches and {WRITES} writes a second; {ENDED} of its backends are ended every "
        f"{PAUSE_SECONDS:g} s, and no call may fail"
    )

    def begin(self) -> None:
        self._application = self.site.application(self.name)
        self.texts = {f"d{n}": draw_text(self.chance) for n in range(TEXTS)}
        # How many searches took so many milliseconds, and the memory after each round: small, however long it runs.
        self._times: Counter[int] = Counter()
        self._memory: list[tuple[float, int]] = []
        self._writing: set[str] = set()
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
        self._times[round(1000 * (time.monotonic() - began))] += 1

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
        last = self._times.total() - self._times.total() // 100
        places = accumulate(count for _, count in sorted(self._times.items()))
        self.notes["p99 of the searches in ms"] = next(
            took for took, place in zip(sorted(self._times), places, strict=True) if place >= last
        )
        self._memory.append((time.monotonic(), resident_kib()))
        began, first = self._memory[0]
        memory = self._memory[-1][1]
        self.notes["memory growth since the first round in KiB"] = memory - first
        warm = [one for one in self._memory if one[0] - began >= WARMING_SECONDS]
        if len(warm) > 1:
            slope = linear_regression(*zip(*warm, strict=True)).slope
            note = f"memory growth an hour in KiB, after the first {WARMING_SECONDS / 60:.0f} minutes"
            self.notes[note] = round(3600 * slope)


def resident_kib() -> int:
    """Return the memory that this process has now; if the system does not report it, the maximum so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a path of anybody's
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        import resource  # noqa: PLC0415 - not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
