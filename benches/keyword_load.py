"""What the keyword index costs a load: with and without it, and many writers of the same words."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

from semlex import BulkIngestConfig, Document, PostgreSQLRetriever
from semlex.store.keyword.bm25 import merge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from benches.measuring import Bench
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

DIMENSIONS = 1024
ROWS, QUICK_ROWS = 20_000, 4_000
RUNS, QUICK_RUNS = 5, 2
WRITERS = 8
WRITERS_BATCH = 200
WITH_INDEX_BAR, SAME_WORDS_BAR = 0.85, 0.9
NO_INDEXES = BulkIngestConfig(build_indexes=False)


def run(bench: Bench, url: str, texts: Sequence[str], *, quick: bool) -> None:
    """Takes the figures."""
    rows, runs = (QUICK_ROWS, QUICK_RUNS) if quick else (ROWS, RUNS)
    with asyncio.Runner() as runner:
        loads = Loads(url, texts[:rows])
        runner.run(loads.with_and_without(bench, runs))
        runner.run(loads.writers(bench, runs))


class Loads:
    """Loads the same texts, each time into a new collection.

    Args:
        url: The server.
        texts: One chunk each.
    """

    def __init__(self, url: str, texts: Sequence[str]) -> None:
        self.url, self.texts = url, texts
        self.vectors = np.random.default_rng(1).normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
        self._numbers = itertools.count()

    async def seconds(self, keyword: str, work: Callable[[PostgreSQLRetriever], Awaitable[None]]) -> float:
        """Seconds of `work` on a new collection, set-up and clean-up apart."""
        name = f"load_{next(self._numbers)}"
        async with PostgreSQLRetriever(
            self.url, "none", "none", collection=name, keyword=keyword, bulk=NO_INDEXES
        ) as retriever:
            # The table for vectors exists before the clock starts.
            await retriever.add_documents([Document("first", id="first")], self.vectors[:1])
            await retriever.delete(["first"])
            started = time.perf_counter()
            await work(retriever)
            seconds = time.perf_counter() - started
            await retriever.drop_collection()
            return seconds

    async def with_and_without(self, bench: Bench, runs: int) -> None:
        """Vectors given: rows a second with the keyword index and without, and what of it merging takes."""
        documents = [Document(text, id=str(number)) for number, text in enumerate(self.texts)]

        async def add(retriever: PostgreSQLRetriever) -> None:
            await retriever.add_documents(documents, self.vectors)

        times: dict[str, list[float]] = {"bm25": [], "none": []}
        shares = []
        with timed_merging() as merging:
            for number in range(runs + 1):
                for keyword in list(times)[:: -1 if number % 2 else 1]:
                    merging.clear()
                    seconds = await self.seconds(keyword, add)
                    if number:
                        times[keyword].append(seconds)
                        shares += [sum(merging) / seconds] if keyword == "bm25" else []
        name = "load of 1024-d, vs no keyword index"
        bench.speed(name, times["bm25"], times["none"], amount=len(documents), unit="rows/s", bar=WITH_INDEX_BAR)
        bench.at_most("  of its time, merging", 100 * float(np.median(shares)), unit="%", bar=None)

    async def writers(self, bench: Bench, runs: int) -> None:
        """Writers at once: words that all of them write against words that each has alone."""
        alike = self._batches("a" * WRITERS)
        apart = self._batches("abcdefgh")
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(runs + 1):
            for which in (0, 1) if number % 2 else (1, 0):
                batches = (alike, apart)[which]

                async def write(retriever: PostgreSQLRetriever, batches: list[list[list[Document]]] = batches) -> None:
                    await asyncio.gather(*(add_all(retriever, own) for own in batches))

                seconds = await self.seconds("bm25", write)
                if number:
                    times[which].append(seconds)
        rows = sum(len(batch) for own in alike for batch in own)
        name = f"{WRITERS} writers, same vs own words"
        bench.speed(name, *times, amount=rows, unit="rows/s", bar=SAME_WORDS_BAR)

    def _batches(self, endings: str) -> list[list[list[Document]]]:
        """The batches of each writer, who writes its own texts with its own ending at every word."""
        share = len(self.texts) // WRITERS
        made = []
        for writer, ending in enumerate(endings):
            own = range(writer * share, (writer + 1) * share)
            documents = [
                Document(" ".join(word + ending for word in self.texts[number].split()), id=str(number))
                for number in own
            ]
            made.append([documents[at : at + WRITERS_BATCH] for at in range(0, len(documents), WRITERS_BATCH)])
        return made


@contextlib.contextmanager
def timed_merging() -> Iterator[list[float]]:
    """Seconds of each time that a writer merges segments."""
    seconds: list[float] = []
    merge_where_wanted = merge.merge_where_wanted

    async def timed(database: Database, collection: CollectionInfo, *, written: int = 0) -> None:
        started = time.perf_counter()
        await merge_where_wanted(database, collection, written=written)
        seconds.append(time.perf_counter() - started)

    with patch.object(merge, "merge_where_wanted", timed):
        yield seconds


async def add_all(retriever: PostgreSQLRetriever, batches: list[list[Document]]) -> None:
    """One writer: a call a batch."""
    for batch in batches:
        await retriever.add_documents(batch)
