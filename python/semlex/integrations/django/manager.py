"""The manager that searches a model's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models

from semlex.integrations.django.clients import collection_of
from semlex.integrations.django.ranked_rows import RankedRows
from semlex.retriever.synchronous import SyncCollection
from semlex.validation import check_parameters, kind_errors, text_errors

if TYPE_CHECKING:
    from semlex.filters.forms import Filters

M = TypeVar("M", bound=models.Model)


class SearchManager(models.Manager[M]):
    """Searches the followed table of a model: ``Article.search.query("apple").filter(tenant=3)[:10]``.

    Args:
        collection: Name of the collection in the model's database, opened with the options in the setting ``SEMLEX``;
            or a collection of `connect_sync`.
        name: Of the followed table in the collection. Default: the name of the model's table.
    """

    def __init__(self, collection: SyncCollection | str, name: str | None = None) -> None:
        super().__init__()
        check_parameters(
            kind_errors("collection", collection, SyncCollection, str),
            [] if name is None else text_errors("name", name, blank=False),
        )
        self._collection, self._name = collection, name

    @property
    def collection(self) -> SyncCollection:
        """The collection, to bring it in step (``collection.tables.sync()``) or to search it otherwise."""
        return collection_of(self._collection, self.db)

    @property
    def table_name(self) -> str:
        """The name of the followed table in the collection."""
        return self._name or self.model._meta.db_table  # noqa: SLF001 - Django's documented interface

    def query(self, text: str, *, filters: Filters | None = None, **options: Any) -> RankedRows[M]:
        """Return the rows that fit a query, best first; nothing is searched before they are read.

        Args:
            text: 1 character to 4 KiB.
            filters: As for `Collection.search`, such as ``"@row.status = 'public'"``.
            **options: As for `Collection.search`.
        """
        rows = self.get_queryset()
        return RankedRows(self._collection, self.table_name, rows, text=text, filters=filters, options=options)
