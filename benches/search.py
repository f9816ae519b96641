"""Hybrid search.

A hybrid search against the slower of its two searches, all with rows and excerpts: 100,000 real texts with made
vectors of 1,024 dimensions, in clusters as those of real texts are, and an HNSW index. The query's vector is given.

After a foreign commit: another process has just written one chunk. It writes before a warm search as well, but in
another collection, so that the two differ only in what has changed. They are compared by their own processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benches.after_commit import Searches, Writer
from benches.bm25 import percentiles
from benches.corpus import Corpus, corpus_of
from benches.keyword_leg import TOP, PlainBm25
from benches.servers import vacuum
from semlex import BulkIngestConfig, Client, Document, PostgreSQLRetriever, _core
from semlex.errors import CollectionNotFoundError
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.schema.migrations import collection_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench
    from semlex.types.results import SearchMode

CHUNKS, QUICK_CHUNKS = 100_000, 10_000
DIMENSIONS = 1024
# Of the space that the vectors come from, and how many clusters it holds.
INNER_DIMENSIONS, CLUSTERS = 32, 500
SEED = 3
LOADED_AT_ONCE = 10_000
COLLECTION, ENGINE = "search", "bm25"
MODES: tuple[SearchMode, ...] = ("hybrid", "vector", "keyword")
RERANKED = "reranked"
BAR = 1.3
# Milliseconds of the 95th percentile, without the time of models.
LIMITS = {"hybrid": 200.0, "vector": 100.0, RERANKED: 500.0}
PASSES, QUICK_PASSES = 7, 4
COMMIT_BAR = 1.3
# Texts that another process writes, and queries that are asked after a rest as well.
WRITTEN, RESTED = 2_000, 20


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    name = "hybrid, against the slower search"
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured(name, "times", BAR, "run ./x bench --prepare")
        return
    texts = corpus.chunks(QUICK_CHUNKS if quick else CHUNKS)
    queries = corpus.queries("question")
    vectors = Vectors(len(texts))
    asked = vectors.queries(len(queries))
    with asyncio.Runner() as runner, EmbeddedServer(prepared_folder(state, len(texts))) as server:
        runner.run(fill(server, corpus, texts, vectors))
        both = list(zip(queries, asked, strict=True))
        times, found = runner.run(searches(server.url, both, QUICK_PASSES if quick else PASSES))
        report(bench, name, times)
        bench.at_least(f"vector, recall@{TOP}", recall(vectors, asked, found["vector"]), unit="", bar=None)
        truth = PlainBm25(texts, queries)
        exact = statistics.mean(map(truth.recall, queries, found["keyword"]))
        bench.at_least(f"keyword, recall@{TOP}", exact, unit="", bar=1.0)
        runner.run(among_commits(bench, server.url, texts[-WRITTEN:], both, rested=0 if quick else RESTED))
        vacuum(server.url)


def report(bench: Bench, name: str, times: dict[str, list[float]]) -> None:
    """The times, and how they compare."""
    for mode in (*MODES, RERANKED):
        for percentile, value in zip(("p50", "p95"), percentiles(times[mode]), strict=True):
            limit = LIMITS.get(mode) if percentile == "p95" else None
            bench.at_most(f"{mode}, {percentile}", value, unit="ms", bar=limit)
    slower = max(MODES[1:], key=lambda mode: statistics.median(times[mode]))
    ratios = [both / alone for both, alone in zip(times["hybrid"], times[slower], strict=True)]
    bench.at_most(f"{name} ({slower})", statistics.median(ratios), unit="times", bar=BAR)


async def among_commits(
    bench: Bench, url: str, texts: Sequence[str], asked: Sequence[tuple[str, NDArray[np.float32]]], *, rested: int
) -> None:
    """Searches right after another process has committed."""
    with Writer(url, COLLECTION, texts, DIMENSIONS) as writer:
        for mode in ("hybrid", "keyword"):
            async with open_retriever(url) as retriever:
                (await Searches.measured(retriever, writer, asked, mode, rested)).report(bench, mode, COMMIT_BAR)


class Vectors:
    """Vectors of norm 1, always the same.

    Args:
        number: How many.
    """

    def __init__(self, number: int) -> None:
        chance = np.random.default_rng(SEED)
        self._turn = chance.normal(size=(INNER_DIMENSIONS, DIMENSIONS)).astype(np.float32)
        centres = chance.normal(size=(CLUSTERS, INNER_DIMENSIONS)).astype(np.float32)
        around = chance.normal(scale=0.5, size=(number, INNER_DIMENSIONS)).astype(np.float32)
        self._inner = centres[chance.integers(CLUSTERS, size=number)] + around

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Number of the first row, and rows: float32, shape (n, d)."""
        for start in range(0, len(self._inner), LOADED_AT_ONCE):
            yield start, self._unit(self._inner[start : start + LOADED_AT_ONCE])

    def queries(self, number: int) -> NDArray[np.float32]:
        """Vectors near some of the rows, float32, shape (number, d)."""
        chance = np.random.default_rng(SEED + 1)
        near = self._inner[chance.choice(len(self._inner), number, replace=False)]
        return self._unit(near + chance.normal(scale=0.3, size=near.shape).astype(np.float32))

    def _unit(self, inner: NDArray[np.float32]) -> NDArray[np.float32]:
        outer = inner @ self._turn
        return np.asarray(outer / np.linalg.norm(outer, axis=1, keepdims=True), dtype=np.float32)


def prepared_folder(state: Path, number: int) -> Path:
    """Where the server's data for so many chunks lie."""
    folder = state / f"search-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "server"


async def fill(server: EmbeddedServer, corpus: Corpus, texts: Sequence[str], vectors: Vectors) -> None:
    """Loads what was not loaded by a run before, or was loaded by another version."""
    stamp = server.folder.parent / "stamp.json"
    wanted = [corpus.figures()["made_by"], len(texts), DIMENSIONS, INNER_DIMENSIONS, CLUSTERS, SEED]
    wanted += [collection_fingerprint(), _core.ANALYZER_VERSION]
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return
    stamp.unlink(missing_ok=True)
    print(f"  loading {len(texts):,} chunks and building the vector index, for this run and later ones", flush=True)
    await drop(server.url, COLLECTION)
    async with open_retriever(server.url) as retriever:
        for start, rows in vectors.blocks():
            part = enumerate(texts[start : start + LOADED_AT_ONCE], start)
            await retriever.add_documents([Document(text, id=str(number)) for number, text in part], rows)
        await retriever.indexes.create()
        await retriever.indexes.optimize()
    vacuum(server.url)
    stamp.write_text(json.dumps(wanted))


async def drop(url: str, collection: str) -> None:
    """Drops what an earlier run has loaded, whichever semlex that was."""
    async with Client(url, "none", use_reranking=False) as client:
        with contextlib.suppress(CollectionNotFoundError):
            await client.drop(collection)


def open_retriever(url: str, reranker: str = "none") -> PostgreSQLRetriever:
    """The collection, without an embedding model."""
    return PostgreSQLRetriever(
        url, "none", reranker, collection=COLLECTION, keyword=ENGINE, bulk=BulkIngestConfig(build_indexes=False)
    )


async def searches(
    url: str, asked: Sequence[tuple[str, NDArray[np.float32]]], passes: int
) -> tuple[dict[str, list[float]], dict[str, list[list[int]]]]:
    """Seconds and hits of every mode, query by query, in turn; everything is warm.

    A reranker's seconds are those of the search without the reranker's own.
    """
    times: dict[str, list[float]] = {mode: [] for mode in (*MODES, RERANKED)}
    found: dict[str, list[list[int]]] = {mode: [] for mode in MODES}
    async with open_retriever(url) as retriever, open_retriever(url, "term-overlap") as reranking:
        for number in range(passes + 1):
            for query, vector in asked:
                started = time.perf_counter()
                hits = await reranking.search(query, TOP, vector=vector)
                if number:
                    times[RERANKED].append(time.perf_counter() - started - hits.timings["rerank"] / 1_000)
                for mode in MODES[:: -1 if number % 2 else 1]:
                    options: dict[str, Any] = {} if mode == "keyword" else {"vector": vector}
                    started = time.perf_counter()
                    hits = await retriever.search(query, TOP, mode=mode, **options)
                    if number:
                        times[mode].append(time.perf_counter() - started)
                    else:
                        found[mode].append([int(hit.id) for hit in hits])
    return times, found


def recall(vectors: Vectors, asked: NDArray[np.float32], found: list[list[int]]) -> float:
    """The share of the nearest vectors that the vector leg found, in the mean."""
    similarities = np.concatenate([asked @ rows.T for _, rows in vectors.blocks()], axis=1)
    nearest = np.argpartition(similarities, -TOP, axis=1)[:, -TOP:]
    return statistics.mean(len(set(own) & set(truth.tolist())) / TOP for own, truth in zip(found, nearest, strict=True))
