"""The public interface of one collection: documents in, searches out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from semlex.diagnostics.status import collection_status, server_health
from semlex.embedding.query_cache import DEFAULT_QUERIES, QueryEmbeddingCache
from semlex.errors import ConfigurationError
from semlex.ingest.file_run import FileRun
from semlex.ingest.files.discovery import checked_paths
from semlex.ingest.given_documents import GivenDocuments, documents_from_texts
from semlex.ingest.indexer import Indexer
from semlex.models.executor import ModelCaller
from semlex.models.local.forked import torch_process
from semlex.parameters import KINDS, CollectionOptions, model_defaults
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.lifetime import Lifetime
from semlex.retriever.model_selection import ModelOptions, open_embedder, runs_on_torch, with_reranker
from semlex.retriever.upkeep import CollectionUpkeep
from semlex.search.pipeline import Search
from semlex.search.request import Request, check_ids, checked_array
from semlex.settings.files import model_names
from semlex.store.keyword.bm25.engine import DEFAULT_BM25, Bm25Engine, Bm25Options
from semlex.store.postgres.database import Database, check_access
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.query import chunks
from semlex.store.query.filters import log_unknown_fields, parse_filters
from semlex.store.schema import registry
from semlex.store.schema.collection import Collection, check_same_model
from semlex.store.schema.dropping import drop_collection
from semlex.store.schema.names import Names
from semlex.store.write.copy import DEFAULT_BULK, BulkIngestConfig
from semlex.types.queries import DEFAULT_TOP_K
from semlex.validation import (
    callable_errors,
    check_parameters,
    folder_errors,
    kind_errors,
    model_errors,
    strings_errors,
    text_parameter,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from os import PathLike

    from numpy.typing import ArrayLike
    from psycopg_pool import AsyncConnectionPool

    from semlex.embedding.base import Embedder
    from semlex.ingest.given_documents import Given
    from semlex.ingest.progress import IndexReport, Progress
    from semlex.parameters import DistanceName, StorageName
    from semlex.reranking.base import Reranker
    from semlex.search.fusion import FusionMethod
    from semlex.store.postgres.connection import Connection
    from semlex.store.write.chunks import OnDuplicate
    from semlex.types.documents import StoredChunk
    from semlex.types.queries import SearchQuery
    from semlex.types.results import SearchMode, SearchResults

T = TypeVar("T")


class PostgreSQLRetriever(Lifetime, CollectionUpkeep, DocumentRetriever):
    """Hybrid search over one collection in Postgres.

    Use it as an async context manager, or call `initialize` and `close`. One instance serves any number of concurrent
    searches. `semlex.SyncRetriever` is the same for programs without an event loop.

    Args:
        db_url: libpq connection string; None (and no `pool` or `connection`) starts the embedded Postgres.
        embedding_model: An `Embedder`; a model's name or folder; ``"static"``; ``"none"`` for keywords only; or None:
            the model that the collection was made with, else the best that is at hand (`embedding_choice` says which
            and why).
        reranker_model: A `Reranker`, a model's name or folder, ``"none"`` or None.
        use_reranking: True, False, or ``"auto"``: when a reranker is named, or cached and a GPU is there.
        device: Where local models run: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        dimensions: Length of the vectors: they are cut to it; for static models and your own embedder it is a check.
        models: Models behind servers or in folders that a collection may name, beside those of ``SEMLEX_MODELS`` and of
            your own settings file. Other such names are not followed: words answer then, with a warning.
        collection: Name: lower-case letters, digits and underscores, at most 48.
        schema: Schema that holds semlex's tables.
        create: Whether to make the collection when it does not exist.
        language: Language of the texts, a Snowball name such as ``english`` (the default), or its ISO 639-1 code.
        lexical: Keyword engine: ``bm25`` (the default), ``tsvector``, ``tsvector_cd`` or ``none``, or that of an
            extension which the server has: ``pg_textsearch``, ``pg_search``.
        stop_words: Whether words that every text has are left out of the keyword index (``bm25``); True.
        bm25: Constants of ``bm25``, and how much of its index is kept in memory.
        distance: ``cosine`` (the default), ``l2`` or ``inner_product``.
        vector_storage: ``vector`` (float32, the default), or ``halfvec`` (float16: half the size, and indexes up to
            4,000 dimensions where float32 has them up to 2,000).
        with_context: Whether titles and heading path are analysed and embedded with the text; True.
        chunk_tokens: Most tokens of a chunk, 16 to 2,000; 500. Stored when the first file is cut.
        overlap_tokens: Most tokens that neighbouring chunks share; 50. Stored when the first file is cut.
        defaults: For new collections only: `embedding_model` (a name), `dimensions`, and the options from `language` to
            `overlap_tokens` (without `bm25`). An argument of its own is refused where an existing collection has
            another value; a default is not, and `unused_defaults` tells. The model ``none`` is for all collections.
        pool: An open pool that stays yours.
        connection: An open connection that stays yours; what is added joins its transaction.
        data_folder: Folder of the embedded Postgres: a path, or its text.
        keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
        bulk: How documents are written: rows of a transaction, size of a COPY block.
        max_connections: Size of the pool.
        timeout: Seconds to wait for the server or for a free connection.
        cached_queries: Most query vectors that are kept in memory for when they are asked again; 0 keeps none.
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
        models: Sequence[str] = (),
        collection: str = "default_collection",
        schema: str = "semlex",
        create: bool = True,
        language: str | None = None,
        lexical: str | None = None,
        stop_words: bool | None = None,
        bm25: Bm25Options = DEFAULT_BM25,
        distance: DistanceName | None = None,
        vector_storage: StorageName | None = None,
        with_context: bool | None = None,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        defaults: Mapping[str, Any] | None = None,
        pool: AsyncConnectionPool[Any] | None = None,
        connection: Connection | None = None,
        data_folder: str | PathLike[str] | None = None,
        keep_alive: float = 0,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        max_connections: int = 8,
        timeout: float = 10.0,
        cached_queries: int = DEFAULT_QUERIES,
    ) -> None:
        super().__init__()
        if sum(given is not None for given in (db_url, pool, connection, data_folder)) > 1:
            raise ConfigurationError("give at most one of db_url, pool, connection and data_folder")
        # What cannot be used is told now, not at the first use.
        check_parameters(
            kind_errors("bm25", bm25, Bm25Options),
            kind_errors("bulk", bulk, BulkIngestConfig),
            folder_errors("data_folder", data_folder),
            model_errors("embedding_model", embedding_model, "identity", "embed_documents", "embed_query"),
            model_errors("reranker_model", reranker_model, "identity"),
            kind_errors("use_reranking", use_reranking, bool, str),
            kind_errors("device", device, str, NoneType),
            kind_errors("create", create, bool),
            kind_errors("defaults", defaults, Mapping, NoneType),
        )
        check_access(db_url, pool=pool, connection=connection, max_connections=max_connections, timeout=timeout)
        self.names = Names(schema, collection)
        self._db_url, self._pool, self._connection = db_url, pool, connection
        self._data_folder = None if data_folder is None else Path(data_folder)
        listed = model_names(models)
        self._options = ModelOptions(
            embedding_model, reranker_model, use_reranking, device, dimensions, listed, **model_defaults(defaults)
        )
        said = (language, lexical, stop_words, distance, vector_storage, with_context, chunk_tokens, overlap_tokens)
        self._wanted = CollectionOptions.checked(dict(zip(KINDS, said, strict=True)), defaults)
        self._keep_alive = keep_alive
        self._create, self._bulk, self._bm25 = create, bulk, bm25
        self._max_connections, self._timeout = max_connections, timeout
        self._query_cache = QueryEmbeddingCache(cached_queries)

    async def initialize(self) -> None:
        """Starts or reaches the server, opens (or makes) the collection, chooses the embedding model.

        Raises:
            ConnectionFailedError: The server cannot be reached.
            CollectionNotFoundError: The collection does not exist and `create` is False.
            ModelNotFoundError: The named model cannot be loaded.
            ModelMismatchError: The collection was made with another model.
            CollectionSettingsError: An option differs from what the collection was made with.
        """
        async with self._opening:
            if self._indexer is not None:
                return
            self._caller = caller = ModelCaller()
            try:
                database = await self._open_database()
                collection = await self._open_collection(database, caller)
            except BaseException:
                await self.close()
                raise
            storage = self._wanted.storage
            self._indexer = Indexer(database, collection, self._models, caller, bulk=self._bulk, storage=storage)
            self._was_open = False

    async def _open_database(self) -> Database:
        url = self._db_url
        if url is None and self._pool is None and self._connection is None:
            self._server = EmbeddedServer(self._data_folder, keep_alive=self._keep_alive)
            url = await asyncio.to_thread(self._server.start)
        database = Database(
            url, pool=self._pool, connection=self._connection, max_size=self._max_connections, timeout=self._timeout
        )
        self._database = database
        await database.open()
        return database

    async def _open_collection(self, database: Database, caller: ModelCaller) -> Collection:
        stored = await registry.find_collection(database, self.names)
        if stored is not None:
            self._wanted.check(self.names.collection, stored.options)
        self._models = models = await open_embedder(caller, self._options, stored.embedding if stored else None)
        if runs_on_torch(models):
            torch_process.check()
        settings = self._wanted.settings()
        if models.counter_name is not None:
            settings = settings.counted_by(models.counter_name)
        collection = await registry.open_collection(database, self.names, settings, create=self._create)
        # Somebody else may have made it in the meantime.
        self._wanted.check(self.names.collection, collection.options)
        if isinstance(collection.lexical, Bm25Engine):
            collection.lexical.configure(self._bm25)
        if models.version is not None:
            check_same_model(collection, models.version)
        return collection

    @property
    def collection(self) -> Collection:
        """The open collection."""
        return self._opened.collection

    @property
    def unused_defaults(self) -> dict[str, tuple[Any, Any]]:
        """The `defaults` that the open collection does not follow, because it was made with another value.

        Name -> (default, what the collection has).
        """
        return self._options.unused(self.collection.embedding) | self._wanted.unused(self.collection.options)

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds, or None in keyword-only mode."""
        return self._models.embedder

    @property
    def reranker(self) -> Reranker | None:
        """The model that reranks, or None; the first search that reranks chooses it."""
        return self._models.reranker

    @property
    def embedding_choice(self) -> str:
        """One line: which embedding model was chosen, and why."""
        return self._models.embedding_choice

    @property
    def reranking_choice(self) -> str:
        """One line: which reranker was chosen, and why."""
        return self._models.reranking_choice or "not chosen yet"

    async def open_reranker(self) -> Reranker | None:
        """The reranker, or None; chosen at the first call, as by the first search that reranks."""
        if self._models.reranking_choice is None:
            async with self._choosing_reranker:
                self._models = await with_reranker((await self._ready()).caller, self._options, self._models)
        return self._models.reranker

    async def add_documents(
        self,
        documents: Given,
        embeddings: ArrayLike | None = None,
        *,
        on_duplicate: OnDuplicate = "update",
        progress: Callable[[Progress], None] | None = None,
    ) -> list[str]:
        """Stores documents as they are: one document, one chunk; nothing is cut.

        All rows are checked before anything is embedded or written. They are written in transactions of
        `bulk.batch_size` rows; running the call again after a failure neither loses nor doubles anything. Of a repeated
        id the last document wins. A document without an id gets one that follows from its content and metadata.

        A chunk that was read, changed and passed here replaces the stored one; a changed file replaces it again.

        Args:
            documents: Any iterable, read once, of `Document`, `ChunkMetadata` or `VectorDocument` (whose vectors are
                used; all or none). They are copied: what is changed during the call is not stored.
            embeddings: Your own vectors, shape (n, d); else the model makes them. An array of float32 is not copied.
            on_duplicate: ``update`` replaces a stored document of the same id, ``skip`` leaves it.
            progress: Called after every batch.

        Returns:
            The ids, in the order of `documents`.

        Raises:
            ValidationError: With every error of every row; nothing was written.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
        """
        check_parameters(callable_errors("progress", progress))
        given = GivenDocuments.taken(documents)
        own = given.vectors_or(embeddings)
        vectors = None if own is None else checked_array(own)
        return await (await self._ready()).add_documents(given, vectors, on_duplicate=on_duplicate, progress=progress)

    async def upsert(self, documents: Given, embeddings: ArrayLike | None = None) -> list[str]:
        """`add_documents` by the name that says that a stored document of the same id is replaced."""
        return await self.add_documents(documents, embeddings, on_duplicate="update")

    async def add_texts(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[str] | None = None,
        metadata: Iterable[dict[str, Any]] | None = None,
        embeddings: ArrayLike | None = None,
        on_duplicate: OnDuplicate = "update",
    ) -> list[str]:
        """`add_documents` for texts with their ids and metadata beside them; all must have the same length."""
        documents = documents_from_texts(texts, ids, metadata)
        return await self.add_documents(documents, embeddings, on_duplicate=on_duplicate)

    async def index(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> IndexReport:
        """Reads files and folders, cuts them at headings and by tokens, and stores their chunks.

        Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be
        read does not stop the run; it is in the report.

        A path belongs to the source whose folder contains it; another becomes a source of its own, named after it (a
        file: after its folder). A document is its path below that folder.

        Args:
            paths: Files or folders.
            source: Name of the new source, instead of its folder's.
            include: Glob patterns of files to read; by default the usual text formats.
            exclude: Glob patterns of files and folders to leave out.
            recursive: Whether to enter folders below.
            chunk_tokens: Most tokens of a chunk; None is what the collection's other files were cut with.
            overlap_tokens: Most tokens that neighbours share; None likewise.
            progress: Called as the work goes on.

        Raises:
            ConfigurationError: A path does not exist or contains the folders of sources, a name is another folder's,
                or a number is out of bounds.
            CollectionSettingsError: The files of this collection are cut in another way.
        """
        check_parameters(
            text_parameter("source", source),
            [] if include is None else strings_errors("include", include),
            strings_errors("exclude", exclude),
            callable_errors("progress", progress),
        )
        wanted = self._wanted.saying(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
        run = FileRun(await self._ready(), wanted, progress)
        return await run.index(
            checked_paths(paths), source=source, include=include, exclude=exclude, recursive=recursive
        )

    async def embed_missing(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Computes the vectors of chunks that have none; returns how many were written."""
        check_parameters(callable_errors("progress", progress))
        return await (await self._ready()).embed_missing(progress)

    async def drop_collection(self) -> bool:
        """Drops the collection with everything in it, and closes this retriever."""
        database = (await self._ready()).database
        dropped = await drop_collection(database, self.names)
        await self.close()
        return dropped

    async def search(
        self,
        query: str | SearchQuery | None = None,
        top_k: int = DEFAULT_TOP_K,
        filters: Mapping[str, Any] | None = None,
        *,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod = "completed",
        weights: Mapping[str, float] | None = None,
        rrf_k: float = 60.0,
        candidates: int | None = None,
        ef_search: int | None = None,
        deadline: float | None = None,
    ) -> SearchResults:
        """The chunks that fit a query best.

        Both legs run in one snapshot of the database. When one of them fails, or is late for the `deadline`, the other
        answers and `SearchResults.warnings` says so. `top_k` results come back whenever as many exist.

        Args:
            query: A question or words, 1 character to 4 KiB after trimming; or a `SearchQuery` that brings text,
                vector, top_k and filters, which must not be given beside it then.
            top_k: Number of results, 1 to 1,000.
            filters: Field -> value; see `semlex.store.query.filters`.
            vector: A query vector of your own, numbers of shape (d,); the model is not asked then.
            mode: ``vector``, ``keyword`` or ``hybrid``; None is hybrid where both legs are possible.
            rerank: Whether the reranker orders the best 4 x top_k candidates; None as the retriever was made.
            fusion: ``completed`` (both legs' exact scores of all candidates), ``rrf`` or ``linear``.
            weights: Weight per leg. ``completed``: the legs' shares, by default the embedder's ``fusion_weight`` (else
                0.5) for ``vector``; the others: factors, by default 1.
            rrf_k: Constant of RRF.
            candidates: Candidates per leg; by default max(30, 3 x top_k), and 4 x top_k before a reranker.
            ef_search: Size of the HNSW index's candidate list, at most 1,000.
            deadline: Seconds; what has answered by then is the answer.

        Raises:
            ValidationError: The query, top_k or a filter is refused.
            EmbeddingsMissingError: mode="vector" and the collection has no vectors.
            SearchTimeoutError: Nothing had answered at the deadline.
        """
        indexer = await self._ready()
        if indexer.collection.embedding is None and (self.embedder is not None or vector is not None):
            # Another process may have stored the first vectors in the meantime.
            found = await registry.open_collection(indexer.database, self.names, None, create=False)
            indexer.collection = replace(found, lexical=indexer.collection.lexical)
        request = Request.checked(
            query=query,
            vector=vector,
            top_k=top_k,
            filters=filters,
            mode=mode,
            fusion=fusion,
            weights=weights,
            rrf_k=rrf_k,
            candidates=candidates,
            ef_search=ef_search,
            deadline=deadline,
            rerank=rerank,
        )
        reranker = None if rerank is False else await self.open_reranker()
        if rerank is True and reranker is None:
            raise ConfigurationError("rerank=True needs a reranker: name one with reranker_model=")
        search = Search(
            indexer.database,
            indexer.collection,
            self._models if reranker is self._models.reranker else replace(self._models, reranker=reranker),
            caller=indexer.caller,
            query_cache=self._query_cache,
            sample=indexer.sample,
        )
        return await search.run(request)

    async def get(self, ids: Iterable[str]) -> list[StoredChunk]:
        """Chunks by id, in the order of `ids`; missing ones are left out."""
        listed = check_ids(ids)
        found = await self._read("get documents", lambda c: chunks.fetch_documents(c, self.collection, listed))
        return [found[chunk_id] for chunk_id in listed if chunk_id in found]

    async def count(self, filters: Mapping[str, Any] | None = None) -> int:
        """Number of chunks that pass a filter; a field that no chunk has is logged."""
        condition = parse_filters(filters)
        number = await self._read("count", lambda c: chunks.count_chunks(c, self.collection, condition))
        if not number and condition.fields:
            await self._read("count", lambda c: log_unknown_fields(c, self.names, condition))
        return number

    async def status(self, *, exact: bool = False) -> dict[str, Any]:
        """Where the collection is, and its figures: counts, model, indexes, the last run.

        Large tables are estimated (``estimated`` is True), and what only a count tells is None, unless `exact`.
        """
        database, folder = (await self._ready()).database, self._server.folder if self._server else None
        return await collection_status(database, self.collection, self._query_cache, data_folder=folder, exact=exact)

    async def collections(self) -> list[dict[str, Any]]:
        """Every collection of the schema, by name."""
        found = await registry.list_collections((await self._ready()).database, self.names.schema)
        return [dict(zip(registry.LISTED, row, strict=True)) for row in found]

    async def health_check(self) -> dict[str, Any]:
        """Whether the database answers; never raises for a database that does not.

        Returns:
            ``ok``, ``milliseconds``, and either ``postgres``, ``pgvector``, ``read_only`` and the models, or ``error``.
        """
        database = (await self._ready()).database
        models = {
            "embedding_model": self._models.version.model if self._models.version else None,
            "reranker_model": self.reranker.identity if self.reranker else None,
        }
        return await server_health(database, models)

    async def _read(self, doing: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await (await self._ready()).database.read(doing, work)
