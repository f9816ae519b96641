"""What is wrong with the collections of a database, each with what helps. Nothing is changed."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql

from semlex.store.indexes.field_indexes import is_of_field
from semlex.store.postgres.server_info import SAFE_PGVECTOR
from semlex.store.query.statistics import is_orphaned
from semlex.store.schema import migrations
from semlex.store.schema.names import Names

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.server_info import ServerInfo

REGISTRY_TABLES = ("collection", "embedding_version", "registry_version")
# What a schema has beside them, once it is migrated.
SHARED_TABLES = ("job",)
MAX_SHOWN_NAME = 200  # characters of a model's name
TABLES = ("source", "document", "chunk", "ingestion_log", "segment", "posting", "tombstone", "query_log")


async def find_problems(connection: Connection, server: ServerInfo) -> list[str]:
    """Looks at the server and at every schema that holds collections.

    Args:
        connection: In a transaction.
        server: What the server is.

    Returns:
        One sentence a problem, with its remedy; none when all is well.
    """
    problems = []
    if server.pgvector is None:
        problems.append("pgvector is not installed in this database; its owner runs: CREATE EXTENSION vector;")
    elif server.pgvector < SAFE_PGVECTOR:
        problems.append(
            f"pgvector {'.'.join(map(str, server.pgvector))} has known index defects; update its package on the server "
            "to 0.8.4 or newer, then: ALTER EXTENSION vector UPDATE;"
        )
    cursor = await connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_namespace AS n "
        "JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY(%s) AND c.relkind = 'r' "
        "GROUP BY n.nspname HAVING count(*) = %s ORDER BY n.nspname",
        [list(REGISTRY_TABLES), len(REGISTRY_TABLES)],
    )
    for (schema,) in await cursor.fetchall():
        try:
            async with connection.transaction():
                problems += await _in_schema(connection, schema)
        except psycopg.errors.InsufficientPrivilege:
            problems.append(f"schema {schema} cannot be looked at: this role may not read all of its tables")
    return problems


async def _in_schema(connection: Connection, schema: str) -> list[str]:
    cursor = await connection.execute(
        sql.SQL("SELECT coalesce(max(version), 0) FROM {}").format(sql.Identifier(schema, "registry_version"))
    )
    row = await cursor.fetchone()
    newest = len(migrations.REGISTRY)
    if row is not None and row[0] > newest:
        return [f"schema {schema} was made by a newer semlex (registry {row[0]}, known are {newest}); update semlex"]
    cursor = await connection.execute(
        sql.SQL(
            "SELECT c.name, c.schema_version, to_jsonb(c) -> 'building_generation' <> 'null', "
            "ARRAY(SELECT e.version FROM {versions} AS e WHERE e.name = c.name ORDER BY e.version), "
            # As JSON, because older registries lack what later migrations add.
            "(SELECT e.model FROM {versions} AS e, to_jsonb(e) AS stored WHERE e.name = c.name "
            "AND (stored ->> 'building')::bool "
            "AND coalesce((stored ->> 'run_until')::timestamptz < now(), true) LIMIT 1) "
            "FROM {registry} AS c ORDER BY c.name"
        ).format(versions=sql.Identifier(schema, "embedding_version"), registry=sql.Identifier(schema, "collection"))
    )
    collections = [_Registered(*row) for row in await cursor.fetchall()]
    cursor = await connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind IN ('r', 'p') ORDER BY c.relname",
        [schema],
    )
    present = [name for (name,) in await cursor.fetchall()]
    problems, known = [], {*REGISTRY_TABLES, *SHARED_TABLES}
    for found in collections:
        known |= {f"{found.name}_{table}" for table in TABLES}
        known |= {f"{found.name}_embedding_{version}" for version in found.embeddings}
        problems += await _in_collection(connection, Names(schema, found.name), found, present)
    problems += [_unknown(schema, table) for table in present if table not in known]
    return problems + await _invalid_indexes(connection, schema)


def _unknown(schema: str, table: str) -> str:
    shown = f"{schema}.{table}" if re.fullmatch(r"[a-z_][a-z0-9_]*", table) else repr(table)
    return f"table {shown} belongs to no collection; if you do not know it either: DROP TABLE {shown};"


class _Registered(NamedTuple):
    """A row of the registry."""

    name: str
    version: int
    building: bool
    embeddings: list[int]
    unfinished_model: str | None


async def _in_collection(
    connection: Connection, names: Names, registered: _Registered, present: list[str]
) -> list[str]:
    name, newest = f"collection {names.collection} of schema {names.schema}", len(migrations.COLLECTION)
    version = registered.version
    if version > newest:
        return [f"{name} was made by a newer semlex (version {version}, known are {newest}); update semlex"]
    if version < newest:
        return [f"{name} has version {version} of {newest}; it is migrated when it is opened next"]
    problems = []
    wanted = [f"{names.collection}_{table}" for table in TABLES[:4]]
    wanted += [f"{names.collection}_embedding_{number}" for number in registered.embeddings]
    missing = [table for table in wanted if table not in present]
    if missing:
        return [f"{name} lacks the table {', '.join(missing)}; restore it from a backup, or drop the collection"]
    if registered.building:
        problems.append(
            f"a rebuild of the keyword index of {name} goes on, or was ended before it was done; then finish it with: "
            f"semlex reindex --keyword --collection {names.collection}"
        )
    if registered.unfinished_model is not None:
        model = registered.unfinished_model
        shown = model if model.isprintable() and len(model) <= MAX_SHOWN_NAME else "MODEL"
        problems.append(
            f"a change of {name} to another embedding model was ended before it was done; go on with: semlex reembed "
            f"--collection {names.collection} --model {shlex.quote(shown)}, or drop what it has made: semlex "
            f"embeddings --collection {names.collection} --drop {registered.embeddings[-1]}"
        )
    for version in registered.embeddings:
        vectors = names.embedding(version)
        orphaned = is_orphaned(names.chunk)
        cursor = await connection.execute(sql.SQL("SELECT count(*) FROM {} AS e WHERE {}").format(vectors, orphaned))
        row = await cursor.fetchone()
        if row is not None and row[0]:
            delete = sql.SQL("DELETE FROM {} AS e WHERE {};").format(vectors, orphaned).as_string(connection)
            problems.append(f"{name} has {row[0]:,} vectors whose chunk is gone, which only take room: {delete}")
    return problems


async def _invalid_indexes(connection: Connection, schema: str) -> list[str]:
    """Indexes that a build has left unfinished."""
    cursor = await connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND NOT i.indisvalid ORDER BY c.relname",
        [schema],
    )
    return [
        f"index {schema}.{name} was not built to its end; DROP INDEX {schema}.{name}; "
        + ("semlex fields add" if is_of_field(name) else "the next load")
        + " makes it anew"
        for (name,) in await cursor.fetchall()
    ]
