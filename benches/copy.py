"""Copying rows.

Rows have an id, a text, metadata and a vector of 1,024 dimensions. The tables have no vector index and no keyword
index.

- "encode": the encoder of binary COPY against psycopg's `write_row`, without a server
- "encoding while sending": against sending bytes that were encoded before
- "new collection": `add_documents` against COPY of the same bytes
- "staged merge": `add_documents` into a collection that is not empty, against an empty one
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from pgvector.psycopg.vector import VectorBinaryDumper
from psycopg import sql
from psycopg._copy_base import BinaryFormatter
from psycopg._transformer import Transformer

from benches.measuring import Bench, alternated, paired
from semlex import BulkIngestConfig, Document, PostgreSQLRetriever, _core
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.write import copy as copying
from semlex.store.write.chunk_batch import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

DIMENSIONS = 1024
NO_INDEXES = BulkIngestConfig(build_indexes=False)
BLOCK = copying.DEFAULT_BULK.copy_block_bytes


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    vectors = np.random.default_rng(1).normal(size=(4_000, DIMENSIONS)).astype(np.float32)
    encode(bench, vectors, runs=5 if quick else 15)
    folder = Path(tempfile.mkdtemp(prefix="semlex-bench-", dir="/tmp")).resolve()
    folder.chmod(0o711)
    with EmbeddedServer(folder / "server") as server:
        rows = 4_000 if quick else 20_000
        loads(bench, server.url, rows, runs=3 if quick else 7)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def encode(bench: Bench, vectors: np.ndarray[Any, Any], *, runs: int) -> None:
    """Rows of one vector each, into memory: no server."""
    buffer = np.empty(BLOCK, dtype=np.uint8)
    columns = [("embedding", "vector", vectors)]

    def ours() -> None:
        encoder = _core.CopyEncoder(columns)
        position = 0
        while position <= encoder.rows:
            position, _ = encoder.encode_into(buffer, position)

    transformer = Transformer()
    transformer.adapters.register_dumper(np.ndarray, VectorBinaryDumper)
    rows = list(vectors)

    def theirs() -> None:
        formatter = BinaryFormatter(transformer)
        for row in rows:
            formatter.write_row((row,))
        formatter.end()

    fast, slow = paired(ours, theirs, runs)
    bench.speed("encode, vs psycopg write_row", fast, slow, amount=len(vectors), unit="rows/s", bar=10.0)


class Loader:
    """Loads the same rows in several ways, each time into a new collection."""

    def __init__(self, url: str, rows: int) -> None:
        self.url, self.rows = url, rows
        self.vectors = np.random.default_rng(2).normal(size=(rows, DIMENSIONS)).astype(np.float32)
        self.documents = [
            Document(
                f"row {number}: a text of about the length of a short sentence",
                {"number": number, "even": number % 2 == 0},
                f"document-{number}",
            )
            for number in range(rows)
        ]
        self.runner = asyncio.Runner()
        self._names = (f"load_{number}" for number in itertools.count())
        self._streams: list[tuple[str, str, list[bytes]]] | None = None

    def retriever(self) -> PostgreSQLRetriever:
        """A retriever on a new collection."""
        return PostgreSQLRetriever(
            self.url, "none", "none", collection=next(self._names), keyword="none", bulk=NO_INDEXES
        )

    def timed(self, work: Callable[[PostgreSQLRetriever], Any], *, seed_row: bool = False) -> float:
        """Seconds that `work` takes on a new collection, set-up and clean-up apart."""

        async def whole() -> float:
            async with self.retriever() as retriever:
                # The table for vectors exists before the clock starts, and one row where the collection must not be
                # empty.
                await retriever.add_documents([Document("first", id="first")], self.vectors[:1])
                if not seed_row:
                    await retriever.delete(["first"])
                started = time.perf_counter()
                await work(retriever)
                seconds = time.perf_counter() - started
                assert await retriever.count() == self.rows + seed_row
                await retriever.drop_collection()
                return seconds

        return self.runner.run(whole())

    async def add(self, retriever: PostgreSQLRetriever) -> None:
        """The product: checked, encoded, written."""
        await retriever.add_documents(self.documents, self.vectors)

    async def bare(self, retriever: PostgreSQLRetriever) -> None:
        """Bytes that were encoded before, straight into the same tables: as fast as the server goes."""
        names = retriever.names
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            for suffix, columns, blocks in await self.streams(retriever):
                target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
                    sql.Identifier(names.schema, f"{names.collection}_{suffix}"), sql.SQL(columns)
                )
                async with connection.cursor().copy(target) as copy:
                    for block in blocks:
                        await copy.write(block)

    async def streams(self, retriever: PostgreSQLRetriever) -> list[tuple[str, str, list[bytes]]]:
        """What `add` sends, recorded once."""
        if self._streams is None:
            from semlex.ingest.chunk_rows import DocumentRows
            from semlex.ingest.given_documents import GivenDocuments

            given = GivenDocuments.taken(self.documents).checked(self.vectors)
            rows = DocumentRows.of(given, range(len(given)), self.vectors, with_context=True).whole()
            columns = [(column.name, column.wire, rows.values(column.name)) for column in COLUMNS]
            vectors = [*columns[:2], ("embedding", "vector", rows.embeddings)]
            self._streams = [
                (suffix, ", ".join(name for name, *_ in chosen), encoded(chosen))
                for suffix, chosen in (("chunk", columns), ("embedding_1", vectors))
            ]
        return self._streams


def encoded(columns: list[tuple[str, str, object]]) -> list[bytes]:
    """The blocks of a COPY."""
    encoder = _core.CopyEncoder(columns)
    buffer = np.empty(max(BLOCK, encoder.largest_row), dtype=np.uint8)
    blocks, position = [], 0
    while position <= encoder.rows:
        position, size = encoder.encode_into(buffer, position)
        blocks.append(buffer[:size].tobytes())
    return blocks


def loads(bench: Bench, url: str, rows: int, *, runs: int) -> None:
    """The ways of loading against each other."""
    loader = Loader(url, rows)
    vector_copy(bench, loader, runs)

    direct, bare = alternated(lambda: loader.timed(loader.add), lambda: loader.timed(loader.bare), runs)
    bench.speed("new collection, vs bare COPY", direct, bare, amount=rows, unit="rows/s", bar=0.9)
    staged, direct = alternated(lambda: loader.timed(loader.add, seed_row=True), lambda: loader.timed(loader.add), runs)
    bench.speed("staged merge, vs direct COPY", staged, direct, amount=rows, unit="rows/s", bar=0.35)
    loader.runner.close()


def vector_copy(bench: Bench, loader: Loader, runs: int) -> None:
    """Encoding while sending against sending bytes that were encoded before, the rest being equal."""
    table = sql.Identifier(f"encode_{uuid.uuid4().hex[:8]}")
    target = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(table)
    columns = [("id", "text", [document.id for document in loader.documents]), ("e", "vector", loader.vectors)]
    ids = columns[0][1:][1]
    blocks = encoded(columns)

    async def whole(work: Callable[[psycopg.AsyncConnection[Any]], Any]) -> None:
        async with await psycopg.AsyncConnection.connect(loader.url) as connection:
            await connection.execute(sql.SQL("TRUNCATE {}").format(table))
            await work(connection)

    async def ours(connection: psycopg.AsyncConnection[Any]) -> None:
        await copying.copy_rows(connection, target, [_core.CopyEncoder(columns, ids)])

    async def before(connection: psycopg.AsyncConnection[Any]) -> None:
        async with connection.cursor().copy(target) as copy:
            for block in blocks:
                await copy.write(block)

    with psycopg.connect(loader.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(sql.SQL("CREATE TABLE {} (id text, e vector(1024))").format(table))
    fast, slow = paired(lambda: loader.runner.run(whole(ours)), lambda: loader.runner.run(whole(before)), runs)
    bench.speed("encoding while sending, vs before", fast, slow, amount=loader.rows, unit="rows/s", bar=0.95)
    with psycopg.connect(loader.url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP TABLE {}").format(table))
