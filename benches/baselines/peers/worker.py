"""Run by the interpreter of a peer's environment: does what it is asked, one JSON object a line, until its input ends.

python -m benches.baselines.peers.worker PEER PLACE NAME
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.baselines.peers.protocol import Rows
from benches.under_load import BusyThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benches.baselines.peers.protocol import Peer


class Worker:
    """One peer and the rows that it holds."""

    def __init__(self, runner: asyncio.Runner, peer: Peer) -> None:
        self._runner, self._peer = runner, peer
        self._texts: list[str] = []
        self._vectors: Any = []

    def _done(self, work: Any) -> Any:
        return self._runner.run(work) if inspect.iscoroutine(work) else work

    def _each(self, method: Callable[..., Any], calls: list[tuple[Any, ...]]) -> tuple[list[list[int]], list[float]]:
        """The hits and the seconds of calls, one after the other."""
        hits: list[list[int]] = []
        times: list[float] = []

        async def awaited() -> None:
            for call in calls:
                started = time.perf_counter()
                found = await method(*call)
                times.append(time.perf_counter() - started)
                hits.append([int(hit) for hit in found])

        if inspect.iscoroutinefunction(method):
            self._runner.run(awaited())
            return hits, times
        for call in calls:
            started = time.perf_counter()
            found = method(*call)
            times.append(time.perf_counter() - started)
            hits.append([int(hit) for hit in found])
        return hits, times

    def load(self, folder: str) -> dict[str, Any]:
        """Seconds and processor time of the load, and of building the indexes."""
        rows = Rows(Path(folder))
        (_, _, _) = rows.texts, rows.vectors, rows.fields  # read before the clock starts
        started, used = time.perf_counter(), time.process_time()
        by_library = self._done(self._peer.load(rows))
        loaded, used_by_load = time.perf_counter(), time.process_time()
        if isinstance(by_library, tuple):  # the rest came another way
            by_library, loaded, used_by_load = by_library
        last = len(rows.texts) - 1
        found = self._done(self._peer.nearest(rows.vectors[last], None))
        indexing, used_before = time.perf_counter(), time.process_time()
        self._done(self._peer.index(rows))
        return {
            "rows": by_library or len(rows.texts),
            "seconds": loaded - started,
            "processor": used_by_load - used,
            "index_seconds": time.perf_counter() - indexing,
            "index_processor": time.process_time() - used_before,
            "found": last in map(int, found),
        }

    def reopen(self, dimensions: int, fields: list[str]) -> None:
        """Opens what another process has loaded, so that this one holds no rows."""
        self._done(self._peer.reopen(dimensions, fields))

    def queries(self, folder: str) -> list[list[int]]:
        """Takes the queries, asks each once, and gives the hits."""
        rows = Rows(Path(folder))
        self._texts, self._vectors = rows.texts, rows.vectors
        return self._each(self._peer.search, self._asked())[0]

    def _asked(self) -> list[tuple[Any, ...]]:
        return list(zip(self._texts, self._vectors, strict=True))

    def alone(self, questions: int, *, busy: bool) -> dict[str, Any]:
        """The first queries once, one after the other: seconds of each, and processor time of all."""
        thread = BusyThread()
        with thread if busy else contextlib.nullcontext():
            used, started = time.process_time(), time.perf_counter()
            _, times = self._each(self._peer.search, self._asked()[:questions])
            seconds = time.perf_counter() - started
        return {"times": times, "seconds": seconds, "processor": time.process_time() - used - thread.seconds}

    def at_once(self, number: int, seconds: float) -> dict[str, Any]:
        """So many searches at the same time: tasks of one event loop, or threads."""
        times: list[float] = []
        numbers = itertools.cycle(range(len(self._texts)))
        until = time.perf_counter() + seconds
        used, started = time.process_time(), time.perf_counter()
        if inspect.iscoroutinefunction(self._peer.search):

            async def searcher() -> None:
                while (before := time.perf_counter()) < until:
                    query = next(numbers)
                    await self._peer.search(self._texts[query], self._vectors[query])
                    times.append(time.perf_counter() - before)

            async def searchers() -> None:
                await asyncio.gather(*(searcher() for _ in range(number)))

            self._runner.run(searchers())
        else:

            def search() -> None:
                while (before := time.perf_counter()) < until:
                    query = next(numbers)
                    self._peer.search(self._texts[query], self._vectors[query])
                    times.append(time.perf_counter() - before)

            threads = [threading.Thread(target=search) for _ in range(number)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return {"times": times, "seconds": time.perf_counter() - started, "processor": time.process_time() - used}

    def nearest(self, filters: list[Any]) -> dict[str, Any]:
        """The nearest rows of every query that pass its filter, and what that costs."""
        wheres = [None if one is None else tuple(one) for one in filters]
        calls = list(zip(self._vectors, wheres, strict=False))
        used = time.process_time()
        hits, times = self._each(self._peer.nearest, calls)
        return {"hits": hits, "times": times, "processor": time.process_time() - used}


def answers(worker: Worker) -> Iterator[str]:
    """What is asked on the standard input, done."""
    for line in sys.stdin:
        asked = json.loads(line)
        do: Callable[..., Any] = getattr(worker, asked.pop("do"))
        yield json.dumps(do(**asked))


def main() -> None:
    """Opens the peer, and does what is asked."""
    kind, place, name = sys.argv[1:]
    # Whatever a library prints goes where it disturbs nobody.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    opened = importlib.import_module(f"benches.baselines.peers.{kind}").opened
    with asyncio.Runner() as runner:
        peer = opened(place, name)
        peer = runner.run(peer) if inspect.iscoroutine(peer) else peer
        for answer in answers(Worker(runner, peer)):
            print(answer, file=out, flush=True)
        closed = peer.close()
        if inspect.iscoroutine(closed):
            runner.run(closed)


if __name__ == "__main__":
    main()
