"""Shares of shingles against a slow twin."""

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


def test_other_things_than_texts_are_refused():
    for wrong in ([1], ["a", None], "abc\ud800", 5):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            _core.shared_shingles(wrong)
