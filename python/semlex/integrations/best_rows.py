"""Finds the best rows of a search among those that meet a framework's own conditions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from semlex.errors import ConfigurationError
from semlex.filters.forms import Filters, filter_tree
from semlex.filters.tree import F, FilterTree
from semlex.store.followed.source import key_text_of, row_document_id
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from semlex.types.followed import RowKey
    from semlex.types.results import SearchResult

logger = logging.getLogger("semlex")
# Hits that are looked at first, as a multiple of the rows that are wanted.
MORE = 4
MIN_HITS = 40
# Up to this many rows that meet the conditions are named to the search; see `filters.tree.MAX_BYTES`.
MAX_KEYS = 20_000
SEARCH_OPTIONS = {"group_by": "document", "group_size": 1}


class Conditions(Protocol):
    """Conditions of a framework, such as a queryset, on the rows of a table."""

    def passing(self, keys: Sequence[RowKey]) -> set[RowKey]:
        """Return the given keys whose rows meet the conditions."""
        ...

    def some(self, limit: int) -> list[RowKey]:
        """Return the keys of at most `limit` rows that meet the conditions, in any order."""
        ...


class RowSearch:
    """A search for rows of one followed table."""

    def __init__(
        self,
        # Search method of a collection, in the caller's transaction.
        search: Callable[..., Sequence[SearchResult]],
        # Name of the followed table in the collection.
        name: str,
        # Columns of the table's key.
        key: Sequence[str],
        filters: Filters | None,
        # Options of `search`.
        options: dict[str, Any],
    ) -> None:
        self._search, self._name, self._key = search, name, key
        given, own = filter_tree(filters), F("@source") == name
        self._filters = own if given is None else own & given
        refused = options.keys() & {*SEARCH_OPTIONS, "max_results", "top_k"}
        if refused:
            raise ConfigurationError(
                f"a search for rows does not accept {', '.join(sorted(refused))}: it finds one hit per row"
            )
        # Columns are asked for so that rows that are gone are not found.
        columns = dict.fromkeys([*(options.get("columns") or ()), *key])
        self._options = {**options, **SEARCH_OPTIONS, "columns": list(columns)}

    def _hits(self, query: str, k: int, filters: FilterTree) -> Sequence[SearchResult]:
        hits = self._search(query, k, filters, **self._options)
        for hit in hits[:1]:
            parts = len(hit.key) if isinstance(hit.key, tuple) else 1
            if parts != len(self._key):
                raise ConfigurationError(
                    f"the key of the followed table {self._name!r} is not the primary key of its model "
                    f"({', '.join(self._key)}): follow the table with key={list(self._key)}"
                )
        return hits

    def best(self, query: str, k: int, conditions: Conditions | None = None) -> list[SearchResult]:
        """Return the best k rows that meet the conditions, each as its best hit; fewer if fewer exist."""
        # If many rows meet the conditions, the best hits are checked against them. If few do, the search is limited to
        # their keys.
        if conditions is None:
            return list(self._hits(query, k, self._filters))
        wide = min(MAX_TOP_K, max(MORE * k, MIN_HITS))
        hits = self._hits(query, wide, self._filters)
        found = among(hits, conditions)
        if len(found) >= k or len(hits) < wide:
            return found[:k]
        keys = conditions.some(MAX_KEYS + 1)
        if len(keys) <= MAX_KEYS:
            ids = [row_document_id(self._name, key_text_of(key)).hex for key in keys]
            return list(self._hits(query, k, self._filters & F("@document").in_(ids))) if ids else []
        hits = self._hits(query, MAX_TOP_K, self._filters)
        found = among(hits, conditions)
        if len(found) < k and len(hits) == MAX_TOP_K:
            logger.warning(
                "only %d of the best %d rows of %r meet the conditions, so some may be missing: name the conditions' "
                "columns in live= when you follow the table, and filter by @row.COLUMN",
                len(found),
                MAX_TOP_K,
                self._name,
            )
        return found[:k]


def with_hits(hits: Iterable[SearchResult], objects: Mapping[Any, Any]) -> list[Any]:
    """Return the objects (given by row key) in the order of the hits, each with its hit as `hit`; skip missing ones."""
    found = [(hit, objects[hit.key]) for hit in hits if hit.key in objects]
    for hit, one in found:
        one.hit = hit
    return [one for _, one in found]


def among(hits: Iterable[SearchResult], conditions: Conditions) -> list[SearchResult]:
    """Return the hits whose rows meet the conditions."""
    keyed = [(hit, hit.key) for hit in hits if hit.key is not None]
    passing = conditions.passing([key for _, key in keyed]) if keyed else set()
    return [hit for hit, key in keyed if key in passing]
