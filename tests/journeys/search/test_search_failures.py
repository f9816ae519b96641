"""When a part of a search fails or is late, the rest answers or the error is clear; calls of models end with it."""

import asyncio
import contextvars
import threading
import traceback
from collections import OrderedDict
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import ClassVar
from unittest.mock import Mock

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from semlex.embedding.query_cache import CacheFigures, QueryEmbeddingCache
from semlex.errors import ConfigurationError, ModelError, ModelMismatchError, SearchTimeoutError, StoreError
from semlex.ingest.embed import FIRST_SLICE_TEXTS, SLICE_SECONDS, SLICE_TEXTS, next_slice
from semlex.models.cancellation import WorkAbandonedError, check
from semlex.models.executor import ModelExecutor
from semlex.retriever import model_selection
from semlex.retriever.collection import OPENING_SHARE
from semlex.search import retrieval
from semlex.search.query_vector import EMBEDDING_SHARE
from semlex.store.postgres.snapshot import Snapshot
from semlex.store.query.leg import PlainKeywordLeg, Statement
from semlex.testing import HashEmbedder
from semlex.types.results import SearchResult
from tests.support.databases import execute
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled, ids_of
from tests.support.waiting import LIMIT, eventually, held

COUNT = 60
CHUNK = "semlex.default_collection_chunk"
VECTORS = "semlex.default_collection_embedding_1"
SECRET = "zebra stripes"  # noqa: S105 - a text
DEADLINE = 600.0


class Faulty:
    """Fails, or waits, or answers nonsense when it is told to; else as usual."""

    error = answer = None

    def __init__(self, *given):
        super().__init__(*given)
        self.free, self.seen = threading.Event(), []
        self.free.set()

    def set_answer(self):
        assert self.free.wait(LIMIT)
        if self.error is not None:
            raise self.error
        return self.answer


class FailingEmbedder(Faulty, HashEmbedder):
    def embed_query(self, text):
        answer = self.set_answer()
        return super().embed_query(text) if answer is None else answer


class FakeReranker(Faulty):
    """Prefers the highest number in a text."""

    identity = "fake reranker 1"

    def score(self, query, texts):
        self.seen.append(list(texts))
        answer = self.set_answer()
        return np.array([int(text.split()[-1]) / COUNT for text in texts], np.float32) if answer is None else answer


@pytest.fixture
def embedder():
    return FailingEmbedder(8)


@pytest.fixture
def reranker():
    return FakeReranker()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def retriever(database_url, embedder, reranker, clock):
    """60 documents; after each test both legs answer again, on the same retriever."""
    texts = {f"d{n}": f"text number {n}" for n in range(COUNT)}
    async with filled(database_url, texts, embedder, reranker, clock=clock, max_connections=2) as made:
        yield made
        embedder.error = embedder.answer = None
        [[has_words]] = execute(database_url, "SELECT to_regclass('semlex.default_collection_posting') IS NOT NULL")
        results = await made.search("text number 7", 3, rerank=False, mode=None if has_words else "vector")
        assert (len(results), results.warnings) == (3, [])


@contextmanager
def unset(event):
    """Waits for the event last until the end of the block."""
    event.clear()
    try:
        yield
    finally:
        event.set()


def told(error):
    return "".join(traceback.format_exception(error)) + repr(error)


async def test_an_embedder_that_fails_or_answers_nonsense(retriever, embedder):
    errors = (RuntimeError(SECRET), ModelError("the model is broken"), MemoryError(), OSError(SECRET))
    nonsense = (np.full(8, np.nan, np.float32), np.zeros(8, np.float32))
    for embedder.error, embedder.answer in (*((one, None) for one in errors), *((None, one) for one in nonsense)):
        results = await retriever.search("text number 7", 3, rerank=False)
        assert (results.mode, results.requested_mode, len(results)) == ("keyword", "hybrid", 3), embedder.error
        assert (results.embedding_model, results.fusion) == (None, None)
        assert not any(np.isnan(one.keyword_score or 0.0) for one in results)
        [warning] = results.warnings
        assert "the vector search did not answer" in warning
        assert SECRET not in warning
        with pytest.raises(ModelError) as caught:
            await retriever.search("text number 7", mode="vector", rerank=False)
        assert SECRET not in str(caught.value)
    embedder.answer = np.ones(9, np.float32)
    with pytest.raises(ModelMismatchError, match=r"9 dimensions.*8"):
        await retriever.search("text number 7", rerank=False)


async def test_models_that_are_late(retriever, embedder, reranker, clock):
    with unset(embedder.free):
        searching = retriever.search("text number 7", 3, rerank=False, deadline=DEADLINE)
        results = await clock.expire(DEADLINE * EMBEDDING_SHARE, searching)
        assert (results.mode, len(results)) == ("keyword", 3)
        assert "longer than the deadline" in results.warnings[0]
    # Another query: the vector of the first one came late, but it came, and is known now.
    with unset(embedder.free):
        searching = retriever.search("text number 8", mode="vector", rerank=False, deadline=DEADLINE)
        with pytest.raises(SearchTimeoutError, match="deadline"):
            await clock.expire(DEADLINE, searching)
    fused = ids_of(await retriever.search("text number 7", 5, rerank=False))
    with unset(reranker.free):
        results = await clock.expire(DEADLINE, retriever.search("text number 7", 5, deadline=DEADLINE))
    assert (ids_of(results), results.reranker_model) == (fused, None)
    assert "missed the deadline" in results.warnings[0]


async def test_a_models_own_time_out_is_no_deadline(retriever, embedder, reranker):
    embedder.error = reranker.error = TimeoutError(SECRET)
    for deadline in (None, DEADLINE):
        results = await retriever.search("text number 7", 3, deadline=deadline)
        assert (results.mode, len(results)) == ("keyword", 3)
        assert "embedding the query failed: TimeoutError" in results.warnings[1]
        assert "the reranker failed (TimeoutError)" in results.warnings[0]
        assert not any("deadline" in warning or SECRET in warning for warning in results.warnings)
        with pytest.raises(ModelError, match="TimeoutError"):
            await retriever.search("text number 7", mode="vector", deadline=deadline)


async def test_reranking_orders_the_best_candidates(retriever, reranker):
    asked = partial(retriever.search, "text number 7", tuning={"candidates": COUNT})
    fused = await asked(20, rerank=False)
    assert (fused.reranker_model, reranker.seen) == (None, [])
    results = await asked(5, rerank_weight=1)
    # The best 4 x top_k of the fusion are judged, and the best of these come back.
    assert reranker.seen == [[one.content for one in fused]]
    numbers = sorted((int(one.id[1:]) for one in fused), reverse=True)[:5]
    assert ids_of(results) == [f"d{number}" for number in numbers]
    assert results.reranker_model == "fake reranker 1"
    assert [one.rank for one in results] == [1, 2, 3, 4, 5]
    for one, number in zip(results, numbers, strict=True):
        assert one.rerank_score == one.metadata["rerank_score"] == pytest.approx(number / COUNT)
        assert one.fused_score is not None
    assert ids_of(await asked(5, rerank_weight=0)) == ids_of(fused[:5])
    mixed = await asked(20)
    assert [one.mixed_score for one in mixed] == sorted((one.mixed_score for one in mixed), reverse=True)
    assert None not in {one.rerank_score for one in mixed}
    reranker.answer = np.full(20, 0.5, np.float32)  # equal judgements keep the order
    assert ids_of(await asked(5)) == ids_of(fused[:5])
    reranker.answer = np.linspace(-9, 4, 12, dtype=np.float32)  # scores may be of any size
    results = await asked(3, rerank_weight=1)
    assert (results.warnings, results.reranker_model) == ([], reranker.identity)
    assert [hit.rerank_score for hit in results] == [float(score) for score in reranker.answer[:-4:-1]]
    again = [SearchResult(**{one.name: getattr(hit, one.name) for one in fields(hit)}) for hit in results]
    assert again == list(results)
    for hit in results:
        assert replace(hit, rank=1).rerank_score == hit.metadata["rerank_score"] == hit.rerank_score


async def test_a_reranker_that_fails(retriever, reranker):
    fused = ids_of(await retriever.search("text number 7", 5, rerank=False))
    nonsense = (np.ones(3, np.float32), np.full(20, np.nan, np.float32), np.ones((20, 2), np.float32), [SECRET])
    errors = (RuntimeError(SECRET), ModelError(SECRET))
    for reranker.error, reranker.answer in (*((one, None) for one in errors), *((None, one) for one in nonsense)):
        results = await retriever.search("text number 7", 5)
        assert ids_of(results) == fused
        assert results.reranker_model is None
        assert [one.rerank_score for one in results] == [None] * 5
        assert "the reranker failed" in results.warnings[0]
        assert SECRET not in results.warnings[0]


async def test_a_reranker_that_opens_late(database_url, reranker, monkeypatch):
    clock, free, choose, opening = ManualClock(), threading.Event(), model_selection.choose_reranker, []

    def slow(*arguments, **options):
        opening.append(1)
        assert free.wait(LIMIT)
        return choose(*arguments, **options)

    monkeypatch.setattr(model_selection, "choose_reranker", slow)
    texts, seconds = {f"d{n}": f"text number {n}" for n in range(4)}, DEADLINE * OPENING_SHARE
    async with filled(database_url, texts, 8, reranker, clock=clock) as retriever:
        for options in ({}, {"rerank": True}):
            results = await clock.expire(seconds, retriever.search("text", 3, deadline=DEADLINE, **options))
            assert (results.mode, len(results), results.reranker_model) == ("hybrid", 3, None)
            assert results.warnings == ["the reranker was not loaded in time: hits are in the order of the fusion"]
        with pytest.raises(SearchTimeoutError, match="min_rerank needs it"):
            await clock.expire(seconds, retriever.search("text", min_rerank=0.1, deadline=DEADLINE))
        free.set()
        assert (await retriever.search("text", 3, deadline=DEADLINE)).reranker_model == reranker.identity
        assert opening == [1]


async def test_a_leg_that_fails(retriever, embedder, database_url):
    execute(database_url, f"ALTER TABLE {VECTORS} RENAME TO elsewhere")
    results = await retriever.search("text number 7", 3, rerank=False)
    assert (results.mode, len(results)) == ("keyword", 3)
    assert "the vector search did not answer" in results.warnings[0]
    execute(database_url, "ALTER TABLE semlex.elsewhere RENAME TO default_collection_embedding_1")
    execute(database_url, "DROP TABLE semlex.default_collection_posting")
    results = await retriever.search("text number 7", 3, rerank=False)
    assert (results.mode, len(results)) == ("vector", 3)
    assert "the keyword search did not answer" in results.warnings[0]
    with pytest.raises(StoreError) as caught:
        await retriever.search("text number 7", mode="keyword", rerank=False)
    assert caught.value.sqlstate == "42P01"
    embedder.error = RuntimeError(SECRET)
    with pytest.raises((StoreError, ModelError)) as failure:
        await retriever.search(f"text number 7 {SECRET}", rerank=False)
    assert SECRET not in told(failure.value)


@pytest.mark.slow
async def test_a_vector_leg_that_is_late(retriever, database_url, monkeypatch):
    await retriever.search("text number 7", 3, rerank=False)  # which indexes there are is known from now on
    limit, limits = Snapshot.limit, []

    async def short_for_both_legs(self, seconds):
        limits.append(seconds)
        await limit(self, 2.0 if len(limits) == 1 else seconds)

    monkeypatch.setattr(Snapshot, "limit", short_for_both_legs)
    with held(database_url, VECTORS):
        results = await retriever.search("text number 7", 3, rerank=False, deadline=DEADLINE)
        assert (results.mode, len(results)) == ("keyword", 3)
        assert "the vector search did not answer" in results.warnings[0]
        assert "deadline" in results.warnings[0]
        # Both legs together, the one that is left, the rows.
        assert limits == [DEADLINE * retrieval.LEGS_SHARE / 2, DEADLINE * retrieval.LEGS_SHARE / 2, DEADLINE]
        limits.append(None)
        with pytest.raises(SearchTimeoutError, match="deadline"):
            await retriever.search("text number 7", mode="vector", rerank=False, deadline=0.3)  # expires


@pytest.mark.slow
async def test_no_answer_before_the_deadline_of_a_first_search(retriever, database_url):
    for mode in ("vector", "keyword", None):
        with held(database_url, CHUNK), pytest.raises(SearchTimeoutError, match="deadline") as caught:
            await retriever.search(f"text {SECRET}", mode=mode, rerank=False, deadline=0.5)  # expires
        assert SECRET not in told(caught.value)


@pytest.mark.slow
async def test_an_exact_look_again_that_is_late_leaves_the_first_answer(retriever, monkeypatch):
    """The index found too few rows; the exact scan that looks for more takes too long."""
    real, exact = retrieval.vector_leg, []

    class Slow(PlainKeywordLeg):
        name = "vector"
        settings: ClassVar = {"statement_timeout": 200}  # expires
        statements = (Statement(sql.SQL("SELECT pg_sleep(100)").format(), {}),)

    def slow(*arguments, **options):
        leg = real(*arguments, **options)
        assert options["plan"] == "scan"
        exact.append(leg)
        return Slow()

    await retriever.indexes.create()
    monkeypatch.setattr(retrieval, "vector_leg", slow)
    results = await retriever.search("text number 7", 30, mode="vector", rerank=False, deadline=DEADLINE)
    assert (len(exact), len(results)) == (1, 30)


async def test_a_users_connection_is_usable_after_a_leg_failed(database_url):
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        filled(None, {"a": "text"}, connection=connection) as retriever,
        connection.transaction(),
    ):
        await connection.execute("CREATE TABLE own (n int)")
        await connection.execute("DROP TABLE semlex.default_collection_posting")
        results = await retriever.search("text")
        assert (results.mode, ids_of(results)) == ("vector", ["a"])
        await connection.execute("INSERT INTO own VALUES (1)")
    assert execute(database_url, "SELECT count(*) FROM own") == [(1,)]


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
                check()
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


class CountingEmbedder(HashEmbedder):
    """Records the queries that it embeds."""

    def __init__(self, dimensions):
        super().__init__(dimensions)
        self.asked = []

    def embed_query(self, text):
        self.asked.append(text)
        return super().embed_query(text)


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "a "]), max_size=40), st.integers(0, 4))
def test_equal_to_the_model_and_to_a_plain_list_of_the_last_queries(queries, capacity):
    cache, model, kept = QueryEmbeddingCache(capacity), CountingEmbedder(16), OrderedDict()
    misses = []
    for query in queries:
        assert np.array_equal(cache.embed(model, model.identity.key, query), HashEmbedder(16).embed_query(query))
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
    cache, model = QueryEmbeddingCache(), Mock(dimensions=16)
    model.embed_query.side_effect = ModelError("not yet")
    with pytest.raises(ModelError):
        cache.embed(model, "key", "query")
    model.embed_query.side_effect = None
    for answer in (np.full(16, np.nan), np.zeros(16), np.ones(15), np.ones((1, 16)), np.eye(16)[0]):
        assert cache.figures.entries == 0
        model.embed_query.return_value = answer.astype(np.float32)
        assert cache.embed(model, "key", "query").shape == answer.shape
    assert cache.figures.entries == 1
    kinds = ((one, f"must be an int; got a {type(one).__name__}") for one in (1.5, True, "many"))
    for capacity, message in ((-1, "at least 0"), *kinds):
        with pytest.raises(ConfigurationError, match=message):
            QueryEmbeddingCache(capacity)


async def test_a_repeated_search_does_not_ask_the_model_again(database_url):
    model, texts = CountingEmbedder(16), {"a": "a banana is yellow", "b": "a plum is blue"}
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
