"""Vector indexes.

Each kind of index on the vectors of [Hybrid search](#hybrid-search), built once; recall is against an exact search.
[Vector indexes](indexes.md) says when to choose which.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benches.search import Vectors, recall
from benches.servers import vacuum
from semlex import BulkIngestConfig, Document, HnswIndex, IvfflatIndex, NoIndex, PostgreSQLRetriever
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from benches.measuring import Bench
    from semlex.store.indexes.options import VectorIndex

ROWS, QUICK_ROWS = 100_000, 10_000
SIZES = (1_000, 10_000, 100_000)
QUERIES, QUICK_QUERIES, EXACT_QUERIES = 100, 50, 20
TOP = 10
KINDS: dict[str, VectorIndex] = {
    "HNSW": HnswIndex(),
    "HNSW halfvec": HnswIndex(quantization="halfvec"),
    "HNSW bit": HnswIndex(quantization="bit"),
    "IVFFlat": IvfflatIndex(),
}
BAR_RECALL, BAR_BYTES, BAR_BUILD = 0.95, 1 / 8, 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one kind: bytes of a vector, seconds of the build, recall, milliseconds of a search."""

    bytes: float
    seconds: float
    recall: float
    milliseconds: float


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    rows = QUICK_ROWS if quick else ROWS
    folder = state / f"index-{rows}"
    folder.mkdir(parents=True, exist_ok=True)
    with asyncio.Runner() as runner, EmbeddedServer(folder / "server") as server:
        measured = runner.run(kinds(server.url, rows, QUICK_QUERIES if quick else QUERIES))
        crossing = runner.run(sizes(server.url, [size for size in SIZES if size <= rows]))
    for kind, figures in measured.items():
        bench.at_most(f"{kind}, bytes a vector", figures.bytes, unit="bytes", bar=None)
        bench.at_most(f"{kind}, build", figures.seconds, unit="s", bar=None)
        is_bit = kind == "HNSW bit"
        bench.at_least(f"{kind}, recall@{TOP}", figures.recall, unit="", bar=BAR_RECALL if is_bit else None)
        bench.at_most(f"{kind}, p50", figures.milliseconds, unit="ms", bar=None)
    whole, bit = measured["HNSW"], measured["HNSW bit"]
    bench.at_most("HNSW bit, share of the bytes", bit.bytes / whole.bytes, unit="", bar=BAR_BYTES)
    # Of two seconds a good part is the start of workers.
    bar = None if quick else BAR_BUILD
    bench.at_least("HNSW bit, builds faster", whole.seconds / bit.seconds, unit="times", bar=bar)
    for size, (exact, indexed) in crossing.items():
        bench.at_most(f"{size:,} vectors, exact, p50", exact, unit="ms", bar=None)
        bench.at_most(f"{size:,} vectors, HNSW, p50", indexed, unit="ms", bar=None)


async def kinds(url: str, rows: int, queries: int) -> dict[str, Measured]:
    """Every kind of index over the same vectors, one after the other."""
    vectors = Vectors(rows)
    asked = vectors.queries(queries)
    measured = {}
    async with await filled(url, rows, vectors) as retriever:
        for kind, index in KINDS.items():
            await retriever.indexes.create(NoIndex())
            started = time.perf_counter()
            await retriever.indexes.create(index)
            seconds = time.perf_counter() - started
            vacuum(url)
            (stored,) = (await retriever.status()).vector_indexes
            milliseconds, found = await searched(retriever, asked)
            measured[kind] = Measured(stored.bytes / rows, seconds, recall(vectors, asked, found), milliseconds)
    return measured


async def sizes(url: str, wanted: list[int]) -> dict[int, tuple[float, float]]:
    """For each size the time of an exact search, and that through an HNSW index."""
    times = {}
    for size in wanted:
        vectors = Vectors(size)
        asked = vectors.queries(EXACT_QUERIES)
        async with await filled(url, size, vectors) as retriever:
            await retriever.indexes.create(NoIndex())
            exact, _ = await searched(retriever, asked)
            await retriever.indexes.create(HnswIndex())
            indexed, _ = await searched(retriever, asked)
        times[size] = exact, indexed
    return times


async def filled(url: str, rows: int, vectors: Vectors) -> PostgreSQLRetriever:
    """A collection of so many vectors, not opened; loaded where a run before has not done that."""
    options: dict[str, Any] = {
        "collection": f"vectors_{rows}",
        "keyword": "none",
        "vector_storage": "vector",
        "bulk": BulkIngestConfig(build_indexes=False),
    }
    async with PostgreSQLRetriever(url, "none", "none", **options) as retriever:
        if await retriever.count() != rows:
            for start, block in vectors.blocks():
                documents = [Document("word", id=str(number)) for number in range(start, start + len(block))]
                await retriever.add_documents(documents, block)
            vacuum(url)
    return PostgreSQLRetriever(url, "none", "none", **options)


async def searched(retriever: PostgreSQLRetriever, asked: NDArray[np.float32]) -> tuple[float, list[list[int]]]:
    """The median of milliseconds, everything warm, and the numbers of the vectors that were found."""
    found = [[int(hit.id) for hit in await retriever.search(vector=query, top_k=TOP)] for query in asked]
    times = []
    for query in asked:
        started = time.perf_counter()
        await retriever.search(vector=query, top_k=TOP)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000, found
