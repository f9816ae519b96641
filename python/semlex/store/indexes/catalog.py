"""Which indexes a collection has, as the server's catalog tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from semlex.clock import SYSTEM, Clock
from semlex.store.indexes.indexed_value import MAX_INDEXED_DIMENSIONS, indexed_value
from semlex.store.indexes.options import IvfflatIndex, as_text, default_probes, from_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.indexes.indexed_value import Element
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

# What there is decides how fast vectors are found, hardly ever which.
REMEMBERED_SECONDS = 60.0
# What pgvector takes where an index does not say it.
_DEFAULTS = {"hnsw": {"m": 16, "ef_construction": 64}, "ivfflat": {"lists": 100}}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """A vector index that is there.

    Attributes:
        name: Its name, without the schema.
        kind: ``hnsw`` or ``ivfflat``.
        element: pgvector's type of what it holds: ``vector``, ``halfvec`` or ``bit``.
        m: Connections per node; None with ``ivfflat``.
        ef_construction: Candidates looked at while building; None with ``ivfflat``.
        lists: Number of lists; None with ``hnsw``.
        valid: Whether it was built to its end, so that searches use it.
        bytes: Its size; 0 where that was not asked for.
        is_ours: Whether semlex has made it, by its name.
    """

    name: str
    kind: Literal["hnsw", "ivfflat"]
    element: Element
    m: int | None = None
    ef_construction: int | None = None
    lists: int | None = None
    valid: bool
    bytes: int = 0
    is_ours: bool = True


@dataclass(frozen=True, slots=True)
class VectorIndexes:
    """The vector indexes of a collection.

    Attributes:
        wanted: What `create_index` was last asked for, or None.
        stored: Those that are there, the newest last.
    """

    wanted: VectorIndex | None = None
    stored: tuple[StoredIndex, ...] = ()

    @property
    def used(self) -> StoredIndex | None:
        """The one that searches use."""
        return next((index for index in reversed(self.stored) if index.valid), None)

    @property
    def probes(self) -> int:
        """Lists of an IVFFlat index that a search looks into: as was asked for, or as pgvector advises."""
        chosen = self.wanted.probes if isinstance(self.wanted, IvfflatIndex) else None
        return chosen or default_probes((self.used and self.used.lists) or 1)

    @property
    def leftovers(self) -> list[str]:
        """Names of those of ours that were not built to their end."""
        return [index.name for index in self.stored if index.is_ours and not index.valid]


async def read_vector_indexes(
    connection: Connection, collection: CollectionInfo, *, with_size: bool = False
) -> VectorIndexes:
    """Looks for the vector indexes of a collection.

    Args:
        connection: In a transaction.
        with_size: Whether to ask for sizes, for which the server locks each index for a moment.
    """
    embedding = collection.embedding
    if embedding is None:
        return VectorIndexes()
    cursor = await connection.execute(
        sql.SQL(
            "SELECT pg_catalog.obj_description(t.oid, 'pg_class'), i.name, i.method, i.class, i.valid, i.options, "
            "i.on_column, CASE WHEN {} THEN pg_catalog.pg_relation_size(i.oid) ELSE 0 END "
            "FROM pg_catalog.pg_class AS t LEFT JOIN ("
            "SELECT x.indrelid, c.oid, c.relname AS name, a.amname AS method, o.opcname AS class, "
            "x.indisvalid AND x.indisready AS valid, c.reloptions AS options, x.indexprs IS NULL AS on_column "
            "FROM pg_catalog.pg_index AS x JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid "
            "JOIN pg_catalog.pg_am AS a ON a.oid = c.relam AND a.amname IN ('hnsw', 'ivfflat') "
            "JOIN pg_catalog.pg_opclass AS o ON o.oid = x.indclass[0] WHERE x.indpred IS NULL"
            ") AS i ON i.indrelid = t.oid WHERE t.oid = pg_catalog.to_regclass(%s) ORDER BY i.oid"
        ).format(sql.Literal(with_size)),
        [collection.names.embedding(embedding.version).as_string(connection)],
    )
    rows = await cursor.fetchall()
    classes = {indexed_value(collection, element).operator_class: element for element in MAX_INDEXED_DIMENSIONS}
    ours = re.compile(rf"{collection.names.collection}_(hnsw|ivfflat)_{embedding.version}(_[0-9]+)?")
    stored = []
    for _, name, method, operator_class, valid, options, on_column, size in rows:
        element, is_ours = classes.get(operator_class), bool(name and ours.fullmatch(name))
        # Somebody else's index is used as long as it is over the column itself.
        if element is None or not (is_ours or (on_column and element == embedding.storage)):
            continue
        numbers = dict(_DEFAULTS[method]) | {key: int(value) for key, value in (o.split("=") for o in options or ())}
        stored.append(
            StoredIndex(name=name, kind=method, element=element, **numbers, valid=valid, bytes=size, is_ours=is_ours)
        )
    return VectorIndexes(from_text(rows[0][0]) if rows else None, tuple(stored))


class RememberedIndexes:
    """The vector indexes of a collection as they were seen last, for a minute."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._seen: tuple[float, int | None, VectorIndexes] | None = None

    @property
    def last(self) -> VectorIndexes:
        """As they were seen last; none before the first look."""
        return VectorIndexes() if self._seen is None else self._seen[2]

    async def read(self, connection: Connection, collection: CollectionInfo) -> VectorIndexes:
        """Those that were seen within a minute, or a new look.

        Args:
            connection: In a transaction.
        """
        version = None if collection.embedding is None else collection.embedding.version
        if self._seen is not None:
            at, seen_version, found = self._seen
            if seen_version == version and self._clock.monotonic() - at < REMEMBERED_SECONDS:
                return found
        found = await read_vector_indexes(connection, collection)
        self._seen = (self._clock.monotonic(), version, found)
        return found

    def forget(self) -> None:
        """Lets the next search look: something was built or dropped here."""
        self._seen = None


async def note_wanted(connection: Connection, collection: CollectionInfo, index: VectorIndex) -> None:
    """Notes which vector index is wanted, as the comment of the table of vectors."""
    if collection.embedding is not None:
        table = collection.names.embedding(collection.embedding.version)
        await connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(as_text(index))))


async def built_to_their_end(connection: Connection, names: Names, suffixes: Sequence[str]) -> dict[str, bool]:
    """For each index of these suffixes that is there, whether it was built to its end."""
    cursor = await connection.execute(
        "SELECT s.suffix, i.indisvalid AND i.indisready "
        "FROM unnest(%s::text[], %s::text[]) AS s(suffix, name) "
        "JOIN pg_catalog.pg_index AS i ON i.indexrelid = pg_catalog.to_regclass(s.name)",
        [list(suffixes), [names.qualified_index(suffix) for suffix in suffixes]],
    )
    return dict(await cursor.fetchall())


async def free_suffix(connection: Connection, names: Names, suffix: str) -> str:
    """The suffix, or with a number behind it where the schema has something of that name already."""
    candidates = [suffix, *(f"{suffix}_{number}" for number in range(2, 10))]
    cursor = await connection.execute(
        "SELECT s.suffix FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS s(suffix, name, place) "
        "WHERE pg_catalog.to_regclass(s.name) IS NULL ORDER BY s.place LIMIT 1",
        [candidates, [names.qualified_index(candidate) for candidate in candidates]],
    )
    row = await cursor.fetchone()
    return suffix if row is None else str(row[0])
