"""A set of vectors beside another: who fills it, the switch to it, its use, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb

from semlex.errors import ConfigurationError, StoreError
from semlex.store.jobs.queue import NewJob, store_job
from semlex.store.postgres.settings import cursor_with_times, server_time, set_local
from semlex.store.schema.collection import EmbeddingVersion
from semlex.store.schema.locks import lock_briefly
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from datetime import datetime

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

# A run says so often that it goes on; one that has not said so for as long may have ended, and another takes its place.
RUN_SECONDS = 15.0
# A version that was used so recently is not dropped.
IDLE_SECONDS = 60.0
# Of the job that makes vectors which writers with another model have left out.
EMBED_KEY = "vectors that a program with another model left out"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """What is stored of a set of vectors.

    Attributes:
        version: Its model.
        created_at: When it was made, in UTC.
        building: Whether it is in the making.
        run_number: Of the last run that has filled it.
        seconds_left: For so long a run has said that it goes on; 0 or less: none does.
        served_until: When it ceased to be the serving one; None for one that serves or never did.
        idle_seconds: Since it was used last by a process that holds its model; None: never, or not since it served.
    """

    version: EmbeddingVersion
    created_at: datetime
    building: bool
    run_number: int
    seconds_left: float
    served_until: datetime | None
    idle_seconds: float | None


async def version_rows(connection: Connection, collection: CollectionInfo) -> list[VersionRow]:
    """All sets of vectors of a collection, by their numbers."""
    names, now = collection.names, await server_time(connection)
    cursor = cursor_with_times(connection)
    await cursor.execute(
        sql.SQL(
            "SELECT version, identity_key, model, revision, dimensions, storage, calibration, probe, created_at, "
            "building, run_number, run_until, served_until, last_used_at FROM {} WHERE name = %s ORDER BY version"
        ).format(names.embedding_version),
        [names.collection],
    )
    return [
        VersionRow(
            EmbeddingVersion(*row[:8]),
            created_at=row[8],
            building=row[9],
            run_number=row[10],
            seconds_left=0.0 if row[11] is None else (row[11] - now).total_seconds(),
            served_until=row[12],
            idle_seconds=None if row[13] is None else (now - row[13]).total_seconds(),
        )
        for row in await cursor.fetchall()
    ]


# --- runs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VersionRun:
    """The right to fill a version. Every transaction of a run proves it, so that one that was given up writes nothing.

    Attributes:
        version: Number of the version.
        number: Larger than that of every run before.
    """

    version: int
    number: int


async def begin_run(connection: Connection, collection: CollectionInfo, version: int) -> VersionRun | float:
    """Takes the right to fill a version; or the seconds for which another run has it.

    Args:
        connection: In a transaction.
    """
    await connection.execute(
        sql.SQL("SELECT FROM {} WHERE name = %s AND version = %s FOR UPDATE").format(
            collection.names.embedding_version
        ),
        [collection.names.collection, version],
    )
    row = next((one for one in await version_rows(connection, collection) if one.version.version == version), None)
    if row is None:
        raise lost(collection, version)
    if row.seconds_left > RUN_SECONDS:
        # The server's clock has stepped back. A run that lives says again that it goes on, long before that is over.
        await connection.execute(
            sql.SQL("UPDATE {} SET run_until = run_until - %s WHERE name = %s AND version = %s").format(
                collection.names.embedding_version
            ),
            [timedelta(seconds=row.seconds_left - RUN_SECONDS), collection.names.collection, version],
        )
    if row.seconds_left > 0:
        return min(row.seconds_left, RUN_SECONDS)
    run = VersionRun(version, row.run_number + 1)
    await connection.execute(
        sql.SQL("UPDATE {} SET run_number = %s WHERE name = %s AND version = %s").format(
            collection.names.embedding_version
        ),
        [run.number, collection.names.collection, version],
    )
    await keep_run(connection, collection, run)
    return run


async def keep_run(
    connection: Connection, collection: CollectionInfo, run: VersionRun, seconds: float | None = None
) -> None:
    """Says that a run goes on; nobody takes its place before the transaction ends.

    Args:
        connection: In a transaction.
        seconds: For how long, by default `RUN_SECONDS`; 0 ends it.
    """
    until = await server_time(connection) + timedelta(seconds=RUN_SECONDS if seconds is None else seconds)
    cursor = await connection.execute(
        sql.SQL("UPDATE {} SET run_until = %s WHERE name = %s AND version = %s AND run_number = %s").format(
            collection.names.embedding_version
        ),
        [until, collection.names.collection, run.version, run.number],
    )
    if cursor.rowcount == 0:
        raise lost(collection, run.version)


def lost(collection: CollectionInfo, version: int) -> StoreError:
    """The error of a run that must not go on."""
    name = collection.names.collection
    return StoreError(
        f"another process has taken over version {version} of the vectors of collection {name!r}, or has dropped it; "
        f"this one stopped (semlex embeddings --collection {name} shows what there is)"
    )


# --- the switch, and the end ------------------------------------------------------------------------------------------


async def switch_version(connection: Connection, collection: CollectionInfo, version: int, *, lacking: int) -> None:
    """Lets a version serve whoever opens the collection from now on.

    Args:
        connection: In a transaction that excludes writers.
    """
    names, now, clock = collection.names, utc_now(), await server_time(connection)
    values = {"name": names.collection, "version": version, "now": now, "clock": clock, "lacking": lacking}
    tables = {"versions": names.embedding_version, "registry": names.registry}
    # What counts tokens goes with the model that brings it, there and back.
    ended = sql.SQL(
        "UPDATE {versions} AS e SET served_until = %(clock)s, last_used_at = %(clock)s, "
        "token_counter = c.token_counter FROM {registry} AS c "
        "WHERE c.name = %(name)s AND e.name = c.name AND e.version = c.embedding_version"
    )
    switched = sql.SQL(
        "UPDATE {registry} AS c SET embedding_version = e.version, updated_at = %(now)s, "
        "token_counter = coalesce(e.token_counter, c.token_counter) FROM {versions} AS e "
        "WHERE c.name = %(name)s AND e.name = c.name AND e.version = %(version)s"
    )
    begun = sql.SQL(
        "UPDATE {versions} SET building = false, served_until = NULL, last_used_at = NULL, "
        "lacking_writes = %(lacking)s "
        "WHERE name = %(name)s AND version = %(version)s"
    )
    for statement in (ended, switched, begun):
        await connection.execute(statement.format(**tables), values)


async def note_use(connection: Connection, names: Names, version: int) -> None:
    """Notes that a version was used just now."""
    await set_local(connection, lock_timeout="500ms")
    await connection.execute(
        sql.SQL("UPDATE {} SET last_used_at = %s WHERE name = %s AND version = %s").format(names.embedding_version),
        [await server_time(connection), names.collection, version],
    )


async def note_lacking(connection: Connection, collection: CollectionInfo) -> None:
    """Note that rows written here lack a vector of the serving version, and let a worker make it.

    Does nothing where the serving version is the one in use. Called at the end of a write: it locks a row that other
    such writers wait for.
    """
    names, used = collection.names, collection.embedding
    if used is None:
        return
    cursor = await connection.execute(
        sql.SQL(
            "UPDATE {} AS e SET lacking_writes = e.lacking_writes + 1 FROM {} AS c "
            "WHERE c.name = %s AND e.name = c.name AND e.version = c.embedding_version AND e.version <> %s"
        ).format(names.embedding_version, names.registry),
        [names.collection, used.version],
    )
    if cursor.rowcount:
        await store_job(connection, names.schema, NewJob("embed", names.collection, {}, unique_key=EMBED_KEY))


async def lacking_writes(connection: Connection, collection: CollectionInfo) -> int:
    """Return how many writes have left rows without a vector of the version in use since that was last completed."""
    names, used = collection.names, collection.embedding
    if used is None:
        return 0
    cursor = await connection.execute(
        sql.SQL("SELECT lacking_writes FROM {} WHERE name = %s AND version = %s").format(names.embedding_version),
        [names.collection, used.version],
    )
    row = await cursor.fetchone()
    return row[0] if row else 0


async def note_complete(connection: Connection, collection: CollectionInfo, writes: int) -> None:
    """Note that every chunk has a vector of the version in use, if no such write came since `writes` were counted."""
    names, used = collection.names, collection.embedding
    if used is not None:
        await connection.execute(
            sql.SQL("UPDATE {} SET lacking_writes = 0 WHERE name = %s AND version = %s AND lacking_writes = %s").format(
                names.embedding_version
            ),
            [names.collection, used.version, writes],
        )


async def store_calibration(
    connection: Connection, collection: CollectionInfo, version: int, calibration: dict[str, Any] | None
) -> None:
    """Stores what a cosine of a set of vectors means, in place of what was known; None: nothing is known any more.

    Args:
        connection: In a transaction.
    """
    name = collection.names.collection
    cursor = await connection.execute(
        sql.SQL("UPDATE {} SET calibration = %s WHERE name = %s AND version = %s").format(
            collection.names.embedding_version
        ),
        [None if calibration is None else Jsonb(calibration), name, version],
    )
    if cursor.rowcount == 0:
        raise StoreError(
            f"version {version} of the vectors of collection {name!r} was dropped in the meantime: open the collection "
            "anew and calibrate again"
        )


async def drop_version(connection: Connection, collection: CollectionInfo, version: int, *, force: bool) -> None:
    """Drops a set of vectors.

    Args:
        connection: In a transaction that excludes writers.
    """
    names = collection.names
    rows = {row.version.version: row for row in await version_rows(connection, collection)}
    row = rows.get(version)
    if row is None:
        known = ", ".join(map(str, rows)) or "none"
        raise ConfigurationError(
            f"collection {names.collection!r} has no version {version} of its vectors; it has {known}"
        )
    cursor = await connection.execute(
        sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry), [names.collection]
    )
    if await cursor.fetchone() == (version,):
        raise ConfigurationError(
            f"version {version} serves the searches of collection {names.collection!r}, so it cannot be dropped; "
            f"change to another first: semlex reembed --collection {names.collection}"
        )
    if not force and row.seconds_left > 0:
        raise StoreError(f"a process fills version {version} at this moment: end it first, or force it (--force)")
    if not force and row.idle_seconds is not None and row.idle_seconds < IDLE_SECONDS:
        raise StoreError(
            f"a process has searched version {version} {max(row.idle_seconds, 0):.0f} s ago: open those that hold "
            f"{row.version.model} anew and try again after {IDLE_SECONDS:.0f} s without a use, or force it (--force)"
        )
    await connection.execute(
        sql.SQL("DELETE FROM {} WHERE name = %s AND version = %s").format(names.embedding_version),
        [names.collection, version],
    )
    await lock_briefly(connection)
    await connection.execute(sql.SQL("DROP TABLE {}").format(names.embedding(version)))
    # A writer whose snapshot is older fails then, instead of going by what it sees.
    await connection.execute(
        sql.SQL("UPDATE {} SET updated_at = %s WHERE name = %s").format(names.registry), [utc_now(), names.collection]
    )
