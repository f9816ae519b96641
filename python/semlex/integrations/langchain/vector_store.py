"""A collection as a vector store of LangChain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from langchain_core.vectorstores import VectorStore

from semlex.errors import ConfigurationError
from semlex.ingest.given_documents import documents_from_texts
from semlex.integrations.calls import AnyCollection, CollectionRunner, both_ways, checked_collection, searched
from semlex.integrations.langchain.models import LangChainEmbedder
from semlex.integrations.langchain.retriever import (
    cut_to_unit,
    documents_of,
    filters_of,
    ranking_scores,
    relevance_scores,
)
from semlex.retriever.synchronous import SyncClient
from semlex.validation import check_parameters, number_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from semlex.types.documents import Document as SemlexDocument
    from semlex.types.results import SearchResults

Scored = list[tuple["Document", float]]
Documents = list["Document"]


class SemlexVectorStore(VectorStore):
    """A vector store of LangChain on Postgres that finds by meaning and by words.

    Given a name, the store opens the collection with a client of its own, which `close` (or ``with``) closes; a given
    collection stays open. Sync and async methods work from any event loop; for a collection of `connect`, only async
    ones on its loop. Every method that searches takes ``filter`` (LangChain's mappings, or a filter of semlex) and any
    other argument of `Collection.search`: ``mode="vector"``, ``rerank=True``, ``boost=…``.

    Args:
        embedding: An embedding model of LangChain. Default: semlex's own (the client's ``embedding_model``).
        collection: A name, or a collection (or retriever) of semlex, which has its model already.
        client: Arguments of `SyncClient`, if a name is given: ``db_url`` and others; without ``db_url`` the embedded
            Postgres starts.
    """

    def __init__(
        self, embedding: Embeddings | None = None, *, collection: str | AnyCollection = "langchain", **client: Any
    ) -> None:
        self._embedding = embedding
        self._client: SyncClient | None = None
        if not isinstance(collection, str):
            self.collection = checked_collection(collection)
            if embedding is not None or client:
                raise ConfigurationError(
                    "a given collection uses the model and the server of its client: give them to the client, as "
                    "connect_sync(url, LangChainEmbedder(embedding)), or give the name of a collection here"
                )
            return
        if embedding is not None:
            if "embedding_model" in client:
                raise ConfigurationError("embedding and embedding_model are two models; give one of them")
            client["embedding_model"] = LangChainEmbedder(embedding)
        self._client = SyncClient(**client)
        self.collection = self._client.collection(collection)
        self._client.initialize()

    def close(self) -> None:
        """Close the client if the store opened one; a given collection stays open."""
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def embeddings(self) -> Embeddings | None:
        """Return the given model of LangChain; None if semlex's own model is used."""
        return self._embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> Self:
        """Make a store and add texts to it; `options` are the arguments of the class."""
        store = cls(embedding, **options)
        try:
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> Self:
        """Make a store and add texts to it, as `from_texts` does."""
        store = await asyncio.to_thread(cls, embedding, **options)
        try:
            await store.aadd_texts(texts, metadatas, ids=ids)
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        return store

    @property
    def _runner(self) -> CollectionRunner:
        return CollectionRunner(self.collection)

    async def _add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> list[str]:
        """Store texts and return their ids, in order; a text with a stored id replaces it.

        All texts are checked before anything is written. A text without an id gets one computed from text and metadata,
        so that adding it again does not store it twice.

        Args:
            texts: Any iterable; each text has 1 character to 128 KiB and is stored unchanged.
            metadatas: JSON-compatible mappings, one per text.
            ids: Ids, one per text.
            batch_size: Passed by `langchain_core.indexing.index`; not used.
            options: Other arguments of `Collection.add_documents`, such as ``embeddings``.

        Raises:
            ValidationError: With every error of every text; nothing was written.
        """
        del batch_size
        return await self._runner.collection.add_documents(_given(texts, metadatas, ids), **options)

    add_texts, aadd_texts = both_ways(_add_texts)

    async def _delete(self, ids: list[str] | None = None, *, filter: Any = None, **options: Any) -> bool:  # noqa: A002 - LangChain's name
        """Delete documents by id or by a filter, ignoring missing ones; without either, raise `ConfigurationError`."""
        await self._runner.collection.delete(ids, filters=filters_of(filter), **options)
        return True

    delete, adelete = both_ways(_delete)

    async def _get_by_ids(self, ids: Sequence[str], /) -> Documents:
        """Return documents by id, in their order; missing ones are left out."""
        return documents_of(await self._runner.collection.get(ids))

    get_by_ids, aget_by_ids = both_ways(_get_by_ids)

    async def _similarity_search(self, query: str, k: int = 4, **options: Any) -> Documents:
        """Return the best documents for a query, by meaning and by words unless ``mode`` is given."""
        return documents_of(await self._search(query, k, options))

    similarity_search, asimilarity_search = both_ways(_similarity_search)

    async def _scored_search(self, query: str, k: int = 4, **options: Any) -> Scored:
        """Return the best documents with the scores that order them; greater is better.

        The score is the mixed one if a reranker answered, else the fused one, which cannot be compared between queries;
        in mode ``vector`` the cosine, in mode ``keyword`` that of the keyword engine.
        """
        return _scored(await self._search(query, k, options), ranking_scores)

    similarity_search_with_score, asimilarity_search_with_score = both_ways(_scored_search)

    async def _relevant(self, query: str, k: int = 4, **options: Any) -> Scored:
        """Return the best documents with their relevance, 0 to 1; see `relevance_scores`."""
        return _scored(await self._search(query, k, options), relevance_scores)

    _similarity_search_with_relevance_scores, _asimilarity_search_with_relevance_scores = both_ways(_relevant)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Return the function from a score to a relevance; it only limits the score to 0 to 1."""
        return cut_to_unit

    async def _search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> Documents:
        """Return the documents nearest to a vector of your own."""
        return documents_of(await self._search(None, k, options | {"vector": embedding}))

    similarity_search_by_vector, asimilarity_search_by_vector = both_ways(_search_by_vector)

    async def _diverse(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> Documents:
        """Return `k` of the `fetch_k` best documents that are relevant and differ from each other, by stored vectors.

        `lambda_mult` is from 0 (as different as possible) to 1 (the order of the search); see `Collection.diversify`.
        """
        return await self._diversified(query, k, fetch_k, lambda_mult, options)

    max_marginal_relevance_search, amax_marginal_relevance_search = both_ways(_diverse)

    async def _diverse_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> Documents:
        """Return documents near your vector that differ from each other; see `max_marginal_relevance_search`."""
        return await self._diversified(None, k, fetch_k, lambda_mult, options | {"vector": embedding})

    max_marginal_relevance_search_by_vector, amax_marginal_relevance_search_by_vector = both_ways(_diverse_by_vector)

    async def _search(self, query: str | None, k: int, options: dict[str, Any]) -> SearchResults:
        own = {name: value for name, value in options.items() if name != "filter"}
        if "filter" in options:  # LangChain's name
            own["filters"] = filters_of(options["filter"])
        return await searched(self._runner.collection, query, k, **own)

    async def _diversified(
        self, query: str | None, k: int, fetch_k: int, lambda_mult: float, options: dict[str, Any]
    ) -> Documents:
        check_parameters(number_errors("lambda_mult", lambda_mult, 0, 1))
        found = await self._search(query, max(k, fetch_k), options)
        return documents_of((await self._runner.collection.diversify(found, 1 - lambda_mult))[:k])


def _given(
    texts: Iterable[str], metadatas: list[dict[str, Any]] | None, ids: Sequence[str | None] | None
) -> list[SemlexDocument]:
    """Convert LangChain's texts to documents; ids None and "" mean no id."""
    return documents_from_texts(texts, None if ids is None else [one or "" for one in ids], metadatas or None)


def _scored(results: SearchResults, scores: Callable[[SearchResults], list[float]]) -> Scored:
    return list(zip(documents_of(results), scores(results), strict=True))
