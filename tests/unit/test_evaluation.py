"""Measures, significance, weights, judgements, curves of confidence, and the judgement whether something was found."""

import itertools
import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.evaluation import datasets, metrics
from semlex.evaluation.calibrate import area, brier, calibration_error, cross_validated, fitted
from semlex.evaluation.metrics import bootstrap_interval, randomisation_p
from semlex.evaluation.tune import GRID, Parts, choose_weight, linear_parts, ndcg_by_weight, ndcg_of_legs
from semlex.retriever.handle import read_curve, write_curve
from semlex.types import confidence
from semlex.types.results import KnowledgeResults, SearchResult, SearchResults
from tests.support.curves import curve

documents = st.sampled_from([f"d{number}" for number in range(12)])
# Few different scores, so that there are ties; two of them differ in float64 only.
scores = st.sampled_from([-3.0, 0.0, 0.5, 0.5 + 1e-9, 1.0, 7.25, 1e300])
rankings = st.dictionaries(documents, scores, max_size=12)
judged = st.dictionaries(documents, st.integers(-1, 3), min_size=1, max_size=12)
pairs = st.lists(st.tuples(rankings, judged), min_size=1, max_size=4)


def twin(name, ranking, judgements, k):
    """One query, as the definition says it."""
    order = sorted(ranking, reverse=True)
    with np.errstate(over="ignore"):
        order.sort(key=lambda document: -np.float32(ranking[document]))  # stable: ids stay descending
    found = [max(0, judgements.get(document, 0)) for document in order[:k]]
    relevant = sum(value > 0 for value in judgements.values())
    if name == "ndcg":
        ideal = sorted((value for value in judgements.values() if value > 0), reverse=True)[:k]
        best = sum(value / math.log2(rank + 1) for rank, value in enumerate(ideal, 1))
        return sum(value / math.log2(rank + 1) for rank, value in enumerate(found, 1)) / best if best else 0.0
    if name == "recall":
        return sum(value > 0 for value in found) / relevant if relevant else 0.0
    if name == "mrr":
        return next((1 / rank for rank, value in enumerate(found, 1) if value > 0), 0.0)
    return float(any(value > 0 for value in found))


@pytest.mark.parametrize("name", ["ndcg", "recall", "mrr", "success"])
@given(pairs=pairs, k=st.integers(1, 15))
def test_measures_equal_the_twin(name, pairs, k):
    # A query without hits may be missing.
    run = {f"q{number}": ranking for number, (ranking, _) in enumerate(pairs) if ranking or number % 2}
    judgements = {f"q{number}": judged for number, (_, judged) in enumerate(pairs)}
    function, depth = metrics.measure_named(f"{name}@{k}")
    assert depth == k
    expected = [twin(name, ranking, judged, k) for ranking, judged in pairs]
    np.testing.assert_allclose(function(run, judgements, k), expected, rtol=1e-12, atol=0)


RUN = {
    "q1": {"a": 3.0, "b": 2.0, "c": 2.0, "d": 1.5, "e": 1.0},
    "q2": {"x": 0.9, "a": 0.9, "b": 0.1},
    "q3": {"u": 1.0, "v": 0.5},
    "q4": {"b": 5.0, "a": 4.0, "c": 3.0, "d": 2.0, "e": 1.0, "f": 0.5},
}
JUDGEMENTS = {
    "q1": {"b": 1, "c": 2, "e": 0, "z": 3},
    "q2": {"a": 1},
    "q3": {"w": 1},
    "q4": {"a": -1, "d": 1, "f": 2, "c": 0},
}


# --- significance --------------------------------------------------------------------------------------------------
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_randomisation_nears_the_count_of_all_swaps(differences):
    observed = abs(sum(differences))
    swaps = list(itertools.product([-1, 1], repeat=len(differences)))
    signed = [abs(sum(sign * value for sign, value in zip(swap, differences, strict=True))) for swap in swaps]
    exact = sum(value >= observed for value in signed) / len(swaps)
    found = randomisation_p(differences, [0] * len(differences))
    assert abs(found - exact) < 0.025  # five standard deviations of 10,000 rounds


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_p_is_two_sided_repeatable_and_never_zero(values):
    one, other = zip(*values, strict=True)
    p = randomisation_p(one, other, rounds=500)
    assert 1 / 501 <= p <= 1
    assert p == randomisation_p(one, other, rounds=500)
    assert abs(p - randomisation_p(other, one, rounds=500)) < 1e-12


def test_significance_measures_and_linear_parts_by_hand(monkeypatch):
    assert randomisation_p([0.5, 0.25], [0.5, 0.25]) == 1.0
    assert randomisation_p(np.ones(40), np.zeros(40)) == 1 / 10_001
    with pytest.raises(ConfigurationError, match="same shape"):
        randomisation_p([1.0], [1.0, 2.0])
    random = np.random.default_rng(3)
    one, other = random.random(50), random.random(50)
    whole = randomisation_p(one, other), bootstrap_interval(one, other)
    monkeypatch.setattr("semlex.evaluation.metrics._BLOCK_VALUES", 5_000)
    parts = randomisation_p(one, other), bootstrap_interval(one, other)
    assert parts[0] == pytest.approx(whole[0], abs=0.03)
    assert parts[1] == pytest.approx(whole[1], abs=0.01)
    for name, values in [  # as trec_eval prints them for RUN and JUDGEMENTS
        ("ndcg@3", [0.369994, 0.6309298, 0.0, 0.0]),
        ("ndcg@10", [0.369994, 0.6309298, 0.0, 0.4344817]),
        ("recall@1", [0.0, 0.0, 0.0, 0.0]),
        ("recall@3", [0.6666667, 1.0, 0.0, 0.0]),
        ("recall@10", [0.6666667, 1.0, 0.0, 1.0]),
        ("mrr@10", [0.5, 0.5, 0.0, 0.25]), ("success@3", [1.0, 1.0, 0.0, 0.0]), ("success@10", [1.0, 1.0, 0.0, 1.0]),
    ]:  # fmt: skip
        function, depth = metrics.measure_named(name)
        np.testing.assert_allclose(function(RUN, JUDGEMENTS, depth), values, atol=5e-8)
    for name in ("ndcg", "ndcg@", "ndcg@0", "map@10", "ndcg@x", "ndcg@²"):
        with pytest.raises(ConfigurationError, match="a measure is one of"):
            metrics.measure_named(name)
    with pytest.raises(ConfigurationError, match="at least 1; got 0"):
        metrics.ndcg({}, {"q": {"a": 1}}, 0)
    parts = Parts(["a", "a", "b", "a"], np.array([4.0, 3.0, 2.0, 1.0]), np.zeros(4), np.zeros((2, 4)))
    assert ndcg_by_weight(parts, {"b": 1}, 2)[0] == pytest.approx(1 / math.log2(3))
    parts = linear_parts([{"a": 6.0, "c": 4.0, "b": 2.0}, {"c": 0.5}])
    assert parts.ids == ["a", "b", "c"]
    assert (parts.keyword.tolist(), parts.vector.tolist()) == ([1.0, 0.0, 0.5], [0.0, 0.0, 1.0])
    assert parts.ranks[0].tolist() == [1.0, 3.0, 2.0]
    assert np.isnan(parts.ranks[1]).tolist() == [True, True, False]
    assert linear_parts([{}, {}]).ids == []


@pytest.mark.slow
def test_interval_is_that_of_a_normal_mean():
    random = np.random.default_rng(4)
    differences = random.normal(0.1, 1.0, 2_000)
    low, high = bootstrap_interval(differences, np.zeros(2_000))
    error = differences.std() / math.sqrt(2_000)
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.15 * error)
    with pytest.raises(ConfigurationError, match="at least one"):
        bootstrap_interval([], [])


# --- weights -------------------------------------------------------------------------------------------------------

parts_of_a_query = st.lists(
    st.tuples(documents, st.integers(0, 4), st.integers(-4, 4)), max_size=12, unique_by=lambda candidate: candidate[0]
)


@given(parts_of_a_query, judged, st.integers(1, 12))
def test_ndcg_by_weight_is_ndcg_of_the_fused_ranking(candidates, judgements, k):
    # Ids descending, so that the order of ties (as given) is the measure's order of ties.
    candidates = sorted(candidates, reverse=True)
    keyword = np.array([candidate[1] for candidate in candidates], dtype=np.float64)
    vector = np.array([candidate[2] for candidate in candidates], dtype=np.float64)
    # The vector leg finds all, in this order; the keyword leg every other one, in the opposite order.
    ranks = np.full((2, len(candidates)), np.nan)
    ranks[0, ::2] = np.arange(len(candidates), 0, -1)[::2]
    ranks[1] = np.arange(len(candidates))
    parts = Parts([candidate[0] for candidate in candidates], keyword, vector, ranks)
    found = ndcg_by_weight(parts, judgements, k)
    by_leg = [
        {name: -float(rank) for name, rank in zip(parts.ids, row, strict=True) if not np.isnan(rank)} for row in ranks
    ]
    expected_legs = [metrics.ndcg({"q": leg}, {"q": judgements}, k)[0] for leg in by_leg]
    assert ndcg_of_legs(parts, judgements, k).tolist() == pytest.approx(expected_legs)
    for place, weight in enumerate(GRID):
        fused = {name: (1 - weight) * k_part + weight * v_part for name, k_part, v_part in candidates}
        steps = [high - low for low, high in itertools.pairwise(sorted(fused.values()))]
        # float32, which the measure compares in, may tie or swap what float64 tells apart.
        if not any(0 < step < 1e-4 for step in steps):
            expected = metrics.ndcg({"q": fused}, {"q": judgements}, k)[0]
            assert found[place] == pytest.approx(expected, abs=1e-12)


def columns(queries, better, gain):
    """Values of queries that are the same at every weight but one."""
    noise = np.random.default_rng(5).uniform(0.3, 0.6, queries)
    values = np.repeat(noise[:, None], len(GRID), axis=1)
    values[:, better] += gain
    return values


def chosen(values, **options):
    return choose_weight(values, np.tile([0.1, 0.2], (len(values), 1)), fusion="linear", k=10, **options)


def test_a_gain_is_suggested_where_it_holds():
    report = chosen(columns(60, 14, 0.2))
    assert (report.suggested, report.best, report.keep_default) == (0.7, 0.7, False)
    assert report.fold_weights == [0.7] * 5
    assert report.gain == pytest.approx(0.2)
    assert report.interval == pytest.approx((0.2, 0.2))
    assert report.p < 0.001
    assert report.held_out - report.default_ndcg == pytest.approx(report.gain)
    assert (report.better_leg, report.leg_ndcg) == ("vector", pytest.approx(0.2))
    assert report.p_against_leg < 0.001
    report = chosen(columns(29, 14, 0.2))  # too few queries
    assert (report.suggested, report.best, report.keep_default) == (0.5, 0.7, True)
    assert "29 judged queries" in report.reason
    report = chosen(columns(40, 0, 0.0), default=0.3)  # no difference
    assert (report.suggested, report.best, report.gain, report.p) == (0.3, 0.3, 0.0, 1.0)
    assert report.reason == "no other weight is better on these queries"
    # Pure noise: some weight looks best on all queries, and does not hold.
    report = chosen(np.random.default_rng(6).random((60, len(GRID))))
    assert (report.keep_default, report.suggested) == (True, 0.5)
    assert report.curve[report.best] > report.held_out
    values = columns(60, 10, 0.0)
    values[:3, 14] += 0.3  # a gain of three queries
    report = chosen(values)
    assert report.gain == pytest.approx(0.015)
    assert report.p == pytest.approx(0.25, abs=0.02)
    assert (report.keep_default, report.suggested, report.best) == (True, 0.5, 0.7)
    assert "may be chance" in report.reason
    # One query alone prefers weight 0; whoever looked at it while measuring it would gain.
    values = columns(40, 10, 0.0)
    values[7, 0] += 0.3
    report = chosen(values)
    assert (report.gain, report.keep_default, report.best) == (0.0, True, 0.0)
    assert "not better on the rest" in report.reason
    assert sorted(report.fold_weights) == [0.0, 0.0, 0.0, 0.0, 0.5]


# --- judgements -------------------------------------------------------------------------------------------------------

questions = st.text(max_size=30)
ids = st.text(max_size=20)
notes = st.lists(st.tuples(questions, ids, st.none() | st.integers(0, 3)), max_size=20)


@given(notes)
def test_what_was_noted_last_is_what_is_read(tmp_path_factory, given):
    folder = datasets.JudgementFolder(tmp_path_factory.mktemp("judged") / "new")
    wanted = {}
    for question, judged, value in given:
        text = datasets.question_text(question)
        if not text or not datasets.is_column(judged):
            with pytest.raises(ConfigurationError):
                folder.note(question, {judged: value})
            continue
        own = wanted.setdefault(text, {})
        own.pop(judged, None)
        if value is not None:
            own[judged] = value
        assert folder.note(question, {judged: value}) == own
    assert folder.read() == {text: own for text, own in wanted.items() if own}


def test_judgements_are_files_of_eval_and_whole_numbers_from_0_to_3(tmp_path):
    folder = datasets.JudgementFolder(tmp_path)
    folder.note("how\tare keys\nrotated?", {"a b": 3, "c": 0})
    folder.note("where are they?", {"c": 1})
    folder.note("how are keys rotated?", {"c": None})
    assert (tmp_path / datasets.QUERIES_FILE).read_text("utf-8") == "q1\thow are keys rotated?\nq2\twhere are they?\n"
    assert (tmp_path / datasets.QRELS_FILE).read_text("utf-8") == f"{datasets.HEADER}\nq1\ta b\t3\nq2\tc\t1\n"
    found = datasets.read_judged_set(tmp_path)
    assert found.judgements == {"q1": {"a b": 3}, "q2": {"c": 1}}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([datasets.QUERIES_FILE, datasets.QRELS_FILE])
    for value in (-1, 4, 1.0, True):
        with pytest.raises(ConfigurationError, match="relevance"):
            datasets.JudgementFolder(tmp_path / "empty").note("q", {"a": value})
    assert not any((tmp_path / "empty").glob("*"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        datasets.JudgementFolder(tmp_path / "file").note("q", {"a": 1})


# --- confidence -------------------------------------------------------------------------------------------------------

cosines = st.floats(-1, 1, width=32)
judged_cosines = st.lists(st.tuples(cosines, st.booleans()), min_size=1, max_size=60)


def as_arrays(found):
    return np.array([one for one, _ in found], dtype=np.float64), np.array([is_so for _, is_so in found], dtype=bool)


@given(judged_cosines, st.lists(st.floats(-1, 1), min_size=2, max_size=50), st.floats(0, 1e6), st.floats(-1e6, 1e6))
def test_a_greater_cosine_never_has_a_smaller_confidence_not_even_a_neighbour(found, asked, slope, intercept):
    near = sorted(asked + [float(np.nextafter(cosine, 2)) for cosine in asked])
    for made in (curve(*fitted(*as_arrays(found))), curve(slope, intercept)):
        probabilities = [made.probability(cosine) for cosine in near]
        assert probabilities == sorted(probabilities)
        assert all(0 <= probability <= 1 for probability in probabilities)


@given(judged_cosines)
def test_no_other_line_fits_better_and_figures_are_those_of_slow_twins(found):
    # A step in any direction from where Newton's method has ended makes the likelihood no greater.
    values, relevant = as_arrays(found)
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
    probabilities = (values + 1) / 2
    squares = [(p - y) ** 2 for p, y in zip(probabilities, relevant, strict=True)]
    assert brier(probabilities, relevant) == pytest.approx(sum(squares) / len(found))
    up, down = ([cosine for cosine, is_so in found if is_so == wanted] for wanted in (True, False))
    if up and down:
        won = sum((a > b) + (a == b) / 2 for a in up for b in down)
        assert area(values, relevant) == pytest.approx(won / (len(up) * len(down)))
    assert 0 <= calibration_error(probabilities, relevant) <= 1
    assert calibration_error(np.full(len(found), 0.5), relevant) == pytest.approx(abs(relevant.mean() - 0.5))


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


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20)


@given(st.floats(0, 1e9), st.floats(-1e9, 1e9), names, st.integers(1, 10**9), st.none() | st.floats(0, 1))
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


def test_refused_curves_unknown_evidence_and_the_words_of_support():
    for probability in [0, 1, -0.5, 2]:
        with pytest.raises(ConfigurationError, match="above 0 and below 1"):
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
    known = confidence.SupportCurve(1.0, {"words": 2.0, "nearness": -0.5})
    assert known.logit(confidence.Evidence(words=3, nearness=2, overlap=0.5)) == pytest.approx(1 + 6 - 1)
    assert known.logit(confidence.Evidence(words=3)) is None
    evidence = [confidence.Evidence(words=words) for words in (0, 1, 2)]
    assert [confidence.support_of(one, None, coverage=0.5, chunks=10) for one in evidence] == ORDER
    assert confidence.support_of(confidence.Evidence(words=0), None, coverage=0.09, chunks=1) == "unlikely"
    assert list(confidence.WORDS.weights) == ["words"]
    for curves in confidence.CURVES.values():
        assert any(set(known.weights) == {one.name for one in fields(confidence.Evidence)} for known in curves)
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


ORDER = ["unlikely", "unsure", "likely"]
ENDS = {"words": (0, 8), "overlap": (0, 1), "similarity": (-1, 1), "background": (-1, 1), "nearness": (0, 6)}
EVIDENCE = st.builds(confidence.Evidence, **{name: st.none() | st.floats(*ends) for name, ends in ENDS.items()})
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
