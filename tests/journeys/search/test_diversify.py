"""Hits in an order that is relevant and varied, by the vectors that are stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from semlex import SearchResult, SyncRetriever
from semlex.errors import ConfigurationError
from semlex.testing import HashEmbedder

IDS = [f"chunk {number}" for number in range(8)]


@pytest.fixture
def retriever(database_url):
    with SyncRetriever(database_url, HashEmbedder(16), use_reranking=False) as opened:
        texts = ["keys are rotated", "keys are rotated often", "a banana is yellow", "keys are kept"]
        opened.add_texts(texts, ids=["rotated", "often", "banana", "kept"])
        yield opened


def ids(hits):
    return [hit.id for hit in hits]


def test_by_stored_vectors(retriever):
    hits = retriever.search("keys are rotated", 4)
    assert ids(retriever.diversify(hits, 0)) == ids(hits)
    varied = retriever.diversify(hits, 1)
    assert varied[0] is hits[0]
    assert ids(varied)[1] == "banana"
    assert sorted(ids(varied)) == sorted(ids(hits))
    assert retriever.diversify([]) == []


def test_what_has_no_vector_or_is_gone_keeps_its_place(retriever):
    hits = retriever.search("keys are rotated", 4)
    retriever.delete([hits[1].id])
    varied = retriever.diversify(hits, 1)
    assert varied[1] is hits[1]
    assert ids(varied)[2] == "banana"


def is_greedy(order, scores, vectors, diversity):
    """Whether each place has one of the greatest gains among those that were left, by plain sums."""
    relevance = [(score - min(scores)) / (max(scores) - min(scores)) for score in scores]
    chosen, left = [0], set(range(1, len(scores)))
    for place in order[1:]:
        gains = {
            one: (1 - diversity) * relevance[one]
            - diversity * max(float(vectors[one] @ vectors[two]) for two in chosen)
            for one in left
        }
        if gains[place] < max(gains.values()) - 1e-9:
            return False
        chosen.append(place)
        left.remove(place)
    return order[0] == 0 and not left


@pytest.fixture(scope="module")
def shared(new_database):
    with SyncRetriever(new_database(), "none", keyword="none") as opened:
        yield opened


@pytest.mark.timeout(3600)
@given(arrays(np.float32, (8, 3), elements=st.integers(-3, 3)), st.integers(0, 4))
def test_each_next_one_gains_most(shared, drawn, quarters):
    drawn[:, 0] += 4  # no vector is 0
    shared.add_texts(["text"] * len(IDS), ids=IDS, embeddings=drawn)
    scores = [1 - place / 8 for place in range(len(IDS))]
    hits = [SearchResult("text", id=name, rank=place + 1, fused_score=scores[place]) for place, name in enumerate(IDS)]
    unit = drawn.astype(np.float64) / np.linalg.norm(drawn.astype(np.float64), axis=1, keepdims=True)
    order = [IDS.index(hit.id) for hit in shared.diversify(hits, quarters / 4)]
    assert is_greedy(order, scores, unit, quarters / 4)


def test_other_things_are_refused(retriever):
    with pytest.raises(ConfigurationError, match=r"hits\[0\]"):
        retriever.diversify(["rotated"])
    with pytest.raises(ConfigurationError, match="diversity must be between 0 and 1"):
        retriever.diversify([], 1.5)
