"""Sets of vectors of a collection, one for each model: made, and looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.errors import ModelMismatchError
from semlex.store.postgres.settings import set_local
from semlex.store.schema.collection import EmbeddingVersion, Versions, for_model
from semlex.store.schema.distance import MAX_DIMENSIONS
from semlex.store.schema.locks import SETUP_LOCK
from semlex.store.schema.presence import gone
from semlex.store.schema.registry import find
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from psycopg import AsyncCursor

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo


def check_dimensions(wanted: EmbeddingVersion) -> None:
    """Refuses vectors that no column can hold."""
    if not 1 <= wanted.dimensions <= MAX_DIMENSIONS:
        raise ModelMismatchError(f"vectors may have 1 to {MAX_DIMENSIONS} dimensions; these have {wanted.dimensions}")


async def ensure_embedding_version(
    database: Database, collection: CollectionInfo, wanted: EmbeddingVersion
) -> CollectionInfo:
    """Makes the table for a first model's vectors; with one already there, checks that it is the same model's."""

    async def work(connection: Connection) -> CollectionInfo:
        names = collection.names
        await set_local(connection, lock_timeout="60s")
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [SETUP_LOCK])
        found = await find(connection, names)
        if found is None:
            raise gone(collection)
        now_open = replace(found[0], keyword=collection.keyword)
        if now_open.collection_id != collection.collection_id:
            raise gone(collection)
        if now_open.versions.standing:
            return for_model(now_open, wanted)
        building = now_open.versions.building
        if building is not None:
            raise ModelMismatchError(
                f"the first vectors of collection {names.collection!r} are being made, with {building.model}: wait "
                f"until semlex reembed --collection {names.collection} is done, or add without a model "
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
    """Makes the table for a model's vectors.

    No number is given twice: a program that has not looked since would take one model's vectors for another's.

    Args:
        connection: In a transaction that excludes writers, or others who do the same.
        token_counter: What counts tokens while it answers; None: what the collection has.
    """
    names, now = collection.names, utc_now()
    cursor = await connection.execute(
        sql.SQL(
            "UPDATE {} AS c SET updated_at = %s, last_embedding_version = 1 + greatest(c.last_embedding_version, "
            "c.embedding_version) WHERE c.name = %s RETURNING c.last_embedding_version"
        ).format(names.registry),
        [now, names.collection],
    )
    row = await cursor.fetchone()
    if row is None:
        raise gone(collection)
    version = replace(wanted, version=row[0])
    vector_type = sql.SQL("{}.{}({})").format(
        collection.server.extension, sql.Identifier(version.storage), sql.Literal(version.dimensions)
    )
    # Vectors live in a table per version: their type and their index demand one dimension, and two versions stand side
    # by side while a collection moves to another model. No row = not embedded yet.
    await connection.execute(
        sql.SQL(
            'CREATE TABLE {} (document_id uuid NOT NULL, chunk_id text COLLATE "C" NOT NULL, '
            "embedding {} NOT NULL, PRIMARY KEY (document_id, chunk_id))"
        ).format(names.embedding(version.version), vector_type)
    )
    values = {
        "name": names.collection,
        "version": version.version,
        "identity_key": version.identity_key,
        "model": version.model,
        "revision": version.revision,
        "dimensions": version.dimensions,
        "storage": version.storage,
        "probe": version.probe,
        "created_at": now,
        "building": building,
        "token_counter": token_counter,
    }
    await connection.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            names.embedding_version,
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(map(sql.Placeholder, values)),
        ),
        values,
    )
    return version


async def read_versions(connection: Connection, collection: CollectionInfo) -> Versions | None:
    """The sets of vectors of a collection; None where it was dropped."""
    names = collection.names
    cursor = await connection.execute(
        sql.SQL(
            "SELECT c.embedding_version, ARRAY(SELECT to_jsonb(e) FROM {} AS e WHERE e.name = c.name) "
            "FROM {} AS c WHERE c.name = %s AND c.collection_id = %s"
        ).format(names.embedding_version, names.registry),
        [names.collection, collection.collection_id],
    )
    row = await cursor.fetchone()
    return None if row is None else Versions.stored(*row)


async def stored_versions(connection: Connection, collection: CollectionInfo) -> list[int]:
    """Numbers of all sets of vectors, the one in the making included.

    Whoever writes asks for them behind the first lock of a writer (`semlex.store.write.keyword_index.begin_write`):
    none comes or goes until the transaction ends.
    """
    return await versions_told(await ask_versions(connection, collection))


async def ask_versions(connection: Connection, collection: CollectionInfo) -> AsyncCursor[Any]:
    """Asks for `stored_versions`; `versions_told` reads the answer."""
    names = collection.names
    return await connection.execute(
        sql.SQL("SELECT version FROM {} WHERE name = %s ORDER BY version").format(names.embedding_version),
        [names.collection],
    )


async def versions_told(answer: AsyncCursor[Any]) -> list[int]:
    """The numbers that were asked for."""
    return [version for (version,) in await answer.fetchall()]


async def check_stands(connection: Connection, collection: CollectionInfo) -> None:
    """Refuses to go on with vectors that are not there any more."""
    used = collection.embedding
    if used is not None and used.version not in await stored_versions(connection, collection):
        raise dropped(collection)


def dropped(collection: CollectionInfo) -> ModelMismatchError:
    """The error of a process whose model's vectors are not there any more."""
    name, embedding = collection.names.collection, collection.embedding
    whose = "" if embedding is None else f" of {embedding.model} (version {embedding.version})"
    return ModelMismatchError(
        f"the vectors{whose} of collection {name!r} were dropped since it was opened: open it again, with its present "
        f"model (semlex embeddings --collection {name} shows it)"
    )
