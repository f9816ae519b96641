"""Make, fill, switch to, use and drop embedding versions; each is the set of vectors of one model."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from psycopg import AsyncCursor, sql
from psycopg.types.json import Jsonb

from semlex import _core
from semlex.errors import ConfigurationError, ModelMismatchError, StoreError
from semlex.store.jobs import NewJob, store_job
from semlex.store.postgres.rows import execute_all, fetch_row, fetch_rows, fetch_value
from semlex.store.postgres.settings import server_time, set_local
from semlex.store.schema.collection import MAX_DIMENSIONS, CollectionInfo, EmbeddingVersion, Versions, for_model
from semlex.store.schema.locks import SETUP_LOCK, gone, hold_collection, lock_briefly, take_locks
from semlex.store.schema.names import Names, insertion
from semlex.store.schema.registry import find
from semlex.store.write.copy import copy_rows
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.query.leg import Key


# A row of up to this size keeps its vector in its table: two such rows fit a page. Postgres would move vectors out of
# rows above 2 kB; there they take more of the disk, and two to three times as long to read.
MAX_ROW_BYTES = 4_080


def check_dimensions(wanted: EmbeddingVersion) -> None:
    """Refuse vectors without dimensions, or with more than pgvector can store."""
    if not 1 <= wanted.dimensions <= MAX_DIMENSIONS:
        raise ModelMismatchError(f"vectors may have 1 to {MAX_DIMENSIONS} dimensions; these have {wanted.dimensions}")


async def ensure_embedding_version(
    database: Database, collection: CollectionInfo, wanted: EmbeddingVersion
) -> CollectionInfo:
    """Make the table for a first model's vectors; if one exists, check that it is for the same model."""

    async def work(connection: Connection) -> CollectionInfo:
        names = collection.names
        await take_locks(connection, SETUP_LOCK, lock_timeout="60s")
        found = await find(connection, names)
        if found is None or found.collection_id != collection.collection_id:
            raise gone(collection)
        now_open = replace(found, keyword=collection.keyword)
        if now_open.versions.standing:
            return for_model(now_open, wanted)
        building = now_open.versions.building
        if building is not None:
            raise ModelMismatchError(
                f"the first vectors of collection {names.collection!r} are being made, with {building.model}: wait "
                f"until semlex models set --collection {names.collection} is done, or add without a model "
                "(embedding_model='none')"
            )
        version = await create_version(connection, now_open, wanted)
        await connection.execute(
            sql.SQL("UPDATE {} SET embedding_version = %s WHERE name = %s").format(names.registry),
            [version.version, names.collection],
        )
        return replace(now_open, embedding=version, versions=Versions(version.version, (version,)))

    check_dimensions(wanted)
    if collection.embedding is not None:
        return for_model(collection, wanted)
    return await database.write("make the table for embeddings", work)


async def create_version(
    connection: Connection,
    collection: CollectionInfo,
    wanted: EmbeddingVersion,
    *,
    building: bool = False,
    token_counter: str | None = None,
) -> EmbeddingVersion:
    """Make the table for a model's vectors; the caller's lock must keep others from making a version meanwhile."""
    # No number is used twice, or a program with an older list would take one model's vectors for another's. While this
    # version serves, `token_counter` counts tokens; None keeps the collection's counter.
    names, now = collection.names, utc_now()
    number = await fetch_value(
        connection,
        sql.SQL(
            "UPDATE {} AS c SET updated_at = %s, last_embedding_version = 1 + greatest(c.last_embedding_version, "
            "c.embedding_version) WHERE c.name = %s RETURNING c.last_embedding_version"
        ).format(names.registry),
        [now, names.collection],
    )
    if number is None:
        raise gone(collection)
    version = replace(wanted, version=number)
    vector_type = vector_type_of(replace(collection, embedding=version))
    # Vectors live in a table per version: their type and their index demand one dimension, and two versions stand side
    # by side while a collection moves to another model. No row = not embedded yet.
    columns = sql.SQL(
        'document_id uuid NOT NULL, chunk_id text COLLATE "C" NOT NULL, embedding {} NOT NULL, '
        "PRIMARY KEY (document_id, chunk_id)"
    ).format(vector_type)
    options = sql.SQL(" WITH (toast_tuple_target = {})").format(sql.Literal(MAX_ROW_BYTES))
    await execute_all(connection, names.creation(f"embedding_{version.version}", columns, options))
    values = asdict(version) | {"name": names.collection, "created_at": now, "building": building}
    values |= {"token_counter": token_counter, "calibration": None}
    await connection.execute(insertion(names.embedding_version, values), values)
    return version


async def read_versions(connection: Connection, collection: CollectionInfo) -> Versions | None:
    """Return the sets of vectors of a collection; None if the collection was dropped."""
    names = collection.names
    row = await fetch_row(
        connection,
        sql.SQL(
            "SELECT c.embedding_version, ARRAY(SELECT to_jsonb(e) FROM {} AS e WHERE e.name = c.name) "
            "FROM {} AS c WHERE c.name = %s AND c.collection_id = %s"
        ).format(names.embedding_version, names.registry),
        [names.collection, collection.collection_id],
    )
    return None if row is None else Versions.stored(*row)


async def present_versions(connection: Connection, collection: CollectionInfo) -> Versions:
    """Return the sets of vectors of a collection; raise `CollectionDroppedError` if the collection was dropped."""
    found = await read_versions(connection, collection)
    if found is None:
        raise gone(collection)
    return found


async def stored_versions(connection: Connection, collection: CollectionInfo) -> list[int]:
    """Return the numbers of all embedding versions, including one under construction."""
    # A writer reads them after its first lock (`semlex.store.write.documents.begin_write`): no set is added or dropped
    # until the transaction ends.
    answer = await ask_versions(connection, collection)
    return [version for (version,) in await answer.fetchall()]


async def ask_versions(connection: Connection, collection: CollectionInfo) -> AsyncCursor[Any]:
    """Send the query of `stored_versions`; each row of the answer has the number of one version."""
    names = collection.names
    return await connection.execute(
        sql.SQL("SELECT version FROM {} WHERE name = %s ORDER BY version").format(names.embedding_version),
        [names.collection],
    )


async def check_stands(connection: Connection, collection: CollectionInfo) -> None:
    """Raise an error if the vectors that `collection` uses were dropped since it was opened."""
    used = collection.embedding
    if used is not None and used.version not in await stored_versions(connection, collection):
        raise dropped(collection)


def dropped(collection: CollectionInfo) -> ModelMismatchError:
    """Return the error for a process that uses a model whose vectors were dropped."""
    name, embedding = collection.names.collection, collection.embedding
    whose = "" if embedding is None else f" of {embedding.model} (version {embedding.version})"
    return ModelMismatchError(
        f"the vectors{whose} of collection {name!r} were dropped since it was opened: open it again, with its present "
        f"model (semlex models list --collection {name} shows it)"
    )


# A run renews its right this often; after as long without renewal it may have ended, and another takes its place.
RUN_SECONDS = 15.0
# A version that was used this recently is not dropped.
IDLE_SECONDS = 60.0
# Key of the job that makes vectors which writers with another model left out.
EMBED_KEY = "vectors that a program with another model left out"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """An embedding version as stored, with the lease of the run that fills it with vectors, and with its last use."""

    version: EmbeddingVersion
    created_at: datetime
    building: bool
    run_number: int  # of the last run that filled it
    # How long the current run has reserved it; 0 or less: no run is active.
    seconds_left: float
    served_until: datetime | None  # UTC; None if it serves now or never did
    # Since a process with its model last used it; None: never, or not since it served.
    idle_seconds: float | None

    @property
    def is_running(self) -> bool:
        """Whether a run is filling this version; a lease above `RUN_SECONDS` does not count: the clock was set back."""
        return 0 < self.seconds_left <= RUN_SECONDS


async def version_rows(connection: Connection, collection: CollectionInfo) -> list[VersionRow]:
    """Return all embedding versions of a collection, ordered by number."""
    names = collection.names
    rows = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT version, identity_key, model, revision, dimensions, storage, calibration, probe, created_at, "
            "building, run_number, run_until, served_until, last_used_at FROM {} WHERE name = %s ORDER BY version"
        ).format(names.embedding_version),
        [names.collection],
    )
    now = await server_time(connection)
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
        for row in rows
    ]


async def bound_times(connection: Connection, collection: CollectionInfo) -> None:
    """Shorten leases and set back times of last use that are too far ahead because the server's clock stepped back."""
    # A live run renews its right long before the remaining time is over.
    now = await server_time(connection)
    for column, seconds in (("run_until", RUN_SECONDS), ("last_used_at", 0.0)):
        await connection.execute(
            sql.SQL("UPDATE {table} SET {column} = %(most)s WHERE name = %(name)s AND {column} > %(most)s").format(
                table=collection.names.embedding_version, column=sql.Identifier(column)
            ),
            {"name": collection.names.collection, "most": now + timedelta(seconds=seconds)},
        )


# --- runs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VersionRun:
    """The only run that may fill a version with vectors; it cannot write once a later run has superseded it."""

    version: int
    number: int  # larger than that of every earlier run


async def begin_run(connection: Connection, collection: CollectionInfo, version: int) -> VersionRun | float:
    """Take the right to fill a version, or return for how many seconds another run still has this right."""
    await connection.execute(
        sql.SQL("SELECT FROM {} WHERE name = %s AND version = %s FOR UPDATE").format(
            collection.names.embedding_version
        ),
        [collection.names.collection, version],
    )
    await bound_times(connection, collection)
    row = next((one for one in await version_rows(connection, collection) if one.version.version == version), None)
    if row is None:
        raise lost(collection, version)
    if row.seconds_left > 0:
        return row.seconds_left
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
    """Let the lease of a run end `seconds` from now, and lock the row of its version until the transaction ends."""
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
    """Return the error for a run whose version another process has taken over or dropped."""
    name = collection.names.collection
    return StoreError(
        f"another process has taken over version {version} of the vectors of collection {name!r}, or has dropped it; "
        f"this process stopped (semlex models list --collection {name} lists the versions)"
    )


# --- the switch, and the end ------------------------------------------------------------------------------------------


async def switch_version(connection: Connection, collection: CollectionInfo, version: int, *, lacking: int) -> None:
    """Make searches use a version from now on; the caller's transaction must exclude writers."""
    names, now, clock = collection.names, utc_now(), await server_time(connection)
    values = {"name": names.collection, "version": version, "now": now, "clock": clock, "lacking": lacking}
    tables = {"versions": names.embedding_version, "registry": names.registry}
    # The token counter changes with the model that brings it, in both directions.
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
    """Store that a process has just used a version, so that `drop_version` spares it."""
    await set_local(connection, lock_timeout="500ms")
    await connection.execute(
        sql.SQL("UPDATE {} SET last_used_at = %s WHERE name = %s AND version = %s").format(names.embedding_version),
        [await server_time(connection), names.collection, version],
    )


async def note_lacking(connection: Connection, collection: CollectionInfo) -> None:
    """Note that this write made no vectors for the version that searches use, and queue a job that makes them."""
    # Call this at the end of a write, because it locks a row that other such writers wait for.
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
    """Return how many writes have made no vectors for the version in use since it was last complete."""
    names, used = collection.names, collection.embedding
    if used is None:
        return 0
    statement = sql.SQL("SELECT lacking_writes FROM {} WHERE name = %s AND version = %s").format(
        names.embedding_version
    )
    return await fetch_value(connection, statement, [names.collection, used.version]) or 0


async def note_complete(connection: Connection, collection: CollectionInfo) -> None:
    """Reset the count of writes without vectors, unless a chunk lacks a vector of the version in use."""
    names, used = collection.names, collection.embedding
    if used is None:
        return
    # A writer that leaves vectors out counts itself at its end. The second statement sees the chunks of every writer
    # that was counted before the row was locked; the others wait, and are counted again.
    versions, key = names.embedding_version, [names.collection, used.version]
    await connection.execute(
        sql.SQL("SELECT FROM {} WHERE name = %s AND version = %s FOR NO KEY UPDATE").format(versions), key
    )
    await connection.execute(
        sql.SQL(
            "UPDATE {} SET lacking_writes = 0 WHERE name = %s AND version = %s AND NOT EXISTS (SELECT FROM {} AS c "
            "WHERE NOT EXISTS (SELECT FROM {} AS e WHERE e.document_id = c.document_id AND e.chunk_id = c.chunk_id))"
        ).format(versions, names.chunk, names.embedding(used.version)),
        key,
    )


async def store_calibration(
    connection: Connection, collection: CollectionInfo, version: int, calibration: dict[str, Any] | None
) -> None:
    """Replace the confidence calibration that is stored with an embedding version; None removes it."""
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
            "again and calibrate again"
        )


async def drop_version(connection: Connection, collection: CollectionInfo, version: int, *, force: bool) -> None:
    """Drop a set of vectors; the caller's transaction must exclude writers."""
    names = collection.names
    rows = {row.version.version: row for row in await version_rows(connection, collection)}
    row = rows.get(version)
    if row is None:
        known = ", ".join(map(str, rows)) or "none"
        raise ConfigurationError(
            f"collection {names.collection!r} has no version {version} of its vectors; it has {known}"
        )
    serving = sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry)
    if await fetch_value(connection, serving, [names.collection]) == version:
        raise ConfigurationError(
            f"version {version} serves the searches of collection {names.collection!r}, so it cannot be dropped; "
            f"change to another first: semlex models set --collection {names.collection}"
        )
    if not force and row.seconds_left > 0:
        raise StoreError(
            f"a process is filling version {version}, or was killed just now: end that process and try again in "
            f"{row.seconds_left:.0f} s, or drop the version anyway (--force)"
        )
    if not force and row.idle_seconds is not None and row.idle_seconds < IDLE_SECONDS:
        raise StoreError(
            f"a process used version {version} {max(row.idle_seconds, 0):.0f} s ago: open the collection again "
            f"in programs that use {row.version.model}, and retry after {IDLE_SECONDS:.0f} s without a use, or "
            "drop the version anyway (--force)"
        )
    await connection.execute(
        sql.SQL("DELETE FROM {} WHERE name = %s AND version = %s").format(names.embedding_version),
        [names.collection, version],
    )
    await lock_briefly(connection, sql.SQL("DROP TABLE {}").format(names.embedding(version)))
    # A writer whose snapshot is older fails then, instead of going by what it sees.
    await connection.execute(
        sql.SQL("UPDATE {} SET updated_at = %s WHERE name = %s").format(names.registry), [utc_now(), names.collection]
    )


def vector_type_of(collection: CollectionInfo) -> sql.Composed:
    """Return SQL of the type of the column with the vectors, such as ``halfvec(768)``."""
    embedding = collection.vectors
    return sql.SQL("{}.{}({})").format(
        collection.server.extension, sql.Identifier(embedding.storage), sql.Literal(embedding.dimensions)
    )


async def write_embeddings(
    connection: Connection,
    collection: CollectionInfo,
    keys: Sequence[Key],
    content_hashes: Sequence[bytes],
    embeddings: NDArray[np.float32],
) -> int:
    """Add vectors to chunks that have none; `keys` are (document_id, chunk_id), `embeddings` has the shape (n, d)."""
    if collection.embedding is None or not keys:
        return 0
    await hold_collection(connection, collection)
    await check_stands(connection, collection)
    name = f"semlex_{secrets.token_hex(8)}"
    await connection.execute(
        sql.SQL(
            'CREATE TEMPORARY TABLE {} (document_id uuid, chunk_id text COLLATE "C", content_hash bytea, embedding {}) '
            "WITH (toast_tuple_target = {}) ON COMMIT DROP"
        ).format(sql.Identifier(name), vector_type_of(collection), sql.Literal(MAX_ROW_BYTES))
    )
    staging = sql.Identifier("pg_temp", name)
    ids = [chunk_id for _, chunk_id in keys]
    columns: list[tuple[str, str, object]] = [
        ("document_id", "uuid", [document_id for document_id, _ in keys]),
        ("chunk_id", "text", ids),
        ("content_hash", "bytea", list(content_hashes)),
        ("embedding", collection.embedding.storage, embeddings),
    ]
    await copy_rows(
        connection, sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(staging), [_core.CopyEncoder(columns, ids)]
    )
    cursor = await connection.execute(
        sql.SQL(
            # The lock makes a writer who is changing a text either wait, or be seen here.
            "INSERT INTO {} SELECT * FROM (SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN {} AS c USING (document_id, chunk_id) WHERE c.content_hash = s.content_hash "
            "ORDER BY s.document_id, s.chunk_id FOR SHARE OF c) AS unchanged "
            "ON CONFLICT (document_id, chunk_id) DO NOTHING"
        ).format(collection.names.embedding(collection.embedding.version), staging, collection.names.chunk)
    )
    return cursor.rowcount
