"""Operations on the metadata fields of a collection: list fields, index them, count their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from semlex.errors import ConfigurationError
from semlex.filters.fields import SHOWN_CHARACTERS, Field, field_named, nearest
from semlex.ingest.progress import Progress
from semlex.options.declare import check_options, operation
from semlex.options.search import DEFAULT_COUNTED, DEFAULT_VALUES, FacetArguments, FacetOptions, SearchOptions, Tuning
from semlex.progress import ProgressOption, shown
from semlex.retriever.handle import Part
from semlex.search.facets import FacetRequest, facets_of_filter, facets_of_query
from semlex.search.request import Request
from semlex.store.indexes.build import IndexBuilder
from semlex.store.indexes.field_indexes import FieldIndex, checked_index, drop_field_indexes, read_field_indexes
from semlex.store.query.fields import count_types, summarize_fields, take_field_sample
from semlex.store.query.filters import parse_filters
from semlex.store.schema.locks import between_searches
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.filters.forms import Filters
    from semlex.store.indexes.build import IndexesBuilt, TellBuild
    from semlex.store.postgres.connection import Connection
    from semlex.types.fields import Facets, FieldSummaries, IndexedType


# With fewer values of the type than this share, the index is built and the caller warned.
FEW = 0.5


class Fields(Part):
    """Operations on the metadata fields of a collection; `Collection.fields` returns them."""

    @operation("list fields", "read")
    async def list(self, *, values: bool = False) -> FieldSummaries:
        """Return the fields that chunks have: names, types with counts, and which have an index.

        Up to 10,000 chunks on random pages are read, fewer if their metadata is large; a rare field may be missing.
        Names are keys of the metadata; names with ``@`` are semlex's own fields. A chunk's text is never listed.

        Args:
            values: Whether to return the five most frequent values of each field, too, up to 40 characters each.
        """
        check_parameters(kind_errors("values", values, bool))
        return await self._handle.read(
            "look at the fields", lambda c, info: summarize_fields(c, info.names, with_values=values)
        )

    @operation("add field", "admin")
    async def add(
        self,
        name: str,
        type: IndexedType,  # noqa: A002 - the word that users know
        *,
        force: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Build an index for comparisons of a field: ``<``, ``<=``, ``>``, ``>=``, ``between``, and prefixes.

        Equality needs no such index: the index on the whole metadata serves it. A filter finds the same chunks with and
        without the index, but faster if few pass. An existing index is left as it is.

        Args:
            name: The field, as filters write it.
            type: How values are compared: ``number`` or ``text`` (dates are text); ``instant`` for ``@created`` and
                ``@updated``.
            force: Whether to build it even if no sampled chunk has a value of this type.
            progress: Called as the work proceeds; ``bar`` shows a progress bar.

        Returns:
            The name of the index; empty if it existed. See also its `warnings`.

        Raises:
            ValidationError: `name` is not a field, or no index can serve this type for it.
            ConfigurationError: No sampled chunk has a value of this type.
        """
        check_parameters(kind_errors("force", force, bool))
        bars = shown(progress)
        index = checked_index(field_named(name, "name"), type)
        opened = await self._handle.ready()
        told = [] if force else await opened.database.read("look at the field", lambda c: self._check(c, index))
        with bars as tell:
            await opened.builds.wait(self._handle.names)
            builder = IndexBuilder(opened.database, opened.info, _tell(index.field, tell))
            built = await builder.build(index.table_index(self._handle.names))
        if built:
            built.warnings += told
        return built

    async def _check(self, connection: Connection, index: FieldIndex) -> Sequence[str]:
        """Return warnings about a field that is about to get an index."""
        if index.field.is_own or index in await read_field_indexes(connection, self._handle.names):
            return []
        sample = await take_field_sample(connection, self._handle.names)
        types = await count_types(connection, sample, index.field)
        if not sample.chunks or types.get(index.type, 0) >= FEW * sum(types.values()) > 0:
            return []
        name, looked_at = _shown(index.field), f"the {sample.chunks:,} {'' if sample.are_all else 'sampled '}chunks"
        if not types:
            known = [field.name for field in await summarize_fields(connection, self._handle.names)]
            raise ConfigurationError(
                f"none of {looked_at} has the field {name}{nearest(str(index.field), known)}; to make the index "
                "for future chunks, use --force or force=True"
            )
        counts = ", ".join(f"{kind} {n:,}" for kind, n in types.items())
        fitting = types.get(index.type, 0)
        have = f"{fitting:,} have" if fitting > 1 else "1 has" if fitting else "none has"
        told = f"of {looked_at}, {have} a {index.type} in {name}; types of this field's values: {counts}"
        if not fitting:
            raise ConfigurationError(f"{told}; to make the index nevertheless, use --force or force=True")
        return [told]

    @operation("remove field", "admin")
    async def remove(self, name: str) -> tuple[IndexedType, ...]:
        """Drop the index of a field; its values stay, and filters find the same chunks.

        Args:
            name: The field, as filters write it.

        Returns:
            The types for which the field had an index.

        Raises:
            ConfigurationError: The field has no index.
        """
        field = field_named(name, "name")
        database = (await self._handle.ready()).database
        dropped: tuple[IndexedType, ...] = ()

        async def work(connection: Connection) -> tuple[IndexedType, ...]:
            nonlocal dropped
            try:
                dropped = await drop_field_indexes(connection, self._handle.names, field)
            except ConfigurationError:
                if not dropped:  # by an attempt before, whose answer was lost
                    raise
            return dropped

        return await between_searches(database, "drop the index of a field", self._handle.names, work)

    @operation("facets", "read", FacetArguments)
    async def facets(
        self,
        fields: Sequence[str],
        filters: Filters | None = None,
        *,
        query: str | None = None,
        **options: Unpack[FacetOptions],
    ) -> Facets:
        """Count, for each field, how many chunks have each value.

        Without a query, all chunks that pass the filter are counted, exactly. With a query, only its candidates are
        counted: the best chunks of vector search and of keyword search. `Facets.of` and `Facets.exact` say which
        were counted.

        Args:
            fields: 1 to 20 names as in filters: a key of the metadata, a path with dots, or ``@source`` and the like. A
                list counts with each of its values.
            filters: As for `search`.
            query: As for `search`.
            **options: See `FacetOptions`. With mode ``keyword`` only chunks that contain words of the query are
                counted.

        Raises:
            ValidationError: A field, the filter or the query is refused.
        """
        check_options(FacetOptions, options, "facets")
        asked = FacetRequest.checked(fields, options.get("limit", DEFAULT_VALUES))
        mode, has_vector = options.get("mode"), options.get("vector") is not None
        if query is None and not has_vector:
            if mode is not None:
                raise ConfigurationError("mode needs a query or a vector: without one, all chunks are counted")
            condition = parse_filters(filters, self._handle.names)
            return await self._handle.reading(lambda opened: facets_of_filter(opened, asked, condition))
        opened = await self._handle.searched(has_vector=has_vector)
        tuning = Tuning(candidates=options.get("candidates", DEFAULT_COUNTED))
        searched = SearchOptions(vector=options.get("vector"), tuning=tuning)
        request = Request.of(query, 1, filters, names=self._handle.names, mode=mode, rerank=False, options=searched)
        return await self._handle.run_search(
            opened, lambda opened: facets_of_query(opened, asked, request), has_vector=has_vector
        )


def _tell(field: Field, progress: Callable[[Progress], None] | None) -> TellBuild | None:
    if progress is None:
        return None
    stage = f"build the index of {_shown(field)}"
    return lambda _, done, total, unit: progress(Progress(stage, done, total, unit))


def _shown(field: Field) -> str:
    name = str(field)
    return name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}…"
