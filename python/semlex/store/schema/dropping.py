"""Drop collections, including those whose tables another version of semlex made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.followed.definitions import delete_tables
from semlex.store.followed.triggers import remove_triggers
from semlex.store.jobs import CANCELLING, job_table
from semlex.store.postgres.rows import fetch_row, fetch_rows
from semlex.store.postgres.settings import server_time
from semlex.store.query.health import TABLES
from semlex.store.schema.locks import LOCK_TIMEOUT, SETUP_LOCK, between_searches, lock_briefly, take_locks
from semlex.store.schema.migrations import collection_origin
from semlex.store.schema.names import FOLLOWED_TABLE, JOB_TABLE, REGISTRY_TABLES, Names
from semlex.store.schema.registry import collection_names, has_registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database

_KNOWN = re.compile(rf"{'|'.join(TABLES)}|embedding_[0-9]+")


async def drop_collection(database: Database, names: Names) -> bool:
    """Drop a collection with everything in it; return False if it does not exist."""
    # Nothing is migrated. A collection of a newer or unreleased semlex is dropped with the tables that only that one
    # knows; not in the schema ``public``, where a table whose name begins like the collection's may belong to others.
    watched: list[str] = []
    dropped_id: str | None = None  # by an attempt that came to its end; the answer to its commit may have been lost

    async def work(connection: Connection) -> bool:
        nonlocal dropped_id
        await take_locks(connection, SETUP_LOCK, lock_timeout=LOCK_TIMEOUT)
        if not await has_registry(connection, names.schema):
            return False
        collections = await collection_names(connection, names.schema)
        row = await fetch_row(
            connection,
            sql.SQL(
                "DELETE FROM {} AS c WHERE name = %(name)s "
                "AND (%(id)s::text IS NULL OR to_jsonb(c) ->> 'collection_id' = %(id)s) "
                "RETURNING schema_version, to_jsonb(c) ->> 'schema_fingerprint', to_jsonb(c) ->> 'collection_id'"
            ).format(names.registry),
            {"name": names.collection, "id": dropped_id},
        )
        if row is None:
            return dropped_id is not None
        version, fingerprint, collection_id = row
        versions = sql.Identifier(names.schema, "embedding_version")
        await connection.execute(sql.SQL("DELETE FROM {} WHERE name = %s").format(versions), [names.collection])
        rows = await fetch_rows(
            connection,
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p') "
            "AND NOT relispartition",
            [f'"{names.schema}"'],
        )
        found = [name for (name,) in rows]
        if FOLLOWED_TABLE in found:  # an older semlex has none
            watched[:] = await delete_tables(connection, names)
        every = collection_origin(version, fingerprint) in ("newer", "unreleased") and names.schema != "public"
        tables = tables_of(names.collection, found, collections, every=every)
        if tables:
            dropped = sql.SQL(", ").join(sql.Identifier(names.schema, table) for table in tables)
            await lock_briefly(connection, sql.SQL("DROP TABLE {}").format(dropped))
        if JOB_TABLE in found:  # otherwise its jobs would fail, or fill a new one
            cancel = sql.SQL("UPDATE {} SET {} WHERE collection = %(collection)s AND state IN ('queued', 'running')")
            values = {"collection": names.collection, "now": await server_time(connection)}
            await connection.execute(cancel.format(job_table(names.schema), CANCELLING), values)
        dropped_id = collection_id
        return True

    is_dropped = await between_searches(database, "drop the collection", names, work)
    for name in watched:
        await remove_triggers(database, names, name)
    return is_dropped


def tables_of(collection: str, tables: Sequence[str], collections: Sequence[str], *, every: bool) -> list[str]:
    """Return those of a schema's `tables` that belong to a collection; with `every`, also tables of unknown kinds."""
    own = []
    for table in sorted(tables):
        owner = max((name for name in collections if table.startswith(f"{name}_")), key=len, default=None)
        if owner == collection and (every or _KNOWN.fullmatch(table.removeprefix(f"{collection}_"))):
            own.append(table)
    return [table for table in own if table not in REGISTRY_TABLES]
