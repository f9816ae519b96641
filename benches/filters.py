"""Filters.

Ten results of a filtered search are wanted, from texts with static vectors (256 dimensions) and from the vectors of
[Hybrid search](#hybrid-search) (1,024). "The best" is the plan that was fastest in hindsight, "scan" reads all rows
that pass. "With the query" keeps the cluster that the query is in, "without what is near" those farthest from it.
[Beside other libraries](#beside-other-libraries) compares filtered searches with others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from benches.corpus import corpus_of
from benches.search import Vectors, drop
from benches.servers import vacuum
from semlex import BulkIngestConfig, Document, PostgreSQLRetriever, _core
from semlex.embedding.static import StaticEmbedder
from semlex.search import retrieval
from semlex.search.planner import MIN_CANDIDATES
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.query import vector
from semlex.store.schema.migrations import collection_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench

COLLECTION = "filters"
TOP, QUERIES, PASSES = 10, 20, 3
SIZES = {"256": 100_000, "1024": 20_000}
QUICK_SIZES = {"256": 10_000, "1024": 4_000}
CLUSTERS, ROUNDS, SEED = 200, 8, 5
LOADED_AT_ONCE = 10_000
SHARES = {"1/2": 2, "1/10": 10, "1/30": 30, "1/100": 100, "1/1000": 1000, "1/10000": 10_000}
WITH_QUERY, WITHOUT_HALF, WITHOUT_MOST = "1/200 with the query", "1/2 without what is near", "1/10 without what is near"
EF_SEARCH = (40, 100, 200, 400)
# The index takes a second for each of these queries.
HOPELESS = ("1/1000", "1/10000")
SLOW_SECONDS = 0.05
# Times the vectors that are expected: never given up.
NEVER = 1_000
RECALL_BAR, HINDSIGHT_BAR = 0.95, 1.5
# Times that the scan of all that passes takes longer.
SCAN_BARS = {"1/2": 40.0, "3/10": 40.0, "1/10": 5.0, WITH_QUERY: 5.0}
MODES = ("vector", "hybrid")


@dataclass(frozen=True, slots=True)
class Cell:
    """A filter for each query.

    Attributes:
        name: Which share it keeps.
        filters: By the query's number.
        kept: Which rows pass it, bool, shape (n,), by the query's number.
    """

    name: str
    filters: Callable[[int], dict[str, Any]]
    kept: Callable[[int], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Data:
    """What is stored, and what is asked.

    Attributes:
        name: Dimensions.
        texts: Of the rows.
        rows: float32, shape (n, d), norm 1.
        questions: Texts.
        asked: float32, shape (q, d), norm 1.
        clusters: Of each row.
        centres: float32, shape (CLUSTERS, d).
        numbers: A permutation, which has nothing to do with the vectors.
    """

    name: str
    texts: Sequence[str]
    rows: NDArray[np.float32]
    questions: Sequence[str]
    asked: NDArray[np.float32]
    clusters: NDArray[np.int64]
    centres: NDArray[np.float32]
    numbers: NDArray[np.int64]

    def metadata(self, row: int) -> dict[str, Any]:
        """The fields that are filtered by."""
        number = int(self.numbers[row])
        shares = {f"of_{step}": number % step for step in SHARES.values()}
        return shares | {"year": 2000 + number % 20, "cluster": int(self.clusters[row])}

    def far(self, query: int, number: int) -> list[int]:
        """The clusters farthest from a query."""
        return [int(one) for one in np.argsort(self.asked[query] @ self.centres.T)[:number]]

    def cells(self) -> list[Cell]:
        """All filters."""
        near = [int((one @ self.centres.T).argmax()) for one in self.asked]
        cells = [
            Cell(name, lambda _, s=step: {f"of_{s}": 1}, lambda _, s=step: self.numbers % s == 1)
            for name, step in SHARES.items()
        ]
        cells.insert(1, Cell("3/10", lambda _: {"year": {"$gte": 2014}}, lambda _: self.numbers % 20 >= 14))
        cells.append(Cell(WITH_QUERY, lambda q: {"cluster": near[q]}, lambda q: self.clusters == near[q]))
        for name, number in ((WITHOUT_HALF, CLUSTERS // 2), (WITHOUT_MOST, CLUSTERS // 10)):
            cells.append(
                Cell(
                    name,
                    lambda q, n=number: {"cluster": {"$in": self.far(q, n)}},
                    lambda q, n=number: np.isin(self.clusters, self.far(q, n)),
                )
            )
        return cells


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured("p50 against the best in hindsight", "times", HINDSIGHT_BAR, "run ./x bench --prepare")
        return
    for name, number in (QUICK_SIZES if quick else SIZES).items():
        texts = corpus.chunks(number)
        data = made(name, texts, corpus.queries("question")[:QUERIES])
        folder = state / f"filters-{name}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner() as runner, EmbeddedServer(folder / "server") as server:
            runner.run(fill(server, data))
            runner.run(measured(bench, server.url, data, quick=quick))


def made(name: str, texts: Sequence[str], questions: Sequence[str]) -> Data:
    """Vectors and clusters."""
    if name == "256":
        model = StaticEmbedder()
        rows, asked = model.embed_documents(list(texts)), np.stack([model.embed_query(one) for one in questions])
    else:
        vectors = Vectors(len(texts))
        rows = np.concatenate([block for _, block in vectors.blocks()])
        asked = vectors.queries(len(questions))
    clusters, centres = clustered(rows)
    numbers = np.random.default_rng(SEED).permutation(len(texts))
    return Data(name, texts, rows, questions, asked, clusters, centres, numbers)


def clustered(rows: NDArray[np.float32], clusters: int = CLUSTERS) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Spherical k-means: the cluster of each row, and the centres."""
    chance = np.random.default_rng(SEED)
    centres = rows[chance.choice(len(rows), clusters, replace=False)].copy()
    nearest = np.zeros(len(rows), dtype=np.int64)
    for _ in range(ROUNDS):
        for start in range(0, len(rows), LOADED_AT_ONCE):
            nearest[start : start + LOADED_AT_ONCE] = (rows[start : start + LOADED_AT_ONCE] @ centres.T).argmax(axis=1)
        for number in range(clusters):
            own = rows[nearest == number]
            if len(own):
                mean = own.mean(axis=0)
                centres[number] = mean / np.linalg.norm(mean)
    return nearest, centres


def open_retriever(url: str) -> PostgreSQLRetriever:
    """The collection, without a model."""
    options = BulkIngestConfig(build_indexes=False)
    return PostgreSQLRetriever(url, "none", "none", collection=COLLECTION, bulk=options)


async def fill(server: EmbeddedServer, data: Data) -> None:
    """Loads what was not loaded by a run before, or was loaded by another version."""
    stamp = server.folder.parent / "stamp.json"
    wanted = [data.name, len(data.texts), CLUSTERS, ROUNDS, SEED, collection_fingerprint(), _core.ANALYZER_VERSION]
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return
    stamp.unlink(missing_ok=True)
    print(f"  loading {len(data.texts):,} chunks of {data.name} dimensions, for this run and later ones", flush=True)
    await drop(server.url, COLLECTION)
    async with open_retriever(server.url) as retriever:
        for start in range(0, len(data.texts), LOADED_AT_ONCE):
            part = range(start, min(start + LOADED_AT_ONCE, len(data.texts)))
            documents = [Document(data.texts[row], data.metadata(row), id=str(row)) for row in part]
            await retriever.add_documents(documents, data.rows[part.start : part.stop])
        await retriever.indexes.create()
        await retriever.indexes.optimize()
    vacuum(server.url)
    stamp.write_text(json.dumps(wanted))


@contextlib.contextmanager
def forced(plan: str) -> Iterator[None]:
    """Lets every vector leg take a plan, and the index never give up."""
    with mock.patch.object(retrieval, "vector_plan", return_value=plan), mock.patch.object(vector, "PATIENCE", NEVER):
        yield


async def measured(bench: Bench, url: str, data: Data, *, quick: bool) -> None:
    """Every filter: our plan, and all others; small collections have no bar for what a scan takes."""
    async with open_retriever(url) as retriever:
        for cell in data.cells():
            name = f"{data.name}: {cell.name}"
            kept = [cell.kept(query) for query in range(len(data.questions))]
            truth = [nearest(data, query, kept[query]) for query in range(len(data.questions))]
            most = statistics.mean(min(TOP, int(own.sum())) for own in kept)
            ours, hits = await timed(retriever, data, cell, "vector")
            bench.at_least(
                f"{name}, rows of those that exist", statistics.mean(map(len, hits)) / most, unit="", bar=1.0
            )
            bench.at_least(f"{name}, recall@{TOP}", recall(hits, truth), unit="", bar=RECALL_BAR)
            others = await in_hindsight(retriever, data, cell, truth)
            best = min(others, key=others.__getitem__)
            bench.at_most(f"{name}, p50", ours * 1000, unit="ms", bar=None)
            bench.at_most(f"{name}, against the best: {best}", ours / others[best], unit="times", bar=HINDSIGHT_BAR)
            bench.at_least(
                f"{name}, scan / ours",
                others["scan"] / ours,
                unit="times",
                bar=None if quick else SCAN_BARS.get(cell.name),
            )
            # Each leg alone, as deep as both go together.
            nearest_alone, _ = await timed(retriever, data, cell, "vector", tuning={"candidates": MIN_CANDIDATES})
            words, _ = await timed(retriever, data, cell, "keyword", tuning={"candidates": MIN_CANDIDATES})
            both, answers = await timed(retriever, data, cell, "hybrid")
            bench.at_least(
                f"{name}, hybrid, rows of those that exist", statistics.mean(map(len, answers)) / most, unit="", bar=1.0
            )
            bench.at_most(
                f"{name}, hybrid / slower search", both / max(nearest_alone, words), unit="times", bar=HINDSIGHT_BAR
            )


async def in_hindsight(
    retriever: PostgreSQLRetriever, data: Data, cell: Cell, truth: list[set[int]]
) -> dict[str, float]:
    """Seconds of each plan that is good enough."""
    found: dict[str, float] = {}
    for plan in ("scan", "keys"):
        with forced(plan):
            found[plan], _ = await timed(retriever, data, cell, "vector")
    if cell.name in HOPELESS:
        return found
    with forced("index"):
        for size in EF_SEARCH:
            seconds, hits = await timed(retriever, data, cell, "vector", tuning={"ef_search": size})
            if recall(hits, truth) >= RECALL_BAR:
                found[f"index, ef_search {size}"] = seconds
    return found


async def timed(
    retriever: PostgreSQLRetriever, data: Data, cell: Cell, mode: Any, **options: Any
) -> tuple[float, list[list[int]]]:
    """Median seconds, warm, and the hits of each query."""
    times: list[float] = []
    hits: list[list[int]] = []
    for number in range(PASSES + 1):
        if times and statistics.median(times) > SLOW_SECONDS:
            break
        for query, question in enumerate(data.questions):
            asked = {} if mode == "keyword" else {"vector": data.asked[query]}
            started = time.perf_counter()
            results = await retriever.search(question, TOP, cell.filters(query), mode=mode, **asked, **options)
            if number:
                times.append(time.perf_counter() - started)
            else:
                hits.append([int(hit.id) for hit in results])
    return statistics.median(times), hits


def nearest(data: Data, query: int, kept: NDArray[np.bool_]) -> set[int]:
    """The nearest of those that pass."""
    passing = np.flatnonzero(kept)
    similarities = data.rows[passing] @ data.asked[query]
    return {int(row) for row in passing[np.argsort(-similarities)[:TOP]]}


def recall(hits: list[list[int]], truth: list[set[int]]) -> float:
    """The share of the nearest that was found, in the mean."""
    return statistics.mean(len(set(own) & best) / len(best) for own, best in zip(hits, truth, strict=True) if best)
