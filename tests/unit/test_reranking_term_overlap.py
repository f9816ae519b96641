import itertools
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex.errors import ValidationError, WorkAbandonedError
from semlex.models import cancellation
from semlex.reranking.base import Reranker
from semlex.reranking.term_overlap import TermOverlapReranker

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


@given(SENTENCES, st.lists(SENTENCES, max_size=5))
def test_more_of_the_words_always_come_before_fewer(query, texts):
    wanted = set(words(query))
    found = [len(wanted & set(words(text))) for text in texts]
    scores = RERANKER.score(query, texts)
    for first, second in itertools.permutations(range(len(texts)), 2):
        if found[first] > found[second]:
            assert scores[first] > scores[second]


def test_it_is_a_reranker_with_nothing_to_release():
    assert isinstance(RERANKER, Reranker)
    assert RERANKER.identity == "term-overlap/1"
    RERANKER.close()
    assert RERANKER.score("red", []).shape == (0,)


def test_texts_that_cannot_be_read():
    with pytest.raises(ValidationError, match="row 1: text holds half of a surrogate pair"):
        RERANKER.score("red", ["fine", "\udfff"])
    with pytest.raises(ValidationError, match="must be a"):
        RERANKER.score(None, ["fine"])


def test_nobody_waits_any_more():
    flag = cancellation.Flag()
    flag.set()
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        RERANKER.score("red", ["red"])
