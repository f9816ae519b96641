"""The order of reranked hits: the reranker's score mixed with the fused score."""

import math
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.search.fusion import Candidate
from semlex.search.rerank import at_least, by_scores, mixed_scores
from semlex.types.results import SearchResult

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
PAIRS = st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=30)


def ordered(pairs, weight):
    """Pairs of fused and reranker's score, reranked; ids are places in the order of the fusion."""
    by_fusion = sorted(pairs, key=lambda pair: -pair[0])
    hits = [
        (Candidate((UUID(int=0), str(place)), fused_score=fused), SearchResult("text", id=str(place)))
        for place, (fused, _) in enumerate(by_fusion)
    ]
    scores = np.array([score for _, score in by_fusion], dtype=np.float32)
    return by_scores(hits, scores, mixed_scores(hits, scores, weight), weight)


def places(hits):
    return [int(hit.id) for _, hit in hits]


@given(PAIRS)
def test_with_weight_1_the_reranker_decides_and_with_0_the_fusion(pairs):
    assert places(ordered(pairs, 0)) == list(range(len(pairs)))
    scores = [score for _, score in sorted(pairs, key=lambda pair: -pair[0])]
    assert places(ordered(pairs, 1)) == sorted(range(len(pairs)), key=lambda place: -scores[place])


@given(PAIRS, st.floats(0, 1))
def test_a_hit_that_is_better_in_both_is_never_below(pairs, weight):
    hits = ordered(pairs, weight)
    for place, (one, hit) in enumerate(hits):
        for other, below in hits[place + 1 :]:
            better = (one.order_score >= other.order_score) or (hit.rerank_score or 0) >= (below.rerank_score or 0)
            assert better, (hit, below)
    assert all(hit.mixed_score is not None and math.isfinite(hit.mixed_score) for _, hit in hits)


@given(PAIRS, st.floats(0, 1))
def test_equal_scores_of_one_side_leave_the_order_to_the_other(pairs, weight):
    assert places(ordered([(fused, 0.5) for fused, _ in pairs], weight)) == list(range(len(pairs)))
    if weight > 0:
        scores = [score for _, score in pairs]
        expected = sorted(range(len(pairs)), key=lambda place: -scores[place])
        assert places(ordered([(0.1, score) for score in scores], weight)) == expected


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_a_single_hit_has_the_mixed_score_0(weight):
    ((_, hit),) = ordered([(0.9, 0.25)], weight)
    assert (hit.rerank_score, hit.mixed_score) == (0.25, 0.0)


def test_the_mixed_score_is_the_weighted_sum_of_both():
    hits = ordered([(3.0, 0.0), (1.0, 1.0)], 0.75)  # z: 1 and -1; -1 and 1
    assert [(hit.id, hit.mixed_score) for _, hit in hits] == [("1", 0.5), ("0", -0.5)]


def test_a_minimum_sees_the_rerankers_own_score():
    hits = ordered([(9.0, 0.2), (1.0, 0.4), (0.0, 0.9)], 0.5)
    kept, _ = at_least(hits, 0.3, "model")
    assert {hit.rerank_score for _, hit in kept} == {np.float32(0.4).item(), np.float32(0.9).item()}
