"""Haystack: a collection as a document store, and retrievers for pipelines."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from semlex.errors import ConfigurationError, DuplicateError, FieldError, ValidationError, needing

with needing("haystack", "haystack-ai", "haystack", __name__):
    from haystack import Document, component, default_from_dict, default_to_dict

from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
from haystack.errors import FilterError
from haystack.utils import Secret, deserialize_secrets_inplace

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
from semlex.options.collection import CollectionOptions, DistanceName, StorageName
from semlex.retriever.synchronous import SyncClient
from semlex.types.documents import Document as SemlexDocument
from semlex.types.documents import StoredChunk, utc_now
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.retriever.collection import Collection
    from semlex.store.write.chunks import OnDuplicate

Metadata = dict[str, Any]
TYPES: dict[type, str] = {bool: "boolean", int: "int", float: "float"}
# What a collection does not store, and what helps.
REFUSED = {
    "blob": "None: a collection stores texts; keep the file elsewhere and its address in meta",
    "sparse_embedding": "None: keyword search uses the text",
}


def checked_documents(documents: object) -> list[Document]:
    """Check that each document has a text, and nothing that a collection cannot store."""
    if not isinstance(documents, (list, tuple)):
        raise ValidationError([FieldError(-1, None, "documents", "wrong_type", "list of Document", _kind(documents))])
    errors = []
    for row, one in enumerate(documents):
        if not isinstance(one, Document):
            errors.append(FieldError(row, None, "document", "wrong_type", "Document", _kind(one)))
            continue
        if one.content is None:
            errors.append(FieldError(row, one.id, "content", "missing", "the text that is searched"))
        for name, remedy in REFUSED.items():
            if getattr(one, name) is not None:
                errors.append(FieldError(row, one.id, name, "wrong_type", remedy, _kind(getattr(one, name))))
    if errors:
        raise ValidationError(errors)
    return list(documents)


def _kind(value: object) -> str:
    return type(value).__name__


def stored_documents(documents: Sequence[Document]) -> list[SemlexDocument]:
    """Convert checked documents; give them ascending times, because documents are listed by time."""
    # Haystack's contract compares lists of documents, so their order must be that of the call.
    now = utc_now()
    return [
        SemlexDocument(one.content or "", one.meta, one.id, created_at=now + timedelta(microseconds=number))
        for number, one in enumerate(documents)
    ]


def document_of(chunk: StoredChunk, vectors: Mapping[str, NDArray[np.float32]], score: float | None = None) -> Document:
    """Convert a chunk to a document of Haystack, with its vector from `vectors` (by id) and the score of a hit."""
    vector = vectors.get(chunk.id)
    meta: dict[str, Any] = metadata_with_place(chunk)
    embedding = None if vector is None else vector.tolist()
    return Document(id=chunk.id, content=chunk.content, meta=meta, score=score, embedding=embedding)


def bare(field: str) -> str:
    """Return the name of a metadata field without the prefix that it has in filters."""
    return field.removeprefix("meta.")


def distinct(metadata: Iterable[Metadata], field: str) -> list[Any]:
    """Return the different values of a field, sorted by text; 1, 1.0, "1" and true are different, as in JSON."""
    values = (one.get(bare(field)) for one in metadata)
    found = {json.dumps(value, sort_keys=True): value for value in values if value is not None}
    return sorted(found.values(), key=lambda value: (str(value), type(value).__name__))


def types(metadata: Iterable[Metadata]) -> dict[str, dict[str, str]]:
    """Return the type of each field: ``int``, ``float``, ``boolean``; ``keyword`` for any other or several types."""
    found: dict[str, set[str]] = {}
    for one in metadata:
        for name, value in one.items():
            if value is not None:
                found.setdefault(name, set()).add(TYPES.get(type(value), "keyword"))
    common = {frozenset({kind}): kind for kind in TYPES.values()} | {frozenset({"int", "float"}): "float"}
    return {name: {"type": common.get(frozenset(kinds), "keyword")} for name, kinds in found.items()}


def extremes(metadata: Iterable[Metadata], field: str) -> dict[str, Any]:
    """Return the minimum and maximum of a field; None if it has no values, or both numbers and texts."""
    values = [value for value in distinct(metadata, field) if isinstance(value, (int, float, str))]
    are_texts = {isinstance(value, str) for value in values}
    if len(are_texts) != 1:
        return {"min": None, "max": None}
    return {"min": min(values), "max": max(values)}


PLACE = "filters"
GROUPS = ("AND", "OR", "NOT")
ORDER = ("<", "<=", ">", ">=")
MEMBERSHIP = ("in", "not in")
OPERATORS = ("==", "!=", *ORDER, *MEMBERSHIP)
# Fields of a document of Haystack that no filter of semlex looks at, and what helps.
UNFILTERED = {
    "content": "a retriever, which searches texts",
    "embedding": "the embedding retriever",
    "score": "the scores of the documents that a retriever returns",
    "blob": "meta",
    "sparse_embedding": "meta",
}


def tree_of_haystack(filters: dict[str, Any] | None, *, needed: bool = False) -> FilterTree | None:
    """Convert a filter of Haystack; None stays None."""
    # If `needed`, every group must have a condition, so that a filter that always holds cannot delete everything.
    try:
        return _tree(filters, PLACE, needed=needed) if filters else None
    except ValidationError as error:
        raise FilterError(str(error)) from error


def _tree(filters: object, place: str, *, needed: bool, depth: int = 1) -> FilterTree:
    check_depth(PLACE, depth)  # the place itself is too long to be read
    if not isinstance(filters, dict):
        raise refusal(place, "wrong_type", "dict", type(filters).__name__)
    is_group = "field" not in filters and ("conditions" in filters or filters.get("operator") in GROUPS)
    for key in ("operator", "conditions") if is_group else ("field", "operator", "value"):
        if key not in filters:
            raise refusal(f"{place}.{key}", "missing")
    operator = filters["operator"]
    if is_group:
        return _group(operator, filters["conditions"], place, needed=needed, depth=depth)
    if operator not in OPERATORS:
        raise refusal(f"{place}.operator", "wrong_operator", ", ".join(OPERATORS))
    name = filters["field"]
    if not isinstance(name, str):
        raise refusal(f"{place}.field", "wrong_type", "str", type(name).__name__)
    if needed and operator == "not in" and filters["value"] == []:
        raise refusal(f"{place}.value", "missing", "at least one value; delete_all_documents() deletes all")
    if name == "id":
        return _ids(operator, filters["value"], place)
    if name in UNFILTERED:
        raise refusal(
            f"{place}.field", "wrong_type", f"'id' or a field of meta; instead of {name} use {UNFILTERED[name]}"
        )
    field = F(name) if name.startswith("@") else key_field(*name.removeprefix("meta.").split("."))
    return _condition(field, operator, filters["value"], place)


def _group(operator: object, conditions: object, place: str, *, needed: bool, depth: int) -> FilterTree:
    if operator not in GROUPS:
        raise refusal(f"{place}.operator", "wrong_operator", ", ".join(GROUPS))
    if not isinstance(conditions, list):
        raise refusal(f"{place}.conditions", "wrong_type", "list", type(conditions).__name__)
    if needed and not conditions:
        raise refusal(f"{place}.conditions", "missing", "at least one condition; delete_all_documents() deletes all")
    parts = [
        _tree(one, f"{place}.conditions[{number}]", needed=needed, depth=depth + 1)
        for number, one in enumerate(conditions)
    ]
    if operator == "OR":
        return any_of(parts)
    return all_of(parts) if operator == "AND" else ~all_of(parts)


def _condition(field: F, operator: str, value: object, place: str) -> FilterTree:
    if operator in MEMBERSHIP:
        values = _list(value, place)
        among = [one for one in values if one is not None]
        parts = [field.in_(among)] if among else []
        found = any_of(parts + [_equal(field, None)] * (len(among) < len(values)))
        return found if operator == "in" else ~found
    if operator in {"==", "!="}:
        return _equal(field, value) if operator == "==" else ~_equal(field, value)
    if value is None:
        return NOTHING  # nothing is above or below it
    if isinstance(value, str) and not _is_time(value):
        raise refusal(f"{place}.value", "wrong_type", "a number or a time in ISO form", "another text")
    return {"<": field < value, "<=": field <= value, ">": field > value, ">=": field >= value}[operator]


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise refusal(f"{place}.value", "wrong_type", "list", type(value).__name__)
    return value


def _equal(field: F, value: object) -> FilterTree:
    # Haystack does not tell null from missing.
    return field == value if value is not None else (field == None) | ~field.exists()  # noqa: E711


def _ids(operator: str, value: object, place: str) -> FilterTree:
    if operator in ORDER:
        raise refusal(f"{place}.operator", "wrong_operator", "==, !=, in or not in for ids")
    given = _list(value, place) if operator in MEMBERSHIP else [value]
    ids = [one for one in given if isinstance(one, str)]
    if len(ids) < len(given):
        raise refusal(f"{place}.value", "wrong_type", "ids as texts")
    found = has_id(ids)
    return found if operator in {"==", "in"} else ~found


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


P = ParamSpec("P")
T = TypeVar("T")
Filters = dict[str, Any]

# As Haystack's store in memory: a stored document is refused by default.
ON_DUPLICATE: dict[DuplicatePolicy, OnDuplicate] = {
    DuplicatePolicy.NONE: "fail",
    DuplicatePolicy.FAIL: "fail",
    DuplicatePolicy.SKIP: "skip",
    DuplicatePolicy.OVERWRITE: "update",
}

# Of the constructor, beside the address.
PARAMETERS = (
    *("collection", "schema", "embedding_model", "reranker_model", "language", "keyword", "distance"),
    *("vector_storage", "data_folder", "max_connections"),
)
DEFAULT_DATABASE = Secret.from_env_var("DATABASE_URL", strict=False)


class SemlexDocumentStore:
    """A collection as a document store of Haystack.

    The first call opens the store's client. `close` closes it; the next call opens it again.

    Args:
        db_url: Address of the database. Default: ``DATABASE_URL`` of the environment; without it, or with None, the
            embedded Postgres starts.
        collection: Lower-case letters, digits and underscores, at most 48.
        schema: Schema of semlex's tables.
        embedding_model: Name of the model that embeds documents without an embedding, and queries of the hybrid
            retriever; ``none`` for no model.
        reranker_model: Name of a model for the hybrid retriever with ``rerank=True``.
        language: Language of the texts. This and the next three are for a new collection.
        keyword: Keyword engine.
        distance: ``cosine``, ``l2`` or ``inner_product``.
        vector_storage: ``vector`` or ``halfvec``.
        data_folder: Folder of the embedded Postgres.
        max_connections: Size of the pool.
    """

    def __init__(
        self,
        db_url: Secret | None = DEFAULT_DATABASE,
        collection: str = "haystack",
        *,
        schema: str = "semlex",
        embedding_model: str = "none",
        reranker_model: str | None = None,
        language: str | None = None,
        keyword: str | None = None,
        distance: DistanceName | None = None,
        vector_storage: StorageName | None = None,
        data_folder: str | None = None,
        max_connections: int = 8,
    ) -> None:
        self.db_url = db_url
        self.collection = collection
        self.schema = schema
        self.embedding_model = embedding_model
        self.reranker_model = reranker_model
        self.language = language
        self.keyword = keyword
        self.distance = distance
        self.vector_storage = vector_storage
        self.data_folder = data_folder
        self.max_connections = max_connections
        self._options = CollectionOptions(
            language=language, keyword=keyword, distance=distance, vector_storage=vector_storage
        )
        self._opening = threading.Lock()  # several threads may make the first call
        self._opened: tuple[SyncClient, CollectionRunner] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the store as a dict; it names the address's environment variable, and never contains the address."""
        made: dict[str, Any] = default_to_dict(
            self,
            db_url=None if self.db_url is None else self.db_url.to_dict(),
            **{name: getattr(self, name) for name in PARAMETERS},
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make the store that `to_dict` described."""
        deserialize_secrets_inplace(data.get("init_parameters", {}), ["db_url"])
        made: Self = default_from_dict(cls, data)
        return made

    @property
    def _runner(self) -> Self:
        return self

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Run a coroutine on the collection's event loop and wait for it; the client is opened if necessary."""
        return self._ready().run(function, *arguments, **options)

    async def run_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Run a coroutine on the collection's event loop; the caller's loop runs on, even while the client opens."""
        runner = await asyncio.to_thread(self._ready)
        return await runner.run_async(function, *arguments, **options)

    def _ready(self) -> CollectionRunner:
        with self._opening:
            client, runner = self._opened = self._opened or self._made()
        client.initialize()
        return runner

    def _made(self) -> tuple[SyncClient, CollectionRunner]:
        client = SyncClient(
            None if self.db_url is None else self.db_url.resolve_value(),
            self.embedding_model,
            self.reranker_model,
            use_reranking=self.reranker_model is not None,
            schema=self.schema,
            data_folder=self.data_folder,
            max_connections=self.max_connections,
        )
        return client, CollectionRunner(client.collection(self.collection, self._options))

    @property
    def opened(self) -> Collection:
        """Return the open collection, for coroutines that `run` runs."""
        if self._opened is None:
            raise ConfigurationError("the store was closed during the call")
        return self._opened[1].collection

    def close(self) -> None:
        """Close the client: its pool, and its use of an embedded server."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    async def close_async(self) -> None:
        """Close the client, as `close` does."""
        await asyncio.to_thread(self.close)

    async def _count_documents(self) -> int:
        """Count the documents."""
        return await self.opened.count()

    count_documents, count_documents_async = both_ways(_count_documents)

    async def _count_documents_by_filter(self, filters: Filters) -> int:
        """Count the documents that pass a filter."""
        return await self.opened.count(tree_of_haystack(filters))

    count_documents_by_filter, count_documents_by_filter_async = both_ways(_count_documents_by_filter)

    async def _filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that pass a filter, with their embeddings, in the order in which they were written.

        Raises:
            FilterError: The filter is malformed, or compares values that cannot be compared.
        """
        found = []
        async for page in pages(self.opened, tree_of_haystack(filters)):
            vectors = await self.opened.embeddings.vectors([chunk.id for chunk in page])
            found += [(chunk.created_at, chunk.id, document_of(chunk, vectors)) for chunk in page]
        return [document for *_, document in sorted(found, key=lambda one: one[:2])]

    filter_documents, filter_documents_async = both_ways(_filter_documents)

    async def _write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Store documents, up to 5,000 in a transaction; return how many were written. Scores are not stored.

        Args:
            documents: Documents with a text, without blob and sparse embedding.
            policy: What happens to a document whose id is stored. ``NONE`` means ``FAIL``.

        Raises:
            ValidationError: With every error of every document, a ValueError; nothing was written.
            DuplicateDocumentError: With ``FAIL``: an id is stored, or given twice.
        """
        check_parameters(kind_errors("policy", policy, DuplicatePolicy))
        given = checked_documents(documents)
        stored, on_duplicate = stored_documents(given), ON_DUPLICATE[policy]
        try:
            await self.opened.add_documents(stored, [one.embedding for one in given], on_duplicate=on_duplicate)
        except DuplicateError as error:
            raise DuplicateDocumentError(str(error)) from error
        if on_duplicate != "skip":
            return len(stored)
        # Those that were not skipped have the time that they were given.
        times = {str(one.id): one.created_at for one in reversed(stored)}
        return sum(chunk.created_at == times[chunk.id] for chunk in await self.opened.get(list(times)))

    write_documents, write_documents_async = both_ways(_write_documents)

    async def _delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id; ids that do not exist are ignored."""
        if document_ids:
            await self.opened.delete(document_ids)

    delete_documents, delete_documents_async = both_ways(_delete_documents)

    async def _delete_all_documents(self) -> None:
        """Delete everything in the collection, up to 1,000 documents a transaction."""
        await self.opened.delete(filters=EVERYTHING)

    delete_all_documents, delete_all_documents_async = both_ways(_delete_all_documents)

    async def _delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that pass a filter; return how many.

        Raises:
            ConfigurationError: The filter is missing; `delete_all_documents` deletes all.
            FilterError: The filter is malformed, or a group of it has no condition.
        """
        check_parameters(kind_errors("filters", filters or None, dict))
        report = await self.opened.delete(filters=tree_of_haystack(filters, needed=True))
        return report.chunks

    delete_by_filter, delete_by_filter_async = both_ways(_delete_by_filter)

    async def _update_by_filter(self, filters: Filters, meta: Metadata) -> int:
        """Set keys of the metadata of the documents that pass a filter; return how many.

        Documents are read, changed and written in transactions of 1,000; changes by another writer meanwhile may be
        lost.
        """
        check_parameters(kind_errors("meta", meta, dict))
        count = 0
        async for page in pages(self.opened, tree_of_haystack(filters)):
            vectors = await self.opened.embeddings.vectors([chunk.id for chunk in page])
            for chunk in page:
                chunk.metadata, chunk.updated_at = {**chunk.metadata, **meta}, utc_now()
            await self.opened.add_documents(page, [vectors.get(chunk.id) for chunk in page])
            count += len(page)
        return count

    update_by_filter, update_by_filter_async = both_ways(_update_by_filter)

    # --- what the metadata holds: every document that passes is read ---

    async def _metadata(self, filters: Filters | None = None) -> list[Metadata]:
        return [chunk.metadata async for page in pages(self.opened, tree_of_haystack(filters)) for chunk in page]

    async def _count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """Count the different values of fields in the documents that pass a filter."""
        metadata = await self._metadata(filters)
        return {bare(field): len(distinct(metadata, field)) for field in metadata_fields}

    count_unique_metadata_by_filter, count_unique_metadata_by_filter_async = both_ways(_count_unique_metadata_by_filter)

    async def _get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the fields of the metadata, with their types: ``int``, ``float``, ``boolean``, ``keyword``."""
        return types(await self._metadata())

    get_metadata_fields_info, get_metadata_fields_info_async = both_ways(_get_metadata_fields_info)

    async def _get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the minimum and maximum of a field; None if it has no values, or both numbers and texts."""
        return extremes(await self._metadata(), metadata_field)

    get_metadata_field_min_max, get_metadata_field_min_max_async = both_ways(_get_metadata_field_min_max)

    async def _get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """Return a page of the different values of a field, in the order of their texts, and how many exist.

        Args:
            metadata_field: Name of the field, with or without ``meta.``.
            search_term: Return only values whose text contains this, ignoring case.
            from_: Number of values to skip.
            size: Maximum number of values.
            filters: Filter of the documents.
        """
        term = (search_term or "").lower()
        found = distinct(await self._metadata(filters), metadata_field)
        values = [value for value in found if term in str(value).lower()]
        return values[from_ : from_ + size], len(values)

    get_metadata_field_unique_values, get_metadata_field_unique_values_async = both_ways(
        _get_metadata_field_unique_values
    )


Found = dict[str, list[Document]]
FOUND = component.output_types(documents=list[Document])


class StoreRetriever:
    """The base class of the retrievers, with the arguments that all of them take.

    Args:
        document_store: Store of the documents.
        filters: Filter in Haystack's form.
        top_k: Number of documents, 1 to 1,000.
        filter_policy: Whether filters given to a run replace `filters`, or are merged with them.
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
        options |= {"filters": tree_of_haystack(merged), "top_k": self.top_k if top_k is None else top_k}
        hits = await searched(collection, **options)
        with_vectors = [hit.id for hit in hits] if self.return_embedding else []
        vectors = await collection.embeddings.vectors(with_vectors) if with_vectors else {}
        return {"documents": [document_of(hit, vectors, hit.score) for hit in hits]}


@component
class SemlexEmbeddingRetriever(StoreRetriever):
    """Finds the documents whose embeddings are nearest to the query's.

    The score is the cosine, -1 to 1; with other distances, the inner product or the negative L2 distance. The class
    takes the first five arguments of `SemlexHybridRetriever`.
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

    The score is BM25, from 0, comparable only within one query. The class takes the first five arguments of
    `SemlexHybridRetriever`.
    """

    async def _run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        terms: str | list[str] | None = None,
    ) -> Found:
        """Return the best documents that contain words of the query, or of `terms`: words that documents would use."""
        return await self._search(filters, top_k, query=query, terms=terms, mode="keyword", rerank=False)

    run, run_async = map(FOUND, both_ways(_run))


@component
class SemlexHybridRetriever(StoreRetriever):
    """Finds the documents that fit a query best by meaning and by words, with both scores fused.

    The score is the fused one, which is not a similarity; with `rerank` it is mixed with the reranker's. If one search
    fails, the other answers, and a warning is logged.

    Args:
        document_store: Store of the documents.
        filters: Filter in Haystack's form.
        top_k: Number of documents, 1 to 1,000.
        filter_policy: Whether filters given to a run replace `filters`, or are merged with them.
        return_embedding: Whether the documents have their embeddings.
        alpha: Weight of vector search in the fused score, 0 (words alone) to 1. Default: the model's own, else 0.5.
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
        """Return the documents that best fit a query and `terms`, which are words that the documents would use.

        Without `query_embedding`, the store's own model embeds the query.
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
