"""Make the results of a search: hits, grouped by document if wanted, with the scores of every stage, and the report."""

from __future__ import annotations

import math
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from semlex.options.search import MAX_CANDIDATES
from semlex.search.fusion import LEGS, Candidate
from semlex.types.confidence import MAX_NEARNESS, ConfidenceCurve, Evidence, Support, support_of
from semlex.types.results import DocumentHits, LegReport, SearchMode, SearchResult, SearchResults, show_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from semlex.search.request import Request
    from semlex.search.rerank import Hits
    from semlex.search.state import Found, SearchState
    from semlex.store.query.chunks import DocumentKey
    from semlex.store.query.leg import Key, LegResult


def best_of_documents(
    candidates: Iterable[Candidate], documents: Mapping[Key, DocumentKey], *, count: int, size: int
) -> list[Candidate]:
    """Return up to `size` chunks of each of the first `count` documents, in the order of `candidates`."""
    chosen: list[Candidate] = []
    taken: dict[DocumentKey, int] = {}
    for candidate in candidates:
        document = documents.get(candidate.key)
        if document is None or taken.get(document, 0) == size or (document not in taken and len(taken) == count):
            continue
        taken[document] = taken.get(document, 0) + 1
        chosen.append(candidate)
    return chosen


def by_document(hits: Hits, documents: Mapping[Key, DocumentKey], count: int) -> list[Hits]:
    """Return the hits of the best `count` documents, grouped by document, in the order of their best hits."""
    groups: dict[DocumentKey, Hits] = {}
    for hit in hits:
        groups.setdefault(documents[hit[0].key], []).append(hit)
    return list(groups.values())[:count]


def lacks_documents(found: Found, request: Request, depth: int) -> bool:
    """Return whether fewer documents than wanted were found and more candidates might bring others."""
    if found.documents is None or len(set(found.documents.values())) >= request.top_k:
        return False
    return any(len(result.keys) >= depth for result in found.results.values())


# How many first hits, and first chunks of each search, decide whether there is probably an answer.
JUDGED_HITS, JUDGED_DEPTH = 5, 10
# Scores of a candidate that its hit bears.
STAGE_SCORES = (
    *("vector_score", "keyword_score", "fused_score"),
    *("vector_contribution", "keyword_contribution", "boost", "heading_factor"),
)
_stage_scores = attrgetter(*STAGE_SCORES)


def search_results(
    state: SearchState,
    found: Found,
    hits: Hits,
    *,
    reranker: str | None,
    next_cursor: str | None = None,
    curve: ConfidenceCurve | None = None,
) -> SearchResults:
    """Make the results of a search."""
    request, legs, warnings = state.request, found.results, list(state.warnings)
    offset = 0 if request.page is None else request.page.offset
    groups = [] if found.documents is None else by_document(hits, found.documents, request.top_k)
    shown = list(chain.from_iterable(groups)) or hits[offset : min(offset + request.top_k, request.most)]
    if lacks_documents(found, request, MAX_CANDIDATES):
        warnings.append(
            f"the best {MAX_CANDIDATES:,} chunks are from fewer documents than wanted: to find other documents, "
            "exclude these with a filter"
        )
    results = [scored(hit, candidate, rank) for rank, (candidate, hit) in enumerate(shown, offset + 1)]
    for hit in results:
        if curve is not None and hit.vector_score is not None:
            hit.confidence = curve.probability(hit.vector_score)
    answered = [name for name in state.legs if name in found.answered]
    failed = [name for name in state.legs if name in legs and legs[name].error is not None]
    warnings += [f"the {name} search did not answer: {legs[name].error}" for name in failed]
    if found.fusion != request.fusion:
        warnings.append("some scores were not computed in time: hits are ordered by reciprocal rank fusion (rrf)")
    warnings += [] if state.read_from is None else state.read_from.warnings
    timings = dict(state.timings)
    for name in answered:
        warnings += legs[name].warnings
        timings[f"{name}_leg"] = legs[name].milliseconds
    timings["total"] = (request.clock.monotonic() - request.started) * 1000
    embedding = state.collection.embedding
    is_cosine = state.collection.distance.name == "cosine"
    similarities = [hit.vector_score for hit in results if hit.vector_score is not None and is_cosine]
    return SearchResults(
        results,
        mode=_mode(answered),
        requested_mode=request.mode or _mode(state.legs),
        embedding_model=embedding.model if embedding is not None and "vector" in answered else None,
        reranker_model=reranker,
        fusion=found.fusion if len(answered) > 1 else None,
        legs={name: _report(name, legs[name]) for name in answered},
        timings=timings,
        query_cached=state.query_cached,
        best_similarity=max(similarities, default=None),
        coverage=max((hit.coverage for hit in results if hit.coverage is not None), default=None),
        support=_support(state, found) if results else "unlikely",
        warnings=list(dict.fromkeys(warnings)),
        next_cursor=next_cursor,
        without_vector=_without_vector(results, answered, found),
        documents=[_document(rank, [hit for _, hit in group]) for rank, group in enumerate(groups, 1)],
        read_from=state.read_from,
    )


def _support(state: SearchState, found: Found) -> Support:
    """Return whether the collection probably contains an answer to the query."""
    good = {name: leg for name, leg in found.answered.items() if leg.keys}
    vector, keyword, embedding = good.get("vector"), good.get("keyword"), state.collection.embedding
    known = [hit.coverage for _, hit in found.hits[:JUDGED_HITS] if hit.coverage is not None]
    coverage, words = max(known, default=None), None
    if coverage is not None and keyword is not None and keyword.terms:
        words = coverage * math.sqrt(keyword.terms)
    overlap = None
    if vector is not None and keyword is not None:
        nearest, by_words = ({id_ for _, id_ in leg.keys[:JUDGED_DEPTH]} for leg in (vector, keyword))
        overlap = len(nearest & by_words) / JUDGED_DEPTH
    similarity = background = nearness = None
    spread = state.spread
    if vector is not None and spread is not None and state.collection.distance.name == "cosine":
        similarity, background = float(vector.scores.max()), spread.mean
        nearness = (similarity - background) / spread.deviation if spread.deviation else 0.0
        nearness = min(max(nearness, 0.0), MAX_NEARNESS)
    evidence = Evidence(words=words, overlap=overlap, similarity=similarity, background=background, nearness=nearness)
    model = None if embedding is None else embedding.model
    chunks = keyword.postings.chunks if keyword is not None and keyword.postings is not None else 0
    chunks = max(chunks, *(len(leg.keys) for leg in good.values()))
    return support_of(evidence, model, coverage=coverage, chunks=chunks)


def _without_vector(results: list[SearchResult], answered: list[str], found: Found) -> int | None:
    """Return how many hits lack the vector that score fusion needs; None if something else ordered the hits."""
    is_known = len(answered) == len(LEGS) and found.fusion == "score"
    return sum(hit.vector_score is None for hit in results) if is_known else None


def _document(rank: int, hits: list[SearchResult]) -> DocumentHits:
    best = hits[0]
    return DocumentHits(rank, best.source, best.root, best.source_document, hits)


def _report(name: str, leg: LegResult) -> LegReport:
    selection = leg.selection
    ids = None if selection is None else selection.ids
    return LegReport(
        name,
        leg.plan or "the engine's own index",
        None if selection is None else selection.share,
        None if ids is None else len(ids),
        len(leg.keys),
        leg.milliseconds,
        leg.work,
    )


def scored(hit: SearchResult, candidate: Candidate, rank: int) -> SearchResult:
    """Set the rank and the scores of every stage in a loaded hit, and return it; two scores also go to its metadata."""
    hit.rank, hit.vector_rank, hit.keyword_rank = rank, candidate.vector_rank, candidate.keyword_rank
    for name, score in zip(STAGE_SCORES, _stage_scores(candidate), strict=True):
        if score is not None:
            setattr(hit, name, score + 0.0)  # -0.0 becomes an ordinary zero
    show_scores(hit)
    return hit


def _mode(legs: list[str]) -> SearchMode:
    if legs == ["vector"]:
        return "vector"
    return "keyword" if legs == ["keyword"] else "hybrid"
