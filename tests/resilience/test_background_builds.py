"""A load returns when its rows are stored and found; its indexes are built meanwhile, and end in every case."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest

from semlex.proof.transaction_pooler import TransactionPooler
from semlex.retriever.client import Client
from semlex.store.indexes import background, choice
from semlex.store.write.copy import BulkIngestConfig
from semlex.types.documents import Document
from tests.resilience.test_index_builds import VECTORS, directions, filled, unfinished_write, validity
from tests.support.databases import execute
from tests.support.index_builds import held_build
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened, sync_opened
from tests.support.waiting import eventually

ROWS = 300
BUILT = {"built_hnsw_1": True}

retriever_of = partial(opened, model="none", collection="built", keyword="none")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(choice, "INDEX_FROM_ROWS", ROWS)
    monkeypatch.setattr(background, "QUIET_SECONDS", 0.0)


async def load(retriever):
    """Add rows behind the first two, so many that indexes are built; return all vectors."""
    vectors = directions(ROWS)
    documents = [Document(f"text {row}", id=str(row)) for row in range(2, ROWS)]
    await retriever.add_documents(documents, vectors[2:])
    return vectors


async def interrupted(url):
    """Leave an unfinished index: a load whose program fails while the index is built."""
    async with retriever_of(url) as retriever:
        await filled(retriever, 2)
    async with unfinished_write(url), asyncio.timeout(120):
        with suppress(ZeroDivisionError):
            async with retriever_of(url) as retriever:
                await load(retriever)
                await held_build(url, VECTORS)
                raise ZeroDivisionError


def no_build(url):
    return execute(url, "SELECT FROM pg_stat_progress_create_index") == []


async def test_a_load_returns_when_its_rows_are_found(database_url):
    async with retriever_of(database_url) as retriever, asyncio.timeout(120):
        await filled(retriever, 2)
        async with unfinished_write(database_url) as writer:
            vectors = await load(retriever)
            await held_build(database_url, VECTORS)
            hits = await retriever.search(vector=vectors[ROWS - 1], top_k=1)
            assert hits[0].id == str(ROWS - 1)
            # Others write on.
            await retriever.add_documents([Document("more", id="more")], -vectors[:1])
            assert (await retriever.search(vector=-vectors[0], top_k=1))[0].id == "more"
            (running,) = (await retriever.status()).index_builds
            assert (running.name, running.phase[:7]) == ("built_hnsw_1", "waiting")
            await writer.commit()
            assert await retriever.indexes.wait() == []
        status = await retriever.status()
        assert (status.index_builds, await validity(retriever)) == ((), BUILT)
        hits = await retriever.search(vector=-vectors[0], top_k=1)
        assert (hits[0].id, hits.legs["vector"].plan[:12]) == ("more", "vector index")


@pytest.mark.parametrize("way", ["block", "close", "option"])
async def test_a_short_program_ends_with_its_indexes(database_url, way):
    bulk = BulkIngestConfig(wait_for_index=way == "option")
    retriever = retriever_of(database_url, bulk=bulk)
    if way == "block":
        async with retriever:
            await filled(retriever, ROWS)
    else:
        await filled(retriever, ROWS)
        if way == "option":
            assert await validity(retriever) == BUILT
        await retriever.close()
    async with retriever_of(database_url) as again:
        assert await validity(again) == BUILT
        assert await again.indexes.create() == []


def test_a_synchronous_program_ends_with_its_indexes(database_url):
    with sync_opened(database_url, model="none", collection="built", keyword="none") as retriever:
        retriever.add_documents([Document("text", id=str(row)) for row in range(ROWS)], directions(ROWS))
    with sync_opened(database_url, model="none", collection="built", keyword="none") as again:
        assert [index.valid for index in again.status().vector_indexes] == [True]


async def test_a_program_that_fails_does_not_wait_and_the_next_load_builds(database_url):
    await interrupted(database_url)
    async with retriever_of(database_url) as retriever:
        assert await validity(retriever) != BUILT
        await retriever.add_documents([Document("more", id="more")], directions(1))
        assert await retriever.indexes.wait() == []
        assert await validity(retriever) == BUILT


async def test_a_collection_is_dropped_beside_its_build(database_url):
    async with retriever_of(database_url) as retriever, asyncio.timeout(120):
        await filled(retriever, 2)
        async with unfinished_write(database_url) as writer:
            await load(retriever)
            await held_build(database_url, VECTORS)
            dropping = asyncio.create_task(retriever.drop())
            await eventually(lambda: no_build(database_url), "the end of the build")
            await writer.rollback()
            assert await dropping
        assert await retriever.indexes.wait() == []


async def test_a_request_for_indexes_takes_over(database_url):
    async with retriever_of(database_url) as retriever, asyncio.timeout(120):
        await filled(retriever, ROWS)
        assert list(await retriever.indexes.create()) == []
        assert await validity(retriever) == BUILT


async def test_a_build_whose_client_is_gone_is_left_to_end(database_url):
    """Its server's process goes on; nobody drops under its hands what it builds."""
    async with (
        retriever_of(database_url, bulk=BulkIngestConfig(build_indexes=False)) as retriever,
        asyncio.timeout(120),
    ):
        await filled(retriever, ROWS)
        statement = f"CREATE INDEX CONCURRENTLY built_hnsw_1 ON {VECTORS} USING hnsw (embedding vector_cosine_ops)"
        async with unfinished_write(database_url) as writer:
            orphan = asyncio.create_task(asyncio.to_thread(execute, database_url, statement))
            await held_build(database_url, VECTORS)
            built = await retriever.indexes.create(concurrently=True)
            assert "hnsw_1" in built.busy
            await writer.commit()
        await orphan
        assert await validity(retriever) == BUILT
        assert "hnsw_1" not in await retriever.indexes.create()


async def test_behind_a_pooler_a_load_builds_before_it_returns(database_url):
    async with TransactionPooler(database_url, 3) as pooler, retriever_of(pooler.address) as retriever:
        await filled(retriever, ROWS)
        assert await validity(retriever) == BUILT


async def test_a_worker_takes_up_what_was_left(database_url):
    await interrupted(database_url)
    said = []
    async with Client(database_url, "none") as client:
        assert await client.work(drain=True, tell=said.append) == 0
    assert said == ["collection built: its unfinished indexes are being built"]
    async with retriever_of(database_url) as retriever:
        assert await validity(retriever) == BUILT


async def test_a_build_waits_until_no_load_follows(database_url, monkeypatch):
    """Rows that come during a build go into the graph one by one."""
    monkeypatch.setattr(background, "QUIET_SECONDS", 2.0)
    clock = ManualClock()
    async with retriever_of(database_url, clock=clock) as retriever, asyncio.timeout(120):
        for _ in range(3):
            await filled(retriever, ROWS)
            clock.advance(1.5)
        assert no_build(database_url)
        assert await validity(retriever) == {}
        assert retriever.indexes.building
        clock.advance(2.0)
        await eventually(lambda: not retriever.indexes.building)
        assert await validity(retriever) == BUILT
