"""Indexes of a collection: none while it is small, built after the load when it is large."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.errors import SemlexError
from semlex.store.postgres.settings import set_local
from semlex.store.schema.distance import MAX_INDEXED_DIMENSIONS
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

logger = logging.getLogger("semlex")

# Below this number of rows an exact scan answers in a few milliseconds, so that no index is made.
INDEX_FROM_ROWS = 10_000
# A build waits so long for those who write, and holds up whoever comes to write meanwhile.
LOCK_TIMEOUT = "5s"


@dataclass(frozen=True, slots=True)
class HnswIndex:
    """Parameters of pgvector's HNSW index.

    Attributes:
        m: Connections per node and layer, 2 to 100.
        ef_construction: Candidates looked at while building, 4 to 1,000 and at least 2 m.

    Raises:
        ConfigurationError: Out of range.
    """

    m: int = 16
    ef_construction: int = 64

    def __post_init__(self) -> None:
        # pgvector's bounds, as documented above
        check_range("m", self.m, 2, 100)
        check_range("ef_construction", self.ef_construction, max(4, 2 * self.m), 1000)


class IndexesBuilt(list[str]):
    """Names of the indexes that were made; empty when none was missing, or all are being built elsewhere.

    Attributes:
        busy: Names of those that are missing and that another process is building.
    """

    def __init__(self) -> None:
        super().__init__()
        self.busy: list[str] = []


def building_lock(collection: CollectionInfo) -> int:
    """Key of the advisory lock of whoever builds an index of a collection: one at a time."""
    return int.from_bytes(collection.collection_id.bytes[4:12], signed=True)


async def ensure_indexes(database: Database, collection: CollectionInfo, hnsw: HnswIndex | None = None) -> IndexesBuilt:
    """Makes the indexes that a large collection is missing.

    Each is built plainly in its own transaction (writers wait, readers do not), under a try-lock: when another process
    is at it, this one goes on.

    Args:
        database: An open database.
        collection: As opened.
        hnsw: Parameters of the vector index.

    Returns:
        Names of the indexes that were made, and of those that another process is building.
    """
    made = IndexesBuilt()
    for suffix, statement in _wanted_indexes(collection, hnsw or HnswIndex()):

        async def work(connection: Connection, suffix: str = suffix, statement: sql.Composed = statement) -> bool:
            name = collection.names.qualified_index(suffix)
            if not await _is_missing(connection, name):
                return False
            cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [building_lock(collection)])
            row = await cursor.fetchone()
            if row is None or not row[0]:
                made.busy = sorted({*made.busy, suffix})  # a retry comes here again
                return False
            # A role's limit is meant for statements that somebody waits for; a build takes as long as it takes.
            settings: dict[str, str | int] = {
                "lock_timeout": LOCK_TIMEOUT,
                "statement_timeout": 0,
                "maintenance_work_mem": "256MB",
            }
            await set_local(connection, **settings)
            if not collection.server.parallel_index_builds:
                await set_local(connection, max_parallel_maintenance_workers=0)
            await connection.execute(statement)
            return True

        if await database.write(f"build the index {suffix}", work):
            made.append(suffix)
            logger.info("built index %s of %s", suffix, collection.names.collection)
    if made:
        await database.write("analyze", lambda connection: _analyze(connection, collection))
    return made


async def build_where_wanted(database: Database, collection: CollectionInfo, begin: Callable[[], None]) -> list[str]:
    """Makes the indexes of a collection that has become large; nothing of it fails: what is stored is stored.

    Args:
        database: An open database.
        collection: As opened.
        begin: Called when there is something to build.

    Returns:
        What could not be done.
    """
    try:
        if await indexes_wanted(database, collection):
            begin()
            await ensure_indexes(database, collection)
    except SemlexError as error:
        warning = f"everything is stored, but without all indexes, so that searches are slower: {error}"
        logger.warning("%s: %s; create_index() and the next load try again", collection.names.collection, warning)
        return [warning]
    return []


async def _is_missing(connection: Connection, name: str) -> bool:
    cursor = await connection.execute("SELECT to_regclass(%s) IS NULL", [name])
    row = await cursor.fetchone()
    return bool(row and row[0])


async def indexes_wanted(database: Database, collection: CollectionInfo) -> bool:
    """Whether the collection is large enough for indexes and lacks one."""

    async def work(connection: Connection) -> bool:
        names = [collection.names.qualified_index(suffix) for suffix, _ in _wanted_indexes(collection, HnswIndex())]
        cursor = await connection.execute(
            "SELECT bool_or(to_regclass(name) IS NULL) FROM unnest(%s::text[]) AS name", [names]
        )
        row = await cursor.fetchone()
        if row is None or not row[0]:
            return False
        cursor = await connection.execute(
            sql.SQL("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {}) AS bounded").format(
                collection.names.chunk, sql.Literal(INDEX_FROM_ROWS)
            )
        )
        row = await cursor.fetchone()
        return row is not None and row[0] >= INDEX_FROM_ROWS

    return await database.read("look at the indexes", work)


def _wanted_indexes(collection: CollectionInfo, hnsw: HnswIndex) -> list[tuple[str, sql.Composed]]:
    names, embedding = collection.names, collection.embedding
    wanted = list(collection.keyword.indexes(names))
    wanted += [
        (
            "metadata",
            sql.SQL("CREATE INDEX {} ON {} USING gin (metadata jsonb_path_ops)").format(
                names.index("metadata"), names.chunk
            ),
        ),
        (
            "source_name",
            # A hash index has no bound on the length of the key, which is a path.
            sql.SQL("CREATE INDEX {} ON {} USING hash (source_document)").format(
                names.index("source_name"), names.chunk
            ),
        ),
    ]
    if embedding is not None and embedding.dimensions <= MAX_INDEXED_DIMENSIONS[embedding.storage]:
        suffix = f"hnsw_{embedding.version}"
        statement = sql.SQL("CREATE INDEX {} ON {} USING hnsw (embedding {}) WITH (m = {}, ef_construction = {})")
        wanted.append(
            (
                suffix,
                statement.format(
                    names.index(suffix),
                    names.embedding(embedding.version),
                    collection.distance.operator_class(collection.server.extension, embedding.storage),
                    sql.Literal(hnsw.m),
                    sql.Literal(hnsw.ef_construction),
                ),
            )
        )
    return wanted


async def _analyze(connection: Connection, collection: CollectionInfo) -> None:
    await set_local(connection, statement_timeout=0)
    tables = [collection.names.chunk]
    if collection.embedding is not None:
        tables.append(collection.names.embedding(collection.embedding.version))
    await connection.execute(sql.SQL("ANALYZE {}").format(sql.SQL(", ").join(tables)))
