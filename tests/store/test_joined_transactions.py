"""`using`: what semlex does through a caller's connection is part of the caller's transaction, whoever began it."""

import asyncio
import inspect
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from semlex import Client, SyncClient
from semlex.errors import ConfigurationError
from semlex.options.search import SearchDefaults
from semlex.store.keyword.bm25 import index
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.retrievers import filled, opened
from tests.support.waiting import LIMIT, held, until_waiting

UPSERT = "INSERT INTO own VALUES (%(name)s, %(text)s) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
# An operation of semlex -> the same change of the user's own tables.
OPERATIONS = {"add": UPSERT, "delete": "DELETE FROM own WHERE id = %(name)s"}
OPERATIONS |= {"submit": "INSERT INTO own_job VALUES (%(priority)s)", "search, then add": UPSERT, "refused": None}
COLLECTION = "joined"
connected = psycopg.AsyncConnection.connect


class GivenUpError(Exception):
    """Ends a history in the middle."""


def options():
    return {"embedding_model": HashEmbedder(4), "use_reranking": False, "max_connections": 2}


@contextmanager
def clients(url):
    """A client whose collection and tables are made, with a table of the user's beside them."""
    with SyncClient(url, **options()) as client, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE own (id text PRIMARY KEY, body text)")
        connection.execute("CREATE TABLE own_job (priority int)")
        collection = client.collection(COLLECTION)
        collection.add_texts(["first words"], ids=["first"])
        collection.jobs.submit("optimize")
        connection.execute("INSERT INTO own VALUES ('first', 'first words'); INSERT INTO own_job VALUES (0)")
        yield client


async def done(value):
    """What a call gives, with or without ``await``."""
    return await value if inspect.isawaitable(value) else value


async def rows(connection, query):
    cursor = await done(connection.execute(query))
    return sorted(await done(cursor.fetchall()))


async def compare(connection):
    """The collection holds what the user's own tables hold, as a transaction sees them."""
    stored = await rows(connection, f"SELECT chunk_id, chunk_text FROM semlex.{COLLECTION}_chunk")
    assert stored == await rows(connection, "SELECT id, body FROM own")
    assert await rows(connection, "SELECT priority FROM semlex.job") == await rows(connection, "SELECT * FROM own_job")


async def step(chance, collection, connection, operation):
    """One call of semlex, and the same change of the user's own tables before or behind it."""
    name, text = f"d{chance.randrange(6)}", f"word{chance.randrange(5)} of text {chance.randrange(1000)}"

    async def own():
        if statement := OPERATIONS[operation]:
            await done(connection.execute(statement, {"name": name, "text": text, "priority": int(text[4])}))

    behind = chance.random() < 0.7
    if not behind:
        await own()
    if operation == "delete":
        await done(collection.delete([name]))
    elif operation == "submit":
        await done(collection.jobs.submit("optimize", priority=int(text[4])))
    elif operation == "refused":
        with pytest.raises(ValueError, match="dimensions"):
            await done(collection.add_texts([text], ids=[name], embeddings=[[1.0, 2.0]]))
    else:
        if operation.startswith("search"):
            hits = await done(collection.search(text, 3))
            assert {hit.id for hit in hits} <= {found for (found,) in await rows(connection, "SELECT id FROM own")}
        await done(collection.add_texts([text], ids=[name]))
    if behind:
        await own()


async def history(seed, collection, connection):
    """A transaction of the caller's with some calls of semlex; `compare` holds inside it and at its end."""
    chance = random.Random(seed)
    mine, end = collection.using(connection), chance.choice(["commit", "rollback", "exception"])
    try:
        if chance.random() < 0.5:
            await done(connection.execute("SELECT 1"))
        for _ in range(chance.randint(1, 3)):
            await step(chance, mine, connection, chance.choice([*OPERATIONS]))
            assert connection.info.transaction_status == TransactionStatus.INTRANS
        await compare(connection)
        if end == "exception":
            raise GivenUpError  # noqa: TRY301
        await done(connection.commit() if end == "commit" else connection.rollback())
    except GivenUpError:
        await done(connection.rollback())


def test_histories_without_await(database_url, full):
    async def all_of_them(client):
        collection = client.collection(COLLECTION)
        with psycopg.connect(database_url) as connection, psycopg.connect(database_url, autocommit=True) as other:
            for seed in range(1000 if full else 6):
                await history(seed, collection, connection)
                await compare(other)

    with clients(database_url) as client:
        asyncio.run(all_of_them(client))


async def test_histories_with_await(database_url, full):
    with clients(database_url):
        async with (
            Client(database_url, **options()) as client,
            await connected(database_url) as connection,
            await connected(database_url, autocommit=True) as other,
        ):
            collection = client.collection(COLLECTION)
            for seed in range(1000 if full else 6):
                await history(seed, collection, connection)
                await compare(other)


async def test_a_retriever_on_a_connection_begins_its_transaction(database_url):
    async with (
        await connected(database_url) as connection,
        opened(connection=connection, collection=COLLECTION) as retriever,
    ):
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        await connection.rollback()
        assert await retriever.count() == 0  # the collection is made again
        await retriever.add_texts(["given up"], ids=["a"])
        await connection.rollback()
        assert list(await retriever.search("given up")) == []
        await connection.commit()
        await retriever.search("word")
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        await retriever.add_texts(["given up"], ids=["a"])
        await connection.rollback()
        assert await retriever.get(["a"]) == []
        await retriever.add_texts(["kept"], ids=["b"])
        await connection.commit()
        assert execute(database_url, f"SELECT chunk_id FROM semlex.{COLLECTION}_chunk") == [("b",)]


@pytest.mark.parametrize("statement", ["check_manifest", "chunk_ids"])
async def test_a_writer_between_two_statements_is_not_taken_for_damage(database_url, monkeypatch, statement):
    """A caller's transaction is READ COMMITTED mostly: each statement sees what is committed by then."""
    read = getattr(index, statement)
    async with filled(database_url, {"a": "apple"}) as other, await connected(database_url) as connection:
        await connection.execute("SELECT 1")

        async def written_before(*arguments):
            await other.add_texts(["pear"], ids=["b"])
            return await read(*arguments)

        monkeypatch.setattr(index, statement, written_before)
        status = await other.using(connection).status()
        assert (status.index_problem, status.chunks_not_indexed) == (None, None)
        monkeypatch.undo()
        status = await other.using(connection).status()
        assert (status.index_problem, status.chunks_not_indexed) == (None, 0)


def test_in_autocommit_every_call_is_committed_and_threads_have_connections_of_their_own(database_url):
    def write(number):
        with psycopg.connect(database_url) as connection:
            client.collection(COLLECTION).using(connection).add_texts(["text"], ids=[f"t{number}"])
            if number % 2:
                connection.rollback()

    with clients(database_url) as client, psycopg.connect(database_url, autocommit=True) as connection:
        mine = client.collection(COLLECTION).using(connection)
        mine.add_texts(["kept"], ids=["a"])
        assert connection.info.transaction_status == TransactionStatus.IDLE
        with suppress(GivenUpError), connection.transaction():
            mine.add_texts(["given up"], ids=["b"])
            raise GivenUpError
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(write, range(4), timeout=LIMIT)) == [None] * 4
        assert {chunk.id for chunk in client.collection(COLLECTION).list_chunks()} == {"first", "a", "t0", "t2"}


def test_the_callers_connection_stays_as_it_is(database_url):
    noticed = []
    with clients(database_url) as client, psycopg.connect(database_url, row_factory=dict_row) as connection:
        connection.add_notice_handler(lambda notice: noticed.append(notice.message_primary))
        connection.prepare_threshold = 0
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        mine = client.collection(COLLECTION).using(connection)
        mine.add_texts(["a text"], ids=["a"])
        assert connection.execute("SHOW transaction_isolation").fetchone() == {"transaction_isolation": "serializable"}
        for _ in range(2):
            assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
            assert [hit.id for hit in mine.search("a text", 1)] == ["a"]
        connection.execute("DO $$ BEGIN RAISE NOTICE 'told'; END $$")
        connection.commit()
        with connection.pipeline(), pytest.raises(ConfigurationError, match="pipeline"):
            mine.count()
    assert noticed == ["told"]
    with pytest.raises(ConfigurationError, match="one of psycopg 3, of Django, or of SQLAlchemy on psycopg 3; got str"):
        client.collection(COLLECTION).using("a text")


async def test_a_connection_with_await_may_be_in_a_pipeline(database_url):
    async with await connected(database_url) as connection, Client(database_url, **options()) as client:
        async with connection.pipeline():
            mine = client.collection(COLLECTION).using(connection)
            await mine.add_texts(["a text"], ids=["a"])  # which makes the collection
            assert [hit.id for hit in await mine.search("text", 1)] == ["a"]
        await connection.commit()
        assert await client.collection(COLLECTION).count() == 1
        await client.drop(COLLECTION)


def test_a_statement_of_another_thread_waits_for_the_one_that_runs(database_url):
    begins = threading.Event()

    def ask(connection):
        begins.set()
        return connection.execute("SELECT 1").fetchone()

    with clients(database_url) as client, psycopg.connect(database_url) as connection, ThreadPoolExecutor(2) as threads:
        mine = client.collection(COLLECTION).using(connection)
        mine.count()
        with held(database_url, f"semlex.{COLLECTION}_chunk") as lock:
            adding = threads.submit(mine.add_texts, ["text"], ids=["a"])
            until_waiting(lock)
            asking = threads.submit(ask, connection)
            assert begins.wait(LIMIT)
        assert (asking.result(LIMIT), adding.result(LIMIT)) == ((1,), ["a"])


def test_what_a_collection_was_made_with_travels_along(database_url):
    made = {**options(), "search_defaults": SearchDefaults(top_k=2)}
    with SyncClient(database_url, **made) as client, psycopg.connect(database_url) as connection:
        collection = client.collection(COLLECTION)
        collection.add_texts(["alpha one", "alpha two", "alpha three"])
        assert (len(collection.search("alpha")), len(collection.using(connection).search("alpha"))) == (2, 2)


class DjangoConnection:
    """`django.db.connection` with what `atomic` does to it."""

    def __init__(self, url):
        self._url, self.connection = url, None

    def ensure_connection(self):
        self.connection = self.connection or psycopg.connect(self._url, autocommit=True)

    @contextmanager
    def atomic(self):
        self.ensure_connection()
        self.connection.autocommit = False
        try:
            yield
            self.connection.commit()
        finally:
            self.connection.rollback()
            self.connection.autocommit = True


class SqlalchemyConnection:
    """`sqlalchemy.Connection`: it ends only a transaction that it has begun."""

    def __init__(self, driver_connection):
        self.connection, self.driver_connection, self.begun = self, driver_connection, False

    def in_transaction(self):
        return self.begun

    def begin(self):
        assert not self.begun
        self.begun = True

    async def commit(self):
        if self.begun:
            await done(self.driver_connection.commit())
        self.begun = False


class SqlalchemySession:
    def __init__(self, connection):
        self._connection = connection

    def connection(self):
        if not self._connection.in_transaction():
            self._connection.begin()
        return self._connection


def test_djangos_connection(database_url):
    connection = DjangoConnection(database_url)
    with clients(database_url) as client:
        mine = client.collection(COLLECTION).using(connection)
        with suppress(GivenUpError), connection.atomic():
            mine.add_texts(["given up"], ids=["a"])
            raise GivenUpError
        with connection.atomic():
            mine.add_texts(["kept"], ids=["b"])
        mine.add_texts(["kept, too"], ids=["c"])
        assert {chunk.id for chunk in client.collection(COLLECTION).list_chunks()} == {"first", "b", "c"}
        connection.connection.close()


async def test_sqlalchemys_connections_and_sessions(database_url):
    with clients(database_url), psycopg.connect(database_url) as own:
        async with Client(database_url, **options()) as client, await connected(database_url) as other:
            collection, expected = client.collection(COLLECTION), {"first"}
            for number, driver in enumerate((own, own, other)):
                made = SqlalchemyConnection(driver)
                given = [made, SqlalchemySession(made), SimpleNamespace(sync_connection=made)][number]
                for commits in (True, False):
                    name = f"{number}{commits}"
                    await collection.using(given).add_texts(["text"], ids=[name])
                    if commits:
                        await made.commit()
                        expected.add(name)
                    await done(driver.rollback())
            assert {chunk.id for chunk in await collection.list_chunks()} == expected
            with pytest.raises(ConfigurationError, match=r"await session\.connection\(\)"):
                collection.using(SimpleNamespace(sync_session=None))
