"""One run over files: find, read, split, compare with what is stored, embed, write, and report."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from contextlib import aclosing, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from semlex.errors import ConfigurationError
from semlex.ingest.batches import ahead, in_parts
from semlex.ingest.chunk_rows import PreparedFile, SkippedFile, UnchangedFile, prepare_file
from semlex.ingest.document_chunks import Chunker, Reading
from semlex.ingest.files.discovery import FileProblem, FoundFile, find_document, list_files, read_file
from semlex.ingest.files.roots import Place, check_root, is_below, plan_places, vanished
from semlex.ingest.files.selection import Selection, kind_of
from semlex.ingest.indexer import Indexer, RunChunker, RunLog
from semlex.ingest.loaders.base import FileBytes, LoadOptions, MetadataExtraction
from semlex.ingest.loaders.registry import loaders
from semlex.ingest.progress import IndexReport, Progress, show_progress
from semlex.store.descriptions import has_line
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.schema.locks import hold_collection
from semlex.store.write import documents
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.chunks import WriteMode, write_chunks
from semlex.store.write.sources import (
    FileState,
    KnownDocument,
    Source,
    known_documents,
    read_sources,
    store_file_states,
    unknown_source,
    write_source,
)
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

    from semlex.options.collection import WantedOptions
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.documents import DocumentRow


# A batch is one transaction. With a model it takes seconds, so that progress is visible and little is lost; without
# one its own cost is what counts.
BATCH_CHUNKS = 1_000
BATCH_CHUNKS_WITHOUT_MODEL = 4_000
BATCH_BYTES = 8 * 1024 * 1024
# Limit for files that are read but not written; one more batch may come. Rows take about five times as much.
MAX_BYTES_AHEAD = 24 * 1024 * 1024
# Minimum bytes per row: small rows take memory, too.
ROW_BYTES = 2_048
LOGGED_PROBLEMS = 1_000
STATES_AT_ONCE = 10_000


@dataclass(slots=True)
class FileBatch:
    """Files that are written in one transaction, and files that need no writing."""

    documents: list[DocumentRow]
    rows: ChunkBatch
    unwritten: list[UnchangedFile | SkippedFile | FileProblem]
    # Replaced characters of each file.
    repaired: list[int]
    # Bytes of all files; and of those to write, or of their rows if these are more.
    read_bytes: int
    size: int
    # Numbers of the rows that need a vector.
    wanted: Sequence[int] = ()


# Root of a source -> the source and its known documents.
OpenSources: TypeAlias = dict[str, tuple[Source, dict[UUID, KnownDocument]]]


async def open_sources(database: Database, collection: CollectionInfo, places: Sequence[Place]) -> OpenSources:
    """Return the sources of these places, with their known documents; create sources that do not exist."""
    roots = {place.source: str(place.root) for place in places}

    async def work(connection: Connection) -> OpenSources:
        known_roots = {one.name: one.root for one in await read_sources(connection, collection)}
        if not roots.items() <= known_roots.items():
            # Another run may have created a source above or below meanwhile.
            await hold_collection(connection, collection, alone=True)
            known_roots = {one.name: one.root for one in await read_sources(connection, collection)}
            for name in roots.keys() - known_roots.keys():
                check_root(Path(roots[name]), name, known_roots)
        opened: list[Source] = []
        for name, root in sorted(roots.items()):
            source = await write_source(connection, collection, name, root, utc_now())
            if source is None:  # since it was planned
                raise ConfigurationError(f"another process has moved the source {name!r} to another folder: try again")
            opened.append(source)
        return await _with_documents(connection, collection, opened)

    return await database.write("open the sources", work)


async def known_sources(database: Database, collection: CollectionInfo, name: str | None = None) -> OpenSources:
    """Return the named source, or all sources, with their known documents."""

    async def work(connection: Connection) -> OpenSources:
        found = await read_sources(connection, collection)
        wanted = [source for source in found if name in (None, source.name)]
        if name is not None and not wanted:
            raise unknown_source(name, found)
        return await _with_documents(connection, collection, wanted)

    return await database.read("read the sources", work)


def refuse_moved(found: Sequence[FoundFile], known: OpenSources) -> None:
    """Refuse a new source that has at least half of the files of a known source whose folder is gone."""
    files: dict[Path, dict[str, FoundFile]] = {}
    for file in found:
        files.setdefault(file.root, {})[file.uri] = file
    for source, stored in known.values():
        if not stored or os.path.exists(source.root):  # noqa: PTH110 - says False where Path would raise
            continue
        for root, by_uri in files.items():
            pairs = [(by_uri[one.uri], one) for one in stored.values() if one.uri in by_uri]
            alike = [(file, one) for file, one in pairs if file.size == one.size_bytes]
            needed = (len(stored) + 1) // 2
            if len(alike) >= needed and sum(_is_same(*pair) for pair in alike) >= needed:
                move = f"semlex documents move {shlex.quote(source.name)} {shlex.quote(str(root))}"
                raise ConfigurationError(
                    f"{root} has the files of the source {source.name!r}, whose folder {source.root} does not exist "
                    f"any more. If that folder has moved here: {move}. If not, give this folder its own name with "
                    "--source NAME (source=)"
                )


def _is_same(file: FoundFile, document: KnownDocument) -> bool:
    read = read_file(file)
    return isinstance(read, FileBytes) and read.content_hash == document.content_hash


async def _with_documents(connection: Connection, collection: CollectionInfo, sources: Sequence[Source]) -> OpenSources:
    known = await known_documents(connection, collection, [source.source_id for source in sources])
    return {source.root: (source, known[source.source_id]) for source in sources}


class FileRun:
    """One run over files, from listing them to the report."""

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
        self._log = RunLog(indexer)
        self.report = IndexReport()
        self._loaders = loaders()
        self._deleted = 0
        self._states: list[FileState] = []
        self._new_roots: set[Path] = set()
        # Keys of the documents of all found files.
        self.documents: list[UUID] = []
        self._chunks = RunChunker(indexer, wanted)
        self._has_model = indexer.embedder is not None
        self._total_bytes = self._passed_bytes = self._bytes_ahead = 0
        self._read_chunks = self._read_wanted = self._embedded = 0
        self._written = asyncio.Event()

    async def index(
        self,
        paths: Sequence[Path],
        *,
        source: str | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        options: LoadOptions,
    ) -> IndexReport:
        """Read, split and write files; see `PostgreSQLRetriever.index`."""
        self._indexer.refuse_write()
        self._chunks.check(self._indexer.collection)
        places, missing = await self._plan(paths, source)
        chunker = await self._chunks.chunker()
        await self._indexer.ensure_version(None)
        found, problems = await self._list([*places, *missing], include, exclude, recursive=recursive)
        self._fail(problems)
        where = ", ".join(str(path) for path in paths)
        await self._write_log("index", where)
        sources = await open_sources(self._database, self._indexer.collection, places)
        self._note_documents(found, sources)
        await self._write_all(found, sources, self._reading(chunker, options))
        await self._count_vanished(places, sources, found)
        return await self._finish("index", where)

    async def rechunk(self, *, source: str | None, dry_run: bool) -> IndexReport:
        """Split documents again; see `Documents.rechunk`."""
        if not dry_run:
            self._indexer.refuse_write()
        counter = self._indexer.token_counter()
        settings = self._wanted.rechunk_settings(await self._chunks.stored())
        reading = self._reading(Chunker(counter, settings), LoadOptions())
        sources = await known_sources(self._database, self._indexer.collection, source)
        if not dry_run:
            await self._database.write(
                "store the chunk settings",
                lambda c: documents.store_chunk_settings(c, self._indexer.collection, settings),
            )
            self._indexer.opened.info = self._chunks.cut_as(settings)
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
            await self._write_log("rechunk", source or "")
        await self._write_all(found, sources, reading, again=True, dry_run=dry_run)
        if dry_run:
            self.report.seconds = self._log.seconds
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
        if source is None:  # a given name means another source
            self._new_roots = {place.root for place in places if place.source not in roots}
        return places, missing

    async def _list(
        self, paths: Sequence[Path | Place], include: Sequence[str] | None, exclude: Sequence[str], *, recursive: bool
    ) -> tuple[list[FoundFile], list[FileProblem]]:
        """Return the files to read, and those that cannot be read; refuse new sources with the files of a moved one."""
        selection = Selection(include, exclude, self._loaders.keys(), recursive, self._indexer.limits)
        found, problems, skipped = await asyncio.to_thread(list_files, paths, selection)
        self.report.skipped = skipped.by_reason()
        if new := [file for file in found if file.root in self._new_roots]:
            known = await known_sources(self._database, self._indexer.collection)
            await asyncio.to_thread(refuse_moved, new, known)
        return found, problems

    async def _count_vanished(self, places: Sequence[Place], sources: OpenSources, found: Sequence[FoundFile]) -> None:
        below: dict[Path, list[str]] = {}
        for place in places:
            below.setdefault(place.root, []).append(place.part)
        for root, parts in below.items():
            source, known = sources[str(root)]
            if not known:
                continue
            if gone := await asyncio.to_thread(_vanished_below, root, frozenset(parts), known.values(), found):
                self.report.vanished[source.name] = len(gone)

    async def _write_log(self, command: str, where: str, *, has_ended: bool = False) -> None:
        report = self.report
        counts = {name: getattr(report, name) for name in ("added", "changed", "unchanged", "failed", "chunks")}
        problems = [
            {"source_document": one.source_document, "code": one.code} for one in report.problems[:LOGGED_PROBLEMS]
        ]
        await self._log.write(command, where, has_ended=has_ended, deleted=self._deleted, problems=problems, **counts)

    async def _finish(self, command: str, where: str) -> IndexReport:
        self.report.warnings += await self._indexer.end_load(self.report.chunks, self._progress)
        self.report.seconds = self._log.seconds
        await self._write_log(command, where, has_ended=True)
        return self.report

    def _note_documents(self, found: Sequence[FoundFile], sources: OpenSources) -> None:
        self.documents = [indexed_document_id(sources[str(file.root)][0].key, file.uri) for file in found]

    def _note(self, batch: FileBatch) -> None:
        """Add a batch's files to the report."""
        report = self.report
        for file in batch.unwritten:
            if isinstance(file, FileProblem):
                self._fail([file])
            elif isinstance(file, SkippedFile):
                kinds = report.skipped.setdefault("bad_text", {})
                kind = kind_of(file.uri.rpartition("/")[2])
                kinds[kind] = kinds.get(kind, 0) + 1
            else:
                report.unchanged += 1
                report.outdated += file.is_outdated
                self._states += [] if file.state is None else [file.state]
        report.repaired += sum(count > 0 for count in batch.repaired)
        report.repaired_characters += sum(batch.repaired)

    def _fail(self, problems: Sequence[FileProblem]) -> None:
        self.report.problems += problems
        self.report.failed += len(problems)

    # --- the stages -------------------------------------------------------------------------------------------------

    async def _write_all(
        self,
        found: Sequence[FoundFile],
        sources: OpenSources,
        reading: Reading,
        *,
        again: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Read, compare, embed and write files; with `dry_run` only count what would be written."""
        # Every stage has its own batch: while one is written, the next is embedded and the one after that is read. So
        # the model does not wait for the database, nor the database for the disk.
        indexer, report = self._indexer, self.report
        self._total_bytes = sum(file.size for file in found)
        cut_before = indexer.documents_cut()
        empty = await indexer.is_empty()

        def prepare(file: FoundFile) -> PreparedFile | UnchangedFile | SkippedFile | FileProblem:
            return prepare_file(file, *sources[str(file.root)], reading, again=again)

        stages = ahead(self._read(found, prepare))
        if self._has_model or not empty:
            stages = ahead(stages, partial(self._compare, empty=empty))
        if self._has_model and not dry_run:
            stages = ahead(stages, self._embed)
        async with aclosing(stages) as batches:
            async for batch in batches:
                if dry_run:
                    report.changed += len(batch.documents)
                else:
                    with self._busy("write"):
                        await self._write(batch, "direct" if empty else "merge")
                report.without_text += [without_text(row) for row in batch.documents if not row.chunk_count]
                report.chunks += len(batch.rows)
                report.embedded += len(batch.wanted)
                total = self._estimate(self._read_chunks)
                show_progress(self._progress, "write", report.chunks, total, "chunks")
                self._bytes_ahead -= batch.size
                self._written.set()
        report.cut = indexer.documents_cut() - cut_before
        if not dry_run:
            if report.added or report.changed:
                self._chunks.note_stored()
            await self._store_states()

    async def _read(
        self,
        files: Sequence[FoundFile],
        prepare: Callable[[FoundFile], PreparedFile | UnchangedFile | SkippedFile | FileProblem],
    ) -> AsyncGenerator[FileBatch, None]:
        """Yield batches of files that were read and split; closing the generator ends it after the current file."""
        limit = BATCH_CHUNKS if self._has_model else BATCH_CHUNKS_WITHOUT_MODEL
        waiting, ended, done = iter(files), False, 0

        def next_batch() -> FileBatch:  # in a thread
            prepared, unwritten = [], []
            chunks = size = read_bytes = 0
            while chunks < limit and size < BATCH_BYTES and not ended and (file := next(waiting, None)) is not None:
                made = prepare(file)
                read_bytes += file.size
                if isinstance(made, PreparedFile):
                    prepared.append(made)
                    chunks += len(made.chunks)
                    size += max(file.size, len(made.chunks) * ROW_BYTES)
                else:
                    unwritten.append(made)
            rows, repaired = ChunkBatch.joined([one.chunks for one in prepared]), [one.repaired for one in prepared]
            return FileBatch([one.row for one in prepared], rows, unwritten, repaired, read_bytes, size)

        while done < len(files):
            while self._bytes_ahead > MAX_BYTES_AHEAD:
                self._written.clear()
                await self._written.wait()
            with self._busy("read"):
                pending = asyncio.get_running_loop().run_in_executor(None, copy_context().run, next_batch)
                try:
                    batch = await asyncio.shield(pending)
                finally:
                    ended = not pending.done()
                    await asyncio.gather(pending, return_exceptions=True)
            self._note(batch)
            done += len(batch.documents) + len(batch.unwritten)
            self._passed_bytes += batch.read_bytes
            self._bytes_ahead += batch.size
            self._read_chunks += len(batch.rows)
            if batch.documents:
                yield batch
            show_progress(self._progress, "read", done, len(files), "files")

    async def _compare(self, batch: FileBatch, *, empty: bool) -> None:
        """Keep the stored descriptions of unchanged chunks; with a model, note which rows have no vector yet."""
        with self._busy("compare"):
            if not self._has_model:
                await self._indexer.keep_lines(batch.rows)
            else:
                every = range(len(batch.rows))
                batch.wanted = every if empty else await self._indexer.changed_rows(batch.rows, "update")
        self._read_wanted += len(batch.wanted)
        self.report.lines_kept += sum(map(has_line, batch.rows.content_hash))

    async def _embed(self, batch: FileBatch) -> None:
        def tell(count: int) -> None:
            total = self._estimate(self._read_wanted)
            show_progress(self._progress, "embed", self._embedded + count, total, "chunks")

        with self._busy("embed"):
            await self._indexer.embed_rows(batch.rows, batch.wanted, tell)
        self._embedded += len(batch.wanted)

    async def _write(self, batch: FileBatch, mode: WriteMode) -> None:
        indexer = self._indexer
        replaced: set[bytes] = set()

        async def work(connection: Connection, mode: WriteMode) -> None:
            await self._chunks.settle(connection)
            await write_chunks(
                connection,
                indexer.collection,
                batch.rows,
                mode=mode,
                documents=batch.documents,
                replaced_documents=replaced,
                bulk=indexer.bulk,
            )

        await indexer.write_batch("index files", mode, work, batch.rows)
        indexer.sample.note_written(len(batch.rows))
        self.report.added += len(batch.documents) - len(replaced)
        self.report.changed += len(replaced)

    @contextmanager
    def _busy(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = self.report.stage_seconds
            seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started

    def _estimate(self, counted: int) -> int | None:
        """Estimate the total number of chunks from the bytes read so far; None before the first file."""
        if not self._passed_bytes:
            return None
        return max(counted, counted * self._total_bytes // self._passed_bytes)

    async def _store_states(self) -> None:
        """Store the states of unchanged files for the next run."""
        for part in in_parts(self._states, STATES_AT_ONCE):
            work = partial(store_file_states, collection=self._indexer.collection, states=part)
            await self._database.write("store the states of files", work)


def without_text(document: DocumentRow) -> FileProblem:
    """Return the entry of the report for a file in which no text was found."""
    remedy = "; a scan needs OCR first, for example by ocrmypdf" if document.format == "pdf" else ""
    return FileProblem(document.uri, "no_text", f"it has no text{remedy}")


def _vanished_below(
    root: Path, parts: frozenset[str], known: Iterable[KnownDocument], found: Sequence[FoundFile]
) -> list[str]:
    there = {file.uri for file in found if file.root == root}
    uris = [document.uri for document in known if document.uri not in there]
    return vanished(root, [uri for uri in uris if is_below(uri, parts)])
