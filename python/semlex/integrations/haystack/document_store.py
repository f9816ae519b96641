"""The document store: documents written, listed, counted, changed and deleted, with and without `await`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy

from semlex.errors import DuplicateError
from semlex.integrations.conversion import EVERYTHING, pages
from semlex.integrations.haystack.connected_store import ConnectedStore
from semlex.integrations.haystack.documents import checked_documents, document_of, stored_documents
from semlex.integrations.haystack.filters import tree_of_haystack
from semlex.integrations.haystack.metadata_values import bare, distinct, extremes, types
from semlex.types.documents import utc_now
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from haystack import Document

    from semlex.integrations.haystack.metadata_values import Metadata
    from semlex.store.write.chunks import OnDuplicate
    from semlex.types.documents import Document as SemlexDocument

Filters = dict[str, Any]

# As Haystack's store in memory: what is there already is refused, unless it is said what becomes of it.
ON_DUPLICATE: dict[DuplicatePolicy, OnDuplicate] = {
    DuplicatePolicy.NONE: "fail",
    DuplicatePolicy.FAIL: "fail",
    DuplicatePolicy.SKIP: "skip",
    DuplicatePolicy.OVERWRITE: "update",
}


class SemlexDocumentStore(ConnectedStore):  # noqa: D101 - it has that of what it is made with
    __doc__ = ConnectedStore.__doc__

    def count_documents(self) -> int:
        """How many documents there are."""
        return self.run(self._count, None)

    async def count_documents_async(self) -> int:
        """As `count_documents`."""
        return await self.run_async(self._count, None)

    def count_documents_by_filter(self, filters: Filters) -> int:
        """How many documents pass a filter."""
        return self.run(self._count, filters)

    async def count_documents_by_filter_async(self, filters: Filters) -> int:
        """As `count_documents_by_filter`."""
        return await self.run_async(self._count, filters)

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """The documents that pass a filter, with their embeddings, in the order in which they were written.

        Raises:
            FilterError: The filter is malformed, or compares what cannot be compared.
        """
        return self.run(self._filter, filters)

    async def filter_documents_async(self, filters: Filters | None = None) -> list[Document]:
        """As `filter_documents`."""
        return await self.run_async(self._filter, filters)

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Stores documents; a score is none of a document's, and is not stored.

        A transaction holds 5,000 of them at most.

        Args:
            documents: With a text, without blob and sparse embedding.
            policy: What becomes of a document whose id is stored. ``NONE`` is ``FAIL``.

        Returns:
            How many were written.

        Raises:
            ValidationError: With every error of every document, a ValueError; nothing was written.
            DuplicateDocumentError: With ``FAIL``: an id is stored, or given twice.
        """
        return self.run(self._write, documents, policy)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """As `write_documents`."""
        return await self.run_async(self._write, documents, policy)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents by id; missing ones are fine."""
        self.run(self._delete, document_ids)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """As `delete_documents`."""
        await self.run_async(self._delete, document_ids)

    def delete_all_documents(self) -> None:
        """Deletes everything in the collection, at most 1,000 documents a transaction."""
        self.run(self._delete_by_tree, None)

    async def delete_all_documents_async(self) -> None:
        """As `delete_all_documents`."""
        await self.run_async(self._delete_by_tree, None)

    def delete_by_filter(self, filters: Filters) -> int:
        """Deletes the documents that pass a filter; how many there were.

        Raises:
            ConfigurationError: There is no filter; `delete_all_documents` deletes all.
            FilterError: The filter is malformed, or a group of it has no condition.
        """
        return self.run(self._delete_by_tree, _needed(filters))

    async def delete_by_filter_async(self, filters: Filters) -> int:
        """As `delete_by_filter`."""
        return await self.run_async(self._delete_by_tree, _needed(filters))

    def update_by_filter(self, filters: Filters, meta: Metadata) -> int:
        """Sets keys of the metadata of the documents that pass a filter; how many there were.

        They are read, changed and written, 1,000 a transaction: what another writer changes meanwhile may be lost.
        """
        return self.run(self._update, filters, meta)

    async def update_by_filter_async(self, filters: Filters, meta: Metadata) -> int:
        """As `update_by_filter`."""
        return await self.run_async(self._update, filters, meta)

    # --- what the metadata holds: every document that passes is read ---

    def count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """How many different values fields have in the documents that pass a filter."""
        return self.run(self._count_unique, filters, metadata_fields)

    async def count_unique_metadata_by_filter_async(
        self, filters: Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """As `count_unique_metadata_by_filter`."""
        return await self.run_async(self._count_unique, filters, metadata_fields)

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The fields of the metadata, with their types: ``int``, ``float``, ``boolean``, ``keyword``."""
        return types(self.run(self._metadata, None))

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """As `get_metadata_fields_info`."""
        return types(await self.run_async(self._metadata, None))

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Least and greatest value of a field; None where there are none, or numbers and texts."""
        return extremes(self.run(self._metadata, None), metadata_field)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """As `get_metadata_field_min_max`."""
        return extremes(await self.run_async(self._metadata, None), metadata_field)

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """A page of the different values of a field, by their texts, and how many there are.

        Args:
            metadata_field: With or without ``meta.``.
            search_term: Only values whose text holds it, in upper or lower case.
            from_: How many to leave out.
            size: Most values.
            filters: Of the documents.
        """
        return _page(self.run(self._metadata, filters), metadata_field, search_term, from_, size)

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """As `get_metadata_field_unique_values`."""
        return _page(await self.run_async(self._metadata, filters), metadata_field, search_term, from_, size)

    async def _count(self, filters: Filters | None) -> int:
        return await self.opened.count(tree_of_haystack(filters))

    async def _filter(self, filters: Filters | None) -> list[Document]:
        found = []
        async for page in pages(self.opened, tree_of_haystack(filters)):
            vectors = await self.opened.vectors([chunk.id for chunk in page])
            found += [(chunk.created_at, chunk.id, document_of(chunk, vectors)) for chunk in page]
        return [document for *_, document in sorted(found, key=lambda one: one[:2])]

    async def _write(self, documents: list[Document], policy: DuplicatePolicy) -> int:
        check_parameters(kind_errors("policy", policy, DuplicatePolicy))
        given = checked_documents(documents)
        stored, on_duplicate = stored_documents(given), ON_DUPLICATE[policy]
        try:
            await self.opened.add_documents(stored, [one.embedding for one in given], on_duplicate=on_duplicate)
        except DuplicateError as error:
            raise DuplicateDocumentError(str(error)) from error
        return await self._written(stored) if on_duplicate == "skip" else len(stored)

    async def _written(self, documents: list[SemlexDocument]) -> int:
        """How many of these are what is stored now: those that were not skipped have the time that they were given."""
        times = {str(one.id): one.created_at for one in reversed(documents)}
        return sum(chunk.created_at == times[chunk.id] for chunk in await self.opened.get(list(times)))

    async def _delete(self, document_ids: list[str]) -> None:
        if document_ids:
            await self.opened.delete(document_ids)

    async def _delete_by_tree(self, filters: Filters | None) -> int:
        tree = tree_of_haystack(filters, needed=True)
        report = await self.opened.delete(filters=EVERYTHING if tree is None else tree)
        return report.chunks

    async def _update(self, filters: Filters, meta: Metadata) -> int:
        check_parameters(kind_errors("meta", meta, dict))
        count = 0
        async for page in pages(self.opened, tree_of_haystack(filters)):
            vectors = await self.opened.vectors([chunk.id for chunk in page])
            for chunk in page:
                chunk.metadata, chunk.updated_at = {**chunk.metadata, **meta}, utc_now()
            await self.opened.add_documents(page, [vectors.get(chunk.id) for chunk in page])
            count += len(page)
        return count

    async def _metadata(self, filters: Filters | None) -> list[Metadata]:
        return [chunk.metadata async for page in pages(self.opened, tree_of_haystack(filters)) for chunk in page]

    async def _count_unique(self, filters: Filters, fields: list[str]) -> dict[str, int]:
        metadata = await self._metadata(filters)
        return {bare(field): len(distinct(metadata, field)) for field in fields}


def _needed(filters: Filters) -> Filters:
    """A filter that deletes; without one, all would be deleted."""
    check_parameters(kind_errors("filters", filters or None, dict))
    return filters


def _page(
    metadata: list[Metadata], field: str, search_term: str | None, first: int, size: int
) -> tuple[list[Any], int]:
    term = (search_term or "").lower()
    values = [value for value in distinct(metadata, field) if term in str(value).lower()]
    return values[first : first + size], len(values)
