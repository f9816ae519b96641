"""Explain why a document is or is not among the results of a search, or how a search found and ranked its hits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.options.search import MAX_CANDIDATES, MAX_EF_SEARCH
from semlex.search.fusion import DEFAULT_VECTOR_WEIGHT, LEGS, vector_weight
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_query
from semlex.search.rerank import in_mixed_order, rerank_weight
from semlex.search.standing import Reach, Standing, find_standing
from semlex.store.query.documents import Records
from semlex.store.query.leg import Key, in_key_order
from semlex.types.explanations import Explanation, HitExplanation, LegFigures, QueryTerm, Reason, SearchExplanation
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.search.request import Request
    from semlex.search.state import Found, SearchState
    from semlex.store.keyword.base import TermScores
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.types.results import SearchResult, SearchResults


# Parts of a filter, or of a query, that are shown.
SHOWN_PARTS = 5
SHOWN_CHARACTERS = 200


def own_hits(standing: Standing, results: SearchResults) -> list[SearchResult]:
    """Return the results that are chunks of the document, best first."""
    own = {chunk_id for _, chunk_id in standing.ranking.own}
    return [hit for hit in results if hit.id in own]


# Stages before the fusion are handled here, those that leave out hits after it in `_of_candidate`.
def reasons(standing: Standing, results: SearchResults) -> tuple[Reason, ...]:
    """Return the reasons why the document is or is not among the results, the deciding one first; at least one."""
    if not standing.passes:
        text = f"{standing.named.name} has no chunk: it contains no text that could be searched"
        return (Reason("empty", text, "semlex documents preview FILE shows the text that semlex reads"),)
    if hits := own_hits(standing, results):
        more = f"; hits that are chunks of this document: {len(hits)}" if len(hits) > 1 else ""
        return (Reason("found", f"it is hit {hits[0].rank} of {len(results)}{more}"),)
    if not standing.ranking.own:
        return (_filtered(standing),)
    if standing.broken:
        parts = "; ".join(standing.broken[:SHOWN_PARTS])
        where = "the query or the option exclude" if standing.state.request.exclude else "the query"
        return (Reason("excluded", f"it is excluded by {where}: {parts}", f"remove that from {where}"),)
    if standing.ranking.best is None:
        missing = tuple(_of_legs(standing))
        return missing or (
            Reason("unknown", "the search did not find it, and neither vector nor keyword search reports why"),
        )
    return (_of_candidate(standing, results), *_beside(standing))


def _filtered(standing: Standing) -> Reason:
    parts = [part if len(part) <= SHOWN_CHARACTERS else f"{part[:SHOWN_CHARACTERS]}…" for part in standing.failing]
    shown = " and ".join(parts[:SHOWN_PARTS])
    more = f" and {len(parts) - SHOWN_PARTS} more conditions" if len(parts) > SHOWN_PARTS else ""
    none = "none of its chunks passes" if len(standing.passes) > 1 else "it does not pass"
    return Reason(
        "filtered", f"{none} the filter: {shown}{more} does not hold", "leave that condition out of filters (--filter)"
    )


# --- no candidate -----------------------------------------------------------------------------------------------------


def _of_legs(standing: Standing) -> Iterator[Reason]:
    """Yield, for each search that answered, the reason why it did not find the document."""
    depth = standing.found.depth
    name = standing.state.collection.names.collection
    remedy = _reach(standing)
    if "vector" in standing.found.answered:
        vector = standing.vector
        if vector is None:
            yield Reason("no_vector", "it has no vector yet", f"semlex models fill --collection {name}")
        elif vector.rank <= depth:
            text = f"it is number {vector.rank:,} of the nearest chunks, but the vector index did not find it"
            yield Reason("missed_by_index", text, _wider_index(standing))
        else:
            text = f"{vector.rank - 1:,} chunks are nearer, but vector search takes only the nearest {depth:,}"
            yield Reason("beyond_vector_depth", text, remedy)
    if standing.keyword is not None:
        score, rank = standing.keyword.score, standing.keyword.rank
        if score is None:
            yield Reason("unknown", "its keyword score is not known")
        elif score <= 0:
            yield Reason("no_shared_word", "it shares no word with the query", _other_words(standing))
        else:
            before = f"{rank - 1:,}" if rank is not None else f"at least {MAX_CANDIDATES:,}"
            text = f"{before} chunks have higher keyword scores, but keyword search takes only the best {depth:,}"
            yield Reason("beyond_keyword_depth", text, remedy)


def _wider_index(standing: Standing) -> str:
    plan = standing.found.results["vector"].plan
    if "probes" in plan:
        return (
            "read more lists of the index: tuning={'probes': N} in a search, or always: "
            "semlex maintain create-index --probes N"
        )
    wider = min(MAX_EF_SEARCH, max(400, 4 * standing.found.depth))
    return (
        f"keep a longer candidate list: tuning={{'ef_search': {wider}}} in a search; or search "
        "exactly, without an index: semlex maintain create-index --kind none"
    )


def _other_words(standing: Standing) -> str:
    if standing.state.collection.embedding is not None and "vector" not in standing.state.legs:
        return "mode='hybrid' (--mode hybrid) finds by meaning, too"
    return "search for a word that it contains"


def _reach(standing: Standing) -> str:
    """Return the arguments that make the document a hit, as the user would write them."""
    reach, request = standing.reach, standing.state.request
    given = []
    if reach is None or reach == Reach(request.top_k, request.candidates):
        return "use a filter that fewer chunks pass, or words that it contains and other chunks do not"
    if request.page is not None:
        given.append(f"max_results={reach.top_k} (--max-results {reach.top_k})")
    elif reach.top_k != request.top_k:
        given.append(f"top_k={reach.top_k} (--top-k {reach.top_k})")
    if reach.candidates is not None and (request.page is not None or reach.candidates != request.candidates):
        given.append(f"tuning={{'candidates': {reach.candidates}}} (--candidates {reach.candidates})")
    after = "; the reranker then decides" if standing.ranking.reranks else ""
    return " with ".join(given) + after


# --- a candidate that is not in the answer ----------------------------------------------------------------------------


def _below_threshold(standing: Standing) -> Reason | None:
    """Return the reason if the document does not reach a minimum score; None if it reaches all."""
    request, own = standing.state.request, standing.ranking.own
    cosines = [one.vector_score for one in standing.ranking.candidates if one.key in own]
    judged = [hit.rerank_score for candidate, hit in standing.found.hits if candidate.key in own]
    for name, option, least, scores in (
        ("min_similarity", "--min-similarity", request.options.get("min_similarity"), cosines),
        ("min_rerank", "--min-rerank", request.options.get("min_rerank"), judged),
    ):
        if least is None or not scores or any(score is not None and score >= least for score in scores):
            continue
        known = [score for score in scores if score is not None]
        if not known:
            text = f"it has no score to compare with {name}={least:g}"
            return Reason("below_threshold", text, f"search without {name} ({option})")
        within = math.floor(max(known) * 1000) / 1000
        text = f"its best score is {max(known):.4f}, below {name}={least:g}"
        return Reason("below_threshold", text, f"{name}={within:g} ({option} {within:g})")
    return None


def _of_candidate(standing: Standing, results: SearchResults) -> Reason:
    """Return the reason why a candidate is not among the results."""
    request, ranking = standing.state.request, standing.ranking
    is_first = bool(ranking.own & ranking.first)
    below = _below_threshold(standing)
    if below is not None:
        return below
    if request.group_size is not None:
        cut = _grouped(standing)
        if cut is not None:
            return cut
    place, order = ranking.place or 0, "the fusion" if results.fusion is not None else "its search"
    if is_first and results.reranker_model is not None:
        place, order = reranked_place(standing), "the reranking"
    if request.page is not None:
        return _paged(standing, request.page.max_results, place, order)
    if order == "the reranking":
        remedy = f"top_k={place} (--top-k {place})" if place <= MAX_TOP_K else ""
        if (ranking.place or 0) <= request.top_k:
            remedy = f"rerank=False: without the reranker it is number {ranking.place}" + (
                f"; or {remedy}" if remedy else ""
            )
        text = f"the reranking put it at place {place:,}, but the results end at place {request.top_k}"
        return Reason("reranked_below", text, remedy)
    text = f"it is number {place:,} of {len(ranking.candidates):,} candidates in the order of {order}, "
    if request.group_size is not None:
        text = f"its document is number {place:,} in the order of {order}, "
    limit = f"the reranker got the first {len(ranking.first):,}" if ranking.reranks else f"top_k is {request.top_k}"
    return Reason("below_top_k", f"{text}but {limit}", _reach(standing))


def _grouped(standing: Standing) -> Reason | None:
    """Return the reason if `group_size` left out this chunk, as its document has better ones; else None."""
    request, ranking = standing.state.request, standing.ranking
    size, best = request.group_size, ranking.best
    if size is None or best is None or (ranking.place or 0) > request.top_k:
        return None
    place = ranking.place_in_document(best[1].key)
    if place <= size:
        return None
    text = f"its document is in the results, and has {place - 1} better chunks: group_size allows {size}"
    return Reason("capped", text, f"group_size={place} (--group {place})")


def _paged(standing: Standing, most: int, place: int, order: str) -> Reason:
    top_k = standing.state.request.top_k
    if place > most:
        return Reason(
            "capped", f"it is number {place:,} of all hits, but max_results ends the list at {most}", _reach(standing)
        )
    number = (place - 1) // top_k + 1
    text = f"it is number {place:,} of all hits in the order of {order}: on page {number}"
    return Reason("below_top_k", text, f"call search_page with next_cursor (--after CURSOR), {number - 1} times")


# Scores of a reranker are known only for the hits that it was given.
def reranked_place(standing: Standing) -> int:
    """Return the place of the document's best chunk among the reranked hits, from 1."""
    ordered = in_mixed_order(standing.found.hits, rerank_weight(standing.state.request.options))
    own = standing.ranking.own
    return next((place for place, (one, _) in enumerate(ordered, 1) if one.key in own), len(ordered) + 1)


def _beside(standing: Standing) -> Iterator[Reason]:
    """Yield additional reasons that gave a candidate a low rank."""
    name = standing.state.collection.names.collection
    if "vector" in standing.found.answered and standing.vector is None:
        text = "it has no vector yet, so only keyword search can find it"
        yield Reason("no_vector", text, f"semlex models fill --collection {name}")
    if standing.keyword is not None and standing.keyword.score == 0:
        yield Reason("no_shared_word", "it shares no word with the query", "search for a word that it contains")


async def explain(
    opened: OpenCollection,
    reranker: Reranker | None,
    request: Request,
    document: str,
    places: Sequence[tuple[str, str]],
) -> Explanation | Records:
    """Explain a document's rank; if no document has the name, return recent indexing runs and known paths."""
    pipeline = SearchPipeline(opened, reranker)
    begun = pipeline.begin(request)
    await embed_query(begun, opened)
    standing = await find_standing(opened, pipeline, begun, document, places)
    if isinstance(standing, Records):
        return standing
    results = await pipeline.results(standing.state, standing.found)
    return _explanation(document, standing, results)


def _explanation(document: str, standing: Standing, results: SearchResults) -> Explanation:
    hit = next(iter(own_hits(standing, results)), None)
    key = _chosen(standing, None if hit is None else hit.id)
    told = Explanation(
        document,
        standing.named.name,
        reasons(standing, results),
        rank=None if hit is None else hit.rank,
        chunks=len(standing.passes),
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
    for name, result in standing.found.answered.items():
        best = own[name]
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
    """Return the words of a query with their scores in chunk `number`, the highest weight first."""
    found = [
        QueryTerm(one.term, one.weight, one.chunks, bool(one.scores[number] > 0), float(one.scores[number]))
        for one in terms or ()
    ]
    return tuple(sorted(found, key=lambda one: -one.weight))


def engine_notes(state: SearchState, terms: Sequence[TermScores] | None) -> list[str]:
    """Return notes on figures that the keyword engine and the vectors cannot provide."""
    collection, notes = state.collection, []
    name, engine = collection.names.collection, collection.settings.keyword_engine
    if "keyword" in state.legs and terms is None and collection.keyword.index is None:
        notes.append(f"the keyword engine {engine!r} does not report which words are shared, or their weights")
    if engine == "none":
        notes.append("the collection has no keyword engine: only vector search is possible")
    if collection.embedding is None:
        notes.append(
            f"the collection contains no vectors: only keyword search is possible (to make vectors: semlex models fill "
            f"--collection {name})"
        )
    return notes


async def explained_search(opened: OpenCollection, reranker: Reranker | None, request: Request) -> SearchResults:
    """Run a search and return its results with an `explanation`; words of hits are read in the search's snapshot."""
    pipeline = SearchPipeline(opened, reranker)
    begun = pipeline.begin(request)
    await embed_query(begun, opened)

    async def look(snapshot: Snapshot) -> tuple[SearchState, Found, list[TermScores] | None]:
        state = begun.copy()  # this may be run once more
        found = await pipeline.find(state, opened.within(snapshot))
        return state, found, await _terms(snapshot, state, found)

    state, found, terms = await opened.reader.read_snapshot(
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
    """Return the mean and deviation that score fusion has used; an empty mapping if one search answered alone."""
    if state.spread is None or found.fusion != "score" or len(found.answered) < len(LEGS):
        return {}
    scores = found.answered["keyword"].scores
    return {
        "similarity_mean": state.spread.mean,
        "similarity_deviation": state.spread.deviation,
        "greatest_keyword_score": float(scores.max()) if len(scores) else 0.0,
    }


async def _terms(snapshot: Snapshot, state: SearchState, found: Found) -> list[TermScores] | None:
    text = state.keyword_query
    if "keyword" not in found.answered or text is None:
        return None
    keys = [candidate.key for candidate, _ in found.hits]
    return await state.collection.keyword.term_scores(snapshot, state.collection.names, text, keys)


def _weights(opened: OpenCollection, request: Request, fusion: str | None) -> dict[str, float]:
    """Return the weight of each search in the fusion; an empty mapping if one search answered alone."""
    if fusion is None:
        return {}
    if fusion == "score":
        declared = getattr(opened.models.embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
        vector = vector_weight(request.options.get("weights"), declared)
        return {"vector": vector, "keyword": 1 - vector}
    return {name: float((request.options.get("weights") or {}).get(name, 1.0)) for name in LEGS}
