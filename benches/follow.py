"""Following a table.

A table has rows of an id, a text of 500 words, an author and a time. A collection without a model and with the keyword
index follows it.

- "first sync": until all rows are searched. The baseline is `load_vectors` of the same texts, ids and authors with
  vectors of 4 dimensions into another collection with the same keyword index, without a vector index, in turn. It
  neither reads a table nor splits texts nor counts their words.
- "nothing changed": a sync after that, by comparison of all rows and by the column of times, which has an index. A row
  was changed every minute, so that the six newest are compared again
- "another column changed": every row gets another author, which is copied to the metadata. Texts that were embedded are
  those of a model that counts them; texts that were analysed are new rows of the keyword index.
- "INSERT": statements of 10,000 rows into the table while triggers note changes, against the same table without
- "one row changed": from the commit until a search finds the new word, with triggers and a worker in the same process.
  Changes come at random times; each is searched for again and again
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg import sql

from benches.bm25 import percentiles
from benches.servers import temporary_server, vacuum
from semlex import BulkIngestConfig, Client, Document, PostgreSQLRetriever
from semlex.jobs.tables import WATCHING_SECONDS
from semlex.testing import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench

ROWS, QUICK_ROWS = 100_000, 5_000
INSERTED_ROWS, QUICK_INSERTED_ROWS = 10_000, 2_000
RUNS, QUICK_RUNS = 3, 1
CHANGES, QUICK_CHANGES = 200, 20
WORDS, VOCABULARY = 500, 30_000
DIMENSIONS = 4
SYNC_BAR, COMPARISON_BAR, COLUMN_BAR, INSERT_BAR, VISIBLE_BAR = 0.8, 1.5, 50.0, 1.15, 1_000.0
NO_INDEXES = BulkIngestConfig(build_indexes=False)


def run(bench: Bench, *, quick: bool, state: Path, rows: str | None = None) -> None:
    """Takes the figures."""
    del state
    count = int(rows) if rows is not None else QUICK_ROWS if quick else ROWS
    runs = QUICK_RUNS if quick else RUNS
    with temporary_server() as url, asyncio.Runner() as runner:
        table = Articles(url, texts(count))
        runner.run(first_sync(bench, table, runs))
        runner.run(later_syncs(bench, table))
        inserts(bench, table, QUICK_INSERTED_ROWS if quick else INSERTED_ROWS, runs)
        runner.run(visible_changes(bench, table, QUICK_CHANGES if quick else CHANGES))


def texts(count: int) -> list[str]:
    """Texts of words whose frequencies fall as in a language."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(VOCABULARY)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    return [" ".join(chance.choices(words, cum_weights=weights, k=WORDS)) for _ in range(count)]


class Articles:
    """A table of these texts.

    Args:
        url: The server.
    """

    def __init__(self, url: str, bodies: Sequence[str]) -> None:
        self.url, self.bodies = url, bodies
        self.execute(
            "CREATE TABLE articles (id bigint PRIMARY KEY, body text NOT NULL, author text NOT NULL, "
            "updated_at timestamptz NOT NULL DEFAULT now())"
        )
        with psycopg.connect(url, autocommit=True) as connection:
            with connection.cursor().copy("COPY articles (id, body, author) FROM STDIN") as copy:
                for number, body in enumerate(bodies):
                    copy.write_row((number, body, author(number)))
            connection.execute("UPDATE articles SET updated_at = now() - id * interval '1 minute'")
            connection.execute("CREATE INDEX ON articles (updated_at)")
            connection.execute("VACUUM FULL articles")
        vacuum(url)

    def execute(self, statement: str) -> None:
        """Runs a statement on the server."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


def author(number: int) -> str:
    """The author of a row."""
    return f"author {number % 50}"


def opened(url: str, name: str, model: Any = "none") -> PostgreSQLRetriever:
    """A collection with a keyword index."""
    return PostgreSQLRetriever(url, model, "none", collection=name, bulk=NO_INDEXES)


async def first_sync(bench: Bench, table: Articles, runs: int) -> None:
    """Rows until they are searched, against `load_vectors`."""
    vectors = np.random.default_rng(1).normal(size=(len(table.bodies), DIMENSIONS)).astype(np.float32)
    times: tuple[list[float], list[float]] = ([], [])
    numbers = itertools.count()
    for number in range(runs + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            seconds = await (_synced(table, next(numbers)) if which == 0 else _loaded(table, vectors, next(numbers)))
            if number:
                times[which].append(seconds)
            vacuum(table.url)
    bench.speed("first sync, vs load_vectors", *times, amount=len(table.bodies), unit="rows/s", bar=SYNC_BAR)


async def _synced(table: Articles, number: int) -> float:
    async with opened(table.url, f"synced_{number}") as retriever:
        await retriever.tables.follow("articles", text=["body"], metadata=["author"])
        started = time.perf_counter()
        [report] = await retriever.tables.sync()
        seconds = time.perf_counter() - started
        assert (report.added, report.failed) == (len(table.bodies), 0), report
        await retriever.drop_collection()
        return seconds


async def _loaded(table: Articles, vectors: NDArray[np.float32], number: int) -> float:
    rows = {
        "id": [str(row) for row in range(len(table.bodies))],
        "text": table.bodies,
        "author": [author(row) for row in range(len(table.bodies))],
        "vector": vectors,
    }
    async with opened(table.url, f"loaded_{number}") as retriever:
        # The table for vectors exists before the clock starts.
        await retriever.add_documents([Document("first", id="first")], vectors[:1])
        await retriever.delete(["first"])
        started = time.perf_counter()
        await retriever.tables.load(rows)
        seconds = time.perf_counter() - started
        await retriever.drop_collection()
        return seconds


async def later_syncs(bench: Bench, table: Articles) -> None:
    """Syncs when nothing changed, and when another column did."""
    for way, options, bar, unit in (
        ("comparison", {}, COMPARISON_BAR, "s"),
        ("column", {"updated_at": "updated_at"}, COLUMN_BAR, "ms"),
    ):
        async with opened(table.url, f"later_{way}") as retriever:
            await retriever.tables.follow("articles", text=["body"], metadata=["author"], **options)
            await retriever.tables.sync()
            vacuum(table.url)
            times = []
            for _ in range(5):
                started = time.perf_counter()
                [report] = await retriever.tables.sync()
                times.append(time.perf_counter() - started)
                assert report.added == report.changed == report.refreshed == 0, report
            seconds = statistics.median(times)
            bench.at_most(f"nothing changed, {way}", seconds * (1000 if unit == "ms" else 1), unit=unit, bar=bar)
            await retriever.drop_collection()
    model = CountingEmbedder(DIMENSIONS)
    async with opened(table.url, "others", model) as retriever:
        await retriever.tables.follow("articles", text=["body"], metadata=["author"])
        await retriever.tables.sync()
        before = model.texts, _analysed(table.url)
        table.execute("UPDATE articles SET author = author || '.'")
        vacuum(table.url)
        started = time.perf_counter()
        [report] = await retriever.tables.sync()
        seconds = time.perf_counter() - started
        assert report.refreshed == len(table.bodies), report
        after = model.texts, _analysed(table.url)
        bench.at_most("another column changed, embedded", after[0] - before[0], unit="texts", bar=0)
        bench.at_most("another column changed, analysed", after[1] - before[1], unit="texts", bar=0)
        bench.at_most("another column changed", seconds, unit="s", bar=None)
        await retriever.drop_collection()


def _analysed(url: str) -> int:
    """The last number that the keyword index has given to a text."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT last_value FROM semlex.others_keyword_seq").fetchone()
        assert row is not None
        return int(row[0])


def inserts(bench: Bench, table: Articles, rows: int, runs: int) -> None:
    """INSERT with triggers that note changes, and without."""
    bodies = table.bodies[:rows]
    for name in ("plain", "followed"):
        table.execute(f"CREATE TABLE {name} (LIKE articles INCLUDING ALL)")
    with asyncio.Runner() as runner:
        runner.run(_follow_by_triggers(table.url))
    with psycopg.connect(table.url, autocommit=True) as connection:

        def insert(name: str) -> float:
            table_name = sql.Identifier(name)
            connection.execute(sql.SQL("TRUNCATE {}").format(table_name))
            connection.execute("TRUNCATE semlex.row_change")
            statement = sql.SQL(
                "INSERT INTO {} SELECT n, body, 'ann' FROM unnest(%s::text[]) WITH ORDINALITY AS b(body, n)"
            )
            started = time.perf_counter()
            connection.execute(statement.format(table_name), [bodies])
            return time.perf_counter() - started

        ours, baseline = [], []
        for number in range(2 * runs + 1):
            for name in ("plain", "followed") if number % 2 else ("followed", "plain"):
                seconds = insert(name)
                if number:
                    (ours if name == "followed" else baseline).append(seconds)
    ratio = statistics.median(ours) / statistics.median(baseline)
    bench.at_most(f"INSERT of {rows:,} rows, with triggers", ratio, unit="x", bar=INSERT_BAR)


async def visible_changes(bench: Bench, table: Articles, changes: int) -> None:
    """A row is changed, and searched for until it is found."""
    pauses = random.Random(changes)
    letters = str.maketrans("0123456789", "abcdefghij")
    seconds = []
    async with Client(table.url, "none", use_reranking=False) as client:
        collection = client.collection("noticing")
        await collection.tables.sync(allow_empty=True)
        working = asyncio.create_task(client.work())
        async with await psycopg.AsyncConnection.connect(table.url, autocommit=True) as connection:
            for number in range(1, changes + 1):
                await asyncio.sleep(pauses.uniform(0, WATCHING_SECONDS))
                word = f"zq{str(number).translate(letters)}x"
                await connection.execute("UPDATE followed SET body = %s || body WHERE id = %s", [f"{word} ", number])
                started = time.perf_counter()
                while not await collection.search(word, 1):
                    pass
                seconds.append(time.perf_counter() - started)
        working.cancel()
        await asyncio.wait({working})
    for percentile, value in zip(("p50", "p95"), percentiles(seconds), strict=True):
        bar = VISIBLE_BAR if percentile == "p95" else None
        bench.at_most(f"one row changed, until it is found, {percentile}", value, unit="ms", bar=bar)


async def _follow_by_triggers(url: str) -> None:
    async with opened(url, "noticing") as retriever:
        await retriever.tables.follow("followed", text=["body"], metadata=["author"], changes="trigger")


class CountingEmbedder(HashEmbedder):
    """Counts the texts that it embeds."""

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.texts = 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same vector for all: what matters is how often it is asked for."""
        self.texts += len(texts)
        return np.full((len(texts), DIMENSIONS), DIMENSIONS**-0.5, dtype=np.float32)
