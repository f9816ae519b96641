"""semlex as parts of LangChain: a retriever, a vector store, a document compressor.

    SemlexRetriever: A search as a retriever.
    SemlexVectorStore: A collection as a vector store.
    SemlexReranker: A reranker as a document compressor.
    LangChainEmbedder: An embedding model of LangChain as one of semlex.

Needs the extra ``langchain``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelError, needing

with needing("langchain_core", "langchain-core", "langchain", __name__):
    import langchain_core  # noqa: F401 - only whether it is there

import numpy as np
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import Field, field_validator

from semlex.embedding.base import BaseEmbedder, EmbedderIdentity, check_vectors
from semlex.filters.fields import COLUMNS, refusal
from semlex.ingest.given_documents import documents_from_texts
from semlex.integrations.calls import (
    AnyCollection,
    CollectionRunner,
    both_ways,
    check_depth,
    checked_collection,
    searched,
)
from semlex.models.model_names import LANGCHAIN
from semlex.reranking.registry import choose_reranker
from semlex.retriever.synchronous import SyncClient
from semlex.search.rerank import usable_scores
from semlex.types.display import DECIDING
from semlex.validation import (
    check_parameters,
    check_range,
    kind_errors,
    model_errors,
    number_errors,
    text_parameter,
    wrong_type,
)

if TYPE_CHECKING:
    from langchain_core.callbacks import Callbacks
    from numpy.typing import NDArray

    from semlex.filters.forms import Filters
    from semlex.reranking.base import Reranker
    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResults

# What LangChain's classes call the name of their model.
NAMES = ("model", "model_name", "model_id", "deployment")


class LangChainEmbedder(BaseEmbedder):
    """An embedding model of LangChain for `semlex.connect` and `connect_sync`.

    Args:
        embeddings: The model; it is called from several threads, as LangChain does.
        name: Name that is stored with a collection (after ``langchain:``) and compared when it is opened. Default: the
            class, with the name of its model if it has one.
        dimensions: Length of its vectors. Default: the model embeds a word to find out.
    """

    calls_at_once = 4  # most of them are on a server

    def __init__(self, embeddings: Embeddings, *, name: str | None = None, dimensions: int | None = None) -> None:
        check_parameters(kind_errors("embeddings", embeddings, Embeddings), text_parameter("name", name))
        if dimensions is not None:
            check_range("dimensions", dimensions, 1)
        self.embeddings = embeddings
        self._name = _name_of(embeddings) if name is None else LANGCHAIN + name
        self._dimensions = dimensions

    @cached_property
    def identity(self) -> EmbedderIdentity:
        """Return the identity: everything that the vectors depend on."""
        dimensions = self._dimensions or len(self.embeddings.embed_query("dimensions"))
        return EmbedderIdentity(self._name, "langchain", dimensions, None, "unknown", normalised=False)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts as documents: (n, dimensions)."""
        return self._checked(self.embeddings.embed_documents(list(texts)), len(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed one text as a query: (dimensions,)."""
        vector: NDArray[np.float32] = self._checked([self.embeddings.embed_query(text)], 1)[0]
        return vector

    def _checked(self, vectors: list[list[float]], rows: int) -> NDArray[np.float32]:
        try:
            array = np.asarray(vectors, dtype=np.float32).reshape(rows, -1)
        except (TypeError, ValueError):
            raise ModelError(
                f"{self._name} did not return a list of vectors of equal length for {rows} texts"
            ) from None
        return check_vectors(array, rows=rows, dimensions=self.dimensions, model=self._name, normalised=False)


def _name_of(embeddings: Embeddings) -> str:
    names = (getattr(embeddings, name, None) for name in NAMES)
    model = next((name for name in names if isinstance(name, str) and name), None)
    return LANGCHAIN + type(embeddings).__name__ + (f":{model}" if model else "")


class SemlexReranker(BaseDocumentCompressor):
    """A document compressor of LangChain that orders documents by a reranker of semlex.

    Attributes:
        reranker: A `Reranker`, or the name of one, such as ``term-overlap`` or ``Qwen/Qwen3-Reranker-0.6B``.
        top_n: How many documents are kept. Default: all.
        score_key: Key of the metadata for the score. Default: none.
    """

    reranker: Any
    top_n: int | None = Field(default=None, ge=1)
    score_key: str | None = None

    @field_validator("reranker")
    @classmethod
    def _check_reranker(cls, given: object) -> Reranker:
        check_parameters(
            wrong_type("reranker", "str or a reranker", given) if given is None else [],
            model_errors("reranker", given, "score"),
        )
        chosen = choose_reranker(given).model  # type: ignore[arg-type]
        if chosen is None:
            raise ConfigurationError("reranker must name a reranker, such as 'term-overlap'; got 'none'")
        return chosen

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Order copies of the documents by how well they answer a query, best first."""
        del callbacks  # nothing is called that they could follow
        if not documents:
            return []
        scores = usable_scores(self.reranker.score(query, [one.page_content for one in documents]), len(documents))
        order = sorted(range(len(documents)), key=lambda row: -scores[row])[: self.top_n]
        return [self._scored(documents[row], float(scores[row])) for row in order]

    def _scored(self, document: Document, score: float) -> Document:
        added = {} if self.score_key is None else {self.score_key: score}
        return document.model_copy(update={"metadata": document.metadata | added})


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
    raise ConfigurationError("the hits have no common score; similarity_search returns them without scores")


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
            "search has none of them; similarity_search_with_score gives the scores that order the hits"
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
        filters: LangChain's mappings, or a filter of semlex; see docs/reference/filters.md.
        mode: ``vector``, ``keyword`` or ``hybrid``. Default: hybrid if both searches are possible.
        search_kwargs: Other arguments of `Collection.search`, such as ``rerank``, ``min_similarity``, ``boost``.
        details: Whether the metadata contains places and scores (`SearchResults.to_documents`).
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


Scored = list[tuple[Document, float]]
Documents = list[Document]


class SemlexVectorStore(VectorStore):
    """A vector store of LangChain on Postgres that finds by meaning and by words.

    Given a name, the store opens the collection with its own client, which `close` (or ``with``) closes; a given
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
        """Store texts and return their ids, in order; a text whose id is stored replaces the stored one.

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
        own = None if ids is None else [one or "" for one in ids]  # None and "" mean no id
        documents = documents_from_texts(texts, own, metadatas or None)
        return await self._runner.collection.add_documents(documents, **options)

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

        The score is `SearchResult.mixed_score` if a reranker answered, else the fused score, which cannot be compared
        between queries; in mode ``vector`` the cosine, in mode ``keyword`` the keyword engine's score.
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


def _scored(results: SearchResults, scores: Callable[[SearchResults], list[float]]) -> Scored:
    return list(zip(documents_of(results), scores(results), strict=True))


__all__ = ["LangChainEmbedder", "SemlexReranker", "SemlexRetriever", "SemlexVectorStore"]
