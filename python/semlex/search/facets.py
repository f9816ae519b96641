"""Count the values of fields (facets) among the chunks that pass a filter, or the candidates of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.errors import ValidationError
from semlex.filters.fields import COLUMNS, Field, field_named, own_field
from semlex.filters.tree import Condition, joined
from semlex.options.search import MAX_FIELDS
from semlex.search.pipeline import SearchPipeline
from semlex.search.query_vector import embed_query
from semlex.store.query.fields import count_values
from semlex.store.query.filters import Filter, unknown_fields, with_rows
from semlex.types.fields import Facets
from semlex.validation import check_parameters, refuse, strings_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.open_collection import OpenCollection
    from semlex.search.request import Request
    from semlex.search.state import Found, SearchState
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key
    from semlex.store.schema.names import Names


@dataclass(frozen=True, slots=True)
class FacetRequest:
    """The fields whose values are counted."""

    fields: dict[str, Field]  # by the names that the caller used
    limit: int  # maximum number of values for each field

    @classmethod
    def checked(cls, fields: Sequence[str], limit: int) -> FacetRequest:
        """Check the names of fields and the limit."""
        check_parameters(strings_errors("fields", fields))
        if not 1 <= len(fields) <= MAX_FIELDS:
            check_parameters(refuse("fields", "out_of_range", f"1 to {MAX_FIELDS} names", str(len(fields))))
        return cls({name: _field(name) for name in fields}, limit)


def _field(name: str) -> Field:
    """Return the field that a name means; names are written like the keys of a filter's mapping."""
    found = own_field(COLUMNS[name], "fields") if name in COLUMNS else field_named(name, "fields")
    if found.is_row:
        limit = f"fields of chunks (count the values of {found} in the followed table itself)"
        raise ValidationError(refuse("fields", "wrong_type", limit, "a live column of that table"))
    return found


async def facets_of_filter(opened: OpenCollection, asked: FacetRequest, condition: Filter) -> Facets:
    """Return the values of all chunks that pass a filter, with counts."""

    async def count(snapshot: Snapshot) -> Facets:
        names = opened.info.names
        return await _counted(snapshot, names, asked, await with_rows(snapshot.connection, names, condition))

    return await opened.reader.read_snapshot("count values", count)


async def facets_of_query(opened: OpenCollection, asked: FacetRequest, request: Request) -> Facets:
    """Return the values of the candidates of a query, found and counted in one snapshot."""
    pipeline = SearchPipeline(opened, None)
    state = pipeline.begin(request)
    await embed_query(state, opened)

    async def count(snapshot: Snapshot) -> tuple[SearchState, Found, Facets]:
        own = state.copy()  # this may be run once more
        found = await pipeline.find(own, opened.within(snapshot))
        return own, found, await _counted(snapshot, opened.info.names, asked, Filter(), found.keys)

    own, found, facets = await opened.reader.read_snapshot("count values", count, with_vectors=True)
    legs = found.results
    failed = [f"the {name} search did not answer: {leg.error}" for name, leg in legs.items() if leg.error]
    told = [warning for leg in found.answered.values() for warning in leg.warnings]
    facets.of = "candidates"
    facets.exact = all(leg.error is None and len(leg.keys) < (request.candidates or 0) for leg in legs.values())
    facets.warnings = list(dict.fromkeys([*own.warnings, *failed, *told, *facets.warnings]))
    return facets


async def _counted(
    snapshot: Snapshot, names: Names, asked: FacetRequest, condition: Filter, keys: Sequence[Key] | None = None
) -> Facets:
    """Return the counted values, and a warning for each field that no chunk of the collection has."""
    facets, chunks = await count_values(
        snapshot.connection, names, asked.fields, condition=condition, keys=keys, limit=asked.limit
    )
    empty = [Condition(one, "exists") for name, one in asked.fields.items() if not facets[name].values]
    looked_for = Filter(tree=joined("or", empty)) if empty else Filter()
    return Facets(facets, chunks=chunks, warnings=await unknown_fields(snapshot.connection, names, looked_for))
