"""Thresholds: every hit reaches them, no candidate that does is missing, and an empty answer says why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex import Document, TermOverlapReranker
from semlex.errors import ConfigurationError
from tests.support.retrievers import ids_of, sync_filled, sync_opened

WORDS = ("sea", "hill", "river", "stone", "cloud", "grass", "wind", "light")
DIMENSIONS = 16


class FailingReranker:
    """One whose server is away."""

    identity = "failing"

    def score(self, query, texts):
        raise RuntimeError


@pytest.fixture(scope="module")
def texts(new_database):
    """A database with 200 texts, 10 of them without a vector; tests only read it."""
    chance = np.random.default_rng(4)
    url = new_database()
    with sync_filled(url, {f"d{number}": " ".join(chance.choice(WORDS, 6)) for number in range(190)}, DIMENSIONS):
        pass
    with sync_filled(url, {f"bare{number}": f"sea hill {number}" for number in range(10)}, "none"):
        pass
    return url


@pytest.fixture(scope="module")
def retriever(texts):
    with sync_opened(texts, DIMENSIONS) as retriever:
        yield retriever


@pytest.fixture(scope="module")
def reranked(texts):
    with sync_opened(texts, DIMENSIONS, TermOverlapReranker()) as retriever:
        yield retriever


queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


@pytest.mark.slow
@given(query=queries, least=st.floats(-1, 1), top_k=st.integers(1, 50), mode=st.sampled_from(["hybrid", "vector"]))
def test_the_hits_are_those_of_a_search_without_it_that_reach_it(retriever, query, least, top_k, mode):
    """In their order, and among all candidates: not among the first `top_k` alone."""
    every = retriever.search(query, 200, mode=mode, tuning={"candidates": 200})
    found = retriever.search(query, top_k, mode=mode, tuning={"candidates": 200}, min_similarity=least)
    reached = [hit.id for hit in every if hit.vector_score is not None and hit.vector_score >= least]
    assert ids_of(found) == reached[:top_k]
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    if not reached:
        assert any("no candidate reaches min_similarity" in warning for warning in found.warnings)
        assert found.best_similarity is None


@pytest.mark.slow
@example(query="sea stone", least=1.0)  # more than ten texts hold both words
@given(query=queries, least=st.floats(0, 1))
def test_the_rerankers_score_is_one_as_well(reranked, query, least):
    """Among all that the reranker gets, which are four times as many as wanted."""
    page = reranked.search(query, 10, max_results=40, tuning={"candidates": 200})
    every = [*page]
    while page.next_cursor:
        page = reranked.search_page(page.next_cursor)
        every += page
    found = reranked.search(query, 10, min_rerank=least, tuning={"candidates": 200})
    assert ids_of(found) == [hit.id for hit in every if hit.rerank_score >= least][:10]
    if not found:
        assert any("no candidate reaches min_rerank" in warning for warning in found.warnings)


def test_many_at_once_in_groups_and_without_a_vector(retriever):
    queries = ("sea hill", "wind light")
    for query, results in zip(queries, retriever.search_many(queries, 20, min_similarity=0.4), strict=True):
        assert ids_of(results) == ids_of(retriever.search(query, 20, min_similarity=0.4))
        assert all((hit.vector_score or -1) >= 0.4 for hit in results)
    grouped = retriever.search("sea hill", 5, group_by="document", min_similarity=0.4)
    assert all((hit.vector_score or -1) >= 0.4 for document in grouped.documents for hit in document.hits)
    assert any(hit.id.startswith("bare") for hit in retriever.search("sea hill 3", 20))
    found = retriever.search("sea hill 3", 200, tuning={"candidates": 200}, min_similarity=-1)
    assert len(found) > 0
    assert not any(hit.id.startswith("bare") for hit in found)
    assert any(warning.startswith("10 chunks were left out") for warning in found.warnings)


def test_a_reranker_that_fails_lets_nothing_through(texts):
    with sync_opened(texts, DIMENSIONS, FailingReranker()) as retriever:
        assert len(retriever.search("sea", 5)) == 5
        found = retriever.search("sea", 5, min_rerank=0.1)
        assert found == []
        assert any("the reranker did not answer" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"min_similarity": 1.5}, "min_similarity .*-1 and 1"),
        ({"min_similarity": "high"}, "min_similarity .*float"),
        ({"min_similarity": float("nan")}, "min_similarity .*finite"),
        ({"min_similarity": True}, "min_similarity .*float"),
        ({"min_rerank": float("inf")}, "min_rerank .*finite"),
        ({"min_similarity": 0.5, "mode": "keyword"}, "mode 'keyword'"),
        ({"min_similarity": 0.5, "fusion": "rrf"}, "fusion='score'"),
        ({"min_similarity": 0.5, "max_results": 100}, "cannot be combined"),
        ({"min_rerank": 0.5}, "needs a reranker"),
        ({"min_rerank": 0.5, "rerank": False}, "needs a reranker"),
        ({"rerank": True}, "reranker_model"),
    ],
)
def test_what_no_search_can_keep_is_refused(retriever, options, match):
    with pytest.raises(ConfigurationError, match=match):
        retriever.search("sea", 5, **options)


@pytest.mark.slow
def test_scores_that_a_collection_does_not_have(database_url):
    with sync_opened(database_url, "none", collection="words") as plain:
        plain.add_documents([Document("sea", id="sea")])
        with pytest.raises(ConfigurationError, match="this search has no vector"):
            plain.search("sea", min_similarity=0.5)
    with sync_opened(database_url, "none", collection="far", distance="l2") as far:
        far.add_documents([Document("sea", id="sea")], [[1.0, 0.0]])
        with pytest.raises(ConfigurationError, match="compares by l2"):
            far.search(vector=[1.0, 0.0], min_similarity=0.5)
