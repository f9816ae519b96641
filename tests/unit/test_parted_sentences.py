"""Several sentences that a model wrote as one: parted, each with the quotes that are its own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.answering.answer import WrittenSentence, parted

WORD = st.sampled_from(["keys", "rotate", "vault", "ninety", "days", "Bananas", "8.5", "e.g.", "Dr.", "argv"])
SENTENCE = st.lists(WORD, min_size=1, max_size=6).map(" ".join)
MARKS = st.sampled_from(["", " [1]", "[2]", " [1, 2]", " [3][4]", " [ 12 ]", " [1-3]"])
TEXT = st.lists(st.tuples(SENTENCE, MARKS, st.sampled_from([". ", "! ", "? ", " "])), min_size=1, max_size=5)
QUOTE = ((2, "keys rotate daily"),)
QUOTES = st.lists(st.tuples(st.integers(1, 9), SENTENCE), max_size=5)


@given(parts=TEXT, quotes=QUOTES)
def test_no_word_and_no_quote_is_lost_and_no_number_stays(parts, quotes):
    text = " ".join("".join(f"{words}{mark}{end}" for words, mark, end in parts).split())
    made = list(parted(WrittenSentence(text, tuple(quotes))))
    assert [word for one in made for word in re.findall(r"\w+", one.text)] == [
        word for words, _, _ in parts for word in re.findall(r"\w+", words)
    ]
    assert sorted(quote for one in made for quote in one.quotes) == sorted(quotes)
    assert not any(re.search(r"\[[\d ,-]+\]", one.text) for one in made)
    again = [two for one in made for two in parted(one)]
    assert [one.text for one in again] == [one.text for one in made]


@pytest.mark.parametrize(("text", "quotes", "expected"), [
    ("Rotate keys [1].", ((1, "Rotate"),), [("Rotate keys.", 1)]),
    ("Keys rotate.[2] Bananas are blue.", QUOTE, [("Keys rotate.", 1), ("Bananas are blue.", 0)]),
    ("Bananas are blue. Keys rotate.", QUOTE, [("Bananas are blue.", 0), ("Keys rotate.", 1)]),
    ("Version 8.5 of Dr. Smith, e.g. this one.", (), [("Version 8.5 of Dr. Smith, e.g. this one.", 0)]),
    ("[1]", ((1, "x"),), []),
    ("The list [a] stays.", (), [("The list [a] stays.", 0)]),
])  # fmt: skip
def test_examples(text, quotes, expected):
    assert [(one.text, len(one.quotes)) for one in parted(WrittenSentence(text, quotes))] == expected
