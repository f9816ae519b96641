"""A search or a write that is cancelled at any moment leaves connections that the next ones can use."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from semlex import Document, PostgreSQLRetriever
from tests.support.retrievers import opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# From its beginning to its end, in steps that are shorter than an answer of the server takes.
TURNS, STEP_SECONDS = 100, 0.0001

CALLS: dict[str, Callable[[PostgreSQLRetriever], Awaitable[Any]]] = {
    "search": lambda store: store.search("apple tree"),
    "why": lambda store: store.why("a", "apple tree"),
    "fields": lambda store: store.fields(values=True),
    "add": lambda store: store.add_documents([Document("an apple pie", id="b")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
async def test_the_next_call_is_answered(database_url: str, name: str) -> None:
    call = CALLS[name]
    async with opened(database_url, max_connections=1) as store:
        await store.add_documents([Document("an apple tree", id="a")])
        await call(store)
        for turns in range(TURNS):
            task = asyncio.ensure_future(call(store))
            await asyncio.sleep(turns * STEP_SECONDS)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            async with store._resources.database.connection() as connection:
                assert connection.pgconn.pipeline_status == PipelineStatus.OFF, turns
                assert connection.info.transaction_status == TransactionStatus.IDLE, turns
            assert [hit.id for hit in await store.search("tree", mode="keyword")] == ["a"], turns
