"""The resources that the collections of a client share: the server, the pool, models and their threads, caches."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, overload

from semlex.clock import SYSTEM, Clock
from semlex.embedding.query_cache import DEFAULT_QUERIES, QueryEmbeddingCache
from semlex.errors import ConfigurationError, SemlexError
from semlex.forks import drop, renew_after_fork
from semlex.lru_cache import LruCache
from semlex.models.executor import ModelExecutor
from semlex.models.local.device import check_names, torch_process
from semlex.options.collection import DEFAULT_LIMITS, MAX_CACHE_BYTES, Bm25Options, FileLimits, ServerOptions
from semlex.retriever.base import CLOSED, NOT_OPEN, NOT_SENT, Openable
from semlex.retriever.model_selection import ModelOptions, open_embedder, open_reranker, runs_on_torch
from semlex.retriever.query_log import QueryLog
from semlex.store.indexes.background import IndexBuilds
from semlex.store.postgres.database import Database, check_access
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.postgres.replica import Replica, address_of_primary
from semlex.types.query_log import QueryLogMode, QueryLogOptions, query_log_options
from semlex.validation import check_parameters, kind_errors, model_errors, path_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from semlex.chat import ChatModel
    from semlex.embedding.base import Embedder
    from semlex.models.model_names import ModelChoice
    from semlex.open_collection import OpenModels, OpenReranker
    from semlex.store.keyword.bm25.index import Bm25Index
    from semlex.store.schema.collection import EmbeddingVersion

ModelKey = tuple[str, str, int] | None


class ResourceOwner(Openable):
    """An object that closes its resources together with itself."""

    _resources: Resources

    async def close(self) -> None:
        """Close what this object opened: the pool, models loaded by name, its use of the embedded server.

        It first waits for indexes that are being built after a load. Leaving an ``async with`` block by an error does
        not wait; the next load, a worker or `indexes.create` then builds these indexes.
        """
        await self._resources.close()

    async def _close_after(self, error: BaseException | None) -> None:
        """Close as `close` does; after an error, do not wait for indexes."""
        await self._resources.close_after(error)


class Resources:
    """The resources that the collections of a client share; they are opened once and closed together.

    A forked child drops what it inherited and opens everything again at its first call.

    Args:
        keyword_cache_bytes: Maximum bytes of posting lists kept in memory for all collections together; None: each
            collection has its own limit.
    """

    def __init__(
        self,
        server: ServerOptions,
        models: ModelOptions,
        *,
        cached_queries: int = DEFAULT_QUERIES,
        keyword_cache_bytes: int | None = None,
        query_log: QueryLogMode | QueryLogOptions = "off",
        file_limits: FileLimits = DEFAULT_LIMITS,
        clock: Clock = SYSTEM,
    ) -> None:
        ways = (server.db_url, server.pool, server.connection, server.data_folder)
        if sum(given is not None for given in ways) > 1:
            raise ConfigurationError("give at most one of db_url, pool, connection and data_folder")
        check_parameters(
            path_errors("data_folder", server.data_folder),
            model_errors("embedding_model", models.embedding_model, "identity", "embed_documents", "embed_query"),
            model_errors("reranker_model", models.reranker_model, "identity"),
            kind_errors("use_reranking", models.use_reranking, bool, str),
            kind_errors("device", models.device, str, NoneType),
            path_errors("tokenizer", models.tokenizer),
            kind_errors("file_limits", file_limits, FileLimits),
            model_errors("chat_model", models.chat_model, "identity", "stream"),
            []
            if keyword_cache_bytes is None
            else whole_number_errors("keyword_cache_bytes", keyword_cache_bytes, 0, MAX_CACHE_BYTES),
        )
        check_names(models.device, None)
        check_access(
            server.db_url,
            pool=server.pool,
            connection=server.connection,
            max_connections=server.max_connections,
            timeout=server.timeout,
        )
        if server.read_from == "replica":
            if server.db_url is None:
                raise ConfigurationError(
                    "read_from='replica' needs a database URL whose hosts are a primary and its standbys; without such "
                    "a URL, leave read_from out (read_from=, --read-from, SEMLEX_READ_FROM)"
                )
            address_of_primary(server.db_url)
        self.server = server
        self.models = models
        self.clock = clock
        self.file_limits = file_limits
        self.query_cache = QueryEmbeddingCache(cached_queries)
        self.forget_rewrites()
        self.index_builds = IndexBuilds()
        self.query_log = QueryLog(query_log_options(query_log), clock)
        self._keyword_cache_bytes = keyword_cache_bytes
        self._keyword_indexes: weakref.WeakSet[Bm25Index] = weakref.WeakSet()
        # Grows whenever everything is reopened: what a collection had opened before is of no use then.
        self.generation = 0
        self._forget()
        self._is_closed = False
        self._was_open = self._ran_on_torch = False  # in the process that this one was forked from
        self._failure: SemlexError | None = None  # of the last attempt to open
        self._make_locks()
        renew_after_fork(self)

    def _forget(self) -> None:
        self._is_open = False
        self._executor: ModelExecutor | None = None
        self._embedded: EmbeddedServer | None = None
        self._database: Database | None = None
        self._open_models: dict[ModelKey, OpenModels] = {}
        self._reranker: OpenReranker | None = None
        self._reranker_opening: asyncio.Task[OpenReranker] | None = None
        self._chat_model: ModelChoice[ChatModel] | None = None

    @classmethod
    def of(cls, db_url: str | None, models: ModelOptions, options: Mapping[str, Any], **own: Any) -> Resources:
        """Make the resources from checked options; `own` has pool, connection, and defaults for missing options."""
        server = {field.name: options[field.name] for field in fields(ServerOptions) if field.name in options}
        given = {**own, **options}
        names = ("cached_queries", "keyword_cache_bytes", "query_log", "file_limits")
        connections = {name: own[name] for name in ("pool", "connection") if name in own}
        return cls(
            ServerOptions(db_url, **server, **connections),
            models,
            **{name: given[name] for name in names if name in given},
        )

    @property
    def data_folder(self) -> Path | None:
        """Folder of the embedded server; None with any other."""
        return None if self._embedded is None else self._embedded.folder

    async def initialize(self) -> None:
        """Connect to the server, or start the embedded one; do nothing if that is done. After `close`, connect again.

        If an attempt fails, all callers that waited for it get its error, so that none waits for a second timeout.
        """
        self._is_closed = False
        await self._open()

    async def _open(self) -> None:
        known = self._failure
        async with self._opening:
            if self._is_open:
                return
            if self._failure is not None and self._failure is not known:
                raise self._failure
            self._executor = ModelExecutor()
            try:
                await self._open_database()
                if self._is_closed:  # meanwhile
                    raise ConfigurationError(CLOSED)  # noqa: TRY301 - closes as every other failure does
            except BaseException as error:
                await self._close()
                self._failure = error if isinstance(error, SemlexError) else None
                raise
            self._is_open, self._was_open = True, False
            self._failure = None
            self.generation += 1

    async def _open_database(self) -> None:
        server, url = self.server, self.server.db_url
        if url is None and server.pool is None and server.connection is None:
            folder = None if server.data_folder is None else Path(server.data_folder)
            self._embedded = EmbeddedServer(folder, keep_alive=server.keep_alive)
            url = await asyncio.to_thread(self._embedded.start)
        replica = None
        if url is not None and server.read_from == "replica":
            replica = Replica(url, max_size=server.max_connections, timeout=server.timeout, clock=self.clock)
            url = address_of_primary(url)
        self._database = database = Database(
            url,
            pool=server.pool,
            connection=server.connection,
            max_size=server.max_connections,
            timeout=server.timeout,
            clock=self.clock,
        )
        await database.open()
        if self._database is not database:  # closed before it was open
            await database.close()
            raise ConfigurationError(CLOSED)
        if replica is not None:
            database.beside(replica)

    async def close(self) -> None:
        """Close what was opened here: the pool, models loaded by name, the use of the embedded server.

        Indexes that are being built are finished first.
        """
        self._is_closed = True
        await self.index_builds.wait()
        await self.release()

    async def close_after(self, error: BaseException | None) -> None:
        """Close as `close` does; after an error, do not wait for indexes."""
        if error is not None:
            await self.index_builds.stop()
        await self.close()

    async def release(self) -> None:
        """Close the resources as `close` does, but let the next use open them again."""
        self._make_locks()  # the next event loop may be another one
        await self._close()

    async def _close(self) -> None:
        await self.index_builds.stop()
        if self._reranker_opening is not None:
            self._reranker_opening.cancel()
        models, reranker, chosen = self._open_models.values(), self._reranker, self._chat_model
        database, embedded, executor = self._database, self._embedded, self._executor
        self._forget()
        self._was_open = False
        # Whatever one of them raises, the others are closed. The last one first.
        async with AsyncExitStack() as closing:
            if embedded is not None:
                closing.push_async_callback(asyncio.to_thread, embedded.close)
            if database is not None:
                closing.push_async_callback(database.close)
                closing.push_async_callback(self.query_log.flush)
            # A model may first finish the batch that it computes.
            owned = None if chosen is None or chosen.model is self.models.chat_model else chosen.model
            for model in (*models, reranker, owned):
                if model is not None:
                    closing.push_async_callback(asyncio.to_thread, model.close)
            if executor is not None:
                closing.callback(executor.close)

    async def ready(self) -> Self:
        """Return the open resources; the first use opens them, also in a forked child."""
        if self._was_open:
            if self.server.pool is not None or self.server.connection is not None:
                raise ConfigurationError(
                    "this process was forked with a pool or connection that belongs to its parent: open another one in "
                    "the child, and make the retriever there with it"
                )
            if self._ran_on_torch:
                torch_process.check()
        if self._is_closed:
            raise ConfigurationError(CLOSED)
        if not self._is_open:
            await self._open()
        return self

    @property
    def database(self) -> Database:
        """The open database."""
        if self._database is None:
            raise ConfigurationError(NOT_OPEN)
        return self._database

    @property
    def executor(self) -> ModelExecutor:
        """The executor that runs blocking calls of models in threads."""
        if self._executor is None:
            raise ConfigurationError(NOT_OPEN)
        return self._executor

    async def models_of(self, stored: EmbeddingVersion | None) -> OpenModels:
        """Return the embedding model of a collection; collections of the same model share it."""
        key = None if stored is None else (stored.identity_key, stored.model, stored.dimensions)
        async with self._choosing:
            known = self._open_models.get(key)
            if known is None:
                opened = await self._opened_alone(self.models, stored)
                known = self._open_models[key] = await self._shared(opened)
        return known

    async def named_model(
        self, model: str | Embedder, *, dimensions: int | None = None, tokenizer: str | PathLike[str] | None = None
    ) -> OpenModels:
        """Open a model that the user names in addition to a collection's own; the caller closes it."""
        options = ModelOptions(model, device=self.models.device, dimensions=dimensions, tokenizer=tokenizer)
        return await self._opened_alone(options, None)

    async def stored_model(self, stored: EmbeddingVersion) -> OpenModels:
        """Open the model that made a set of vectors which is not in use; the caller closes it."""
        own = replace(self.models, embedding_model=None, dimensions=None, default_model=None, default_dimensions=None)
        return await self._opened_alone(own, stored)

    async def _opened_alone(self, options: ModelOptions, stored: EmbeddingVersion | None) -> OpenModels:
        opened = await open_embedder(self.executor, options, stored)
        try:
            if runs_on_torch(opened.embedder):
                torch_process.check()
        except BaseException:
            await asyncio.to_thread(opened.close)
            raise
        return opened

    async def _shared(self, opened: OpenModels) -> OpenModels:
        """Return the model of the same identity that another collection has opened, else the model just opened."""
        for other in self._open_models.values():
            if opened.version is not None and other.version == opened.version and other.embedder is not None:
                if opened.embedder is not other.embedder:
                    await asyncio.to_thread(opened.close)
                return replace(other, embedding_choice=opened.embedding_choice, owned=())
        return opened

    def configure_keyword_index(self, index: Bm25Index, options: Bm25Options) -> None:
        """Set an index's constants; if the client limits the memory of keyword indexes, give each an equal share."""
        index.configure(options)
        if self._keyword_cache_bytes is None:
            return
        self._keyword_indexes.add(index)
        indexes = list(self._keyword_indexes)
        for one in indexes:
            one.configure(replace(one.options, cache_bytes=self._keyword_cache_bytes // len(indexes)))

    @overload
    async def reranker(self) -> OpenReranker: ...
    @overload
    async def reranker(self, seconds: float | None) -> OpenReranker | None: ...
    async def reranker(self, seconds: float | None = None) -> OpenReranker | None:
        """Return the reranker; the first call chooses it.

        Args:
            seconds: Seconds to wait until it is open; after that None is returned, and opening continues in the
                background.
        """
        if self._reranker is None:
            if self._reranker_opening is None or self._reranker_opening.done():
                self._reranker_opening = asyncio.create_task(self._open_reranker())
                self._reranker_opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            opening = self._reranker_opening
            await self.clock.wait_for_tasks({opening}, seconds)
            return opening.result() if opening.done() else None
        return self._reranker

    async def _open_reranker(self) -> OpenReranker:
        async with self._choosing:
            self._reranker = await open_reranker(self.executor, self.models)
        return self._reranker

    async def chat_model(self) -> ModelChoice[ChatModel]:
        """Return the language model, if any; the first call chooses it."""
        if self._chat_model is None:
            # Loaded here: most programs only search.
            from semlex.chat import choose_chat_model

            self._chat_model = choose_chat_model(self.models.chat_model)
        return self._chat_model

    def forget_rewrites(self) -> None:
        """Forget the search terms that a language model wrote, because the description of a collection has changed."""
        # The cache is a new one, so that no call that began before fills it.
        self.rewrites: LruCache[tuple[str, ...], tuple[str, ...]] = LruCache(self.query_cache.capacity)

    @property
    def open_reranker(self) -> OpenReranker | None:
        """The reranker, if it has been chosen."""
        return self._reranker

    def _after_fork(self) -> None:
        self.query_log.forget()
        self.index_builds.after_fork()
        drop(self._open_models, self._reranker, self._chat_model, self._database, self._embedded, self._executor)
        self._was_open |= self._is_open
        reranker = None if self._reranker is None else self._reranker.reranker
        used = [reranker, *(models.embedder for models in self._open_models.values())]
        self._ran_on_torch |= any(map(runs_on_torch, used))
        self._forget()
        self.generation += 1
        self._make_locks()

    def _make_locks(self) -> None:
        self._opening = asyncio.Lock()
        self._failure = None
        self._choosing = asyncio.Lock()

    def __reduce__(self) -> str:
        raise ConfigurationError(NOT_SENT)
