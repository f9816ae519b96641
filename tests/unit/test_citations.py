"""Quotes looked up in their sources: true ones are found in any spelling, and no other."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.answering.citations import Evidence
from tests.support.quotes import altered_quote, context_of, invented_quote, other_spelling, passage, true_quote

EDGES = " .,;:!?\"'()[]{}“”"
SEEDS = st.integers(0, 2**32)


def found(evidence, text, number, quote):
    citation = evidence.citation(number, quote)
    place = None if citation.char_start is None else text[citation.char_start - 1000 : citation.char_end - 1000]
    return citation, place


@given(SEEDS)
def test_true_quotes_are_found_and_others_are_not(seed):
    draw = random.Random(seed)
    texts = [passage(draw), passage(draw)]
    evidence = Evidence(context_of(texts, first_line=7))
    quote = true_quote(draw, texts[1])
    citation, place = found(evidence, texts[1], 2, quote)
    assert (citation.verdict, place, citation.document) == ("exact", quote, "2.md")
    assert citation.line == 7 + texts[1].count("\n", 0, citation.char_start - 1000)
    citation, place = found(evidence, texts[1], 2, other_spelling(draw, quote))
    assert citation.is_verified
    assert place.strip(EDGES).split() == quote.strip(EDGES).split()
    for wrong, verdicts in ((altered_quote(draw, quote), {"altered"}), (invented_quote(draw, quote), {"not found"})):
        citation, _ = found(evidence, texts[1], 2, wrong)
        # Leaving out one of two equal words leaves a quote that is there.
        assert citation.verdict in verdicts or " ".join(wrong.split()) in " ".join(texts[1].split())
    assert evidence.citation(3, quote).verdict == "unknown source"
    assert not evidence.citation(1, quote).is_verified or quote in texts[0]


TEXT = (
    "Rotate a “key” every ninety\r\ndays, or rota-\ntion fails. You cannot use version 8.5 with the non-blocking  "
    "co\u00adoperate ﬁle. Straße und ÉCOLE; `pip install` costs 1,000 units. 鍵を回す。"
)


@pytest.mark.parametrize(("quote", "verdict", "place"), [
    ("Rotate a “key” every", "exact", "Rotate a “key” every"),
    ('rotate a "KEY" every ninety days', "normalised", "Rotate a “key” every ninety\r\ndays"),
    ("rotation fails", "normalised", "rota-\ntion fails"),
    ("rota-tion fails", "normalised", "rota-\ntion fails"),
    ("cooperate file", "normalised", "co\u00adoperate ﬁle"),
    ("strasse und e\u0301cole", "normalised", "Straße und ÉCOLE"),
    ("pip install costs", "normalised", "pip install` costs"),
    ("every ninety days.", "normalised", "every ninety\r\ndays"),
    ("回す", "exact", "回す"),
    ("or rota", "altered", "or rota-\ntion"),
    ("You can", "altered", "You cannot"),
    ("version 8", "altered", "version 8.5"),
    ("costs 1", "altered", "costs 1,000"),
    ("the blocking", "altered", "the non-blocking"),
    ("Rotate a key each ninety days", "altered", "Rotate a “key” every ninety\r\ndays"),
    ("Rotate one key each ninety days", "not found", None),
    ('Rotate a "key" each ninety days', "altered", "Rotate a “key” every ninety\r\ndays"),
    ('Rotate a "key" ninety days', "altered", "Rotate a “key” every ninety\r\ndays"),
    ('Rotate a very "key" every', "altered", "Rotate a “key” every"),
    ("bananas are yellow", "not found", None),
    ("blocking", "not found", None),
    ("", "not found", None),
    ("...", "not found", None),
    ("Rotate " * 1000, "not found", None),
])  # fmt: skip
def test_examples(quote, verdict, place):
    citation, at = found(Evidence(context_of([TEXT])), TEXT, 1, quote)
    assert (citation.verdict, at) == (verdict, place)


def test_bars_between_the_cells_of_a_table_need_no_quoting():
    text = "ls | sort\n\n| A title | of the page |\n| --- | --- |\n| The first | line is here |\n"
    evidence = Evidence(context_of([text]))
    verdicts = {
        "A title of the page": "normalised",
        "a title | of the page": "normalised",
        "A title | of the page": "exact",
        "The first line is here": "normalised",
        "The last line is here": "altered",
        "ls sort": "altered",
    }
    for quote, verdict in verdicts.items():
        citation, place = found(evidence, text, 1, quote)
        assert citation.verdict == verdict
        assert verdict != "normalised" or place.replace("| ", "").lower() == quote.replace("| ", "").lower()


def test_a_line_is_counted_in_every_form_of_line_ends():
    evidence = Evidence(context_of(["one a\rtwo b\r\nthree c\nfour d"], first_line=10))
    assert [evidence.citation(1, words).line for words in ("one a", "two b", "three c", "four d")] == [10, 11, 12, 13]


def test_a_passage_that_is_no_piece_of_its_document_has_no_place_there():
    context = context_of(["one two three"])
    source = context.sources[0]
    for changes in ({"char_end": source.char_end + 1}, {"char_start": None}, {"line": None, "page": 4}):
        changed = type(source)(**{name: getattr(source, name) for name in source.__slots__} | changes)
        citation = Evidence(type(context)("", (changed,), 1, (), context.results)).citation(1, "two three")
        assert citation.verdict == "exact"
        assert citation.char_start is None or changes == {"line": None, "page": 4}
        assert (citation.line, citation.page) == (changed.line, changed.page)


@given(st.text(max_size=40), st.text(max_size=12))
def test_any_text_has_a_verdict_and_a_verified_place_holds_the_words(text, quote):
    citation, place = found(Evidence(context_of([text])), text, 1, quote)
    if citation.verdict == "exact":
        assert place == quote.strip()
    assert (place is not None) == (citation.verdict in {"exact", "normalised", "altered"})
    if any(map(str.isalnum, text)) and re.fullmatch(r"[a-z ]+", text) and text.strip():
        assert found(Evidence(context_of([text])), text, 1, text)[0].verdict == "exact"
