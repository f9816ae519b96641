"""The retriever without an event loop: threads, callbacks, interrupts, and the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from semlex.errors import ConfigurationError, ConnectionFailedError, WorkAbandonedError
from tests.support.retrievers import sync_opened
from tests.support.waiting import LIMIT, held, until_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semlex import SyncRetriever


@pytest.fixture
def retriever(database_url: str) -> Iterator[SyncRetriever]:
    with sync_opened(database_url, collection="texts") as retriever:
        retriever.add_texts(["hello"], ids=["1"])
        yield retriever


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "semlex-loop"]


def test_close_ends_the_calls_of_other_threads(retriever: SyncRetriever, database_url: str) -> None:
    with ThreadPoolExecutor() as threads, held(database_url, "semlex.texts_chunk") as connection:
        calls = [threads.submit(retriever.search, "hello") for _ in range(3)]
        until_waiting(connection, 3)
        retriever.close()
        for call in calls:
            with pytest.raises(WorkAbandonedError, match="another thread closed the retriever"):
                call.result(LIMIT)
    with pytest.raises(ConfigurationError, match="not open"):
        retriever.search("hello")
    assert loop_threads() == []


def test_it_opens_again_after_it_was_closed(retriever: SyncRetriever) -> None:
    retriever.close()
    retriever.close()
    retriever.initialize()
    assert [hit.id for hit in retriever.search("hello")] == ["1"]


def test_threads_that_open_and_close_at_once(database_url: str) -> None:
    retriever = sync_opened(database_url, "none")
    gate = threading.Barrier(4)

    def change(method: Callable[[], None]) -> None:
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


@pytest.mark.slow
def test_a_callback_that_calls_its_own_retriever_is_refused(retriever: SyncRetriever, database_url: str) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda _: retriever.search("hello"),
        lambda _: retriever.initialize(),
        lambda _: retriever.close(),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="would wait for itself"):
            retriever.reindex_keyword(progress=call)
    assert [hit.id for hit in retriever.search("hello")] == ["1"]
    with sync_opened(database_url, collection="texts") as second:
        found: list[Any] = []
        retriever.reindex_keyword(progress=lambda _: found.extend(second.search("hello")))
        assert found


def test_a_retriever_that_cannot_be_opened_leaves_no_thread() -> None:
    retriever = sync_opened("host=127.0.0.1 port=1", "none")
    with pytest.raises(ConnectionFailedError):
        retriever.initialize()
    assert loop_threads() == []


def program(url: str, *lines: str) -> subprocess.Popen[str]:
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
@pytest.mark.parametrize("way", ["", "sys.exit()", "retriever = None", "1 / 0"])
def test_leaving_without_closing_says_nothing(database_url: str, way: str) -> None:
    with program(
        database_url,
        "retriever.initialize()",
        "retriever.add_texts(['hello'] * 3, ids=['1', '2', '3'])",
        "print(len(retriever.search('hello')))",
        way,
    ) as process:
        found, said = process.communicate(timeout=LIMIT)
    assert found == "3\n"
    assert ("ZeroDivisionError" in said) == (way == "1 / 0")
    assert "ZeroDivisionError" in said or said == ""


@pytest.mark.slow
def test_an_interrupted_run_ends_quietly(database_url: str, tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.md").write_text(f"# {number}\n\n" + "A sentence of some words. " * 20)
    with sync_opened(database_url) as retriever:
        retriever.count()
    with (
        held(database_url, "semlex.default_collection_chunk") as lock,
        program(
            database_url,
            "with retriever:",
            f"    retriever.index({str(tmp_path)!r})",
            "    print('done', flush=True)",
        ) as process,
    ):
        until_waiting(lock)
        process.send_signal(signal.SIGINT)
        found, said = process.communicate(timeout=LIMIT)
    assert "done" not in found
    assert said.rstrip().endswith("KeyboardInterrupt")
    for noise in ("Task was destroyed", "never awaited", "exception was never retrieved", "Exception ignored"):
        assert noise not in said
