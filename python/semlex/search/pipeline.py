"""One search: its stages in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.search.pagination import next_cursor, opened_list, ranked_list
from semlex.search.planner import choose_legs
from semlex.search.query_vector import embed_query
from semlex.search.results import search_results
from semlex.search.retrieval import Retrieval
from semlex.search.state import SearchState

if TYPE_CHECKING:
    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.search.request import Request
    from semlex.types.results import SearchResults

PHRASE_NOTE = "no chunk was found that holds the quoted phrase; its words were searched instead"


class SearchPipeline:
    """Runs requests against an open collection.

    Args:
        opened: The collection.
        reranker: Orders the best candidates; None for the fused order.
    """

    def __init__(self, opened: OpenCollection, reranker: Reranker | None) -> None:
        self._opened = opened
        self._reranker = reranker

    async def run(self, request: Request) -> SearchResults:
        """Chooses the legs, embeds the query, finds and loads hits, reranks them, and makes the results of them."""
        opened, collection = self._opened, self._opened.info
        if request.page is not None and not request.page.offset:
            request = opened_list(request, str(collection.collection_id), reranks=self._reranker is not None)
        legs, warnings = choose_legs(request, collection, opened.models)
        state = SearchState(request, legs, request.vector, warnings=warnings)
        retrieval = Retrieval(opened, reranks=self._reranker is not None)
        await embed_query(state, opened)
        found = await retrieval.find_enough(state)
        keyword = found.results.get("keyword")
        if not found.hits and keyword is not None and keyword.has_phrases:
            state.warnings += [*keyword.warnings, PHRASE_NOTE]
            state.with_phrases = False
            found = await retrieval.find_enough(state)
        hits, reranked_by = await ranked_list(state, found.hits, self._reranker, opened.executor)
        if not hits and request.condition.fields:
            state.warnings += await retrieval.unknown_fields(request)
        cursor = next_cursor(state, found.hits, reranked_by, str(collection.collection_id))
        return search_results(state, found, hits, collection=collection, reranker=reranked_by, next_cursor=cursor)
