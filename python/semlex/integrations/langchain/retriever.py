"""A search as a retriever of LangChain."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, field_validator

from semlex.errors import ConfigurationError, EmbeddingsMissingError
from semlex.filters.fields import COLUMNS, refusal
from semlex.integrations.calls import (
    AnyCollection,
    CollectionRunner,
    both_ways,
    check_depth,
    checked_collection,
    searched,
)
from semlex.types.display import DECIDING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.filters.forms import Filters
    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResults


def documents_of(chunks: Iterable[StoredChunk]) -> list[Document]:
    """Convert chunks to documents of LangChain: text, id, and the user's metadata as stored."""
    return [Document(page_content=chunk.content, id=chunk.id, metadata=dict(chunk.metadata)) for chunk in chunks]


def filters_of(given: object) -> Filters | None:
    """Convert a filter of LangChain; return semlex's own forms (a text, `F`) unchanged."""
    # LangChain's mappings have semlex's operators. Two things differ: every name is a key of the metadata (`@` marks
    # semlex's own fields), and `$not` may have a list of conditions, none of which must hold.
    if isinstance(given, Callable):  # type: ignore[arg-type]
        raise refusal("filter", "wrong_type", "a mapping, a text or F; a database cannot call a function", "a function")
    return _translated(given) if isinstance(given, Mapping) else given  # type: ignore[return-value]


def _translated(given: Any, depth: int = 1) -> Any:
    check_depth("filters", depth)
    if not isinstance(given, Mapping):
        return given  # refused with its place, or a value
    made = {}
    for key, value in given.items():
        if key in ("$and", "$or", "$not") and isinstance(value, (list, tuple)):
            parts = [_translated(one, depth + 1) for one in value]
            made[key] = {"$or": parts} if key == "$not" else parts
        elif key == "$not":
            made[key] = _translated(value, depth + 1)
        else:
            made[json.dumps(key) if key in COLUMNS else key] = value
    return made


def ranking_scores(results: SearchResults) -> list[float]:
    """Return the scores that order the hits; greater is better."""
    for name in DECIDING:
        scores = [getattr(hit, name) for hit in results]
        if None not in scores:
            return scores
    raise ConfigurationError("the hits have no score in common; similarity_search gives them without one")


def relevance_scores(results: SearchResults) -> list[float]:
    """Return the relevance of each hit, 0 to 1, in the order of the hits."""
    # It is the first of these that all hits have: the reranker's score, the calibrated confidence, the cosine (at least
    # 0; 0 without a vector). Fused scores are not used, because they are comparable only within one query.
    if not results:
        return []
    for name in ("rerank_score", "confidence"):
        scores = [getattr(hit, name) for hit in results]
        if None not in scores:
            return [cut_to_unit(score) for score in scores]
    if results.best_similarity is None:
        raise EmbeddingsMissingError(
            "a relevance from 0 to 1 needs cosines, a calibration (semlex eval calibrate) or a reranker, and this "
            "answer has none; similarity_search_with_score gives the scores that order the hits"
        )
    return [cut_to_unit(hit.vector_score or 0.0) for hit in results]


def cut_to_unit(score: float) -> float:
    """Return the score, limited to 0 to 1."""
    return min(1.0, max(0.0, score))


class SemlexRetriever(BaseRetriever):
    """A retriever of LangChain over a collection of semlex.

    Pass ``k``, ``filters``, ``mode`` or any other argument of `Collection.search` to ``invoke(query, …)`` to change it
    for one call.

    Attributes:
        collection: A collection or a retriever. One of `connect_sync` serves sync and async callers; one of `connect`
            only callers on its event loop.
        k: Number of documents, 1 to 1,000.
        filters: LangChain's mappings, or a filter of semlex; see docs/filters.md.
        mode: ``vector``, ``keyword`` or ``hybrid``. Default: hybrid if both searches are possible.
        search_kwargs: Other arguments of `Collection.search`, such as ``rerank``, ``min_similarity``, ``boost``.
        details: Whether the metadata gets places and scores (`SearchResults.to_documents`).
        supported: Whether to return no documents if `SearchResults.support` is ``unlikely``.
    """

    collection: Any
    k: int = 4
    filters: Any = None
    mode: str | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    details: bool = False
    supported: bool = False

    @field_validator("collection")
    @classmethod
    def _check_collection(cls, collection: object) -> AnyCollection:
        return checked_collection(collection)

    @property
    def _runner(self) -> CollectionRunner:
        return CollectionRunner(self.collection)

    async def _relevant(self, query: str, *, run_manager: Any, k: int | None = None, **options: Any) -> list[Document]:
        del run_manager  # LangChain tells it what was found
        given = {"filters": self.filters, "mode": self.mode} | self.search_kwargs | options
        given["filters"] = filters_of(given["filters"])
        found = await searched(self._runner.collection, query, **({"top_k": self.k if k is None else k} | given))
        if self.supported and found.support == "unlikely":
            return []
        return found.to_documents() if self.details else documents_of(found)

    _get_relevant_documents, _aget_relevant_documents = both_ways(_relevant)
