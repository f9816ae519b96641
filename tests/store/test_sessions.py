"""Sessions: settings that a role, a database or the user brings, prepared statements, and waiting for answers."""

import asyncio
import gc
import selectors
import sys
import weakref
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus

from semlex import Document
from semlex.errors import ConfigurationError, ConnectionFailedError, StoreError, UnsupportedServerError
from semlex.proof.interruptions import proxied
from semlex.store.keyword.bm25 import merge
from semlex.store.postgres import database, pool
from semlex.store.postgres import settings as postgres_settings
from semlex.store.postgres.connection import connected
from semlex.store.postgres.database import ENDING_SECONDS, Database
from semlex.store.postgres.pool import Answer, PooledConnection
from semlex.store.postgres.snapshot import SingleSnapshot
from semlex.store.query import vector
from semlex.store.segments import merging_lock
from tests.support.databases import execute, set_in_database
from tests.support.manual_clock import ManualClock
from tests.support.properties import OWN_ROWS
from tests.support.retrievers import filled, opened
from tests.support.waiting import LIMIT, eventually, turns, until

TEXT = "grüße straße £ ünïcode\\x41 'quoted' 文字"


def documents(prefix, count):
    return [Document(f"{TEXT} {number}", {"größe": "grün"}, id=f"{prefix}ä{number}") for number in range(count)]


async def fill(retriever):
    """One document by each way of writing: COPY into the empty collection, arrays, COPY with a merge."""
    for prefix, count in (("a", 1), ("b", 1), ("c", 100)):
        await retriever.add_documents(documents(prefix, count))


async def check(retriever):
    for chunk_id in ("aä0", "bä0", "cä7"):
        (found,) = await retriever.get([chunk_id])
        assert (found.content, found.metadata) == (f"{TEXT} {chunk_id[2:]}", {"größe": "grün"})
    assert len(await retriever.search("grüße", 1000, mode="keyword")) == 102
    assert (await retriever.search(f"{TEXT} 7", 1))[0].id == "cä7"
    assert await retriever.count({"größe": "grün"}) == 102
    status = await retriever.status()
    assert (status.chunks, status.chunks_not_indexed, status.index_problem) == (102, 0, None)
    assert (await retriever.collections())[0].created_at.tzinfo is UTC


def check_as_others_see_it(url):
    with psycopg.connect(url, client_encoding="utf8") as connection:
        texts = connection.execute("SELECT chunk_text FROM semlex.default_collection_chunk").fetchall()
    assert sorted(texts) == sorted((f"{TEXT} {number}",) for number in [0, *range(100), 0])


HOSTILE = {
    **dict.fromkeys(["standard_conforming_strings", "array_nulls", "backslash_quote", "escape_string_warning"], "off"),
    **dict.fromkeys(["transform_null_equals", "quote_all_identifiers"], "on"),
    "default_transaction_isolation": "serializable", "bytea_output": "escape", "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard", "extra_float_digits": "-15", "TimeZone": "Asia/Kathmandu",
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", None])
async def test_settings_of_the_database_and_the_environment_change_nothing(database_url, monkeypatch, encoding):
    if encoding is None:
        monkeypatch.setenv("PGCLIENTENCODING", "WIN1252")
    else:
        for name, value in (HOSTILE | {"client_encoding": encoding}).items():
            set_in_database(database_url, name, value)
    async with opened(database_url) as retriever:
        await fill(retriever)
        await check(retriever)
    check_as_others_see_it(database_url)


@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_users_connection_keeps_its_settings(database_url, autocommit):
    hostile = {"client_encoding": "LATIN1", "standard_conforming_strings": "off", "array_nulls": "off"}
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=autocommit) as connection:
        for name, value in hostile.items():
            await connection.execute(f"SET {name} = '{value}'")
        await connection.commit()

        async def present():
            return {name: (await (await connection.execute(f"SHOW {name}")).fetchone())[0] for name in hostile}

        async with filled(None, documents("a", 1), connection=connection) as retriever:
            await connection.commit()
            async with connection.transaction():
                assert await present() == hostile
                await retriever.add_documents(documents("b", 1))
                assert await present() == hostile
                await retriever.add_documents(documents("c", 100))
                await check(retriever)
                assert await present() == hostile
            await connection.commit()
            await check(retriever)
            assert await present() == hostile
    check_as_others_see_it(database_url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_is_refused(server_url, encoding):
    name = f"semlex_test_{encoding.lower()}"
    url = make_conninfo(server_url, dbname=name)
    execute(server_url, f"CREATE DATABASE {name} ENCODING {encoding} LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(UnsupportedServerError, match=f"{encoding}.*CREATE DATABASE name ENCODING 'UTF8'"):
            await opened(url).initialize()
        async with await psycopg.AsyncConnection.connect(url, client_encoding="utf8") as own:
            with pytest.raises(UnsupportedServerError, match=encoding):
                await opened(connection=own).initialize()
    finally:
        execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_time_that_python_does_not_know_fails_no_answer(database_url):
    async with filled(database_url, documents("a", 2)) as retriever:
        times = "created_at = '-infinity', updated_at = '20000-01-01'"
        execute(database_url, f"UPDATE semlex.default_collection_chunk SET {times}")
        assert [hit.updated_at.year for hit in await retriever.search("grüße", 2)] == [9999, 9999]
        assert [one.created_at.year for one in await retriever.get(["aä0"])] == [1]


async def in_a_write(url, *names):
    async def work(connection):
        return [(await (await connection.execute(f"SHOW {name}")).fetchone())[0] for name in names]

    async with Database(url) as database:
        return await database.write("look at the settings", work)


async def test_a_lock_is_waited_for_with_a_limit_and_the_server_looks_after_a_writer_over_tcp(database_url):
    """On a Unix socket the settings of TCP stand at 0; over TCP they are those of the transaction."""
    assert str(conninfo_to_dict(database_url)["host"]).startswith("/")
    assert "tcp_user_timeout" in postgres_settings._write_settings(None).decode()
    names = [*(f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")), "tcp_user_timeout"]
    assert await in_a_write(database_url, "lock_timeout", *names) == ["1min", "0", "0", "0", "0"]
    set_in_database(database_url, "lock_timeout", "50s")
    assert await in_a_write(database_url, "lock_timeout") == ["50s"]


@pytest.mark.slow
async def test_a_locked_row_is_named_as_the_reason_and_a_merge_that_stands_still(database_url, monkeypatch):
    monkeypatch.setattr(merge, "BUSY_LIMIT_SECONDS", 0.3)
    set_in_database(database_url, "lock_timeout", "200ms")  # expires
    async with filled(database_url, documents("a", 1)) as retriever:
        with psycopg.connect(database_url) as other:
            other.execute("SELECT 1 FROM semlex.default_collection_chunk FOR UPDATE")
            with pytest.raises(StoreError, match="another transaction holds a lock") as caught:
                await retriever.add_documents([Document("changed", id="aä0")])
        assert caught.value.sqlstate == "55P03"
        await retriever.add_documents([Document("changed", id="aä0")])
        with psycopg.connect(database_url) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [merging_lock(retriever.info)])
            async with asyncio.timeout(LIMIT):
                with pytest.raises(StoreError, match="another process has been merging it"):
                    await retriever.indexes.optimize()
                with pytest.raises(StoreError, match="another transaction holds a lock"):
                    await retriever.indexes.rebuild_keyword()
        await retriever.indexes.optimize()
        await retriever.indexes.rebuild_keyword()


async def test_a_connection_that_cannot_be_used_is_refused(database_url):
    connection = await psycopg.AsyncConnection.connect(database_url)
    retriever = opened(connection=connection)
    await retriever.initialize()
    await connection.commit()
    with pytest.raises(psycopg.Error):
        await connection.execute("SELECT 1 / 0")
    with pytest.raises(ConfigurationError, match="has failed; roll it back first"):
        await retriever.add_documents(documents("a", 1))
    await connection.rollback()
    await retriever.add_documents(documents("a", 1))
    await connection.close()
    with pytest.raises(ConnectionFailedError, match="is closed"):
        await retriever.count()


@pytest.mark.slow
async def test_a_late_search_does_not_undo_what_the_user_does_next(database_url):
    """The search ends on the user's connection before it returns: its savepoint is rolled back by then."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("CREATE TABLE own (n int)")
        database = Database(connection=connection)

        async def slow(connection):
            await connection.execute("SELECT pg_sleep(3600)")

        async with connection.transaction():
            await connection.execute("INSERT INTO own VALUES (1)")
            with pytest.raises(TimeoutError):
                await database.read("search", slow, deadline=0.05)  # expires
            await connection.execute("INSERT INTO own VALUES (2)")
        async with connection.transaction():
            searching = asyncio.create_task(database.read("search", slow, deadline=LIMIT))
            await until_asleep(connection, database_url)
            searching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await searching
            await connection.execute("INSERT INTO own VALUES (3)")
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nothing is left that could undo anything
        assert await (await connection.execute("SELECT n FROM own ORDER BY n")).fetchall() == [(1,), (2,), (3,)]


async def test_opening_makes_one_connection(database_url, monkeypatch):
    made, connect = [], psycopg.AsyncConnection.connect.__func__

    async def counted(cls, *arguments, **options):
        made.append(cls)
        return await connect(cls, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", classmethod(counted))
    async with Database(database_url) as database:
        for _ in range(2):
            async with database.connection() as connection:
                assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
    assert len(made) == 1


async def test_a_pool_that_does_not_open_is_reported_as_a_failed_connection(database_url, monkeypatch):
    async def fails(connection):
        await connection.execute("SELECT 1 / 0")

    monkeypatch.setattr(database, "configure", fails)
    with pytest.raises(ConnectionFailedError, match=r"^connect to .*: no connection became free in time"):
        await Database(database_url, timeout=0.1).open()  # expires


WORDS_CHUNK = "semlex.words_chunk"


@pytest.fixture
def connections(monkeypatch):
    """The connections of pools that a test opens."""
    made = []
    prepare = database.configure

    async def noted(connection):
        await prepare(connection)
        made.append(connection)

    monkeypatch.setattr(database, "configure", noted)
    return made


def prepared(connection, where="true"):
    """The number of prepared statements, asked in a way that the driver does not notice."""
    text = f"SELECT count(*) FROM pg_prepared_statements WHERE {where}"
    return int(connection.pgconn.exec_(text.encode()).get_value(0, 0))


def with_kept_plans(connections):
    """The number of statements that read chunks by a kept plan."""
    where = "generic_plans > 0 AND statement LIKE '%words_chunk%'"
    return sum(prepared(connection, where) for connection in connections)


def stones(count):
    return [Document(f"stone {n} cloud", id=f"d{n:02}") for n in range(count)]


async def searches(retriever):
    found = [await retriever.search("stone cloud", mode=mode) for mode in ("hybrid", "keyword", "vector")]
    return [[hit.to_dict() for hit in results] for results in found]


CHANGES = {
    "nothing": "SELECT 1",
    "statements that are gone": "DEALLOCATE ALL",
    "another type": f"ALTER TABLE {WORDS_CHUNK} ALTER COLUMN line TYPE int8",
    "an index more": f"CREATE INDEX ON {WORDS_CHUNK} (line)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_outdated_statements_stop_no_search(database_url, connections, change):
    async with filled(database_url, stones(20), collection="words") as retriever:
        first = await searches(retriever)
        for _ in range(pool.PREPARED_FROM + 1):
            assert await searches(retriever) == first
        (connection,) = connections
        assert prepared(connection) >= 5  # both searches, the rows, words alone, and whether the collection is there
        connection.pgconn.exec_(change.encode())
        for _ in range(3):
            assert await searches(retriever) == first


@pytest.mark.parametrize("is_large", [True, False])
async def test_only_a_large_collection_keeps_plans(database_url, connections, monkeypatch, is_large):
    """A plan that is kept may be that of a table that was empty."""
    if is_large:
        monkeypatch.setattr(vector, "INDEX_FROM_ROWS", 1)
    async with filled(database_url, stones(60), collection="words") as retriever:
        assert "hnsw_1" in await retriever.indexes.create()
        first = [hit.to_dict() for hit in await retriever.search("stone cloud", 60)]
        for _ in range(10):
            assert [hit.to_dict() for hit in await retriever.search("stone cloud", 60)] == first
        assert (with_kept_plans(connections) > 0) is is_large


async def test_plans_for_words_are_kept_for_a_size(database_url, connections):
    async with opened(database_url, collection="words") as retriever:
        for known, size in enumerate((5, 20, 80)):
            await retriever.add_documents(stones(size))
            for _ in range(3):  # the index is read, and then its changes are asked for
                await retriever.search("stone cloud", mode="keyword")
            assert with_kept_plans(connections) == known
            for _ in range(10):
                await retriever.search("stone cloud", mode="keyword")
            assert with_kept_plans(connections) == known + 1


async def test_a_program_that_searches_once_prepares_nothing(database_url, connections):
    async with filled(database_url, [Document("stone")], collection="words") as retriever:
        await retriever.search("stone")
        assert [prepared(connection) for connection in connections] == [0]


# Bytes that are sent and that are returned. The largest do not fit the buffers of a socket in either direction.
SIZES = st.sampled_from([0, 1, 8_000, 300_000, 1_000_000])
STATEMENTS = st.lists(st.tuples(SIZES, SIZES, st.booleans()), max_size=5)
ANSWER = "SELECT length(%s), repeat('x', %s), 1 / %s"


@pytest.fixture
async def connection(database_url):
    async with await connected(database_url, LIMIT, PooledConnection) as connection:
        yield connection


@asynccontextmanager
async def both(url):
    """A connection of semlex's own, and one of the driver's."""
    async with asyncio.timeout(LIMIT):
        own = await connected(url, LIMIT, PooledConnection)
        async with own, await connected(url, LIMIT, psycopg.AsyncConnection) as theirs:
            yield own, theirs


async def answer(asked):
    """The rows of a statement, or its error."""
    try:
        return await (await asked).fetchall()
    except psycopg.Error as error:
        return type(error)


async def answers(connection, statements, *, pipelined):
    """The answer to each statement; in a pipeline none is sent behind an error."""

    def ask(sent, returned, fails):
        return connection.execute(ANSWER, ["y" * sent, returned, 0 if fails else 1])

    if not pipelined:
        return [await answer(ask(*statement)) for statement in statements]
    try:
        async with connection.pipeline():
            cursors = [await ask(*statement) for statement in statements]
    except psycopg.Error as error:
        return [type(error)]
    return [await cursor.fetchall() for cursor in cursors]


def check_idle(connection):
    assert connection.pgconn.pipeline_status == PipelineStatus.OFF
    assert connection.info.transaction_status == TransactionStatus.IDLE


@settings(OWN_ROWS, max_examples=15)
@example(statements=[(3_000_000, 3_000_000, False)] * 4)
@example(statements=[(0, 1, False), (1, 8_000, True), (1, 1, False)])
@given(statements=STATEMENTS)
async def test_answers_are_those_of_the_driver(database_url, statements):
    async with both(database_url) as (own, theirs):
        for pipelined in (False, True):
            expected = await answers(theirs, statements, pipelined=pipelined)
            for ahead in (False, True):
                with own.reading_ahead() if ahead else nullcontext():
                    assert await answers(own, statements, pipelined=pipelined) == expected, (pipelined, ahead)
                check_idle(own)


@settings(OWN_ROWS, max_examples=15)
@example(statements=[(0, 1, True), (1, 8_000, False), (1, 1, True)], are_prepared=True, is_qualified=True)
@given(statements=STATEMENTS, are_prepared=st.booleans(), is_qualified=st.booleans())
async def test_a_statement_alone_is_answered_as_by_the_driver(database_url, statements, are_prepared, is_qualified):
    text = b"SELECT length(%(sent)s), repeat('x', %(returned)s), 1 / %(divisor)s"
    async with both(database_url) as (own, theirs):
        own.prepare_threshold = sys.maxsize if are_prepared else None
        expected = await answers(theirs, statements, pipelined=False)
        for ahead in (False, True):
            for (sent, returned, fails), wanted in zip(statements, expected, strict=True):
                values = {"sent": "y" * sent, "returned": returned, "divisor": 0 if fails else 1}
                with own.reading_ahead() if ahead else nullcontext():
                    assert await answer(SingleSnapshot(own).execute(text, values, is_qualified=is_qualified)) == wanted
                check_idle(own)


async def test_the_task_goes_on_in_the_round_in_which_the_answer_arrives(connection, monkeypatch):
    """A single statement is sent in a pipeline: the driver then sends only in `flush`, which holds the interpreter."""
    seen, select = [], selectors.DefaultSelector.select

    def noted(*arguments):
        seen.append(connection.pgconn.pipeline_status)
        return select(*arguments)

    await connection.execute("SELECT 1")
    monkeypatch.setattr(selectors.DefaultSelector, "select", noted)
    await connection.execute("SELECT pg_sleep(0.01)")
    assert len(seen) == 1
    for is_qualified in (True, False):
        seen.clear()
        await SingleSnapshot(connection).execute(b"SELECT pg_sleep(0.01)", {}, is_qualified=is_qualified)
        assert set(seen) == {PipelineStatus.ON}
        assert connection.pgconn.pipeline_status == PipelineStatus.OFF


async def test_others_run_while_it_waits_and_beside_a_task_that_never_waits(connection):
    def ended():
        return None
        yield

    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    await connection.execute("SELECT pg_sleep(0.01)")
    assert ran.is_set()
    ran.clear()
    asyncio.get_running_loop().call_soon(ran.set)
    async with asyncio.timeout(LIMIT):
        while not ran.is_set():
            await connection.wait(ended())


async def until_asleep(connection, url):
    """Waits until the server runs a statement of the connection that sleeps."""
    text = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    await eventually(lambda: execute(url, text, [connection.info.backend_pid]))


async def sleeping(connection, url):
    """A statement that the server has begun, and that takes long."""
    task = asyncio.ensure_future(connection.execute("SELECT pg_sleep(600)"))
    await until_asleep(connection, url)
    return task


async def test_a_cancelled_wait_cancels_the_statement_and_what_the_server_says_last_is_heard(connection, database_url):
    """A backend that is ended while its answer is awaited."""
    async with asyncio.timeout(LIMIT):
        task = await sleeping(connection, database_url)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await (await connection.execute("SELECT 1")).fetchall() == [(1,)]
        task = await sleeping(connection, database_url)
        execute(database_url, "SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(psycopg.errors.AdminShutdown):
            await task


async def test_a_wait_on_a_closed_connection_can_be_cancelled(connection, database_url):
    task = await sleeping(connection, database_url)
    backend = connection.info.backend_pid
    connection.pgconn.finish()
    task.cancel()
    async with asyncio.timeout(LIMIT):
        with pytest.raises(asyncio.CancelledError):
            await task
    execute(database_url, "SELECT pg_terminate_backend(%s)", [backend])


async def test_an_answer_is_freed_when_it_was_taken(connection, monkeypatch):
    """At once: rows that wait for the collector of cycles may take much memory."""
    made = []
    begin = Answer.__init__

    def noted(answer, *arguments, **named):
        made.append(weakref.ref(answer))
        begin(answer, *arguments, **named)

    monkeypatch.setattr(Answer, "__init__", noted)
    gc.disable()
    try:
        for _ in range(2):
            await connection.execute("SELECT pg_sleep(0.01)")
        await asyncio.sleep(0)
    finally:
        gc.enable()
    assert [answer() for answer in made] == [None, None]


def when_sent(monkeypatch, act):
    """Calls `act` once: when a statement was sent and its answer is waited for, before the event loop goes on."""
    listen, left = Answer._listen, [act]

    def listening(answer, wanted):
        listen(answer, wanted)
        if left:
            left.pop()()

    monkeypatch.setattr(Answer, "_listen", listening)


async def test_an_answer_is_heard_although_the_server_is_gone(connection, database_url, monkeypatch):
    """The end of the connection is there when the answer is read."""
    backend = connection.info.backend_pid
    text = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'idle' AND query = 'SELECT 41'"
    with psycopg.connect(database_url, autocommit=True) as other:

        def end():
            until(lambda: other.execute(text, [backend]).fetchone() == (1,), "the answer was sent")
            other.execute("SELECT pg_terminate_backend(%s, 60000)", [backend])

        when_sent(monkeypatch, end)
        assert await (await connection.execute("SELECT 41")).fetchall() == [(41,)]


@pytest.mark.parametrize("busy_seconds", [pool.BUSY_SECONDS, 0])
async def test_a_read_whose_answer_is_lost_is_repeated(database_url, monkeypatch, busy_seconds):
    """Reading ahead takes the answer, and the driver then finds the end of the connection."""
    monkeypatch.setattr(pool, "BUSY_SECONDS", busy_seconds)  # others run also before the statement is sent
    attempts = 0
    idle = "datname = current_database() AND state = 'idle' AND query = 'SELECT 41'"
    text = f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {idle}"
    with psycopg.connect(database_url, autocommit=True) as other:

        def end():
            until(lambda: other.execute(text).fetchone() == (True,), "the answer was sent")

        async def read(snapshot):
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                when_sent(monkeypatch, end)
            return await (await snapshot.execute(b"SELECT 41", {}, is_qualified=True)).fetchall()

        async with Database(database_url, max_size=1, timeout=LIMIT) as database:
            assert await database.read_snapshot("read", read, lasting="statement") == [(41,)]
    assert attempts == 2


async def test_a_silent_server_does_not_keep_a_connection_of_the_pool(database_url):
    """A cancelled read has statements under way, and their answers never come: the connection is given up."""
    clock, sent = ManualClock(), asyncio.Event()

    async def read(snapshot):
        proxy.hearing.clear()
        await snapshot.connection.execute("SELECT 1")
        sent.set()
        await asyncio.Event().wait()

    async with (
        asyncio.timeout(LIMIT),
        proxied(database_url) as (proxy, url),
        Database(url, max_size=1, timeout=LIMIT, clock=clock) as database,
    ):
        task = asyncio.ensure_future(database.read_snapshot("read", read, deadline=LIMIT))
        await sent.wait()
        task.cancel()
        await clock.eventually_waited(ENDING_SECONDS)
        clock.advance(ENDING_SECONDS)
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.hearing.set()
        assert await database.read("read", _one) == 1


async def _one(connection):
    [(found,)] = await (await connection.execute("SELECT 1")).fetchall()
    return int(found)


async def test_a_pipeline_that_was_not_begun_leaves_no_trace_and_a_closed_socket_is_an_error(connection):
    async def begin():
        async with connection.pipeline():
            pass

    def closing():
        connection.pgconn.finish()
        yield psycopg.waiting.Wait.R

    async with connection.lock:
        task = asyncio.ensure_future(begin())
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await _one(connection) == 1
    with pytest.raises(psycopg.OperationalError):
        await connection.wait(closing())
