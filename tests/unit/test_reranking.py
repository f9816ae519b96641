"""The order of reranked hits, and the reranker that counts shared words."""

import itertools
import math
import unicodedata
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex.errors import ValidationError, WorkAbandonedError
from semlex.models import cancellation
from semlex.reranking.base import Reranker
from semlex.reranking.term_overlap import TermOverlapReranker
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


@given(PAIRS, st.floats(0, 1))
def test_the_two_scores_decide_together(pairs, weight):
    def by(scores):
        return sorted(range(len(pairs)), key=lambda place: -scores[place])

    in_order = list(range(len(pairs)))
    assert places(ordered(pairs, 0)) == in_order
    assert places(ordered(pairs, 1)) == by([score for _, score in sorted(pairs, key=lambda pair: -pair[0])])
    hits = ordered(pairs, weight)
    for place, (one, hit) in enumerate(hits):
        for other, below in hits[place + 1 :]:
            better = (one.order_score >= other.order_score) or (hit.rerank_score or 0) >= (below.rerank_score or 0)
            assert better, (hit, below)
    assert all(hit.mixed_score is not None and math.isfinite(hit.mixed_score) for _, hit in hits)
    # Equal scores of one side leave the order to the other.
    assert places(ordered([(fused, 0.5) for fused, _ in pairs], weight)) == in_order
    scores = [score for _, score in pairs]
    assert weight == 0 or places(ordered([(0.1, score) for score in scores], weight)) == by(scores)


def test_mixed_scores_and_term_overlap():
    hits = ordered([(3.0, 0.0), (1.0, 1.0)], 0.75)  # z: 1 and -1; -1 and 1
    assert [(hit.id, hit.mixed_score) for _, hit in hits] == [("1", 0.5), ("0", -0.5)]
    hits = ordered([(9.0, 0.2), (1.0, 0.4), (0.0, 0.9)], 0.5)
    kept, _ = at_least(hits, 0.3, "model")
    assert {hit.rerank_score for _, hit in kept} == {np.float32(0.4).item(), np.float32(0.9).item()}
    for weight in [0.0, 0.5, 1.0]:
        ((_, hit),) = ordered([(0.9, 0.25)], weight)
        assert (hit.rerank_score, hit.mixed_score) == (0.25, 0.0)
    assert isinstance(RERANKER, Reranker)
    assert RERANKER.identity == "term-overlap/1"
    RERANKER.close()
    assert RERANKER.score("red", []).shape == (0,)
    with pytest.raises(ValidationError, match="row 1: text holds half of a surrogate pair"):
        RERANKER.score("red", ["fine", "\udfff"])
    with pytest.raises(ValidationError, match="must be a"):
        RERANKER.score(None, ["fine"])
    flag = cancellation.Flag()
    flag.set()
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        RERANKER.score("red", ["red"])


WORDS = st.lists(st.sampled_from(["red", "Red", "blue", "stone", "Straße", "strasse", "ﬁne", "fine", "数据", "-", "x"]))
SENTENCES = WORDS.map(" ".join)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
RERANKER = TermOverlapReranker()


def words(text):
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [folded[start:end] for start, end in _core.word_offsets(folded)]


def slow_score(query, text):
    """The definition, over every stretch of the text."""
    wanted, held = set(words(query)), words(text)
    found = wanted & set(held)
    if not found:
        return 0.0
    stretches = itertools.combinations(range(len(held) + 1), 2)
    shortest = min(end - start for start, end in stretches if found <= set(held[start:end]))
    return (len(found) - 1 + len(found) / shortest) / len(wanted)


@given(SENTENCES | ANY, st.lists(SENTENCES | ANY, max_size=5))
def test_scores_equal_the_definition(query, texts):
    scores = RERANKER.score(query, texts)
    assert scores.dtype == np.float32
    assert scores.tolist() == np.array([slow_score(query, text) for text in texts], dtype=np.float32).tolist()
    assert ((scores >= 0) & (scores <= 1)).all()
