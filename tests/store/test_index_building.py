"""Indexes at the end of a load: wanted, never needed; nothing that is stored is called a failure for their sake."""

import asyncio
import logging
from functools import partial

import psycopg
import pytest
from psycopg import sql

from semlex.errors import StoreError
from semlex.search import planner
from semlex.store.indexes import build, choice
from semlex.store.indexes.options import NoIndex
from semlex.store.schema.names import TableIndex
from semlex.store.write.copy import BulkIngestConfig
from tests.support.databases import execute, new_role, set_in_database
from tests.support.retrievers import filled, opened

ROWS = 60
TEXTS, IDS = ([f"{text}{number}" for number in range(ROWS)] for text in ("text ", "t"))


retriever_of = partial(opened, collection="loaded")
with_one = partial(filled, texts={"one": "one"}, collection="loaded")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(choice, "INDEX_FROM_ROWS", ROWS)
    monkeypatch.setattr(build, "LOCK_TIMEOUT", "100ms")  # expires
    monkeypatch.setattr(build, "CONCURRENT_LOCK_TIMEOUT", "100ms")  # expires


@pytest.mark.slow
async def test_a_load_that_cannot_build_its_indexes_is_stored_and_says_so(database_url, tmp_path, caplog):
    (tmp_path / "page.md").write_text("# Page\n\nA page.", encoding="utf-8")
    async with with_one(database_url) as store, await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("UPDATE semlex.loaded_chunk SET summary = summary")
        with caplog.at_level(logging.WARNING, "semlex"):
            assert await store.add_texts(TEXTS, ids=IDS) == IDS
            assert [warning[:20] for warning in await store.indexes.wait()] == ["everything is stored"]
        assert "everything is stored" in caplog.text
        assert "indexes.create()" in caplog.text
        assert await store.count() == ROWS + 1
        report = await store.index(tmp_path)
        assert (report.added, report.failed) == (1, 0)
        assert report.warnings == []
        assert [warning[:20] for warning in await store.indexes.wait()] == ["everything is stored"]
        assert (await store.status()).last_run.finished_at is not None
        # Who asks for indexes is told that there are none.
        with pytest.raises(StoreError, match="55P03"):
            await store.indexes.create(concurrently=True)
        await other.rollback()
        report = await store.index(tmp_path, include=["*.txt"])
        assert report.warnings == await store.indexes.wait() == []
        assert list(await store.indexes.create()) == []
        assert len(await store.search("text 3", top_k=10)) == 10


async def test_a_role_that_owns_no_table_loads(database_url, caplog):
    async with retriever_of(database_url) as store:
        await store.add_texts(["one"], ids=["one"])
    rights = ("ALL ON ALL TABLES IN SCHEMA semlex", "ALL ON ALL SEQUENCES IN SCHEMA semlex")
    with new_role(database_url, "USAGE ON SCHEMA semlex", *rights) as role:
        async with retriever_of(psycopg.conninfo.make_conninfo(database_url, user=role)) as store:
            assert await store.add_texts(TEXTS, ids=IDS) == IDS
            assert ["42501" in warning for warning in await store.indexes.wait()] == [True]
            assert "42501" in caplog.text


async def test_a_build_may_take_longer_than_the_roles_statements(database_url, monkeypatch):
    set_in_database(database_url, "statement_timeout", "10min")

    class Unlimited(TableIndex):
        def create(self, names, *, concurrently=False):
            del names, concurrently
            return sql.SQL("SELECT 1 / (current_setting('statement_timeout') = {})::int").format("0")

    async with with_one(database_url) as store:
        missing = Unlimited("missing", store.info.names.chunk, sql.SQL(""))
        monkeypatch.setattr(choice, "other_indexes", lambda _: [missing])
        assert await store.indexes.create() == ["missing", "hnsw_1"]


@pytest.mark.slow
async def test_two_collections_build_at_once_and_one_says_that_it_is_busy(database_url):
    async with (
        opened(database_url, collection="one") as one,
        opened(database_url, collection="two") as two,
        await psycopg.AsyncConnection.connect(database_url) as other,
    ):
        await asyncio.gather(*(store.add_texts(["x"], ids=["x"]) for store in (one, two)))
        # Another process is building an index of the first.
        await other.execute("SELECT pg_advisory_xact_lock(%s)", [build.building_lock(one.info)])
        built = await one.indexes.create()
        assert (list(built), built.busy) == ([], ["document_name", "hnsw_1", "metadata"])
        assert "hnsw_1" in await two.indexes.create()
        await other.rollback()
        built = await one.indexes.create()
        assert (sorted(built), built.busy) == (["document_name", "hnsw_1", "metadata"], [])


async def test_a_search_says_what_it_leaves_out_until_the_index_is_there(database_url, monkeypatch):
    monkeypatch.setattr(planner, "MAX_SCANNED_NUMBERS", ROWS)  # times eight dimensions
    async with retriever_of(database_url, bulk=BulkIngestConfig(build_indexes=False)) as store:
        await store.add_texts(TEXTS, ids=IDS)
        await store.indexes.create()
        assert (await store.search("text 3")).warnings == []
        await store.indexes.create(NoIndex())  # slow, as somebody wants it
        assert (await store.search("text 3")).warnings == []
        execute(database_url, "COMMENT ON TABLE semlex.loaded_embedding_1 IS NULL")
    async with retriever_of(database_url) as store:
        hits = await store.search("text 3")
        assert (list(hits.legs), hits[0].id) == (["keyword"], "t3")
        assert len(hits.warnings) == 1
        assert hits.warnings[0].startswith("answered by words alone: the vector index is not built y")
        for options in ({"mode": "vector"}, {"filters": {"source_document": "none"}}):
            hits = await store.search("text 3", **options)
            assert (hits.warnings, "vector" in hits.legs) == ([], True)
        await store.indexes.create()
        hits = await store.search("text 3")
        assert (hits.warnings, sorted(hits.legs)) == ([], ["keyword", "vector"])
