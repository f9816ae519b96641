"""When a part of a search fails or is late, the rest answers and says so; when nothing is left, the error is clear."""

import threading
import traceback
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import ClassVar

import numpy as np
import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from semlex.errors import ModelError, ModelMismatchError, SearchTimeoutError, StoreError
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
from tests.support.waiting import LIMIT, held

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

    def close(self):
        """Nothing to release."""


@pytest.fixture
def embedder():
    return FailingEmbedder(8)


@pytest.fixture
def reranker():
    return FakeReranker()


@pytest.fixture
def clock():
    return ManualClock()


@pytest_asyncio.fixture
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
    """Whoever waits for the event waits until the end of the block."""
    event.clear()
    yield
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
async def test_no_answer_before_the_deadline(retriever, database_url):
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
