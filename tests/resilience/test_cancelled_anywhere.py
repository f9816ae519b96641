"""Cancel searches and writes at every moment at which they wait: the next call can use the connection."""

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


class Counted(Coroutine[Any, Any, Any]):
    """A coroutine that calls a function each time it waits."""

    def __init__(self, work, on_wait):
        self._work, self._on_wait = work, on_wait

    def send(self, value):
        waits = self._work.send(value)
        self._on_wait()
        return waits

    def throw(self, *error):
        waits = self._work.throw(*error)
        self._on_wait()
        return waits

    def __await__(self):
        return self._work.__await__()


async def cancelled_at(number, call):
    """Cancel a call at its wait of this number, from 1; waits of tasks that it starts are counted as well.

    Returns whether the call was cancelled, and how many waits it lacked until this number.
    """
    left = number

    def on_wait():
        nonlocal left
        left -= 1
        if left == 0:
            task.cancel()

    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, work, **options: asyncio.Task(Counted(work, on_wait), loop=loop, **options))
    try:
        task = asyncio.create_task(call)
        await asyncio.wait({task})
    finally:
        loop.set_task_factory(None)
    return task.cancelled(), left


@pytest.fixture(autouse=True)
def slow_server(monkeypatch):
    """Let every wait for the server take a turn of the event loop, even if the server has answered already."""
    wait = PooledConnection.wait

    async def waits(*arguments, **options):
        answer = await wait(*arguments, **options)
        await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(PooledConnection, "wait", waits)


@pytest.mark.parametrize("name", CALLS)
async def test_the_next_call_is_answered(database_url, name):
    """The cancelled call was waiting for a connection, for the server or for a model."""
    cancelled = 0
    async with opened(database_url, max_connections=1) as store:
        await store.add_documents([Document("an apple tree", id="a")])
        await CALLS[name](store)
        for number in itertools.count(1):
            was_cancelled, left = await cancelled_at(number, CALLS[name](store))
            cancelled += was_cancelled
            async with store._resources.database.connection() as connection:
                assert connection.pgconn.pipeline_status == PipelineStatus.OFF, number
                assert connection.info.transaction_status == TransactionStatus.IDLE, number
            assert [hit.id for hit in await store.search("tree", mode="keyword")] == ["a"], number
            if left > 0:
                break
    assert cancelled >= 4
