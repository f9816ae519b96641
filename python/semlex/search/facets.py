"""Facets: which values of fields the chunks of a filter, or the candidates of a query, have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semlex.filters.fields import COLUMNS, Field, field_named, own_field
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_query
from semlex.store.postgres.snapshot_reads import SnapshotReads
from semlex.store.query.facets import count_values
from semlex.store.query.filters import Filter
from semlex.types.facets import Facet, Facets
from semlex.validation import check_parameters, check_range, refuse, strings_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.open_collection import OpenCollection
    from semlex.search.request import Request
    from semlex.search.state import Found, SearchState
    from semlex.store.postgres.snapshot import Snapshot

MAX_FIELDS = 20
MAX_VALUES = 1000
DEFAULT_VALUES = 20
DEFAULT_CANDIDATES = 1000


@dataclass(frozen=True, slots=True)
class FacetRequest:
    """What is to be counted.

    Attributes:
        fields: By the names that they were asked by.
        limit: Most values of a field.
    """

    fields: dict[str, Field]
    limit: int

    @classmethod
    def checked(cls, fields: Sequence[str], limit: int) -> FacetRequest:
        """Checks what is asked for.

        Raises:
            ConfigurationError: No list of 1 to 20 names, or the limit is out of range.
            ValidationError: A name is none, or names no field of semlex's own.
        """
        check_parameters(strings_errors("fields", fields))
        if not 1 <= len(fields) <= MAX_FIELDS:
            check_parameters(refuse("fields", "out_of_range", f"1 to {MAX_FIELDS} names", str(len(fields))))
        check_range("limit", limit, 1, MAX_VALUES)
        return cls({name: _field(name) for name in fields}, limit)


def _field(name: str) -> Field:
    """The field of a name, as in a filter's mapping."""
    return own_field(COLUMNS[name], "fields") if name in COLUMNS else field_named(name, "fields")


async def facets_of_filter(opened: OpenCollection, asked: FacetRequest, condition: Filter) -> Facets:
    """The values of the chunks that pass a filter: of all of them."""

    async def count(snapshot: Snapshot) -> tuple[dict[str, Facet], int]:
        names = opened.info.names
        return await count_values(snapshot.connection, names, asked.fields, condition=condition, limit=asked.limit)

    facets, chunks = await opened.database.read_snapshot("count values", count)
    return Facets(facets, of="filter", exact=True, chunks=chunks)


async def facets_of_query(opened: OpenCollection, asked: FacetRequest, request: Request) -> Facets:
    """The values of the candidates of a query, found and counted in one snapshot."""
    pipeline = SearchPipeline(opened, None)
    state = pipeline.begin(request)
    await embed_query(state, opened)

    async def count(snapshot: Snapshot) -> tuple[SearchState, Found, dict[str, Facet], int]:
        own = state.copy()  # this may be run once more
        found = await pipeline.find(own, replace(opened, database=SnapshotReads(snapshot)))
        counted = await count_values(
            snapshot.connection,
            opened.info.names,
            asked.fields,
            condition=Filter(),
            keys=found.keys,
            limit=asked.limit,
        )
        return own, found, *counted

    own, found, facets, chunks = await opened.database.read_snapshot("count values", count)
    failed = [f"the {name} leg did not answer: {leg.error}" for name, leg in found.results.items() if leg.error]
    told = [warning for leg in found.results.values() if leg.error is None for warning in leg.warnings]
    whole = all(leg.error is None and len(leg.keys) < (request.candidates or 0) for leg in found.results.values())
    warnings = list(dict.fromkeys([*own.warnings, *failed, *told]))
    return Facets(facets, of="candidates", exact=whole, chunks=chunks, warnings=warnings)
