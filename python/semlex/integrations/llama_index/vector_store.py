"""The vector store of LlamaIndex: stores nodes and answers queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from semlex.errors import ConfigurationError
from semlex.integrations.calls import EVERYTHING, NOTHING, CollectionRunner, all_of, both_ways, has_id, pages, searched
from semlex.integrations.llama_index.nodes import documents_of_nodes, node_of, of_documents, tree_of_filters
from semlex.types.queries import MAX_TOP_K
from semlex.validation import check_parameters, number_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode

    from semlex.filters.tree import FilterTree
    from semlex.retriever.collection import Collection
    from semlex.retriever.synchronous import SyncCollection
    from semlex.types.results import SearchResult

KEYWORD_MODES = (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH)
HYBRID_MODES = (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SEMANTIC_HYBRID)
MODES = (VectorStoreQueryMode.DEFAULT, *KEYWORD_MODES, *HYBRID_MODES, VectorStoreQueryMode.MMR)
# Of how many candidates for each wanted node the mode mmr chooses, and by how much relevance counts, unless it is said.
MMR_PREFETCH = 4.0
MMR_THRESHOLD = 0.5


class SemlexVectorStore(BasePydanticVectorStore):
    """A collection as a vector store of LlamaIndex.

    Nodes are returned as they were added, without their embeddings. A node replaces the stored one of the same id. You
    open and close the collection's client.

    Args:
        collection: A collection of `semlex.connect_sync`, for synchronous and asynchronous methods, or of
            `semlex.connect`, for asynchronous ones only. Vectors come from LlamaIndex: make the client with
            ``embedding_model="none"``, or with the same model.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    _runner: CollectionRunner = PrivateAttr()

    def __init__(self, collection: Collection | SyncCollection) -> None:
        super().__init__(stores_text=True)
        self._runner = CollectionRunner(collection)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows this class."""
        return "SemlexVectorStore"

    @property
    def client(self) -> Collection | SyncCollection:
        """The collection."""
        return self._runner.given

    async def _add(self, nodes: Sequence[BaseNode], on_duplicate: Any = "update") -> list[str]:
        """Store nodes and return their ids, in order.

        Nodes without an embedding are embedded by the collection's model; without a model, only keyword search finds
        them. `on_duplicate` is as of `Collection.add_documents`.

        Raises:
            ValidationError: With every error of every node; nothing was written.
            ModelMismatchError: The embeddings are of another dimension than those in the collection.
        """
        listed = list(nodes)
        vectors = [node.embedding for node in listed]
        await self._runner.collection.add_documents(documents_of_nodes(listed), vectors, on_duplicate=on_duplicate)
        return [node.node_id for node in listed]

    add, async_add = both_ways(_add)

    async def _delete(self, ref_doc_id: str) -> None:
        """Delete the nodes that were cut from a document; it need not have any."""
        await self._runner.collection.delete(filters=of_documents([ref_doc_id]))

    delete, adelete = both_ways(_delete)

    async def _get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return nodes by their ids, in order (missing ones are left out), or those that pass a filter, or all."""
        tree = None if filters is None else tree_of_filters(filters)
        collection = self._runner.collection
        if node_ids is None:
            return [node_of(chunk) async for page in pages(collection, tree) for chunk in page]
        found = await collection.get(node_ids)
        if tree is not None and found:
            passing = {one.id async for page in pages(collection, has_id(node_ids) & tree) for one in page}
            found = [chunk for chunk in found if chunk.id in passing]
        return [node_of(chunk) for chunk in found]

    get_nodes, aget_nodes = both_ways(_get_nodes)

    async def _delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> None:
        """Delete nodes that have one of the ids and pass the filter, as far as given; `clear` deletes all."""
        if node_ids is not None and not node_ids:
            return
        tree = None if filters is None else tree_of_filters(filters, needed=node_ids is None)
        await self._runner.collection.delete(node_ids, filters=tree)

    delete_nodes, adelete_nodes = both_ways(_delete_nodes)

    async def _clear(self) -> None:
        """Delete every chunk of the collection, also those that were not added through this store."""
        await self._runner.collection.delete(filters=EVERYTHING)

    clear, aclear = both_ways(_clear)

    async def _query(
        self,
        query: VectorStoreQuery,
        *,
        mmr_threshold: float | None = None,
        mmr_prefetch_factor: float = MMR_PREFETCH,
        **options: Any,
    ) -> VectorStoreQueryResult:
        """Return the best nodes for a query, with the scores that order them.

        | mode | search | how many | score |
        |---|---|---|---|
        | default | by vectors | ``similarity_top_k`` | cosine (of other distances: see `SearchResult.vector_score`) |
        | text_search, sparse | by words | ``sparse_top_k``, else ``similarity_top_k`` | of the keyword engine |
        | hybrid | by both | ``hybrid_top_k``, else ``similarity_top_k`` | fused; ``alpha`` weighs the vectors |
        | semantic_hybrid | by both, reranked | as hybrid | mixed with the reranker's |
        | mmr | by vectors, unlike each other | ``similarity_top_k`` | cosine; not in descending order |

        `mmr_threshold` is from 0 (as different as possible) to 1 (as relevant as possible), by default 0.5; `options`
        are further options of `Collection.search`. Hits of a fallback without scores have no similarities.
        """
        mode = VectorStoreQueryMode(query.mode)
        if mode not in MODES:
            known = ", ".join(one.value for one in MODES)
            raise ConfigurationError(
                f"a vector store has no mode '{mode.value}', which needs a trained model; known modes: {known}"
            )
        for name in ("output_fields", "embedding_field"):
            if getattr(query, name) is not None:
                raise ConfigurationError(f"{name} is not supported: nodes are returned whole, and have one embedding")
        if mode == VectorStoreQueryMode.MMR:
            threshold = next(one for one in (mmr_threshold, query.mmr_threshold, MMR_THRESHOLD) if one is not None)
            hits = await self._diverse(query, threshold, mmr_prefetch_factor, options)
        else:
            hits = await self._search(query, _options(query, mode) | options)
        nodes = [node_of(hit) for hit in hits]
        scores = [score for hit in hits if (score := hit.score) is not None]
        similarities = scores if len(scores) == len(nodes) else None
        return VectorStoreQueryResult(nodes, similarities, [node.node_id for node in nodes])

    query, aquery = both_ways(_query)

    async def _search(self, query: VectorStoreQuery, options: dict[str, Any]) -> list[SearchResult]:
        return await searched(self._runner.collection, filters=_filters(query), **options)

    async def _diverse(
        self, query: VectorStoreQuery, threshold: float, prefetch: float, options: dict[str, Any]
    ) -> list[SearchResult]:
        """Return hits that are near the query and differ from each other."""
        check_parameters(
            number_errors("mmr_threshold", threshold, 0, 1),
            number_errors("mmr_prefetch_factor", prefetch, 1, MAX_TOP_K),
        )
        wanted = query.similarity_top_k
        many = {"top_k": min(MAX_TOP_K, max(wanted, round(wanted * prefetch)))}
        hits = await self._search(query, _options(query, VectorStoreQueryMode.DEFAULT) | many | options)
        return (await self._runner.collection.diversify(hits, 1 - threshold))[:wanted]


def _options(query: VectorStoreQuery, mode: VectorStoreQueryMode) -> dict[str, Any]:
    top_k, sparse, text = query.similarity_top_k, query.sparse_top_k, query.query_str
    if mode in KEYWORD_MODES:
        return {"query": text, "mode": "keyword", "top_k": sparse or top_k, "rerank": False}
    vector = query.query_embedding
    if mode not in HYBRID_MODES:
        return {"query": text if vector is None else None, "vector": vector, "mode": "vector", "top_k": top_k}
    wanted = query.hybrid_top_k or top_k
    options: dict[str, Any] = {"query": text, "vector": vector, "mode": "hybrid", "top_k": wanted}
    options["rerank"] = mode == VectorStoreQueryMode.SEMANTIC_HYBRID
    if query.alpha is not None:
        options["weights"] = {"vector": query.alpha, "keyword": 1 - query.alpha}
    if sparse is not None or query.hybrid_top_k is not None:
        options["tuning"] = {"candidates": max(30, 3 * wanted, top_k, sparse or 0)}
    return options


def _filters(query: VectorStoreQuery) -> FilterTree | None:
    parts = [] if query.filters is None else [tree_of_filters(query.filters)]
    if query.node_ids:  # an index over a store that has the texts gives an empty list, and means all
        parts.append(has_id(query.node_ids))
    if query.doc_ids is not None:
        parts.append(of_documents(query.doc_ids) if query.doc_ids else NOTHING)
    return all_of(parts) if parts else None
