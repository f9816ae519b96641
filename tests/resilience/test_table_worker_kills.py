"""A worker that is killed while it keeps a table in step: another one stores what it had begun, once."""

from __future__ import annotations

import pytest

from semlex import SyncClient
from semlex.testing import HashEmbedder
from tests.support.clients import worker_client
from tests.support.clients.worker_client import Order
from tests.support.followed import articles
from tests.support.histories import EXPIRE
from tests.support.programs import Program
from tests.support.whole_collection import count_faults

MOMENTS = [
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


@pytest.mark.parametrize(("way", "doing", "moment"), MOMENTS, ids=lambda value: value.replace(" ", "_"))
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
        found = sorted((chunk.source_document, chunk.content) for chunk in news.list_chunks())
        assert (
            found
            == table.connection.execute(
                "SELECT 'articles/' || id, title || E'\\n\\n' || body FROM shop.articles ORDER BY 1"
            ).fetchall()
        )
        assert count_faults(table.connection, "news") == {}
        assert table.connection.execute("SELECT count(*) FROM semlex.row_change").fetchone() == (0,)
