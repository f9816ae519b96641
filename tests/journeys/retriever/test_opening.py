"""Opening and closing an asynchronous retriever: by several tasks, interrupted, and with what fails in between."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import psycopg
import pytest

from semlex.errors import CollectionNotFoundError, ConfigurationError, ConnectionFailedError
from semlex.proof.interruptions import address_of_both
from semlex.store.postgres.database import Database
from semlex.store.postgres.embedded.process import running_server
from tests.support.retrievers import opened, openings
from tests.support.waiting import LIMIT, eventually, turns

GONE = "postgresql://127.0.0.1:1/x"


async def test_tasks_that_open_at_once_open_once(database_url, monkeypatch):
    attempts = openings(monkeypatch)
    retriever = opened(database_url, "none")
    await asyncio.gather(*(retriever.initialize() for _ in range(3)), retriever.count(), retriever.list_chunks())
    assert len(attempts) == 1
    await retriever.close()
    await retriever.initialize()
    assert await retriever.count() == 0
    await retriever.close()


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


async def test_the_first_call_opens_and_a_call_after_the_end_does_not(database_url):
    retriever = opened(database_url, "none")
    assert (await asyncio.gather(retriever.count(), retriever.count()), retriever.info.names.collection) == (
        [0, 0],
        "default_collection",
    )
    await retriever.close()
    with pytest.raises(ConfigurationError, match="was closed; make another"):
        await retriever.count()
    missing = opened(database_url, "none", collection="missing", create=False)
    for _ in range(2):  # a failed opening is no end
        with pytest.raises(CollectionNotFoundError):
            await missing.initialize()
        with pytest.raises(CollectionNotFoundError):
            await missing.count()
    await missing.close()


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


async def test_health_of_a_server_that_is_away_is_an_answer():
    retriever = opened(GONE, "none", timeout=1)  # expires
    health = await retriever.health_check()
    assert (health.ok, "connect" in (health.error or "")) == (False, True)
    await retriever.close()


async def test_who_waits_goes_on_when_the_first_one_is_cancelled(database_url, monkeypatch):
    real, is_opening = Database.open, asyncio.Event()

    async def slow_at_first(self):
        if not is_opening.is_set():
            is_opening.set()
            await asyncio.Event().wait()
        await real(self)

    monkeypatch.setattr(Database, "open", slow_at_first)
    retriever = opened(database_url, "none")
    first, second = (asyncio.create_task(retriever.initialize()) for _ in range(2))
    await is_opening.wait()
    first.cancel()
    await second
    assert first.cancelled()
    assert await retriever.count() == 0
    await retriever.close()


def test_one_retriever_in_several_event_loops(database_url):
    retriever = opened(database_url, "none")

    async def use():
        await asyncio.gather(*(retriever.initialize() for _ in range(3)))
        assert await retriever.count() == 0
        await retriever.close()

    for _ in range(2):
        asyncio.run(use())


@pytest.mark.slow
def test_leaving_an_event_loop_without_closing_says_nothing(database_url):
    text = f"""
import asyncio
from semlex import Client

async def main():
    one = Client({database_url!r}, "none", use_reranking=False).collection("one")
    await one.add_texts(["hello"])
    print(len(await one.search("hello")))

asyncio.run(main())
"""
    command = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.slow
async def test_a_folder_for_the_server_may_be_a_text(open_folder):
    folder = open_folder / "server"
    async with opened(None, "none", data_folder=str(folder)) as retriever:
        assert (await retriever.status()).data_folder == str(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data_folder": ""}, "data_folder is blank: it must have at least 1 character"),
        ({"url": ""}, r"the database URL is empty; .* \(db_url=None, no --database\) for the embedded Postgres"),
        ({"device": "gpu"}, "device must be one of mps, cuda, cpu or None; got 'gpu'"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        opened(model="none", **arguments)


@pytest.mark.slow
async def test_the_server_is_let_go_although_the_pool_does_not_close(open_folder, make_server_folder, monkeypatch):
    folder = make_server_folder(open_folder / "server")
    retriever = opened(None, "none", data_folder=folder)
    await retriever.initialize()
    real = Database.close

    async def failing(self):
        await real(self)
        raise ZeroDivisionError

    monkeypatch.setattr(Database, "close", failing)
    with pytest.raises(ZeroDivisionError):
        await retriever.close()
    assert running_server(folder) is None
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
