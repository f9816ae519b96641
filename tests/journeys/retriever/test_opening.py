"""Opening and closing a retriever: by several tasks or threads, with interruptions and with failures."""

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import psycopg
import pytest

from semlex import SyncClient
from semlex.errors import CollectionNotFoundError, ConfigurationError, ConnectionFailedError, WorkAbandonedError
from semlex.proof.interruptions import address_of_both
from semlex.store.postgres.database import Database
from semlex.store.postgres.embedded.process import running_server
from tests.support.retrievers import opened, sync_opened
from tests.support.spies import calls_of
from tests.support.waiting import LIMIT, eventually, held, turns, until, until_waiting

GONE = "postgresql://127.0.0.1:1/x"


async def test_tasks_that_open_at_once_open_once(database_url, monkeypatch):
    attempts = calls_of(monkeypatch, Database, "open")
    retriever = opened(database_url, "none")
    await asyncio.gather(*(retriever.initialize() for _ in range(3)), retriever.count(), retriever.list_chunks())
    assert len(attempts) == 1
    await retriever.close()
    await retriever.initialize()
    assert await retriever.count() == 0
    await retriever.close()
    # The first call opens the retriever; a call after its end is refused.
    retriever = opened(database_url, "none")
    assert await asyncio.gather(retriever.count(), retriever.count()) == [0, 0]
    assert retriever.info.names.collection == "default_collection"
    await retriever.close()
    with pytest.raises(ConfigurationError, match="was closed; make another"):
        await retriever.count()
    missing = opened(database_url, "none", collection="missing", create=False)
    for call in (missing.initialize, missing.count) * 2:  # a failed opening is no end
        with pytest.raises(CollectionNotFoundError):
            await call()
    await missing.close()


async def test_tasks_that_wait_for_a_server_that_is_away_wait_once(monkeypatch):
    attempts = []

    async def failing(self):
        attempts.append(self)
        await turns()
        raise ConnectionFailedError("away")

    monkeypatch.setattr(Database, "open", failing)
    retriever = opened(GONE, "none")
    failures = await asyncio.gather(*(retriever.initialize() for _ in range(5)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["away"] * 5
    assert len(attempts) == 1
    with pytest.raises(ConnectionFailedError, match="away"):  # whoever comes later tries again
        await retriever.initialize()
    assert len(attempts) == 2
    await retriever.close()


@pytest.mark.parametrize("read_from", ["primary", "replica"])
async def test_closing_ends_an_opening_that_a_first_call_has_begun(database_url, monkeypatch, read_from):
    real, is_opening, goes_on = Database.open, asyncio.Event(), asyncio.Event()

    async def slow(self):
        is_opening.set()
        await goes_on.wait()
        await real(self)

    monkeypatch.setattr(Database, "open", slow)
    before = asyncio.all_tasks()
    retriever = opened(address_of_both(database_url, database_url), "none", read_from=read_from)
    counting = asyncio.create_task(retriever.count())
    await is_opening.wait()
    await retriever.close()
    goes_on.set()
    with pytest.raises(ConfigurationError, match="was closed"):
        await counting
    assert asyncio.all_tasks() == before  # the pool that was opened afterwards is closed


def test_who_waits_goes_on_when_the_first_one_is_cancelled(database_url, monkeypatch):
    real, is_opening, retriever = Database.open, asyncio.Event(), opened(database_url, "none")

    async def slow_at_first(self):
        if not is_opening.is_set():
            is_opening.set()
            await asyncio.Event().wait()
        await real(self)

    async def use():
        first, second, third = (asyncio.create_task(retriever.initialize()) for _ in range(3))
        if not is_opening.is_set():
            await is_opening.wait()
            first.cancel()
        await asyncio.gather(second, third)
        assert await retriever.count() == 0
        await retriever.close()
        return first.cancelled()

    monkeypatch.setattr(Database, "open", slow_at_first)
    assert [asyncio.run(use()) for _ in range(2)] == [True, False]  # one retriever in two event loops


@pytest.mark.slow
async def test_the_server_is_let_go_although_the_pool_does_not_close(open_folder, make_server_folder, monkeypatch):
    folder = make_server_folder(open_folder / "server")
    retriever = opened(None, "none", data_folder=str(folder))  # a str is a path, too
    await retriever.initialize()
    assert (await retriever.status()).data_folder == str(folder)
    real = Database.close

    async def failing(self):
        await real(self)
        raise ZeroDivisionError

    monkeypatch.setattr(Database, "close", failing)
    with pytest.raises(ZeroDivisionError):
        await retriever.close()
    assert running_server(folder) is None
    await retriever.close()


async def test_an_argument_that_cannot_be_used_is_refused():
    for name, value, message in (
        ("data_folder", "", "data_folder is blank: it must have at least 1 character"),
        ("url", "", r"the database URL is empty; .* \(db_url=None, no --database\) to use the embedded Postgres"),
        ("device", "gpu", "device must be one of mps, cuda, cpu or None; got 'gpu'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            opened(model="none", **{name: value})
    # The health check reports a server that is away.
    retriever = opened(GONE, "none", timeout=1)  # expires
    health = await retriever.health_check()
    assert (health.ok, "connect" in (health.error or "")) == (False, True)
    await retriever.close()


@pytest.mark.slow
async def test_a_start_that_is_cancelled_leaves_no_server(open_folder, make_server_folder, monkeypatch):
    connect, goes_on = psycopg.connect, threading.Event()

    def waiting(*arguments, **options):
        assert goes_on.wait(LIMIT)
        return connect(*arguments, **options)

    folder = make_server_folder(open_folder / "server")
    retriever = opened(None, "none", data_folder=folder)
    monkeypatch.setattr(psycopg, "connect", waiting)
    opening = asyncio.create_task(retriever.initialize())
    await eventually(lambda: running_server(folder))
    opening.cancel()
    await turns()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert running_server(folder) is None


@pytest.fixture
def retriever(database_url):
    with sync_opened(database_url, collection="texts") as retriever:
        retriever.add_texts(["hello"], ids=["1"])
        yield retriever


def loop_threads():
    return [thread for thread in threading.enumerate() if thread.name == "semlex-loop"]


def test_close_ends_the_calls_of_other_threads(retriever, database_url):
    with ThreadPoolExecutor() as threads, held(database_url, "semlex.texts_chunk") as connection:
        calls = [threads.submit(retriever.search, "hello") for _ in range(3)]
        until_waiting(connection, 3)
        retriever.close()
        for call in calls:
            with pytest.raises(WorkAbandonedError, match="another thread closed this retriever"):
                call.result(LIMIT)
    with pytest.raises(ConfigurationError, match="was closed"):
        retriever.search("hello")
    assert loop_threads() == []
    # A closed retriever opens again.
    retriever.close()
    retriever.initialize()
    assert [hit.id for hit in retriever.search("hello")] == ["1"]


def test_threads_that_open_and_close_at_once(database_url, monkeypatch):
    retriever, gate = sync_opened(database_url, "none"), threading.Barrier(4)

    def change(method):
        gate.wait(LIMIT)
        method()

    with ThreadPoolExecutor() as threads:
        for call in [threads.submit(change, retriever.initialize) for _ in range(4)]:
            call.result(LIMIT)
        assert len(loop_threads()) == 1
        assert retriever.count() == 0
        for call in [threads.submit(change, retriever.close) for _ in range(4)]:
            call.result(LIMIT)
    assert loop_threads() == []
    # Threads that make their first call at once open the client once.
    attempts = calls_of(monkeypatch, Database, "open")
    client = SyncClient(database_url, "none", use_reranking=False)
    one = client.collection("one")
    with ThreadPoolExecutor(8) as threads:
        assert [call.result(LIMIT) for call in [threads.submit(one.count) for _ in range(8)]] == [0] * 8
    assert (len(attempts), len(loop_threads())) == (1, 1)
    client.close()
    with pytest.raises(ConfigurationError, match="was closed; make another"):
        one.count()
    assert loop_threads() == []


def test_threads_that_wait_for_a_server_that_is_away_wait_once(monkeypatch):
    attempts = []
    retriever, goes_on, lock, turn = sync_opened(GONE, "none"), threading.Event(), threading.Lock(), MagicMock()
    turn.__enter__.side_effect, turn.__exit__.side_effect = lock.acquire, lambda *_: lock.release()
    with pytest.raises(ConnectionFailedError):
        retriever.initialize()
    assert loop_threads() == []

    async def failing(self):
        attempts.append(self)
        await asyncio.to_thread(goes_on.wait, LIMIT)
        raise ConnectionFailedError("away")

    def count():
        with pytest.raises(ConnectionFailedError) as caught:
            retriever.count()
        return str(caught.value)

    monkeypatch.setattr(Database, "open", failing)
    monkeypatch.setattr(retriever._runner, "_changing", turn)
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(count) for _ in range(4)]
        until(lambda: turn.__enter__.call_count == 4)
        goes_on.set()
        assert [call.result(LIMIT) for call in calls] == ["away"] * 4
    assert len(attempts) == 1
    with pytest.raises(ConnectionFailedError, match="away"):  # whoever comes later tries again
        retriever.count()
    assert len(attempts) == 2


@pytest.mark.slow
def test_a_callback_that_calls_its_own_retriever_is_refused(retriever, database_url):
    for call in (lambda: retriever.search("hello"), retriever.initialize, retriever.close):
        with pytest.raises(ConfigurationError, match="would wait for itself"):
            retriever.indexes.rebuild_keyword(progress=lambda _, call=call: call())
    assert [hit.id for hit in retriever.search("hello")] == ["1"]
    with sync_opened(database_url, collection="texts") as second:
        found = []
        retriever.indexes.rebuild_keyword(progress=lambda _: found.extend(second.search("hello")))
        assert found


def program(*lines):
    # That a slow machine's callbacks take long is a warning; tasks that are left pending are errors.
    text = "\n".join(["import logging", "logging.getLogger('asyncio').setLevel(logging.ERROR)", *lines])
    command = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", text]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def retriever_lines(url, *lines):
    made = f"retriever = SyncRetriever({url!r}, HashEmbedder(8), use_reranking=False)"
    return ["from semlex import SyncRetriever", "from semlex.testing import HashEmbedder", made, *lines]


@pytest.mark.slow
def test_leaving_without_closing_says_nothing(database_url):
    use = ["retriever.add_texts(['hello'] * 3, ids=['1', '2', '3'])", "print(len(retriever.search('hello')))"]
    programs = [retriever_lines(database_url, *use, way) for way in ("", "retriever = None", "1 / 0")]
    in_an_event_loop = [
        "import asyncio",
        "from semlex import Client",
        "async def main():",
        f"    one = Client({database_url!r}, 'none', use_reranking=False).collection('one')",
        "    await one.add_texts(['hello'])",
        "    print(len(await one.search('hello')))",
        "asyncio.run(main())",
    ]
    with program(  # each as the child of one process that has imported what they use
        "import os, sys, semlex.retriever.client, semlex.retriever.postgres, semlex.retriever.synchronous",
        f"for lines in {[*programs, in_an_event_loop]!r}:",
        "    if not os.fork():",
        "        exec('\\n'.join(lines))",
        "        break",
        "    os.wait()",
        "    for stream in (sys.stdout, sys.stderr):",
        "        print(end='\\f', file=stream, flush=True)",
    ) as process:
        found, said = (told.split("\f")[:-1] for told in process.communicate(timeout=LIMIT))
    assert found == ["3\n", "3\n", "3\n", "1\n"]
    assert "ZeroDivisionError" in said.pop(2)
    assert said == ["", "", ""]


@pytest.mark.slow
def test_an_interrupted_run_ends_quietly(database_url, tmp_path):
    for number in range(100):
        (tmp_path / f"{number}.md").write_text(f"# {number}\n\n" + "A sentence of some words. " * 20)
    with sync_opened(database_url) as retriever:
        retriever.count()
    index = f"    retriever.index({str(tmp_path)!r})"
    with (
        held(database_url, "semlex.default_collection_chunk") as lock,
        program(*retriever_lines(database_url, "with retriever:", index, "    print('done', flush=True)")) as process,
    ):
        until_waiting(lock)
        process.send_signal(signal.SIGINT)
        found, said = process.communicate(timeout=LIMIT)
    assert "done" not in found
    assert said.rstrip().endswith("KeyboardInterrupt")
    for noise in ("Task was destroyed", "never awaited", "exception was never retrieved", "Exception ignored"):
        assert noise not in said
