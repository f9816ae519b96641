"""Fusion against slow twins, the properties that every fusion of rankings has, and the weights of the legs."""

import math
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex.embedding.onnx import OnnxEmbedder
from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder
from semlex.embedding.remote import GeminiEmbedder, OpenAIEmbedder
from semlex.embedding.sentence_transformers import SentenceTransformersEmbedder
from semlex.embedding.static import StaticEmbedder
from semlex.errors import ConfigurationError
from semlex.search.fusion import fuse_completed, vector_weight
from semlex.store.query.leg import LegResult, in_key_order
from semlex.store.query.score_calibration import Spread

IDS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20)
RANKINGS = st.lists(st.lists(IDS, max_size=30), max_size=5)
WEIGHT = st.floats(0, 1e6)


def arrays(lists, dtype=np.int64):
    return [np.array(values, dtype=dtype) for values in lists]


def best_places(ranking):
    return {number: ranking.index(number) for number in dict.fromkeys(ranking)}


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


def slow_completed(candidates, mean, deviation, weight):
    best = max([words for _, words in candidates if words > 0], default=None)
    rows = []
    for place, (near, words) in enumerate(candidates):
        by_words = 0.0 if best is None or not words > 0 else (1 - weight) * (words / best)
        by_vector = 0.0 if deviation == 0 or math.isnan(near) else weight * ((near - mean) / deviation / 6) + 0.0
        rows.append((place, by_words + by_vector, by_vector, by_words))
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def complete(candidates, mean=0.0, deviation=1.0, weight=0.5):
    vector, keyword = (np.array([one[leg] for one in candidates], dtype=np.float64) for leg in (0, 1))
    columns = _core.completed_fusion(vector, keyword, mean=mean, deviation=deviation, vector_weight=weight)
    assert [column.dtype for column in columns] == [np.int64] + [np.float64] * 3
    return list(zip(*(column.tolist() for column in columns), strict=True))


def pairs(answer):
    ids, scores = answer
    assert ids.dtype == np.int64
    assert scores.dtype == np.float64
    return list(zip(ids.tolist(), scores.tolist(), strict=True))


@given(st.data(), RANKINGS, st.floats(0, 1e6), st.integers(0, 200))
def test_rrf_is_its_twin(data, rankings, k, limit):
    weights = data.draw(st.lists(WEIGHT, min_size=len(rankings), max_size=len(rankings)))
    expected = slow_rrf(rankings, weights, k)
    assert pairs(_core.reciprocal_rank_fusion(arrays(rankings), weights=weights, k=k)) == expected
    assert pairs(_core.reciprocal_rank_fusion(arrays(rankings), weights=weights, k=k, limit=limit)) == expected[:limit]
    # The defaults are those of the paper.
    assert pairs(_core.reciprocal_rank_fusion(arrays(rankings))) == slow_rrf(rankings, [1.0] * len(rankings), 60.0)


@given(st.data(), st.lists(st.lists(st.tuples(IDS, st.floats(allow_nan=False, allow_infinity=False))), max_size=4))
def test_linear_is_its_twin(data, legs):
    weights = data.draw(st.lists(WEIGHT, min_size=len(legs), max_size=len(legs)))
    rankings = [[number for number, _ in leg] for leg in legs]
    scores = [[score for _, score in leg] for leg in legs]
    found = pairs(_core.linear_fusion(arrays(rankings), arrays(scores, np.float64), weights=weights))
    assert found == slow_linear(rankings, scores, weights)


NEAR, WORDED = (st.sampled_from([math.nan, 0.0, 0.5]) | st.floats(least, 1e6) for least in (-1e6, 0))
DEVIATION = st.just(0.0) | st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(NEAR, WORDED), max_size=30), st.floats(-1e6, 1e6), DEVIATION, st.floats(0, 1))
def test_completed_is_its_twin(candidates, mean, deviation, weight):
    assert complete(candidates, mean, deviation, weight) == slow_completed(candidates, mean, deviation, weight)


def test_ties_weights_and_chunks_that_one_search_did_not_find():
    numbers = np.random.default_rng(0).permutation(20_000)
    fused = _core.reciprocal_rank_fusion([numbers[::2], numbers[::-3]])
    assert pairs(fused) == slow_rrf([numbers[::2].tolist(), numbers[::-3].tolist()], [1.0, 1.0], 60.0)
    ids, scores = _core.reciprocal_rank_fusion(arrays([[7, 3], [3, 7], [5]]), k=1)
    assert ids.tolist() == [3, 7, 5]
    assert scores.tolist() == [1 / 2 + 1 / 3, 1 / 2 + 1 / 3, 1 / 2]
    ids, scores = _core.linear_fusion(arrays([[4, 2]]), arrays([[-3.0, -3.0]], np.float64), weights=[0.5])
    assert (ids.tolist(), scores.tolist()) == ([2, 4], [0.5, 0.5])  # all equal count as one
    ids, scores = _core.reciprocal_rank_fusion(arrays([[2], [1]]), weights=[0.0, -0.0])
    assert (ids.tolist(), [math.copysign(1, score) for score in scores]) == ([1, 2], [1, 1])
    legs = arrays([[0, 1, -1]]), arrays([[0.0, -0.0, 1.0]], np.float64)
    ids, scores = _core.linear_fusion(*legs, weights=[0.0])
    assert (ids.tolist(), [math.copysign(1, score) for score in scores]) == ([-1, 0, 1], [1, 1, 1])
    assert pairs(_core.reciprocal_rank_fusion([])) == pairs(_core.linear_fusion([], [])) == []
    # Cosine .8 where chunks have .2 on average, .1 apart: z = 6, which counts in full.
    found = complete([(0.8, 5.0), (0.2, 10.0), (0.5, 0.0)], mean=0.2, deviation=0.1, weight=0.6)
    assert [row[0] for row in found] == [0, 1, 2]
    assert [value for row in found for value in row[1:]] == pytest.approx([0.8, 0.6, 0.2, 0.4, 0.0, 0.4, 0.3, 0.3, 0.0])
    assert complete([(0.5, 0.0), (1.0, math.nan)]) == [(1, 1 / 12, 1 / 12, 0.0), (0, 1 / 24, 1 / 24, 0.0)]
    assert complete([(0.5, 1.0), (1.0, 2.0)], deviation=0.0) == [(1, 0.5, 0.0, 0.5), (0, 0.25, 0.0, 0.25)]
    # Without a vector a chunk counts as an average one: better than one that is further away than the average.
    assert [row[0] for row in complete([(-0.5, 0.0), (math.nan, 0.0)])] == [1, 0]
    assert complete([]) == []
    for weights, expected in [
        (None, 0.25), ({}, 0.25), ({"vector": 0.7}, 0.7), ({"keyword": 1}, 0.0), ({"keyword": 0.75}, 0.25),
        ({"vector": 3, "keyword": 1}, 0.75), ({"vector": 0, "keyword": 9}, 0.0),
        ({"vector": 1e308, "keyword": 1e308}, 0.5),
    ]:  # fmt: skip
        assert vector_weight(weights, 0.25) == expected
    for weights, declared, message in [
        ({"vector": 0, "keyword": 0.0}, 0.5, "a weight above 0"),
        ({"vector": 1.5}, 0.5, "for one search only must be between 0 and 1; got 1.5"),
        (None, 7, "fusion_weight must be between 0 and 1; got 7"),
        (None, math.nan, "fusion_weight must be between 0 and 1; got nan"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=message):
            vector_weight(weights, declared)
    kinds = (StaticEmbedder, SentenceTransformersEmbedder, OnnxEmbedder, Qwen3EmbeddingEncoder, GeminiEmbedder)
    assert [getattr(kind, "fusion_weight", None) for kind in kinds] == [None, 0.7, 0.7, 0.6, 0.6]
    for model, expected in (("text-embedding-3-small", 0.6), ("Qwen/Qwen3-Embedding-0.6B", 0.6), ("nomic", None)):
        embedder = OpenAIEmbedder(model, "http://127.0.0.1:1/v1", api_key="none")
        assert getattr(embedder, "fusion_weight", None) == expected
        embedder.close()
    # The keyword search has no score for the third chunk, and the vector search none for the first.
    answers = {"vector": answered(KEYS[1:3], [0.9, 0.8]), "keyword": answered(KEYS[:2], [4.0, 2.0])}
    others = {"vector": np.array([2.0, math.nan]), "keyword": np.array([math.nan, 0.9])}
    fused = list(fuse_completed(answers, others, spread=Spread(0.0, 0.3), weight=0.5))
    assert [one.key for one in fused] == [KEYS[number] for number in (0, 1, 2)]
    first, second, third = fused
    assert (first.vector_rank, first.vector_score, first.vector_contribution) == (None, None, 0.0)
    assert (first.keyword_rank, first.keyword_score, first.keyword_contribution) == (1, 4.0, 0.5)
    assert (second.vector_rank, second.keyword_rank, third.keyword_rank, third.keyword_score) == (1, 2, None, None)
    assert all(one.fused_score == one.vector_contribution + one.keyword_contribution for one in fused)
    answers = {"vector": answered(KEYS[:1], [math.inf]), "keyword": answered(KEYS[:1], [1.0])}
    others = {"vector": np.ones(1), "keyword": np.array([math.inf])}
    with pytest.raises(ConfigurationError, match=r"vector\[0\]"):
        fuse_completed(answers, others, spread=Spread(0.0, 1.0), weight=0.5)


ONE = [np.array([1, 2])]
HALF = [np.array([0.5, 0.25])]


def test_refusals_name_the_argument():
    ranks, linear, fused = _core.reciprocal_rank_fusion, _core.linear_fusion, _core.completed_fusion
    sides = (*ONE, *HALF, *HALF), (*ONE, *HALF, HALF[0][:1])
    at = {"mean": 0, "deviation": 1, "vector_weight": 0.5}
    for call, message in [
        (lambda: ranks(ONE, weights=[math.nan]), r"weights\[0\]: must be finite.*NaN"),
        (lambda: ranks(ONE, weights=[math.inf]), r"weights\[0\]: must be finite.*inf"),
        (lambda: ranks(ONE, weights=[-1.0]), r"weights\[0\]: .*at least 0, found -1"),
        (lambda: ranks(ONE * 2, weights=[1e308] * 2), "weights: their sum must be finite"),
        (lambda: ranks(ONE, weights=[1, 1]), "weights: one per ranking, expected 1, found 2"),
        (lambda: ranks(ONE, k=math.nan), "k: must be finite.*NaN"),
        (lambda: ranks(ONE, k=math.inf), "k: must be finite.*inf"),
        (lambda: ranks(ONE, k=-1), "k: must be finite and at least 0, found -1"),
        (lambda: ranks(ONE, limit=-1), "limit: must be at least 0, found -1"),
        (lambda: ranks([*ONE, np.array([1.0])]), r"rankings\[1\]: .*int64.*found float64"),
        (lambda: ranks([np.array([[1]])]), r"rankings\[0\]: .*\(n,\); found int64, shape \(1, 1\)"),
        (lambda: ranks([np.array([1], dtype=">i8")]), "foreign byte order"),
        (lambda: linear(ONE, []), "scores: one per ranking, expected 1, found 0"),
        (lambda: linear(ONE, [np.array([0.5])]), r"scores\[0\]: .*expected 2, found 1"),
        (lambda: linear(ONE, [np.array([0.5, math.nan])]), r"scores\[0\]\[1\]: must be finite"),
        (lambda: linear(ONE, [np.array([math.inf, 1])]), r"scores\[0\]\[0\]: must be finite"),
        (lambda: linear(ONE, [np.float32([1, 2])]), r"scores\[0\]: .*float64.*found float32"),
        (lambda: linear(ONE, HALF, weights=[-1.0]), r"weights\[0\]"),
        (lambda: complete([(0.1, 0.0), (math.inf, 0.0)]), r"vector\[1\]: must be finite, or NaN for none"),
        (lambda: complete([(0.1, math.inf)]), r"keyword\[0\]: .*at least 0, or NaN for none, found inf"),
        (lambda: complete([(0.1, -1.0)]), r"keyword\[0\]: .*found -1"),
        (lambda: complete([], mean=math.nan), "mean, deviation: must be finite.*NaN"),
        (lambda: complete([], deviation=-1.0), "the deviation at least 0, found 0, -1"),
        (lambda: complete([], weight=1.5), "vector_weight: must be 0 to 1, found 1.5"),
        (lambda: fused(*HALF, HALF[0][:1], **at), "keyword: one score per candidate, expected 2, found 1"),
        (lambda: _core.fuse_legs(*sides, **at), r"scores\[1\]: .*expected 2, found 1"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match=r"rankings\[0\]: must be a NumPy array of int64"):
        _core.reciprocal_rank_fusion([[1, 2]])


KEYS = in_key_order((uuid.UUID(int=number), "chunk") for number in range(4))


def answered(keys, scores, **options):
    return LegResult(keys, np.array(scores, dtype=np.float64), **options)


SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
FIELDS = ("key", "vector_rank", "keyword_rank", "vector_score", "keyword_score", "fused_score")
FIELDS += ("vector_contribution", "keyword_contribution")


def slow_fusion(found, others, mean, deviation, weight):
    """The union by key, each leg's score of each chunk, the formula, and ties by key."""
    known = {name: dict(zip(keys, scores, strict=True)) for name, (keys, scores) in found.items()}
    union = in_key_order(set(known["vector"]) | set(known["keyword"]))
    near = [known["vector"].get(key, others["keyword"].get(key, math.nan)) for key in union]
    worded = [known["keyword"].get(key, others["vector"].get(key, math.nan)) for key in union]
    ranked = slow_completed(list(zip(near, worded, strict=True)), mean, deviation, weight)
    places = {name: {key: rank for rank, key in enumerate(keys, 1)} for name, (keys, _) in found.items()}
    rows = []
    for place, *scores in ranked:
        key, own = union[place], (near[place], worded[place])
        ranks = (places["vector"].get(key), places["keyword"].get(key))
        rows.append((key, *ranks, *(None if math.isnan(score) else score for score in own), *scores))
    return rows


@given(st.data(), st.permutations(range(12)), st.floats(0, 1))
def test_legs_are_fused_as_plain_python_fuses_them(data, numbers, weight):
    """With many equal scores, whether chunks have numbers or only keys; the numbers are in another order than keys."""
    number_of = dict(zip(in_key_order((uuid.UUID(int=7 * n % 12), f"c{n}") for n in range(12)), numbers, strict=True))
    found, others = {}, {}
    for name in ("vector", "keyword"):
        keys = data.draw(st.lists(st.sampled_from(list(number_of)), unique=True))
        found[name] = (keys, sorted((data.draw(SCORES) for _ in keys), reverse=True))
        others[name] = {key: data.draw(SCORES | st.just(math.nan)) for key in keys}
    columns = {name: np.array([others[name][key] for key in found[name][0]], dtype=np.float64) for name in found}
    expected = slow_fusion(found, others, 0.25, 0.5, weight)
    by_key = {name: answered(*one) for name, one in found.items()}
    ids = {name: [number_of[key] for key in keys] for name, (keys, _) in found.items()}
    numbered = answered(*found["keyword"], numbers=np.array(ids["keyword"], dtype=np.int64))
    by_number = {"vector": answered(*found["vector"], side_values=ids["vector"]), "keyword": numbered}
    for results in (by_key, by_number):
        fused = fuse_completed(results, columns, spread=Spread(0.25, 0.5), weight=weight)
        assert [tuple(getattr(one, name) for name in FIELDS) for one in fused] == expected
