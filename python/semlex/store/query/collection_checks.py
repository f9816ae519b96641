"""What is wrong with the collections of a database, each with what helps. Nothing is changed."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql

from semlex.store.indexes.field_indexes import is_of_field
from semlex.store.postgres.server_info import SAFE_PGVECTOR
from semlex.store.query.health.rows import orphaned_vectors
from semlex.store.schema import migrations
from semlex.store.schema.migrations import m0001_initial
from semlex.store.schema.names import JOB_TABLE, REGISTRY_TABLES, Names
from semlex.store.schema.origin import collection_origin, registry_origin
from semlex.store.schema.registry import last_migration
from semlex.types.checkups import Finding, of_collection

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.server_info import ServerInfo
    from semlex.store.schema.collection import CollectionInfo

MAX_SHOWN_NAME = 200  # characters of a model's name
TABLES = ("source", "document", "chunk", "ingestion_log", "segment", "posting", "tombstone", "manifest", "query_log")
# Of this engine alone.
BM25, OF_KEYWORD_INDEX = "bm25", ("segment", "posting", "tombstone", "manifest")


async def find_problems(connection: Connection, server: ServerInfo, only: Names | None = None) -> list[Finding]:
    """Looks at the server and at every schema that holds collections.

    Args:
        connection: In a transaction, not in a pipeline: a part of it may be undone.
    """
    problems = []
    if server.pgvector is None:
        problems.append(
            Finding(
                "pgvector_missing",
                "error",
                "pgvector",
                "is not installed in this database",
                "its owner runs",
                "CREATE EXTENSION vector;",
            )
        )
    elif server.pgvector < SAFE_PGVECTOR:
        problems.append(
            Finding(
                "pgvector_old",
                "warning",
                f"pgvector {'.'.join(map(str, server.pgvector))}",
                "has known index defects",
                "update its package on the server to 0.8.4 or newer, then",
                "ALTER EXTENSION vector UPDATE;",
            )
        )
    cursor = await connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_namespace AS n "
        "JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY(%s) AND c.relkind = 'r' "
        "GROUP BY n.nspname HAVING count(*) = %s ORDER BY n.nspname",
        [list(REGISTRY_TABLES), len(REGISTRY_TABLES)],
    )
    for (schema,) in await cursor.fetchall():
        if only is not None and schema != only.schema:
            continue
        try:
            async with connection.transaction():
                problems += await _in_schema(connection, schema, only)
        except psycopg.errors.InsufficientPrivilege:
            name = sql.Identifier(schema).as_string(connection)
            problems.append(
                Finding(
                    "privilege_read",
                    "error",
                    f"schema {schema}",
                    "cannot be looked at: this role may not read all of its tables",
                    "where it should, the owner of the tables runs",
                    f"GRANT USAGE ON SCHEMA {name} TO {_role(connection)}; "
                    f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {_role(connection)};",
                )
            )
    return problems


def _role(connection: Connection) -> str:
    return sql.Identifier(connection.info.user).as_string(connection)


async def _in_schema(connection: Connection, schema: str, only: Names | None) -> list[Finding]:
    registry = sql.Identifier(schema, "collection")
    version, fingerprint = await last_migration(connection, schema)
    origin = registry_origin(version, fingerprint)
    if origin == "newer":
        what = f"was made by a newer semlex (registry {version}, known are {len(migrations.REGISTRY)})"
        return [Finding("schema_newer", "error", f"schema {schema}", what, "update semlex")]
    if origin == "unreleased":
        cursor = await connection.execute(sql.SQL("SELECT name FROM {} ORDER BY name").format(registry))
        every = [Names(schema, name) for (name,) in await cursor.fetchall()]
        return [_unreleased(names) for names in every if only in (None, names)]
    cursor = await connection.execute(
        sql.SQL(
            "SELECT c.name, c.schema_version, c.schema_fingerprint, c.building_generation IS NOT NULL, "
            "ARRAY(SELECT e.version FROM {versions} AS e WHERE e.name = c.name ORDER BY e.version), "
            "(SELECT e.model FROM {versions} AS e WHERE e.name = c.name AND e.building "
            "AND coalesce(e.run_until < now(), true) LIMIT 1), c.keyword_engine FROM {registry} AS c ORDER BY c.name"
        ).format(versions=sql.Identifier(schema, "embedding_version"), registry=registry)
    )
    collections = [_Registered(*row) for row in await cursor.fetchall()]
    cursor = await connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind IN ('r', 'p') ORDER BY c.relname",
        [schema],
    )
    present = [name for (name,) in await cursor.fetchall()]
    problems, known = [], {*REGISTRY_TABLES, JOB_TABLE}
    for found in collections:
        known |= {f"{found.name}_{table}" for table in TABLES}
        known |= {f"{found.name}_embedding_{version}" for version in found.embeddings}
        if only is None or found.name == only.collection:
            problems += await _in_collection(connection, Names(schema, found.name), found, present)
    if only is not None:
        return problems
    problems += [_unknown(connection, schema, table) for table in present if table not in known]
    return problems + await _invalid_indexes(connection, schema)


def _unknown(connection: Connection, schema: str, table: str) -> Finding:
    name = sql.Identifier(schema, table).as_string(connection)
    shown = f"{schema}.{table}" if re.fullmatch(r"[a-z_][a-z0-9_]*", table) else repr(table)
    return Finding(
        "table_unknown",
        "hint",
        f"table {shown}",
        "belongs to no collection",
        "if you do not know it either",
        f"DROP TABLE {name};",
    )


def tables_of(collection: CollectionInfo) -> list[str]:
    """Names of all tables that a collection stands on, those of the registry included."""
    name = collection.names.collection
    tables = TABLES if collection.keyword.index is not None else [one for one in TABLES if one not in OF_KEYWORD_INDEX]
    versions = [f"{name}_embedding_{one.version}" for one in collection.versions.standing]
    return [*REGISTRY_TABLES, *(f"{name}_{table}" for table in tables), *versions]


class _Registered(NamedTuple):
    """A row of the registry."""

    name: str
    version: int
    fingerprint: str
    building: bool
    embeddings: list[int]
    unfinished_model: str | None
    engine: str


async def _in_collection(
    connection: Connection, names: Names, registered: _Registered, present: list[str]
) -> list[Finding]:
    name, newest = of_collection(names.schema, names.collection), len(migrations.COLLECTION)
    version, option = registered.version, f"--collection {names.collection}"
    origin = collection_origin(version, registered.fingerprint)
    if origin == "unreleased":
        return [_unreleased(names)]
    if origin == "newer":
        what = f"was made by a newer semlex (version {version}, known are {newest})"
        return [Finding("collection_newer", "error", name, what, "update semlex")]
    if origin == "older":
        what, remedy = f"has version {version} of {newest}", "it is migrated when it is opened next, or by"
        return [Finding("collection_old", "hint", name, what, remedy, "semlex migrate")]
    tables = TABLES if registered.engine == BM25 else [table for table in TABLES if table not in OF_KEYWORD_INDEX]
    wanted = [f"{names.collection}_{table}" for table in tables]
    wanted += [f"{names.collection}_embedding_{number}" for number in registered.embeddings]
    missing = [table for table in wanted if table not in present]
    if missing == [f"{names.collection}_query_log"]:
        made = [statement.as_string(connection) for statement in m0001_initial.query_log(names)]
        what, remedy = f"lacks the table {missing[0]}: no question is logged", "the owner of the tables runs"
        return [Finding("table_missing", "warning", name, what, remedy, "; ".join(made) + ";")]
    if missing:
        what, remedy = f"lacks the table {', '.join(missing)}", "restore it from a backup, or drop the collection"
        return [Finding("table_missing", "error", name, what, remedy)]
    problems = []
    if registered.building:
        problems.append(
            Finding(
                "keyword_rebuild_left",
                "warning",
                name,
                "has a rebuild of its keyword index that goes on, or was ended before it was done",
                "where none goes on, finish it",
                f"semlex reindex --keyword {option}",
            )
        )
    if registered.unfinished_model is not None:
        model = registered.unfinished_model
        shown = model if model.isprintable() and len(model) <= MAX_SHOWN_NAME else "MODEL"
        problems.append(
            Finding(
                "reembed_left",
                "warning",
                name,
                "has a change to another embedding model that was ended before it was done",
                f"drop what it has made (semlex embeddings {option} --drop {registered.embeddings[-1]}), or go on",
                f"semlex reembed {option} --model {shlex.quote(shown)}",
            )
        )
    for version in registered.embeddings:
        problems += await orphaned_vectors(connection, names, version)
    return problems


def _unreleased(names: Names) -> Finding:
    return Finding(
        "collection_unreleased",
        "error",
        of_collection(names.schema, names.collection),
        "was made by an unreleased semlex with other tables",
        "dump it with that version if you need its contents (semlex dump), then drop it, and index or restore it again",
        f"semlex drop {names.collection}",
    )


async def _invalid_indexes(connection: Connection, schema: str) -> list[Finding]:
    """Indexes that a build has left unfinished; not those that are being built, as far as this role sees builds."""
    cursor = await connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND NOT (i.indisvalid AND i.indisready) AND NOT EXISTS ("
        "SELECT FROM pg_catalog.pg_stat_progress_create_index AS p WHERE p.index_relid = i.indexrelid) "
        "ORDER BY c.relname",
        [schema],
    )
    return [
        Finding(
            "index_invalid",
            "warning",
            f"index {schema}.{name}",
            "was not built to its end",
            "where nobody is building it now, drop it; "
            + ("semlex fields add" if is_of_field(name) else "the next load, or semlex create-index,")
            + " makes it anew",
            f"DROP INDEX {sql.Identifier(schema, name).as_string(connection)};",
        )
        for (name,) in await cursor.fetchall()
    ]
