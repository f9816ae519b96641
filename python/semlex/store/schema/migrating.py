"""What has to be migrated in a schema, as steps and as SQL for a role that may change tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.schema import migrations
from semlex.store.schema.locks import SETUP_LOCK
from semlex.store.schema.names import Names
from semlex.store.schema.origin import check_collection
from semlex.store.schema.registry import (
    collection_statements,
    migrate_registry,
    open_collection,
    registry_statements,
    registry_version,
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
        version, newest = await registry_version(connection, schema), len(migrations.REGISTRY)
        if not version:
            return []
        steps = [] if version == newest else [_step(REGISTRY, version, newest, registry_statements(schema, version))]
        newest = len(migrations.COLLECTION)
        cursor = await connection.execute(
            sql.SQL(
                "SELECT name, schema_version, schema_fingerprint FROM {} WHERE schema_version < %s ORDER BY name"
            ).format(sql.Identifier(schema, "collection")),
            [newest],
        )
        for name, version, fingerprint in await cursor.fetchall():
            check_collection(name, version, fingerprint)
            steps.append(_step(name, version, newest, collection_statements(Names(schema, name), version)))
        return steps

    return await database.read("look for what has to be migrated", work)


def _step(name: str, version: int, wanted: int, statements: list[sql.Composed]) -> Step:
    return Step(name, version, wanted, tuple(one.as_string() for one in statements))


async def migrate(database: Database, schema: str) -> list[Step]:
    """Migrates the registry of a schema and every collection, each in its own transaction; returns what was done."""
    steps = await pending_steps(database, schema)
    for step in steps:
        if step.name == REGISTRY:
            await migrate_registry(database, schema)
        else:
            await open_collection(database, Names(schema, step.name), None, create=False)
    return steps
