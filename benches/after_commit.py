"""Compares a search right after a foreign commit with a warm search; the other process writes before both."""

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
from semlex.store.keyword.bm25.index import QUIET_SEARCHES

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
AFTER = "after a foreign commit"


class Writer:
    """A second process that commits one new chunk for each call of `commit`.

    Args:
        url: Address of the server.
        collection: The collection that is searched.
        texts: Texts of the chunks, drawn at random.
        dimensions: Dimensions of the chunks' vectors; 0 for chunks without vectors.
    """

    def __init__(self, url: str, collection: str, texts: Sequence[str], dimensions: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._commands, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_write, args=(theirs, url, collection, texts, dimensions))

    def __enter__(self) -> Self:
        self._process.start()
        for there in (True, False):
            self.commit(there=there)
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.send(None)
        self._process.join()

    def commit(self, *, there: bool) -> None:
        """Commits a chunk, in the collection that is searched or in another one."""
        self._commands.send(there)
        self._commands.recv()


def _write(commands: Connection, url: str, collection: str, texts: Sequence[str], dimensions: int) -> None:
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
        while (there := commands.recv()) is not None:
            vector = numbers.normal(size=(1, dimensions)).astype(np.float32) if dimensions else None
            written.append(f"written-{len(written)}")
            opened[there].add_documents([Document(chance.choice(texts), id=written[-1])], vector)
            commands.send(True)
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
    """Costs of searches of one kind, by what came before each.

    Attributes:
        warm: A commit in another collection.
        after: A commit in the collection.
        following: One of the searches of `after`.
        rested: A commit in the collection, after so many searches without one that a search no longer asks for changes.
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
            for _ in range(QUIET_SEARCHES + 1):
                await search(query)
            writer.commit(there=True)
            await search(query, searches.rested)
        return searches

    def report(self, bench: Bench, name: str, bar: float) -> None:
        """Adds the figures."""
        for costs, when in ((self.warm, "warm"), (self.after, AFTER)):
            bench.at_most(f"{name}, {when}, p50", statistics.median(costs.wall), unit="ms", bar=None)
            bench.at_most(f"{name}, {when}, own processor", statistics.median(costs.processor), unit="ms", bar=None)
        ratios = [(self.after, AFTER, bar), (self.following, "the search after it", None)]
        if self.rested.processor:
            ratios.append((self.rested, f"{AFTER} and {QUIET_SEARCHES} searches without", None))
        for costs, when, limit in ratios:
            ratio = statistics.median(costs.processor) / statistics.median(self.warm.processor)
            bench.at_most(f"{name}, {when}, against warm", ratio, unit="times", bar=limit)
