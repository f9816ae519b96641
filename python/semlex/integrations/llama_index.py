"""LlamaIndex: a collection as a vector store for its indexes, and as a retriever."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, FieldError, ValidationError, needing

with needing("llama_index.core", "llama-index-core", "llama-index", __name__):
    import llama_index.core  # noqa: F401 - whether it is there

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from semlex.filters.fields import refusal
from semlex.filters.tree import F, FilterTree
from semlex.integrations.calls import (
    EVERYTHING,
    NOTHING,
    CollectionRunner,
    all_of,
    any_of,
    both_ways,
    check_depth,
    has_id,
    key_field,
    metadata_with_place,
    pages,
    searched,
)
from semlex.types.documents import Document as SemlexDocument
from semlex.types.documents import StoredChunk
from semlex.types.queries import MAX_TERMS_BYTES, MAX_TOP_K, words_of_terms
from semlex.validation import check_parameters, number_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.callbacks.base import CallbackManager

    from semlex.filters.forms import Filters
    from semlex.retriever.collection import Collection
    from semlex.retriever.synchronous import SyncCollection
    from semlex.types.results import SearchMode, SearchResult

logger = logging.getLogger("semlex")

PLACE = "filters"
# The operators that need a list, and those that need a text.
LISTS = (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
TEXTS = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
WILDCARDS = re.compile(r"[\\%_]")


def tree_of_filters(filters: MetadataFilters, *, needed: bool = False, depth: int = 1) -> FilterTree:
    """Convert a nested filter; a filter without conditions always holds, but is refused if `needed`."""
    check_depth(PLACE, depth)
    if not filters.filters:
        if needed:
            raise refusal(PLACE, "missing", "a condition in every group; clear() deletes all nodes")
        return all_of([])
    parts = [
        tree_of_filters(part, needed=needed, depth=depth + 1)
        if isinstance(part, MetadataFilters)
        else tree_of_filter(part, needed=needed)
        for part in filters.filters
    ]
    if filters.condition == FilterCondition.OR:
        return any_of(parts)
    # Several conditions under "not": none of them holds.
    return ~any_of(parts) if filters.condition == FilterCondition.NOT else all_of(parts)


def tree_of_filter(one: MetadataFilter, *, needed: bool = False) -> FilterTree:
    """Convert a condition; its key is one metadata key, even with dots, or a field of semlex's own (``@page``)."""
    operator, value = FilterOperator(one.operator), one.value
    place = f"{PLACE}.{one.key[:40]}"
    field = F(one.key) if one.key.startswith("@") else key_field(one.key)
    if operator == FilterOperator.IS_EMPTY:
        return field.empty()
    if value is None:
        raise refusal(place, "wrong_type", "a value; for a missing value, use FilterOperator.IS_EMPTY", "None")
    for operators, kind, called in ((LISTS, list, "a list"), (TEXTS, str, "a text")):
        if operator in operators and not isinstance(value, kind):
            expected = f"{called}, which the operator '{operator.value}' needs"
            raise refusal(place, "wrong_type", expected, type(value).__name__)
    if operator in LISTS:
        if needed and operator == FilterOperator.NIN and not value:
            raise refusal(place, "missing", "a value in the list; clear() deletes all nodes")
        return _listed(field, operator, value)
    if operator in TEXTS:
        pattern = "%" + WILDCARDS.sub(r"\\\g<0>", value) + "%"
        return field.like(pattern) if operator == FilterOperator.TEXT_MATCH else field.ilike(pattern)
    return {
        FilterOperator.EQ: field.__eq__,
        FilterOperator.NE: field.__ne__,
        FilterOperator.GT: field.__gt__,
        FilterOperator.GTE: field.__ge__,
        FilterOperator.LT: field.__lt__,
        FilterOperator.LTE: field.__le__,
        FilterOperator.CONTAINS: field.contains,
    }[operator](value)


def _listed(field: F, operator: FilterOperator, values: Sequence[object]) -> FilterTree:
    """Return a condition on a list of values; with an empty list, "in" and "any" never hold and "all" always does."""
    if operator in {FilterOperator.IN, FilterOperator.NIN}:
        found = field.in_(values) if values else NOTHING
        return found if operator == FilterOperator.IN else ~found
    if operator == FilterOperator.ANY:
        return field.any(values) if values else NOTHING
    return field.all(values) if values else field.exists() & ~(field == None)  # noqa: E711 - JSON's null


# The key of the metadata under which the rest of a node is stored: its kind, relationships, templates, excluded keys.
NODE = "_node"
REF_DOC_ID = "ref_doc_id"
KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}


def documents_of_nodes(nodes: Sequence[BaseNode]) -> list[SemlexDocument]:
    """Convert nodes of LlamaIndex's own classes to documents."""
    errors = []
    for row, node in enumerate(nodes):
        if KINDS.get(node.class_name()) is not type(node):
            kinds = ", ".join(kind.__name__ for kind in KINDS.values())
            limit = f"a node of LlamaIndex's own kinds ({kinds})"
            errors.append(FieldError(row, None, "node", "wrong_type", limit, type(node).__name__))
        elif NODE in node.metadata:
            limit = f"without the key {NODE}, under which the store keeps the rest of a node"
            errors.append(FieldError(row, node.node_id, "metadata", "wrong_type", limit))
    if errors:
        raise ValidationError(errors)
    return [_document(node) for node in nodes]


def _document(node: BaseNode) -> SemlexDocument:
    kept = node.model_dump(mode="json", exclude={"id_", "embedding", "metadata", "text"}, exclude_defaults=True)
    if "text_resource" in kept:
        kept["text_resource"].pop("text", None)
    kept[REF_DOC_ID] = node.ref_doc_id
    return SemlexDocument(node.get_content(MetadataMode.NONE), {**node.metadata, NODE: kept}, node.node_id)


def node_of(chunk: StoredChunk) -> BaseNode:
    """Return the node that was stored as this chunk; for any other chunk, a `TextNode` with its document as source."""
    metadata: dict[str, Any] = metadata_with_place(chunk)
    stored = metadata.get(NODE)
    kind = KINDS.get(str(stored.get("class_name"))) if isinstance(stored, dict) else None
    if stored is None or kind is None:
        made = TextNode(id_=chunk.id, text=chunk.content, metadata=metadata)
        if chunk.parent_id and not chunk.source:  # that of a chunk of a file is another chunk
            made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=chunk.parent_id)
        return made
    del metadata[NODE]
    kept = {name: value for name, value in stored.items() if name not in {REF_DOC_ID, "class_name"}}
    if issubclass(kind, TextNode):
        kept["text"] = chunk.content
    else:
        kept["text_resource"] = {**kept.get("text_resource", {}), "text": chunk.content}
    return kind.from_dict({**kept, "id_": chunk.id, "metadata": metadata})


def of_documents(ref_doc_ids: Sequence[str]) -> FilterTree:
    """Return a filter for nodes that refer to one of these documents, and added chunks whose parent is one of them."""
    ids = list(ref_doc_ids)
    return key_field(NODE, REF_DOC_ID).in_(ids) | (F("@parent").in_(ids) & ~F("@source_document").exists())


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
        them. `on_duplicate` is as for `Collection.add_documents`.

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
        """Delete the nodes that were made from a document, if there are any."""
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
        """Delete the nodes that have one of the ids, if given, and pass the filter, if given; `clear` deletes all."""
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
        are other options of `Collection.search`. If a fallback returned hits without scores, the result has no
        similarities.
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


class SemlexRetriever(BaseRetriever):
    """Searches a collection, also one that was filled with `semlex index`, by meaning and by words.

    The metadata of chunks of files holds ``source``, ``source_document``, ``heading_path``, ``line``, ``page``. The
    score of a node is `SearchResult.mixed_score` if a reranker answered, else the fused score, else the only search's.

    Without `embed_model`, the ``custom_embedding_strs`` of a `QueryBundle` are its ``terms``: words that the documents
    would use, searched together with the question. Longer texts, such as a HyDE passage, are cut to the first 1,024
    bytes, and a warning is logged.

    Args:
        collection: A collection of `semlex.connect_sync` (synchronous and asynchronous calls) or of `semlex.connect`
            (asynchronous calls only).
        similarity_top_k: Number of nodes, 1 to 1,000.
        mode: ``vector``, ``keyword`` or ``hybrid``. Default: hybrid if both searches are possible.
        filters: `MetadataFilters`, or a filter of semlex.
        embed_model: Model of LlamaIndex that embeds the queries. Default: the collection's own model, if it has one.
        callback_manager: As for `BaseRetriever`.
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
        return [NodeWithScore(node=node_of(hit), score=hit.score) for hit in found]


def _terms(query: QueryBundle) -> str:
    """Return the texts of a query except its question, as plain words, cut to what a search accepts."""
    words = words_of_terms(one for one in query.custom_embedding_strs or () if one != query.query_str)
    given = words.encode("utf-8", "surrogatepass")
    if len(given) <= MAX_TERMS_BYTES:
        return words
    sizes = f"{len(given):,}", f"{MAX_TERMS_BYTES:,}"
    logger.warning("search: the terms have %s bytes; only the first %s are used", *sizes)
    return given[:MAX_TERMS_BYTES].decode("utf-8", "ignore")


__all__ = ["SemlexRetriever", "SemlexVectorStore"]
