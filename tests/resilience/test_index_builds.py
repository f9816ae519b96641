"""Builds beside writers, other builds and a pooler, after loads, and builds that are ended: all indexes get built."""

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from semlex.errors import ConfigurationError, StoreError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.retriever.client import Client
from semlex.store.indexes import background, build, choice, estimate
from semlex.store.indexes.build import IndexBuilder, building_lock
from semlex.store.indexes.choice import other_indexes
from semlex.store.indexes.options import HnswIndex, IvfflatIndex, NoIndex
from semlex.store.query.health import find_problems
from semlex.store.schema.locks import TABLE_SECONDS, TELL_SECONDS
from semlex.store.schema.names import TableIndex
from semlex.store.write.copy import BulkIngestConfig
from semlex.types.documents import Document
from tests.support.databases import execute, set_in_database
from tests.support.index_builds import held_build
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled, opened, sync_opened
from tests.support.waiting import eventually

ALL = ["metadata", "document_name", "hnsw_1"]
BUILT = {"built_hnsw_1": True}
ROWS = 300  # from here on a load builds the vector index
DIRECTIONS = np.random.default_rng(3).normal(size=(ROWS, 16)).astype(np.float32)
DIRECTIONS /= np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)

retriever_of = partial(opened, model="none", collection="built", keyword="none")


async def fill(retriever, rows=40, first=0):
    documents = [Document(f"text {row}", id=str(row)) for row in range(first, rows)]
    await retriever.add_documents(documents, DIRECTIONS[first:rows])


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(choice, "INDEX_FROM_ROWS", ROWS)
    monkeypatch.setattr(background, "QUIET_SECONDS", 0.0)


@pytest.fixture
async def retriever(database_url):
    async with retriever_of(database_url) as retriever:
        await fill(retriever)
        yield retriever


@asynccontextmanager
async def unfinished_write(url):
    """Somebody writes vectors and has not committed."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("UPDATE semlex.built_embedding_1 SET embedding = embedding WHERE chunk_id = '1'")
        yield connection


@pytest.fixture
async def waiting_build(database_url, retriever):
    """Another retriever, an unfinished write, and a build of the first retriever that waits for it."""
    async with retriever_of(database_url) as other:
        await fill(other)
        async with unfinished_write(database_url) as writer:
            task = asyncio.create_task(retriever.indexes.create(concurrently=True))
            await held_build(database_url)
            yield other, writer, task


async def validity(retriever):
    return {index.name: index.valid for index in (await retriever.status()).vector_indexes}


async def test_writers_go_on_while_an_index_is_built_concurrently(database_url, retriever):
    async with unfinished_write(database_url) as writer:
        task = asyncio.create_task(retriever.indexes.create(concurrently=True))
        await held_build(database_url)
        await retriever.add_documents([Document("more", id="more")], -DIRECTIONS[:1])
        assert (await retriever.search(vector=-DIRECTIONS[0], top_k=1))[0].id == "more"
        assert not task.done()
        await writer.commit()
        built = await task
    assert (list(built), built.busy, built.warnings) == (ALL, [], [])
    assert await validity(retriever) == BUILT
    assert (await retriever.search(vector=-DIRECTIONS[0], top_k=1))[0].id == "more"
    # The next one takes its place in the same way.
    built = await retriever.indexes.create(IvfflatIndex(lists=4), concurrently=True)
    assert (list(built), built.dropped) == (["ivfflat_1"], ["built_hnsw_1"])
    assert await retriever.indexes.create(concurrently=True) == []


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_whatever_isolation_sessions_begin_with(database_url, isolation):
    set_in_database(database_url, "default_transaction_isolation", isolation)
    async with retriever_of(database_url) as retriever, asyncio.timeout(60):
        await fill(retriever)
        assert list(await retriever.indexes.create(concurrently=True)) == ALL
        assert await validity(retriever) == BUILT


async def test_one_build_at_a_time_and_none_waits_for_the_other(database_url, waiting_build):
    other, writer, task = waiting_build
    for concurrently in (True, False):
        built = await other.indexes.create(HnswIndex(m=8), concurrently=concurrently)
        assert list(built) == []
        assert "hnsw_1" in built.busy
    await writer.commit()
    assert list(await task) == ALL
    # A holder of the lock with a snapshot of its own would let a concurrent build wait for ever.
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        await holder.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await holder.execute("SELECT pg_advisory_xact_lock(%s)", [building_lock(other.info)])
        built = await other.indexes.create(HnswIndex(m=8), concurrently=True)
        assert (list(built), built.busy) == ([], ["hnsw_1"])
    assert list(await other.indexes.create(HnswIndex(m=8), concurrently=True)) == ["hnsw_1_2"]


async def test_an_index_that_is_completed_at_this_moment_is_not_dropped(waiting_build, monkeypatch):
    """It was unfinished when another process looked, and complete when that process got the lock of builds."""
    other, writer, task = waiting_build
    is_alone, looked = build.is_alone, list[str]()

    async def later(connection, collection):
        if not looked:
            looked.append("unfinished")
            await connection.execute("SELECT 1")  # else the build waits for the snapshot of the last statement
            await writer.commit()
            assert list(await task) == ALL
        return await is_alone(connection, collection)

    monkeypatch.setattr(build, "is_alone", later)
    built = await other.indexes.create()
    assert (looked, list(built), built.dropped) == (["unfinished"], [], [])
    assert await validity(other) == BUILT


async def test_a_build_without_its_client_that_ends_at_this_moment_is_kept(database_url, waiting_build, monkeypatch):
    """The server went on with the build of a client that had lost its lock."""
    other, writer, task = waiting_build
    locks = "locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    execute(database_url, f"SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE {locks}")
    running, looked = IndexBuilder._running, list[str]()

    async def later(self, connection):
        if not looked:
            looked.append("running")
            await connection.execute("SELECT 1")  # else the build waits for the snapshot of the last statement
            await writer.commit()
            await eventually(is_valid)
        return await running(self, connection)

    async def is_valid():
        return (await validity(other)).get("built_hnsw_1", False)

    monkeypatch.setattr(IndexBuilder, "_running", later)
    built = await other.indexes.create(concurrently=True)
    with pytest.raises(StoreError):
        await task
    assert (looked, list(built)) == (["running"], [])
    assert await validity(other) == BUILT


@pytest.mark.parametrize("concurrently", [True, False])
@pytest.mark.parametrize("end", ["backend", "task", "time"])
async def test_a_build_that_is_ended_is_made_again(database_url, retriever, end, monkeypatch, *, concurrently):
    if end == "time":
        monkeypatch.setattr(build, "CONCURRENT_LOCK_TIMEOUT", "100ms")  # expires
    await retriever.indexes.create(HnswIndex(m=8))
    async with unfinished_write(database_url) as writer:
        task = asyncio.create_task(retriever.indexes.create(HnswIndex(m=4), concurrently=True))
        if end != "time":
            backend = await held_build(database_url)
        if end == "backend":
            execute(database_url, "SELECT pg_terminate_backend(%s)", [backend])
        if end == "task":
            task.cancel()
        with pytest.raises(asyncio.CancelledError if end == "task" else StoreError):
            await task
        assert await validity(retriever) == {"built_hnsw_1": True, "built_hnsw_1_2": False}
        assert (await retriever.search(vector=DIRECTIONS[5], top_k=1))[0].id == "5"
        await writer.commit()
    built = await retriever.indexes.create(HnswIndex(m=4), concurrently=concurrently)
    assert (list(built), built.dropped) == (["hnsw_1_2"], ["built_hnsw_1"])
    assert await validity(retriever) == {"built_hnsw_1_2": True}
    assert (await retriever.search(vector=DIRECTIONS[5], top_k=1))[0].id == "5"


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
async def test_a_build_that_fails_takes_no_other_along(retriever, monkeypatch, statement, message, *, concurrently):
    class Failing(TableIndex):
        def create(self, *_, **__):
            return sql.Composed([sql.SQL(statement)])

    def with_first(collection):
        return [Failing("first", collection.names.chunk, sql.SQL("")), *other_indexes(collection)]

    monkeypatch.setattr(choice, "other_indexes", with_first)
    with pytest.raises(StoreError, match=message):
        await retriever.indexes.create(concurrently=concurrently)
    assert await validity(retriever) == BUILT
    assert (await retriever.search(vector=DIRECTIONS[5], top_k=1))[0].id == "5"
    monkeypatch.undo()
    assert list(await retriever.indexes.create()) == []


async def test_a_leftover_is_dropped_where_nothing_is_to_be_built(database_url, retriever):
    await retriever.indexes.create()
    index = "built_hnsw_1_2 ON semlex.built_embedding_1 USING hnsw (embedding vector_cosine_ops)"
    execute(database_url, f"CREATE INDEX {index}")
    leftovers = ["semlex.built_hnsw_1_2", "semlex.built_metadata"]
    unfinished = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = ANY(%s::regclass[])"
    execute(database_url, unfinished, [leftovers])
    built = await retriever.indexes.create()
    assert (list(built), built.dropped) == (["metadata"], ["built_hnsw_1_2"])
    assert await validity(retriever) == BUILT


async def test_behind_a_transaction_pooler_it_is_built_in_one_transaction(database_url):
    async with TransactionPooler(database_url, 3) as pooler, retriever_of(pooler.address) as retriever:
        await fill(retriever)
        built = await retriever.indexes.create(concurrently=True)
        assert list(built) == ALL
        assert ["pooler" in warning for warning in built.warnings] == [True]
        assert (await retriever.indexes.create()).warnings == []
        assert await validity(retriever) == BUILT


async def test_it_needs_connections_of_its_own(database_url):
    async with AsyncConnectionPool(database_url, min_size=1, open=False) as pool, retriever_of(pool=pool) as retriever:
        await fill(retriever)
        with pytest.raises(ConfigurationError, match="db_url"):
            await retriever.indexes.create(concurrently=True)
        assert list(await retriever.indexes.create(progress=lambda _: None)) == ALL


@pytest.mark.parametrize(("index", "name"), [(HnswIndex(m=4), "hnsw_1_2"), (IvfflatIndex(lists=4), "ivfflat_1")])
async def test_progress_is_reported(database_url, retriever, monkeypatch, index, name):
    """While somebody looks at an older state of the database, for whom a concurrent build waits at its end."""
    monkeypatch.setattr(build, "SECONDS_BETWEEN_LOOKS", 0.001)
    steps = []
    await retriever.indexes.create(HnswIndex(m=8))
    async with await psycopg.AsyncConnection.connect(database_url) as looking:
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
async def test_a_build_without_shared_memory_goes_on_without_workers(retriever, monkeypatch, *, concurrently):
    """As in a container, whose shared memory is often smaller than what parallel workers ask for."""
    assert (await retriever.indexes.estimate()).workers == 0  # a short build gets none
    monkeypatch.setattr(estimate, "MIN_PARALLEL_SECONDS", 0)
    assert (await retriever.indexes.estimate()).workers > 0
    create, refused = IndexBuilder._create, []

    async def without_room(self, index, connection, *, concurrently):
        cursor = await connection.execute("SELECT current_setting('max_parallel_maintenance_workers')")
        if await cursor.fetchone() != ("0",):
            refused.append(index.suffix)
            raise psycopg.errors.DiskFull("could not resize shared memory segment")
        return await create(self, index, connection, concurrently=concurrently)

    monkeypatch.setattr(IndexBuilder, "_create", without_room)
    assert list(await retriever.indexes.create(concurrently=concurrently)) == refused == ALL
    assert await validity(retriever) == BUILT


# --- builds after a load ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def building(url):
    """A retriever that has loaded rows behind the first two, and a writer for whom the build of its index waits."""
    async with retriever_of(url) as retriever:
        await fill(retriever, 2)
    async with unfinished_write(url) as writer, asyncio.timeout(120), retriever_of(url) as retriever:
        await fill(retriever, ROWS, first=2)
        await held_build(url)
        yield retriever, writer


def no_build(url):
    return execute(url, "SELECT FROM pg_stat_progress_create_index") == []


async def test_a_load_returns_when_its_rows_are_found(database_url):
    async with building(database_url) as (retriever, writer):
        hits = await retriever.search(vector=DIRECTIONS[-1], top_k=1)
        assert hits[0].id == str(ROWS - 1)
        # Others write on.
        await retriever.add_documents([Document("more", id="more")], -DIRECTIONS[:1])
        assert (await retriever.search(vector=-DIRECTIONS[0], top_k=1))[0].id == "more"
        (running,) = (await retriever.status()).index_builds
        assert (running.name, running.phase[:7]) == ("built_hnsw_1", "waiting")
        await writer.commit()
        assert await retriever.indexes.wait() == []
        assert ((await retriever.status()).index_builds, await validity(retriever)) == ((), BUILT)
        hits = await retriever.search(vector=-DIRECTIONS[0], top_k=1)
        assert (hits[0].id, hits.legs["vector"].plan[:12]) == ("more", "vector index")


@pytest.mark.parametrize("way", ["block", "close", "option", "request", "synchronous block"])
async def test_a_short_program_ends_with_its_indexes(database_url, way):
    retriever = retriever_of(database_url, bulk=BulkIngestConfig(wait_for_index=way == "option"))
    if way == "block":
        async with retriever:
            await fill(retriever, ROWS)
    elif way == "synchronous block":
        await asyncio.to_thread(fill_synchronously, database_url)
    else:
        await fill(retriever, ROWS)
        if way == "request":  # which takes over from the build that the load has begun
            assert list(await retriever.indexes.create()) == []
        if way in ("option", "request"):
            assert await validity(retriever) == BUILT
        await retriever.close()
    async with retriever_of(database_url) as again:
        assert await validity(again) == BUILT
        assert await again.indexes.create() == []


def fill_synchronously(url):
    with sync_opened(url, model="none", collection="built", keyword="none") as retriever:
        retriever.add_documents([Document("text", id=str(row)) for row in range(ROWS)], DIRECTIONS)


@pytest.mark.parametrize("by", ["load", "worker"])
async def test_a_program_that_fails_does_not_wait_and_the_next_load_or_worker_builds(database_url, by):
    with suppress(ZeroDivisionError):
        async with building(database_url):
            raise ZeroDivisionError
    async with retriever_of(database_url) as retriever:
        assert await validity(retriever) != BUILT
        if by == "load":
            await retriever.add_documents([Document("more", id="more")], DIRECTIONS[:1])
            assert await retriever.indexes.wait() == []
        else:
            reported = []
            async with Client(database_url, "none") as client:
                assert await client.work(drain=True, tell=reported.append) == 0
            assert reported == ["collection built: its unfinished indexes are being built"]
        assert await validity(retriever) == BUILT


async def test_a_collection_is_dropped_beside_its_build(database_url):
    async with building(database_url) as (retriever, writer):
        dropping = asyncio.create_task(retriever.drop())
        await eventually(lambda: no_build(database_url), "the end of the build")
        await writer.rollback()
        assert await dropping
        assert await retriever.indexes.wait() == []


async def test_a_build_whose_client_is_gone_is_left_to_end(database_url):
    """Its server's process goes on; nobody drops under its hands what it builds."""
    bulk = BulkIngestConfig(build_indexes=False)
    async with retriever_of(database_url, bulk=bulk) as retriever, asyncio.timeout(120):
        await fill(retriever, ROWS)
        index = "built_hnsw_1 ON semlex.built_embedding_1 USING hnsw (embedding vector_cosine_ops)"
        async with unfinished_write(database_url) as writer:
            orphan = asyncio.create_task(asyncio.to_thread(execute, database_url, f"CREATE INDEX CONCURRENTLY {index}"))
            await held_build(database_url)
            built = await retriever.indexes.create(concurrently=True)
            assert "hnsw_1" in built.busy
            await writer.commit()
        await orphan
        assert await validity(retriever) == BUILT
        assert "hnsw_1" not in await retriever.indexes.create()


async def test_behind_a_pooler_a_load_builds_before_it_returns(database_url):
    async with TransactionPooler(database_url, 3) as pooler, retriever_of(pooler.address) as retriever:
        await fill(retriever, ROWS)
        assert await validity(retriever) == BUILT


async def test_a_build_waits_until_no_load_follows(database_url, monkeypatch):
    """Rows that come during a build go into the graph one by one."""
    monkeypatch.setattr(background, "QUIET_SECONDS", 2.0)
    clock = ManualClock()
    async with retriever_of(database_url, clock=clock) as retriever, asyncio.timeout(120):
        for _ in range(3):
            await fill(retriever, ROWS)
            clock.advance(1.5)
        assert no_build(database_url)
        assert await validity(retriever) == {}
        assert retriever.indexes.building
        clock.advance(2.0)
        await eventually(lambda: not retriever.indexes.building)
        assert await validity(retriever) == BUILT


# --- indexes of fields ------------------------------------------------------------------------------------------------


TEXTS = [Document("a text", {"year": row}, id=str(row)) for row in range(50)]

filled_with = partial(filled, texts=TEXTS, model="none", collection="built", keyword="none")


async def year(retriever):
    """Types of the field that have an index, and those of which one was not built completely."""
    return next((field.indexed, field.unfinished) for field in await retriever.fields.list() if field.name == "year")


async def test_writers_go_on_while_an_index_of_a_field_is_built(database_url, caplog):
    clock = ManualClock()
    async with filled_with(database_url, clock=clock) as retriever, asyncio.timeout(120):
        async with await psycopg.AsyncConnection.connect(database_url) as writer:
            await writer.execute("UPDATE semlex.built_chunk SET summary = summary")
            task = asyncio.create_task(retriever.fields.add("year", "number"))
            await held_build(database_url, "semlex.built_chunk")
            await retriever.add_documents([Document("more", {"year": 2000}, id="more")])
            assert await retriever.count("year >= 2000") == 1
            waits = f"waits until the transaction of server process {writer.info.backend_pid} ends"
            await clock.passes_until(lambda: waits in caplog.text)
            assert not task.done()
            await writer.commit()
            built = await task
        assert (len(built), built.busy, built.warnings) == (1, [], [])
        assert await year(retriever) == (("number",), ())
        assert await retriever.count("year >= 2000") == 1


FIELD_INDEX = """
    SELECT FROM pg_index JOIN pg_class ON oid = indexrelid
    WHERE indrelid = %s::regclass AND indisvalid AND relname ~ 'field'
"""


@pytest.mark.parametrize(("partitions", "table"), [(0, "built_chunk"), (2, "built_chunk_p0")])
async def test_an_ended_build_of_a_field_is_shown_and_built_again(database_url, partitions, table):
    async with filled_with(database_url, partitions=partitions) as retriever, asyncio.timeout(120):
        async with (
            await psycopg.AsyncConnection.connect(database_url) as writer,
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
        ):
            await writer.execute(sql.SQL("UPDATE {} SET summary = summary").format(sql.Identifier("semlex", table)))
            task = asyncio.create_task(retriever.fields.add("year", "text", force=True))
            backend = await held_build(database_url, f"semlex.{table}")
            if partitions:  # whose other index is built beside it, and would be ended on the way
                other_partition = (database_url, FIELD_INDEX, ["semlex.built_chunk_p1"])
                await eventually(lambda: execute(*other_partition), "the other partition's index")
            await other.execute("SELECT pg_terminate_backend(%s)", [backend])
            with pytest.raises(StoreError):
                await task
            problems = await find_problems(other, retriever.info.server)
            shown = ["semlex fields add makes it again" in problem.sentence for problem in problems]
            assert shown == ([True, True] if partitions else [True])  # that of the partition as well
        assert await year(retriever) == ((), ("text",))
        assert len(await retriever.fields.add("year", "text", force=True)) == 1
        assert await year(retriever) == (("text",), ())
        assert await retriever.fields.remove("year") == ("text",)
        assert await year(retriever) == ((), ())


async def test_an_index_of_a_field_does_not_wait_for_another_build(database_url):
    async with filled_with(database_url) as retriever, asyncio.timeout(60):
        async with await psycopg.AsyncConnection.connect(database_url) as other:
            await other.execute("SELECT pg_advisory_xact_lock(%s)", [building_lock(retriever.info)])
            built = await retriever.fields.add("year", "number")
            assert (len(built), len(built.busy)) == (0, 1)
        assert len(await retriever.fields.add("year", "number")) == 1


async def test_writers_wait_for_an_index_of_a_field_behind_a_transaction_pooler(database_url):
    async with TransactionPooler(database_url, 3) as pooler, filled_with(pooler.address) as retriever:
        built = await retriever.fields.add("year", "number")
        assert len(built) == 1
        assert ["pooler" in warning for warning in built.warnings] == [True]
        assert await retriever.fields.add("year", "number") == []
        assert await year(retriever) == (("number",), ())
        assert await retriever.fields.remove("year") == ("number",)


@pytest.mark.parametrize("doing", ["remove_field", "create_index", "drop"])
async def test_searches_pass_by_whoever_waits_to_drop_something(database_url, monkeypatch, caplog, doing):
    """Beside a backup, which reads all tables in one long transaction."""
    clock = ManualClock()
    async with (
        filled_with(database_url, model=8, clock=clock) as retriever,
        retriever_of(database_url, model=8) as reader,
        await psycopg.AsyncConnection.connect(database_url) as backup,
    ):
        await retriever.indexes.create()
        await retriever.fields.add("year", "number")
        calls = {
            "remove_field": partial(retriever.fields.remove, "year"),
            "create_index": partial(retriever.indexes.create, NoIndex()),
            "drop": retriever.drop,
        }
        await reader.search("text")
        await backup.execute("LOCK TABLE semlex.built_chunk, semlex.built_embedding_1 IN ACCESS SHARE MODE")
        work = asyncio.create_task(calls[doing]())
        pid = backup.info.backend_pid
        for _ in range(2):
            # It has given up this try, though the backup goes on: nobody queues behind it.
            await eventually(lambda: clock.waits, "a pause between two tries")
            assert len(await reader.search("text", 3)) == 3
            clock.advance(TELL_SECONDS)
        await clock.passes_until(work.done, TABLE_SECONDS)
        with pytest.raises(StoreError, match=rf"gave up after .*process {pid}, idle in transaction"):
            await work
        assert f"waits for other transactions (process {pid}" in caplog.text
        await backup.rollback()
        assert await calls[doing]() is not False
