"""Whether a collection holds what was searched for: learned curves, and the judgement in words."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.evaluation.calibrate import area, brier, calibration_error, cross_validated, fitted
from semlex.retriever.handle import read_curve, write_curve
from semlex.types import confidence
from semlex.types.results import KnowledgeResults, SearchResult, SearchResults
from tests.support.curves import curve

cosines = st.floats(-1, 1, width=32)
pairs = st.lists(st.tuples(cosines, st.booleans()), min_size=1, max_size=60)


def columns(found):
    return np.array([one for one, _ in found], dtype=np.float64), np.array([is_so for _, is_so in found], dtype=bool)


@given(pairs, st.lists(cosines, min_size=2, max_size=20))
def test_whatever_was_judged_a_greater_cosine_never_has_a_smaller_confidence(found, asked):
    learned = curve(*fitted(*columns(found)))
    probabilities = [learned.probability(cosine) for cosine in sorted(asked)]
    assert probabilities == sorted(probabilities)
    assert all(0 <= probability <= 1 for probability in probabilities)


@given(st.floats(0, 1e6), st.floats(-1e6, 1e6), st.lists(st.floats(-1, 1), min_size=2, max_size=50))
def test_rounding_keeps_the_order_of_neighbours(slope, intercept, asked):
    made = curve(slope, intercept)
    near = sorted(asked + [float(np.nextafter(cosine, 2)) for cosine in asked])
    probabilities = [made.probability(cosine) for cosine in near]
    assert probabilities == sorted(probabilities)


@given(pairs)
def test_no_other_line_fits_better(found):
    """A step in any direction from where Newton's method has ended makes the likelihood no greater."""
    values, relevant = columns(found)
    slope, intercept = fitted(values, relevant)
    n, m = int(relevant.sum()), int((~relevant).sum())
    targets = np.where(relevant, (n + 1) / (n + 2), 1 / (m + 2))

    def loss(slope, intercept):
        logits = slope * values + intercept
        return float(np.sum(np.logaddexp(0, logits) - targets * logits))

    best, middle = loss(slope, intercept), float(values.mean())
    for turn in (0.0, *((-0.01, 0.01) if slope else (0.01,))):
        for shift in (-0.01, 0.0, 0.01):
            # Turned about the middle of the cosines: a slope of 0 was chosen among those that do not fall.
            assert best <= loss(slope + turn, intercept - turn * middle + shift) + 1e-6


def test_known_judgements_are_learned():
    slope, intercept = fitted(np.full(1000, 0.25), np.arange(1000) < 300)
    assert slope == 0
    assert curve(slope, intercept).probability(0.9) == pytest.approx(0.3, abs=0.002)
    random = np.random.default_rng(7)
    values = random.uniform(0, 1, 20_000)
    relevant = random.random(20_000) < 1 / (1 + np.exp(-(8 * values - 5)))
    assert fitted(values, relevant) == (pytest.approx(8, abs=0.4), pytest.approx(-5, abs=0.3))
    figures = cross_validated(values, relevant, np.arange(20_000) // 10, 5)
    assert figures.ece < 0.02
    assert figures.brier < figures.brier_base
    assert figures.auc == pytest.approx(figures.auc_cosine)
    values = np.array([0.2, 0.8] * 500)
    learned = curve(*fitted(values, values > 0.5))
    assert learned.probability(0.2) < 0.01
    assert learned.probability(0.8) > 0.99
    # Twenty confidences in ten bins of two: every second one is relevant, so each bin is half right.
    confidences = np.arange(20) / 20
    relevant = np.arange(20) % 2 == 1
    expected = np.mean([abs(confidences[i : i + 2].mean() - 0.5) for i in range(0, 20, 2)])
    assert calibration_error(confidences, relevant) == pytest.approx(expected)
    for is_relevant in [True, False]:
        slope, intercept = fitted(np.linspace(0, 1, 98), np.full(98, is_relevant))
        learned = curve(slope, intercept)
        expected = 99 / 100 if is_relevant else 1 / 100
        assert [learned.probability(cosine) for cosine in (0.0, 0.5, 1.0)] == pytest.approx([expected] * 3, abs=1e-6)


@given(pairs)
def test_figures_are_those_of_slow_twins(found):
    values, relevant = columns(found)
    probabilities = (values + 1) / 2
    assert brier(probabilities, relevant) == pytest.approx(
        sum((p - y) ** 2 for p, y in zip(probabilities, relevant, strict=True)) / len(found)
    )
    up = [cosine for cosine, is_so in found if is_so]
    down = [cosine for cosine, is_so in found if not is_so]
    if up and down:
        won = sum((a > b) + (a == b) / 2 for a in up for b in down)
        assert area(values, relevant) == pytest.approx(won / (len(up) * len(down)))
    assert 0 <= calibration_error(probabilities, relevant) <= 1
    assert calibration_error(np.full(len(found), 0.5), relevant) == pytest.approx(abs(relevant.mean() - 0.5))


@given(
    st.floats(0, 1e9),
    st.floats(-1e9, 1e9),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20),
    st.integers(1, 10**9),
    st.none() | st.floats(0, 1),
)
def test_a_curve_comes_back_from_json(slope, intercept, name, count, auc):
    figures = confidence.CurveFigures(ece=0.1, ece_base=0.2, brier=0.3, brier_base=0.4, auc=auc, auc_cosine=auc)
    made = curve(slope, intercept, identity_key=name, model=name, pairs=count, figures=figures)
    assert confidence.ConfidenceCurve.from_dict(json.loads(json.dumps(made.to_dict())), "it") == made


@given(st.floats(0.01, 100), st.floats(-50, 50), st.floats(0.001, 0.999))
def test_a_similarity_is_the_least_that_reaches_a_probability(slope, intercept, probability):
    made = curve(slope, intercept)
    least = made.similarity(probability)
    if least is None:
        assert made.probability(1.0) < probability
    else:
        assert -1 <= least <= 1
        assert made.probability(least) >= probability - 1e-9
        if least > -1:
            assert made.probability(least - 1e-3) < probability


def test_what_is_no_curve_or_probability_is_refused():
    for probability in [0, 1, -0.5, 2]:
        with pytest.raises(ConfigurationError, match="between 0 and 1"):
            curve().similarity(probability)
    for change, told in [
        ({"format": 2}, "format that this semlex does not know"),
        ({"method": "splines"}, "format that this semlex does not know"),
        ({"format": "semlex dump"}, "is not a calibration"),
        ({"parameters": {"slope": -1, "intercept": 0}}, "slope is below 0"),
        ({"parameters": {"slope": "much", "intercept": 0}}, r"damaged calibration \(ValueError\)"),
        ({"parameters": {"slope": 1e999, "intercept": 0}}, "damaged"),
        ({"parameters": {"slope": 1}}, r"damaged calibration \(KeyError\)"),
        ({"learned_at": "yesterday"}, "damaged"),
        ({"figures": {}}, "damaged"), ({"figures": None}, "damaged"), ({"depth": None}, "damaged"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=f"it .*{told}"):
            confidence.ConfidenceCurve.from_dict(curve().to_dict() | change, "it")


def test_files(tmp_path):
    file = tmp_path / "curve.json"
    write_curve(file, curve())
    assert read_curve(file) == curve()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_curve(tmp_path / "none" / "curve.json", curve())
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_curve(tmp_path / "other.json")
    for content in (b"", b"\xff\xfe", b"[]", b"{" * 100_000, file.read_bytes()[:-20]):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match="is not a calibration"):
            read_curve(file)


# --- the judgement in words -------------------------------------------------------------------------------------------

ORDER = ["unlikely", "unsure", "likely"]
EVIDENCE = st.builds(
    confidence.Evidence,
    words=st.none() | st.floats(0, 8),
    overlap=st.none() | st.floats(0, 1),
    similarity=st.none() | st.floats(-1, 1),
    background=st.none() | st.floats(-1, 1),
    nearness=st.none() | st.floats(0, 6),
)
MODELS = st.sampled_from([None, "unknown", *confidence.CURVES])


@given(EVIDENCE, MODELS, st.floats(0, 8))
def test_more_of_the_words_never_make_an_answer_less_likely(evidence, model, more):
    one = confidence.support_of(evidence, model, coverage=0.5, chunks=100)
    if evidence.words is not None:
        better = confidence.support_of(replace(evidence, words=evidence.words + more), model, coverage=0.5, chunks=100)
        assert ORDER.index(better) >= ORDER.index(one)
    assert confidence.support_of(evidence, model, coverage=1.0, chunks=1) == "likely"
    assert confidence.support_of(evidence, model, coverage=0.1, chunks=9) != "unlikely"
    if evidence.words is None and model not in confidence.CURVES:
        assert one == "unsure"


def test_parts_that_are_not_known_and_results_in_words():
    curve = confidence.SupportCurve(intercept=1.0, words=2.0, nearness=-0.5)
    assert curve.parts == ("words", "nearness")
    assert curve.logit(confidence.Evidence(words=3, nearness=2, overlap=0.5)) == pytest.approx(1 + 6 - 1)
    assert curve.logit(confidence.Evidence(words=3)) is None
    assert [
        confidence.support_of(confidence.Evidence(words=words), None, coverage=0.5, chunks=10) for words in (0, 1, 2)
    ] == ORDER
    assert confidence.support_of(confidence.Evidence(words=0), None, coverage=0.09, chunks=1) == "unlikely"
    assert confidence.WORDS.parts == ("words",)
    for curves in confidence.CURVES.values():
        assert any(set(curve.parts) == {one.name for one in fields(confidence.Evidence)} for curve in curves)
    hit = SearchResult("text", id="a", rank=1)
    found = SearchResults([hit], support="unlikely")
    assert repr(found).startswith("SearchResults, hybrid, probably not in here: 1 hit\n")
    assert ">probably not in here</p>" in found._repr_html_()
    assert found.to_dict()["support"] == "unlikely"
    assert (SearchResults().support, SearchResults([hit]).support) == ("unlikely", "unsure")
    assert set(confidence.SUPPORT_TEXT) == set(ORDER)
    for judged, together in [
        (["unlikely", "unlikely"], "unlikely"), (["unlikely", "unsure"], "unsure"),
        (["unsure", "unlikely", "likely"], "likely"), ([], "unsure"),
    ]:  # fmt: skip
        searched = {str(number): SearchResults(support=one) for number, one in enumerate(judged)}
        assert KnowledgeResults(searched=searched).support == together
