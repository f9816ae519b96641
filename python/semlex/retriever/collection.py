"""One collection: opened with its models, and filled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from semlex.errors import CollectionDroppedError, ConfigurationError
from semlex.ingest.enrichment.options import checked_enrichment
from semlex.ingest.files.discovery import checked_paths
from semlex.ingest.given_documents import (
    GivenDocuments,
    checked_on_error,
    documents_from_texts,
    without_refused,
)
from semlex.ingest.indexer import Indexer
from semlex.ingest.loaders.extraction import checked_extraction
from semlex.ingest.run import FileRun
from semlex.open_collection import OpenCollection
from semlex.parameters import DEFAULT_BM25, Bm25Options
from semlex.progress import ProgressOption, shown
from semlex.retriever.base import NOT_OPEN
from semlex.retriever.curve_file import read_curve
from semlex.retriever.parts.asking import CollectionAsking
from semlex.retriever.parts.checking import CollectionChecking
from semlex.retriever.parts.embeddings import CollectionEmbeddings
from semlex.retriever.parts.enriching import warn_of_failures
from semlex.retriever.parts.explaining import CollectionExplaining
from semlex.retriever.parts.fields import CollectionFields
from semlex.retriever.parts.folders import CollectionFolders, checked_load_options
from semlex.retriever.parts.queries import CollectionQueries
from semlex.retriever.parts.submission import CollectionJobs
from semlex.retriever.parts.tables import CollectionTables
from semlex.retriever.parts.upkeep import CollectionUpkeep
from semlex.store.postgres.connection import callers_connection
from semlex.store.postgres.database import Database
from semlex.store.postgres.roles import checked_role
from semlex.store.query.chunk_keys import chunk_keys
from semlex.store.schema import registry
from semlex.store.schema.collection import for_model
from semlex.store.schema.names import Names
from semlex.store.write.copy import DEFAULT_BULK, BulkIngestConfig
from semlex.types.documents import Ids
from semlex.types.vectors import given_vectors
from semlex.validation import check_parameters, kind_errors, path_errors, strings_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from os import PathLike
    from pathlib import Path

    from numpy.typing import ArrayLike

    from semlex.chat.base import ChatModel
    from semlex.errors import FieldError
    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.given_documents import Given, OnError
    from semlex.ingest.loaders.base import OnBadText
    from semlex.ingest.loaders.extraction import Extract, MetadataExtraction
    from semlex.ingest.progress import IndexReport
    from semlex.json_values import AnyId
    from semlex.parameters import WantedOptions
    from semlex.retriever.resources import Resources
    from semlex.store.postgres.connection import CallersConnection, Connection
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion
    from semlex.store.write.chunks import OnDuplicate

T = TypeVar("T")


class Collection(
    CollectionAsking,
    CollectionQueries,
    CollectionChecking,
    CollectionExplaining,
    CollectionFields,
    CollectionFolders,
    CollectionTables,
    CollectionEmbeddings,
    CollectionJobs,
    CollectionUpkeep,
):
    """A collection of a client, opened (or made) by its first call; any number of calls may run at the same time.

    Args:
        resources: Of the client, whose `Client.collection` makes this.
        name: Lower-case letters, digits and underscores, at most 48.
        options: What is wanted of it.
        create: Whether to make it when it does not exist.
        bm25: Constants of the keyword engine ``bm25``, and how much of its index is kept in memory.
        bulk: How documents are written: rows of a transaction, size of a COPY block.
        schema: Schema of its tables; None: the client's.
        role: Role of the database whose rights every transaction has; None: the login's.
        connection: An open connection that stays yours; what is read and written joins its transaction, as by `using`.
        parent: The collection that this one is inside a transaction; what it has in memory is shared.
        calibration: File of a curve of confidence, in place of the one that is stored; read when it is opened.
    """

    def __init__(
        self,
        resources: Resources,
        name: str,
        options: WantedOptions,
        *,
        create: bool = True,
        bm25: Bm25Options = DEFAULT_BM25,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        schema: str | None = None,
        role: str | None = None,
        connection: Connection | None = None,
        parent: Collection | None = None,
        calibration: str | PathLike[str] | None = None,
    ) -> None:
        check_parameters(
            path_errors("calibration", calibration),
            kind_errors("bm25", bm25, Bm25Options),
            kind_errors("bulk", bulk, BulkIngestConfig),
            kind_errors("create", create, bool),
        )
        self.names = Names(resources.server.schema if schema is None else schema, name)
        self._role = checked_role(role)
        self._resources = resources
        self._wanted = options
        self._create, self._bm25, self._bulk = create, bm25, bulk
        self._own_database = None if connection is None else Database(connection=connection)
        self._parent = parent
        self._calibration = calibration
        self._indexer: Indexer | None = None
        self._opened_in = 0  # generation of the resources
        self._opening: tuple[int, asyncio.Lock] = (0, asyncio.Lock())

    def using(self, connection: CallersConnection) -> Collection:
        """Return the same collection through your connection: what is read and written joins your transaction.

        If no transaction has begun, the first call begins it, as any statement would; you commit it or roll it back.
        In autocommit, outside a transaction, every call has transactions of its own.

        Args:
            connection: Of psycopg, with or without ``await``; Django's ``django.db.connection``; or a session or
                connection of SQLAlchemy on psycopg (of an `AsyncSession`: ``await session.connection()``). It is open,
                stays yours, and must not be used by others during a call.

        Raises:
            ConfigurationError: It is something else.
        """
        made = Collection(
            self._resources,
            self.names.collection,
            self._wanted,
            create=self._create,
            bm25=self._bm25,
            bulk=self._bulk,
            schema=self.names.schema,
            role=self._role,
            connection=callers_connection(connection),
            parent=self,
            calibration=self._calibration,
        )
        made._search_defaults, made._fallback = self._search_defaults, self._fallback
        return made

    async def open(self) -> Self:
        """Opens the collection, or makes it; anew where it is open. Every other method opens it if need be.

        Raises:
            CollectionNotFoundError: It does not exist and is not to be made.
            ModelNotFoundError: The named model cannot be loaded.
            ModelMismatchError: The collection was made with another model.
            CollectionSettingsError: An option differs from what the collection was made with.
        """
        self._indexer = None
        await self._ready()
        return self

    async def _ready(self) -> Indexer:
        """The open collection; if it was dropped, the one that has its name now, or a new one."""
        return await self._ready_to(create=self._create)

    async def _readable(self) -> Indexer:
        """The same for reading, which makes no collection in the place of one that was dropped."""
        was_open = self._current() is not None
        return await self._ready_to(create=self._create and not was_open)

    async def _ready_to(self, *, create: bool) -> Indexer:
        resources = await self._resources.ready()
        indexer = self._current()
        if indexer is None or indexer.opened.presence.is_gone:
            if self._opening[0] != resources.generation:
                self._opening = (resources.generation, asyncio.Lock())
            async with self._opening[1]:
                indexer = self._current()
                if indexer is None or indexer.opened.presence.is_gone:
                    opened = await self._open(await self._database(), create=create)
                    indexer = Indexer(
                        opened, bulk=self._bulk, storage=self._wanted.storage, limits=resources.file_limits
                    )
                    self._indexer, self._opened_in = indexer, resources.generation
        if not await indexer.opened.renew():
            self._indexer = None  # made in a transaction that was rolled back
            return await self._ready()
        return indexer

    async def _reading(self, read: Callable[[Indexer], Awaitable[T]]) -> T:
        """Read the open collection; once more if it was dropped, since another one may have its name now."""
        try:
            return await read(await self._readable())
        except CollectionDroppedError:
            return await read(await self._readable())

    async def _database(self) -> Database:
        """The database as the collection's role sees it."""
        database = self._own_database or (await self._resources.ready()).database
        return database if self._role is None else database.acting_as(self._role)

    def _current(self) -> Indexer | None:
        """The open collection; None where it is not open, or was opened before its client was closed."""
        return self._indexer if self._opened_in == self._resources.generation else None

    async def _open(self, database: Database, *, create: bool) -> OpenCollection:
        resources, name = self._resources, self.names.collection
        stored = await registry.find_collection(database, self.names)
        if stored is None:
            self._wanted.chunk_settings().check()
        else:
            # How vectors are stored is known when it is known which: a model has its own.
            self._wanted.check(name, replace(stored, embedding=None).options)
        models = await resources.models_of(None if stored is None else self._expected(stored))
        settings = self._wanted.settings()
        if models.counter_name is not None:
            settings = settings.counted_by(models.counter_name)
        info = await registry.open_collection(database, self.names, settings, create=create)
        if models.version is not None:
            info = for_model(info, models.version)
        self._wanted.check(name, info.options)  # somebody else may have made it in the meantime
        open_parent = None if self._parent is None else self._parent._current()  # noqa: SLF001 - of this class
        if open_parent is not None and open_parent.collection.collection_id == info.collection_id:
            info = replace(info, keyword=open_parent.collection.keyword)
        elif info.keyword.index is not None:
            resources.configure_keyword_index(info.keyword.index, self._bm25)
        curve = None if self._calibration is None else await asyncio.to_thread(read_curve, self._calibration)
        opened = OpenCollection.new(
            database,
            info,
            models,
            resources.executor,
            resources.query_cache,
            clock=resources.clock,
            curve=curve,
            may_be_undone=stored is None and database.joins_transaction,
        )
        await opened.note_use()
        return opened

    def _expected(self, stored: CollectionInfo) -> EmbeddingVersion | None:
        """The vectors that are probably wanted: those of the named model, else those that serve."""
        named = self._resources.models.embedding_model
        own = [version for version in stored.versions.standing if version.model == named]
        return stored.embedding if stored.embedding in own or not own else own[-1]

    @property
    def _opened(self) -> OpenCollection:
        indexer = self._current()
        if indexer is None:
            raise ConfigurationError(NOT_OPEN)
        return indexer.opened

    @property
    def info(self) -> CollectionInfo:
        """What is known of the open collection."""
        return self._opened.info

    @property
    def unused_defaults(self) -> dict[str, tuple[Any, Any]]:
        """The defaults that the open collection does not follow, because it was made with another value.

        Name -> (default, what the collection has).
        """
        models, info = self._resources.models, self.info
        counters = (self._opened.models.counter_name, info.settings.token_counter)
        return models.unused(info.embedding) | models.unused_tokenizer(*counters) | self._wanted.unused(info.options)

    @property
    def embedding_choice(self) -> str:
        """One line: which embedding model was chosen for the open collection, and why."""
        return self._opened.models.embedding_choice

    async def add_documents(
        self,
        documents: Given,
        embeddings: ArrayLike | Sequence[ArrayLike | None] | None = None,
        *,
        on_duplicate: OnDuplicate = "update",
        on_error: OnError = "raise",
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
    ) -> Ids:
        """Stores documents as they are: one document, one chunk; nothing is cut.

        All rows are checked before anything is embedded or written. They are written in transactions of
        `bulk.batch_size` rows; running the call again after a failure neither loses nor doubles anything. Of a repeated
        id the last document wins, with ``skip`` the first. A document without an id gets one that follows from its
        content and metadata.

        A chunk that was read, changed and passed here replaces the stored one; a changed file replaces it again.

        Args:
            documents: Any iterable, read once, of `Document`, `ChunkMetadata` or `VectorDocument` (whose vectors are
                used; all or none). They are copied: what is changed during the call is not stored.
            embeddings: Your own vectors, shape (n, d); else the model makes them. A list may have None for a document
                that brings none. An array of float32 is not copied.
            on_duplicate: ``update`` replaces a stored document of the same id, ``skip`` leaves it, ``fail`` refuses
                the batch.
            on_error: ``raise`` refuses all documents if one breaks a rule; ``skip`` leaves those out, stores the
                others, and returns in `Ids.skipped` what is wrong with each.
            extract_metadata: As for `index`; where it fails, nothing is written.
            enrichment: As for `index`. Chunks that get no line are logged as a warning.
            progress: Called after every batch; ``bar`` shows it.

        Returns:
            The ids of what is stored, in the order of `documents`.

        Raises:
            ValidationError: With every error of every row; nothing was written.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
            DuplicateError: With ``fail``: ids are repeated, or stored.
        """
        bars = shown(progress)
        lines = checked_enrichment(enrichment)
        skipped: list[FieldError] = []
        if checked_on_error(on_error) == "skip":
            storage = (await self._ready()).vector_storage
            documents, embeddings, skipped = without_refused(documents, embeddings, storage)
        given = GivenDocuments.taken(documents)
        if extract_metadata is not None:
            given = await given.extracted(checked_extraction(extract_metadata))
        own = given.vectors_or(embeddings)
        vectors = None if own is None else given_vectors(own, given.ids)
        indexer = await self._ready()
        ids = Ids(skipped=skipped)

        async def fill() -> Sequence[UUID]:
            ids.extend(await indexer.add_documents(given, vectors, on_duplicate=on_duplicate, progress=tell))
            return [UUID(bytes=key) for key in chunk_keys(ids)]

        with bars as tell:
            warn_of_failures(await self._filled(lines, tell, fill))
        return ids

    async def upsert(
        self, documents: Given, embeddings: ArrayLike | None = None, *, on_error: OnError = "raise"
    ) -> Ids:
        """`add_documents` by the name that says that a stored document of the same id is replaced."""
        return await self.add_documents(documents, embeddings, on_duplicate="update", on_error=on_error)

    async def add_texts(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[AnyId] | None = None,
        metadata: Iterable[dict[str, Any]] | None = None,
        embeddings: ArrayLike | None = None,
        on_duplicate: OnDuplicate = "update",
        on_error: OnError = "raise",
    ) -> Ids:
        """`add_documents` for texts with their ids and metadata beside them; all must have the same length."""
        documents = documents_from_texts(texts, ids, metadata)
        return await self.add_documents(documents, embeddings, on_duplicate=on_duplicate, on_error=on_error)

    async def index(
        self,
        *paths: str | Path,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        text_fields: Sequence[str] = (),
        id_field: str | None = None,
        detect_encoding: bool = False,
        on_bad_text: OnBadText = "error",
        extract_metadata: MetadataExtraction | Extract | None = None,
        enrichment: Enrichment | str | ChatModel | None = None,
        progress: ProgressOption = None,
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
            min_tokens: Sections with fewer tokens are joined with the next one where both fit; None likewise.
            text_fields: Of tables and JSON Lines: the fields that are text; the others become metadata. By default all
                that hold text are.
            id_field: Of tables and JSON Lines: the field that names a record; no two of a file may share a value.
            detect_encoding: Whether a text that is not UTF-8 is read in the encoding that it most probably has; it is
                reported as a problem otherwise.
            on_bad_text: What becomes of a file with bytes that are no text, or with characters that cannot be stored
                (NUL, half of a surrogate pair): ``error`` reports it as a problem, ``repair`` puts U+FFFD for each of
                them, ``skip`` leaves the file out. The report counts them.
            extract_metadata: A function of yours that reads metadata out of a text, sync or async, or a
                `MetadataExtraction`. It is called for files that are read; one for which it fails is a problem of the
                report. What was given by hand wins over what it returns.
            enrichment: A language model that writes a line about each chunk of these files, as for `enrich`, when they
                are stored; None asks nobody, and lines that were written before stay with chunks that did not change.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: A path does not exist or contains the folders of sources, a name is another folder's,
                or a number is out of bounds.
            CollectionSettingsError: The files of this collection are cut in another way.
            ModelError: The language model fails before anything is written.
        """
        lines = checked_enrichment(enrichment)
        check_parameters(
            text_parameter("source", source),
            [] if include is None else strings_errors("include", include),
            strings_errors("exclude", exclude),
        )
        bars = shown(progress)
        options = checked_load_options(text_fields, id_field, detect_encoding=detect_encoding, on_bad_text=on_bad_text)
        wanted = self._wanted.saying(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
        with bars as tell:
            run = FileRun(await self._ready(), wanted, tell, checked_extraction(extract_metadata))
            found = await asyncio.to_thread(checked_paths, paths)

            async def fill() -> Sequence[UUID]:
                await run.index(
                    found, source=source, include=include, exclude=exclude, recursive=recursive, options=options
                )
                return run.documents

            run.report.enrichment = await self._filled(lines, tell, fill)
        return run.report

    async def embed_missing(self, progress: ProgressOption = None) -> int:
        """Computes the vectors of chunks that have none; returns how many were written."""
        with shown(progress) as tell:
            return await (await self._ready()).embed_missing(tell)
