"""Blocking model calls from an event loop, and the cache of query vectors."""

import asyncio
import contextvars
import threading
from collections import OrderedDict
from contextlib import closing
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.embedding.query_cache import CacheFigures, QueryEmbeddingCache
from semlex.errors import ConfigurationError, ModelError, SearchTimeoutError, WorkAbandonedError
from semlex.ingest.embed import FIRST_SLICE_TEXTS, SLICE_SECONDS, SLICE_TEXTS, next_slice
from semlex.models import cancellation
from semlex.models.executor import ModelExecutor
from semlex.testing import HashEmbedder
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled, ids_of
from tests.support.waiting import LIMIT, eventually


class SteppingEmbedder(HashEmbedder):
    """Embeds a query in steps that it is let into one by one."""

    def __init__(self):
        super().__init__(16)
        self.step, self.begun = threading.Semaphore(0), threading.Event()
        self.steps, self.ended = 0, []

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
    with closing(ModelExecutor()) as executor:
        yield executor


async def test_values_errors_and_context_variables_pass_and_no_query_waits_for_documents(executor):
    variable = contextvars.ContextVar("variable")
    variable.set("kept")
    assert await executor.query(variable.get) == "kept"
    assert await executor.documents(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await executor.query(divmod, 7, 0)
    assert threading.current_thread().name != await executor.query(lambda: threading.current_thread().name)
    gate = threading.Event()
    load = asyncio.ensure_future(executor.documents(gate.wait, LIMIT))
    assert await executor.query(str, 1) == "1"
    assert not load.done()
    gate.set()
    assert await load


async def test_a_cancelled_call_ends_at_its_next_step_or_never_begins(executor):
    model = SteppingEmbedder()
    call = asyncio.ensure_future(executor.query(model.embed_query, "slow"))
    await eventually(model.begun.is_set)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    model.step.release(50)
    # The thread is free again: the next call is answered.
    assert (await executor.query(model.embed_query, "quick")).shape == (16,)
    assert (model.ended, model.steps) == (["abandoned"], 1)
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
    # Closing ends what runs.
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
    async with filled(database_url, {"banana": "a banana is yellow"}, model, clock=clock) as retriever:
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


KEY = HashEmbedder(16).identity.key


class CountingEmbedder(HashEmbedder):
    """Records the queries that it embeds."""

    def __init__(self, dimensions=16):
        super().__init__(dimensions)
        self.asked = []

    def embed_query(self, text):
        self.asked.append(text)
        return super().embed_query(text)


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "a "]), max_size=40), st.integers(0, 4))
def test_equal_to_the_model_and_to_a_plain_list_of_the_last_queries(queries, capacity):
    cache, model, kept = QueryEmbeddingCache(capacity), CountingEmbedder(), OrderedDict()
    misses = []
    for query in queries:
        assert np.array_equal(cache.embed(model, KEY, query), HashEmbedder(16).embed_query(query))
        if query not in kept:
            misses.append(query)
        kept[query] = None
        kept.move_to_end(query)
        while len(kept) > capacity:
            kept.popitem(last=False)
    figures = cache.figures
    assert model.asked == misses
    assert (figures.entries, figures.capacity) == (len(kept), capacity)
    assert (figures.hits, figures.misses) == (len(queries) - len(misses), len(misses))
    assert figures.hit_rate == (pytest.approx(figures.hits / len(queries)) if queries else 0.0)


def test_the_cache_keeps_usable_vectors_of_each_model():
    cache, small, large = QueryEmbeddingCache(), CountingEmbedder(8), CountingEmbedder(16)
    assert cache.embed(small, small.identity.key, "query").shape == (8,)
    assert cache.embed(large, large.identity.key, "query").shape == (16,)
    assert cache.figures.hits == 0
    with pytest.raises(ValueError, match="read-only"):
        cache.embed(small, small.identity.key, "query")[0] = 1.0
    # Failures and unusable vectors are not kept.
    cache, model = QueryEmbeddingCache(), Mock()
    model.embed_query.side_effect = ModelError("not yet")
    with pytest.raises(ModelError):
        cache.embed(model, KEY, "query")
    model.embed_query.side_effect = None
    for answer in (np.full(16, np.nan), np.zeros(16), np.ones(15), np.ones((1, 16)), np.eye(16)[0]):
        assert cache.figures.entries == 0
        model.embed_query.return_value = answer.astype(np.float32)
        assert cache.embed(model, KEY, "query").shape == answer.shape
    assert cache.figures.entries == 1
    kinds = ((one, f"must be an int; got a {type(one).__name__}") for one in (1.5, True, "many"))
    for capacity, message in ((-1, "at least 0"), *kinds):
        with pytest.raises(ConfigurationError, match=message):
            QueryEmbeddingCache(capacity)


async def test_a_repeated_search_does_not_ask_the_model_again(database_url):
    model, texts = CountingEmbedder(), {"a": "a banana is yellow", "b": "a plum is blue"}
    async with filled(database_url, texts, model, cached_queries=2) as retriever:
        first = await retriever.search("yellow banana")
        again = await retriever.search("yellow banana")
        assert ids_of(again) == ids_of(first)
        assert (first.query_cached, again.query_cached) == (False, True)
        assert model.asked == ["yellow banana"]
        await retriever.search("blue")
        status = await retriever.status()
        assert status.query_cache == CacheFigures(entries=2, capacity=2, hits=1, misses=2)
        assert status.to_dict()["query_cache"]["hit_rate"] == pytest.approx(1 / 3)
