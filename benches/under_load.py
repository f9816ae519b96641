"""Searches at the same time in one event loop, and what they cost; baselines' environments can import it, too."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

HEARTBEAT_SECONDS = 0.001
IDLE_SECONDS = 0.5


class BusyThread:
    """A thread that computes in Python beside the searches; what it uses is not counted as theirs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._compute, daemon=True)

    def _compute(self) -> None:
        while not self._ended.is_set():
            sum(range(1_000))
        self.seconds = time.thread_time()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Load:
    """What one process measured.

    Attributes:
        times: Seconds of each search.
        started, ended: Of all searches, by the system's monotonic clock.
        processor_seconds: That this process used in between.
        late_seconds: That a task of the event loop woke too late at the most, above what it does without any search.
        held_seconds: That the loop's thread computed at the most before it let that task run: what is left of
            `late_seconds` where others want the processor, too.
        failures: Searches that raised.
        found: Hits of all searches.
    """

    times: list[float]
    started: float
    ended: float
    processor_seconds: float
    late_seconds: float
    held_seconds: float
    failures: int
    found: int


async def under_load(
    search: Callable[[int], Awaitable[int]],
    queries: int,
    at_once: int,
    seconds: float,
    begin: Callable[[], object] = lambda: None,
) -> Load:
    """Keeps so many searches running for a while; each query was asked once before.

    The event loop is watched for half as long afterwards, because that costs time of the processor, too.

    Args:
        search: Searches for the query of a number, and says how many hits there were.
        queries: How many there are.
        at_once: Searches at the same time.
        seconds: After which no search begins.
        begin: Waits until others are ready, too.
    """
    for query in range(queries):
        await search(query)
    idle, _ = await _watched(asyncio.sleep(IDLE_SECONDS))
    await asyncio.to_thread(begin)
    numbers = itertools.cycle(range(queries))
    times: list[float] = []
    failures, found = 0, 0

    async def searcher(until: float) -> None:
        nonlocal failures, found
        while (before := time.monotonic()) < until:
            try:
                found += await search(next(numbers))
            except Exception as error:  # noqa: BLE001 - every failure counts
                failures += 1
                print(f"  failed: {type(error).__name__}", flush=True)
            else:
                times.append(time.monotonic() - before)

    async def searchers(duration: float) -> None:
        until = time.monotonic() + duration
        await asyncio.gather(*(searcher(until) for _ in range(at_once)))

    processor, started = time.process_time(), time.monotonic()
    await searchers(seconds)
    ended, processor = time.monotonic(), time.process_time() - processor
    measured, times = times, []
    late, held = await _watched(searchers(seconds / 2))
    return Load(measured, started, ended, processor, max(0.0, late - idle), held, failures, found)


async def _watched(work: Awaitable[None]) -> tuple[float, float]:
    """While something runs, a task sleeps for a moment, again and again: seconds that it woke too late at the most.

    And the most seconds of the processor that the thread used during such a sleep.
    """
    late = held = 0.0

    async def heartbeat() -> None:
        nonlocal late, held
        while True:
            before, computed = time.monotonic(), time.thread_time()
            await asyncio.sleep(HEARTBEAT_SECONDS)
            late = max(late, time.monotonic() - before - HEARTBEAT_SECONDS)
            held = max(held, time.thread_time() - computed)

    beating = asyncio.create_task(heartbeat())
    await work
    beating.cancel()
    return late, held
