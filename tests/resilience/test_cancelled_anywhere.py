"""A search or a write that is cancelled at any moment leaves connections that the next ones can use."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from semlex import Document
from semlex.store.postgres.pool import PooledConnection
from tests.support.retrievers import opened

CALLS = {
    "search": lambda store: store.search("apple tree"),
    "why": lambda store: store.why("a", "apple tree"),
    "fields": lambda store: store.fields.list(values=True),
    "add": lambda store: store.add_documents([Document("an apple pie", id="b")]),
}


async def cancelled_at(place, call):
    """Cancels a call when it, or a task that it has begun, waits for the time `place`.

    Returns whether it was cancelled, and how many waits were left until then.
    """
    left = place

    def waits():
        nonlocal left
        left -= 1
        if left == 0:
            task.cancel()

    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, work, **options: asyncio.Task(Counted(work, waits), loop=loop, **options))
    try:
        task = asyncio.create_task(call)
        await asyncio.wait({task})
    finally:
        loop.set_task_factory(None)
    return task.cancelled(), left


class Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells whenever it waits."""

    def __init__(self, work, tell):
        self._work, self._tell = work, tell

    def send(self, value):
        waits = self._work.send(value)
        self._tell()
        return waits

    def throw(self, *error):
        waits = self._work.throw(*error)
        self._tell()
        return waits

    def close(self):
        self._work.close()

    def __await__(self):
        return self._work.__await__()


@pytest.fixture(autouse=True)
def slow_server(monkeypatch):
    """However fast the server is, who waits for an answer goes on in another turn of the loop."""
    wait = PooledConnection.wait

    async def waits(*arguments, **options):
        answer = await wait(*arguments, **options)
        await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(PooledConnection, "wait", waits)


@pytest.mark.parametrize("name", CALLS)
async def test_the_next_call_is_answered(database_url, name):
    """Wherever it waits: for a connection, for the server, for a model."""
    cancelled = 0
    async with opened(database_url, max_connections=1) as store:
        await store.add_documents([Document("an apple tree", id="a")])
        await CALLS[name](store)
        for place in itertools.count(1):
            was_cancelled, left = await cancelled_at(place, CALLS[name](store))
            cancelled += was_cancelled
            async with store._resources.database.connection() as connection:
                assert connection.pgconn.pipeline_status == PipelineStatus.OFF, place
                assert connection.info.transaction_status == TransactionStatus.IDLE, place
            assert [hit.id for hit in await store.search("tree", mode="keyword")] == ["a"], place
            if left > 0:
                break
    assert cancelled >= 4
