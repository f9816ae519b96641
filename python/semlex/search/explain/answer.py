"""Explain a whole search: its plan, and the words of every hit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.search.explain.why import engine_notes, terms_of
from semlex.search.fusion import DEFAULT_VECTOR_WEIGHT, LEGS, vector_weight
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_query
from semlex.store.postgres.database import SnapshotReads
from semlex.store.query.leg import in_key_order
from semlex.types.explanations import HitExplanation, SearchExplanation

if TYPE_CHECKING:
    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.search.request import Request
    from semlex.search.state import Found, SearchState
    from semlex.store.keyword.base import TermScores
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.types.results import SearchResults


async def explained_search(opened: OpenCollection, reranker: Reranker | None, request: Request) -> SearchResults:
    """Run a search and return its results with an `explanation`; words of hits are read in the search's snapshot."""
    pipeline = SearchPipeline(opened, reranker)
    begun = pipeline.begin(request)
    await embed_query(begun, opened)

    async def look(snapshot: Snapshot) -> tuple[SearchState, Found, list[TermScores] | None]:
        state = begun.copy()  # this may be run once more
        found = await pipeline.find(state, replace(opened, database=SnapshotReads(snapshot)))
        return state, found, await _terms(snapshot, state, found)

    state, found, terms = await opened.database.read_snapshot(
        "search", look, deadline=request.remaining(), with_vectors=True
    )
    numbers = {candidate.key[1]: number for number, (candidate, _) in enumerate(found.hits)}
    by_key = {key[1]: order for order, key in enumerate(in_key_order(candidate.key for candidate, _ in found.hits))}
    results = await pipeline.results(state, found)
    results.explanation = SearchExplanation(
        depth=found.depth,
        legs={
            name: f"{report.plan} ({report.work_in_words})" if report.work else report.plan
            for name, report in results.legs.items()
        },
        filter_share=next((report.share for report in results.legs.values() if report.share is not None), None),
        fusion=results.fusion,
        weights=_weights(opened, request, results.fusion),
        reranker=results.reranker_model,
        candidates=len(found.keys),
        hits=tuple(
            HitExplanation(
                hit.id,
                hit.rank,
                hit.location,
                terms_of(terms, numbers[hit.id]),
                hit.vector_contribution,
                hit.keyword_contribution,
                hit.confidence,
                by_key[hit.id],
                hit.heading_factor,
            )
            for hit in results
        ),
        notes=tuple(engine_notes(state, terms)),
        terms=request.terms,
        terms_by=request.terms_by,
        **_spread(state, found),
    )
    return results


def _spread(state: SearchState, found: Found) -> dict[str, float]:
    """Return the mean and deviation that score fusion has used; empty if one search answered alone."""
    answered = {name: leg for name, leg in found.results.items() if leg.error is None}
    if state.spread is None or found.fusion != "score" or len(answered) < len(LEGS):
        return {}
    scores = answered["keyword"].scores
    return {
        "similarity_mean": state.spread.mean,
        "similarity_deviation": state.spread.deviation,
        "greatest_keyword_score": float(scores.max()) if len(scores) else 0.0,
    }


async def _terms(snapshot: Snapshot, state: SearchState, found: Found) -> list[TermScores] | None:
    keyword, text = found.results.get("keyword"), state.keyword_query
    if keyword is None or keyword.error is not None or text is None:
        return None
    keys = [candidate.key for candidate, _ in found.hits]
    return await state.collection.keyword.term_scores(snapshot, state.collection.names, text, keys)


def _weights(opened: OpenCollection, request: Request, fusion: str | None) -> dict[str, float]:
    """Return the weight of each leg in the fusion; empty if one leg answered alone."""
    if fusion is None:
        return {}
    if fusion == "score":
        declared = getattr(opened.models.embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
        vector = vector_weight(request.options.get("weights"), declared)
        return {"vector": vector, "keyword": 1 - vector}
    return {name: float((request.options.get("weights") or {}).get(name, 1.0)) for name in LEGS}
