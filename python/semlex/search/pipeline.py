"""Run the stages of a search in order; run many searches at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.search.pagination import next_cursor, opened_list, ranked_list
from semlex.search.planner import choose_legs
from semlex.search.query_vector import embed_queries, embed_query
from semlex.search.request import Request, check_similarity
from semlex.search.rerank import at_least
from semlex.search.results import search_results
from semlex.search.retrieval import Retrieval
from semlex.search.state import Found, SearchState
from semlex.store.schema.collection import curve_in_use
from semlex.telemetry import (
    DOCUMENTS,
    FAILED_LEGS,
    HITS,
    MODE,
    QUERY_TEXT,
    SEARCHES,
    TOP_K,
    Span,
    Work,
    span,
    takes_content,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.types.results import SearchResults

PHRASE_NOTE = "no chunk was found that contains the quoted phrase; its words were searched instead"


class SearchPipeline:
    """Runs requests against an open collection."""

    def __init__(self, opened: OpenCollection, reranker: Reranker | None) -> None:
        self._opened = opened
        self._reranker = reranker

    @property
    def reranks(self) -> bool:
        """Whether a reranker orders the best candidates."""
        return self._reranker is not None

    async def run(self, request: Request) -> SearchResults:
        """Run a search: choose vector or keyword search, embed the query, find and rerank hits, make the results."""
        with self._span(request.top_k) as told:
            state = self.begin(request)
            await embed_query(state, self._opened)
            found = await self.find(state, self._opened)
            results = await self.results(state, found)
            if told.is_recorded:
                told.note(_told(request, found, results))
        return results

    async def run_many(self, requests: Sequence[Request]) -> list[SearchResults]:
        """Run many searches, whose queries are embedded in one batch and answered in one snapshot."""

        async def find_all(snapshot: Snapshot) -> list[tuple[SearchState, Found]]:
            opened = self._opened.within(snapshot)
            again = [state.copy() for state in states]  # this may be run once more
            return [(state, await self.find(state, opened)) for state in again]

        with self._span(None, len(requests)):
            states = [self.begin(request) for request in requests]
            await embed_queries(states, self._opened)
            found = await self._opened.reader.read_snapshot("search", find_all, with_vectors=True)
            return [await self.results(*one) for one in found]

    def _span(self, top_k: int | None, searches: int = 1) -> Span:
        collection = self._opened.info.names.collection
        return span(Work.RETRIEVAL, collection, {TOP_K: top_k, SEARCHES: searches})

    def begin(self, request: Request) -> SearchState:
        """Choose vector search, keyword search or both for a request, and return the state to begin with."""
        opened, collection = self._opened, self._opened.info
        if request.page is not None and not request.page.offset:
            request = opened_list(request, reranks=self._reranker is not None)
        legs, warnings = choose_legs(request, collection, opened.models)
        if request.options.get("min_similarity") is not None:
            check_similarity(collection, legs)
        if request.options.get("min_rerank") is not None and (self._reranker is None or request.text is None):
            raise ConfigurationError(
                "min_rerank needs a reranker and a query text: name a reranker with reranker_model= or --reranker, and "
                "do not turn reranking off"
            )
        for one in collection.keyword.without_words(request.exclude):
            warnings.append(f"exclude {one!a} excludes nothing: it has no words but stop words, which are not indexed")
        return SearchState(request, collection, legs, request.vector, warnings=warnings)

    async def find(self, state: SearchState, opened: OpenCollection) -> Found:
        """Find the hits; if no chunk contains the query's phrases, find hits by its words."""
        retrieval = Retrieval(opened, reranks=self._reranker is not None)
        found = await retrieval.find_enough(state)
        keyword = found.results.get("keyword")
        # A candidate that min_similarity leaves out contains them.
        if not found.hits and found.left_out is None and keyword is not None and keyword.has_phrases:
            state.warnings += [*keyword.warnings, PHRASE_NOTE]
            state.with_phrases = False
            found = await retrieval.find_enough(state)
        condition = state.request.condition
        if not found.hits and (condition.metadata_fields or condition.names_rows):
            state.warnings += await retrieval.unknown_fields(state.request)
        return found

    async def results(self, state: SearchState, found: Found) -> SearchResults:
        """Return the hits in their final order, with warnings."""
        collection = state.collection
        state.warnings += self._opened.note("search")
        if "vector" in state.legs:
            state.warnings += self._opened.lacking_note()
        hits, reranked_by = await ranked_list(state, found.hits, self._reranker, self._opened.executor)
        hits, notes = at_least(hits, state.request.options.get("min_rerank"), reranked_by)
        state.warnings += [*(found.left_out.notes(len(found.hits)) if found.left_out else []), *notes]
        curve, notes = curve_in_use(self._opened.curve, collection)
        state.warnings += notes
        if state.spread is None and state.vector is not None:
            state.spread = self._opened.sample.spread_in_memory(state.collection, state.vector)
        cursor = next_cursor(state, found.hits, reranked_by)
        return search_results(state, found, hits, reranker=reranked_by, next_cursor=cursor, curve=curve)


def _told(request: Request, found: Found, results: SearchResults) -> dict[str, Any]:
    """Return the attributes that are added to the telemetry span of a search at its end."""
    failed = [name for name, leg in found.results.items() if leg.error is not None]
    told: dict[str, Any] = {MODE: results.mode, HITS: len(results), FAILED_LEGS: failed or None}
    if takes_content():
        scored = [(hit.id, hit.fused_score if hit.mixed_score is None else hit.mixed_score) for hit in results]
        hits = [{"id": id_, "score": score} for id_, score in scored]
        told |= {QUERY_TEXT: request.text, DOCUMENTS: json.dumps(hits)}
    return told
