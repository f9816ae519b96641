"""Vector indexes of a collection: the form in which they store vectors, and which exist or are being built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError
from semlex.store.indexes.options import HnswIndex, IvfflatIndex, VectorIndex, as_text, default_probes, from_text
from semlex.store.schema.names import Names, stored_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.options.collection import StorageName
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo, Distance

Element = Literal["vector", "halfvec", "bit"]
# Dimensions that pgvector indexes, by type.
MAX_INDEXED_DIMENSIONS: dict[Element, int] = {"vector": 2_000, "halfvec": 4_000, "bit": 64_000}


@dataclass(frozen=True, slots=True)
class IndexedValue:
    """The form in which an index stores each vector: the vector unchanged, or a smaller one."""

    element: Element  # pgvector's type of it
    storage: StorageName  # pgvector's type of the stored vectors
    dimensions: int
    distance: Distance
    extension: sql.Identifier  # schema of pgvector

    @property
    def is_whole(self) -> bool:
        """Whether the index stores vectors unchanged."""
        return self.element == self.storage

    @property
    def operator_class(self) -> str:
        """Name of the index's operator class."""
        return "bit_hamming_ops" if self.element == "bit" else self.distance.operator_class(self.element)

    def of(self, vector: sql.Composable) -> sql.Composable:
        """Return SQL of the value that the index stores for a vector."""
        if self.is_whole:
            return vector
        dimensions = sql.Literal(self.dimensions)
        if self.element == "bit":
            return sql.SQL("{}.binary_quantize({})::bit({})").format(self.extension, vector, dimensions)
        # Cosine ignores the length of a vector, so vectors are scaled to length 1 before float16: nothing overflows,
        # and nothing becomes zero.
        if self.distance.name == "cosine":
            vector = sql.SQL("{}.l2_normalize({})").format(self.extension, vector)
        return sql.SQL("{}::{}.halfvec({})").format(vector, self.extension, dimensions)

    def between(self, column: sql.Composable, query: sql.Composable) -> sql.Composable:
        """Return SQL of the index's distance between a column of stored vectors and a query vector of the same type."""
        if self.element == "bit":
            return sql.SQL("{} OPERATOR({}.<~>) {}").format(self.of(column), self.extension, self.of(query))
        return self.distance.between(self.extension, self.of(column), self.of(query))


def indexed_value(collection: CollectionInfo, element: Element) -> IndexedValue:
    """Return the value that an index with this element type stores for a collection's vectors."""
    embedding = collection.vectors
    extension = collection.server.extension
    return IndexedValue(element, embedding.storage, embedding.dimensions, collection.distance, extension)


def value_for(collection: CollectionInfo, index: HnswIndex | IvfflatIndex) -> IndexedValue:
    """Return the value that an index with these options stores."""
    embedding = collection.embedding
    if embedding is None:
        raise ConfigurationError("the collection has no vectors, so there is nothing to index")
    dimensions, distance = embedding.dimensions, collection.distance.name
    wanted = index.quantization if isinstance(index, HnswIndex) else None
    if wanted == "bit" and distance != "cosine":
        raise ConfigurationError(
            f"quantization 'bit' works only with distance 'cosine'; this collection has {distance!r}: use "
            "quantization='halfvec', or leave it out"
        )
    element: Element = wanted or embedding.storage
    if wanted is None and dimensions > MAX_INDEXED_DIMENSIONS[element]:
        element = "halfvec"
        if dimensions > MAX_INDEXED_DIMENSIONS[element] and isinstance(index, HnswIndex) and distance == "cosine":
            element = "bit"
    if dimensions > MAX_INDEXED_DIMENSIONS[element]:
        instead = "HnswIndex(quantization='bit')" if distance == "cosine" else "NoIndex(), which searches exactly"
        raise ConfigurationError(
            f"pgvector indexes at most {MAX_INDEXED_DIMENSIONS[element]:,} dimensions of {element}; these vectors have "
            f"{dimensions:,}: use {instead}"
        )
    return indexed_value(collection, element)


# The existing indexes decide how fast vectors are found, hardly ever which.
REMEMBERED_SECONDS = 60.0
# pgvector's defaults for options that an index does not set.
_DEFAULTS = {"hnsw": {"m": 16, "ef_construction": 64}, "ivfflat": {"lists": 100}}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """A vector index that exists."""

    name: str  # without the schema
    kind: Literal["hnsw", "ivfflat"]
    # pgvector's type of what it holds: ``vector``, ``halfvec`` or ``bit``.
    element: Element
    m: int | None = None  # these two are None with ``ivfflat``
    ef_construction: int | None = None
    lists: int | None = None  # None with ``hnsw``
    valid: bool  # whether it was completed, so that searches use it
    bytes: int = 0  # 0 if not requested
    is_ours: bool = True  # whether semlex made it, judged by its name


@dataclass(frozen=True, slots=True)
class VectorIndexes:
    """The vector indexes of a collection."""

    wanted: VectorIndex | None = None  # the last request to `Indexes.create`
    stored: tuple[StoredIndex, ...] = ()  # the newest last
    rows: int = 0  # vectors, by the server's statistics; 0 while it has none

    @property
    def used(self) -> StoredIndex | None:
        """The index that searches use."""
        return next((index for index in reversed(self.stored) if index.valid), None)

    @property
    def probes(self) -> int:
        """How many lists of an IVFFlat index a search reads: as requested, else as pgvector advises."""
        chosen = self.wanted.probes if isinstance(self.wanted, IvfflatIndex) else None
        return chosen or default_probes((self.used and self.used.lists) or 1)

    @property
    def leftovers(self) -> list[str]:
        """Names of semlex's indexes whose build was not completed."""
        return [index.name for index in self.stored if index.is_ours and not index.valid]


async def read_vector_indexes(
    connection: Connection, collection: CollectionInfo, *, with_size: bool = False
) -> VectorIndexes:
    """Read the vector indexes of a collection; `with_size` locks each index for a moment."""
    embedding = collection.embedding
    if embedding is None:
        return VectorIndexes()
    cursor = await connection.execute(
        sql.SQL(
            "SELECT pg_catalog.obj_description(t.oid, 'pg_class'), i.name, i.method, i.class, i.valid, i.options, "
            "i.on_column, "
            "CASE WHEN {} THEN (SELECT sum(pg_catalog.pg_relation_size(l.oid))::int8 FROM {}) ELSE 0 END, "
            "(SELECT sum(greatest(l.reltuples, 0))::int8 FROM {}) "
            "FROM pg_catalog.pg_class AS t LEFT JOIN ("
            "SELECT x.indrelid, c.oid, c.relname AS name, a.amname AS method, o.opcname AS class, "
            "x.indisvalid AND x.indisready AS valid, c.reloptions AS options, x.indexprs IS NULL AS on_column "
            "FROM pg_catalog.pg_index AS x JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid "
            "JOIN pg_catalog.pg_am AS a ON a.oid = c.relam AND a.amname IN ('hnsw', 'ivfflat') "
            "JOIN pg_catalog.pg_opclass AS o ON o.oid = x.indclass[0] WHERE x.indpred IS NULL"
            ") AS i ON i.indrelid = t.oid WHERE t.oid = pg_catalog.to_regclass(%s) ORDER BY i.oid"
        ).format(sql.Literal(with_size), stored_in(sql.SQL("i.oid")), stored_in(sql.SQL("t.oid"))),
        [collection.names.embedding(embedding.version).as_string(connection)],
    )
    rows = await cursor.fetchall()
    classes = {indexed_value(collection, element).operator_class: element for element in MAX_INDEXED_DIMENSIONS}
    ours = re.compile(rf"{collection.names.collection}_(hnsw|ivfflat)_{embedding.version}(_[0-9]+)?")
    stored = []
    for _, name, method, operator_class, valid, options, on_column, size, _ in rows:
        element, is_ours = classes.get(operator_class), bool(name and ours.fullmatch(name))
        # An index that semlex did not make is used if it is over the column itself.
        if element is None or not (is_ours or (on_column and element == embedding.storage)):
            continue
        numbers = dict(_DEFAULTS[method]) | {key: int(value) for key, value in (o.split("=") for o in options or ())}
        stored.append(
            StoredIndex(name=name, kind=method, element=element, **numbers, valid=valid, bytes=size, is_ours=is_ours)
        )
    return VectorIndexes(from_text(rows[0][0]), tuple(stored), rows[0][-1]) if rows else VectorIndexes()


class RememberedIndexes:
    """Keeps the vector indexes of a collection in memory for a minute."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._seen: tuple[float, int | None, VectorIndexes] | None = None
        # Whether dead rows have left a search too few of the nearest vectors since the indexes were last read.
        self.has_dead_rows = False

    @property
    def last(self) -> VectorIndexes:
        """The indexes as they were last read; empty before the first reading."""
        return VectorIndexes() if self._seen is None else self._seen[2]

    async def read(self, snapshot: Snapshot, collection: CollectionInfo) -> VectorIndexes:
        """Return the remembered indexes; read them again after a minute, or for another embedding version."""
        version = None if collection.embedding is None else collection.embedding.version
        if self._seen is not None:
            at, seen_version, found = self._seen
            if seen_version == version and self._clock.monotonic() - at < REMEMBERED_SECONDS:
                return found
        found = await read_vector_indexes(snapshot.connection, collection)
        self._seen, self.has_dead_rows = (self._clock.monotonic(), version, found), False
        return found

    def forget(self) -> None:
        """Make the next search read the indexes again, because this client has built or dropped one."""
        self._seen = None


async def note_wanted(connection: Connection, collection: CollectionInfo, index: VectorIndex) -> None:
    """Store which vector index is wanted, as the SQL comment on the table of vectors."""
    if collection.embedding is not None:
        table = collection.names.embedding(collection.embedding.version)
        await connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(as_text(index))))


async def built_to_their_end(connection: Connection, names: Names, suffixes: Sequence[str]) -> dict[str, bool]:
    """Return, for each existing index with one of these suffixes, whether its build was completed."""
    cursor = await connection.execute(
        "SELECT s.suffix, i.indisvalid AND i.indisready "
        "FROM unnest(%s::text[], %s::text[]) AS s(suffix, name) "
        "JOIN pg_catalog.pg_index AS i ON i.indexrelid = pg_catalog.to_regclass(s.name)",
        [list(suffixes), [names.qualified_index(suffix) for suffix in suffixes]],
    )
    return dict(await cursor.fetchall())


async def free_suffix(connection: Connection, names: Names, suffix: str) -> str:
    """Return the suffix, with a number appended if an index with this suffix exists."""
    candidates = [suffix, *(f"{suffix}_{number}" for number in range(2, 10))]
    cursor = await connection.execute(
        "SELECT s.suffix FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS s(suffix, name, place) "
        "WHERE pg_catalog.to_regclass(s.name) IS NULL ORDER BY s.place LIMIT 1",
        [candidates, [names.qualified_index(candidate) for candidate in candidates]],
    )
    row = await cursor.fetchone()
    return suffix if row is None else str(row[0])


_RUNNING = sql.SQL(
    "SELECT c.relname, p.phase, p.blocks_done, p.blocks_total, p.tuples_done, p.tuples_total "
    "FROM pg_catalog.pg_stat_progress_create_index AS p LEFT JOIN pg_catalog.pg_class AS c ON c.oid = p.index_relid "
    "WHERE p.datname = pg_catalog.current_database() "
    "AND p.relid = ANY(ARRAY(SELECT s.oid FROM unnest(%s::text[]) AS t(name) CROSS JOIN LATERAL "
    "(SELECT l.oid FROM {}) AS s)) ORDER BY p.pid"
).format(stored_in(sql.SQL("pg_catalog.to_regclass(t.name)")))


# A build that is under way has left nothing yet.
_LEFTOVERS = sql.SQL(
    "SELECT DISTINCT r.name FROM {registry} AS r "
    "JOIN pg_catalog.pg_class AS t ON t.relnamespace = {schema}::regnamespace "
    "AND (t.relname = r.name || '_chunk' OR t.relname ~ ('^' || r.name || '_embedding_[0-9]+$')) "
    "JOIN pg_catalog.pg_index AS i ON i.indrelid = t.oid AND NOT (i.indisvalid AND i.indisready) "
    "WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_create_index AS p "
    "WHERE p.datname = pg_catalog.current_database() AND (p.index_relid = i.indexrelid OR p.relid IN ("
    "SELECT h.inhrelid FROM pg_catalog.pg_inherits AS h WHERE h.inhparent = i.indrelid))) ORDER BY r.name"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBuild:
    """A build of an index that the server is running.

    Attributes:
        name: Name of the index, without the schema; None if it is not built concurrently.
        phase: The phase, as the server names it.
        done: Blocks of the table, or rows, that are done in this phase.
        total: Blocks or rows in all; None if unknown.
        unit: ``blocks`` or ``rows``.
    """

    name: str | None
    phase: str
    done: int
    total: int | None
    unit: str


def searched_tables(collection: CollectionInfo) -> list[sql.Identifier]:
    """Return the tables that searches read, whose indexes are built after loads."""
    tables = [collection.names.chunk]
    if collection.embedding is not None:
        tables.append(collection.names.embedding(collection.embedding.version))
    return tables


async def read_running_builds(connection: Connection, collection: CollectionInfo) -> tuple[RunningBuild, ...]:
    """Read the builds of a collection's indexes, as far as this role may see other sessions."""
    tables = [table.as_string(connection) for table in searched_tables(collection)]
    cursor = await connection.execute(_RUNNING, [tables])
    found = []
    for name, phase, blocks, all_blocks, rows, all_rows in await cursor.fetchall():
        # HNSW counts blocks of the table, IVFFlat the rows that it puts into lists.
        done, total, unit = (blocks, all_blocks, "blocks") if all_blocks else (rows, all_rows, "rows")
        found.append(RunningBuild(name=name, phase=phase, done=done or 0, total=total or None, unit=unit))
    return tuple(found)


async def collections_with_leftovers(connection: Connection, schema: str) -> list[str]:
    """Return the names of collections with an index whose build was interrupted."""
    parts = {"registry": sql.Identifier(schema, "collection"), "schema": sql.Literal(f'"{schema}"')}
    cursor = await connection.execute(_LEFTOVERS.format(**parts))
    return [name for (name,) in await cursor.fetchall()]
