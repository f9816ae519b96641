"""Fusion against slow twins, and the properties that every fusion of rankings has."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core

IDS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20)
RANKING = st.lists(IDS, max_size=30)
RANKINGS = st.lists(RANKING, max_size=5)
WEIGHT = st.floats(0, 1e6)


def arrays(lists, dtype=np.int64):
    return [np.array(values, dtype=dtype) for values in lists]


def best_places(ranking):
    places = {}
    for place, number in enumerate(ranking):
        places.setdefault(number, place)
    return places


def sorted_totals(totals):
    return sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))


def slow_rrf(rankings, weights, k):
    totals = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        for number, place in best_places(ranking).items():
            totals[number] = totals.get(number, 0.0) + weight / (k + (place + 1))
    return sorted_totals(totals)


def slow_linear(rankings, scores, weights):
    totals = {}
    for ranking, values, weight in zip(rankings, scores, weights, strict=True):
        found = {number: values[place] for number, place in best_places(ranking).items()}
        for number, value in found.items():
            least, greatest = min(found.values()), max(found.values())
            if least == greatest:
                share = 1.0
            elif math.isfinite(greatest - least):
                share = (value - least) / (greatest - least)
            else:
                share = (value / 2 - least / 2) / (greatest / 2 - least / 2)
            totals[number] = totals.get(number, 0.0) + weight * share
    return sorted_totals(totals)


def pairs(answer):
    ids, scores = answer
    assert ids.dtype == np.int64
    assert scores.dtype == np.float64
    return list(zip(ids.tolist(), scores.tolist(), strict=True))


@given(st.data(), RANKINGS, st.floats(0, 1e6))
def test_rrf_is_its_twin(data, rankings, k):
    weights = data.draw(st.lists(WEIGHT, min_size=len(rankings), max_size=len(rankings)))
    found = pairs(_core.reciprocal_rank_fusion(arrays(rankings), weights=weights, k=k))
    assert found == slow_rrf(rankings, weights, k)


@given(st.data(), st.lists(st.lists(st.tuples(IDS, st.floats(allow_nan=False, allow_infinity=False))), max_size=4))
def test_linear_is_its_twin(data, legs):
    weights = data.draw(st.lists(WEIGHT, min_size=len(legs), max_size=len(legs)))
    rankings = [[number for number, _ in leg] for leg in legs]
    scores = [[score for _, score in leg] for leg in legs]
    found = pairs(_core.linear_fusion(arrays(rankings), arrays(scores, np.float64), weights=weights))
    assert found == slow_linear(rankings, scores, weights)


@given(RANKINGS)
def test_the_defaults_are_those_of_the_paper(rankings):
    found = pairs(_core.reciprocal_rank_fusion(arrays(rankings)))
    assert found == slow_rrf(rankings, [1.0] * len(rankings), 60.0)


@given(RANKINGS, st.integers(0, 200))
def test_a_limit_is_a_prefix(rankings, limit):
    whole = pairs(_core.reciprocal_rank_fusion(arrays(rankings)))
    assert pairs(_core.reciprocal_rank_fusion(arrays(rankings), limit=limit)) == whole[:limit]


@given(st.data(), RANKINGS)
def test_the_order_of_the_lists_does_not_matter(data, rankings):
    # Whole weights over powers of two: sums are exact in any order.
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(rankings), max_size=len(rankings)))
    numbers = data.draw(st.permutations(range(len(rankings))))
    straight = dict(pairs(_core.reciprocal_rank_fusion(arrays(rankings), weights=weights)))
    shuffled = _core.reciprocal_rank_fusion(
        arrays([rankings[n] for n in numbers]), weights=[weights[n] for n in numbers]
    )
    found = dict(pairs(shuffled))
    assert found.keys() == straight.keys()
    assert all(math.isclose(found[number], straight[number], rel_tol=1e-12) for number in found)


@given(RANKINGS, st.sampled_from([0.25, 0.5, 2.0, 1024.0]))
def test_scaling_all_weights_scales_all_scores(rankings, factor):
    one = pairs(_core.reciprocal_rank_fusion(arrays(rankings)))
    scaled = pairs(_core.reciprocal_rank_fusion(arrays(rankings), weights=[factor] * len(rankings)))
    assert scaled == [(number, score * factor) for number, score in one]


@given(st.lists(IDS, max_size=30, unique=True))
def test_one_ranking_keeps_its_order(ranking):
    assert _core.reciprocal_rank_fusion(arrays([ranking]))[0].tolist() == ranking


@given(RANKINGS)
def test_repeating_an_id_changes_nothing_but_the_ranks_behind_it(rankings):
    once = pairs(_core.reciprocal_rank_fusion(arrays(rankings)))
    again = pairs(_core.reciprocal_rank_fusion(arrays([ranking + ranking for ranking in rankings])))
    assert again == once


def test_ranks_count_from_one_and_ties_go_to_the_smaller_id():
    ids, scores = _core.reciprocal_rank_fusion(arrays([[7, 3], [3, 7], [5]]), k=1)
    assert ids.tolist() == [3, 7, 5]
    assert scores.tolist() == [1 / 2 + 1 / 3, 1 / 2 + 1 / 3, 1 / 2]


def test_minus_zero_is_zero():
    ids, scores = _core.reciprocal_rank_fusion(arrays([[2], [1]]), weights=[0.0, -0.0])
    assert ids.tolist() == [1, 2]
    assert [math.copysign(1, score) for score in scores] == [1, 1]
    legs = arrays([[0, 1, -1]]), arrays([[0.0, -0.0, 1.0]], np.float64)
    ids, scores = _core.linear_fusion(*legs, weights=[0.0])
    assert ids.tolist() == [-1, 0, 1]
    assert [math.copysign(1, score) for score in scores] == [1, 1, 1]


def test_scores_that_are_all_equal_count_as_one():
    ids, scores = _core.linear_fusion(arrays([[4, 2]]), arrays([[-3.0, -3.0]], np.float64), weights=[0.5])
    assert (ids.tolist(), scores.tolist()) == ([2, 4], [0.5, 0.5])


def test_no_ranking_gives_nothing():
    assert pairs(_core.reciprocal_rank_fusion([])) == pairs(_core.linear_fusion([], [])) == []


def test_large_rankings_and_strided_arrays():
    numbers = np.random.default_rng(0).permutation(20_000)
    fused = _core.reciprocal_rank_fusion([numbers[::2], numbers[::-3]])
    assert pairs(fused) == slow_rrf([numbers[::2].tolist(), numbers[::-3].tolist()], [1.0, 1.0], 60.0)


ONE = [np.array([1, 2])]
HALF = [np.array([0.5, 0.25])]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _core.reciprocal_rank_fusion(ONE, weights=[math.nan]), r"weights\[0\]: must be finite.*NaN"),
        (lambda: _core.reciprocal_rank_fusion(ONE, weights=[math.inf]), r"weights\[0\]: must be finite.*inf"),
        (lambda: _core.reciprocal_rank_fusion(ONE, weights=[-1.0]), r"weights\[0\]: .*at least 0, found -1"),
        (lambda: _core.reciprocal_rank_fusion(ONE * 2, weights=[1e308] * 2), "weights: their sum must be finite"),
        (lambda: _core.reciprocal_rank_fusion(ONE, weights=[1, 1]), "weights: one per ranking, expected 1, found 2"),
        (lambda: _core.reciprocal_rank_fusion(ONE, k=math.nan), "k: must be finite.*NaN"),
        (lambda: _core.reciprocal_rank_fusion(ONE, k=-1), "k: must be finite and at least 0, found -1"),
        (lambda: _core.reciprocal_rank_fusion(ONE, k=math.inf), "k: must be finite.*inf"),
        (lambda: _core.reciprocal_rank_fusion(ONE, limit=-1), "limit: must be at least 0, found -1"),
        (lambda: _core.reciprocal_rank_fusion([*ONE, np.array([1.0])]), r"rankings\[1\]: .*int64.*found float64"),
        (
            lambda: _core.reciprocal_rank_fusion([np.array([[1]])]),
            r"rankings\[0\]: .*\(n,\); found int64, shape \(1, 1\)",
        ),
        (lambda: _core.reciprocal_rank_fusion([np.array([1], dtype=">i8")]), "foreign byte order"),
        (lambda: _core.linear_fusion(ONE, []), "scores: one per ranking, expected 1, found 0"),
        (lambda: _core.linear_fusion(ONE, [np.array([0.5])]), r"scores\[0\]: .*expected 2, found 1"),
        (lambda: _core.linear_fusion(ONE, [np.array([0.5, math.nan])]), r"scores\[0\]\[1\]: must be finite"),
        (lambda: _core.linear_fusion(ONE, [np.array([math.inf, 1])]), r"scores\[0\]\[0\]: must be finite"),
        (lambda: _core.linear_fusion(ONE, [np.float32([1, 2])]), r"scores\[0\]: .*float64.*found float32"),
        (lambda: _core.linear_fusion(ONE, HALF, weights=[-1.0]), r"weights\[0\]"),
    ],
)
def test_refusals_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_lists_of_numbers_are_refused():
    with pytest.raises(TypeError, match=r"rankings\[0\]: must be a NumPy array of int64"):
        _core.reciprocal_rank_fusion([[1, 2]])
