"""Tables whose changes triggers note: followed, changed, stopped, and with their collection dropped."""

import asyncio
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from psycopg.conninfo import make_conninfo

from semlex import Client, Collection
from semlex.errors import ConfigurationError, PrivilegeError
from semlex.ingest.followed import run
from semlex.jobs.tables import TableKeeper
from semlex.testing import HashEmbedder
from tests.support.databases import new_role
from tests.support.followed import WAYS, Articles, articles, trigger_function
from tests.support.histories import EXPIRE, WORKERS, WRITERS, Worker, Writer, events, happen, transactions_in_turn
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import sync_opened
from tests.support.whole_collection import count_faults


@pytest.fixture
def table(database_url):
    with articles(database_url, relation="partitioned", rows=3) as table:
        yield table


@pytest.fixture
def news(database_url):
    with sync_opened(database_url, "none", collection="news") as opened:
        yield opened


def triggers(table):
    return table.connection.execute(
        "SELECT tgrelid::regclass::text, count(*) FROM pg_trigger WHERE tgname LIKE 'semlex%' GROUP BY 1 ORDER BY 1"
    ).fetchall()


EVERY = [("shop.articles", 4), *((f"shop.articles_{number}", 4) for number in range(3))]


def waiting(news):
    return sum(status.waiting for status in news.tables.followed())


def test_changes_wait_and_are_stored(table, news):
    news.tables.follow(**table.options(changes="trigger"))
    assert triggers(table) == EVERY
    news.tables.sync()
    assert news.count() == 3
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    table.update(2, status="hidden")
    table.delete(0)
    assert waiting(news) == 3
    [report] = news.tables.sync()
    assert (report.added, report.changed, report.deleted, report.failed) == (1, 1, 1, 0)
    assert report.unchanged is None  # the other rows were not looked at
    assert waiting(news) == 0
    assert {hit.key for hit in news.search("banana cherry")} == {1, 3}
    # A sync stores changes that a killed process had claimed.
    table.update(1, body="plum")
    table.connection.execute("UPDATE semlex.row_change SET due_at = now() + interval '1 hour'")
    [report] = news.tables.sync()
    assert (report.changed, waiting(news)) == (1, 0)
    # A changed definition gets triggers of its own.
    news.tables.change("articles", live=["status"], metadata=["author", "price"])
    news.tables.sync()
    table.update(1, price=2)
    table.update(1, published_at="2026-01-01", status="hidden")
    assert waiting(news) == 1
    table.connection.execute("ALTER TABLE shop.articles RENAME TO posts; CREATE TABLE shop.articles (LIKE shop.posts)")
    news.tables.change("articles", table="shop.posts")
    assert triggers(table)[-1] == ("shop.posts", 4)
    news.tables.change("articles", changes="comparison")
    assert triggers(table) == []
    news.tables.change("articles", changes="trigger")
    assert triggers(table)[-1] == ("shop.posts", 4)
    # Another table has taken its place.
    table.connection.execute("ALTER TABLE shop.articles ADD PRIMARY KEY (id)")
    news.tables.change("articles", table="shop.articles")
    assert triggers(table) == [("shop.articles", 4)]


@pytest.mark.parametrize("way", ["stopped", "kept", "dropped"])
def test_triggers_end_with_what_they_are_for(table, news, way):
    news.tables.follow(**table.options(changes="trigger"))
    table.insert(3)
    if way == "dropped":
        news.drop()
    else:
        news.tables.stop("articles", keep=way == "kept")
    table.insert(4)
    assert triggers(table) == []
    left = "SELECT (SELECT count(*) FROM semlex.row_change), (SELECT count(*) FROM semlex.followed_table)"
    assert table.connection.execute(left).fetchone() == (0, 0)


def test_without_the_right_nothing_is_followed_until_the_sql_was_run(database_url, table, caplog):
    rights = ("USAGE ON SCHEMA shop", "SELECT ON shop.articles")
    with (
        new_role(database_url, *rights, "ALL ON SCHEMA semlex", "ALL ON ALL TABLES IN SCHEMA semlex") as role,
        sync_opened(make_conninfo(database_url, user=role), "none", collection="news") as news,
    ):
        options = table.options(changes="trigger")
        with pytest.raises(PrivilegeError, match=r"TRIGGER on shop\.articles and every .* articles -c news --sql"):
            news.tables.follow(**options)
        assert news.tables.followed() == []
        with pytest.raises(ConfigurationError, match="no table 'articles' is followed"):
            news.tables.ddl("articles")
        script = news.tables.ddl(**options)
        assert triggers(table) == []
        table.connection.execute("DROP FUNCTION " + trigger_function(table.connection))  # what the attempt has left
        for _ in range(2):  # what is there is made again
            table.connection.execute(script.encode())
        news.tables.follow(**options)
        assert news.tables.ddl("articles") == script
        news.tables.sync()
        table.insert(3)
        assert waiting(news) == 1
        with pytest.raises(PrivilegeError):
            news.tables.change("articles", text="title")
        assert news.tables.followed()[0].table.text == ("title", "body")
        table.insert(4)
        assert [report.added for report in news.tables.sync()] == [2]
        table.connection.execute("ALTER TABLE shop.articles DISABLE TRIGGER ALL")
        [report] = news.tables.sync()
        assert "articles -c news --sql" in report.warnings[0]
        table.connection.execute("ALTER TABLE shop.articles ENABLE TRIGGER ALL")
        news.tables.stop("articles")
        assert triggers(table) == EVERY
        table.insert(5)  # they do nothing
        assert table.connection.execute("SELECT count(*) FROM semlex.row_change").fetchone() == (0,)
        [message] = [text for text in caplog.messages if "DROP FUNCTION" in text]
        table.connection.execute(message[message.index("DROP FUNCTION") :].encode())
        assert triggers(table) == []
        news.drop()


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

        def worker_of(news):
            indexer = runner.run(news._handle.indexer())
            return Worker(lambda: TableKeeper(indexer, "articles", news._handle.wanted, lambda _: nullcontext(), 60))

        clients = [Client(url, HashEmbedder(8), use_reranking=False) for _ in range(WORKERS)]
        collections = [client.collection("news") for client in clients]
        for client in clients:
            stack.callback(lambda one=client: runner.run(one.close()))
        runner.run(collections[0].tables.follow(**table.options(metadata=["author"], **WAYS[request.param])))
        runner.run(collections[0].tables.sync())
        writers = [Writer(url, table) for _ in range(WRITERS)]
        for writer in writers:
            stack.callback(writer.connection.close)
        yield Stage(runner, table, collections[0], writers, [worker_of(one) for one in collections])


@pytest.mark.pg16
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
