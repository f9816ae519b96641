"""A search as a retriever of LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.retrievers import BaseRetriever
from pydantic import Field, field_validator

from semlex.integrations.calls import AnyCollection, asearch, checked_collection, search
from semlex.integrations.langchain.values import documents_of, filters_of

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document

    from semlex.types.results import SearchResults


class SemlexRetriever(BaseRetriever):
    """A `BaseRetriever` over a collection of semlex.

    ``invoke(query, k=…, filters=…, mode=…)`` and any other argument of `Collection.search` count for one call.

    Attributes:
        collection: A collection or a retriever. One of `connect_sync` serves sync and async callers; one of `connect`
            the callers of its own event loop.
        k: Number of documents, 1 to 1,000.
        filters: LangChain's mappings, or a filter of semlex; see docs/filters.md.
        mode: ``vector``, ``keyword`` or ``hybrid``; None is hybrid where both legs are possible.
        search_kwargs: Other arguments of `Collection.search`, such as ``rerank``, ``min_similarity``, ``boost``.
        details: Whether the metadata gets places and scores (`SearchResults.to_documents`); otherwise it is the
            user's alone.

    Raises:
        ValidationError: Pydantic's, not semlex's: a field is refused when the retriever is made. What a search refuses
            is refused by the search, as semlex's error.
    """

    collection: Any
    k: int = 4
    filters: Any = None
    mode: str | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    details: bool = False

    @field_validator("collection")
    @classmethod
    def _check_collection(cls, collection: object) -> AnyCollection:
        return checked_collection(collection)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **options: Any
    ) -> list[Document]:
        del run_manager  # LangChain tells it what was found
        return self._documents(search(self.collection, query, **self._arguments(k, options)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None, **options: Any
    ) -> list[Document]:
        del run_manager
        return self._documents(await asearch(self.collection, query, **self._arguments(k, options)))

    def _arguments(self, k: int | None, options: dict[str, Any]) -> dict[str, Any]:
        given = {"filters": self.filters, "mode": self.mode} | self.search_kwargs | options
        given["filters"] = filters_of(given["filters"])
        return {"top_k": self.k if k is None else k} | given

    def _documents(self, results: SearchResults) -> list[Document]:
        return results.to_documents() if self.details else documents_of(results)
