"""Files in: found, read, cut, embedded, and written; the next batch is read while one is written."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest import prepare_file
from semlex.ingest.chunking import Chunker
from semlex.ingest.files.discovery import FileProblem, FoundFile, find_document
from semlex.ingest.files.roots import check_root, plan_places, vanished
from semlex.ingest.files.selection import Selection
from semlex.ingest.loaders.base import LoadOptions
from semlex.ingest.loaders.registry import loaders
from semlex.ingest.progress import IndexReport, Progress
from semlex.store.schema.presence import hold_collection
from semlex.store.write import documents
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.chunks import write_chunks
from semlex.store.write.sources import (
    KnownDocument,
    Source,
    known_documents,
    read_sources,
    unknown_source,
    write_source,
)
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from datetime import datetime

    from semlex.ingest.files.roots import Place
    from semlex.ingest.indexer import Indexer
    from semlex.parameters import WantedOptions
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.chunks import WriteMode

# A batch of files is written as soon as it holds this many chunks, so that progress is visible and little is lost.
FILE_BATCH_CHUNKS = 1_000
LOGGED_PROBLEMS = 1_000
# Root of a source -> the source, and the documents that were read from it before.
OpenSources = dict[str, tuple[Source, dict[uuid.UUID, KnownDocument]]]


class FileRun:
    """One run over files.

    Args:
        indexer: Of the collection.
        wanted: How the caller wants files to be cut.
        progress: Called as the work goes on.
    """

    def __init__(self, indexer: Indexer, wanted: WantedOptions, progress: Callable[[Progress], None] | None) -> None:
        self._indexer = indexer
        self._database = indexer.database
        self._wanted = wanted
        self._progress = progress
        self._run_id = uuid.uuid4()
        self._started, self._begun = time.perf_counter(), utc_now()
        self.report = IndexReport()
        self._loaders = loaders()
        # Settings by which the files are cut, until they are stored.
        self._unstored: tuple[int, int] | None = None

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
        selection = Selection(include, exclude, self._loaders.keys(), recursive)
        found, problems, skipped = await asyncio.to_thread(prepare_file.list_files, [*places, *missing], selection)
        self._fail(problems)
        self.report.skipped = skipped.by_reason()
        where = ", ".join(str(path) for path in paths)
        await self._log("index", where)
        sources = await self._open_sources(places)
        await self._write_all(found, sources, self._reading(chunker, options))
        if self._unstored is not None and self.report.unchanged:  # an older version stored the files, not the settings
            settings = self._unstored
            await self._database.write("store the chunk settings", lambda c: self._settle(c, settings))
            self._indexer.opened.info = self._cut_as(*settings)
        await self._count_vanished(places, sources, {(str(file.root), file.uri) for file in found})
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
        chunk_tokens, overlap_tokens = self._wanted.rechunk_settings(*stored)
        reading = self._reading(Chunker(counter, chunk_tokens, overlap_tokens), LoadOptions())
        sources = await self._all_sources(source)
        if not dry_run:
            await self._database.write(
                "store the chunk settings",
                lambda c: documents.store_chunk_settings(c, self._indexer.collection, chunk_tokens, overlap_tokens),
            )
            self._indexer.opened.info = self._cut_as(chunk_tokens, overlap_tokens)
            await self._indexer.ensure_version(None)
        found: list[FoundFile] = []
        for one, known in sources.values():
            root = Path(one.root)
            for document in sorted(known.values(), key=lambda document: document.uri):
                if not reading.is_outdated(document):
                    self.report.unchanged += 1
                    continue
                file = await asyncio.to_thread(find_document, root, document.uri)
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

    def _reading(self, chunker: Chunker, options: LoadOptions) -> prepare_file.Reading:
        with_context = self._indexer.collection.settings.with_context
        return prepare_file.Reading(chunker, self._loaders, options, with_context)

    async def _plan(self, paths: Sequence[Path], source: str | None) -> tuple[list[Place], list[Path]]:
        known = await self._database.read("read the sources", lambda c: read_sources(c, self._indexer.collection))
        return await asyncio.to_thread(plan_places, paths, {one.name: one.root for one in known}, source)

    async def _chunker(self) -> Chunker:
        """What cuts the files of this collection; its settings are stored with the first files.

        Raises:
            CollectionSettingsError: Other settings are wanted than the stored ones.
        """
        counter = self._indexer.token_counter()
        # Another process may have changed them since this one opened the collection.
        stored = await self._database.read(
            "read the chunk settings", lambda c: documents.stored_chunk_settings(c, self._indexer.collection)
        )
        self._check(self._cut_as(*stored))
        pairs = zip(stored, self._wanted.chunk_settings(), strict=True)
        chunk_tokens, overlap_tokens = (wanted if found is None else found for found, wanted in pairs)
        if None in stored:
            self._unstored = (chunk_tokens, overlap_tokens)
        else:
            self._indexer.opened.info = self._cut_as(*stored)
        return Chunker(counter, chunk_tokens, overlap_tokens)

    def _check(self, collection: CollectionInfo) -> None:
        self._wanted.check(collection.names.collection, collection.options)

    def _cut_as(self, chunk_tokens: int | None, overlap_tokens: int | None) -> CollectionInfo:
        collection = self._indexer.collection
        settings = replace(collection.settings, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
        return replace(collection, settings=settings)

    async def _settle(self, connection: Connection, chunk_settings: tuple[int, int]) -> None:
        """Stores the settings by which the files of this run are cut; the first run that does so decides."""
        settled = await documents.settle_chunk_settings(connection, self._indexer.collection, *chunk_settings)
        if settled != chunk_settings:
            raise ConfigurationError(
                f"another run has begun to cut this collection's files with chunk_tokens={settled[0]} and "
                f"overlap_tokens={settled[1]} in the meantime: leave yours out, or give these, and try again"
            )

    async def _open_sources(self, places: Sequence[Place]) -> OpenSources:
        """The sources of places, made where they are new."""
        roots = {place.source: str(place.root) for place in places}

        async def work(connection: Connection) -> OpenSources:
            collection = self._indexer.collection
            known_roots = {one.name: one.root for one in await read_sources(connection, collection)}
            if not roots.items() <= known_roots.items():
                # Another run may make a source above or below since it was planned.
                await hold_collection(connection, collection, alone=True)
                known_roots = {one.name: one.root for one in await read_sources(connection, collection)}
                for name in roots.keys() - known_roots.keys():
                    check_root(Path(roots[name]), name, known_roots)
            opened: list[Source] = []
            for name, root in sorted(roots.items()):
                source = await write_source(connection, collection, name, root, utc_now())
                if source is None:  # since it was planned
                    raise ConfigurationError(f"the source {name!r} has got another folder in the meantime: try again")
                opened.append(source)
            known = await known_documents(connection, collection, [source.source_id for source in opened])
            return {source.root: (source, known[source.source_id]) for source in opened}

        return await self._database.write("open the sources", work)

    async def _all_sources(self, name: str | None) -> OpenSources:
        async def work(connection: Connection) -> OpenSources:
            collection = self._indexer.collection
            found = await read_sources(connection, collection)
            wanted = [source for source in found if name in (None, source.name)]
            if name is not None and not wanted:
                raise unknown_source(name, found)
            known = await known_documents(connection, collection, [source.source_id for source in wanted])
            return {source.root: (source, known[source.source_id]) for source in wanted}

        return await self._database.read("read the sources", work)

    async def _count_vanished(self, places: Sequence[Place], sources: OpenSources, found: set[tuple[str, str]]) -> None:
        """Counts the documents below the places whose file is gone."""
        below: dict[str, list[str]] = {}
        for place in places:
            below.setdefault(str(place.root), []).append(place.path.relative_to(place.root).as_posix())
        for root, parts in below.items():
            source, known = sources[root]
            uris = [
                document.uri
                for document in known.values()
                if (root, document.uri) not in found and _is_below(document.uri, parts)
            ]
            if gone := await asyncio.to_thread(vanished, Path(root), uris):
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

    def _fail(self, problems: Sequence[FileProblem]) -> None:
        self.report.problems += problems
        self.report.failed += len(problems)

    # --- files ------------------------------------------------------------------------------------------------------

    async def _write_all(
        self,
        found: list[FoundFile],
        sources: OpenSources,
        reading: prepare_file.Reading,
        *,
        again: bool = False,
        dry_run: bool = False,
    ) -> None:
        indexer = self._indexer
        cut_before = indexer.documents_cut()
        empty = await self._database.read("look at the collection", lambda c: documents.is_empty(c, indexer.collection))
        async with aclosing(self._read_ahead(found, sources, reading, again=again)) as batches:
            async for batch in batches:
                if dry_run:
                    await self._count(batch)
                else:
                    await self._write(batch, "direct" if empty else "merge")
        self.report.cut = indexer.documents_cut() - cut_before

    async def _read_ahead(
        self, found: list[FoundFile], sources: OpenSources, reading: prepare_file.Reading, *, again: bool
    ) -> AsyncGenerator[list[prepare_file.PreparedFile], None]:
        """Batches of files, read and cut; the next batch is made while the caller writes this one.

        When it is closed, the file that is being read is the last one, and it is waited for.
        """
        report = self.report
        position = 0
        ended = False

        def next_batch() -> list[prepare_file.PreparedFile]:
            nonlocal position
            batch: list[prepare_file.PreparedFile] = []
            chunks = 0
            while position < len(found) and chunks < FILE_BATCH_CHUNKS and not ended:
                file = found[position]
                position += 1
                source, known = sources[str(file.root)]
                prepared = prepare_file.prepare_file(file, source, known, reading, again=again)
                if isinstance(prepared, prepare_file.UnchangedFile):
                    report.unchanged += 1
                    report.outdated += prepared.is_outdated
                elif isinstance(prepared, FileProblem):
                    self._fail([prepared])
                else:
                    batch.append(prepared)
                    chunks += len(prepared.chunks)
            return batch

        loop = asyncio.get_running_loop()
        pending = loop.run_in_executor(None, next_batch)
        try:
            while True:
                batch = await asyncio.shield(pending)
                read = position
                more = read < len(found)
                if more:
                    pending = loop.run_in_executor(None, next_batch)
                if batch:
                    yield batch
                if self._progress is not None:
                    self._progress(Progress("read", read, len(found), "files"))
                if not more:
                    return
        finally:
            ended = True
            await asyncio.gather(pending, return_exceptions=True)

    async def _write(self, batch: list[prepare_file.PreparedFile], mode: WriteMode) -> None:
        indexer, report = self._indexer, self.report
        rows = _rows_of(batch)
        if indexer.embedder is not None and len(rows):
            wanted = await indexer.changed_rows(rows, "update")
            before = report.embedded

            def show_progress(count: int) -> None:
                if self._progress is not None:
                    self._progress(Progress("embed", before + count, before + len(wanted), "chunks"))

            await indexer.embed_rows(rows, wanted, show_progress)
            report.embedded += len(wanted)
        new: set[uuid.UUID] = set()

        async def work(connection: Connection, mode: WriteMode) -> None:
            if self._unstored is not None:
                await self._settle(connection, self._unstored)
            await write_chunks(
                connection,
                indexer.collection,
                rows,
                mode=mode,
                documents=[prepared.row for prepared in batch],
                new_documents=new,
                bulk=indexer.bulk,
            )

        await indexer.write_batch("index files", mode, work)
        if self._unstored is not None:
            indexer.opened.info, self._unstored = self._cut_as(*self._unstored), None
        indexer.sample.note_written(len(rows))
        report.chunks += len(rows)
        report.added += len(new)
        report.changed += len(batch) - len(new)

    async def _count(self, batch: list[prepare_file.PreparedFile]) -> None:
        """What `_write` would do."""
        rows = _rows_of(batch)
        self.report.chunks += len(rows)
        self.report.changed += len(batch)
        if self._indexer.embedder is not None and len(rows):
            self.report.embedded += len(await self._indexer.changed_rows(rows, "update"))


def _rows_of(batch: Sequence[prepare_file.PreparedFile]) -> ChunkBatch:
    return ChunkBatch.joined([prepared.chunks for prepared in batch])


def _is_below(uri: str, parts: Sequence[str]) -> bool:
    return any(part in (".", uri) or uri.startswith(f"{part}/") for part in parts)
