"""Files in: what is read and into which source, what the run reports, and the cutting of documents anew."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest import prepare_file
from semlex.ingest.chunking import Chunker
from semlex.ingest.document_chunks import Reading
from semlex.ingest.files.discovery import FileProblem, FoundFile, find_document
from semlex.ingest.files.roots import is_below, plan_places, vanished
from semlex.ingest.files.selection import Selection, kind_of
from semlex.ingest.loaders.base import LoadOptions
from semlex.ingest.loaders.registry import loaders
from semlex.ingest.open_sources import OpenSources, known_sources, open_sources, refuse_moved
from semlex.ingest.pipeline import FilePipeline
from semlex.ingest.progress import IndexReport
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.write import documents
from semlex.store.write.sources import FileState, read_sources, store_file_states
from semlex.types.chunks import ChunkSettings
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from semlex.ingest.files.roots import Place
    from semlex.ingest.indexer import Indexer
    from semlex.ingest.loaders.extraction import MetadataExtraction
    from semlex.ingest.progress import Progress
    from semlex.parameters import WantedOptions
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.sources import KnownDocument

LOGGED_PROBLEMS = 1_000
STATES_AT_ONCE = 10_000


class FileRun:
    """One run over files."""

    def __init__(
        self,
        indexer: Indexer,
        wanted: WantedOptions,
        progress: Callable[[Progress], None] | None,
        extraction: MetadataExtraction | None = None,
    ) -> None:
        self._indexer = indexer
        self._database = indexer.database
        self._wanted = wanted
        self._progress = progress
        self._extraction, self._loop = extraction, asyncio.get_running_loop()
        self._run_id = uuid.uuid4()
        self._started, self._begun = time.perf_counter(), utc_now()
        self.report = IndexReport()
        self._loaders = loaders()
        self._deleted = 0
        self._states: list[FileState] = []
        self._new_roots: set[Path] = set()
        # Keys of the documents of all files that were found.
        self.documents: list[UUID] = []
        # Settings by which the files are cut, until they are stored.
        self._unstored: ChunkSettings | None = None

    async def index(
        self,
        paths: Sequence[Path],
        *,
        source: str | None,
        include: Sequence[str] | None,
        exclude: Sequence[str],
        recursive: bool,
        options: LoadOptions,
    ) -> IndexReport:
        """Reads files, cuts them and writes their chunks; see `PostgreSQLRetriever.index`."""
        self._indexer.refuse_write()
        self._check(self._indexer.collection)
        places, missing = await self._plan(paths, source)
        chunker = await self._chunker()
        await self._indexer.ensure_version(None)
        selection = Selection(include, exclude, self._loaders.keys(), recursive, self._indexer.limits)
        found, problems, skipped = await asyncio.to_thread(prepare_file.list_files, [*places, *missing], selection)
        await self._refuse_moved(found)
        self._fail(problems)
        self.report.skipped = skipped.by_reason()
        where = ", ".join(str(path) for path in paths)
        await self._log("index", where)
        sources = await open_sources(self._database, self._indexer.collection, places)
        self._note_documents(found, sources)
        await self._write_all(found, sources, self._reading(chunker, options))
        await self._count_vanished(places, sources, found)
        return await self._finish("index", where)

    async def rechunk(self, *, source: str | None, dry_run: bool) -> IndexReport:
        """Cuts documents anew; see `PostgreSQLRetriever.rechunk`."""
        if not dry_run:
            self._indexer.refuse_write()
        counter = self._indexer.token_counter()
        # Another process may have changed them since this one opened the collection.
        stored = await self._database.read(
            "read the chunk settings", lambda c: documents.stored_chunk_settings(c, self._indexer.collection)
        )
        settings = self._wanted.rechunk_settings(stored)
        reading = self._reading(Chunker(counter, settings), LoadOptions())
        sources = await known_sources(self._database, self._indexer.collection, source)
        if not dry_run:
            await self._database.write(
                "store the chunk settings",
                lambda c: documents.store_chunk_settings(c, self._indexer.collection, settings),
            )
            self._indexer.opened.info = self._cut_as(*settings)
            await self._indexer.ensure_version(None)
        found: list[FoundFile] = []
        for one, known in sources.values():
            root = Path(one.root)
            for document in sorted(known.values(), key=lambda document: document.uri):
                if not reading.is_outdated(document):
                    self.report.unchanged += 1
                    continue
                file = await asyncio.to_thread(find_document, root, document.uri, self._indexer.limits)
                if isinstance(file, FileProblem):
                    self._fail([file])
                else:
                    found.append(file)
        if not dry_run:
            await self._log("rechunk", source or "")
        await self._write_all(found, sources, reading, again=True, dry_run=dry_run)
        if dry_run:
            self.report.seconds = time.perf_counter() - self._started
            return self.report
        return await self._finish("rechunk", source or "")

    # --- before and after -------------------------------------------------------------------------------------------

    def _reading(self, chunker: Chunker, options: LoadOptions) -> Reading:
        with_context = self._indexer.collection.settings.with_context
        return Reading(chunker, self._loaders, options, with_context, self._extraction, self._loop)

    async def _plan(self, paths: Sequence[Path], source: str | None) -> tuple[list[Place], list[Path]]:
        known = await self._database.read("read the sources", lambda c: read_sources(c, self._indexer.collection))
        roots = {one.name: one.root for one in known}
        places, missing = await asyncio.to_thread(plan_places, paths, roots, source)
        if source is None:  # a name that is given means another source
            self._new_roots = {place.root for place in places if place.source not in roots}
        return places, missing

    async def _refuse_moved(self, found: Sequence[FoundFile]) -> None:
        """Refuses a folder that would be a new source, and holds the files of one whose folder is gone."""
        new = [file for file in found if file.root in self._new_roots]
        if not new:
            return
        known = await known_sources(self._database, self._indexer.collection)
        await asyncio.to_thread(refuse_moved, new, known)

    async def _chunker(self) -> Chunker:
        """What cuts the files of this collection; its settings are stored with the first files."""
        counter = self._indexer.token_counter()
        # Another process may have changed them since this one opened the collection.
        stored = await self._database.read(
            "read the chunk settings", lambda c: documents.stored_chunk_settings(c, self._indexer.collection)
        )
        if stored is None:
            self._unstored = self._wanted.chunk_settings()
            return Chunker(counter, self._unstored)
        self._check(self._cut_as(*stored))
        self._indexer.opened.info = self._cut_as(*stored)
        return Chunker(counter, stored)

    def _check(self, collection: CollectionInfo) -> None:
        self._wanted.check(collection.names.collection, collection.options)

    def _cut_as(self, *settings: int) -> CollectionInfo:
        collection = self._indexer.collection
        return replace(collection, settings=replace(collection.settings, chunk_settings=ChunkSettings(*settings)))

    async def _settle(self, connection: Connection) -> None:
        """Stores the settings by which the files of this run are cut, with the first files; the first run decides."""
        wanted = self._unstored
        if wanted is None:
            return
        settled = await documents.settle_chunk_settings(connection, self._indexer.collection, wanted)
        if settled != wanted:
            numbers = ", ".join(f"{name}={number}" for name, number in settled._asdict().items())
            raise ConfigurationError(
                f"another run has begun to cut this collection's files with {numbers} in the meantime: leave yours "
                "out, or give these, and try again"
            )

    async def _count_vanished(self, places: Sequence[Place], sources: OpenSources, found: Sequence[FoundFile]) -> None:
        """Counts the documents below the places whose file is gone."""
        below: dict[Path, list[str]] = {}
        for place in places:
            below.setdefault(place.root, []).append(place.path.relative_to(place.root).as_posix())
        for root, parts in below.items():
            source, known = sources[str(root)]
            if not known:
                continue
            if gone := await asyncio.to_thread(_vanished_below, root, frozenset(parts), known.values(), found):
                self.report.vanished[source.name] = len(gone)

    async def _log(self, command: str, where: str, finished: datetime | None = None) -> None:
        report, model = self.report, self._indexer.model_name
        entry = documents.LogEntry(
            run_id=self._run_id,
            source_uri=where,
            command=command,
            client=documents.client_name(),
            embedding_model=model,
            started_at=self._begun,
            finished_at=finished,
            seconds=report.seconds if finished else None,
            added=report.added,
            changed=report.changed,
            unchanged=report.unchanged,
            deleted=self._deleted,
            failed=report.failed,
            chunks=report.chunks,
            problems=[{"uri": one.uri, "code": one.code} for one in report.problems[:LOGGED_PROBLEMS]],
        )
        await self._database.write("write the log", lambda c: documents.log_run(c, self._indexer.collection, entry))

    async def _finish(self, command: str, where: str) -> IndexReport:
        self.report.warnings += await self._indexer.end_load(self.report.chunks, self._progress)
        self.report.seconds = time.perf_counter() - self._started
        await self._log(command, where, utc_now())
        return self.report

    def _note_documents(self, found: Sequence[FoundFile], sources: OpenSources) -> None:
        self.documents = [indexed_document_id(sources[str(file.root)][0].key, file.uri) for file in found]

    def _note_unread(self, file: prepare_file.UnchangedFile | prepare_file.SkippedFile | FileProblem) -> None:
        if isinstance(file, FileProblem):
            self._fail([file])
        elif isinstance(file, prepare_file.SkippedFile):
            kinds = self.report.skipped.setdefault("bad_text", {})
            kind = kind_of(file.uri.rpartition("/")[2])
            kinds[kind] = kinds.get(kind, 0) + 1
        else:
            self.report.unchanged += 1
            self.report.outdated += file.is_outdated
            if file.state is not None:
                self._states.append(file.state)

    def _note_repaired(self, file: prepare_file.PreparedFile) -> None:
        self.report.repaired += file.repaired > 0
        self.report.repaired_characters += file.repaired

    def _fail(self, problems: Sequence[FileProblem]) -> None:
        self.report.problems += problems
        self.report.failed += len(problems)

    # --- files ------------------------------------------------------------------------------------------------------

    async def _write_all(
        self,
        found: list[FoundFile],
        sources: OpenSources,
        reading: Reading,
        *,
        again: bool = False,
        dry_run: bool = False,
    ) -> None:
        def prepare(file: FoundFile) -> prepare_file.PreparedFile | None:
            source, known = sources[str(file.root)]
            prepared = prepare_file.prepare_file(file, source, known, reading, again=again)
            if isinstance(prepared, prepare_file.PreparedFile):
                self._note_repaired(prepared)
                return prepared
            self._note_unread(prepared)
            return None

        pipeline = FilePipeline(self._indexer, self.report, self._progress, prepare, self._settle)
        await pipeline.run(found, dry_run=dry_run)
        if not dry_run:
            if self._unstored is not None and (self.report.added or self.report.changed):
                self._indexer.opened.info, self._unstored = self._cut_as(*self._unstored), None
            await self._store_states()

    async def _store_states(self) -> None:
        """Lets the next run know the files that were read and had not changed."""
        while self._states:
            part, self._states = self._states[:STATES_AT_ONCE], self._states[STATES_AT_ONCE:]
            await self._database.write(
                "store the states of files",
                partial(store_file_states, collection=self._indexer.collection, states=part),
            )


def _vanished_below(
    root: Path, parts: frozenset[str], known: Iterable[KnownDocument], found: Sequence[FoundFile]
) -> list[str]:
    there = {file.uri for file in found if file.root == root}
    uris = [document.uri for document in known if document.uri not in there]
    return vanished(root, [uri for uri in uris if is_below(uri, parts)])
