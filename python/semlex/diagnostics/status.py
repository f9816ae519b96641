"""Figures and health of a collection and its server; the collections of a server."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semlex.errors import ConnectionFailedError, SemlexError
from semlex.store.embedding_versions import read_versions, version_rows
from semlex.store.followed.definitions import readable_status
from semlex.store.indexes.catalog import read_running_builds, read_vector_indexes
from semlex.store.postgres.addresses import describe_connection
from semlex.store.postgres.server_info import read_server_info
from semlex.store.query.statistics import collection_counts, collection_figures, count_vectors, read_description
from semlex.store.schema.collection import CollectionInfo, ListedCollection
from semlex.store.schema.names import Names
from semlex.store.schema.registry import list_collections
from semlex.store.write.documents import LogEntry, last_run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from semlex.embedding.query_cache import CacheFigures, QueryEmbeddingCache
    from semlex.options.collection import ChunkSettings
    from semlex.store.indexes.catalog import RunningBuild, StoredIndex, VectorIndexes
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.types.followed import FollowedStatus
    from semlex.types.query_log import QueryLogFigures
    from semlex.types.results import ReadServer


@dataclass(frozen=True, slots=True)
class KeywordCache:
    """Figures of the keyword index's cache: posting lists read from memory and from the server, and bytes in memory."""

    hits: int
    misses: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BuildingVersion:
    """An unfinished set of vectors, and the model that makes it."""

    version: int
    model: str
    vectors: int
    is_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStatus:
    """Where a collection is stored, and its figures. Figures that need a full count are None if counts are estimated.

    Attributes:
        server: Host, port, database and user.
        description: Its stored description, else titles of its documents; may be empty.
        data_folder: Folder of the embedded Postgres, or None.
        postgres: Major version of the server.
        pgvector: Version of pgvector; empty if it is missing.
        partitions: Partitions of the tables of documents, chunks and vectors; 0: plain tables.
        language: Language of documents without one.
        chunk_settings: How files are split; None before the first file.
        embedding_model: Model of the vectors used here, or None.
        vector_storage: ``vector`` (float32) or ``halfvec`` (float16), or None.
        embedding_version: Number of the set of vectors used here, or None.
        serving_version: Number of the set that newly opened collections use, or None.
        building_version: The set that is being made, or None.
        embedded: Chunks with a vector.
        orphaned_vectors: Vectors without a chunk.
        vector_indexes: Vector indexes, newest last; searches use the last valid one.
        index_builds: Indexes that are being built at this moment, as far as this role sees builds of others.
        documents: Files that were read, and added documents.
        estimated: Whether a large table was estimated instead of counted.
        index_generation: Generation of the BM25 index in use; with another engine, None, like the following figures.
        index_building: Generation that is being made, or None.
        index_tombstones: Tombstones not removed by a merge yet.
        index_bytes: Size of the index's tables.
        chunks_not_indexed: Chunks that were written without semlex.
        index_problem: The damage with its remedy, or None.
        query_log: Figures of this process's query log; None if queries are not logged.
        last_run: The newest run over files, or None.
        calibration: The stored curve, as `ConfidenceCurve.to_dict` returns it, or None.
        followed: The followed tables, by name; None if this role may not read their list.
        read_from: The server that was read, with its lag, if the client has ``read_from="replica"``; otherwise None.
    """

    collection: str
    schema: str
    description: str
    server: str
    data_folder: str | None
    postgres: int
    pgvector: str
    partitions: int
    keyword: str
    language: str
    token_counter: str
    chunk_settings: ChunkSettings | None
    embedding_model: str | None
    dimensions: int | None
    vector_storage: str | None
    distance: str
    embedding_version: int | None
    serving_version: int | None
    building_version: BuildingVersion | None
    embedded: int
    orphaned_vectors: int | None
    vector_indexes: tuple[StoredIndex, ...]
    index_builds: tuple[RunningBuild, ...]
    sources: int
    documents: int
    chunks: int
    tokens: int | None
    estimated: bool
    index_generation: int | None = None
    index_building: int | None = None
    index_segments: int | None = None
    index_tombstones: int | None = None
    index_postings: int | None = None
    index_bytes: int | None = None
    chunks_not_indexed: int | None = None
    index_problem: str | None = None
    query_cache: CacheFigures
    keyword_cache: KeywordCache | None = None
    query_log: QueryLogFigures | None = None
    last_run: LogEntry | None
    calibration: dict[str, Any] | None = None
    followed: list[FollowedStatus] | None = None
    read_from: ReadServer | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a dict, without the figures of a BM25 index if none exists."""
        found = asdict(self)
        found["query_cache"]["hit_rate"] = self.query_cache.hit_rate
        found["chunk_settings"] = None if self.chunk_settings is None else self.chunk_settings._asdict()
        of_index = {"chunks_not_indexed", "keyword_cache", *(name for name in found if name.startswith("index_"))} - {
            "index_builds"
        }
        return {name: value for name, value in found.items() if self.index_generation or name not in of_index}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHealth:
    """Whether a server answers; figures are None if it does not.

    Attributes:
        ok: Whether it answers and has pgvector.
        milliseconds: Time of the answer.
        postgres: Major version.
        pgvector: Version of pgvector; empty if it is missing.
        read_only: Whether the server is a standby, or read-only by ``default_transaction_read_only``.
        error: Why the server does not answer, or None.
    """

    ok: bool
    milliseconds: float
    postgres: int | None = None
    pgvector: str | None = None
    read_only: bool | None = None
    embedding_model: str | None = None
    reranker_model: str | None = None
    error: str | None = None


async def collection_status(
    database: Database,
    collection: CollectionInfo,
    query_cache: QueryEmbeddingCache,
    *,
    data_folder: Path | None = None,
    query_log: QueryLogFigures | None = None,
    exact: bool = False,
) -> CollectionStatus:
    """Read the figures of a collection."""

    async def count(snapshot: Snapshot) -> tuple[ReadServer | None, str, dict[str, Any]]:
        figures = await collection_figures(snapshot.connection, collection, exact=exact)
        return snapshot.read_from, describe_connection(snapshot.connection), figures

    async def look(connection: Connection) -> tuple[VectorIndexes, tuple[RunningBuild, ...]]:
        found = await read_vector_indexes(connection, collection, with_size=True)
        return found, await read_running_builds(connection, collection)

    async def look_for_building(connection: Connection) -> tuple[int, BuildingVersion | None]:
        found = await read_versions(connection, collection) or collection.versions
        rows = [row for row in await version_rows(connection, collection) if row.building]
        if not rows:
            return found.serving, None
        version, running = rows[0].version, rows[0].seconds_left > 0
        vectors = await count_vectors(connection, collection, version.version, exact=exact)
        return found.serving, BuildingVersion(version.version, version.model, vectors, running)

    read_from, server, figures = await database.read_snapshot("count", count)
    serving, building = await database.read("look at the embedding versions", look_for_building)
    followed = await database.read("list the followed tables", lambda c: readable_status(c, collection))
    indexes, builds = await database.read("look at the indexes", look)
    run = await database.read("read the log", lambda c: last_run(c, collection))
    description = await database.read("describe", lambda c: read_description(c, collection.names))
    embedding, index = collection.embedding, collection.keyword.index
    return CollectionStatus(
        collection=collection.names.collection,
        schema=collection.names.schema,
        description=description,
        server=server,
        data_folder=None if data_folder is None else str(data_folder),
        postgres=collection.server.postgres,
        pgvector=".".join(map(str, collection.server.pgvector or ())),
        partitions=collection.settings.partitions,
        keyword=collection.settings.keyword_engine,
        language=collection.settings.language,
        token_counter=collection.settings.token_counter,
        chunk_settings=collection.settings.chunk_settings,
        embedding_model=embedding.model if embedding else None,
        dimensions=embedding.dimensions if embedding else None,
        vector_storage=embedding.storage if embedding else None,
        distance=collection.settings.distance,
        embedding_version=embedding.version if embedding else None,
        serving_version=serving or None,
        building_version=building,
        vector_indexes=indexes.stored,
        index_builds=builds,
        **figures,
        query_cache=query_cache.figures,
        query_log=query_log,
        keyword_cache=None if index is None else KeywordCache(**index.cache_figures()),
        last_run=None if run is None else LogEntry(**run),
        calibration=embedding.calibration if embedding else None,
        followed=followed,
        read_from=read_from,
    )


async def server_health(reach: Callable[[], Awaitable[Database]], *, deadline: float | None = None) -> ServerHealth:
    """Check whether the database answers in time; no error is raised if it does not."""
    started = time.perf_counter()
    try:
        database = await reach()
    except ConnectionFailedError as error:
        return ServerHealth(ok=False, milliseconds=(time.perf_counter() - started) * 1000, error=str(error))
    try:
        server = await database.reader.read(
            "look at the server", read_server_info, deadline=deadline or database.timeout
        )
    except SemlexError as error:
        return ServerHealth(ok=False, milliseconds=(time.perf_counter() - started) * 1000, error=str(error))
    return ServerHealth(
        ok=server.pgvector is not None,
        milliseconds=(time.perf_counter() - started) * 1000,
        postgres=server.postgres,
        pgvector=".".join(map(str, server.pgvector or ())),
        read_only=server.read_only,
    )


@dataclass(frozen=True, slots=True)
class CountedCollection(ListedCollection):
    """A collection of a server with its counts, which are None if this role may not read the tables or they are gone.

    Attributes:
        documents: Files that were read, and added documents.
        estimated: Whether a large table was estimated instead of counted.
    """

    documents: int | None
    chunks: int | None
    estimated: bool


async def count_collections(database: Database, schema: str) -> list[CountedCollection]:
    """Return the collections of a schema with their counts, sorted by name."""

    async def counted(listed: ListedCollection) -> CountedCollection:
        counts = await database.read("count", lambda c: collection_counts(c, schema, listed.name))
        values = asdict(listed)
        if not listed.description and counts["documents"] is not None and counts["chunks"]:
            names = Names(schema, listed.name)
            values["description"] = await database.read("describe", lambda c: read_description(c, names))
        return CountedCollection(**values, **counts)

    return [await counted(listed) for listed in await list_collections(database, schema)]
