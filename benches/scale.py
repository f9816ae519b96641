"""Scale.

What memory, disk and time a collection needs as it grows. A text is one half of a piece of documentation with the other
half of a different piece, 113 words in the mean; its vector is the sum of the halves' static vectors, 256 dimensions,
length 1. Each text has one metadata field. Questions are 7 to 13 words of pieces that are not stored. The vector index
is the default one: HNSW of float16, from 10,000 chunks on.

A separate program searches, ten hits each, everything warm. "Searches/s of a core" is what the processor time of a
lone hybrid search would allow one core, client and server together. Recall is that of vector searches, against an exact
comparison with every row. Memory is that of the program and of the server's processes, each with its part of what they
share. Disk includes the write-ahead log.

`--million` stores ten million instead, with an index of binary quantization, which is built with 8 GB: two hours, 45 GB
of disk, 20 GB of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from benches.baselines.peers.protocol import TOP, Rows
from benches.bm25 import percentiles
from benches.corpus import corpus_of, questions_of
from benches.measuring import Table
from benches.peer_process import PeerProcess, disk, server
from benches.peers import show, shown
from benches.recall import Asked, one
from benches.servers import vacuum
from semlex import BulkIngestConfig, HnswIndex, PostgreSQLRetriever
from semlex.embedding.static import StaticEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benches.measuring import Bench
    from benches.peer_process import Server
    from semlex.types.results import SearchMode

SIZES, QUICK_SIZES, MANY = (10_000, 100_000, 1_000_000), (12_000,), 10_000_000
# Pieces whose halves make the texts, and pieces that questions come from.
PIECES, HELD_BACK, QUESTION_GROUPS = 400_000, 8_000, 8
LOADED_AT_ONCE = 10_000
SEED = 11
AT_ONCE, SECONDS = 8, 4.0
MODES: tuple[SearchMode, ...] = ("hybrid", "vector", "keyword")
# Sizes of the index's candidate list that are tried with ten million rows; None: the default.
DEPTHS = (None, 500, 1_000)
COLLECTION, LARGEST = "stored", 8


@dataclass(frozen=True, slots=True)
class Halves:
    """What the texts are made of: first and second halves with their vectors, float32, shape (n, 256)."""

    first: list[str]
    second: list[str]
    first_vectors: NDArray[np.float32]
    second_vectors: NDArray[np.float32]

    @classmethod
    def of(cls, pieces: list[str]) -> Halves:
        """Those of pieces of documentation."""
        split = [piece.split(" ") for piece in pieces]
        first = [" ".join(words[: len(words) // 2]) for words in split]
        second = [" ".join(words[len(words) // 2 :]) for words in split]
        model = StaticEmbedder()
        return cls(first, second, *(np.asarray(model.embed_documents(half)) for half in (first, second)))

    def batches(self, rows: int) -> Iterator[dict[str, Any]]:
        """Columns of the first rows, which are the same for every number of rows."""
        count = len(self.first)
        for start in range(0, rows, LOADED_AT_ONCE):
            numbers = np.arange(start, min(start + LOADED_AT_ONCE, rows))
            first = numbers % count
            # Every pass over the first halves meets the second ones in another order.
            second = (first * 7 + numbers // count * 104_729 + 1) % count
            vectors = self.first_vectors[first] + self.second_vectors[second]
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            yield {
                "id": numbers,
                "text": [f"{self.first[a]} {self.second[b]}" for a, b in zip(first, second, strict=True)],
                "vector": vectors,
                "share": (numbers % 100).tolist(),
            }

    def nearest(self, rows: int, asked: NDArray[np.float32]) -> list[set[int]]:
        """The nearest rows of each question, by an exact comparison."""
        best: NDArray[np.float32] = np.full((len(asked), TOP), -2, np.float32)
        ids = np.zeros((len(asked), TOP), np.int64)
        for batch in self.batches(rows):
            scores = np.hstack([best, asked @ batch["vector"].T])
            numbers = np.hstack([ids, np.broadcast_to(batch["id"], (len(asked), len(batch["id"])))])
            places = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
            best, ids = np.take_along_axis(scores, places, 1), np.take_along_axis(numbers, places, 1)
        return [set(row.tolist()) for row in ids]


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one step: by the clock, and of the processor, client and server."""

    wall: float
    processor: float


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    corpus = corpus_of(state)
    if not corpus.exists:
        bench.unmeasured(f"recall@{TOP}", "", None, "run ./x bench --prepare")
        return
    sizes = (MANY,) if bench.million else QUICK_SIZES if quick else SIZES
    count = min(PIECES, sizes[-1])
    pieces = corpus.chunks(count + HELD_BACK)
    halves = Halves.of(pieces[:count])
    held = [pieces[count + start :: QUESTION_GROUPS] for start in range(QUESTION_GROUPS)]
    texts = [question for group in held for question in questions_of(group)]
    model = StaticEmbedder()
    asked = np.array([model.embed_query(text) for text in texts], dtype=np.float32)
    lines = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="semlex-bench-", dir="/tmp") as temporary:
            folder = Path(temporary)
            folder.chmod(0o711)  # as root the server runs under another account
            questions = Asked(texts, asked, halves.nearest(rows, asked))
            print(f"  {rows:,} rows", flush=True)
            with server(folder, tuned=False) as running:
                if bench.million:
                    set_build_memory(running.url)
                lines.append(sized(bench, running, folder, halves, rows, questions))
    columns = ["rows", "load", "indexes", "merge", "disk"]
    columns += ["memory: client + server", *(f"{mode}: p50, p95" for mode in MODES)]
    columns += [f"{AT_ONCE} at once: searches/s", "searches/s of a core"]
    bench.tables.append(Table("By number of rows.", columns, lines))
    show(bench.tables[-1])


def set_build_memory(url: str) -> None:
    """Gives builds as much memory as the graph of ten million takes."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = psycopg.sql.Identifier(connection.info.dbname)
        connection.execute(psycopg.sql.SQL("ALTER DATABASE {} SET maintenance_work_mem = '8GB'").format(name))


def sized(bench: Bench, running: Server, folder: Path, halves: Halves, rows: int, asked: Asked) -> list[str]:
    """One line of the table."""
    steps = asyncio.run(loaded(running, halves, rows, HnswIndex(quantization="bit") if bench.million else None))
    vacuum(running.url)
    wanted = Rows.write(folder / "asked", asked.texts, asked.vectors)
    with PeerProcess(Path(sys.executable), "ours", running.url, COLLECTION, running) as process:
        process.ask("reopen", dimensions=asked.vectors.shape[1], fields=["share"])
        process.ask("queries", folder=str(wanted.folder))
        answer, used = process.measured("alone", busy=False, questions=len(asked.texts))
        at_once = process.ask("at_once", number=AT_ONCE, seconds=SECONDS)
        client, its_server = process.memory()
    core = len(asked.texts) / (answer["processor"] + used)
    times = asyncio.run(searched(bench, running, rows, asked))
    line = [f"{rows:,}", *(f"{shown(step.wall)} s ({shown(step.processor)} s)" for step in steps)]
    bench.tables.append(Table(f"The largest files of {rows:,} rows.", ["", "size"], largest(running.url)))
    show(bench.tables[-1])
    line += [f"{shown(disk(folder))} MiB", f"{shown(client)} + {shown(its_server)} MiB"]
    line += [f"{shown(p50)}, {shown(p95)} ms" for p50, p95 in times]
    return [*line, shown(len(at_once["times"]) / at_once["seconds"]), shown(core)]


async def loaded(running: Server, halves: Halves, rows: int, index: HnswIndex | None) -> list[Step]:
    """The rows stored, the indexes built, the keyword index merged."""
    bulk = BulkIngestConfig(build_indexes=False)  # a step of its own
    async with PostgreSQLRetriever(running.url, "none", "none", collection=COLLECTION, bulk=bulk) as retriever:
        steps = []
        for work in (
            lambda: retriever.tables.load(halves.batches(rows)),
            lambda: retriever.indexes.create(index),
            retriever.indexes.optimize,
        ):
            clock, used = time.perf_counter(), time.process_time() + running.processor()
            await work()
            done = time.process_time() + running.processor()
            steps.append(Step(time.perf_counter() - clock, done - used))
            print(f"    {shown(steps[-1].wall)} s, processor {shown(steps[-1].processor)} s", flush=True)
        return steps


async def searched(bench: Bench, running: Server, rows: int, asked: Asked) -> list[tuple[float, float]]:
    """Milliseconds p50 and p95 of each kind of search; adds the recall of vector searches."""
    async with PostgreSQLRetriever(running.url, "none", "none", collection=COLLECTION) as retriever:

        async def times(mode: SearchMode, **options: Any) -> tuple[float, float]:
            taken = []
            for text, vector in zip(asked.texts, asked.vectors, strict=True):
                started = time.perf_counter()
                await retriever.search(text, TOP, mode=mode, vector=None if mode == "keyword" else vector, **options)
                taken.append(time.perf_counter() - started)
            return percentiles(taken)

        for depth in DEPTHS if bench.million else DEPTHS[:1]:
            figures = await one(running, retriever, asked, depth, "vector")
            name = f"{rows:,} rows, {'default' if depth is None else f'ef_search {depth}'}"
            bench.at_least(f"{name}: recall@{TOP}", figures.recall, unit="", bar=None)
            if depth is not None:
                p50, p95 = await times("hybrid", tuning={"ef_search": depth})
                bench.at_most(f"{name}: hybrid search, p50", p50, unit="ms", bar=None)
                bench.at_most(f"{name}: hybrid search, p95", p95, unit="ms", bar=None)
        return [await times(mode) for mode in MODES]


def largest(url: str) -> list[list[str]]:
    """Names and sizes of the largest tables, with their long values, and indexes."""
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        found = connection.execute(
            "SELECT relname, pg_size_pretty(size) FROM (SELECT relname, CASE relkind WHEN 'r' THEN pg_table_size(oid)"
            " ELSE pg_relation_size(oid) END AS size FROM pg_class WHERE relkind IN ('r', 'i')"
            " AND relnamespace = 'semlex'::regnamespace) sizes ORDER BY size DESC LIMIT %s",
            [LARGEST],
        )
        return [[str(name), str(size)] for name, size in found]
