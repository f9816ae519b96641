"""The retriever without an event loop: threads, callbacks, interrupts, and the end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from semlex import SyncClient
from semlex.errors import ConfigurationError, ConnectionFailedError, WorkAbandonedError
from semlex.store.postgres.database import Database
from tests.support.retrievers import openings, sync_opened
from tests.support.waiting import LIMIT, held, until, until_waiting


@pytest.fixture
def retriever(database_url):
    with sync_opened(database_url, collection="texts") as retriever:
        retriever.add_texts(["hello"], ids=["1"])
        yield retriever


class CountedLock:
    """A lock that knows how many have asked for it."""

    def __init__(self):
        self._lock, self.takers = threading.Lock(), 0

    def __enter__(self):
        self.takers += 1
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def loop_threads():
    return [thread for thread in threading.enumerate() if thread.name == "semlex-loop"]


def test_close_ends_the_calls_of_other_threads(retriever, database_url):
    with ThreadPoolExecutor() as threads, held(database_url, "semlex.texts_chunk") as connection:
        calls = [threads.submit(retriever.search, "hello") for _ in range(3)]
        until_waiting(connection, 3)
        retriever.close()
        for call in calls:
            with pytest.raises(WorkAbandonedError, match="another thread closed the retriever"):
                call.result(LIMIT)
    with pytest.raises(ConfigurationError, match="was closed"):
        retriever.search("hello")
    assert loop_threads() == []


def test_it_opens_again_after_it_was_closed(retriever):
    retriever.close()
    retriever.close()
    retriever.initialize()
    assert [hit.id for hit in retriever.search("hello")] == ["1"]


def test_threads_that_open_and_close_at_once(database_url):
    retriever = sync_opened(database_url, "none")
    gate = threading.Barrier(4)

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


def test_threads_whose_first_calls_come_at_once_open_once(database_url, monkeypatch):
    attempts = openings(monkeypatch)
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
    retriever, turn, goes_on = sync_opened("host=127.0.0.1 port=1", "none"), CountedLock(), threading.Event()

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
        until(lambda: turn.takers == 4)
        goes_on.set()
        assert [call.result(LIMIT) for call in calls] == ["away"] * 4
    assert len(attempts) == 1
    with pytest.raises(ConnectionFailedError, match="away"):  # whoever comes later tries again
        retriever.count()
    assert len(attempts) == 2


@pytest.mark.slow
def test_a_callback_that_calls_its_own_retriever_is_refused(retriever, database_url):
    calls = [lambda _: retriever.search("hello"), lambda _: retriever.initialize(), lambda _: retriever.close()]
    for call in calls:
        with pytest.raises(ConfigurationError, match="would wait for itself"):
            retriever.indexes.rebuild_keyword(progress=call)
    assert [hit.id for hit in retriever.search("hello")] == ["1"]
    with sync_opened(database_url, collection="texts") as second:
        found = []
        retriever.indexes.rebuild_keyword(progress=lambda _: found.extend(second.search("hello")))
        assert found


def test_a_retriever_that_cannot_be_opened_leaves_no_thread():
    retriever = sync_opened("host=127.0.0.1 port=1", "none")
    with pytest.raises(ConnectionFailedError):
        retriever.initialize()
    assert loop_threads() == []


def program(url, *lines):
    text = "\n".join(
        [
            "import logging, sys",
            # That a slow machine's callbacks take long is a warning; tasks that are left pending are errors.
            "logging.getLogger('asyncio').setLevel(logging.ERROR)",
            "from semlex import SyncRetriever",
            "from semlex.testing import HashEmbedder",
            f"retriever = SyncRetriever({url!r}, HashEmbedder(8), use_reranking=False)",
            *lines,
        ]
    )
    command = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", text]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["", "retriever = None", "1 / 0"])
def test_leaving_without_closing_says_nothing(database_url, way):
    with program(
        database_url,
        "retriever.add_texts(['hello'] * 3, ids=['1', '2', '3'])",
        "print(len(retriever.search('hello')))",
        way,
    ) as process:
        found, said = process.communicate(timeout=LIMIT)
    assert found == "3\n"
    assert ("ZeroDivisionError" in said) == (way == "1 / 0")
    assert "ZeroDivisionError" in said or said == ""


@pytest.mark.slow
def test_an_interrupted_run_ends_quietly(database_url, tmp_path):
    for number in range(100):
        (tmp_path / f"{number}.md").write_text(f"# {number}\n\n" + "A sentence of some words. " * 20)
    with sync_opened(database_url) as retriever:
        retriever.count()
    with (
        held(database_url, "semlex.default_collection_chunk") as lock,
        program(
            database_url, "with retriever:", f"    retriever.index({str(tmp_path)!r})", "    print('done', flush=True)"
        ) as process,
    ):
        until_waiting(lock)
        process.send_signal(signal.SIGINT)
        found, said = process.communicate(timeout=LIMIT)
    assert "done" not in found
    assert said.rstrip().endswith("KeyboardInterrupt")
    for noise in ("Task was destroyed", "never awaited", "exception was never retrieved", "Exception ignored"):
        assert noise not in said
