"""Vectors of queries that were asked before: the same vectors, fewer calls, a bounded number kept."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import Document, PostgreSQLRetriever
from semlex.embedding.query_cache import CacheFigures, QueryEmbeddingCache
from semlex.errors import ConfigurationError, ModelError
from semlex.testing import HashEmbedder

KEY = HashEmbedder(16).identity.key


class CountingEmbedder(HashEmbedder):
    """Remembers what it was asked."""

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


def test_models_do_not_share_vectors():
    cache, small, large = QueryEmbeddingCache(), CountingEmbedder(8), CountingEmbedder(16)
    assert cache.embed(small, small.identity.key, "query").shape == (8,)
    assert cache.embed(large, large.identity.key, "query").shape == (16,)
    assert cache.figures.hits == 0


def test_a_kept_vector_cannot_be_changed():
    cache, model = QueryEmbeddingCache(), HashEmbedder(8)
    with pytest.raises(ValueError, match="read-only"):
        cache.embed(model, KEY, "query")[0] = 1.0


def test_a_failure_is_not_kept():
    class Failing(CountingEmbedder):
        def embed_query(self, text):
            super().embed_query(text)
            if len(self.asked) == 1:
                raise ModelError("not yet")
            return super().embed_query(text)

    cache, model = QueryEmbeddingCache(), Failing()
    with pytest.raises(ModelError):
        cache.embed(model, KEY, "query")
    assert cache.figures.entries == 0
    assert cache.embed(model, KEY, "query").shape == (16,)


@pytest.mark.parametrize("answer", [np.full(16, np.nan), np.zeros(16), np.ones(15), np.ones((1, 16))])
def test_a_vector_that_cannot_be_used_is_not_kept(answer):
    class Faulty(CountingEmbedder):
        def embed_query(self, text):
            return answer.astype(np.float32)

    cache = QueryEmbeddingCache()
    assert cache.embed(Faulty(), KEY, "query").shape == answer.shape
    assert cache.figures.entries == 0


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        (-1, "at least 0"),
        (1.5, "must be an int; got a float"),
        (True, "must be an int; got a bool"),
        ("many", "must be an int; got a str"),
    ],
)
def test_capacities_that_are_refused(capacity, message):
    with pytest.raises(ConfigurationError, match=message):
        QueryEmbeddingCache(capacity)


async def test_a_repeated_search_does_not_ask_the_model_again(database_url):
    model = CountingEmbedder()
    async with PostgreSQLRetriever(database_url, model, cached_queries=2) as retriever:
        await retriever.add_documents([Document("a banana is yellow"), Document("a plum is blue")])
        first = await retriever.search("yellow banana")
        again = await retriever.search("yellow banana")
        assert [hit.id for hit in again] == [hit.id for hit in first]
        assert (first.query_cached, again.query_cached) == (False, True)
        assert model.asked == ["yellow banana"]
        await retriever.search("blue")
        status = await retriever.status()
        assert status.query_cache == CacheFigures(entries=2, capacity=2, hits=1, misses=2)
        assert status.to_dict()["query_cache"]["hit_rate"] == pytest.approx(1 / 3)
