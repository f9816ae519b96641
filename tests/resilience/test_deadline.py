"""A network that swallows everything: the deadline holds, and the next search works."""

import asyncio
from contextlib import asynccontextmanager

import psycopg
import pytest

from semlex import Client, Document
from semlex.clock import SYSTEM
from semlex.errors import SearchTimeoutError
from semlex.proof.interruptions import proxied
from semlex.search import retrieval
from semlex.server.routes.health import DATABASE_SECONDS
from semlex.store.postgres.database import DEADLINE_GRACE_SECONDS
from semlex.store.postgres.pool import CANCEL_SECONDS
from tests.support.databases import execute
from tests.support.http_server import in_process
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened
from tests.support.spies import calls_of
from tests.support.waiting import LIMIT, eventually, turns


@asynccontextmanager
async def away(url, clock=SYSTEM):
    """A proxy, which can fall silent, and a retriever behind it."""
    async with proxied(url) as (proxy, address), opened(address, 16, clock=clock, timeout=LIMIT) as retriever:
        await retriever.add_documents([Document("a banana is yellow", id="banana")])
        yield proxy, retriever
        proxy.hearing.set()


async def test_a_silent_server_is_given_up(database_url):
    clock = ManualClock()
    async with away(database_url, clock) as (proxy, retriever):
        assert (await retriever.search("banana", deadline=LIMIT))[0].id == "banana"
        proxy.hearing.clear()
        # Without a deadline of ours this would hang for as long as the network does.
        searching = asyncio.create_task(retriever.search("banana", deadline=LIMIT))
        await eventually(lambda: proxy.swallowed)
        clock.advance(LIMIT)
        await turns()
        assert not searching.done()
        clock.advance(DEADLINE_GRACE_SECONDS)
        with pytest.raises(SearchTimeoutError, match="did not answer within"):
            await searching
        proxy.hearing.set()
        assert (await retriever.search("banana", deadline=LIMIT))[0].id == "banana"


async def test_a_server_that_falls_silent_after_a_leg_failed_is_given_up(database_url, monkeypatch):
    clock = ManualClock()
    async with away(database_url, clock) as (proxy, retriever):
        execute(database_url, "DROP TABLE semlex.default_collection_embedding_1")
        run_remaining_legs = retrieval.run_remaining_legs

        async def in_silence(*arguments):
            proxy.hearing.clear()
            return await run_remaining_legs(*arguments)

        monkeypatch.setattr(retrieval, "run_remaining_legs", in_silence)
        searching = asyncio.create_task(retriever.search("banana", deadline=LIMIT))
        await eventually(lambda: proxy.swallowed)
        clock.advance(LIMIT + DEADLINE_GRACE_SECONDS)
        with pytest.raises(SearchTimeoutError, match="did not answer within"):
            await searching


async def test_a_cancelled_write_does_not_wait_for_a_silent_server(database_url, monkeypatch):
    cancels = calls_of(monkeypatch, psycopg.AsyncConnection, "cancel_safe")
    async with away(database_url) as (proxy, retriever):
        proxy.hearing.clear()
        writing = asyncio.create_task(retriever.add_documents([Document("an apple is red", id="apple")]))
        await eventually(lambda: proxy.swallowed)
        writing.cancel()
        await asyncio.wait({writing})
        assert writing.cancelled()
        # By itself the driver waits ten times as long for a server that does not take the request.
        assert [call["timeout"] for call in cancels] == [CANCEL_SECONDS]
        proxy.hearing.set()
        await retriever.add_documents([Document("an apple is red", id="apple")])
        assert await retriever.count() == 2


async def test_the_health_of_a_silent_server_is_reported_in_time(database_url):
    clock = ManualClock()
    async with away(database_url, clock) as (proxy, retriever):
        assert (await retriever.health_check()).ok
        proxy.hearing.clear()
        health = await clock.expire(LIMIT + DEADLINE_GRACE_SECONDS, retriever.health_check())
        assert not health.ok
        assert f"did not answer within {LIMIT:g} s" in health.error


async def test_a_probe_is_answered_within_a_second_while_the_database_is_away(database_url, caplog):
    clock, limit = ManualClock(), DATABASE_SECONDS + DEADLINE_GRACE_SECONDS
    assert limit <= 1
    async with proxied(database_url) as (proxy, url), Client(url, embedding_model="none") as client:
        client._resources.database.clock = clock
        async with in_process(client, jobs=1) as served:
            proxy.hearing.clear()
            answer = await clock.expire(limit, served.http.get("/readyz"))
            figures = (await clock.expire(limit, served.http.get("/metrics"))).text
            assert "semlex_pool_waiting" in figures
            assert "semlex_jobs" not in figures
            proxy.hearing.set()
        checks = answer.json()["checks"]
        assert (answer.status_code, checks["database"]) == (503, "it does not answer; see the log")
        unknown = "not checked: the database does not answer"
        assert (checks["extension"], checks["jobs"], checks["settings"]) == (unknown, unknown, "ok")
        assert "the database is not ready: look at the server: the server did not answer" in caplog.text
