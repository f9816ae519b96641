"""Rank fusion.

Two rankings of 100 ids are fused by reciprocal rank, called from Python. Rust over arrays is compared with plain
Python.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from benches.measuring import Bench, paired
from semlex import _core

if TYPE_CHECKING:
    from pathlib import Path

CALLS = 2_000


def reciprocal_rank_fusion(rankings: list[list[int]], k: float = 60.0) -> list[tuple[int, float]]:
    """The plain Python of it."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    chance = random.Random(1)
    lists = [chance.sample(range(150), 100) for _ in range(2)]
    arrays = [np.array(ranking, dtype=np.int64) for ranking in lists]
    ids, scores = _core.reciprocal_rank_fusion(arrays)
    expected = reciprocal_rank_fusion(lists)
    assert ids.tolist() == [item for item, _ in expected]
    assert np.allclose(scores, [score for _, score in expected], rtol=1e-12)

    def ours() -> None:
        for _ in range(CALLS):
            _core.reciprocal_rank_fusion(arrays)

    def plain() -> None:
        for _ in range(CALLS):
            reciprocal_rank_fusion(lists)

    fast, slow = paired(ours, plain, 5 if quick else 15)
    bench.speed("2 x 100 ids", fast, slow, amount=CALLS, unit="calls/s", bar=6.0)
