"""Reorder hits so that each is relevant and unlike those before it (maximal marginal relevance)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semlex.types.display import DECIDING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from semlex.types.results import SearchResult


def relevances(hits: Sequence[SearchResult]) -> NDArray[np.float64]:
    """Return the relevance of each hit by the scores that ordered them: (n,), from 1 for the best to 0 for the last."""
    ranks = -np.arange(len(hits), dtype=np.float64)
    for name in DECIDING:
        given = [getattr(hit, name) for hit in hits]
        if None not in given:
            scores = np.array(given, dtype=np.float64)
            return _scaled(scores if (np.diff(scores) <= 0).all() else ranks)
    # No score orders all hits.
    return _scaled(ranks)


def _scaled(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = np.ptp(scores) if scores.size else 0.0
    return (scores - scores.min()) / spread if spread > 0 else np.ones_like(scores)


def diversified(
    hits: Sequence[SearchResult], vectors: Mapping[str, NDArray[np.float32]], diversity: float
) -> list[SearchResult]:
    """Return the hits in the order of maximal marginal relevance; a hit without a vector keeps its place."""
    # Next is always the hit for which (1 - diversity) x relevance - diversity x greatest cosine with one that was
    # chosen is greatest; of equals the better one. The first is the best.
    places = [place for place, hit in enumerate(hits) if hit.id in vectors]
    if not places:
        return list(hits)
    rows = np.stack([vectors[hits[place].id] for place in places]).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0, norms, 1.0)
    gains = (1 - diversity) * relevances(hits)[places]
    nearest = np.zeros(len(places))
    is_left = np.ones(len(places), dtype=bool)
    ordered = list(hits)
    for turn, place in enumerate(places):
        # argmax takes the first of equals.
        chosen = int(np.argmax(np.where(is_left, gains - diversity * nearest, -np.inf))) if turn else 0
        ordered[place] = hits[places[chosen]]
        is_left[chosen] = False
        cosines = rows @ rows[chosen]
        nearest = np.maximum(nearest, cosines) if turn else cosines
    return ordered
