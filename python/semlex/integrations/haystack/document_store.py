"""The document store: opens its collection, and writes, lists, counts, changes and deletes documents."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from haystack import default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret, deserialize_secrets_inplace

from semlex.errors import ConfigurationError, DuplicateError
from semlex.integrations.calls import EVERYTHING, CollectionRunner, both_ways, pages
from semlex.integrations.haystack.documents import (
    bare,
    checked_documents,
    distinct,
    document_of,
    extremes,
    stored_documents,
    tree_of_haystack,
    types,
)
from semlex.options.collection import CollectionOptions
from semlex.retriever.synchronous import SyncClient
from semlex.types.documents import utc_now
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from haystack import Document

    from semlex.integrations.haystack.documents import Metadata
    from semlex.options.collection import DistanceName, StorageName
    from semlex.retriever.collection import Collection
    from semlex.store.write.chunks import OnDuplicate

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
        """Return the store as a dict; of a database address, only the environment variable's name is included."""
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
            policy: What happens to a document whose id is stored. ``NONE`` is ``FAIL``.

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
        """Return the least and greatest value of a field; None if it has no values, or both numbers and texts."""
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
