"""Runs and workers over a followed table that are killed: nothing lost, nothing twice, and the next one completes."""

import pytest

from semlex import SyncClient
from semlex.testing import HashEmbedder
from tests.support.clients import table_sync_client, worker_client
from tests.support.clients.worker_client import Order
from tests.support.followed import articles
from tests.support.histories import EXPIRE
from tests.support.programs import Program
from tests.support.synchronised import opened as synchronised
from tests.support.whole_collection import count_faults

# Transaction, moment, and at which of its times; rows that are stored by then of 20 that are new.
RUN_MOMENTS = {
    ("store rows", "copying", 1): 0,
    ("store rows", "worked", 2): 5,
    ("store rows", "committed", 3): 15,
    ("store metadata of rows", "worked", 1): 20,
    ("delete rows", "worked", 1): 20,
    ("note the end of the run", "before", 1): 20,
}


@pytest.mark.parametrize("moment", RUN_MOMENTS, ids=lambda moment: " ".join(map(str, moment)))
def test_a_killed_run_loses_and_doubles_nothing(database_url, moment):
    with articles(database_url, rows=20) as table, synchronised(database_url, "rows") as store:
        store.tables.follow(**table.options(name="articles"))
        if moment[0] in ("store metadata of rows", "delete rows"):
            store.tables.sync()
            table.update(1, author="bob")
            table.delete(2)
        with Program(table_sync_client.main, database_url, "rows", moment) as client:
            client.until_stopped()
            client.kill()
        stored = table.connection.execute("SELECT count(*) FROM semlex.rows_document").fetchone()
        assert stored == (RUN_MOMENTS[moment],)
        assert count_faults(table.connection, "rows") == {}
        [report] = store.tables.sync()
        assert report.failed == 0
        assert count_faults(table.connection, "rows") == {}
        keys = {f"articles/{key}" for (key,) in table.connection.execute("SELECT id FROM shop.articles")}
        assert {chunk.source_document for chunk in store.list_chunks(limit=100)} == keys
        assert [(one.added, one.changed, one.refreshed, one.deleted) for one in store.tables.sync()] == [(0, 0, 0, 0)]


WORKER_MOMENTS = [
    ("trigger", "claim changes", "committed"),
    ("trigger", "store rows", "worked"),
    ("trigger", "store rows", "committed"),
    ("trigger", "give changes back", "before"),
    ("comparison", "take a followed table", "committed"),
    ("comparison", "store rows", "worked"),
]
# Whether a lease goes on, of the table or of entries of the queue.
HELD = """SELECT coalesce(leased_until > now(), false) OR EXISTS (SELECT FROM semlex.row_change WHERE due_at > now())
    FROM semlex.followed_table"""


@pytest.mark.parametrize(("way", "doing", "moment"), WORKER_MOMENTS, ids=lambda value: value.replace(" ", "_"))
def test_what_a_killed_worker_had_begun_is_stored(database_url, tmp_path, way, doing, moment):
    with (
        articles(database_url, rows=10) as table,
        SyncClient(database_url, HashEmbedder(8), use_reranking=False) as client,
    ):
        news = client.collection("news")
        news.tables.follow(**table.options(changes=way))
        news.tables.sync()
        for number in range(5):
            table.update(number, body=f"cherry {number}")
        table.delete(9)
        table.connection.execute(EXPIRE)
        with Program(worker_client.run, Order(database_url, tmp_path, (doing, moment, 1))) as worker:
            worker.until_stopped()
            worker.kill()
        assert table.connection.execute(HELD).fetchone() == (doing != "give changes back",)
        table.connection.execute(EXPIRE)
        client.work(drain=True)
        rows = table.connection.execute("SELECT 'articles/' || id, title || E'\\n\\n' || body FROM shop.articles")
        assert sorted((chunk.source_document, chunk.content) for chunk in news.list_chunks()) == sorted(rows)
        assert count_faults(table.connection, "news") == {}
        assert table.connection.execute("SELECT count(*) FROM semlex.row_change").fetchone() == (0,)
