"""What keeps a collection in order: the part of a retriever that neither searches nor adds."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

from semlex.diagnostics.status import CollectionStatus, collection_status
from semlex.errors import ConfigurationError
from semlex.ingest.deletion import Deletion
from semlex.ingest.files.roots import check_root, existing_root
from semlex.ingest.loaders.extraction import checked_extraction
from semlex.ingest.run import FileRun
from semlex.maintenance import keyword_index
from semlex.progress import ProgressOption, shown
from semlex.search.request import check_ids
from semlex.store.indexes.build import estimate_index
from semlex.store.indexes.options import HnswIndex, IvfflatIndex, NoIndex
from semlex.store.query.filters import parse_filters
from semlex.store.schema.dropping import drop_collection
from semlex.store.schema.locks import hold_collection
from semlex.store.write import sources as stored_sources
from semlex.types.documents import utc_now
from semlex.validation import check_parameters, kind_errors, text_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from semlex.filters.forms import Filters
    from semlex.ingest.indexer import Indexer
    from semlex.ingest.loaders.extraction import Extract, MetadataExtraction
    from semlex.ingest.progress import DeleteReport, IndexReport
    from semlex.json_values import AnyId
    from semlex.parameters import WantedOptions
    from semlex.retriever.resources import Resources
    from semlex.store.indexes.build import IndexesBuilt
    from semlex.store.indexes.estimate import IndexEstimate
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.keyword.base import Rebuilt
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names
    from semlex.store.write.sources import SourceInfo

    # A collection has a method called `list`.
    Sources = list[SourceInfo]

T = TypeVar("T")


class CollectionUpkeep(ABC):
    """Sources, deleting, cutting anew, indexes and figures of a collection; `Collection` is one."""

    names: Names
    _wanted: WantedOptions
    _resources: Resources
    _indexer: Indexer | None

    @abstractmethod
    async def _ready(self) -> Indexer:
        """The open collection."""

    @abstractmethod
    async def _reading(self, read: Callable[[Indexer], Awaitable[T]]) -> T:
        """Read the open collection; once more if it was dropped, since another one may have its name now."""

    async def delete(
        self,
        ids: Sequence[AnyId] | None = None,
        *,
        document: str | None = None,
        source: str | None = None,
        filters: Filters | None = None,
        vanished: bool = False,
        dry_run: bool = False,
    ) -> DeleteReport:
        """Deletes chunks with their vectors; what is given must all hold. Missing ones are fine.

        At most 1,000 documents are deleted in one transaction. A document of which nothing is left is forgotten, so
        that indexing its file brings it back.

        Args:
            ids: Ids of chunks.
            document: Path of a document below the folder of its source, or `source_document` of an added one.
            source: Name of a source: the documents that were read from it. With nothing else given, the source is
                removed as well.
            filters: As for `search`.
            vanished: Only documents whose file is gone.
            dry_run: Whether to count only.

        Raises:
            ConfigurationError: Nothing is given, there is no such source, or the folder of a source is not there.
        """
        check_parameters(
            text_parameter("document", document),
            text_parameter("source", source),
            kind_errors("vanished", vanished, bool),
            kind_errors("dry_run", dry_run, bool),
        )
        condition = parse_filters(filters, self.names)
        deletion = Deletion(None if ids is None else check_ids(ids), document, source, condition, vanished)
        return await (await self._ready()).delete(deletion, dry_run=dry_run)

    async def sources(self) -> Sources:
        """Every source with its counts, by name."""
        return await self._reading(
            lambda indexer: indexer.database.read(
                "list the sources", lambda c: stored_sources.list_sources(c, indexer.collection)
            )
        )

    async def move_source(self, name: str, root: str | Path) -> None:
        """Says where the folder of a source is now. Its documents stay what they are.

        Args:
            name: Name of the source.
            root: The folder.

        Raises:
            ConfigurationError: There is no such source, `root` is no folder, or it contains or lies in the folder of
                another source.
        """
        check_parameters(text_errors("name", name, blank=False), kind_errors("root", root, str, Path))
        check_parameters(text_errors("root", str(root), blank=False))
        indexer = await self._ready()
        collection = indexer.collection
        folder = await asyncio.to_thread(existing_root, root)

        async def work(connection: Connection) -> None:
            await hold_collection(connection, collection, alone=True)
            known = await stored_sources.read_sources(connection, collection)
            roots = {source.name: source.root for source in known}
            if name not in roots:
                raise stored_sources.unknown_source(name, known)
            check_root(folder, name, roots)
            await stored_sources.move_source(connection, collection, name, str(folder), utc_now())

        await indexer.database.write("move the source", work)

    async def rechunk(
        self,
        *,
        chunk_tokens: int | None = None,
        overlap_tokens: int | None = None,
        min_tokens: int | None = None,
        source: str | None = None,
        dry_run: bool = False,
        extract_metadata: MetadataExtraction | Extract | None = None,
        progress: ProgressOption = None,
    ) -> IndexReport:
        """Cuts documents anew, from their files: those that an older version of semlex has read or cut.

        With other settings, which are the collection's from then on, it cuts all of them. A chunk whose text stays the
        same keeps its vector. A run that was ended is completed by the next one.

        Args:
            chunk_tokens: Most tokens of a chunk; None is what the collection has.
            overlap_tokens: Most tokens that neighbours share; None likewise.
            min_tokens: Sections with fewer tokens are joined with the next one where both fit; None likewise.
            source: Name of the only source to work on.
            dry_run: Whether to count only: `changed`, `chunks` and `embedded` of the report are what would be done.
            extract_metadata: As for `index`: without it, what it gave before is gone from chunks that are cut anew.
            progress: Called as the work goes on; ``bar`` shows it.

        Raises:
            ConfigurationError: A number is out of range, there is no such source, or other settings for one source.
        """
        check_parameters(
            text_parameter("source", source),
            kind_errors("dry_run", dry_run, bool),
        )
        bars = shown(progress)
        given = {"chunk_tokens": chunk_tokens, "overlap_tokens": overlap_tokens, "min_tokens": min_tokens}
        if source is not None and any(value is not None for value in given.values()):
            raise ConfigurationError("other chunk settings are for a whole collection: leave source out")
        extraction = checked_extraction(extract_metadata)
        with bars as tell:
            run = FileRun(await self._ready(), self._wanted.saying(**given), tell, extraction)
            report = await run.rechunk(source=source, dry_run=dry_run)
        if not dry_run:
            self._wanted = self._wanted.without(*(name for name, value in given.items() if value is not None))
        return report

    async def create_index(
        self,
        index: VectorIndex | None = None,
        *,
        concurrently: bool = False,
        progress: ProgressOption = None,
    ) -> IndexesBuilt:
        """Builds the indexes now; by itself that happens after a load that passes 10,000 rows.

        A vector index of another kind, or with other options, is built first, then the old one is dropped. What was
        not built to its end is dropped, too.

        Args:
            index: `HnswIndex`, `IvfflatIndex` or `NoIndex`, from now on; None is what was asked for last, and at first
                `HnswIndex()`.
            concurrently: Whether writers go on meanwhile, instead of waiting until it is built; it takes about twice as
                long. Needs ``db_url``. Behind a transaction pooler writers wait all the same, and a warning says so.
            progress: Called as the work goes on; ``bar`` shows it.

        Returns:
            Names of the indexes that were made; its `busy` names those that another process is building, `dropped`
            those that were dropped.

        Raises:
            ConfigurationError: pgvector has no such index for these vectors; the message says what there is.
            StoreError: It could not be built; writers may have held the table for too long.
        """
        check_parameters(
            kind_errors("index", index, HnswIndex, IvfflatIndex, NoIndex, NoneType),
            kind_errors("concurrently", concurrently, bool),
        )
        with shown(progress) as tell:
            return await (await self._ready()).create_index(index, concurrently=concurrently, progress=tell)

    async def estimate_index(self, index: VectorIndex | None = None) -> IndexEstimate | None:
        """What building a vector index would take: memory, time and size; None when there is nothing to build.

        Args:
            index: As for `create_index`.

        Raises:
            ConfigurationError: pgvector has no such index for these vectors; the message says what there is.
        """
        check_parameters(kind_errors("index", index, HnswIndex, IvfflatIndex, NoIndex, NoneType))
        return await self._reading(lambda indexer: estimate_index(indexer.database, indexer.collection, index))

    async def optimize(self, progress: ProgressOption = None) -> int:
        """Merges the keyword index (engine ``bm25``) to few, full segments; returns how many were merged.

        Writers merge a little after each write. This goes on to the end, for example after a large load.
        """
        with shown(progress) as tell:
            return await keyword_index.optimize(await self._ready(), tell)

    async def reindex_keyword(self, progress: ProgressOption = None) -> Rebuilt:
        """Makes the keyword index (engine ``bm25``) anew from the stored texts, while it is searched and written.

        It is the way to another version of the analyzer, and the way out of a damaged index.

        Raises:
            ConfigurationError: The collection has another keyword engine.
        """
        with shown(progress) as tell:
            return await keyword_index.reindex(await self._ready(), tell)

    async def status(self, *, exact: bool = False) -> CollectionStatus:
        """Where the collection is, and its figures: counts, model, indexes, the last run.

        Large tables are estimated (``estimated`` is True), and what only a count can give is None, unless `exact`.
        """
        check_parameters(kind_errors("exact", exact, bool))

        async def read(indexer: Indexer) -> CollectionStatus:
            opened, folder = indexer.opened, self._resources.data_folder
            log = self._resources.query_log.figures(opened.database.role, opened.info)
            return await collection_status(
                opened.database, opened.info, opened.query_cache, data_folder=folder, query_log=log, exact=exact
            )

        return await self._reading(read)

    async def drop(self) -> bool:
        """Drops the collection with everything in it; whether it was there."""
        database = (await self._ready()).database
        self._indexer = None
        return await drop_collection(database, self.names)
