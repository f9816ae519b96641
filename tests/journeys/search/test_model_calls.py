"""Blocking calls of models from an event loop: never on it, and not for longer than somebody waits."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import Document
from semlex.errors import SearchTimeoutError, WorkAbandonedError
from semlex.ingest.embed import FIRST_SLICE_TEXTS, SLICE_SECONDS, SLICE_TEXTS, next_slice
from semlex.models import cancellation
from semlex.models.executor import ModelExecutor
from semlex.testing import HashEmbedder
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import opened
from tests.support.waiting import LIMIT, eventually


class SteppingEmbedder(HashEmbedder):
    """Embeds a query in steps that it is let into one by one."""

    def __init__(self):
        super().__init__(16)
        self.step = threading.Semaphore(0)
        self.steps = 0
        self.begun = threading.Event()
        self.ended = []

    def embed_query(self, text):
        if text != "slow":
            return super().embed_query(text)
        try:
            for _ in range(1000):
                cancellation.check()
                self.begun.set()
                assert self.step.acquire(timeout=LIMIT)
                self.steps += 1
        except WorkAbandonedError:
            self.ended.append("abandoned")
            raise
        self.ended.append("done")
        return super().embed_query(text)


@pytest.fixture
def executor():
    executor = ModelExecutor()
    yield executor
    executor.close()


async def test_values_errors_and_context_variables_pass(executor):
    variable = contextvars.ContextVar("variable")
    variable.set("kept")
    assert await executor.query(variable.get) == "kept"
    assert await executor.documents(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await executor.query(divmod, 7, 0)
    assert threading.current_thread().name != await executor.query(lambda: threading.current_thread().name)


async def test_a_query_does_not_wait_for_documents(executor):
    gate = threading.Event()
    load = asyncio.ensure_future(executor.documents(gate.wait, LIMIT))
    assert await executor.query(str, 1) == "1"
    assert not load.done()
    gate.set()
    assert await load


async def test_a_cancelled_call_ends_at_its_next_step(executor):
    model = SteppingEmbedder()
    call = asyncio.ensure_future(executor.query(model.embed_query, "slow"))
    await eventually(model.begun.is_set)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    model.step.release(50)
    # The thread is free again: the next call is answered.
    assert (await executor.query(model.embed_query, "quick")).shape == (16,)
    assert model.ended == ["abandoned"]
    assert model.steps == 1


async def test_a_cancelled_call_that_has_not_begun_never_begins(executor):
    gate, begun = threading.Event(), []
    first = asyncio.ensure_future(executor.query(gate.wait, LIMIT))
    second = asyncio.ensure_future(executor.query(begun.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    assert await first
    assert await executor.query(list, begun) == []


async def test_closing_ends_what_runs(executor):
    model = SteppingEmbedder()
    call = asyncio.ensure_future(executor.query(model.embed_query, "slow"))
    await eventually(model.begun.is_set)
    executor.close()
    model.step.release(50)
    with pytest.raises(WorkAbandonedError):
        await call
    assert model.steps == 1


async def test_a_search_past_its_deadline_leaves_nothing_running(database_url):
    model, clock = SteppingEmbedder(), ManualClock()
    async with opened(database_url, model, clock=clock) as retriever:
        await retriever.add_documents([Document("a banana is yellow", id="banana")])
        searching = asyncio.create_task(retriever.search("slow", mode="vector", deadline=LIMIT))
        await eventually(model.begun.is_set)
        clock.advance(LIMIT)
        with pytest.raises(SearchTimeoutError):
            await searching
        model.step.release(50)
        assert (await retriever.search("banana"))[0].id == "banana"
    assert model.ended == ["abandoned"]


@given(st.floats(1e-4, 30.0), st.integers(FIRST_SLICE_TEXTS, 3_000))
def test_slices_come_to_a_length_that_shows_progress(seconds_per_text, texts):
    size, done, sizes = FIRST_SLICE_TEXTS, 0, []
    while done < texts * 20:
        sizes.append(size)
        done += size
        size = next_slice(size, size * seconds_per_text)
    fewest, most = SLICE_TEXTS
    assert all(fewest <= size <= most for size in sizes)
    last = sizes[-1] * seconds_per_text
    assert last <= SLICE_SECONDS[1] or sizes[-1] == fewest
    assert last >= SLICE_SECONDS[0] / 4 or sizes[-1] == most or len(sizes) < 9
