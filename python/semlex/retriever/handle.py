"""Opens a collection by its name at the first use; if it was dropped, opens the one that has the name now."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from semlex.errors import CalibrationFileError, CollectionDroppedError, ConfigurationError
from semlex.open_collection import OpenCollection
from semlex.options.collection import DEFAULT_BM25, Bm25Options, WantedOptions
from semlex.retriever.base import NOT_OPEN, DocumentRetriever
from semlex.search.request import NO_DEFAULTS
from semlex.store.postgres.connection import CallersConnection, Connection, callers_connection
from semlex.store.postgres.database import Database
from semlex.store.postgres.roles import checked_role
from semlex.store.schema import registry
from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion, for_model
from semlex.store.schema.names import Names
from semlex.store.write.copy import DEFAULT_BULK, BulkIngestConfig
from semlex.types.confidence import ConfidenceCurve
from semlex.validation import check_parameters, kind_errors, path_errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from os import PathLike

    from semlex.ingest.indexer import Indexer
    from semlex.options.search import SearchDefaults
    from semlex.retriever.resources import Resources

T = TypeVar("T")
# The longest file of a confidence curve.
MAX_CURVE_BYTES = 64 * 1024


class Handle:
    """The connection of a `Collection` and its parts to the stored collection.

    Args:
        resources: Resources of the client.
        name: Lower-case letters, digits and underscores, up to 48.
        wanted: Options of the collection.
        create: Whether to make it if it does not exist.
        bm25: Constants of the keyword engine ``bm25``, and how much of its index is kept in memory.
        bulk: How documents are written: rows per transaction, size of a COPY block.
        schema: Schema of its tables; None: the client's.
        role: Database role for every transaction; None: the login itself.
        calibration: File of a confidence curve, instead of the stored one; read when the collection is opened.
        defaults: Options that searches use if their call does not give them.
        fallback: Retriever that is searched if nothing was found.
    """

    def __init__(
        self,
        resources: Resources,
        name: str,
        wanted: WantedOptions,
        *,
        create: bool = True,
        bm25: Bm25Options = DEFAULT_BM25,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        schema: str | None = None,
        role: str | None = None,
        calibration: str | PathLike[str] | None = None,
        defaults: SearchDefaults = NO_DEFAULTS,
        fallback: DocumentRetriever | None = None,
    ) -> None:
        check_parameters(
            path_errors("calibration", calibration),
            kind_errors("bm25", bm25, Bm25Options),
            kind_errors("bulk", bulk, BulkIngestConfig),
            kind_errors("create", create, bool),
        )
        self.names = Names(resources.server.schema if schema is None else schema, name)
        self.resources, self.wanted, self.create = resources, wanted, create
        self.search_defaults, self.fallback = defaults, fallback
        self._bm25, self._bulk, self._calibration = bm25, bulk, calibration
        self._role = checked_role(role)
        self._start()

    def _start(self, parent: Handle | None = None, own_database: Database | None = None) -> None:
        self._parent, self._own_database = parent, own_database
        self._opened: OpenCollection | None = None
        self._indexer: Indexer | None = None
        self._opened_in = 0  # generation of the resources
        self._opening: tuple[int, asyncio.Lock] = (0, asyncio.Lock())

    def using(self, connection: CallersConnection | Connection) -> Handle:
        """Return a handle that shares caches and models, but joins the transaction of a caller's connection."""
        made = copy.copy(self)
        made._start(self, Database(connection=callers_connection(connection)))  # noqa: SLF001 - of this class
        return made

    def forget(self) -> None:
        """Let the next call open the collection again."""
        self._opened = None

    async def ready(self) -> OpenCollection:
        """Return the open collection; if it was dropped, open the one that has its name now, or make a new one."""
        return await self._ready_to(create=self.create)

    async def indexer(self) -> Indexer:
        """Return the indexer of the open collection; see `ready`."""
        from semlex.ingest.indexer import Indexer

        opened = await self.ready()
        if self._indexer is None or self._indexer.opened is not opened:
            limits = self.resources.file_limits
            self._indexer = Indexer(opened, bulk=self._bulk, storage=self.wanted.storage, limits=limits)
        return self._indexer

    async def readable(self) -> OpenCollection:
        """Return the open collection to read it; unlike `ready`, never create one in place of a dropped one."""
        was_open = self.current() is not None
        return await self._ready_to(create=self.create and not was_open)

    async def _ready_to(self, *, create: bool) -> OpenCollection:
        resources = await self.resources.ready()
        opened = self.current()
        if opened is None or opened.presence.is_gone:
            if self._opening[0] != resources.generation:
                self._opening = (resources.generation, asyncio.Lock())
            async with self._opening[1]:
                opened = self.current()
                if opened is None or opened.presence.is_gone:
                    opened = await self._open(await self.database(), create=create)
                    self._opened, self._opened_in = opened, resources.generation
        if not await opened.renew():
            self._opened = None  # made in a transaction that was rolled back
            return await self.ready()
        return opened

    async def reading(self, read: Callable[[OpenCollection], Awaitable[T]]) -> T:
        """Return what `read` returns; if the collection was dropped, retry once with the one that has its name now."""
        try:
            return await read(await self.readable())
        except CollectionDroppedError:
            return await read(await self.readable())

    async def read(self, doing: str, work: Callable[[Connection, CollectionInfo], Awaitable[T]]) -> T:
        """Run statements that read the collection, in one transaction."""

        async def read(opened: OpenCollection) -> T:
            return await opened.reader.read(doing, lambda connection: work(connection, opened.info))

        return await self.reading(read)

    async def searched(self, *, has_vector: bool = False) -> OpenCollection:
        """Return the open collection for a search; `has_vector` means that the caller passes the query's vector."""

        async def look(opened: OpenCollection) -> OpenCollection:
            opened.brings_vectors |= has_vector
            if opened.info.embedding is None and (opened.models.embedder is not None or has_vector):
                await opened.refresh()  # another process may have stored the first vectors in the meantime
            return opened

        return await self.reading(look)

    async def run_search(
        self, opened: OpenCollection, run: Callable[[OpenCollection], Awaitable[T]], *, has_vector: bool = False
    ) -> T:
        """Run a search; if the collection was dropped, run it once more, since another one may have its name now."""
        try:
            found = await run(opened)
        except CollectionDroppedError:
            opened = await self.searched(has_vector=has_vector)
            found = await run(opened)
        await opened.note_use()
        return found

    async def database(self) -> Database:
        """Return the database, used with the rights of the collection's role."""
        database = self._own_database or (await self.resources.ready()).database
        return database if self._role is None else database.acting_as(self._role)

    def current(self) -> OpenCollection | None:
        """Return the open collection; None if it is not open, or was opened before its client was closed."""
        return self._opened if self._opened_in == self.resources.generation else None

    @property
    def opened(self) -> OpenCollection:
        """The open collection."""
        opened = self.current()
        if opened is None:
            raise ConfigurationError(NOT_OPEN)
        return opened

    async def _open(self, database: Database, *, create: bool) -> OpenCollection:
        resources, name = self.resources, self.names.collection
        stored = await registry.find_collection(database, self.names)
        if stored is None:
            if not create:  # before a model is opened
                await registry.open_found(database, self.names, None, None, create=False)
            self.wanted.chunk_settings().check()
        else:
            # How vectors are stored is known when it is known which: a model has its own.
            self.wanted.check(name, replace(stored, embedding=None).options)
        models = await resources.models_of(None if stored is None else self._expected(stored))
        settings = self.wanted.settings()
        if models.counter_name is not None:
            settings = replace(settings, token_counter=models.counter_name)
        info = await registry.open_found(database, self.names, stored, settings, create=create)
        if models.version is not None:
            info = for_model(info, models.version)
        self.wanted.check(name, info.options)  # somebody else may have made it in the meantime
        open_parent = None if self._parent is None else self._parent.current()
        if open_parent is not None and open_parent.info.collection_id == info.collection_id:
            info = replace(info, keyword=open_parent.info.keyword)
        elif info.keyword.index is not None:
            resources.configure_keyword_index(info.keyword.index, self._bm25)
        curve = None if self._calibration is None else await asyncio.to_thread(read_curve, self._calibration)
        opened = OpenCollection(
            database,
            info,
            models,
            resources.executor,
            resources.query_cache,
            builds=resources.index_builds,
            clock=resources.clock,
            curve=curve,
            may_be_undone=stored is None and database.joins_transaction,
        )
        await opened.note_use()
        return opened

    def _expected(self, stored: CollectionInfo) -> EmbeddingVersion | None:
        """Return the set of vectors that is probably wanted: that of the model the user named, else the one in use."""
        named = self.resources.models.embedding_model
        own = [version for version in stored.versions.standing if version.model == named]
        return stored.embedding if stored.embedding in own or not own else own[-1]


class Part:
    """Base class of a collection and of its parts, such as `Documents`; all of them share one handle."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle


def read_curve(path: str | PathLike[str]) -> ConfidenceCurve:
    """Read a confidence curve from a file."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            stored = json.loads(stream.read(MAX_CURVE_BYTES))
    except OSError as error:
        raise CalibrationFileError(f"the calibration file {str(file)!a} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        stored = None
    try:
        return ConfidenceCurve.from_dict(stored, f"the file {str(file)!a}")
    except ConfigurationError as error:
        raise CalibrationFileError(str(error)) from None


def write_curve(path: str | PathLike[str], curve: ConfidenceCurve) -> None:
    """Write a confidence curve into a file."""
    try:
        Path(path).write_text(json.dumps(curve.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the calibration file {str(path)!a} cannot be written: {error.strerror}") from None
