"""Make, open, list and migrate collections."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from semlex.errors import PrivilegeError, ReadOnlyError, StoreError
from semlex.options.collection import ChunkSettings, CollectionSettings
from semlex.store.keyword.extensions import read_extension
from semlex.store.keyword.registry import keyword_engine
from semlex.store.postgres.errors import translate
from semlex.store.postgres.roles import rights_to_create
from semlex.store.postgres.rows import execute_all, fetch_row, fetch_rows, fetch_value
from semlex.store.postgres.server_info import read_server_info
from semlex.store.postgres.settings import set_local
from semlex.store.schema import migrations
from semlex.store.schema.collection import CollectionInfo, ListedCollection, Versions, distance_named
from semlex.store.schema.locks import SETUP_LOCK, no_such_collection, take_locks
from semlex.store.schema.migrations import (
    check_collection,
    collection_fingerprint,
    newer_tables,
    registry_fingerprint,
    registry_origin,
    unreleased_registry,
)
from semlex.store.schema.names import FOLLOWED_TABLE, JOB_TABLE, REGISTRY_TABLES, Names, has_table, insertion
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from semlex.store.keyword.engine import KeywordEngine
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database


# Opening a collection that is up to date is a single read, so it works on a standby and for a role that may only
# SELECT. All else runs under an advisory transaction lock: without it, concurrent `CREATE … IF NOT EXISTS` mostly
# fails.

# Another program (or an owner without our lock) was faster: the object exists.
ALREADY_DONE = ("23505", "42P06", "42P07", "42710")
CREATE_EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"
SETUP_ATTEMPTS = 5
CURSOR_KEY_BYTES = 32
SETTING_COLUMNS = tuple(one.name for one in fields(CollectionSettings) if one.name != "chunk_settings")
# By which a table that an older semlex did not have is known as ours.
OWN_COLUMNS = {JOB_TABLE: "fence", FOLLOWED_TABLE: "leased_until", "row_change": "row_key"}
# Rows are read as JSON before their fingerprints are known: tables that an unreleased semlex made have other columns.
LAST_MIGRATION = sql.SQL("(SELECT to_jsonb(v) FROM {} AS v ORDER BY v.version DESC LIMIT 1)")


async def find_collection(database: Database, names: Names) -> CollectionInfo | None:
    """Return the collection as it is stored, or None; nothing is made or migrated."""
    return await database.read("look for the collection", lambda connection: find(connection, names))


async def open_collection(
    database: Database, names: Names, settings: CollectionSettings | None, *, create: bool = True
) -> CollectionInfo:
    """Open a collection, making or migrating it when needed."""
    return await open_found(database, names, await find_collection(database, names), settings, create=create)


async def open_found(
    database: Database,
    names: Names,
    found: CollectionInfo | None,
    settings: CollectionSettings | None,
    *,
    create: bool = True,
) -> CollectionInfo:
    """Open what `find_collection` has returned, making or migrating it when needed."""
    if found is not None and found.schema_version == len(migrations.COLLECTION):
        return found
    if found is None and not create:
        known = [listed.name for listed in await list_collections(database, names.schema)]
        raise no_such_collection(names.collection, known)
    server = await database.read("look at the server", read_server_info)
    if server.read_only:
        done = "made" if found is None else "migrated (semlex maintain migrate)"
        raise ReadOnlyError(f"collection {names.collection!r} must be {done} on the primary server first")
    chosen = settings or CollectionSettings()
    distance_named(chosen.distance)
    keyword_engine(chosen.keyword_engine, chosen.language, stop_words=chosen.stop_words)
    attempt = 0
    while True:
        attempt += 1
        try:
            return await database.write("set up the collection", lambda connection: _set_up(connection, names, chosen))
        except PrivilegeError as error:
            if found is None:
                raise await _with_rights(database, names, error) from None
            raise PrivilegeError(
                f"collection {names.collection!r} was made by an older semlex and must be migrated, which this role "
                "may not do; let the owner of its tables run: semlex maintain migrate (or the SQL of its option --sql)",
                sqlstate=error.sqlstate,
            ) from None
        except StoreError as error:
            if error.sqlstate not in ALREADY_DONE or attempt == SETUP_ATTEMPTS:
                raise


async def _with_rights(database: Database, names: Names, error: PrivilegeError) -> PrivilegeError:
    """Return the error for a collection that could not be made, with the GRANT statements that the role needs."""
    role = database.role
    if role is None or not await database.read("look for the schema", lambda c: _has_schema(c, names.schema)):
        return error
    text = f"{error}. The role makes the tables itself, so it needs: {rights_to_create(names.schema, role)}"
    return PrivilegeError(text, sqlstate=error.sqlstate)


async def _has_schema(connection: Connection, schema: str) -> bool:
    return await fetch_row(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]) is not None


async def has_registry(connection: Connection, schema: str) -> bool:
    """Return whether the schema has a registry, that is, whether a collection was ever made in it."""
    return await has_table(connection, sql.Identifier(schema, "collection"))


async def registry_version(connection: Connection, schema: str) -> int | None:
    """Return the version of the tables that all collections of a schema share; None if the schema has none."""
    if not await has_registry(connection, schema):
        return None
    return await _checked_registry(connection, schema, *await last_migration(connection, schema))


async def last_migration(connection: Connection, schema: str) -> tuple[int, str | None]:
    """Return the stored version and fingerprint of the tables that all collections of a schema share."""
    statement = sql.SQL("SELECT {}").format(LAST_MIGRATION.format(sql.Identifier(schema, "registry_version")))
    return _version_of(await fetch_value(connection, statement))


def _version_of(stored: dict[str, Any] | None) -> tuple[int, str | None]:
    """Return version and fingerprint from a row of `LAST_MIGRATION`."""
    return (0, None) if stored is None else (stored["version"], stored.get("fingerprint"))


async def _checked_registry(connection: Connection, schema: str, version: int, fingerprint: str | None) -> int:
    origin = registry_origin(version, fingerprint)
    if origin == "newer":
        raise newer_tables(f"the registry of schema {schema!r}", version, len(migrations.REGISTRY))
    if origin != "unreleased":
        return version
    if names := await collection_names(connection, schema):
        raise unreleased_registry(schema, names)
    return 0


async def collection_names(connection: Connection, schema: str) -> list[str]:
    """Return the names of all collections of a schema, sorted."""
    statement = sql.SQL("SELECT name FROM {} ORDER BY name").format(sql.Identifier(schema, "collection"))
    return [name for (name,) in await fetch_rows(connection, statement)]


async def find(connection: Connection, names: Names) -> CollectionInfo | None:
    """Return the collection as it is stored; None if it does not exist."""
    return await _find(connection, names) if await has_registry(connection, names.schema) else None


async def _find(connection: Connection, names: Names) -> CollectionInfo | None:
    row = await fetch_row(
        connection,
        sql.SQL(
            "SELECT {}, to_jsonb(c), ARRAY(SELECT to_jsonb(e) FROM {} AS e WHERE e.name = c.name) "
            "FROM {} AS c WHERE c.name = %s"
        ).format(
            LAST_MIGRATION.format(sql.Identifier(names.schema, "registry_version")),
            names.embedding_version,
            names.registry,
        ),
        [names.collection],
    )
    if row is None:
        return None
    last, stored, vectors = row
    await _checked_registry(connection, names.schema, *_version_of(last))
    version = stored["schema_version"]
    check_collection(names.collection, version, stored["schema_fingerprint"])
    settings = CollectionSettings(
        **{name: stored[name] for name in SETTING_COLUMNS},
        chunk_settings=ChunkSettings.stored(*map(stored.get, ChunkSettings._fields)),
    )
    versions = Versions.stored(stored["embedding_version"], vectors)
    # In the same transaction: the extension may have been made together with the collection.
    server = await read_server_info(connection)
    engine = await _keyword_engine(connection, settings)
    collection_id = uuid.UUID(stored["collection_id"])
    key = bytes.fromhex(stored["cursor_key"])
    names = replace(names, partitions=settings.partitions)
    return CollectionInfo(names, server, version, collection_id, key, settings, versions.answering, engine, versions)


async def _keyword_engine(connection: Connection, settings: CollectionSettings) -> KeywordEngine:
    """Return the collection's keyword engine, with the state of the extension that the engine may need."""
    extension = await read_extension(connection, settings.keyword_engine)
    return keyword_engine(
        settings.keyword_engine, settings.language, stop_words=settings.stop_words, extension=extension
    )


async def migrate_registry(database: Database, schema: str) -> None:
    """Make the tables that all collections of a schema share, or migrate them to the newest version."""

    async def work(connection: Connection) -> None:
        await _lock_for_setup(connection)
        await _ensure_registry(connection, schema)

    await database.write("migrate the registry", work)


async def _lock_for_setup(connection: Connection) -> None:
    await take_locks(connection, SETUP_LOCK, lock_timeout="60s")
    await set_local(connection, lock_timeout="5s")


async def _set_up(connection: Connection, names: Names, settings: CollectionSettings) -> CollectionInfo:
    """Make or migrate the collection, unless somebody else has done so in the meantime; return it as it is stored."""
    await _lock_for_setup(connection)
    await _ensure_extension(connection)
    await _ensure_registry(connection, names.schema)
    found = await _find(connection, names)
    if found is None:
        await _make(connection, replace(names, partitions=settings.partitions), settings)
    elif statements := collection_statements(found.names, found.schema_version):
        await execute_all(connection, statements)
    else:
        return found
    made = await _find(connection, names)
    assert made is not None  # noqa: S101 - stored in this transaction
    return made


async def _make(connection: Connection, names: Names, settings: CollectionSettings) -> None:
    now = utc_now()
    engine = await _keyword_engine(connection, settings)
    made = [statement for migration in migrations.COLLECTION for statement in migration(names)]
    await execute_all(connection, [*made, *engine.create(names)])
    values = {
        "name": names.collection,
        "collection_id": uuid.uuid4(),
        "cursor_key": secrets.token_hex(CURSOR_KEY_BYTES),
        "schema_version": len(migrations.COLLECTION),
        "schema_fingerprint": collection_fingerprint(),
        "embedding_version": 0,
        **{name: getattr(settings, name) for name in SETTING_COLUMNS},
        "analyzer_version": None if engine.index is None else engine.index.analyzer_version,
        "created_at": now,
        "updated_at": now,
    }
    await connection.execute(insertion(names.registry, values), values)


def registry_statements(schema: str, version: int) -> list[sql.Composed]:
    """Return SQL that migrates the shared tables from a version to the newest, and records each step."""
    statements: list[sql.Composed] = []
    for number in range(version + 1, len(migrations.REGISTRY) + 1):
        noted = sql.SQL("INSERT INTO {} (version, fingerprint, applied_at) VALUES ({}, {}, {})").format(
            sql.Identifier(schema, "registry_version"), number, registry_fingerprint(number), utc_now()
        )
        statements += [*migrations.REGISTRY[number - 1](schema), noted]
    return statements


def collection_statements(names: Names, version: int) -> list[sql.Composed]:
    """Return SQL that migrates the tables of a collection from a version to the newest, and records the new version."""
    newest = len(migrations.COLLECTION)
    if version == newest:
        return []
    noted = sql.SQL(
        "UPDATE {} SET schema_version = {}, schema_fingerprint = {}, updated_at = {} WHERE name = {}"
    ).format(names.registry, newest, collection_fingerprint(), utc_now(), names.collection)
    return [*(one for migration in migrations.COLLECTION[version:] for one in migration(names)), noted]


async def _ensure_extension(connection: Connection) -> None:
    if await fetch_row(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'") is not None:
        return
    try:
        async with connection.transaction():
            await connection.execute(CREATE_EXTENSION)
    except psycopg.Error as error:
        if error.sqlstate not in ALREADY_DONE:
            raise no_extension(error) from None


def no_extension(error: psycopg.Error) -> BaseException:
    """Return the error for a server on which the extension pgvector cannot be created, with a remedy."""
    if error.sqlstate == "42501":
        return PrivilegeError(
            "this role may not create the extension pgvector; ask a superuser of the server to run: "
            "CREATE EXTENSION vector;",
            sqlstate=error.sqlstate,
        )
    if error.sqlstate in ("0A000", "58P01"):
        return PrivilegeError(
            "pgvector is not installed on this server; install its package there (or use an image that has it), "
            "then: CREATE EXTENSION vector;",
            sqlstate=error.sqlstate,
        )
    return translate(error, "create the extension pgvector")


async def _ensure_registry(connection: Connection, schema: str) -> None:
    if not await _has_schema(connection, schema):
        try:
            async with connection.transaction():
                await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        except psycopg.errors.InsufficientPrivilege:
            statement = await fetch_value(
                connection, "SELECT format('CREATE SCHEMA %%I AUTHORIZATION %%I;', %s::text, current_user)", [schema]
            )
            raise PrivilegeError(
                f"this role may not create the schema {schema!r}; ask the owner of the database to run: {statement}",
                sqlstate="42501",
            ) from None
    version = await registry_version(connection, schema)
    if version == 0:
        await _drop_registry(connection, schema)
    await execute_all(connection, registry_statements(schema, version or 0))


async def _drop_registry(connection: Connection, schema: str) -> None:
    """Drop the shared tables of an unreleased semlex in a schema that has no collection left."""
    found = await fetch_rows(
        connection,
        # In the schema public, a table of such a name may belong to another program.
        "SELECT relname FROM pg_class AS c WHERE relnamespace = to_regnamespace(%s) AND relname = ANY(%s) "
        "AND NOT EXISTS (SELECT FROM jsonb_each_text(%s) AS m (name, own) WHERE m.name = relname AND NOT EXISTS "
        "(SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = m.own))",
        [f'"{schema}"', [*REGISTRY_TABLES, JOB_TABLE], Jsonb(OWN_COLUMNS)],
    )
    tables = [sql.Identifier(schema, name) for (name,) in found]
    await connection.execute(sql.SQL("DROP TABLE {}").format(sql.SQL(", ").join(tables)))


async def list_collections(database: Database, schema: str) -> list[ListedCollection]:
    """Return every collection of a schema, ordered by name."""

    async def work(connection: Connection) -> list[ListedCollection]:
        if not await registry_version(connection, schema):
            return []
        found = await fetch_rows(
            connection,
            sql.SQL(
                "SELECT c.name, c.keyword_engine, c.language, e.model, e.dimensions, c.created_at, "
                "coalesce(c.description, '') "
                "FROM {} AS c LEFT JOIN {} AS e ON e.name = c.name AND e.version = c.embedding_version ORDER BY c.name"
            ).format(sql.Identifier(schema, "collection"), sql.Identifier(schema, "embedding_version")),
        )
        return [ListedCollection(*row) for row in found]

    return await database.read("list the collections", work)


REGISTRY = "the registry"


@dataclass(frozen=True, slots=True)
class Step:
    """One pending migration: of one collection, or of the registry."""

    name: str
    version: int
    wanted: int  # version that this semlex uses
    statements: tuple[str, ...]

    def script(self) -> str:
        """Return the migration as an SQL script: one transaction, under the lock that semlex takes to change tables."""
        begin = (
            "BEGIN",
            "SET LOCAL search_path = pg_catalog, pg_temp",
            "SET LOCAL lock_timeout = '60s'",
            f"SELECT pg_advisory_xact_lock({SETUP_LOCK})",
            "SET LOCAL lock_timeout = '5s'",
        )
        return "".join(f"{statement};\n" for statement in (*begin, *self.statements, "COMMIT"))


async def pending_steps(database: Database, schema: str) -> list[Step]:
    """List the pending migrations of a schema, the registry first."""

    async def work(connection: Connection) -> list[Step]:
        version, newest = await registry_version(connection, schema), len(migrations.REGISTRY)
        if not version:
            return []
        steps = [] if version == newest else [_step(REGISTRY, version, newest, registry_statements(schema, version))]
        newest = len(migrations.COLLECTION)
        found = await fetch_rows(
            connection,
            sql.SQL(
                "SELECT name, schema_version, schema_fingerprint, partitions FROM {} "
                "WHERE schema_version < %s ORDER BY name"
            ).format(sql.Identifier(schema, "collection")),
            [newest],
        )
        for name, version, fingerprint, partitions in found:
            check_collection(name, version, fingerprint)
            steps.append(_step(name, version, newest, collection_statements(Names(schema, name, partitions), version)))
        return steps

    return await database.read("look for what has to be migrated", work)


def _step(name: str, version: int, wanted: int, statements: list[sql.Composed]) -> Step:
    return Step(name, version, wanted, tuple(one.as_string() for one in statements))


async def migrate(database: Database, schema: str) -> list[Step]:
    """Migrate the registry of a schema and every collection, each in its own transaction; return what was done."""
    steps = await pending_steps(database, schema)
    for step in steps:
        if step.name == REGISTRY:
            await migrate_registry(database, schema)
        else:
            await open_collection(database, Names(schema, step.name), None, create=False)
    return steps
