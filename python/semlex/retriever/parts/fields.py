"""The fields of a collection: which there are, and which of them have an index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.filters.fields import SHOWN_CHARACTERS, Field, field_named, nearest
from semlex.ingest.progress import Progress
from semlex.store.indexes.build import IndexBuilder
from semlex.store.indexes.field_indexes import checked_index, drop_field_indexes, read_field_indexes
from semlex.store.query.fields.field_summaries import count_types, summarize_fields, take_field_sample
from semlex.validation import callable_errors, check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.ingest.indexer import Indexer
    from semlex.store.indexes.build import IndexesBuilt
    from semlex.store.indexes.build_watch import TellBuild
    from semlex.store.indexes.field_indexes import FieldIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names
    from semlex.types.field_summaries import FieldSummaries, IndexedType

# With fewer values of the type than this share, the index is built and the caller told.
FEW = 0.5


class CollectionFields(ABC):
    """Fields of the metadata, and their indexes; `Collection` is one."""

    names: Names

    @abstractmethod
    async def _ready(self) -> Indexer:
        """The open collection."""

    async def fields(self, *, values: bool = False) -> FieldSummaries:
        """The fields that chunks have: names, types with counts, and which have an index.

        At most 10,000 chunks on random pages are looked at, fewer where their metadata is large; a field of few chunks
        may be missing. Names are those of the metadata, and with ``@`` what semlex knows itself; never a chunk's text.

        Args:
            values: Whether to give values, too: of each field the five most frequent ones, at most 40 characters of
                each.
        """
        check_parameters(kind_errors("values", values, bool))
        indexer = await self._ready()
        return await indexer.database.read(
            "look at the fields", lambda c: summarize_fields(c, self.names, with_values=values)
        )

    async def add_field(
        self,
        name: str,
        type: IndexedType,  # noqa: A002 - the word that users know
        *,
        force: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> IndexesBuilt:
        """Builds an index that serves comparisons of a field: ``<``, ``<=``, ``>``, ``>=``, ``between``, and prefixes.

        Equality needs none: the index on the whole metadata serves it. A filter finds the same chunks with and without;
        it finds them faster where few pass. An index that is there already is left as it is.

        Args:
            name: The field, as filters write it.
            type: ``number`` or ``text``, as which it is compared (a date is a text); ``instant`` for ``@created`` and
                ``@updated``.
            force: Whether to build it, too, when no chunk that was looked at has such a value.
            progress: Called as the work goes on.

        Returns:
            The name of the index; empty when it was there. Its `warnings` say what should be known.

        Raises:
            ValidationError: It is no name of a field, or no index can serve that.
            ConfigurationError: No chunk that was looked at has such a value.
        """
        check_parameters(kind_errors("force", force, bool), callable_errors("progress", progress))
        index = checked_index(field_named(name, "name"), type)
        indexer = await self._ready()
        told = [] if force else await indexer.database.read("look at the field", lambda c: self._check(c, index))
        builder = IndexBuilder(indexer.database, indexer.collection, _tell(index.field, progress))
        built = await builder.build(index.table_index(self.names))
        if built:
            built.warnings += told
        return built

    async def _check(self, connection: Connection, index: FieldIndex) -> list[str]:
        """What should be known of a field before it gets an index.

        Raises:
            ConfigurationError: No chunk of the sample has a value of the type.
        """
        if index.field.is_own or index in await read_field_indexes(connection, self.names):
            return []
        sample = await take_field_sample(connection, self.names)
        types = await count_types(connection, sample, index.field)
        if not sample.chunks or types.get(index.type, 0) >= FEW * sum(types.values()) > 0:
            return []
        name, looked_at = _shown(index.field), f"{'all' if sample.are_all else 'a sample of'} {sample.chunks:,} chunks"
        if not types:
            known = [field.name for field in await summarize_fields(connection, self.names)]
            raise ConfigurationError(
                f"of {looked_at} none has the field {name}{nearest(str(index.field), known)} (--force or force=True "
                "makes the index all the same, for chunks that are to come)"
            )
        counts = ", ".join(f"{kind} {n:,}" for kind, n in types.items())
        fitting = types.get(index.type, 0)
        have = f"{fitting:,} have" if fitting > 1 else "1 has" if fitting else "none has"
        told = f"of {looked_at} {have} a {index.type} as {name}; the values are: {counts}"
        if not fitting:
            raise ConfigurationError(f"{told} (--force or force=True makes the index all the same)")
        return [told]

    async def remove_field(self, name: str) -> tuple[IndexedType, ...]:
        """Drops the index of a field; values and what filters find stay as they are.

        Args:
            name: The field, as filters write it.

        Returns:
            The types that it had an index for.

        Raises:
            ConfigurationError: It has none.
        """
        field = field_named(name, "name")
        database = (await self._ready()).database
        return await database.write("drop the index of a field", lambda c: drop_field_indexes(c, self.names, field))


def _tell(field: Field, progress: Callable[[Progress], None] | None) -> TellBuild | None:
    if progress is None:
        return None
    stage = f"build the index of {_shown(field)}"
    return lambda _, done, total, unit: progress(Progress(stage, done, total, unit))


def _shown(field: Field) -> str:
    name = str(field)
    return name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}…"
