"""Waiting for answers: what the driver's own waiting returns, in fewer rounds of the event loop."""

import asyncio
import gc
import selectors
import sys
import weakref
from contextlib import asynccontextmanager, nullcontext

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg.pq import PipelineStatus, TransactionStatus

from semlex.proof.interruptions import proxied
from semlex.store.postgres.connection import connected
from semlex.store.postgres.database import ENDING_SECONDS, Database
from semlex.store.postgres.pool import Answer, PooledConnection
from semlex.store.postgres.snapshot import SingleSnapshot
from tests.support.databases import execute
from tests.support.manual_clock import ManualClock
from tests.support.properties import OWN_ROWS
from tests.support.waiting import LIMIT, eventually, turns, until

# Bytes that are sent and that are returned. The largest do not fit the buffers of a socket in either direction.
SIZES = st.sampled_from([0, 1, 8_000, 300_000, 3_000_000])
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
                    asked = SingleSnapshot(own).execute(text, values, is_qualified=is_qualified)
                    assert await answer(asked) == wanted
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


async def sleeping(connection, url):
    """A statement that the server has begun, and that takes long."""
    task = asyncio.ensure_future(connection.execute("SELECT pg_sleep(600)"))
    text = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    await eventually(lambda: execute(url, text, [connection.info.backend_pid]))
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


async def test_an_answer_is_heard_although_the_server_is_gone(connection, database_url):
    """The end of the connection is there when the answer is read."""
    backend = connection.info.backend_pid
    text = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'idle' AND query = 'SELECT 41'"
    with psycopg.connect(database_url, autocommit=True) as other:

        def end():
            until(lambda: other.execute(text, [backend]).fetchone() == (1,), "the answer was sent")
            other.execute("SELECT pg_terminate_backend(%s, 60000)", [backend])

        task = asyncio.ensure_future(connection.execute("SELECT 41"))
        asyncio.get_running_loop().call_soon(end)
        assert await (await task).fetchall() == [(41,)]


async def test_a_read_whose_answer_is_lost_is_repeated(database_url):
    """Reading ahead takes the answer, and the driver then finds the end of the connection."""
    attempts = 0
    text = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state = 'idle' AND query = 'SELECT 41'"
    )
    with psycopg.connect(database_url, autocommit=True) as other:

        def end():
            until(lambda: other.execute(text).fetchone() == (True,), "the answer was sent")

        async def read(snapshot):
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                asyncio.get_running_loop().call_soon(end)
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
