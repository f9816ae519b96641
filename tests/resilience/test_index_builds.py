"""Builds beside writers, other builds and a pooler, and builds that are ended: nobody hangs, nothing is left behind."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from semlex.errors import ConfigurationError, StoreError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.indexes import build, choice, estimate
from semlex.store.indexes.build import IndexBuilder
from semlex.store.indexes.choice import other_indexes
from semlex.store.indexes.options import HnswIndex, IvfflatIndex
from semlex.store.schema.names import TableIndex
from semlex.types.documents import Document
from tests.support.databases import execute, set_in_database
from tests.support.index_builds import held_build
from tests.support.retrievers import opened
from tests.support.waiting import eventually

VECTORS = "semlex.built_embedding_1"
ALL = ["metadata", "document_name", "hnsw_1"]


retriever_of = partial(opened, model="none", collection="built", keyword="none")


def directions(rows):
    vectors = np.random.default_rng(3).normal(size=(rows, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


async def filled(retriever, rows=40):
    vectors = directions(rows)
    await retriever.add_documents([Document(f"text {row}", id=str(row)) for row in range(rows)], vectors)
    return vectors


@asynccontextmanager
async def unfinished_write(url):
    """Somebody writes vectors and has not committed."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("UPDATE semlex.built_embedding_1 SET embedding = embedding WHERE chunk_id = '1'")
        yield connection


@asynccontextmanager
async def waiting_build(url):
    """A build that waits for an unfinished write, and another retriever."""
    async with retriever_of(url) as one, retriever_of(url) as two, asyncio.timeout(120):
        await filled(one)
        await filled(two)
        async with unfinished_write(url) as writer:
            task = asyncio.create_task(one.indexes.create(concurrently=True))
            await held_build(url, VECTORS)
            yield two, writer, task


async def validity(retriever):
    return {index.name: index.valid for index in (await retriever.status()).vector_indexes}


async def test_writers_go_on_while_an_index_is_built_concurrently(database_url):
    async with retriever_of(database_url) as retriever, asyncio.timeout(120):
        vectors = await filled(retriever)
        async with unfinished_write(database_url) as writer:
            task = asyncio.create_task(retriever.indexes.create(concurrently=True))
            await held_build(database_url, VECTORS)
            await retriever.add_documents([Document("more", id="more")], -vectors[:1])
            assert (await retriever.search(vector=-vectors[0], top_k=1))[0].id == "more"
            assert not task.done()
            await writer.commit()
            built = await task
        assert (list(built), built.busy, built.warnings) == (ALL, [], [])
        assert await validity(retriever) == {"built_hnsw_1": True}
        assert (await retriever.search(vector=-vectors[0], top_k=1))[0].id == "more"
        # The next one takes its place in the same way.
        built = await retriever.indexes.create(IvfflatIndex(lists=4), concurrently=True)
        assert (list(built), built.dropped) == (["ivfflat_1"], ["built_hnsw_1"])
        assert await retriever.indexes.create(concurrently=True) == []


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_whatever_isolation_sessions_begin_with(database_url, isolation):
    set_in_database(database_url, "default_transaction_isolation", isolation)
    async with retriever_of(database_url) as retriever, asyncio.timeout(60):
        await filled(retriever)
        assert list(await retriever.indexes.create(concurrently=True)) == ALL
        assert await validity(retriever) == {"built_hnsw_1": True}


async def test_one_build_at_a_time_and_none_waits_for_the_other(database_url):
    async with waiting_build(database_url) as (two, writer, task):
        for concurrently in (True, False):
            built = await two.indexes.create(HnswIndex(m=8), concurrently=concurrently)
            assert list(built) == []
            assert "hnsw_1" in built.busy
        await writer.commit()
        assert list(await task) == ALL
        # A holder of the lock with a snapshot of its own would let a concurrent build wait for ever.
        async with await psycopg.AsyncConnection.connect(database_url) as holder:
            await holder.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await holder.execute("SELECT pg_advisory_xact_lock(%s)", [build.building_lock(two.info)])
            built = await two.indexes.create(HnswIndex(m=8), concurrently=True)
            assert (list(built), built.busy) == ([], ["hnsw_1"])
        assert list(await two.indexes.create(HnswIndex(m=8), concurrently=True)) == ["hnsw_1_2"]


async def test_an_index_that_is_completed_at_this_moment_is_not_dropped(database_url, monkeypatch):
    """It was unfinished when another process looked, and complete when that process got the lock of builds."""
    async with waiting_build(database_url) as (two, writer, task):
        is_alone, looked = build.is_alone, list[str]()

        async def later(connection, collection):
            if not looked:
                looked.append("unfinished")
                await connection.execute("SELECT 1")  # else the build waits for the snapshot of the last statement
                await writer.commit()
                assert list(await task) == ALL
            return await is_alone(connection, collection)

        monkeypatch.setattr(build, "is_alone", later)
        built = await two.indexes.create()
        assert (looked, list(built), built.dropped) == (["unfinished"], [], [])
        assert await validity(two) == {"built_hnsw_1": True}


async def test_a_build_without_its_client_that_ends_at_this_moment_is_kept(database_url, monkeypatch):
    """The server went on with the build of a client that had lost its lock."""
    async with waiting_build(database_url) as (two, writer, task):
        execute(
            database_url,
            "SELECT pg_terminate_backend(l.pid, 60000) FROM pg_locks AS l JOIN pg_database AS d "
            "ON d.oid = l.database WHERE l.locktype = 'advisory' AND d.datname = current_database()",
        )
        running, looked = IndexBuilder._running, list[str]()

        async def later(self, connection):
            if not looked:
                looked.append("running")
                await connection.execute("SELECT 1")  # else the build waits for the snapshot of the last statement
                await writer.commit()
                await eventually(is_valid)
            return await running(self, connection)

        async def is_valid():
            return (await validity(two)).get("built_hnsw_1", False)

        monkeypatch.setattr(IndexBuilder, "_running", later)
        built = await two.indexes.create(concurrently=True)
        with pytest.raises(StoreError):
            await task
        assert (looked, list(built)) == (["running"], [])
        assert await validity(two) == {"built_hnsw_1": True}


@pytest.mark.parametrize("concurrently", [True, False])
@pytest.mark.parametrize("end", ["backend", "task", "time"])
async def test_a_build_that_is_ended_is_made_again(database_url, end, monkeypatch, *, concurrently):
    if end == "time":
        monkeypatch.setattr(build, "CONCURRENT_LOCK_TIMEOUT", "100ms")  # expires
    async with retriever_of(database_url) as retriever, asyncio.timeout(120):
        vectors = await filled(retriever)
        await retriever.indexes.create(HnswIndex(m=8))
        async with unfinished_write(database_url) as writer:
            task = asyncio.create_task(retriever.indexes.create(HnswIndex(m=4), concurrently=True))
            if end != "time":
                backend = await held_build(database_url, VECTORS)
            if end == "backend":
                execute(database_url, "SELECT pg_terminate_backend(%s)", [backend])
            if end == "task":
                task.cancel()
            with pytest.raises(asyncio.CancelledError if end == "task" else StoreError):
                await task
            assert await validity(retriever) == {"built_hnsw_1": True, "built_hnsw_1_2": False}
            assert (await retriever.search(vector=vectors[5], top_k=1))[0].id == "5"
            await writer.commit()
        built = await retriever.indexes.create(HnswIndex(m=4), concurrently=concurrently)
        assert list(built) == ["hnsw_1_2"]
        assert built.dropped == ["built_hnsw_1"]
        assert await validity(retriever) == {"built_hnsw_1_2": True}
        assert (await retriever.search(vector=vectors[5], top_k=1))[0].id == "5"


@pytest.mark.parametrize("concurrently", [True, False])
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)", "the index first: .*was cancelled .*57014"),
        ("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60)", "57P01|connection failed"),
        ("SELECT 1 / 0", "22012"),
    ],
    ids=["cancelled", "terminated", "failed"],
)
async def test_a_build_that_fails_takes_no_other_along(database_url, monkeypatch, statement, message, *, concurrently):
    class Failing(TableIndex):
        def create(self, names, *, concurrently=False):
            del names, concurrently
            return sql.SQL("{}").format(sql.SQL(statement))

    def with_first(collection):
        return [Failing("first", collection.names.chunk, sql.SQL("")), *other_indexes(collection)]

    async with retriever_of(database_url) as retriever, asyncio.timeout(120):
        vectors = await filled(retriever)
        monkeypatch.setattr(choice, "other_indexes", with_first)
        with pytest.raises(StoreError, match=message):
            await retriever.indexes.create(concurrently=concurrently)
        assert await validity(retriever) == {"built_hnsw_1": True}
        assert (await retriever.search(vector=vectors[5], top_k=1))[0].id == "5"
        monkeypatch.undo()
        assert list(await retriever.indexes.create()) == []


async def test_a_leftover_is_dropped_where_nothing_is_to_be_built(database_url):
    async with retriever_of(database_url) as retriever, asyncio.timeout(60):
        await filled(retriever)
        await retriever.indexes.create()
        execute(
            database_url,
            "CREATE INDEX built_hnsw_1_2 ON semlex.built_embedding_1 USING hnsw (embedding vector_cosine_ops)",
        )
        execute(
            database_url,
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = ANY(%s::regclass[])",
            [["semlex.built_hnsw_1_2", "semlex.built_metadata"]],
        )
        built = await retriever.indexes.create()
        assert (list(built), built.dropped) == (["metadata"], ["built_hnsw_1_2"])
        assert await validity(retriever) == {"built_hnsw_1": True}


async def test_behind_a_transaction_pooler_it_is_built_in_one_transaction(database_url):
    async with TransactionPooler(database_url, 3) as pooler, retriever_of(pooler.address) as retriever:
        await filled(retriever)
        built = await retriever.indexes.create(concurrently=True)
        assert list(built) == ALL
        assert ["pooler" in warning for warning in built.warnings] == [True]
        assert (await retriever.indexes.create()).warnings == []
        assert await validity(retriever) == {"built_hnsw_1": True}


async def test_it_needs_connections_of_its_own(database_url):
    async with (
        AsyncConnectionPool(database_url, min_size=1, open=False) as pool,
        retriever_of(None, pool=pool) as retriever,
    ):
        await filled(retriever)
        with pytest.raises(ConfigurationError, match="db_url"):
            await retriever.indexes.create(concurrently=True)
        assert list(await retriever.indexes.create(progress=lambda _: None)) == ALL


@pytest.mark.parametrize(("index", "name"), [(HnswIndex(m=4), "hnsw_1_2"), (IvfflatIndex(lists=4), "ivfflat_1")])
async def test_progress_is_told(database_url, monkeypatch, index, name):
    """While somebody looks at an older state of the database, for whom a concurrent build waits at its end."""
    monkeypatch.setattr(build, "SECONDS_BETWEEN_LOOKS", 0.001)
    steps = []
    async with retriever_of(database_url) as retriever, await psycopg.AsyncConnection.connect(database_url) as looking:
        await filled(retriever)
        await retriever.indexes.create(HnswIndex(m=8))
        await looking.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await looking.execute("SELECT 1")
        building = asyncio.create_task(retriever.indexes.create(index, concurrently=True, progress=steps.append))
        await eventually(lambda: steps)
        assert not building.done()
        await looking.rollback()
        assert list(await building) == [name]
    for step in steps:
        assert (step.stage, step.unit) == (f"build the index {name}", "blocks")
        assert step.total is not None
        assert 0 <= step.done <= step.total


@pytest.mark.parametrize("concurrently", [True, False])
async def test_a_build_without_shared_memory_goes_on_without_workers(database_url, monkeypatch, *, concurrently):
    """As in a container, whose shared memory is often smaller than what parallel workers ask for."""
    monkeypatch.setattr(estimate, "MIN_PARALLEL_SECONDS", 0)
    create, refused = IndexBuilder._create, []

    async def without_room(self, index, connection, *, concurrently):
        cursor = await connection.execute("SELECT current_setting('max_parallel_maintenance_workers')")
        if await cursor.fetchone() != ("0",):
            refused.append(index.suffix)
            raise psycopg.errors.DiskFull("could not resize shared memory segment")
        return await create(self, index, connection, concurrently=concurrently)

    monkeypatch.setattr(IndexBuilder, "_create", without_room)
    async with retriever_of(database_url) as retriever:
        await filled(retriever)
        assert list(await retriever.indexes.create(concurrently=concurrently)) == refused == ALL
        assert await validity(retriever) == {"built_hnsw_1": True}


async def test_a_short_build_gets_no_workers(database_url, monkeypatch):
    async with retriever_of(database_url) as retriever:
        await filled(retriever)
        assert (await retriever.indexes.estimate()).workers == 0
        monkeypatch.setattr(estimate, "MIN_PARALLEL_SECONDS", 0)
        assert (await retriever.indexes.estimate()).workers > 0
