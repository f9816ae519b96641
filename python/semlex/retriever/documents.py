"""Operations on the documents of a collection and their sources: list, read, outline, split again, describe."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from semlex.errors import ConfigurationError
from semlex.ingest.document_states import DocumentStates, documents_with_states
from semlex.ingest.enrichment import Enrichment, checked_enrichment, enrichment_run
from semlex.ingest.files.absence import places_of, why_absent
from semlex.ingest.files.roots import check_root, existing_root
from semlex.ingest.loaders.base import Extract, MetadataExtraction, checked_extraction
from semlex.ingest.loaders.registry import structure_named
from semlex.ingest.run import FileRun, known_sources
from semlex.options.declare import check_options, operation, picked
from semlex.options.indexing import ChunkSizes, RechunkOptions
from semlex.progress import ProgressOption, shown
from semlex.retriever.handle import Handle, Part
from semlex.search.passages import headings_of, text_of
from semlex.store.query.chunks import fetch_documents
from semlex.store.query.documents import Records, find_named, read_known_sources, read_records, without_line
from semlex.store.schema.locks import hold_collection
from semlex.store.write import sources as stored_sources
from semlex.types.documents import MAX_ID_BYTES, Outline, StoredChunk, WholeDocument, utc_now
from semlex.validation import (
    check_parameters,
    check_rows,
    kind_errors,
    text_errors,
    text_parameter,
    whole_number_errors,
)

if TYPE_CHECKING:
    from semlex.chat import ChatModel
    from semlex.ingest.progress import EnrichmentReport, IndexReport
    from semlex.open_collection import OpenCollection
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.documents import KnownSource, NamedDocument
    from semlex.store.write.sources import SourceInfo
    from semlex.types.explanations import Reason

    # The class has methods called `list` and `sources`.
    Chunks = list[StoredChunk]
    KnownSources = list[KnownSource]
    Sources = list[SourceInfo]
    Places = list[tuple[str, str]]


MAX_LISTED = 1_000_000
# The longest path that is taken.
MAX_PATH_BYTES = 8 * MAX_ID_BYTES


class Documents(Part):
    """Operations on the documents of a collection and their sources; `Collection.documents` returns them."""

    @operation("list documents", "read")
    async def list(
        self, source: str | None = None, *, limit: int | None = None, after: str | None = None
    ) -> DocumentStates:
        """Return the documents that were read from files, with the state of each file, and the last run's problems.

        A file with the same size, times and inode as in the last run is not read. Documents that `add_documents` stored
        are not listed.

        Args:
            source: Name of the only source to list.
            limit: Maximum number of documents, up to 1,000,000; None: all.
            after: ``next_after`` of the previous page.

        Raises:
            ConfigurationError: The source does not exist.
        """
        check_parameters(
            text_parameter("source", source),
            [] if limit is None else whole_number_errors("limit", limit, 1, MAX_LISTED),
            text_parameter("after", after),
        )

        limits = self._handle.resources.file_limits

        async def read(opened: OpenCollection) -> DocumentStates:
            return await documents_with_states(opened.reader, opened.info, source, limits, limit=limit, after=after)

        return await self._handle.reading(read)

    @operation("get document", "read")
    async def get(self, document: str) -> WholeDocument:
        """Return a document's text and chunks; for a line (``keys.md:9``) or a chunk's id, only the chunks there.

        Args:
            document: As for `why`.

        Raises:
            ValidationError: The name is refused.
            ConfigurationError: The name means several documents, or none; the message says why.
        """
        named, chunks = await named_document(self._handle, document)
        return WholeDocument(named.name, text_of(chunks), tuple(chunks), named.notes)

    @operation("outline", "read")
    async def outline(self, document: str) -> Outline:
        """Return the headings of a document in order, each with its line and the chunks below it.

        Args:
            document: As for `why`.

        Raises:
            ValidationError: The name is refused.
            ConfigurationError: The name means several documents, or none; the message says why.
        """
        named, chunks = await named_document(self._handle, document)
        structure = structure_named(chunks[0].source_document) if chunks else "plain"
        return Outline(named.name, headings_of(chunks, structure), named.notes)

    @operation("list sources", "read")
    async def sources(self) -> Sources:
        """Return every source with its counts, sorted by name."""
        return await self._handle.read("list the sources", stored_sources.list_sources)

    @operation("move source", "write")
    async def move_source(self, name: str, root: str | Path) -> None:
        """Store the new path of a source's folder, after the folder was moved. The stored documents do not change.

        Args:
            name: Name of the source.
            root: The folder's new path.

        Raises:
            ConfigurationError: The source does not exist, `root` is not a folder, or it contains or lies in the folder
                of another source.
        """
        check_parameters(text_errors("name", name, blank=False), kind_errors("root", root, str, Path))
        check_parameters(text_errors("root", str(root), blank=False))
        indexer = await self._handle.indexer()
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

    @operation("rechunk", "admin")
    async def rechunk(
        self,
        *,
        extract_metadata: MetadataExtraction | Extract | None = None,
        progress: ProgressOption = None,
        **options: Unpack[RechunkOptions],
    ) -> IndexReport:
        """Read and split documents again from their files, if an older version of semlex read or split them.

        If you give other settings, all documents are split again, and the collection keeps the settings. A chunk whose
        text stays the same keeps its vector. Repeat the call to complete a run that was interrupted.

        Args:
            extract_metadata: As for `index`; if you leave it out, chunks that are split again lose the metadata that an
                earlier extraction gave them.
            progress: Called as the work proceeds; ``bar`` shows a progress bar.
            **options: See `RechunkOptions`.

        Raises:
            ConfigurationError: A number is out of range, the source does not exist, or chunk settings are given
                together with `source`.
        """
        check_options(RechunkOptions, options, "rechunk")
        bars, source, dry_run = shown(progress), options.get("source"), options.get("dry_run", False)
        given = picked(ChunkSizes, options)
        if source is not None and any(value is not None for value in given.values()):
            raise ConfigurationError("chunk settings apply to the whole collection: leave source out")
        extraction = checked_extraction(extract_metadata)
        with bars as tell:
            run = FileRun(await self._handle.indexer(), self._handle.wanted.saying(**given), tell, extraction)
            report = await run.rechunk(source=source, dry_run=dry_run)
        if not dry_run:
            self._handle.wanted = self._handle.wanted.without(
                *(name for name, value in given.items() if value is not None)
            )
        return report

    @operation("enrich", "write")
    async def enrich(
        self,
        enrichment: Enrichment | str | ChatModel,
        *,
        source: str | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
    ) -> EnrichmentReport:
        """Let a language model write a one-line description of each chunk that has none, and store it with the chunk.

        The description says what the chunk is about, in words that people would use in a question. Vector
        and keyword search use it together with the chunk's text, which stays as it is. The model is sent the titles and
        the text of each chunk. A chunk keeps its description until its titles or text change. Repeat the call to
        continue an interrupted run.

        Args:
            enrichment: A language model, its name, or an `Enrichment`, which also sets how the model is asked.
            source: Name of the only source whose chunks are described.
            dry_run: Whether to estimate the cost only; nothing is sent then.
            progress: Called as the work proceeds; ``bar`` shows a progress bar.

        Raises:
            ConfigurationError: The model's name cannot be used, or the source does not exist.
            ModelError: The model fails before the first description; nothing was written.
            EmbeddingsMissingError: The collection has vectors, and their model is not open.
        """
        check_parameters(text_parameter("source", source), kind_errors("dry_run", dry_run, bool))
        bars = shown(progress)
        wanted = checked_enrichment(enrichment)
        if wanted is None:
            raise ConfigurationError("enrichment must name a language model: openai:MODEL, http(s)://HOST/v1#MODEL, …")
        indexer = await self._handle.indexer()
        key = None
        if source is not None:
            ((found, _),) = (await known_sources(indexer.database, indexer.collection, source)).values()
            key = found.source_id
        with bars as tell:
            async with enrichment_run(indexer, wanted, tell) as work:
                if dry_run or wanted.dry_run:
                    return await work.estimated(source=key)
                if await work.count(source=key):
                    await work.check()
                return await work.run(source=key)


async def named_document(handle: Handle, document: str) -> tuple[NamedDocument, Chunks]:
    """Return the document that a name means, with its chunks in order."""
    check_rows("document", [document], max_bytes=MAX_PATH_BYTES, blank=False)

    async def read(opened: OpenCollection) -> tuple[NamedDocument, Chunks]:
        sources, places = await document_places(handle, opened, document)

        async def look(connection: Connection) -> tuple[NamedDocument, Chunks] | Records:
            named = await find_named(connection, handle.names, document, places)
            if named is None:
                return await read_records(connection, handle.names)
            ids = [chunk_id for _, chunk_id in named.keys]
            found = await fetch_documents(connection, opened.info, ids)
            return named, [found[one] for one in ids if one in found]

        found = await opened.reader.read("read a document", look)
        if isinstance(found, Records):
            absent = await absence(handle, document, sources, places, found)
            remedy = f"; remedy: {absent.remedy}" if absent.remedy else ""
            raise ConfigurationError(f"document {document!a} not found: {absent.text}{remedy}")
        return found

    return await handle.reading(read)


async def document_places(handle: Handle, opened: OpenCollection, document: str) -> tuple[KnownSources, Places]:
    """Return the known sources, and the (source, path) pairs that a document's name may mean on this machine."""
    sources = await opened.reader.read(
        "read the sources", lambda connection: read_known_sources(connection, handle.names)
    )
    # Of a file whose name ends like a line, both are looked for.
    names = dict.fromkeys((document, without_line(document)))
    return sources, [place for one in names for place in await asyncio.to_thread(places_of, one, sources)]


async def absence(handle: Handle, document: str, sources: KnownSources, places: Places, records: Records) -> Reason:
    """Return why no document of this name was found."""
    name = without_line(document)
    limits = handle.resources.file_limits
    return await asyncio.to_thread(why_absent, name, places, sources, records, handle.names.collection, limits=limits)
