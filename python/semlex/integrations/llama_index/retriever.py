"""The retriever: searches a collection with all of semlex's options."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from semlex.integrations.calls import CollectionRunner, searched
from semlex.integrations.llama_index.nodes import scored_node, tree_of_filters
from semlex.types.queries import MAX_TERMS_BYTES, words_of_terms

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.callbacks.base import CallbackManager
    from llama_index.core.schema import NodeWithScore, QueryBundle

    from semlex.filters.forms import Filters
    from semlex.retriever.collection import Collection
    from semlex.retriever.synchronous import SyncCollection
    from semlex.types.results import SearchMode

logger = logging.getLogger("semlex")


class SemlexRetriever(BaseRetriever):
    """Searches a collection, also one that was filled with `semlex index`, by meaning and by words.

    The metadata of chunks of files holds ``source``, ``source_document``, ``heading_path``, ``line``, ``page``. The
    score of a node is the mixed one if a reranker answered, else the fused one, else that of the search.

    Without `embed_model`, the ``custom_embedding_strs`` of a `QueryBundle` are its ``terms``: words that the documents
    would use, searched together with the question. Of longer texts, such as a HyDE passage, the first 1,024 bytes are
    used, and a warning is logged.

    Args:
        collection: A collection of `semlex.connect_sync` (synchronous and asynchronous calls) or of `semlex.connect`
            (asynchronous calls only).
        similarity_top_k: Number of nodes, 1 to 1,000.
        mode: ``vector``, ``keyword`` or ``hybrid``. Default: hybrid if both searches are possible.
        filters: `MetadataFilters`, or a filter of semlex.
        embed_model: Model of LlamaIndex that embeds the queries. Default: the collection's own model, if it has one.
        callback_manager: As of `BaseRetriever`.
        search_options: Other options of `Collection.search`, such as ``weights``, ``rerank`` or ``min_similarity``.
    """

    def __init__(
        self,
        collection: Collection | SyncCollection,
        similarity_top_k: int = 10,
        *,
        mode: SearchMode | None = None,
        filters: MetadataFilters | Filters | None = None,
        embed_model: BaseEmbedding | None = None,
        callback_manager: CallbackManager | None = None,
        **search_options: Any,
    ) -> None:
        self._runner = CollectionRunner(collection)
        self._embed_model = embed_model
        tree = tree_of_filters(filters) if isinstance(filters, MetadataFilters) else filters
        self._options = {**search_options, "top_k": similarity_top_k, "mode": mode, "filters": tree}
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = query_bundle.embedding
        if vector is None and self._embed_model is not None:
            vector = self._embed_model.get_agg_embedding_from_queries(query_bundle.embedding_strs)
        return self._runner.run(self._search, query_bundle, vector)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = query_bundle.embedding
        if vector is None and self._embed_model is not None:
            vector = await self._embed_model.aget_agg_embedding_from_queries(query_bundle.embedding_strs)
        return await self._runner.run_async(self._search, query_bundle, vector)

    async def _search(self, query: QueryBundle, vector: list[float] | None) -> list[NodeWithScore]:
        options = self._options
        if vector is None and query.custom_embedding_strs is not None:
            options = {**options, "terms": _terms(query)}
        found = await searched(self._runner.collection, query.query_str, vector=vector, **options)
        return [scored_node(hit) for hit in found]


def _terms(query: QueryBundle) -> str:
    """Return the texts of a query besides its question, as plain words, cut to what a search accepts."""
    words = words_of_terms(one for one in query.custom_embedding_strs or () if one != query.query_str)
    given = words.encode("utf-8", "surrogatepass")
    if len(given) <= MAX_TERMS_BYTES:
        return words
    sizes = f"{len(given):,}", f"{MAX_TERMS_BYTES:,}"
    logger.warning("search: the terms have %s bytes; only the first %s are used", *sizes)
    return given[:MAX_TERMS_BYTES].decode("utf-8", "ignore")
