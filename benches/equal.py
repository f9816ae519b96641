"""Indexes over equal values.

Each index of a collection is built over rows that hold one value in all columns but the key. Times are those of the
server's process. Four times the rows should take four times as long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import psycopg
from psycopg import sql

from benches.search import drop
from benches.servers import vacuum
from semlex import BulkIngestConfig, Document, PostgreSQLRetriever
from semlex.filters.fields import Field
from semlex.store.indexes.catalog import VectorIndexes
from semlex.store.indexes.choice import other_indexes, wanted_vector_index
from semlex.store.indexes.field_indexes import FieldIndex
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

    from benches.measuring import Bench
    from semlex.store.schema.names import Names, TableIndex

COLLECTION = "equal"
SIZES, QUICK_SIZES = (50_000, 100_000, 200_000), (5_000, 10_000, 20_000)
LOADED_AT_ONCE = 5_000
FIELDS = {
    "a field of texts": FieldIndex(Field(("kind",)), "text"),
    "a field of numbers": FieldIndex(Field(("year",)), "number"),
}
METADATA = {"kind": "page", "year": 2026, "source_document": "handbook/one.pdf"}
VECTOR = np.ones(64, dtype=np.float32)
# Of the time at a quarter of the rows. Time is counted in hundredths of a second.
BAR, MIN_SECONDS = 6.0, 0.05


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    sizes = QUICK_SIZES if quick else SIZES
    folder = state / "equal"
    folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedServer(folder / "server") as server:
        times = asyncio.run(measured(server.url, sizes))
    for name, seconds in times.items():
        for size, one in zip(sizes, seconds, strict=True):
            bench.at_most(f"{name}, {size:,} equal rows", one, unit="s", bar=None)
        growth = max(seconds[-1], MIN_SECONDS) / max(seconds[0], MIN_SECONDS)
        bench.at_most(f"{name}, four times the rows", growth, unit="times", bar=BAR)


async def measured(url: str, sizes: tuple[int, ...]) -> dict[str, list[float]]:
    """Seconds of each index at each size."""
    await drop(url, COLLECTION)
    times: dict[str, list[float]] = {}
    options = BulkIngestConfig(build_indexes=False)
    async with PostgreSQLRetriever(url, "none", "none", collection=COLLECTION, bulk=options) as retriever:
        stored = 0
        for size in sizes:
            for start in range(stored, size, LOADED_AT_ONCE):
                numbers = range(start, start + LOADED_AT_ONCE)
                documents = [Document("text", METADATA, id=str(number)) for number in numbers]
                await retriever.add_documents(documents, np.tile(VECTOR, (len(documents), 1)))
            stored = size
            vacuum(url)
            for name, seconds in build(url, retriever).items():
                times.setdefault(name, []).append(seconds)
    return times


def build(url: str, retriever: PostgreSQLRetriever) -> dict[str, float]:
    """Seconds of the server's process for each index, without workers."""
    info = retriever.info
    vector = wanted_vector_index(info, VectorIndexes())
    assert vector is not None
    indexes = {index.suffix: index for index in other_indexes(info)}
    indexes |= {name: field.table_index(info.names) for name, field in FIELDS.items()}
    indexes["HNSW"] = vector.definition(1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET max_parallel_maintenance_workers = 0")
        connection.execute("SET maintenance_work_mem = '512MB'")
        return {name: build_one(connection, info.names, index) for name, index in indexes.items()}


def build_one(connection: psycopg.Connection[Any], names: Names, index: TableIndex) -> float:
    """Seconds of the server's process for an index, which is dropped again."""
    process = psutil.Process(connection.info.backend_pid)
    before = process.cpu_times()
    connection.execute(index.create(names))
    after = process.cpu_times()
    connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(names.schema, f"{COLLECTION}_{index.suffix}")))
    return after.user + after.system - before.user - before.system
