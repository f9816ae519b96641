"""Sentences of texts, and which of them answer: places, order and scores against what is said of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core

ENGLISH = _core.Analyzer("english")
TEXTS = st.text(st.sampled_from("abé 。.!?\n#-*|`:=\U0001d538\u0301"), max_size=60)
PASSAGES = st.lists(st.tuples(TEXTS, TEXTS), max_size=4)


@given(TEXTS)
def test_sentences_are_slices_in_order_without_blanks_at_their_ends(text):
    end = 0
    for start, stop, kind in _core.split_sentences(text):
        assert end <= start < stop <= len(text)
        assert text[start:stop] == text[start:stop].strip()
        assert kind in {"prose", "heading", "code"}
        end = stop


@given(st.text(st.sampled_from("ab é.\n"), max_size=20), PASSAGES)
def test_every_sentence_is_scored_once_at_its_place(question, passages):
    ranked = _core.rank_sentences(ENGLISH, question, passages)
    places = [(number, *place) for number, (text, _) in enumerate(passages) for place in _core.split_sentences(text)]
    assert [one[:4] for one in ranked] == places
    assert all(score >= 0 and 0 <= own <= 1 + 1e-9 for *_, score, own in ranked)
    assert ranked == _core.rank_sentences(ENGLISH, question, passages)


def test_characters_are_pythons():
    text = "\U0001d538 lion sleeps. It hunts at night."
    sentences = [text[start:end] for start, end, _ in _core.split_sentences(text)]
    assert sentences == ["\U0001d538 lion sleeps.", "It hunts at night."]


def test_titles_speak_for_what_stands_below_them():
    passages = [("It takes three days.", "Bananas"), ("It takes four days.", "Key rotation")]
    scores = [one[4] for one in _core.rank_sentences(ENGLISH, "how long does key rotation take", passages)]
    assert scores[1] > scores[0]


@pytest.mark.parametrize("wrong", ["\udfff", 3])
def test_what_is_no_text_is_refused(wrong):
    with pytest.raises((ValueError, TypeError)):
        _core.split_sentences(wrong)
    with pytest.raises((ValueError, TypeError)):
        _core.rank_sentences(ENGLISH, wrong, [])
