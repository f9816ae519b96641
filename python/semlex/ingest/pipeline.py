"""Files through all stages: read and cut, compared with what is stored, embedded, written.

Every stage has a batch of its own at any time: while one is written, the next is embedded and the one after that is
read. So the model does not wait for the database, nor the database for the disk.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from semlex.ingest.files.discovery import FileProblem
from semlex.ingest.progress import Progress
from semlex.store.descriptions import has_line
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
    from uuid import UUID

    from semlex.ingest.files.discovery import FoundFile
    from semlex.ingest.indexer import Indexer
    from semlex.ingest.prepare_file import PreparedFile
    from semlex.ingest.progress import IndexReport
    from semlex.store.postgres.connection import Connection
    from semlex.store.write.chunks import WriteMode
    from semlex.store.write.documents import DocumentRow

T = TypeVar("T")

# A batch is one transaction. With a model it takes seconds, so that progress is visible and little is lost; without
# one its own cost is what counts.
BATCH_CHUNKS = 1_000
BATCH_CHUNKS_WITHOUT_MODEL = 4_000
BATCH_BYTES = 8 * 1024 * 1024
# Of files that are read and not written yet; a batch more may be on its way. Rows take about five times as much.
MAX_BYTES_AHEAD = 24 * 1024 * 1024
# As many bytes of a file are a row's share at least: small rows take memory, too.
ROW_BYTES = 2_048


@dataclass(slots=True)
class FileBatch:
    """Files that are written in one transaction.

    Attributes:
        documents: A row a file.
        rows: Their chunks.
        size: Bytes of the files, or of their rows where these are more.
        wanted: Numbers of the rows whose vector is to be made.
    """

    documents: list[DocumentRow]
    rows: ChunkBatch
    size: int
    wanted: Sequence[int] = ()


async def ahead(
    items: AsyncGenerator[T, None], work: Callable[[T], Awaitable[None]] | None = None
) -> AsyncGenerator[T, None]:
    """Gives items on, and has the next one made and worked on while the caller has the last.

    When it is closed, what is being made is cancelled, and `items` is closed.
    """

    async def make() -> T | None:
        item = await anext(items, None)
        if item is not None and work is not None:
            await work(item)
        return item

    pending = asyncio.ensure_future(make())
    try:
        while (item := await pending) is not None:
            pending = asyncio.ensure_future(make())
            yield item
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        with suppress(RuntimeError):  # a loop that ends closes all generators at once
            await items.aclose()


def without_text(document: DocumentRow) -> FileProblem:
    """What is said of a file that was read and has no text."""
    remedy = "; a scan needs OCR first, for example by ocrmypdf" if document.format == "pdf" else ""
    return FileProblem(document.uri, "no_text", f"it has no text{remedy}")


class FilePipeline:
    """The stages of one run over files.

    Args:
        begin: Called in the transaction of every batch, before it is written.
    """

    def __init__(
        self,
        indexer: Indexer,
        report: IndexReport,
        progress: Callable[[Progress], None] | None,
        prepare: Callable[[FoundFile], PreparedFile | None],
        begin: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._indexer = indexer
        self._report = report
        self._progress = progress
        self._prepare = prepare
        self._begin = begin
        self._has_model = indexer.embedder is not None
        self._total_bytes = self._passed_bytes = self._bytes_ahead = 0
        self._read_chunks = self._read_wanted = self._embedded = 0
        self._written = asyncio.Event()

    async def run(self, files: Sequence[FoundFile], *, dry_run: bool = False) -> None:
        """Writes files; with `dry_run` only counts what would be written."""
        indexer, report = self._indexer, self._report
        self._total_bytes = sum(file.size for file in files)
        cut_before = indexer.documents_cut()
        empty = await indexer.is_empty()
        stages = ahead(self._read(files))
        if self._has_model:
            stages = ahead(stages, partial(self._compare, empty=empty))
            if not dry_run:
                stages = ahead(stages, self._embed)
        elif not empty:
            stages = ahead(stages, self._keep_lines)
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
                self._tell("write", report.chunks, self._estimate(self._read_chunks), "chunks")
                self._bytes_ahead -= batch.size
                self._written.set()
        report.cut = indexer.documents_cut() - cut_before

    # --- one stage each ---------------------------------------------------------------------------------------------

    async def _read(self, files: Sequence[FoundFile]) -> AsyncGenerator[FileBatch, None]:
        """Batches of files, read and cut. When it is closed, the file that is being read is the last one."""
        limit = BATCH_CHUNKS if self._has_model else BATCH_CHUNKS_WITHOUT_MODEL
        position = 0
        ended = False

        def next_batch() -> FileBatch:
            nonlocal position
            prepared: list[PreparedFile] = []
            chunks = size = 0
            while position < len(files) and chunks < limit and size < BATCH_BYTES and not ended:
                file = files[position]
                position += 1
                self._passed_bytes += file.size
                if (found := self._prepare(file)) is not None:
                    prepared.append(found)
                    chunks += len(found.chunks)
                    size += max(file.size, len(found.chunks) * ROW_BYTES)
            rows = ChunkBatch.joined([one.chunks for one in prepared])
            return FileBatch([one.row for one in prepared], rows, size)

        while position < len(files):
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
            self._bytes_ahead += batch.size
            self._read_chunks += len(batch.rows)
            if batch.documents:
                yield batch
            self._tell("read", position, len(files), "files")

    async def _compare(self, batch: FileBatch, *, empty: bool) -> None:
        """Finds the rows that have no vector yet."""
        every = range(len(batch.rows))
        with self._busy("compare"):
            batch.wanted = every if empty else await self._indexer.changed_rows(batch.rows, "update")
        self._read_wanted += len(batch.wanted)
        self._count_lines(batch)

    async def _keep_lines(self, batch: FileBatch) -> None:
        """Finds the lines of models that chunks keep, where nothing is to be embedded."""
        with self._busy("compare"):
            await self._indexer.keep_lines(batch.rows)
        self._count_lines(batch)

    def _count_lines(self, batch: FileBatch) -> None:
        self._report.lines_kept += sum(map(has_line, batch.rows.content_hash))

    async def _embed(self, batch: FileBatch) -> None:
        """Makes their vectors."""

        def tell(count: int) -> None:
            self._tell("embed", self._embedded + count, self._estimate(self._read_wanted), "chunks")

        with self._busy("embed"):
            await self._indexer.embed_rows(batch.rows, batch.wanted, tell)
        self._embedded += len(batch.wanted)

    async def _write(self, batch: FileBatch, mode: WriteMode) -> None:
        indexer, report = self._indexer, self._report
        new: set[UUID] = set()

        async def work(connection: Connection, mode: WriteMode) -> None:
            await self._begin(connection)
            await write_chunks(
                connection,
                indexer.collection,
                batch.rows,
                mode=mode,
                documents=batch.documents,
                new_documents=new,
                bulk=indexer.bulk,
            )

        await indexer.write_batch("index files", mode, work)
        indexer.sample.note_written(len(batch.rows))
        report.added += len(new)
        report.changed += len(batch.documents) - len(new)

    @contextmanager
    def _busy(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = self._report.stage_seconds
            seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started

    # --- progress ---------------------------------------------------------------------------------------------------

    def _tell(self, stage: str, done: int, total: int | None, unit: str) -> None:
        if self._progress is not None:
            self._progress(Progress(stage, done, total, unit))

    def _estimate(self, counted: int) -> int | None:
        """How many there will be in all, where so many came of what was read so far."""
        if not self._passed_bytes:
            return None
        return max(counted, counted * self._total_bytes // self._passed_bytes)
