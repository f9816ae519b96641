"""A retriever: one collection with a server, a pool and models of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Self

from semlex.diagnostics.status import server_health
from semlex.embedding.query_cache import DEFAULT_QUERIES
from semlex.options.declare import check_options
from semlex.options.search import SearchDefaults
from semlex.parameters import (
    DEFAULT_BM25,
    DEFAULT_LIMITS,
    Bm25Options,
    CollectionOptions,
    FileLimits,
    ServerOptions,
    WantedOptions,
    model_defaults,
)
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.collection import Collection
from semlex.retriever.handle import Handle
from semlex.retriever.model_selection import ModelOptions
from semlex.retriever.resources import Resources
from semlex.search.request import NO_DEFAULTS, check_search
from semlex.settings.table import model_names
from semlex.store.schema.registry import list_collections
from semlex.store.write.copy import DEFAULT_BULK, BulkIngestConfig
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from psycopg_pool import AsyncConnectionPool

    from semlex.chat.base import ChatModel
    from semlex.diagnostics.status import ServerHealth
    from semlex.embedding.base import Embedder
    from semlex.parameters import DistanceName, StorageName
    from semlex.reranking.base import Reranker
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import ListedCollection
    from semlex.types.query_log import QueryLogMode, QueryLogOptions


class PostgreSQLRetriever(Collection, DocumentRetriever):
    """Hybrid search over one collection in Postgres.

    The first call opens it. Close it with `close`, or use it as an async context manager, which opens it at once. One
    instance serves any number of concurrent searches. `semlex.SyncRetriever` is the same for programs without an event
    loop.

    Args:
        db_url: libpq connection string; None (and no `pool` or `connection`) starts the embedded Postgres.
        embedding_model: An `Embedder`; a model's name or folder; ``"static"``; ``"none"`` for keywords only; or None:
            the model that the collection was made with, else the best that is at hand (`embedding_choice` says which
            and why).
        reranker_model: A `Reranker`, a model's name or folder, ``"none"`` or None.
        use_reranking: True, False, or ``"auto"``: when a reranker is named, or cached and a GPU is there.
        device: Where local models run: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        dimensions: Length of the vectors: they are cut to it; for static models and your own embedder it is a check.
        tokenizer: The ``tokenizer.json`` of a model behind a server, whose tokens then measure chunks: its path, that
            of its folder, or a hub id in the local cache. Without one a word counts as two tokens.
        models: Models behind servers or in folders that a collection may name, beside those of ``SEMLEX_MODELS`` and of
            your own settings file. Other such names are not followed: words answer then, with a warning.
        chat_model: Writes answers: a `ChatModel`, or the name of one behind a server (``openai:MODEL``,
            ``http(s)://HOST/v1#MODEL``), which is sent questions and passages; ``"none"`` or None: answers are
            sentences of the documents.
        collection: Name: lower-case letters, digits and underscores, at most 48.
        schema: Schema that holds semlex's tables.
        role: Role of the database whose rights every transaction has, so that the server refuses what is not the
            role's; None: those of the login. The login must be a member of it (docs/tenants.md).
        create: Whether to make the collection when it does not exist.
        language: Language of the texts, a Snowball name such as ``english`` (the default), or its ISO 639-1 code.
        keyword: Keyword engine: ``bm25`` (the default), ``tsvector``, ``tsvector_cd`` or ``none``, or that of an
            extension which the server has: ``pg_textsearch``, ``pg_search``.
        stop_words: Whether words that every text has are left out of the keyword index (``bm25``); True.
        bm25: Constants of ``bm25``, and how much of its index is kept in memory.
        distance: ``cosine`` (the default), ``l2`` or ``inner_product``.
        vector_storage: ``vector`` (float32, the default), or ``halfvec`` (float16: half the size, and indexes up to
            4,000 dimensions where float32 has them up to 2,000).
        with_context: Whether titles and heading path are analysed and embedded with the text; True.
        chunk_tokens: Most tokens of a chunk, 16 to 2,000; 500. Stored when the first file is cut.
        overlap_tokens: Most tokens that neighbouring chunks share; 50. Stored when the first file is cut.
        min_tokens: Sections with fewer tokens are joined with the next one where both fit, up to half of
            `chunk_tokens`; 32, or a quarter of `chunk_tokens` where that is less. Stored when the first file is cut.
        defaults: For new collections only: `embedding_model` (a name), `dimensions`, `tokenizer` (a path), and the
            options from `language` to `min_tokens` (without `bm25`). An argument of its own is refused where an
            existing collection has another value; a default is not, and `unused_defaults` tells. The model ``none`` is
            for all collections.
        pool: An open pool that stays yours.
        connection: An open connection that stays yours; what is read and written joins its transaction, as by `using`.
        data_folder: Folder of the embedded Postgres: a path, or its text.
        keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
        bulk: How documents are written: rows of a transaction, size of a COPY block.
        max_connections: Size of the pool: so many searches run at a time, the others wait in order.
        timeout: Seconds to wait for the server. A call that waits for a connection is refused if none becomes free for
            so long.
        cached_queries: Most query vectors that are kept in memory for when they are asked again; 0 keeps none.
        calibration: File of a calibration that gives hits their `SearchResult.confidence`, in place of the one that is
            stored; refused where it was learned with another model.
        query_log: What is kept of the questions that are asked: ``off`` (the default), ``hash``, ``text``, or
            `QueryLogOptions`. It is written after the answer, and read with `Collection.queries`.
        file_limits: The largest files that are read: 16 MiB, and 128 MiB of PDF, office files, books and mail.
        search_defaults: Arguments of searches that their calls may leave out.
        fallback: Asked when a search has found nothing, as the `fallback` of `Collection.search`.
    """

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        device: str | None = None,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        models: Sequence[str] = (),
        chat_model: str | ChatModel | None = None,
        collection: str = "default_collection",
        schema: str = "semlex",
        role: str | None = None,
        create: bool = True,
        language: str | None = None,
        keyword: str | None = None,
        stop_words: bool | None = None,
        bm25: Bm25Options = DEFAULT_BM25,
        distance: DistanceName | None = None,
        vector_storage: StorageName | None = None,
        with_context: bool | None = None,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        defaults: Mapping[str, Any] | None = None,
        pool: AsyncConnectionPool[Any] | None = None,
        connection: Connection | None = None,
        data_folder: str | PathLike[str] | None = None,
        keep_alive: float = 0,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        max_connections: int = 8,
        timeout: float = 10.0,
        cached_queries: int = DEFAULT_QUERIES,
        calibration: str | PathLike[str] | None = None,
        query_log: QueryLogMode | QueryLogOptions = "off",
        file_limits: FileLimits = DEFAULT_LIMITS,
        search_defaults: SearchDefaults = NO_DEFAULTS,
        fallback: DocumentRetriever | None = None,
    ) -> None:
        check_parameters(
            kind_errors("defaults", defaults, Mapping, NoneType),
            kind_errors("fallback", fallback, DocumentRetriever, NoneType),
        )
        check_options(SearchDefaults, search_defaults, "SearchDefaults")
        server = ServerOptions(db_url, schema, pool, connection, data_folder, keep_alive, max_connections, timeout)
        listed = model_names(models)
        chosen = ModelOptions(
            embedding_model,
            reranker_model,
            use_reranking,
            device,
            dimensions,
            listed,
            tokenizer,
            chat_model,
            **model_defaults(defaults),
        )
        options = CollectionOptions(
            language,
            keyword,
            stop_words,
            distance,
            vector_storage,
            with_context,
            chunk_tokens,
            overlap_tokens,
            min_tokens,
        )
        self._resources = Resources(
            server, chosen, cached_queries=cached_queries, query_log=query_log, file_limits=file_limits
        )
        handle = Handle(
            self._resources,
            collection,
            WantedOptions.of(options, defaults),
            create=create,
            bm25=bm25,
            bulk=bulk,
            role=role,
            calibration=calibration,
            defaults=search_defaults,
            fallback=fallback,
        )
        super().__init__(handle)

    async def initialize(self) -> None:
        """Starts or reaches the server, opens (or makes) the collection, chooses the embedding model.

        Raises:
            ConnectionFailedError: The server cannot be reached.
            CollectionNotFoundError: The collection does not exist and `create` is False.
            ModelNotFoundError: The named model cannot be loaded.
            ModelMismatchError: The collection was made with another model.
            CollectionSettingsError: An option differs from what the collection was made with.
        """
        await self._resources.initialize()
        try:
            await self._handle.ready()
        except BaseException:
            await self._resources.release()
            raise

    async def close(self) -> None:
        """Closes what this instance opened: the pool, the models it loaded by name, the embedded server's handle."""
        await self._resources.close()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds, or None in keyword-only mode."""
        return self._handle.opened.models.embedder

    @property
    def reranker(self) -> Reranker | None:
        """The model that reranks, or None; the first search that reranks chooses it."""
        chosen = self._resources.open_reranker
        return None if chosen is None else chosen.reranker

    @property
    def reranking_choice(self) -> str:
        """One line: which reranker was chosen, and why."""
        chosen = self._resources.open_reranker
        return "not chosen yet" if chosen is None else chosen.choice

    async def open_reranker(self) -> Reranker | None:
        """The reranker, or None; chosen at the first call, as by the first search that reranks."""
        return (await (await self._resources.ready()).reranker()).reranker

    async def drop_collection(self) -> bool:
        """Drops the collection with everything in it, and closes this retriever."""
        dropped = await self.drop()
        await self.close()
        return dropped

    async def collections(self) -> list[ListedCollection]:
        """Every collection of the schema, by name."""
        return await list_collections(await self._handle.database(), self.names.schema)

    async def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; never raises for a database that does not.

        Args:
            deadline: Seconds to wait for its answer; by default the retriever's ``timeout``. Opening, which the first
                call does, takes as long as it takes.
        """
        check_search({"deadline": deadline}, "health_check")

        async def reach() -> Database:
            if self._handle.current() is None:
                await self._handle.readable()
            return await self._handle.database()

        health = await server_health(reach, deadline=deadline)
        if health.error is not None:
            return health
        version = self._handle.opened.models.version
        return replace(
            health,
            embedding_model=version.model if version else None,
            reranker_model=self.reranker.identity if self.reranker else None,
        )
