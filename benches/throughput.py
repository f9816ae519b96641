"""Searches at the same time.

1, 8 and 32 hybrid searches at once over the rows of [Hybrid search](#hybrid-search), in one process and in four.
Searches and server share the cores. "Beside a busy thread" means one thread of the same process that computes in
Python. As in `semlex serve`, the garbage collector leaves out what a process has loaded.
[Beside other libraries](#beside-other-libraries) compares them with others.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from benches.corpus import corpus_of
from benches.keyword_leg import TOP
from benches.search import CHUNKS, QUICK_CHUNKS, Vectors, fill, open_retriever, prepared_folder
from benches.under_load import BusyThread, Load, under_load
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench
    from semlex.types.results import SearchMode

AT_ONCE, TAIL_OF = (1, 8, 32), 8
PROCESSES, READY_SECONDS = 4, 60.0
SECONDS, QUICK_SECONDS = 10.0, 1.0
RUNS, QUICK_RUNS = 3, 1
# 99th percentile over the mean; milliseconds that the event loop is late.
TAIL_BAR, LATE_BAR = 2.5, 20.0
# Milliseconds of the processor; and of one search after the other, beside a busy thread.
PROCESSOR_BARS: dict[SearchMode, float] = {"hybrid": 1.9, "keyword": 0.8}
BUSY_BARS: dict[SearchMode, float] = {"hybrid": 20.0, "keyword": 7.0}
_barrier: Any = None


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured(f"{TAIL_OF} at once, p99 over the mean", "times", TAIL_BAR, "run ./x bench --prepare")
        return
    texts = corpus.chunks(QUICK_CHUNKS if quick else CHUNKS)
    queries = corpus.queries("question")
    vectors = Vectors(len(texts))
    asked = vectors.queries(len(queries))
    seconds, runs = (QUICK_SECONDS, QUICK_RUNS) if quick else (SECONDS, RUNS)
    with EmbeddedServer(prepared_folder(state, len(texts))) as server:
        asyncio.run(fill(server, corpus, texts, vectors))
        for mode, name in (("hybrid", "a hybrid search"), ("keyword", "a search of words")):
            alone = ours(server.url, queries, asked, 1, 1, seconds, mode)
            costs(bench, f"{name}, alone", alone, processor=PROCESSOR_BARS[mode], failures=0.0)
            busy = ours(server.url, queries, asked, 1, 1, seconds, mode, busy=True)
            bench.at_most(
                f"{name}, beside a busy thread, p50", percentile(busy, 50) * 1000, unit="ms", bar=BUSY_BARS[mode]
            )
        for at_once in AT_ONCE:
            report(bench, at_once, [ours(server.url, queries, asked, 1, at_once, seconds) for _ in range(runs)])
        for at_once in AT_ONCE:
            loads = ours(server.url, queries, asked, PROCESSES, at_once, seconds)
            name = f"{PROCESSES} processes, {at_once} at once in each"
            bench.at_least(name, speed(loads), unit="searches/s", bar=None)
            costs(bench, name, loads, processor=PROCESSOR_BARS["hybrid"], failures=0.0)


def ours(
    url: str,
    queries: list[str],
    asked: NDArray[np.float32],
    processes: int,
    at_once: int,
    seconds: float,
    mode: SearchMode = "hybrid",
    *,
    busy: bool = False,
) -> list[Load]:
    """What our searches cost in each of some new processes."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes, _begin_together, [spawn.Barrier(processes, timeout=READY_SECONDS)]) as pool:
        return pool.starmap(_load, [(url, queries, asked, at_once, seconds, mode, busy)] * processes, chunksize=1)


def _begin_together(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603 - a pool gives it to its processes in this way only
    _barrier = barrier


def _load(
    url: str, queries: list[str], asked: NDArray[np.float32], at_once: int, seconds: float, mode: SearchMode, busy: bool
) -> Load:
    async def searches() -> Load:
        async with open_retriever(url) as retriever:
            gc.collect()
            gc.freeze()  # as `semlex serve` does

            async def search(number: int) -> int:
                vector = None if mode == "keyword" else asked[number]
                return len(await retriever.search(queries[number], TOP, mode=mode, vector=vector))

            return await under_load(search, len(queries), at_once, seconds, _barrier.wait)

    with BusyThread() if busy else contextlib.nullcontext():
        return asyncio.run(searches())


def report(bench: Bench, at_once: int, own: list[list[Load]]) -> None:
    """One process."""
    name = f"{at_once} at once"
    bench.at_least(name, statistics.median(map(speed, own)), unit="searches/s", bar=None)
    loads = [load for one in own for load in one]
    costs(bench, name, loads, late=LATE_BAR, processor=PROCESSOR_BARS["hybrid"], failures=0.0)
    tail = statistics.median(percentile(one, 99) * speed(one) / at_once for one in own)
    bench.at_most(f"{name}, p99 over the mean", tail, unit="times", bar=TAIL_BAR if at_once == TAIL_OF else None)


def costs(bench: Bench, name: str, loads: list[Load], **bars: float) -> None:
    """What one side's searches cost, all runs together."""
    for number in (50, 99):
        bench.at_most(f"{name}, p{number}", percentile(loads, number) * 1000, unit="ms", bar=None)
    processor = sum(load.processor_seconds for load in loads) / sum(len(load.times) for load in loads)
    bench.at_most(f"{name}, own processor time", processor * 1000, unit="ms/search", bar=bars.get("processor"))
    late = max(load.late_seconds for load in loads)
    bench.at_most(f"{name}, event loop late", late * 1000, unit="ms", bar=bars.get("late"))
    held = max(load.held_seconds for load in loads)
    bench.at_most(f"{name}, event loop held", held * 1000, unit="ms", bar=None)
    bench.at_most(f"{name}, failures", sum(load.failures for load in loads), unit="", bar=bars.get("failures"))


def speed(loads: list[Load]) -> float:
    """Searches a second of processes that ran together."""
    seconds = max(load.ended for load in loads) - min(load.started for load in loads)
    return sum(len(load.times) for load in loads) / seconds


def percentile(loads: list[Load], number: int) -> float:
    """Seconds, over all searches."""
    return float(np.percentile([time for load in loads for time in load.times], number))
