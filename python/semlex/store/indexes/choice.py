"""Choose the indexes of a collection: the default vector index, the requested one, and those for other columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError
from semlex.store.indexes.catalog import MAX_INDEXED_DIMENSIONS, built_to_their_end, read_vector_indexes, value_for
from semlex.store.indexes.options import HnswIndex, NoIndex, VectorIndex, default_lists, kind_of
from semlex.store.postgres.rows import fetch_value
from semlex.store.query.filters import text_hash
from semlex.store.schema.names import TableIndex

if TYPE_CHECKING:
    from semlex.store.indexes.catalog import StoredIndex, VectorIndexes
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


# Below this number of rows an exact scan answers in a few milliseconds, so that no index is made.
INDEX_FROM_ROWS = 10_000
# A writer checks again after writing this share of the threshold, or after this time.
LOOK_SHARE = 0.1
LOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WantedVectorIndex:
    """The vector index that a collection should have."""

    collection: CollectionInfo
    index: VectorIndex
    # Whether a user requested it; the default gives way to any other.
    is_chosen: bool

    def fits(self, stored: StoredIndex) -> bool:
        """Return whether an existing index is the wanted one, or good enough if no index was requested."""
        index = self.index
        if not stored.valid or isinstance(index, NoIndex):
            return False
        if not self.is_chosen:
            return stored.is_ours
        if not stored.is_ours or stored.kind != kind_of(index):
            return False
        if stored.element != value_for(self.collection, index).element:
            return False
        if isinstance(index, HnswIndex):
            return (stored.m, stored.ef_construction) == (index.m, index.ef_construction)
        return index.lists in (None, stored.lists)

    def is_missing(self, found: VectorIndexes) -> bool:
        """Return whether the index has to be built."""
        return not isinstance(self.index, NoIndex) and not any(map(self.fits, found.stored))

    def goes_on(self, stored: StoredIndex) -> bool:
        """Return whether an incomplete index is the wanted one, so that its build can be continued."""
        chosen = replace(self, is_chosen=True)
        return stored.kind == "hnsw" and not stored.valid and chosen.fits(replace(stored, valid=True))

    def obsolete(self, found: VectorIndexes) -> list[str]:
        """Return the names of semlex's indexes that the wanted one replaces, and of those never completed."""
        kept = [index for index in found.stored if self.fits(index)]
        if self.is_chosen:
            kept = kept[-1:]
        elif isinstance(self.index, NoIndex):
            kept = [index for index in found.stored if index.valid]
        return [index.name for index in found.stored if index.is_ours and index not in kept]

    def definition(self, rows: int) -> TableIndex:
        """Return the definition of the wanted index over a table with this number of rows."""
        index, version = self.index, self.collection.vectors.version
        assert not isinstance(index, NoIndex)  # noqa: S101 - it is missing
        value, kind = value_for(self.collection, index), kind_of(index)
        if isinstance(index, HnswIndex):
            options = {"m": index.m, "ef_construction": index.ef_construction}
        else:
            rows = math.ceil(rows / max(1, self.collection.names.partitions))
            options = {"lists": index.lists or default_lists(rows)}
        column: sql.Composable = sql.SQL("embedding")
        definition = sql.SQL("USING {} ({} {}.{}) WITH ({})").format(
            sql.SQL(kind),
            column if value.is_whole else sql.SQL("({})").format(value.of(column)),
            value.extension,
            sql.Identifier(value.operator_class),
            sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.SQL(name), number) for name, number in options.items()),
        )
        return TableIndex(f"{kind}_{version}", self.collection.names.embedding(version), definition)


def default_index(collection: CollectionInfo) -> HnswIndex:
    """Return the vector index that a collection gets if the user requests none."""
    # Float16 halves the index, and its hits are compared again by the stored vectors. With other distances than cosine
    # such an index would refuse numbers that float16 cannot hold.
    halves = collection.distance.name == "cosine" and collection.vectors.dimensions <= MAX_INDEXED_DIMENSIONS["halfvec"]
    return HnswIndex(quantization="halfvec" if halves else None)


def wanted_vector_index(
    collection: CollectionInfo, found: VectorIndexes, given: VectorIndex | None = None
) -> WantedVectorIndex | None:
    """Return the vector index that a collection should have; None for a collection without vectors."""
    if given is not None and not isinstance(given, NoIndex):
        value_for(collection, given)
    if collection.embedding is None:
        return None
    chosen = given or found.wanted
    if chosen is not None:
        return WantedVectorIndex(collection, chosen, is_chosen=True)
    default = default_index(collection)
    try:
        value_for(collection, default)
    except ConfigurationError:
        return WantedVectorIndex(collection, NoIndex(), is_chosen=False)
    return WantedVectorIndex(collection, default, is_chosen=False)


def other_indexes(collection: CollectionInfo) -> list[TableIndex]:
    """Return the indexes that a collection should have on other columns than vectors."""
    chunk = collection.names.chunk
    return [
        *collection.keyword.indexes(collection.names),
        TableIndex("metadata", chunk, sql.SQL("USING gin (metadata jsonb_path_ops)")),
        TableIndex("document_name", chunk, sql.SQL("(({}))").format(text_hash(sql.SQL("source_document")))),
    ]


async def missing_others(connection: Connection, collection: CollectionInfo) -> list[TableIndex]:
    """Return the `other_indexes` that do not exist, or whose build was not completed."""
    indexes = other_indexes(collection)
    built = await built_to_their_end(connection, collection.names, [index.suffix for index in indexes])
    return [index for index in indexes if not built.get(index.suffix)]


@dataclass(slots=True)
class Looks:
    """Decides when a writer checks for wanted indexes: after every load, but not after every single row."""

    clock: Clock = SYSTEM
    _rows: int = field(default=0, init=False)
    _at: float = field(default=-math.inf, init=False)

    def is_due(self, written: int) -> bool:
        """Return whether to check now, after a call that wrote this many rows."""
        self._rows += written
        now = self.clock.monotonic()
        if self._rows < INDEX_FROM_ROWS * LOOK_SHARE and now - self._at < LOOK_SECONDS:
            return False
        self._rows, self._at = 0, now
        return True


async def indexes_wanted(connection: Connection, collection: CollectionInfo) -> bool:
    """Return whether the collection is large enough for indexes and lacks one that it should have."""
    found = await read_vector_indexes(connection, collection)
    vector = wanted_vector_index(collection, found)
    if not (vector is not None and vector.is_missing(found)) and not await missing_others(connection, collection):
        return False
    return await has_rows(connection, collection.names.chunk, INDEX_FROM_ROWS)


async def has_rows(connection: Connection, table: sql.Identifier, rows: int) -> bool:
    """Return whether a table has at least this many rows, without counting more."""
    statement = sql.SQL("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {}) AS bounded")
    counted = await fetch_value(connection, statement.format(table, sql.Literal(rows)))
    return bool(counted >= rows)
