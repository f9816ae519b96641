"""How sure a difference is: a paired randomisation test and a bootstrap interval, both with a fixed seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ROUNDS = 10_000
SEED = 20_260_101  # any number; fixed, so that the same values give the same p every time
_BLOCK_VALUES = 4_000_000  # of random numbers that are in memory at once


def randomisation_p(ours: ArrayLike, baseline: ArrayLike, *, rounds: int = ROUNDS, seed: int = SEED) -> float:
    """Two-sided p of a paired randomisation test of the means.

    If neither were better, swapping the two values of any query would be as likely as not; p is the share of random
    swaps whose difference of means is at least as large as the one that was found (Smucker, Allan and Carterette, "A
    comparison of statistical significance tests for information retrieval evaluation", CIKM 2007). The found one counts
    as one of the rounds, so p is never 0.

    Args:
        ours: One value a query, shape (n,).
        baseline: The same queries' other values, shape (n,).
    """
    differences = _differences(ours, baseline)
    differences = differences[differences != 0]  # swapping equal values changes nothing
    if not len(differences):
        return 1.0
    random = np.random.default_rng(seed)
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


def bootstrap_interval(
    ours: ArrayLike, baseline: ArrayLike, *, level: float = 0.95, rounds: int = ROUNDS, seed: int = SEED
) -> tuple[float, float]:
    """Percentile interval of the mean difference when the queries are drawn again, with replacement.

    Args:
        ours: One value a query, shape (n,), n from 1.
        baseline: The same queries' other values, shape (n,).
    """
    differences = _differences(ours, baseline)
    if not len(differences):
        raise ConfigurationError("an interval needs at least one query")
    random = np.random.default_rng(seed)
    block = max(1, _BLOCK_VALUES // len(differences))
    means = np.concatenate(
        [
            differences[random.integers(len(differences), size=(min(block, rounds - start), len(differences)))].mean(1)
            for start in range(0, rounds, block)
        ]
    )
    lower, upper = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def _differences(ours: ArrayLike, baseline: ArrayLike) -> NDArray[np.float64]:
    one, other = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if one.shape != other.shape or one.ndim != 1:
        raise ConfigurationError(f"paired values must have the same shape (n,); got {one.shape} and {other.shape}")
    return one - other
