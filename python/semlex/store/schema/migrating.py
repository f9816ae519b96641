"""What has to be migrated in a schema, as steps and as SQL for a role that may change tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.schema import migrations
from semlex.store.schema.locks import SETUP_LOCK
from semlex.store.schema.names import Names
from semlex.store.schema.registry import (
    find,
    has_registry,
    migrate_registry,
    migration_statements,
    open_collection,
)

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database

REGISTRY = "the registry"


@dataclass(frozen=True, slots=True)
class Step:
    """One collection, or the registry.

    Attributes:
        name: Name of the collection.
        version: Version of its tables.
        wanted: Version that this semlex uses.
        statements: SQL that brings it there.
    """

    name: str
    version: int
    wanted: int
    statements: tuple[str, ...]

    def script(self) -> str:
        """The SQL as one transaction, under the lock that semlex takes for changes of tables."""
        begin = (
            "BEGIN",
            "SET LOCAL search_path = pg_catalog, pg_temp",
            "SET LOCAL lock_timeout = '60s'",
            f"SELECT pg_advisory_xact_lock({SETUP_LOCK})",
            "SET LOCAL lock_timeout = '5s'",
        )
        return "".join(f"{statement};\n" for statement in (*begin, *self.statements, "COMMIT"))


async def pending_steps(database: Database, schema: str) -> list[Step]:
    """What has to be done in a schema, the registry first."""

    async def work(connection: Connection) -> list[Step]:
        if not await has_registry(connection, schema):
            return []
        table = sql.Identifier(schema, "registry_version")
        cursor = await connection.execute(sql.SQL("SELECT coalesce(max(version), 0) FROM {}").format(table))
        row = await cursor.fetchone()
        applied, steps = row[0] if row else 0, []
        newest = len(migrations.REGISTRY)
        if applied < newest:
            statements = []
            for number, migration in enumerate(migrations.REGISTRY[applied:], start=applied + 1):
                noted = sql.SQL("INSERT INTO {} VALUES ({}, now())").format(table, sql.Literal(number))
                statements += [statement.as_string(connection) for statement in (*migration(schema), noted)]
            steps.append(Step(REGISTRY, applied, newest, tuple(statements)))
        cursor = await connection.execute(
            sql.SQL("SELECT name FROM {} WHERE schema_version < %s ORDER BY name").format(
                sql.Identifier(schema, "collection")
            ),
            [len(migrations.COLLECTION)],
        )
        for (name,) in await cursor.fetchall():
            steps.append(await _step(connection, Names(schema, name)))
        return steps

    return await database.read("look for what has to be migrated", work)


async def _step(connection: Connection, names: Names) -> Step:
    found = await find(connection, names)
    if found is None:  # one snapshot
        raise AssertionError
    collection, version = found
    wanted = len(migrations.COLLECTION)
    noted = sql.SQL("UPDATE {} SET schema_version = {}, updated_at = now() WHERE name = {}").format(
        names.registry, sql.Literal(wanted), sql.Literal(names.collection)
    )
    statements = (*migration_statements(names, version, collection.keyword), noted)
    return Step(names.collection, version, wanted, tuple(one.as_string(connection) for one in statements))


async def migrate(database: Database, schema: str) -> list[Step]:
    """Migrates the registry of a schema and every collection, each in its own transaction; returns what was done."""
    steps = await pending_steps(database, schema)
    for step in steps:
        if step.name == REGISTRY:
            await migrate_registry(database, schema)
        else:
            await open_collection(database, Names(schema, step.name), None, create=False)
    return steps
