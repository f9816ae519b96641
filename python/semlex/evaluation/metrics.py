"""Measures of rankings, equal to those of trec_eval, with one value per query; and the significance of differences.

A run maps query id -> document id -> score; judgements map query id -> document id -> relevance, relevant from 1. As in
trec_eval, ties are ordered by document id, descending; documents without a judgement are not relevant; a judged query
that the run lacks gets 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    Run = Mapping[str, Mapping[str, float]]
    Judgements = Mapping[str, Mapping[str, int]]


def ranking(scores: Mapping[str, float]) -> list[str]:
    """Return document ids by score, then id, both descending; scores are compared in float32, as in trec_eval."""
    with np.errstate(over="ignore"):
        rounded = np.array(list(scores.values()), dtype=np.float64).astype(np.float32).tolist()
    return [document for _, document in sorted(zip(rounded, scores, strict=True), reverse=True)]


def gains(run: Run, judgements: Judgements, k: int) -> NDArray[np.float64]:
    """Return the relevance of the first k documents of every judged query: (queries, k), 0 if not relevant."""
    check_range("the depth of a measure", k, 1)
    found = np.zeros((len(judgements), k))
    for row, (query, judged) in enumerate(judgements.items()):
        for position, document in enumerate(ranking(run.get(query, {}))[:k]):
            found[row, position] = max(0, judged.get(document, 0))
    return found


def ideal_gains(judgements: Judgements, k: int) -> NDArray[np.float64]:
    """Return `gains` of the best possible ranking."""
    best = np.zeros((len(judgements), k))
    for row, judged in enumerate(judgements.values()):
        values = sorted((relevance for relevance in judged.values() if relevance > 0), reverse=True)[:k]
        best[row, : len(values)] = values
    return best


def discounts(k: int) -> NDArray[np.float64]:
    """Return the weight of each rank in nDCG, shape (k,): 1 / log2(rank + 1)."""
    ranks = np.arange(1, k + 1, dtype=np.float64)
    return np.reciprocal(np.log2(ranks + 1.0))


def relevant(judgements: Judgements) -> NDArray[np.float64]:
    """Return the number of relevant documents of every query, shape (queries,)."""
    return np.array([sum(value > 0 for value in judged.values()) for judged in judgements.values()], dtype=np.float64)


def ndcg(run: Run, judgements: Judgements, k: int = 10) -> NDArray[np.float64]:
    """Return normalised discounted cumulative gain, (queries,) from 0 to 1: trec_eval's ``ndcg_cut``.

    Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002, with linear gains.
    """
    weights = discounts(k)
    return _share(gains(run, judgements, k) @ weights, ideal_gains(judgements, k) @ weights)


def recall(run: Run, judgements: Judgements, k: int = 100) -> NDArray[np.float64]:
    """Return the share of the relevant documents among the first k: trec_eval's ``recall``."""
    return _share((gains(run, judgements, k) > 0).sum(axis=1), relevant(judgements))


def reciprocal_rank(run: Run, judgements: Judgements, k: int = 10) -> NDArray[np.float64]:
    """Return 1 / rank of the first relevant document, 0 if it is not among the first k: trec_eval's ``recip_rank``."""
    found = np.sign(gains(run, judgements, k))
    return _share(found.max(axis=1), found.argmax(axis=1) + 1.0)


def success(run: Run, judgements: Judgements, k: int = 3) -> NDArray[np.float64]:
    """Return 1 if a relevant document is among the first k, else 0: trec_eval's ``success``."""
    found: NDArray[np.float64] = np.sign(gains(run, judgements, k)).max(axis=1)
    return found


def measure_named(name: str) -> tuple[Callable[[Run, Judgements, int], NDArray[np.float64]], int]:
    """Return function and depth of a measure such as ``ndcg@10``, ``recall@100``, ``mrr@10`` or ``success@3``."""
    kind, _, depth = name.partition("@")
    functions = {"ndcg": ndcg, "recall": recall, "mrr": reciprocal_rank, "success": success}
    if kind not in functions or not (depth.isascii() and depth.isdigit() and int(depth) > 0):
        raise ConfigurationError(
            f"a measure is one of {', '.join(functions)} with its depth, as in ndcg@10; got {name!r}"
        )
    return functions[kind], int(depth)


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    share = np.zeros(len(whole))
    np.divide(part, whole, out=share, where=whole > 0)
    return share


ROUNDS = 10_000
SEED = 20_260_101  # any number; fixed, so that the same values give the same p every time
_BLOCK_VALUES = 4_000_000  # of random numbers that are in memory at once


def randomisation_p(ours: ArrayLike, baseline: ArrayLike, *, rounds: int = ROUNDS) -> float:
    """Return the two-sided p of a paired randomisation test; the values are one per query, shape (n,) each.

    In each round the two values of random queries are swapped; p is the share of rounds whose difference of means is at
    least the observed one. The observed values count as a round, so p is never 0 (Smucker, Allan and Carterette, "A
    comparison of statistical significance tests for information retrieval evaluation", CIKM 2007).
    """
    differences = _differences(ours, baseline)
    differences = differences[differences != 0]  # swapping equal values changes nothing
    if not len(differences):
        return 1.0
    random = np.random.default_rng(SEED)
    # Sums that are equal but for rounding are equal.
    threshold = abs(differences.sum()) - 1e-9 * np.abs(differences).sum()
    extreme = 0
    width = (len(differences) + 7) // 8
    block = max(1, _BLOCK_VALUES // (8 * width))
    for start in range(0, rounds, block):
        count = min(block, rounds - start)
        bits = np.frombuffer(random.bytes(count * width), dtype=np.uint8).reshape(count, width)
        kept = np.unpackbits(bits, axis=1, count=len(differences))
        sums = 2.0 * (kept @ differences) - differences.sum()
        extreme += int((np.abs(sums) >= threshold).sum())
    return (extreme + 1) / (rounds + 1)


def bootstrap_interval(ours: ArrayLike, baseline: ArrayLike) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean difference, from bootstrap samples with replacement."""
    differences = _differences(ours, baseline)
    if not len(differences):
        raise ConfigurationError("an interval needs at least one query")
    random = np.random.default_rng(SEED)
    block = max(1, _BLOCK_VALUES // len(differences))
    means = np.concatenate(
        [
            differences[random.integers(len(differences), size=(min(block, ROUNDS - start), len(differences)))].mean(1)
            for start in range(0, ROUNDS, block)
        ]
    )
    lower, upper = np.quantile(means, [0.025, 0.975])
    return float(lower), float(upper)


def _differences(ours: ArrayLike, baseline: ArrayLike) -> NDArray[np.float64]:
    one, other = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise ConfigurationError(f"paired values must have the same shape (n,); got {one.shape} and {other.shape}")
    return one - other
