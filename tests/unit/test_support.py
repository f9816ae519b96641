"""Whether a collection probably holds what was searched for."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.types.confidence import CURVES, SUPPORT_TEXT, WORDS, Evidence, SupportCurve, support_of
from semlex.types.results import KnowledgeResults, SearchResult, SearchResults

ORDER = ["unlikely", "unsure", "likely"]
EVIDENCE = st.builds(
    Evidence,
    words=st.none() | st.floats(0, 8),
    overlap=st.none() | st.floats(0, 1),
    similarity=st.none() | st.floats(-1, 1),
    background=st.none() | st.floats(-1, 1),
    nearness=st.none() | st.floats(0, 6),
)
MODELS = st.sampled_from([None, "unknown", *CURVES])


@given(EVIDENCE, MODELS, st.floats(0, 8))
def test_more_of_the_words_never_make_an_answer_less_likely(evidence, model, more):
    one = support_of(evidence, model, coverage=0.5, chunks=100)
    if evidence.words is not None:
        better = support_of(replace(evidence, words=evidence.words + more), model, coverage=0.5, chunks=100)
        assert ORDER.index(better) >= ORDER.index(one)
    assert support_of(evidence, model, coverage=1.0, chunks=1) == "likely"
    assert support_of(evidence, model, coverage=0.1, chunks=9) != "unlikely"
    if evidence.words is None and model not in CURVES:
        assert one == "unsure"


def test_a_part_that_is_not_known_leaves_the_judgement_to_what_is():
    curve = SupportCurve(intercept=1.0, words=2.0, nearness=-0.5)
    assert curve.parts == ("words", "nearness")
    assert curve.logit(Evidence(words=3, nearness=2, overlap=0.5)) == pytest.approx(1 + 6 - 1)
    assert curve.logit(Evidence(words=3)) is None
    assert [support_of(Evidence(words=words), None, coverage=0.5, chunks=10) for words in (0, 1, 2)] == ORDER
    assert support_of(Evidence(words=0), None, coverage=0.09, chunks=1) == "unlikely"
    assert WORDS.parts == ("words",)
    for curves in CURVES.values():
        assert any(set(curve.parts) == {one.name for one in fields(Evidence)} for curve in curves)


def test_results_say_it_in_words():
    hit = SearchResult("text", id="a", rank=1)
    found = SearchResults([hit], support="unlikely")
    assert repr(found).startswith("SearchResults, hybrid, probably not in here: 1 hit\n")
    assert ">probably not in here</p>" in found._repr_html_()
    assert found.to_dict()["support"] == "unlikely"
    assert (SearchResults().support, SearchResults([hit]).support) == ("unlikely", "unsure")
    assert set(SUPPORT_TEXT) == set(ORDER)


@pytest.mark.parametrize(("judged", "together"), [
    (["unlikely", "unlikely"], "unlikely"),
    (["unlikely", "unsure"], "unsure"),
    (["unsure", "unlikely", "likely"], "likely"),
    ([], "unsure"),
])  # fmt: skip
def test_one_collection_with_an_answer_is_enough(judged, together):
    searched = {str(number): SearchResults(support=one) for number, one in enumerate(judged)}
    assert KnowledgeResults(searched=searched).support == together
