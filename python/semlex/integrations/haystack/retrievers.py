"""Retrievers for pipelines: by embeddings, by words, and by both."""

from __future__ import annotations

from typing import Any, Self

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from semlex.integrations.calls import both_ways, searched
from semlex.integrations.haystack.document_store import SemlexDocumentStore
from semlex.integrations.haystack.documents import document_of_hit, tree_of_haystack
from semlex.validation import check_parameters, kind_errors

Found = dict[str, list[Document]]
FOUND = component.output_types(documents=list[Document])


class StoreRetriever:
    """The common part of the retrievers.

    Args:
        document_store: Store of the documents.
        filters: Filter in Haystack's form.
        top_k: Number of documents, 1 to 1,000.
        filter_policy: Whether filters of a run replace these, or are merged with them.
        return_embedding: Whether the documents have their embeddings.
    """

    def __init__(
        self,
        document_store: SemlexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        *,
        return_embedding: bool = False,
    ) -> None:
        check_parameters(kind_errors("document_store", document_store, SemlexDocumentStore))
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k
        self.filter_policy = FilterPolicy.from_str(filter_policy) if isinstance(filter_policy, str) else filter_policy
        self.return_embedding = return_embedding

    def _parameters(self) -> dict[str, Any]:
        return {
            "document_store": self.document_store.to_dict(),
            "filters": self.filters,
            "top_k": self.top_k,
            "filter_policy": self.filter_policy.value,
            "return_embedding": self.return_embedding,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the retriever and its store as a dict."""
        made: dict[str, Any] = default_to_dict(self, **self._parameters())
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make the retriever that `to_dict` described."""
        parameters = data["init_parameters"]
        store = SemlexDocumentStore.from_dict(parameters["document_store"])
        made: Self = default_from_dict(cls, {**data, "init_parameters": {**parameters, "document_store": store}})
        return made

    @property
    def _runner(self) -> SemlexDocumentStore:
        return self.document_store

    async def _search(self, filters: dict[str, Any] | None, top_k: int | None, **options: Any) -> Found:
        merged = apply_filter_policy(self.filter_policy, self.filters, filters)
        collection = self.document_store.opened
        hits = await searched(
            collection, filters=tree_of_haystack(merged), top_k=self.top_k if top_k is None else top_k, **options
        )
        vectors = (
            await collection.embeddings.vectors([hit.id for hit in hits]) if self.return_embedding and hits else {}
        )
        return {"documents": [document_of_hit(hit, vectors) for hit in hits]}


@component
class SemlexEmbeddingRetriever(StoreRetriever):
    """Finds the documents whose embeddings are nearest to the query's.

    The score is the cosine, -1 to 1; with other distances, minus the L2 distance or the inner product. See
    `StoreRetriever` for its arguments.
    """

    async def _run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> Found:
        """Return the nearest documents."""
        return await self._search(filters, top_k, vector=query_embedding, mode="vector", rerank=False)

    run, run_async = map(FOUND, both_ways(_run))


@component
class SemlexKeywordRetriever(StoreRetriever):
    """Finds the documents that match the query's words best; one matching word is enough.

    The score is BM25, from 0, comparable only within one query. See `StoreRetriever` for its arguments.
    """

    async def _run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        terms: str | list[str] | None = None,
    ) -> Found:
        """Return the documents with the words of the query, and of terms that the documents would use."""
        return await self._search(filters, top_k, query=query, terms=terms, mode="keyword", rerank=False)

    run, run_async = map(FOUND, both_ways(_run))


@component
class SemlexHybridRetriever(StoreRetriever):
    """Finds the documents that fit a query best by meaning and by words, with both scores fused.

    The score is the fused one, which is not a similarity; with `rerank` it is mixed with the reranker's. If one search
    fails, the other answers, and a warning is logged.

    Args:
        document_store: See `StoreRetriever` for this and the next ones.
        filters: As of `StoreRetriever`.
        top_k: Number of documents, 1 to 1,000.
        filter_policy: As of `StoreRetriever`.
        return_embedding: As of `StoreRetriever`.
        alpha: Share of the vectors in the fused score, 0 (words alone) to 1. Default: the model's own, else 0.5.
        rerank: Whether the store's reranker orders the best 4 x `top_k` candidates.
        min_similarity: Minimum cosine of a document, -1 to 1.
    """

    def __init__(
        self,
        document_store: SemlexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        *,
        return_embedding: bool = False,
        alpha: float | None = None,
        rerank: bool = False,
        min_similarity: float | None = None,
    ) -> None:
        # Haystack creates the class again, so that `super()` would not know it.
        StoreRetriever.__init__(self, document_store, filters, top_k, filter_policy, return_embedding=return_embedding)
        self.alpha = alpha
        self.rerank = rerank
        self.min_similarity = min_similarity

    def _parameters(self) -> dict[str, Any]:
        own = {"alpha": self.alpha, "rerank": self.rerank, "min_similarity": self.min_similarity}
        return StoreRetriever._parameters(self) | own  # noqa: SLF001 - as above

    async def _run(
        self,
        query: str,
        query_embedding: list[float] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        terms: str | list[str] | None = None,
    ) -> Found:
        """Return the documents that fit a query, and terms that the documents would use, best.

        Without `query_embedding` the store's own model embeds the query.
        """
        return await self._search(
            filters,
            top_k,
            query=query,
            terms=terms,
            vector=query_embedding,
            mode="hybrid",
            weights=None if self.alpha is None else {"vector": self.alpha, "keyword": 1 - self.alpha},
            rerank=self.rerank,
            min_similarity=self.min_similarity,
        )

    run, run_async = map(FOUND, both_ways(_run))
