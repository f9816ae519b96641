"""A client: one server, one pool, one set of models, for any number of collections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from semlex.embedding.registry import KEYWORDS_ONLY
from semlex.errors import ConfigurationError
from semlex.options.collection import (
    DEFAULT_BM25,
    DEFAULT_CACHE_BYTES,
    Bm25Options,
    CollectionOptions,
    StorageName,
    WantedOptions,
    storage_named,
)
from semlex.options.declare import check_options, operation
from semlex.options.search import SearchOptions
from semlex.progress import ProgressOption, shown
from semlex.retriever.collection import Collection
from semlex.retriever.handle import Handle
from semlex.retriever.jobs import Job, job_of
from semlex.retriever.model_selection import ModelOptions, same_model, stored_problem
from semlex.retriever.options import ClientOptions
from semlex.retriever.resources import ResourceOwner, Resources
from semlex.search.request import NO_DEFAULTS
from semlex.store.jobs import JobQueue, job_key
from semlex.store.postgres.roles import checked_role
from semlex.store.schema.locks import no_such_collection
from semlex.store.schema.names import Names
from semlex.store.schema.registry import Step, list_collections, migrate, pending_steps
from semlex.store.write.copy import DEFAULT_BULK, BulkIngestConfig
from semlex.types.followed import DEFAULT_COMPARE_SECONDS
from semlex.types.jobs import DEFAULT_KEEP_DAYS, DEFAULT_LEASE_SECONDS, STATES, JobState
from semlex.validation import (
    callable_errors,
    check_parameters,
    kind_errors,
    needed_path_errors,
    text_parameter,
    whole_number_errors,
)

if TYPE_CHECKING:
    from os import PathLike

    from psycopg_pool import AsyncConnectionPool

    from semlex.diagnostics.doctor import ModelExamination
    from semlex.diagnostics.status import CountedCollection, ServerHealth
    from semlex.embedding.base import Embedder
    from semlex.ingest.indexer import Indexer
    from semlex.maintenance.dump import TransferReport
    from semlex.reranking.base import Reranker
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import ListedCollection
    from semlex.types.checkups import Diagnosis

ANY_OPTIONS = CollectionOptions()
MAX_LISTED_JOBS = 10_000


class Client(ResourceOwner):
    """A connection to a server with its collections; the first call opens it.

    Close it with `close`, or use it as an async context manager, which opens it at once.

    Its collections share one pool, one set of models with their threads, one cache of query vectors, and one budget of
    memory for keyword indexes. `semlex.SyncClient` is the same for programs without an event loop.

    Args:
        db_url: libpq connection string; None (and no `pool`) starts the embedded Postgres.
        embedding_model: As for `PostgreSQLRetriever`.
        reranker_model: As for `PostgreSQLRetriever`.
        use_reranking: As for `PostgreSQLRetriever`.
        pool: An open pool; you close it.
        **options: See `ClientOptions`. The role applies to all calls except `work`, `diagnose` and `health_check`.
    """

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        pool: AsyncConnectionPool[Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(ClientOptions, options, "Client")
        self._defaults, self._role = options.get("defaults"), checked_role(options.get("role"))
        self._search_defaults = options.get("search_defaults", NO_DEFAULTS)
        self._resources = Resources.of(
            db_url,
            ModelOptions.of(embedding_model, reranker_model, use_reranking, options),
            options,
            keyword_cache_bytes=DEFAULT_CACHE_BYTES,
            pool=pool,
        )
        self._collections: dict[tuple[object, ...], Collection] = {}

    async def initialize(self) -> None:
        """Connect to the server; start it if it is the embedded one.

        Raises:
            ConnectionFailedError: The server cannot be reached.
        """
        await self._resources.initialize()

    async def stop_builds(self) -> None:
        """Stop index builds that loads have started; the next load, a worker or `indexes.create` starts them again."""
        await self._resources.index_builds.stop()

    def collection(
        self,
        name: str,
        options: CollectionOptions = ANY_OPTIONS,
        *,
        create: bool = True,
        bm25: Bm25Options = DEFAULT_BM25,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        schema: str | None = None,
        role: str | None = None,
        calibration: str | PathLike[str] | None = None,
    ) -> Collection:
        """Return a collection; the first call of one of its methods opens or makes it.

        Args:
            name: Lower-case letters, digits and underscores, at most 48.
            options: For a new collection; refused if an existing one has another value.
            create: Whether to make the collection if it does not exist.
            bm25: Constants of the keyword engine ``bm25``. Its memory is limited by the client's `keyword_cache_bytes`.
            bulk: How documents are written: rows per transaction, size of a COPY block.
            schema: Schema of its tables; None: the client's.
            role: Database role for every transaction of the collection; the server refuses what the role may not do.
                None: the client's role. The login must be a member of it (docs/how-to/tenants.md).
            calibration: As for `PostgreSQLRetriever`.

        Raises:
            ValidationError: The name or the schema cannot be used.
            ConfigurationError: An option or the role cannot be used.
        """
        check_parameters(kind_errors("options", options, CollectionOptions))
        wanted = WantedOptions.of(options, self._defaults)
        handle = Handle(
            self._resources,
            name,
            wanted,
            create=create,
            bm25=bm25,
            bulk=bulk,
            schema=schema,
            role=role or self._role,
            calibration=calibration,
            defaults=self._search_defaults,
        )
        made = Collection(handle)
        key = (name, options, create, bm25, bulk, made.names.schema, role, calibration)
        return self._collections.setdefault(key, made)

    async def collections(self) -> list[ListedCollection]:
        """Return every collection of the schema, sorted by name.

        Raises:
            SchemaVersionError: A newer or an unreleased semlex made one of them.
        """
        return await list_collections(await self._database(), self._resources.server.schema)

    @operation("list collections", "read")
    async def count_collections(self) -> list[CountedCollection]:
        """Return every collection of the schema with its counts, sorted by name; large tables are estimated."""
        from semlex.diagnostics.status import count_collections

        return await count_collections(await self._database(), self._resources.server.schema)

    @operation("migrate", "admin")
    async def migrate(self, *, dry_run: bool = False) -> list[Step]:
        """Migrate the tables of all collections to this version of semlex; opening a collection also migrates it.

        Args:
            dry_run: Whether to list the steps without doing them.

        Returns:
            The steps that were done (or are to be done), each with its SQL for a role that may change tables.

        Raises:
            PrivilegeError: The role may not change the tables.
            SchemaVersionError: A newer or an unreleased semlex made one of them.
        """
        work = pending_steps if dry_run else migrate
        return await work(await self._database(), self._resources.server.schema)

    @operation("drop", "admin")
    async def drop(self, name: str) -> None:
        """Drop a collection with everything in it, even one that another version of semlex made.

        Raises:
            CollectionNotFoundError: No collection has that name.
        """
        from semlex.store.schema.dropping import drop_collection

        database, names = await self._database(), Names(self._resources.server.schema, name)
        await self._resources.index_builds.stop(names)
        # The next call for this name opens the collection again.
        self._collections = {key: one for key, one in self._collections.items() if one.names != names}
        if not await drop_collection(database, names):
            known = [listed.name for listed in await list_collections(database, names.schema)]
            raise no_such_collection(names.collection, known)

    @operation("restore", "admin")
    async def restore(
        self,
        folder: str | PathLike[str],
        collection: str | None = None,
        *,
        keyword: str | None = None,
        vector_storage: StorageName | None = None,
        partitions: int | None = None,
        build_indexes: bool = True,
        progress: ProgressOption = None,
    ) -> TransferReport:
        """Make a collection from a dump, with its vectors; its keyword index and vector indexes are rebuilt.

        The files are checked against their hashes first; then all rows are written in one transaction and counted.
        Needs the extra ``arrow``.

        Args:
            folder: A folder that `Tables.dump` has written.
            collection: Name of the collection, if not that of the dump; it must not exist, or must be empty.
            keyword: Another keyword engine, if the server lacks the dumped one.
            vector_storage: ``vector`` or ``halfvec``; None: as dumped.
            partitions: Partitions of the tables, 2 to 64, or 0 for plain tables; None: as dumped.
            build_indexes: Whether to build a vector index if there are many rows; if not, call `Indexes.create` later.
            progress: Called as the work proceeds; ``bar`` shows a progress bar.

        Raises:
            DumpError: The dump is incomplete, changed, or of another version; nothing was restored.
            ConfigurationError: The collection is not empty.
            MissingExtraError: pyarrow is not installed.
        """
        from semlex.maintenance.dump import Manifest
        from semlex.maintenance.restore import Restore

        check_parameters(
            needed_path_errors("folder", folder),
            text_parameter("collection", collection),
            text_parameter("keyword", keyword),
            kind_errors("build_indexes", build_indexes, bool),
        )
        CollectionOptions(partitions=partitions)  # checks them
        bars = shown(progress)
        storage = None if vector_storage is None else storage_named(vector_storage)
        database, path = await self._database(), Path(folder)
        manifest = await asyncio.to_thread(Manifest.read, path)
        names = Names(self._resources.server.schema, collection or manifest.collection)
        with bars as tell:
            work = Restore(database, names, path, manifest, storage=storage, progress=tell)
            return await work.run(keyword=keyword, partitions=partitions, build_indexes=build_indexes)

    @operation("list jobs", "read")
    async def jobs(
        self, *, state: JobState | None = None, collection: str | None = None, limit: int = 100
    ) -> list[Job]:
        """Return the newest jobs of all collections, newest first, without the documents that ``add`` jobs store.

        Args:
            state: Only jobs in this state: ``queued``, ``running``, ``done``, ``failed`` or ``cancelled``.
            collection: Only jobs of the collection of this name.
            limit: Maximum number of jobs, 1 to 10,000.
        """
        check_parameters(
            kind_errors("state", state, str, NoneType),
            text_parameter("collection", collection),
            whole_number_errors("limit", limit, 1, MAX_LISTED_JOBS),
        )
        if state is not None and state not in STATES:
            raise ConfigurationError(f"state must be one of {', '.join(STATES)}; got {state[:80]!a}")
        queue = await self._queue()
        found = await queue.list(state=state, collection=collection, limit=limit)
        return [job_of(info, queue) for info in found]

    async def count_jobs(self, *, deadline: float | None = None) -> dict[JobState, int]:
        """Return the number of jobs in each state.

        Args:
            deadline: Seconds to wait for the database; None: no limit.

        Raises:
            SearchTimeoutError: The deadline passed.
        """
        check_options(SearchOptions, {"deadline": deadline}, "count_jobs")
        return await (await self._queue()).count(deadline=deadline)

    @operation("get job", "read")
    async def job(self, job_id: str) -> Job:
        """Return a job by its id.

        Raises:
            ConfigurationError: No job has this id.
        """
        queue = await self._queue()
        return job_of(await queue.get(job_key(job_id)), queue)

    async def _queue(self) -> JobQueue:
        return JobQueue(await self._database(), self._resources.server.schema)

    async def _database(self) -> Database:
        """Return the database, used with the rights of the client's role."""
        database = (await self._resources.ready()).database
        return database if self._role is None else database.acting_as(self._role)

    async def work(
        self,
        *,
        concurrency: int = 1,
        allow: Sequence[str | Path] = (),
        models: Sequence[str | Embedder] = (),
        drain: bool = False,
        limit: int | None = None,
        lease: float = DEFAULT_LEASE_SECONDS,
        keep_days: float = DEFAULT_KEEP_DAYS,
        compare_every: float = DEFAULT_COMPARE_SECONDS,
        tell: Callable[[str], None] | None = None,
    ) -> int:
        """Run the jobs of all collections of the schema and sync their followed tables, until cancelled.

        Any number of workers share the work. When the call is cancelled, running jobs finish their batch and return to
        the queue; a second cancellation does not wait for the batches. Models come from this client and from the
        collections, never from a job.

        Args:
            concurrency: Maximum number of jobs, and of tables, at a time.
            allow: Folders that jobs may read, including their subfolders; none by default.
            models: Embedding models (names or embedders) that a job may switch a collection to; none by default.
            drain: Whether to return when no job can be started now and no table is due for a sync.
            limit: Return after this many jobs, without syncing tables. None: no limit.
            lease: Seconds after a worker's last sign of life until another worker continues its job, at least 1.
            keep_days: Days for which finished jobs are kept.
            compare_every: Seconds between two comparisons of a table with ``changes="comparison"``, at least 1.
            tell: Called with a line about each job, each sync of a table that changed something, and each lost
                connection.

        Returns:
            Number of jobs that this call finished.

        Raises:
            ConfigurationError: A value is refused, or a folder does not exist.
        """
        from semlex.jobs.worker import Worker, WorkerOptions

        options = WorkerOptions(concurrency, allow, models, drain, limit, lease, keep_days, compare_every, tell)
        resources = await self._resources.ready()
        database, schema, builds = resources.database, resources.server.schema, resources.index_builds

        def handle(name: str) -> Handle:
            return Handle(resources, name, WantedOptions.of(ANY_OPTIONS, self._defaults), create=False)

        async def opened(name: str) -> Collection:
            # Opened again for every job: somebody may have dropped it and made another, or changed its model.
            return await Collection(handle(name)).open()

        async def indexer_of(name: str) -> tuple[Indexer, WantedOptions]:
            made = handle(name)
            return await made.indexer(), made.wanted

        worker = Worker(database, schema, opened, indexer_of, options, builds=builds)
        await JobQueue(database, schema).ensure_table()
        working = asyncio.ensure_future(worker.run())
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            worker.stop()
            try:
                await builds.stop()
                await asyncio.shield(working)
            except asyncio.CancelledError:  # once more: batches are not waited for
                worker.abandon()
                await working
            raise

    @operation("diagnose", "admin")
    async def diagnose(self, collection: str | None = None, *, tell: Callable[[str], None] | None = None) -> Diagnosis:
        """Return what is wrong with models, server and collections, each with a remedy. Nothing is written.

        The client's models are tried. Large tables are sampled, and each check has its own short transaction; the
        answer says what was sampled and what could not be checked.

        Args:
            collection: Name of the only collection to check; None: all of the schema.
            tell: Called with the name of each check before it runs.

        Raises:
            CollectionNotFoundError: The collection does not exist.
        """
        from semlex.diagnostics.checks import ModelFacts, findings_of_models
        from semlex.diagnostics.diagnosis import diagnose
        from semlex.diagnostics.doctor import examine_embedder, examine_models
        from semlex.types.checkups import by_severity

        check_parameters(text_parameter("collection", collection), callable_errors("tell", tell))
        resources = await self._resources.ready()
        options = resources.models
        named = options.embedding_model
        model = _model_to_try(options.default_model if named is None else named)
        reranker = _model_to_try(options.reranker_model)
        dimensions = options.dimensions or options.default_dimensions
        if tell is not None:
            tell("the models that are configured here")
        examined: list[ModelExamination] = []
        if model is not None or reranker is not None:
            tried = await asyncio.to_thread(
                examine_models, model, reranker, device=options.device, dimensions=dimensions
            )
            examined += tried.models
        if named is not None and not isinstance(named, str):
            own = await asyncio.to_thread(examine_embedder, named)
            examined.append(own)
            dimensions = None if own.identity is None else own.identity.dimensions
        facts = ModelFacts(
            next((one for one in examined if one.role == "embedding"), None),
            dimensions,
            is_named=named is not None,
            is_same=same_model,
            # A caller who wants no model does not miss that of a collection.
            stored_problem=lambda stored: None if named == KEYWORDS_ONLY else stored_problem(stored, options),
        )
        found = await diagnose(resources.database, resources.server.schema, facts, collection=collection, tell=tell)
        return replace(found, findings=by_severity([*findings_of_models(examined), *found.findings]))

    async def pool_figures(self) -> dict[str, int]:
        """Return the figures of the connection pool: ``size``, ``idle``, and how many callers are ``waiting``."""
        return (await self._resources.ready()).database.pool_figures

    async def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; a database that does not answer raises no error.

        Args:
            deadline: Seconds to wait for its answer; by default the client's ``timeout``. The first call also opens the
                client, and the deadline does not limit that.
        """
        from semlex.diagnostics.status import server_health

        check_options(SearchOptions, {"deadline": deadline}, "health_check")

        async def reach() -> Database:
            return (await self._resources.ready()).database

        return await server_health(reach, deadline=deadline)


def _model_to_try(model: object) -> str | None:
    """Return the name of a model that the diagnosis should try; None for "auto", "none" and a model without a name."""
    return model if isinstance(model, str) and model not in (KEYWORDS_ONLY, "auto") else None


connect = Client
