"""Behind a transaction pooler: all works, answers are those of a direct connection, and no session is changed."""

import asyncio
import itertools
import random
from contextlib import asynccontextmanager
from functools import partial

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from semlex import Client
from semlex.errors import SearchTimeoutError
from semlex.proof import transaction_pooler
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.postgres.pool import PREPARED_FROM
from semlex.store.write.copy import BulkIngestConfig
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from tests.support.clients.keyword_index_client import IDS, some_documents
from tests.support.compared_searches import compare, many, told
from tests.support.databases import execute
from tests.support.keyword_index import check_index
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened
from tests.support.waiting import eventually, waiting

CHUNK = "semlex.words_chunk"
WRITERS, SEARCHERS = 2, 3
# What leaves something in a session beyond a transaction -> where a session shows that.
LEFT = {
    "SET search_path = elsewhere": "current_setting('search_path')",
    "SET statement_timeout = 1234567": "current_setting('statement_timeout')",
    "SET jit = on": "current_setting('jit')",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE": (
        "current_setting('default_transaction_isolation')"
    ),
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY": "current_setting('default_transaction_read_only')",
    "SET work_mem = '5MB'": (
        "array(SELECT name || setting FROM pg_settings WHERE source = 'session' AND name !~ '^transaction_')"
    ),
    "PREPARE something AS SELECT 1": "array(SELECT name FROM pg_prepared_statements)",
    "DECLARE something CURSOR WITH HOLD FOR SELECT 1": "array(SELECT name FROM pg_cursors WHERE is_holdable)",
    "LISTEN something": "array(SELECT pg_listening_channels())",
    "SELECT pg_advisory_lock(1)": (
        "array(SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
    ),
    "CREATE TEMPORARY TABLE something ()": "array(SELECT oid FROM pg_class WHERE relnamespace = pg_my_temp_schema())",
}
SESSION = f"SELECT pg_backend_pid(), {', '.join(LEFT.values())}"


retriever_of = partial(opened, model=16, collection="words")


@asynccontextmanager
async def client_of(url):
    """One that leaves nothing in a session by itself; its statements are transactions of their own."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as client:
        yield client


async def sessions(url, size=1):
    """Backend of each of so many connections -> what its session holds."""
    async with client_of(url) as client:
        rows = [await (await client.execute(SESSION)).fetchone() for _ in range(2 * size)]
    found = {backend: held for backend, *held in rows}
    assert len(found) == size
    return found


@asynccontextmanager
async def pooled(url, size=2):
    """A pooler in whose connections nothing may be left at the end, and all of which must have been given back."""
    [clean] = (await sessions(url)).values()
    async with TransactionPooler(url, size) as pooler, asyncio.timeout(120):
        yield pooler
        assert pooler.discarded == 0
        assert [*(await sessions(pooler.address, size)).values()] == [clean] * size


async def test_transactions_alternate_between_backends_and_what_needs_a_session_is_refused(database_url):
    async with pooled(database_url) as pooler, client_of(pooler.address) as client:
        backends = []
        for _ in range(6):
            async with client.transaction():
                inside = [await (await client.execute("SELECT pg_backend_pid()")).fetchone() for _ in range(3)]
            assert len(set(inside)) == 1
            backends.append(inside[0])
        assert len(set(backends)) == 2
        assert all(one != other for one, other in itertools.pairwise(backends))
        assert client.info.server_version >= 160000  # it was told at the start what the server is
        async with await psycopg.AsyncConnection.connect(pooler.address, autocommit=True) as preparing:
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                await preparing.execute("SELECT %s", [1], prepare=True)
        with pytest.raises(psycopg.OperationalError, match="options"):
            await psycopg.AsyncConnection.connect(pooler.address, options="-c jit=off")


async def test_what_is_left_in_a_session_is_found(database_url):
    [clean] = (await sessions(database_url)).values()
    found = {}
    for place, leave in enumerate(LEFT):
        async with TransactionPooler(database_url) as pooler, client_of(pooler.address) as client:
            assert [*(await sessions(pooler.address, 2)).values()] == [clean] * 2
            await client.execute(leave)
            states = (await sessions(pooler.address, 2)).values()
            found[leave] = sorted(state[place] != clean[place] for state in states)
    assert found == {leave: [False, True] for leave in LEFT}


async def test_a_pooler_that_tells_the_number_of_its_session_is_not_taken_for_the_server(database_url, monkeypatch):
    async with pooled(database_url, 1) as pooler:
        [backend] = await sessions(pooler.address)
        monkeypatch.setattr(transaction_pooler, "KEYS", itertools.repeat(backend << 32))
        async with retriever_of(pooler.address) as retriever:
            await retriever.add_documents([Document("stone cloud")])
            for _ in range(2 * PREPARED_FROM):
                assert len(await retriever.search("stone")) == 1


@pytest.mark.parametrize("binary", [True, False], ids=["extended", "simple"])
async def test_a_connection_is_given_back_after_rows_and_failures(database_url, binary):
    async with pooled(database_url, 1) as pooler, client_of(pooler.address) as client:
        await client.execute("CREATE TABLE numbers (n int PRIMARY KEY)")
        cursor = client.cursor(binary=binary)
        for rows in (range(1000), [2000, 2000], range(3000, 4000)):
            try:
                async with cursor.copy("COPY numbers FROM STDIN") as copy:
                    for number in rows:
                        await copy.write_row([number])
            except psycopg.errors.UniqueViolation:
                assert rows == [2000, 2000]
            with pytest.raises(psycopg.errors.DivisionByZero):
                await cursor.execute("SELECT 1 / %s", [0])
            async with client_of(pooler.address) as other:  # there is one connection only
                await other.execute("SELECT 1")
        async with client.pipeline():
            counts = [await client.execute("SELECT count(*) FROM numbers") for _ in range(20)]
        assert {await one.fetchone() for one in counts} == {(2000,)}


@pytest.mark.parametrize("keyword", ["bm25", "tsvector"])
async def test_the_life_of_a_collection(database_url, open_folder, keyword):
    (open_folder / "notes.md").write_text("# Fruit\n\nA banana is a yellow fruit.\n\n# Ships\n\nA ship has a key.\n")
    async with pooled(database_url) as pooler, retriever_of(pooler.address, keyword=keyword) as retriever:

        async def compare_with_direct():
            async with retriever_of(pooler.address) as other, retriever_of(database_url) as direct:
                await compare(other, direct)

        await retriever.add_documents(many(100))  # straight into the empty tables
        await compare_with_direct()
        await retriever.add_documents(many(80, 100, "ship"))  # by way of a temporary table
        await retriever.add_documents(many(5, 50, "vault"))  # as arrays
        await retriever.add_documents(many(70, text="skipped"), on_duplicate="skip")
        assert (await retriever.index(open_folder)).failed == 0
        await compare_with_direct()
        assert (await retriever.delete([f"d{number}" for number in range(100, 160)])).chunks == 60
        assert "hnsw_1" in await retriever.indexes.create()
        await compare_with_direct()
        assert await retriever.embeddings.fill() == 0
        await retriever.indexes.optimize()
        if keyword == "bm25":
            assert (await retriever.indexes.rebuild_keyword()).generation == 2
            check_index(database_url)
        await compare_with_direct()
        status = await retriever.status()
        assert status.chunks == status.embedded == await retriever.count()
        assert [one.name for one in await retriever.collections()] == ["words"]
        assert (await retriever.health_check()).ok
        assert pooler.lent > 100
        assert await retriever.drop_collection()
    assert execute(database_url, "SELECT to_regclass(%s)", [CHUNK]) == [(None,)]


async def test_a_late_or_cancelled_search_gives_its_connection_back_at_once_without_a_time_limit(database_url):
    async with (
        pooled(database_url, 1) as pooler,
        retriever_of(pooler.address, clock=ManualClock()) as retriever,
        client_of(database_url) as blocking,
    ):
        await retriever.add_documents(many(20))
        async with blocking.transaction():
            await blocking.execute(f"LOCK TABLE {CHUNK}")
            with pytest.raises(SearchTimeoutError):
                await retriever.search("cat", mode="keyword", deadline=0.2)  # expires
        assert len(await retriever.search("cat", 20)) == 20
        async with blocking.transaction():
            await blocking.execute(f"LOCK TABLE {CHUNK}")
            search = asyncio.create_task(retriever.search("cat"))
            with psycopg.connect(database_url) as watching:
                await eventually(lambda: waiting(watching))
                search.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await search
                assert waiting(watching) == 0  # the cancellation has reached the backend
            assert (await retriever.health_check()).ok  # there is one connection only
        assert len(await retriever.search("cat", 20)) == 20


async def test_a_user_in_a_transaction(database_url):
    async with (
        pooled(database_url) as pooler,
        client_of(pooler.address) as client,
        retriever_of(connection=client) as retriever,
    ):
        for number in range(3):
            async with client.transaction():
                await retriever.add_documents(many(100, 100 * number))
                assert client.info.transaction_status == TransactionStatus.INTRANS
                assert await retriever.count() == 100 * (number + 1)
                assert len(await retriever.search("cat", 100)) == 100


class Together:
    """Writers and searchers, each with a retriever of its own, until all have done enough.

    Documents with the word ``constant`` are never touched, so that it is known what has to be found.
    """

    def __init__(self, url, rounds):
        self.url, self.rounds = url, rounds
        self.constant = many(30, IDS, "constant")

    async def run(self):
        async with retriever_of(self.url) as retriever:
            await retriever.add_documents([*some_documents(random.Random(0), 100), *self.constant])
        writing = [asyncio.create_task(self._write(seed)) for seed in range(WRITERS)]
        searching = [asyncio.create_task(self._search(seed, writing)) for seed in range(SEARCHERS)]
        await asyncio.gather(*writing, *searching)

    async def _write(self, seed):
        numbers = random.Random(f"write {seed}")
        async with retriever_of(self.url, bulk=BulkIngestConfig(small_batch_rows=8)) as retriever:
            for turn in range(self.rounds):
                await retriever.add_documents(some_documents(numbers, numbers.choice([1, 5, 50])))
                await retriever.delete([f"d{number}" for number in numbers.sample(range(IDS), 5)])
                if turn % 5 == 1:
                    await retriever.indexes.optimize()
                if seed == 0 and turn == self.rounds // 2:
                    await retriever.indexes.create()
                    await retriever.indexes.rebuild_keyword()

    async def _search(self, seed, writing):
        numbers = random.Random(f"search {seed}")
        done = 0
        async with retriever_of(self.url) as retriever:
            while done < self.rounds or not all(task.done() for task in writing):
                mode = numbers.choice(["keyword", "hybrid"])
                found = await retriever.search("constant", 30, mode=mode)
                assert (len(found), found.warnings) == (30, [])
                if mode == "keyword":
                    assert {one.id for one in found} == {one.id for one in self.constant}
                one = numbers.choice(self.constant)
                nearest = await retriever.search(one.content, 1, mode="vector", deadline=60.0)
                assert (nearest[0].id, nearest[0].vector_score) == (one.id, pytest.approx(1.0, abs=1e-5))
                done += 1


@pytest.mark.parametrize("size", [1, 2])
async def test_writers_and_searchers_share_few_connections(database_url, size, full):
    """Nobody waits for a second connection while holding one: over a single one all would stand still."""
    async with pooled(database_url, size) as pooler:
        await Together(pooler.address, 100 if full else 6).run()
        check_index(database_url)
        async with retriever_of(pooler.address) as retriever, retriever_of(database_url) as direct:
            for query in ("constant", "yellow fruit", "key rotation"):
                assert told(await retriever.search(query, 100)) == told(await direct.search(query, 100))


async def test_the_doctor_sees_the_pooler_and_the_log_passes_it(database_url):
    async with pooled(database_url) as pooler:
        async with retriever_of(pooler.address, query_log="text") as retriever:
            await retriever.add_documents(many(20))
            await asyncio.gather(*(retriever.search(f"cat {number}") for number in range(10)))
        async with Client(pooler.address, HashEmbedder(16), use_reranking=False) as client:
            found = await client.diagnose()
        assert found.is_well
        (finding,) = [one for one in found.findings if one.code == "pooler"]
        assert "may give each transaction a different session" in finding.what
    async with retriever_of(database_url) as retriever:
        assert (await retriever.queries.summary()).logged == 10
    async with Client(database_url, HashEmbedder(16), use_reranking=False) as client:
        assert "pooler" not in {one.code for one in (await client.diagnose()).findings}
