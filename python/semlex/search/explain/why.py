"""Run a search and report what kept one document in or out of its results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.search.explain.reasons import own_hit, reasons
from semlex.search.explain.standing import find_standing
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_query
from semlex.store.query.documents import Records
from semlex.types.explanations import Explanation, LegFigures, QueryTerm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.search.explain.standing import Standing
    from semlex.search.request import Request
    from semlex.search.state import SearchState
    from semlex.store.keyword.base import TermScores
    from semlex.store.query.leg import Key
    from semlex.types.results import SearchResults

NO_TERMS = "the keyword engine {!r} does not tell which words are shared, and what they weigh"


async def explain(
    opened: OpenCollection,
    reranker: Reranker | None,
    request: Request,
    document: str,
    places: Sequence[tuple[str, str]],
) -> Explanation | Records:
    """Explain why a document has its rank; if no document has the name, return the records of its files instead."""
    pipeline = SearchPipeline(opened, reranker)
    begun = pipeline.begin(request)
    await embed_query(begun, opened)
    standing = await find_standing(opened, pipeline, begun, document, places)
    if isinstance(standing, Records):
        return standing
    results = await pipeline.results(standing.state, standing.found)
    return _explanation(document, standing, results)


def _explanation(document: str, standing: Standing, results: SearchResults) -> Explanation:
    hit = own_hit(standing, results)
    key = _chosen(standing, None if hit is None else hit.id)
    told = Explanation(
        document,
        standing.named.name,
        reasons(standing, results),
        rank=None if hit is None else hit.rank,
        chunks=len(standing.facts),
        chunk=None if key is None else key[1],
        legs=tuple(_legs(standing, results)),
        terms=() if key is None else terms_of(standing.terms, standing.chunks.index(key)),
        notes=(*standing.named.notes, *results.warnings, *engine_notes(standing.state, standing.terms)),
    )
    placed = next((pair for pair in enumerate(standing.ranking.candidates, 1) if pair[1].key == key), None)
    if placed is None:
        return told
    scored = next((one for candidate, one in standing.found.hits if candidate.key == key), None)
    let_through = [candidate for candidate, _ in standing.found.hits]
    return replace(
        told,
        fused_rank=placed[0],
        fused_score=placed[1].fused_score,
        last_fused_score=_least(candidate.fused_score for candidate in let_through),
        rerank_score=None if scored is None else scored.rerank_score,
        last_rerank_score=_least(one.rerank_score for one in results),
        mixed_score=None if scored is None else scored.mixed_score,
        last_mixed_score=_least(one.mixed_score for one in results),
    )


def _chosen(standing: Standing, hit_id: str | None) -> Key | None:
    """Return the chunk to report: the hit's, else the best reranked one, else the one that passed the most stages."""
    scores = {candidate.key: hit.mixed_score for candidate, hit in standing.found.hits}
    in_answer = [key for key in standing.chunks if key[1] == hit_id]
    return max(
        in_answer or standing.chunks,
        key=lambda key: -math.inf if (score := scores.get(key)) is None else score,
        default=None,
    )


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _legs(standing: Standing, results: SearchResults) -> Iterable[LegFigures]:
    own = {"vector": standing.vector, "keyword": standing.keyword}
    for name, result in standing.found.results.items():
        best = own[name]
        if result.error is not None:
            continue
        yield LegFigures(
            name,
            None if best is None or best.key is None else best.key[1],
            None if best is None else best.rank,
            None if best is None else best.score,
            standing.found.depth,
            float(result.scores[-1]) if len(result.scores) else None,
            getattr(results[-1], f"{name}_score") if results else None,
        )


def terms_of(terms: Sequence[TermScores] | None, number: int) -> tuple[QueryTerm, ...]:
    """Return the words of a query for one of the chunks that they were read for, the heaviest first."""
    found = [
        QueryTerm(one.term, one.weight, one.chunks, bool(one.scores[number] > 0), float(one.scores[number]))
        for one in terms or ()
    ]
    return tuple(sorted(found, key=lambda one: -one.weight))


def engine_notes(state: SearchState, terms: Sequence[TermScores] | None) -> list[str]:
    """Return notes about what the keyword engine and the vectors cannot tell."""
    collection, notes = state.collection, []
    name, engine = collection.names.collection, collection.settings.keyword_engine
    if "keyword" in state.legs and terms is None and collection.keyword.index is None:
        notes.append(NO_TERMS.format(engine))
    if engine == "none":
        notes.append("the collection has no keyword engine: words are not looked for")
    if collection.embedding is None:
        notes.append(
            f"the collection holds no vectors: words alone are searched (semlex models fill --collection {name})"
        )
    return notes
