"""A search right after another process has committed, against a warm one; both follow a write of that process."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from benches.keyword_leg import TOP
from semlex import BulkIngestConfig, Document, SyncRetriever

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from benches.measuring import Bench
    from semlex import PostgreSQLRetriever
    from semlex.types.results import SearchMode

    Query = tuple[str, Any]  # words, and a vector or None

SEED = 7
# Where the other process writes before a warm search.
ELSEWHERE = "elsewhere"
# Searches by which the index counts as one that does not change.
REST = 101
AFTER = "after a foreign commit"


class Writer:
    """Another process, which commits a new chunk when it is told to.

    Args:
        url: The server.
        collection: The one that is searched.
        texts: What it writes, in any order.
        dimensions: Of the vectors that it writes as well; 0 for none.
    """

    def __init__(self, url: str, collection: str, texts: Sequence[str], dimensions: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._told, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_write, args=(theirs, url, collection, texts, dimensions))

    def __enter__(self) -> Self:
        self._process.start()
        for there in (True, False):
            self.commit(there=there)
        return self

    def __exit__(self, *_: object) -> None:
        self._told.send(None)
        self._process.join()

    def commit(self, *, there: bool) -> None:
        """Returns when it has committed, in the collection that is searched or in another one."""
        self._told.send(there)
        self._told.recv()


def _write(told: Connection, url: str, collection: str, texts: Sequence[str], dimensions: int) -> None:
    chance, numbers, written = Random(SEED), np.random.default_rng(SEED), list[str]()
    with contextlib.ExitStack() as stack:
        opened = {
            there: stack.enter_context(
                SyncRetriever(
                    url, "none", "none", collection=name, keyword="bm25", bulk=BulkIngestConfig(build_indexes=False)
                )
            )
            for there, name in ((True, collection), (False, ELSEWHERE))
        }
        while (there := told.recv()) is not None:
            vector = numbers.normal(size=(1, dimensions)).astype(np.float32) if dimensions else None
            document = Document(chance.choice(texts), id=f"written-{len(written)}")
            written.append(f"written-{len(written)}")
            opened[there].add_documents([document], vector)
            told.send(True)
        opened[True].delete(written)
        opened[True].indexes.optimize()
        opened[False].drop_collection()


@dataclass(slots=True)
class Costs:
    """Milliseconds of searches: by the clock, and of this process's processor."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Searches:
    """Searches of one kind, by what came before.

    Attributes:
        warm: A commit elsewhere.
        after: A commit in the collection.
        following: The search that came after that.
        rested: As `after`, but before that nothing was committed for `REST` searches.
    """

    warm: Costs = field(default_factory=Costs)
    after: Costs = field(default_factory=Costs)
    following: Costs = field(default_factory=Costs)
    rested: Costs = field(default_factory=Costs)

    @classmethod
    async def measured(
        cls, retriever: PostgreSQLRetriever, writer: Writer, queries: Sequence[Query], mode: SearchMode, rested: int
    ) -> Self:
        """Asks each query in each way, in turn; only the first `rested` queries after a rest."""
        searches = cls()

        async def search(query: Query, costs: Costs | None = None) -> None:
            text, vector = query
            started, computed = time.perf_counter(), time.process_time()
            await retriever.search(text, TOP, mode=mode, vector=vector)
            if costs is not None:
                costs.processor.append((time.process_time() - computed) * 1000)
                costs.wall.append((time.perf_counter() - started) * 1000)

        for query in [*queries, *queries]:
            await search(query)
        for number, query in enumerate(queries):
            for there in (True, False) if number % 2 else (False, True):
                writer.commit(there=there)
                await search(query, searches.after if there else searches.warm)
                if there:
                    await search(query, searches.following)
        for query in queries[:rested]:
            for _ in range(REST):
                await search(query)
            writer.commit(there=True)
            await search(query, searches.rested)
        return searches

    def report(self, bench: Bench, name: str, bar: float) -> None:
        """Adds the figures."""
        for costs, when in ((self.warm, "warm"), (self.after, AFTER)):
            bench.at_most(f"{name}, {when}, p50", statistics.median(costs.wall), unit="ms", bar=None)
            own = statistics.median(costs.processor)
            bench.at_most(f"{name}, {when}, own processor", own, unit="ms", bar=None)
        bench.at_most(f"{name}, {AFTER}, against warm", self._against_warm(self.after), unit="times", bar=bar)
        bench.at_most(
            f"{name}, the search after it, against warm", self._against_warm(self.following), unit="times", bar=None
        )
        if self.rested.wall:
            ratio = self._against_warm(self.rested)
            bench.at_most(
                f"{name}, {AFTER} and {REST - 1} searches without, against warm", ratio, unit="times", bar=None
            )

    def _against_warm(self, costs: Costs) -> float:
        return statistics.median(costs.processor) / statistics.median(self.warm.processor)
