"""Whatever writers and workers do, in whatever order, and whoever is killed: the collection ends as the table."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from semlex import Client
from semlex.ingest.followed import run
from semlex.jobs.tables import TableKeeper
from semlex.testing import HashEmbedder
from tests.support.followed import WAYS, Articles, articles
from tests.support.histories import EXPIRE, WORKERS, WRITERS, Worker, Writer, events, happen, transactions_in_turn
from tests.support.properties import OWN_ROWS, examples
from tests.support.whole_collection import count_faults

if TYPE_CHECKING:
    from semlex.retriever.collection import Collection

pytestmark = pytest.mark.pg16


@dataclass
class Stage:
    """A followed table with writers and workers, for one history after another."""

    runner: asyncio.Runner
    table: Articles
    news: Collection
    writers: list[Writer]
    workers: list[Worker]

    def expire(self):
        self.table.connection.execute(EXPIRE)

    def check(self):
        rows = self.table.connection.execute(
            "SELECT 'articles/' || id, concat_ws(E'\\n\\n', title, body), author FROM shop.articles ORDER BY 1"
        ).fetchall()
        chunks = self.runner.run(self.news.list_chunks(limit=1_000))
        found = sorted((chunk.source_document, chunk.content, chunk.metadata.get("author")) for chunk in chunks)
        assert found == rows
        assert count_faults(self.table.connection, "news") == {}
        queued = self.table.connection.execute("SELECT row_key, error_code FROM semlex.row_change").fetchall()
        assert queued == []


@pytest.fixture(scope="module", params=WAYS)
def stage(request, new_database):
    url = new_database()
    with ExitStack() as stack:
        table = stack.enter_context(articles(url, relation="partitioned"))
        runner = stack.enter_context(asyncio.Runner())

        async def opened():
            return await Client(url, HashEmbedder(8), use_reranking=False).__aenter__()

        clients = [runner.run(opened()) for _ in range(WORKERS)]
        collections = [client.collection("news") for client in clients]
        runner.run(collections[0].tables.follow(**table.options(metadata=["author"], **WAYS[request.param])))
        runner.run(collections[0].tables.sync())
        workers = [Worker(keeper_of(runner, collection)) for collection in collections]
        writers = [Writer(url, table) for _ in range(WRITERS)]
        yield Stage(runner, table, collections[0], writers, workers)
        for writer in writers:
            writer.connection.close()
        for client in clients:
            runner.run(client.close())


def keeper_of(runner, news):
    indexer = runner.run(news._handle.indexer())
    return lambda: TableKeeper(indexer, "articles", news._handle.wanted, unguarded, 60)


def unguarded(_):
    @asynccontextmanager
    async def nothing():
        yield

    return nothing()


def test_the_collection_ends_as_the_table(stage, monkeypatch, full):
    @settings(OWN_ROWS, max_examples=500 if full else examples(8))
    @given(events)
    def check(history):
        stage.table.connection.execute("DELETE FROM shop.articles")
        stage.table.connection.execute("INSERT INTO shop.articles (id, title, body) VALUES (0, 'title 0', 'apple')")
        stage.table.connection.execute("TRUNCATE semlex.row_change")
        stage.runner.run(stage.news.tables.sync(compare=True, allow_empty=True))
        stage.check()
        with transactions_in_turn(monkeypatch):
            stage.runner.run(happen(history, stage.writers, stage.workers, stage.expire))
        stage.runner.run(stage.news.tables.sync(allow_empty=True))
        stage.check()

    monkeypatch.setattr(run, "BATCH_ROWS", 2)  # so that a run has several batches, and two writes at once
    check()
