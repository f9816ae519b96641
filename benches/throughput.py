"""Searches at the same time.

1, 8 and 32 hybrid searches at once over the rows of [Hybrid search](#hybrid-search), against langchain-postgres with
an HNSW and a GIN index. That requires all words of a question, so it reads few rows. Searches and server share the
cores.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from benches.baseline_tables import BaselineTable
from benches.corpus import corpus_of
from benches.keyword_leg import TOP
from benches.preparing import langchain_python
from benches.search import CHUNKS, COLLECTION, QUICK_CHUNKS, Vectors, fill, open_retriever, prepared_folder
from benches.under_load import Load, under_load
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benches.measuring import Bench

AT_ONCE, COMPARED = (1, 8, 32), 8
PROCESSES, READY_SECONDS = 4, 60.0
SECONDS, QUICK_SECONDS = 10.0, 1.0
RUNS, QUICK_RUNS = 3, 1
# Searches a second of the baseline's; 99th percentile over the mean; milliseconds that the event loop is late, and of
# the processor.
SPEED_BAR, TAIL_BAR, LATE_BAR, PROCESSOR_BAR = 10.0, 2.5, 20.0, 3.0
_barrier: Any = None


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured(f"{COMPARED} at once", "searches/s", SPEED_BAR, "run ./x bench --prepare")
        return
    texts = corpus.chunks(QUICK_CHUNKS if quick else CHUNKS)
    queries = corpus.queries("question")
    vectors = Vectors(len(texts))
    asked = vectors.queries(len(queries))
    seconds, runs = (QUICK_SECONDS, QUICK_RUNS) if quick else (SECONDS, RUNS)
    with EmbeddedServer(prepared_folder(state, len(texts))) as server, tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(server, corpus, texts, vectors))
        theirs = Theirs(server.url, state, queries, asked, Path(folder))
        for at_once in AT_ONCE:
            pairs = [
                (ours(server.url, queries, asked, 1, at_once, seconds), theirs.load(at_once, seconds))
                for _ in range(runs)
            ]
            compare(bench, at_once, [own for own, _ in pairs], [other for _, other in pairs if other])
        for at_once in AT_ONCE:
            loads = ours(server.url, queries, asked, PROCESSES, at_once, seconds)
            name = f"{PROCESSES} processes, {at_once} at once in each"
            bench.at_least(name, speed(loads), unit="searches/s", bar=None)
            costs(bench, name, loads, processor=PROCESSOR_BAR, failures=0.0)


class Theirs:
    """langchain-postgres on the same server.

    Args:
        url: Of the server.
        state: Where its environment is.
        queries: Texts.
        asked: Their vectors, float32, shape (n, d).
        folder: For files.
    """

    def __init__(self, url: str, state: Path, queries: list[str], asked: NDArray[np.float32], folder: Path) -> None:
        columns = {
            "langchain_id": sql.SQL("r.id"),
            "content": sql.SQL("r.content"),
            "embedding": sql.SQL("r.embedding"),
            "content_tsv": sql.SQL("to_tsvector('pg_catalog.english', r.content)"),
            "langchain_metadata": sql.SQL("r.metadata"),
        }
        self._table = BaselineTable(langchain_python(state), "langchain_postgres_search", "langchain_search", columns)
        self._url, self._queries, self._vectors = url, queries, folder / "vectors.npy"
        self._exists = self._table.python.exists()
        if self._exists:
            np.save(self._vectors, asked)
            self._table.fill(url, COLLECTION)

    def load(self, at_once: int, seconds: float) -> Load | None:
        """What its searches cost, in one process."""
        if not self._exists:
            return None
        given = {"queries": self._queries, "vectors": str(self._vectors), "at_once": at_once, "seconds": seconds}
        return Load(**self._table.ask(self._url, "search", **given))


def ours(
    url: str, queries: list[str], asked: NDArray[np.float32], processes: int, at_once: int, seconds: float
) -> list[Load]:
    """What our searches cost in each of some new processes."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes, _begin_together, [spawn.Barrier(processes, timeout=READY_SECONDS)]) as pool:
        return pool.starmap(_load, [(url, queries, asked, at_once, seconds)] * processes, chunksize=1)


def _begin_together(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603 - a pool gives it to its processes in this way only
    _barrier = barrier


def _load(url: str, queries: list[str], asked: NDArray[np.float32], at_once: int, seconds: float) -> Load:
    async def searches() -> Load:
        async with open_retriever(url) as retriever:

            async def search(number: int) -> int:
                return len(await retriever.search(queries[number], TOP, vector=asked[number]))

            return await under_load(search, len(queries), at_once, seconds, _barrier.wait)

    return asyncio.run(searches())


def compare(bench: Bench, at_once: int, own: list[list[Load]], theirs: list[Load]) -> None:
    """One process beside the baseline's, in pairs of runs."""
    name, bar = f"{at_once} at once", SPEED_BAR if at_once == COMPARED else None
    if theirs:
        mine, other = [1 / speed(loads) for loads in own], [1 / speed([load]) for load in theirs]
        bench.speed(f"{name}, vs langchain-postgres", mine, other, amount=1, unit="searches/s", bar=bar)
        costs(bench, f"{name}, langchain-postgres", theirs)
    else:
        bench.unmeasured(f"{name}, vs langchain-postgres", "searches/s", bar, "run ./x bench --prepare")
    loads = [load for one in own for load in one]
    costs(bench, name, loads, late=LATE_BAR, processor=PROCESSOR_BAR, failures=0.0)
    tail = statistics.median(percentile(one, 99) * speed(one) / at_once for one in own)
    bench.at_most(f"{name}, p99 over the mean", tail, unit="times", bar=TAIL_BAR if at_once == COMPARED else None)


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
