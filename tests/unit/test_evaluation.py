"""Measures against a slow twin and trec_eval, significance against all swaps, weights by hand, judgements as noted."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.evaluation import datasets, metrics
from semlex.evaluation.metrics import bootstrap_interval, randomisation_p
from semlex.evaluation.tune import GRID, Parts, choose_weight, linear_parts, ndcg_by_weight, ndcg_of_legs

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


# What trec_eval prints for RUN and JUDGEMENTS.
def test_measures_and_weights_by_hand():
    for name, values in [
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


def test_p_and_blocks(monkeypatch):
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


def test_judgements_are_files_of_eval(tmp_path):
    folder = datasets.JudgementFolder(tmp_path)
    folder.note("how\tare keys\nrotated?", {"a b": 3, "c": 0})
    folder.note("where are they?", {"c": 1})
    folder.note("how are keys rotated?", {"c": None})
    assert (tmp_path / datasets.QUERIES_FILE).read_text("utf-8") == "q1\thow are keys rotated?\nq2\twhere are they?\n"
    assert (tmp_path / datasets.QRELS_FILE).read_text("utf-8") == f"{datasets.HEADER}\nq1\ta b\t3\nq2\tc\t1\n"
    found = datasets.read_judged_set(tmp_path)
    assert found.judgements == {"q1": {"a b": 3}, "q2": {"c": 1}}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([datasets.QUERIES_FILE, datasets.QRELS_FILE])


def test_a_relevance_is_a_whole_number_from_0_to_3_and_a_folder_can_be_written(tmp_path):
    for value in (-1, 4, 1.0, True):
        with pytest.raises(ConfigurationError, match="relevance"):
            datasets.JudgementFolder(tmp_path).note("q", {"a": value})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        datasets.JudgementFolder(tmp_path / "file").note("q", {"a": 1})
