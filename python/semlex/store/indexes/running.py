"""Builds of indexes that run on the server, started by this program or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.schema.relations import stored_in

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo

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
    """A build of an index.

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
    """Read the builds of a collection's indexes, as far as this role sees what others do."""
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
