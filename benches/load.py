"""Loading rows with vectors.

Rows have an id, a text, two values and a vector of 1,024 dimensions. Only the lines "to searchable" make indexes:
semlex a keyword index and an HNSW index, langchain-postgres an HNSW index.

Beside libraries the amounts differ: in turn semlex loads 20,000 rows and the library 1,000, three times each, in
alternating order. "To searchable" is one run of each. `--million` also measures the memory that a million rows take.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

from benches.copy import DIMENSIONS, NO_INDEXES, Loader
from benches.measuring import alternated, paired
from benches.preparing import python_of
from benches.servers import temporary_server, vacuum
from semlex import SyncClient, SyncRetriever
from semlex.store.query.vector import DEFAULT_EF_SEARCH

if TYPE_CHECKING:
    from benches.measuring import Bench
    from semlex import PostgreSQLRetriever

ROWS, QUICK_ROWS = 20_000, 4_000
SEARCHED_ROWS, QUICK_SEARCHED_ROWS = 100_000, 11_000
MEMORY_ROWS, MEMORY_DIMENSIONS = 1_000_000, 256
SEARCHABLE_BAR, WORDS_BAR = 18.0, 150.0
COPY_BAR, MEMORY_BAR, TRANSFER_BAR, RECALL_BAR = 0.95, 512.0, 0.5, 0.95
ENVIRONMENT = {
    "PYTHONWARNINGS": "ignore",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    # Building an index that does not fit takes many times longer, and is not what is measured.
    "PGOPTIONS": "-c maintenance_work_mem=1GB",
}
BASELINES = {
    "langchain-postgres": ("langchain_postgres_load.py", "langchain", 30.0),
    "LlamaIndex": ("llama_index_load.py", "llama_index", 15.0),
    "Haystack": ("haystack_load.py", "haystack", 20.0),
}


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    rows, runs = (QUICK_ROWS, 3) if quick else (ROWS, 7)
    with temporary_server() as url:
        loader = Loader(url, rows)
        beside_copy(bench, loader, runs)
        beside_libraries(bench, loader, state, baseline_rows=300 if quick else 1_000)
        loader.runner.close()
        searchable(bench, url, state, rows=QUICK_SEARCHED_ROWS if quick else SEARCHED_ROWS)
        transfers(bench, url, rows=QUICK_ROWS if quick else SEARCHED_ROWS, runs=3)
        if bench.million:
            memory(bench, url)


def table_of(vectors: np.ndarray[Any, Any]) -> pa.Table:
    """The same rows as those of `Loader`."""
    numbers = range(len(vectors))
    return pa.table(
        {
            "id": [f"document-{number}" for number in numbers],
            "text": [f"row {number}: a text of about the length of a short sentence" for number in numbers],
            "number": list(numbers),
            "even": [number % 2 == 0 for number in numbers],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
        }
    )


def beside_copy(bench: Bench, loader: Loader, runs: int) -> None:
    """The ways in against bytes that were encoded before, into the same tables."""
    table = table_of(loader.vectors)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        pq.write_table(table, file)
        columns = {name: table[name].to_pylist() for name in table.column_names if name != "vector"}
        sources: dict[str, Any] = {"arrow": table, "parquet": file, "columns": columns | {"vector": loader.vectors}}
        for name, source in sources.items():

            async def load(retriever: PostgreSQLRetriever, source: Any = source) -> None:
                await retriever.tables.load(source)

            ours, bare = alternated(lambda load=load: loader.timed(load), lambda: loader.timed(loader.bare), runs)
            bar = COPY_BAR if name == "arrow" else None
            bench.speed(f"{name}, vs pre-encoded COPY", ours, bare, amount=loader.rows, unit="rows/s", bar=bar)


def beside_libraries(bench: Bench, loader: Loader, state: Path, *, baseline_rows: int) -> None:
    """The whole load against what other libraries offer for vectors that are given, on the same server."""
    table = table_of(loader.vectors)

    async def load(retriever: PostgreSQLRetriever) -> None:
        await retriever.tables.load(table)

    for name, (script, environment, bar) in BASELINES.items():
        python = python_of(state, environment)
        if not python.exists():
            bench.unmeasured(f"arrow, vs {name}", "rows/s", bar, "make its environment once: ./x bench --prepare")
            continue

        def theirs(python: Path = python, script: str = script) -> float:
            return 1 / _rows_per_second(python, script, loader.url, baseline_rows)

        ours, library = alternated(lambda: loader.timed(load) / loader.rows, theirs, 3)
        bench.speed(f"arrow, vs {name}", ours, library, amount=1, unit="rows/s", bar=bar)


def _rows_per_second(python: Path, script: str, url: str, rows: int, *options: str) -> float:
    target = psycopg.conninfo.conninfo_to_dict(url)
    address = f"{target['user']}@/{target['dbname']}?host={target['host']}"
    path = Path(__file__).parent / "baselines" / script
    command = [str(python), "-W", "ignore", str(path), address, str(rows), str(DIMENSIONS), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | ENVIRONMENT)
    if done.returncode:
        raise RuntimeError(f"{script} failed: {done.stderr[-500:]}")
    return float(done.stdout.split()[-1])


def searchable(bench: Bench, url: str, state: Path, *, rows: int) -> None:
    """From rows to a collection with its keyword index and an HNSW index of whole vectors, and the recall of that."""
    vectors, questions = _clustered(rows), _clustered(100, seed=5)
    nearest = [set(row) for row in np.argsort(-(questions @ vectors.T), axis=1)[:, :10].tolist()]
    table = table_of(vectors)
    with SyncRetriever(url, "none", None, use_reranking=False, collection="searched") as retriever:
        started = time.perf_counter()
        report = retriever.tables.load(table)
        (last,) = retriever.search(f"row {rows - 1}", 1, mode="keyword")
        assert last.id == f"document-{rows - 1}"
        returned = time.perf_counter() - started
        words, hybrid, warnings = while_building(retriever, questions)
        for warning in (*report.warnings, *warnings):
            print(f"    {warning}")
        seconds = time.perf_counter() - started
        bar, words_bar = (SEARCHABLE_BAR, WORDS_BAR) if rows == SEARCHED_ROWS else (None, None)
        bench.at_most(f"{rows:,} rows until the load returns and they are found", returned, unit="s", bar=bar)
        bench.at_most(f"{rows:,} rows until the index is there, too", seconds, unit="s", bar=None)
        if words:
            bench.at_most("while it is built: words, p95", float(np.percentile(words, 95)), unit="ms", bar=words_bar)
            bench.at_most("while it is built: hybrid, p95", float(np.percentile(hybrid, 95)), unit="ms", bar=None)
        found = 0
        for question, wanted in zip(questions, nearest, strict=True):
            hits = retriever.search(vector=question, top_k=10, mode="vector")
            found += len({int(hit.id.removeprefix("document-")) for hit in hits} & wanted)
        bench.at_least("searchable, recall@10", found / (10 * len(questions)), unit="", bar=RECALL_BAR)
    python = python_of(state, "langchain")
    name = f"{rows:,} rows to searchable, vs langchain-postgres with HNSW"
    if not python.exists():
        bench.unmeasured(name, "rows/s", 5.0, "make its environment once: ./x bench --prepare")
        return
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, vectors)
        theirs = _rows_per_second(python, "langchain_postgres_load.py", url, rows, "hnsw", file.name)
    bench.speed(name, [seconds], [rows / theirs], amount=rows, unit="rows/s", bar=5.0)
    bench.at_least(
        "  recall@10 of theirs, with the same ef_search",
        _recall(url, questions, nearest, DEFAULT_EF_SEARCH),
        unit="",
        bar=None,
    )


def while_building(
    retriever: SyncRetriever, questions: np.ndarray[Any, Any]
) -> tuple[list[float], list[float], list[str]]:
    """Milliseconds of searches by words and of hybrid ones until the index is there, and its warnings."""
    words: list[float] = []
    hybrid: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(retriever.indexes.wait)
        for number, question in enumerate(itertools.cycle(questions)):
            if building.done():
                break
            text = f"row {number}"
            options: dict[str, Any] = {"mode": "keyword"} if number % 2 else {"vector": question}
            started = time.perf_counter()
            retriever.search(text, 10, **options)
            (words if number % 2 else hybrid).append(1000 * (time.perf_counter() - started))
        return words, hybrid, building.result()


def _recall(url: str, questions: np.ndarray[Any, Any], nearest: list[set[int]], ef_search: int) -> float:
    """Recall of the table that langchain-postgres filled."""
    found = 0
    with psycopg.connect(url) as connection:
        connection.execute(sql.SQL("SET hnsw.ef_search = {}").format(ef_search))
        for question, wanted in zip(questions, nearest, strict=True):
            hits = connection.execute(
                "SELECT (langchain_metadata->>'number')::int FROM baseline ORDER BY embedding <=> %s::vector LIMIT 10",
                [str(question.tolist())],
            )
            found += len({number for (number,) in hits} & wanted)
    return found / (10 * len(questions))


def _clustered(rows: int, seed: int = 3) -> np.ndarray[Any, Any]:
    """Vectors of norm 1 around 200 centres, as those of texts lie."""
    centres = np.random.default_rng(1).normal(size=(200, DIMENSIONS))
    random = np.random.default_rng(seed)
    made = centres[random.integers(0, 200, rows)] + 0.7 * random.normal(size=(rows, DIMENSIONS))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def transfers(bench: Bench, url: str, *, rows: int, runs: int) -> None:
    """Dump and restore against COPY of the same rows, out and in."""
    folder = Path(tempfile.mkdtemp(prefix="semlex-bench-"))
    vectors = np.random.default_rng(4).normal(size=(rows, DIMENSIONS)).astype(np.float32)
    options: dict[str, Any] = {"use_reranking": False, "keyword": "none", "bulk": NO_INDEXES}
    with SyncRetriever(url, "none", None, collection="dumped", **options) as retriever:
        retriever.tables.load(table_of(vectors))
        vacuum(url)

        def dump() -> None:
            shutil.rmtree(folder / "dump", ignore_errors=True)
            retriever.tables.dump(folder / "dump")

        ours, bare = paired(dump, lambda: _copy_out(url), runs)
        bench.speed("dump, vs COPY out", ours, bare, amount=rows, unit="rows/s", bar=TRANSFER_BAR)
    loader = Loader(url, rows)
    with SyncClient(url, "none", use_reranking=False) as client:

        def restore() -> float:
            started = time.perf_counter()
            client.restore(folder / "dump", "restored", build_indexes=False)
            seconds = time.perf_counter() - started
            if not _are_equal(url):
                raise AssertionError("restored vectors differ")
            client.drop("restored")
            return seconds

        ours, bare = alternated(restore, lambda: loader.timed(loader.bare), runs)
        bench.speed("restore, vs COPY in", ours, bare, amount=rows, unit="rows/s", bar=TRANSFER_BAR)
    loader.runner.close()
    shutil.rmtree(folder)


def _copy_out(url: str) -> int:
    """The bytes of the rows with their vectors, by COPY of both tables joined."""

    async def whole() -> int:
        size = 0
        async with await psycopg.AsyncConnection.connect(url) as connection:
            query = sql.SQL(
                "COPY (SELECT c.*, e.embedding FROM semlex.dumped_chunk AS c "
                "LEFT JOIN semlex.dumped_embedding_1 AS e USING (document_id, chunk_id)) TO STDOUT (FORMAT binary)"
            )
            async with connection.cursor().copy(query) as copy:
                async for row in copy:
                    size += len(row)
        return size

    return asyncio.run(whole())


def _are_equal(url: str) -> bool:
    query = (
        "SELECT count(*) = (SELECT count(*) FROM semlex.dumped_embedding_1) FROM semlex.dumped_embedding_1 AS a "
        "JOIN semlex.restored_embedding_1 AS b USING (document_id, chunk_id) "
        "WHERE public.vector_send(a.embedding) = public.vector_send(b.embedding)"
    )
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    return bool(row and row[0])


def memory(bench: Bench, url: str) -> None:
    """The most memory that loading a million rows from one Parquet file takes, above what the process has before."""
    with tempfile.TemporaryDirectory(prefix="semlex-bench-") as folder:
        file = Path(folder) / "rows.parquet"
        _write_parquet(file)
        command = [sys.executable, "-m", "benches.peak_memory", str(file), url, "load"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, peak = map(float, done.stdout.split())
    print(f"    {before:,.0f} MiB before the load, {peak:,.0f} at its peak")
    bench.at_most("memory for a million rows, Parquet", peak - before, unit="MiB", bar=MEMORY_BAR)


def _write_parquet(file: Path) -> None:
    random = np.random.default_rng(6)
    writer: pq.ParquetWriter | None = None
    for first in range(0, MEMORY_ROWS, 50_000):
        numbers = range(first, first + 50_000)
        vectors = random.normal(size=(len(numbers), MEMORY_DIMENSIONS)).astype(np.float32)
        texts = [f"row {number}: " + "a text of about the length of a chunk " * 12 for number in numbers]
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), MEMORY_DIMENSIONS)
        part = pa.table({"id": [f"r{number}" for number in numbers], "text": texts, "vector": flat})
        writer = writer or pq.ParquetWriter(file, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()
