"""One ranking out of two: the legs' answers are fused by rank (or by score), and every leg's rank and score is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.store.legs import Key, LegAnswer

FusionMethod = Literal["rrf", "linear"]
RRF_K = 60.0  # Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet …", SIGIR 2009


@dataclass(slots=True)
class Candidate:
    """A chunk that at least one leg found; ranks count from 1, None where a leg did not find it."""

    key: Key
    vector_rank: int | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    keyword_score: float | None = None
    fused_score: float | None = None


def check_fusion(method: str, weights: Mapping[str, float] | None, rrf_k: float) -> None:
    """Refuses parameters of the fusion, before anything is searched.

    Raises:
        ConfigurationError: Unknown method or leg, or a weight or constant that is negative or not finite.
    """
    if method not in ("rrf", "linear"):
        raise ConfigurationError(f"fusion must be 'rrf' or 'linear'; got {method!r}")
    unknown = set(weights or {}) - {"vector", "keyword"}
    if unknown:
        raise ConfigurationError(f"weights are given by leg, 'vector' and 'keyword'; got {sorted(map(str, unknown))}")
    for name, value in {**(weights or {}), "rrf_k": rrf_k}.items():
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
            what = name if name == "rrf_k" else f"the weight of the {name} leg"
            raise ConfigurationError(f"{what} must be a number from 0; got {value!r}")


def fuse(
    answers: Mapping[str, LegAnswer],
    *,
    method: FusionMethod = "rrf",
    weights: Mapping[str, float] | None = None,
    rrf_k: float = RRF_K,
) -> list[Candidate]:
    """Candidates of all legs, best first; ties by (document_id, chunk_id).

    With one leg its own order stands and there is no fused score.

    Args:
        answers: Leg name (``vector``, ``keyword``) -> its answer.
        method: ``rrf``: sum of weight / (rrf_k + rank); ``linear``: sum of weight * score, each leg's scores scaled to
            0..1 by their least and greatest.
        weights: Leg name -> weight; 1 for a leg that is not named.
        rrf_k: Constant of RRF: the larger, the less the first ranks stand out.

    Raises:
        ConfigurationError: As `check_fusion`.
    """
    check_fusion(method, weights, rrf_k)
    found: dict[Key, Candidate] = {}
    for name, answer in answers.items():
        for rank, (key, score) in enumerate(zip(answer.keys, answer.scores.tolist(), strict=True), start=1):
            candidate = found.setdefault(key, Candidate(key))
            setattr(candidate, f"{name}_rank", rank)
            setattr(candidate, f"{name}_score", score)
    if len(answers) < 2:  # noqa: PLR2004 - nothing to fuse
        return list(found.values())
    # Candidates are numbered in the order of their keys, which makes the fusion's tie rule (smaller number first) ours.
    ordered = sorted(found, key=lambda key: (key[0].bytes, key[1].encode()))
    numbers = {key: number for number, key in enumerate(ordered)}
    rankings = [np.array([numbers[key] for key in answer.keys], dtype=np.int64) for answer in answers.values()]
    chosen = [float((weights or {}).get(name, 1.0)) for name in answers]
    try:
        if method == "rrf":
            ids, scores = _core.reciprocal_rank_fusion(rankings, weights=chosen, k=rrf_k)
        else:
            leg_scores = [answer.scores for answer in answers.values()]
            ids, scores = _core.linear_fusion(rankings, leg_scores, weights=chosen)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    fused = []
    for number, score in zip(ids.tolist(), scores.tolist(), strict=True):
        candidate = found[ordered[number]]
        candidate.fused_score = score
        fused.append(candidate)
    return fused
