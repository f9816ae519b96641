"""A run over a followed table that is killed: nothing lost, nothing twice, and the next run completes."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.clients import table_sync_client
from tests.support.followed import articles
from tests.support.programs import Program
from tests.support.synchronised import opened
from tests.support.whole_collection import count_faults

# Transaction, moment, and at which of its times; rows that are stored by then of 20 that are new.
MOMENTS = {
    ("store rows", "copying", 1): 0,
    ("store rows", "worked", 2): 5,
    ("store rows", "committed", 3): 15,
    ("store metadata of rows", "worked", 1): 20,
    ("delete rows", "worked", 1): 20,
    ("note the end of the run", "before", 1): 20,
}


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: " ".join(map(str, moment)))
def test_a_killed_run_loses_and_doubles_nothing(database_url, moment):
    with articles(database_url, rows=20) as table, opened(database_url, "rows") as store:
        store.tables.follow(**table.options(name="articles"))
        if moment[0] in ("store metadata of rows", "delete rows"):
            store.tables.sync()
            table.update(1, author="bob")
            table.delete(2)
        with Program(table_sync_client.main, database_url, "rows", moment) as client:
            client.until_stopped()
            client.kill()
        with psycopg.connect(database_url) as connection:
            stored = connection.execute("SELECT count(*) FROM semlex.rows_document").fetchone()
            assert stored == (MOMENTS[moment],)
            assert count_faults(connection, "rows") == {}
            [report] = store.tables.sync()
            assert report.failed == 0
            assert count_faults(connection, "rows") == {}
            keys = {f"articles/{key}" for (key,) in connection.execute("SELECT id FROM shop.articles")}
            assert {chunk.source_document for chunk in store.list_chunks(limit=100)} == keys
        assert [(one.added, one.changed, one.refreshed, one.deleted) for one in store.tables.sync()] == [(0, 0, 0, 0)]
