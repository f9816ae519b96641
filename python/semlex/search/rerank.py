"""Rerank the best hits with a model, by a mix of the model's scores and the fused scores."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ModelError
from semlex.models.model_names import short_name
from semlex.options.search import RERANK_WEIGHT, SearchOptions
from semlex.telemetry import SERVER, TEXTS, Span, Work, span

if TYPE_CHECKING:
    import asyncio

    from numpy.typing import ArrayLike, NDArray

    from semlex.models.executor import ModelExecutor
    from semlex.reranking.base import Reranker
    from semlex.search.fusion import Candidate
    from semlex.search.state import SearchState
    from semlex.types.results import SearchResult

Hits = list[tuple["Candidate", "SearchResult"]]


async def rerank(
    state: SearchState, hits: Hits, reranker: Reranker | None, executor: ModelExecutor
) -> tuple[Hits, str | None]:
    """Return the hits sorted by mixed score, and the reranker's name; without reranking, return the hits and None."""
    request = state.request
    if reranker is None or request.text is None or not hits:
        return hits, None
    started = time.perf_counter()
    deadline: asyncio.Timeout | None = None
    texts = [hit.content for _, hit in hits]
    try:
        async with request.clock.timeout(request.remaining()) as deadline:
            with rerank_span(reranker, len(texts)):
                judged = await executor.query(reranker.score, request.text, texts, model=reranker)
        scores = usable_scores(judged, len(texts))
    except Exception as reason:  # noqa: BLE001 - whatever a model raises, the fused answer stands
        # The kind alone: a model's message may quote the query or a document.
        is_late = deadline is not None and deadline.expired()
        what = "missed the deadline" if is_late else f"failed ({type(reason).__name__})"
        state.warnings.append(f"the reranker {what}: hits are in the order of the fusion")
        return hits, None
    state.add_time("rerank", time.perf_counter() - started)
    weight = rerank_weight(request.options)
    return by_scores(hits, scores, mixed_scores(hits, scores, weight), weight), reranker.identity


def rerank_span(reranker: Reranker, texts: int) -> Span:
    """Return the span of a call of a reranker."""
    host = getattr(reranker, "host", None)
    name = short_name(reranker.identity.partition("@")[0])
    return span(Work.RERANK, name, {TEXTS: texts, SERVER: host}, is_call=host is not None)


def rerank_weight(options: SearchOptions) -> float:
    """Return the reranker's share of the mixed score, 0 to 1."""
    weight = options.get("rerank_weight")
    return RERANK_WEIGHT if weight is None else weight


def mixed_scores(hits: Hits, scores: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
    """Return each hit's weight * z-score of the reranker's score + (1 - weight) * z-score of the fused score."""
    # z is the distance from the mean of all n hits in standard deviations. If all scores are equal, as with a single
    # hit, their z is 0 and the other score decides. In single precision, because cursors hold them so.
    fused = np.array([candidate.order_score for candidate, _ in hits], dtype=np.float64)
    return (weight * _z_scores(scores.astype(np.float64)) + (1 - weight) * _z_scores(fused)).astype(np.float32)


def _z_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    from_mean = scores - scores.mean()
    deviation = from_mean.std()
    # Equal scores may differ from their mean by a rounding.
    return np.zeros_like(scores) if np.ptp(scores) == 0 or deviation == 0 else from_mean / deviation


def by_scores(hits: Hits, scores: NDArray[np.float32], mixed: NDArray[np.float32], weight: float) -> Hits:
    """Set the reranker's and the mixed score of each hit, and return the hits by mixed score, best first."""
    for (_, hit), score, mix in zip(hits, scores.tolist(), mixed.tolist(), strict=True):
        hit.rerank_score, hit.mixed_score = score + 0.0, mix + 0.0  # never -0.0
    return in_mixed_order(hits, weight)


def in_mixed_order(hits: Hits, weight: float) -> Hits:
    """Return reranked hits sorted by mixed score, best first."""
    # If mixed scores are equal, the reranker's score decides if it has a weight, then the order of the fusion.
    return sorted(hits, key=lambda pair: (-(pair[1].mixed_score or 0.0), -weight * (pair[1].rerank_score or 0.0)))


def at_least(hits: Hits, least: float | None, reranked_by: str | None) -> tuple[Hits, list[str]]:
    """Return the hits whose reranker score is at least `least`, and warnings."""
    if least is None or not hits:
        return hits, []
    if reranked_by is None:
        return [], ["min_rerank cannot be checked, because the reranker did not answer: no hits are returned"]
    kept = [pair for pair in hits if (pair[1].rerank_score or 0.0) >= least]
    if kept:
        return kept, []
    best = max(pair[1].rerank_score or 0.0 for pair in hits)
    return [], [f"no candidate reaches min_rerank={least:g}; the best of {len(hits)} has the score {best:.3f}"]


def usable_scores(made: ArrayLike, count: int) -> NDArray[np.float32]:
    """Return the scores that a reranker gave, after checking them."""
    scores = np.asarray(made, dtype=np.float32)
    if scores.shape != (count,) or not np.isfinite(scores).all():
        raise ModelError("the reranker's scores cannot be used: expected one finite number per text")
    return scores
