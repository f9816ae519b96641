"""Rows of a model in the order of a search, which Django's own conditions can narrow."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from asgiref.sync import sync_to_async
from django.db import connections, models

from semlex.errors import ConfigurationError
from semlex.integrations.best_rows import RowSearch, with_hits
from semlex.integrations.django.clients import collection_of
from semlex.retriever.synchronous import SyncCollection
from semlex.validation import check_parameters, kind_errors, text_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from semlex.filters.forms import Filters
    from semlex.types.followed import RowKey

M = TypeVar("M", bound=models.Model)
# Rows that are read without a slice, and at most.
LIMIT = 100
MAX_ROWS = 1_000


class SearchManager(models.Manager[M]):
    """Searches the followed table of a model: ``Article.search.query("apple").filter(tenant=3)[:10]``.

    Args:
        collection: Name of the collection in the model's database, opened with the options in the setting ``SEMLEX``;
            or a collection of `connect_sync`.
        name: Name of the followed table in the collection. Default: the name of the model's table.
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
        """Return the collection, to sync it (``collection.tables.sync()``) or to search it directly."""
        return collection_of(self._collection, self.db)

    @property
    def table_name(self) -> str:
        """The name of the followed table in the collection."""
        return self._name or self.model._meta.db_table  # noqa: SLF001 - Django's documented interface

    def query(self, text: str, *, filters: Filters | None = None, **options: Any) -> RankedRows[M]:
        """Return the rows that fit a query, best first; the search runs when the rows are read.

        Args:
            text: 1 character to 4 KiB.
            filters: As for `Collection.search`, such as ``"@row.status = 'public'"``.
            **options: As for `Collection.search`.
        """
        rows = self.get_queryset()
        return RankedRows(self._collection, self.table_name, rows, text=text, filters=filters, options=options)


class RankedRows(Generic[M]):
    """Instances of a model, best first, each with its `hit`; read by a slice or an iteration, at most 1,000.

    It has the methods of a queryset that keep the order of the search. Iterating without a slice gives the best 100.
    Rows are read once: reading them, or fewer of them, again gives the same instances.
    """

    def __init__(
        self,
        collection: SyncCollection | str,
        name: str,
        queryset: models.QuerySet[M],
        *,
        text: str,
        filters: Filters | None,
        options: dict[str, Any],
    ) -> None:
        self._collection, self._name, self._queryset = collection, name, queryset
        self._text, self._filters, self._options = text, filters, options
        self._rows: list[M] = []
        self._wanted = 0

    def _with(self, queryset: models.QuerySet[M]) -> Self:
        return type(self)(
            self._collection, self._name, queryset, text=self._text, filters=self._filters, options=self._options
        )

    def filter(self, *conditions: Any, **lookups: Any) -> Self:
        """Keep the rows that meet conditions, as `QuerySet.filter` does; see docs/how-to/sqlalchemy-and-django.md."""
        return self._with(self._queryset.filter(*conditions, **lookups))

    def exclude(self, *conditions: Any, **lookups: Any) -> Self:
        """Leave out the rows that meet conditions, as `QuerySet.exclude` does."""
        return self._with(self._queryset.exclude(*conditions, **lookups))

    def annotate(self, *arguments: Any, **expressions: Any) -> Self:
        """Add values to the instances, as `QuerySet.annotate` does."""
        return self._with(self._queryset.annotate(*arguments, **expressions))

    def select_related(self, *fields: Any) -> Self:
        """Load related objects in the same query, as `QuerySet.select_related` does."""
        return self._with(self._queryset.select_related(*fields))

    def prefetch_related(self, *lookups: Any) -> Self:
        """Load related objects, as `QuerySet.prefetch_related` does."""
        return self._with(self._queryset.prefetch_related(*lookups))

    def only(self, *fields: str) -> Self:
        """Load some fields only, as `QuerySet.only` does."""
        return self._with(self._queryset.only(*fields))

    def defer(self, *fields: str | None) -> Self:
        """Load some fields later, as `QuerySet.defer` does."""
        return self._with(self._queryset.defer(*fields))

    def using(self, alias: str | None) -> Self:
        """Search and read another database of the settings, as `QuerySet.using` does."""
        return self._with(self._queryset.using(alias))

    @overload
    def __getitem__(self, place: int) -> M: ...

    @overload
    def __getitem__(self, place: slice) -> list[M]: ...

    def __getitem__(self, place: int | slice) -> M | list[M]:
        """Return rows by position, from 0; the search reads only as many as needed."""
        first, last = (place, place + 1) if isinstance(place, int) else (place.start or 0, place.stop)
        if first < 0 or (last is not None and last < 0):
            raise ValueError("negative indexing is not supported")
        return self._best(MAX_ROWS if last is None else last)[place]

    def __iter__(self) -> Iterator[M]:
        return iter(self._best(LIMIT)[:LIMIT])

    async def __aiter__(self) -> AsyncIterator[M]:
        for row in await sync_to_async(list)(self):
            yield row

    def __len__(self) -> int:
        return len(self._best(LIMIT)[:LIMIT])

    def __bool__(self) -> bool:
        return bool(self._best(1))

    def __repr__(self) -> str:
        shown = list(islice(self, 20))
        return f"<{type(self).__name__} {shown!r}>"

    def first(self) -> M | None:
        """Return the best row, or None."""
        return next(iter(self._best(1)), None)

    def count(self) -> int:
        """Return how many rows an iteration gives, up to 100; paginators call it."""
        return len(self)

    def _best(self, k: int) -> list[M]:
        """Return the best `k` rows, or more if an earlier call read more; fewer if fewer exist."""
        if k > MAX_ROWS:
            raise ConfigurationError(f"a search reads at most {MAX_ROWS:,} rows; got {k:,}")
        if k > self._wanted:
            self._rows, self._wanted = self._read(k), k
        return self._rows

    def _read(self, k: int) -> list[M]:
        alias, key = self._queryset.db, key_columns(self._queryset.model)
        collection = collection_of(self._collection, alias).using(connections[alias])
        rows = RowSearch(collection.search, self._name, key, self._filters, self._options)
        is_narrowed = bool(self._queryset.query.where)
        found = rows.best(self._text, k, _Conditions(self._queryset) if is_narrowed else None)
        instances = self._queryset.filter(pk__in=[hit.key for hit in found]) if found else ()
        return with_hits(found, {one.pk: one for one in instances})


def key_columns(model: type[models.Model]) -> list[str]:
    """Return the columns of a model's primary key."""
    options = model._meta  # noqa: SLF001 - Django's documented interface
    fields = getattr(options, "pk_fields", [options.pk])  # of Django 5.2 and newer, where a key may have several
    return [field.column for field in fields]


class _Conditions:
    """Conditions of a queryset on the rows of its model."""

    def __init__(self, queryset: models.QuerySet[Any]) -> None:
        self._keys = queryset.order_by().values_list("pk", flat=True)

    def passing(self, keys: Sequence[RowKey]) -> set[RowKey]:
        """Return the given keys whose rows meet the conditions."""
        return set(self._keys.filter(pk__in=keys))

    def some(self, limit: int) -> list[RowKey]:
        """Return keys of rows that meet the conditions, at most `limit`."""
        return list(self._keys.distinct()[:limit])
