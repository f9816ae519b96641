"""Shares of shingles, sentences and identities of rows, against slow twins and what is said of them."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core

WORDS = st.sampled_from(["a", "A", "b", "été", "漢字", "3.5", "key", "-", "  ", "\n", "👩‍👧"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=6)


def slow_shingles(text):
    words = [text[start:end].lower() for start, end in _core.word_offsets(text).tolist()]
    if not words:
        return {("", text.strip())}
    return {tuple(words[place : place + 5]) for place in range(max(1, len(words) - 4))}


@given(TEXTS)
def test_equals_the_definition(texts):
    sets = [slow_shingles(text) for text in texts]
    expected = [[len(one & other) / len(one) for other in sets] for one in sets]
    found = _core.shared_shingles(texts)
    assert found.shape == (len(texts), len(texts))
    assert found.dtype == np.float64
    assert found.tolist() == expected


def test_refusals():
    for wrong in ([1], ["a", None], "abc\ud800", 5):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            _core.shared_shingles(wrong)
    with pytest.raises(ValueError, match="expected 2 texts in each, found 1"):
        _core.hash_rows("x", [["a", "b"], ["c"]])
    with pytest.raises(UnicodeEncodeError):
        _core.hash_rows("x", [["\ud800"]])
    assert _core.hash_rows("x", []) == _core.hash_rows("x", [[]]) == []
    for wrong in ["\udfff", 3]:
        with pytest.raises((ValueError, TypeError)):
            _core.split_sentences(wrong)
        with pytest.raises((ValueError, TypeError)):
            _core.rank_sentences(ENGLISH, wrong, [])


# --- sentences --------------------------------------------------------------------------------------------------------


ENGLISH = _core.Analyzer("english")
PROSE = st.text(st.sampled_from("abé 。.!?\n#-*|`:=\U0001d538\u0301"), max_size=60)
PASSAGES = st.lists(st.tuples(PROSE, PROSE), max_size=4)


@given(PROSE)
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


def test_characters_are_pythons_and_titles_speak_for_what_is_below_them():
    text = "\U0001d538 lion sleeps. It hunts at night."
    sentences = [text[start:end] for start, end, _ in _core.split_sentences(text)]
    assert sentences == ["\U0001d538 lion sleeps.", "It hunts at night."]
    passages = [("It takes three days.", "Bananas"), ("It takes four days.", "Key rotation")]
    scores = [one[4] for one in _core.rank_sentences(ENGLISH, "how long does key rotation take", passages)]
    assert scores[1] > scores[0]


# --- identities of rows -----------------------------------------------------------------------------------------------


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def twin(label, fields):
    return hashlib.sha256(b"\0".join(part.encode() for part in (label, *fields))).digest()[:16]


@given(TEXT, st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=20))
def test_equal_to_the_plain_python(label, rows):
    columns = [[row[number] for row in rows] for number in range(3)]
    assert _core.hash_rows(label, columns) == [twin(label, list(row)) for row in rows]
    assert [_core.hash_rows(label, [[field] for field in row])[0] for row in rows] == _core.hash_rows(label, columns)
