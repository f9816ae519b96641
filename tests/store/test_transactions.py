"""Transactions: the user's own, what an upsert replaces, writers against each other, what a connection remembers."""

import asyncio
import logging
import random
from functools import partial

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from psycopg_pool.base import AttemptWithBackoff

from semlex import BulkIngestConfig, Document
from semlex.errors import ConnectionFailedError, SearchTimeoutError
from semlex.store.postgres.database import RETRY_ATTEMPTS, Database
from semlex.store.postgres.pool import RECONNECT_SECONDS, PooledConnection
from semlex.store.postgres.server_info import read_server_info
from semlex.store.write import documents as ingestion
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled, opened
from tests.support.waiting import LIMIT, eventually, waiting

CHUNK = "semlex.default_collection_chunk"
CHANGE = f"UPDATE {CHUNK} SET chunk_text = 'changed', content_hash = 'x' WHERE chunk_id = 'd3'"
SESSION = ("search_path", "hnsw.ef_search", "hnsw.iterative_scan", "statement_timeout", "lock_timeout", "work_mem")


def rows_of(url):
    """Id -> text and vector, as stored."""
    tables = f"{CHUNK} LEFT JOIN semlex.default_collection_embedding_1 USING (document_id, chunk_id)"
    query = f"SELECT chunk_id, chunk_text, embedding::real[] FROM {tables}"
    return {name: (text, None if vector is None else tuple(vector)) for name, text, vector in execute(url, query)}


@pytest.fixture
async def connection(database_url):
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        yield connection


def many(count, text="text", start=0):
    return [Document(f"{text} {number}", id=f"d{number}") for number in range(start, start + count)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 200], ids=["by arrays", "by copy"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_additions_join_the_users_transaction(database_url, connection, count, commits):
    async with filled(None, many(5), connection=connection) as retriever:
        await connection.execute("CREATE TABLE own (n int)")
        await connection.execute("SET search_path = public, semlex")
        async with connection.transaction() as transaction:
            await connection.execute("INSERT INTO own VALUES (1)")
            await retriever.add_documents(many(count, start=5))
            # A refused call leaves the transaction usable.
            with pytest.raises(ValueError, match="NUL"):
                await retriever.add_documents([Document("bad\0", id="bad")])
            with pytest.raises(ValueError, match="dimensions"):
                await retriever.add_documents([Document("bad", id="bad")], np.ones((1, 9), np.float32))
            with pytest.raises(ValueError, match="dimensions"):
                await retriever.search(vector=np.ones(9, np.float32))
            await retriever.add_documents(many(count, "changed", start=7))
            await retriever.delete(["d0"])
            assert await retriever.count() == 4 + count + 2
            assert [one.content for one in await retriever.search("changed 7", 1)] == ["changed 7"]
            assert await (await connection.execute("SHOW search_path")).fetchone() == ("public, semlex",)
            assert execute(database_url, f"SELECT count(*) FROM {CHUNK}") == [(5,)]
            if not commits:
                raise psycopg.Rollback(transaction)
        assert await retriever.count() == (4 + count + 2 if commits else 5)
        assert await (await connection.execute("SHOW search_path")).fetchone() == ("public, semlex",)
        assert await (await connection.execute("SELECT count(*) FROM public.own")).fetchone() == (int(commits),)
        # Many searches share the connection.
        results = await asyncio.gather(*(retriever.search(f"text {1 + number % 4}", 1) for number in range(16)))
        assert [result[0].id for result in results] == ["d1", "d2", "d3", "d4"] * 4
    assert not connection.closed
    stored = rows_of(database_url)
    assert len(stored) == (4 + count + 2 if commits else 5)
    assert all(vector is not None for _, vector in stored.values())


async def test_a_rollback_takes_back_the_first_vectors_and_the_retriever_goes_on(database_url, connection):
    async with opened(connection=connection) as retriever:
        for attempt in range(2):
            async with connection.transaction() as transaction:
                await connection.execute("SET LOCAL lock_timeout = '50s'")
                await retriever.add_documents(many(3))
                assert await (await connection.execute("SHOW lock_timeout")).fetchone() == ("50s",)
                assert len(await retriever.search("text 1", 3)) == 3
                raise psycopg.Rollback(transaction)
            found = await retriever.search("text 1", 3)
            assert (list(found), found.warnings) == ([], ["the collection is empty"])
            assert (await retriever.count(), (await retriever.delete(["d1"])).chunks, attempt) == (0, 0, attempt)
            assert (await retriever.status()).embedding_model is None
        await retriever.add_documents(many(3))
        found = await retriever.search("text 1", 3, mode="vector")
        assert (found[0].id, found.warnings) == ("d1", [])
    assert len(rows_of(database_url)) == 3


async def test_more_calls_than_connections_wait_and_are_all_answered(database_url):
    async with Database(database_url, max_size=1) as database:

        async def answer(connection, number):
            return int((await (await connection.execute("SELECT %s", [number])).fetchone())[0])

        calls = [database.read("ask", partial(answer, number=number)) for number in range(100)]
        assert await asyncio.gather(*calls) == list(range(100))
        assert database.pool_figures == {"size": 1, "idle": 1, "waiting": 0}
        async with database.connection():
            with pytest.raises(SearchTimeoutError, match=r"no connection became free within 0\.01 s"):
                await database.read("ask", partial(answer, number=1), deadline=0.01)  # expires
            assert database.pool_figures["waiting"] == 0


@pytest.mark.slow
async def test_connections_that_all_died_at_once_cost_one_retry(database_url, caplog):
    """No connection is asked whether it lives; after one was found dead, all are replaced."""
    caplog.set_level(logging.INFO, "semlex")
    async with filled(database_url, {"1": "a cat"}) as retriever:
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(retriever.search("cat"))
        killed = execute(
            database_url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        )
        assert len(killed) > RETRY_ATTEMPTS
        assert [hit.id for hit in await retriever.search("cat")] == ["1"]
    assert sum("retry" in record.getMessage() for record in caplog.records) == 1


async def test_who_waits_for_a_server_that_was_away_is_answered_soon_after(database_url, monkeypatch):
    """The attempts to connect do not grow rarer, also for somebody who waits alone. A second is a millisecond here."""
    whole, refused = PooledConnection.connect, 0

    async def connect(*given, **options):
        nonlocal refused
        assert options["connect_timeout"] == LIMIT  # an attempt that nothing answers ends
        refused += 1
        if refused < 25:
            raise psycopg.OperationalError("connection refused")
        return await whole(*given, **options)

    monkeypatch.setattr(AttemptWithBackoff, "INITIAL_DELAY", 0.001)
    monkeypatch.setattr("semlex.store.postgres.database.RECONNECT_SECONDS", RECONNECT_SECONDS / 1_000)
    async with Database(database_url, timeout=LIMIT) as database:
        monkeypatch.setattr(PooledConnection, "connect", connect)
        async with database.connection() as connection:
            await connection.close()
        assert (await database.read("look", read_server_info)).pgvector
    assert refused >= 25


async def test_reads_are_tried_again_for_some_seconds_and_writes_a_few_times(database_url):
    """As on a server whose sessions are ended again and again."""
    clock, tries = ManualClock(), 0

    async def ended(_):
        nonlocal tries
        tries += 1
        raise psycopg.errors.AdminShutdown

    async with Database(database_url, timeout=LIMIT, clock=clock) as database:
        for call in (database.read, database.write):
            tries, begun = 0, clock.monotonic()
            work = asyncio.create_task(call("look", ended))
            await clock.passes_until(work.done, 5)
            with pytest.raises(ConnectionFailedError, match="57P01"):
                await work
            if call == database.read:
                assert tries > RETRY_ATTEMPTS
                assert clock.monotonic() - begun >= LIMIT
            else:
                assert tries == RETRY_ATTEMPTS


@pytest.mark.slow
@pytest.mark.parametrize("cursors", [psycopg.AsyncCursor, psycopg.AsyncRawCursor, psycopg.AsyncClientCursor])
async def test_a_pool_of_the_users_stays_open_and_clean(database_url, cursors):
    """The pool keeps its row factory and its kind of cursor."""
    own = {"row_factory": dict_row, "cursor_factory": cursors}
    async with AsyncConnectionPool(database_url, min_size=1, max_size=2, kwargs=own, open=False) as pool:
        async with pool.connection() as connection:
            before = [await (await connection.execute(f"SHOW {name}")).fetchone() for name in SESSION[0::5]]
        async with filled(None, many(3), pool=pool) as retriever:
            await retriever.add_documents(many(100))
            found = await asyncio.gather(*(retriever.search(f"text {number}", 5) for number in range(8)))
            assert [len(hits) for hits in found] == [5] * 8
        async with pool.connection() as connection:
            assert [await (await connection.execute(f"SHOW {name}")).fetchone() for name in SESSION[0::5]] == before
            assert await (await connection.execute(f"SELECT count(*) FROM {CHUNK}")).fetchone() == {"count": 100}
            async with filled(None, {"more": "one more"}, connection=connection) as joined:
                assert await joined.count() == 101
            assert connection.cursor_factory is cursors


async def test_a_connection_remembers_nothing(connection):
    settings = [sql.SQL("current_setting({})").format(name) for name in SESSION]
    counts = """(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
        (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_class WHERE relpersistence = 't')"""
    state = sql.SQL("SELECT {}, " + counts).format(sql.SQL(", ").join(settings))
    connection.prepare_threshold = None
    await connection.execute("LOAD 'vector'")
    before = await (await connection.execute(state)).fetchone()
    async with filled(None, many(200), connection=connection) as retriever:
        await retriever.add_documents(many(200, "changed"))
        await retriever.indexes.create()
        for top_k in (1, 100):
            await retriever.search("text 1", top_k, deadline=60.0)
    assert await (await connection.execute(state)).fetchone() == before


def with_rest(filler, *rows):
    """The given vectors, and one more for each of the filling documents."""
    return np.vstack([rows, np.ones((filler, 2))]).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("filler", [0, 100], ids=["by arrays", "by copy"])
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "not empty"])
async def test_of_a_repeated_id_the_last_wins(database_url, filler, empty):
    documents = [Document("one", id="a"), Document("other", id="b"), Document("two", id="a"), *many(filler)]
    async with opened(database_url, "none") as retriever:
        if not empty:
            await retriever.add_documents([Document("old", id="a")], with_rest(0, (3, 3)))
        embeddings = with_rest(filler, (1, 0), (0, 1), (1, 1))
        assert await retriever.add_documents(documents, embeddings) == [one.id for one in documents]
    stored = rows_of(database_url)
    assert (stored["a"], stored["b"], len(stored)) == (("two", (1, 1)), ("other", (0, 1)), 2 + filler)


@pytest.mark.slow
@pytest.mark.parametrize("filler", [0, 100], ids=["by arrays", "by copy"])
async def test_what_an_upsert_replaces_and_skipping_leaves(database_url, filler):
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents([Document("old", {"a": 1}, id="x"), *many(filler)], with_rest(filler, (1, 0)))
        first = (await retriever.get(["x"]))[0]
        new = Document("new", {"b": 2}, id="x", parent_id="p")
        await retriever.add_documents([new, *many(filler)], with_rest(filler, (0, 1)))
        second = (await retriever.get(["x"]))[0]
        assert (second.content, second.metadata, second.parent_id) == ("new", {"b": 2}, "p")
        assert (second.created_at, second.updated_at) == (first.created_at, new.updated_at)
        assert [one.id for one in await retriever.search("new")] == ["x"]
        assert await retriever.search("old", mode="keyword") == []
        assert rows_of(database_url)["x"] == ("new", (0, 1))

        documents = [Document("newer", id="x"), Document("added", id="y"), *many(filler, start=filler)]
        ids = await retriever.add_documents(documents, with_rest(filler, (1, 0), (1, 1)), on_duplicate="skip")
        assert ids == [one.id for one in documents]
        assert await retriever.count() == 2 + 2 * filler
        stored = rows_of(database_url)
        assert (stored["x"], stored["y"]) == (("new", (0, 1)), ("added", (1, 1)))

        # A changed text without a vector loses the old one; with other metadata it stays, as it belongs to the text.
        documents[:2] = [Document("changed", id="x"), Document("added", {"more": True}, id="y")]
        await retriever.add_documents(documents)
        assert (await retriever.get(["y"]))[0].metadata == {"more": True}
    stored = rows_of(database_url)
    assert (stored["x"], stored["y"]) == (("changed", None), ("added", (1, 1)))


async def test_skipping_in_an_empty_collection_keeps_the_first_of_a_repeated_id(database_url):
    """As if each document were added by itself."""
    async with opened(database_url) as retriever:
        await retriever.add_documents([Document("one", id="a"), Document("two", id="a")], on_duplicate="skip")
    assert rows_of(database_url)["a"][0] == "one"


async def test_a_direct_load_gives_way_to_somebody_who_was_first(database_url, monkeypatch):
    """Between the look at the empty collection and the COPY another writer stores one of the ids."""
    is_empty, asked = ingestion.is_empty, []
    async with opened(database_url) as first, opened(database_url) as second:

        async def interrupted(*arguments):
            answer = await is_empty(*arguments)
            if not asked:
                await second.add_documents([Document("theirs", id="d5"), Document("theirs", id="own")])
            asked.append(answer)
            return answer

        monkeypatch.setattr(ingestion, "is_empty", interrupted)
        await first.add_documents(many(100))
        assert len(asked) == 1
    stored = rows_of(database_url)
    assert len(stored) == 101
    assert (stored["d5"][0], stored["own"][0]) == ("text 5", "theirs")
    assert all(vector is not None for _, vector in stored.values())


async def test_the_same_inside_a_users_transaction(database_url, connection, monkeypatch):
    async def empty(*_):
        return True

    async with opened(connection=connection) as first, opened(database_url) as second:
        await first.add_documents([Document("first of all", id="gone")])  # makes the table of vectors
        await first.delete(["gone"])
        await second.add_documents([Document("theirs", id="d5")])
        monkeypatch.setattr(ingestion, "is_empty", empty)
        async with connection.transaction():
            await first.add_documents(many(100))
    stored = rows_of(database_url)
    assert (len(stored), stored["d5"][0]) == (100, "text 5")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["given vectors", "model", "no vectors", "deleting"])
@pytest.mark.parametrize("size", [60, 500], ids=["by arrays", "by copy"])
@pytest.mark.timeout(3600)
async def test_writers_of_the_same_rows_do_not_deadlock(database_url, caplog, kind, size, full):
    caplog.set_level(logging.INFO, "semlex")
    rounds = 100 if full else 8
    ones = np.ones((size, 8), np.float32)
    embedder = HashEmbedder(8) if kind == "model" else "none"
    async with opened(database_url, embedder) as retriever:
        await retriever.add_documents(many(size), None if kind == "model" else ones)
    async with opened(database_url, embedder) as retriever, opened(database_url, embedder) as other:

        async def write(writer, name, backwards):
            for number in range(rounds):
                documents = many(size, f"{name} {number}")
                documents = documents[::-1] if backwards else random.sample(documents, size)
                bare = kind == "model" or (kind == "no vectors" and (number + backwards) % 2)
                await writer.add_documents(documents, None if bare else ones * (number + 1))
                if kind == "deleting" and backwards:
                    await writer.delete([document.id for document in documents])

        await asyncio.gather(write(retriever, "one", backwards=False), write(other, "two", backwards=True))
        assert "40P01" not in caplog.text  # that the store retried unseen
        await retriever.add_documents(many(size, "last"), None if kind == "model" else ones)
    assert {text for text, _ in rows_of(database_url).values()} == {f"last {number}" for number in range(size)}


async def test_a_text_that_changes_while_it_is_embedded_gets_no_stale_vector(database_url):
    """`embed_missing` reads a text; before its vector is written, another writer changes the text."""

    class Interrupted(HashEmbedder):
        def embed_documents(self, texts):
            if "text 3" in texts:
                execute(database_url, CHANGE)
            return super().embed_documents(texts)

    async with opened(database_url, "none") as retriever:
        await retriever.add_documents(many(10))
    async with opened(database_url, Interrupted(8)) as retriever:
        assert [await retriever.embeddings.fill() for _ in range(3)] == [9, 1, 0]


async def test_a_text_that_is_being_changed_gets_no_stale_vector(database_url):
    """Another writer has changed a text and not committed yet when its vector is written."""
    async with opened(database_url, "none") as retriever:
        await retriever.add_documents(many(10))
    changing = psycopg.connect(database_url)

    class Interrupted(HashEmbedder):
        def embed_documents(self, texts):
            changing.execute(CHANGE)
            return super().embed_documents(texts)

    with changing, psycopg.connect(database_url) as watching:
        async with opened(database_url, Interrupted(8)) as retriever:
            writing = asyncio.create_task(retriever.embeddings.fill())
            await eventually(lambda: waiting(watching))
            changing.commit()
            assert await writing == 9
    assert rows_of(database_url)["d3"] == ("changed", None)


@pytest.mark.slow
async def test_embedding_and_changing_at_once_leaves_no_stale_vector(database_url, caplog, full):
    caplog.set_level(logging.INFO, "semlex")
    rounds = 60 if full else 6
    async with opened(database_url) as embedding, opened(database_url, "none") as writing:
        await embedding.add_documents([Document("makes the table", id="first")])
        await writing.close()
        await writing.initialize()
        for number in range(rounds):
            await writing.add_documents(many(300, f"round {number}"))
            await asyncio.gather(
                embedding.embeddings.fill(),
                *(writing.add_documents(many(300, f"again {number} {n}")) for n in range(3)),
            )
        await embedding.embeddings.fill()
        assert "40P01" not in caplog.text  # that the store retried unseen
    embedder = HashEmbedder(8)
    stored = rows_of(database_url)
    expected = embedder.embed_documents([text for text, _ in stored.values()])
    for (chunk_id, (_, vector)), wanted in zip(stored.items(), expected, strict=True):
        assert vector is not None, chunk_id
        np.testing.assert_allclose(vector, wanted, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("small_batch_rows", [0, 1, 64, 300, 1000])
@pytest.mark.parametrize("given", [True, False], ids=["given", "embedded"])
async def test_every_way_in_writes_every_row(database_url, small_batch_rows, given):
    # 300 rows are more than one run of rows, whether they go as arrays or through COPY.
    vectors = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32) if given else None
    async with opened(database_url, bulk=BulkIngestConfig(small_batch_rows=small_batch_rows)) as retriever:
        await retriever.add_documents([Document("first", id="first")])
        await retriever.add_documents(many(300), vectors)
        status = await retriever.status()
    assert (status.chunks, status.embedded) == (301, 301)
