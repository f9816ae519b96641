"""Moving in from langchain-postgres.

A table of langchain-postgres with vectors of 256 dimensions is imported, without a vector index. The baselines:

- "COPY out and in": the same process copies the rows into another table with the same columns
- "the collection's own tables": rows are read by COPY, and a collection's rows, encoded before, are written
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg import sql

from benches.copy import BLOCK, NO_INDEXES
from benches.measuring import alternated
from benches.servers import temporary_server, vacuum
from semlex import SyncRetriever
from semlex.store.write.chunk_batch import COLUMNS as CHUNK_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benches.measuring import Bench

ROWS, QUICK_ROWS, DIMENSIONS = 100_000, 10_000, 256
BAR, MEMORY_BAR = 0.5, 256.0
COLUMNS = sql.SQL("langchain_id, content, embedding, langchain_metadata")
DDL = sql.SQL(
    "CREATE TABLE {} (langchain_id UUID PRIMARY KEY, content TEXT NOT NULL, embedding vector(256) NOT NULL, "
    "langchain_metadata JSON)"
)


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    rows, runs = (QUICK_ROWS, 3) if quick else (ROWS, 5)
    names = (f"moved_{number}" for number in itertools.count())
    with temporary_server() as url:
        _fill(url, rows)
        for keyword, bar in (("none", BAR), ("bm25", None)):

            def ours(keyword: str = keyword) -> float:
                return _imported(url, next(names), keyword, rows)

            mine, theirs = alternated(ours, lambda: _bare(url), runs)
            name = f"import, keyword {keyword}, vs COPY out and in"
            bench.speed(name, mine, theirs, amount=rows, unit="rows/s", bar=bar)
        with _kept(url, "recorded") as collection:
            streams = [_stream(url, table, columns) for table, columns in _tables(collection)]
        mine, theirs = alternated(
            lambda: _imported(url, next(names), "none", rows), lambda: _written(url, next(names), streams), runs
        )
        name = "import, keyword none, vs COPY out and in of the collection's own tables"
        bench.speed(name, mine, theirs, amount=rows, unit="rows/s", bar=None)
        command = [sys.executable, "-m", "benches.peak_memory", "lc", url, "import"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        before, peak = map(float, done.stdout.split())
        bench.at_most("memory above what the process had", peak - before, unit="MiB", bar=MEMORY_BAR)


def _fill(url: str, rows: int) -> None:
    vectors = np.random.default_rng(1).normal(size=(rows, DIMENSIONS)).astype(np.float32)
    words = np.random.default_rng(2).integers(0, 5_000, (rows, 40))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(DDL.format(sql.Identifier("lc")))
        with connection.cursor().copy(
            "COPY lc (langchain_id, content, embedding, langchain_metadata) FROM STDIN"
        ) as copy:
            for number in range(rows):
                text = " ".join(f"word{word}" for word in words[number])
                metadata = f'{{"source": "file-{number % 100}.md", "page": {number}}}'
                copy.write_row((f"{number:032x}", text, str(vectors[number].tolist()), metadata))
    vacuum(url)


def _imported(url: str, name: str, keyword: str, rows: int) -> float:
    options: dict[str, Any] = {"use_reranking": False, "keyword": keyword, "bulk": NO_INDEXES}
    with SyncRetriever(url, "none", None, collection=name, **options) as retriever:
        started = time.perf_counter()
        report = retriever.tables.import_table("lc")
        seconds = time.perf_counter() - started
        assert (report.rows, report.written, report.skipped) == (rows, rows, 0)
        equal = sql.SQL(
            "SELECT count(*) FROM {} AS e JOIN lc ON lc.langchain_id::text = e.chunk_id "
            "WHERE vector_send(e.embedding) = vector_send(lc.embedding)"
        ).format(sql.Identifier("semlex", f"{name}_embedding_1"))
        with psycopg.connect(url) as connection:
            assert connection.execute(equal).fetchone() == (rows,), "vectors differ"
        retriever.drop_collection()
    return seconds


@contextmanager
def _kept(url: str, name: str) -> Iterator[str]:
    """A collection with the rows of the table."""
    with SyncRetriever(url, "none", None, collection=name, use_reranking=False, keyword="none", bulk=NO_INDEXES) as one:
        one.tables.import_table("lc")
        yield name
        one.drop_collection()


def _tables(collection: str) -> list[tuple[str, str]]:
    """The tables of a collection that an import writes, with their columns."""
    columns = ", ".join(column.name for column in CHUNK_COLUMNS)
    return [(f"{collection}_chunk", columns), (f"{collection}_embedding_1", "document_id, chunk_id, embedding")]


def _stream(url: str, table: str, columns: str) -> bytes:
    query = sql.SQL("COPY {} ({}) TO STDOUT (FORMAT binary)")
    with psycopg.connect(url) as connection:
        statement = query.format(sql.Identifier("semlex", table), sql.SQL(columns))
        with connection.cursor().copy(statement) as copy:
            return b"".join(copy)


def _written(url: str, name: str, streams: Sequence[bytes]) -> float:
    """Seconds to read the table, and to write recorded rows into the tables of a new collection."""
    with SyncRetriever(url, "none", None, collection=name, use_reranking=False, keyword="none", bulk=NO_INDEXES) as one:
        one.tables.load({"id": ["first"], "text": ["first"], "vector": np.ones((1, DIMENSIONS), np.float32)})
        one.delete(["first"])
        read = sql.SQL("COPY (SELECT {} FROM lc) TO STDOUT (FORMAT binary)").format(COLUMNS)
        with psycopg.connect(url) as connection:
            started = time.perf_counter()
            with connection.cursor().copy(read) as rows:
                for _ in rows:
                    pass
            for (table, columns), stream in zip(_tables(name), streams, strict=True):
                target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)")
                statement = target.format(sql.Identifier("semlex", table), sql.SQL(columns))
                with connection.cursor().copy(statement) as copy:
                    for begin in range(0, len(stream), BLOCK):
                        copy.write(stream[begin : begin + BLOCK])
            connection.commit()
            seconds = time.perf_counter() - started
        one.drop_collection()
    return seconds


def _bare(url: str) -> float:
    target = sql.Identifier("target")
    with psycopg.connect(url, autocommit=True) as source, psycopg.connect(url, autocommit=True) as sink:
        sink.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(target))
        sink.execute(DDL.format(target))
        started = time.perf_counter()
        read = sql.SQL("COPY (SELECT {} FROM lc) TO STDOUT (FORMAT binary)").format(COLUMNS)
        write = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(target, COLUMNS)
        with source.cursor().copy(read) as rows, sink.cursor().copy(write) as copy:
            for row in rows:
                copy.write(row)
        return time.perf_counter() - started
