"""Sync followed tables: store their queued changes, compare their rows, then read and write those that differ."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from semlex.errors import (
    ConfigurationError,
    ModelError,
    ModelMismatchError,
    ModelNotAllowedError,
    ModelNotFoundError,
    ModelServerError,
    SemlexError,
    StoreError,
    ValidationError,
)
from semlex.ingest.batches import WRITES_AT_ONCE, BatchWrites, ahead, in_parts
from semlex.ingest.followed.changed_rows import RowComparison, RunNotes
from semlex.ingest.followed.rows import RowBatch, RowSplitter
from semlex.ingest.followed.writes import RowWrites, StoppedError
from semlex.ingest.indexer import Indexer, RunChunker, RunLog
from semlex.ingest.loaders.registry import loaders
from semlex.ingest.progress import Progress, show_progress
from semlex.store.followed.compare import ComparedTable, Differences
from semlex.store.followed.definitions import RunEnd, StoredTable, read_tables, write_run
from semlex.store.followed.queue import SHOWN_PROBLEMS, Change, ChangeQueue
from semlex.store.followed.triggers import TableTriggers
from semlex.store.postgres.settings import server_time
from semlex.types.followed import DEFAULT_COMPARE_SECONDS, TableSync

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from semlex.options.collection import WantedOptions
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import Names

# So many texts, and none that was embedded: the model fails, not the texts.
MAX_REFUSED = 8
# Statuses with which a server refuses a text, not every request.
TEXT_REFUSED = frozenset({400, 413, 422})
NOT_OF_TEXTS = (ModelNotFoundError, ModelNotAllowedError, ModelMismatchError)


class RowEmbedding:
    """Embeds the batches of one run."""

    def __init__(self, indexer: Indexer, notes: RunNotes, progress: Callable[[Progress], None] | None) -> None:
        self._indexer, self._notes, self._progress = indexer, notes, progress
        self.embedded = self._wanted = self._refused = 0

    async def look(self, batch: RowBatch, *, is_empty: bool) -> None:
        """Find the chunks that have no vector yet."""
        rows = batch.chunks
        batch.wanted = range(len(rows)) if is_empty else await self._indexer.changed_rows(rows, "update")
        self._wanted += len(batch.wanted)

    async def embed(self, batch: RowBatch) -> None:
        """Embed the chunks of a batch; remove rows with a text that the model refuses."""
        refused: dict[int, Exception] = {}
        await self._embed(batch, list(batch.wanted), refused)
        if not refused:
            return
        number_of = {key: number for number, key in enumerate(batch.documents.document_id)}
        failed = {number_of[batch.chunks.document_id[row]]: error for row, error in refused.items()}
        self._notes.fail(batch.failure(number, error) for number, error in failed.items())
        kept = batch.selected([number for number in range(len(batch)) if number not in failed])
        batch.keys, batch.versions = kept.keys, kept.versions
        batch.documents, batch.chunks = kept.documents, kept.chunks

    async def _embed(self, batch: RowBatch, wanted: Sequence[int], refused: dict[int, Exception]) -> None:
        """Embed chunks; if the model refuses a text, find it by halving."""
        if not wanted:
            return
        try:
            await self._indexer.embed_rows(batch.chunks, wanted, self._tell)
        except Exception as error:
            if not _is_of_text(error):
                raise
            if len(wanted) == 1:
                refused[wanted[0]] = error
                self._refused += 1
                if not self.embedded and self._refused >= MAX_REFUSED:
                    raise
                return
            half = len(wanted) // 2
            await self._embed(batch, wanted[:half], refused)
            await self._embed(batch, wanted[half:], refused)
            return
        self.embedded += len(wanted)

    def _tell(self, count: int) -> None:
        show_progress(self._progress, "embed", self.embedded + count, self._wanted, "chunks")


def _is_of_text(error: Exception) -> bool:
    """Return whether a model's error may be caused by one text; other errors concern every request."""
    if isinstance(error, ModelServerError):
        return error.status in TEXT_REFUSED
    if isinstance(error, SemlexError):
        return isinstance(error, (ModelError, ValidationError)) and not isinstance(error, NOT_OF_TEXTS)
    return True  # of the user's own model


# A batch is one transaction; see `ingest.run`.
BATCH_ROWS, BATCH_ROWS_WITHOUT_MODEL = 1_000, 5_000
BATCH_BYTES = 16 * 1024 * 1024
METADATA_ROWS = 5_000
# How often rows that change while they are read are read again in the same run.
ROUNDS = 3
# Seconds until a worker looks again, by the way in which changes are noticed. With triggers it looks whether they are
# all there; what they have noticed it reads at once.
NEXT_LOOK = {"comparison": DEFAULT_COMPARE_SECONDS, "column": 5.0, "trigger": 60.0}


class TableRun:
    """One run over a followed table."""

    def __init__(
        self,
        indexer: Indexer,
        # The table's definition and state, just read.
        stored: StoredTable,
        wanted: WantedOptions,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._indexer, self._stored, self._progress = indexer, stored, progress
        self._database, self._definition, self._names = indexer.database, stored.table, indexer.collection.names
        self._chunks = RunChunker(indexer, wanted)
        self._queue, self._notes = ChangeQueue(self._names, stored.source_id), RunNotes()
        self.report = TableSync(name=stored.name, changes=stored.table.changes)
        self._writes = RowWrites(indexer, stored, self._queue, self._notes, self.report)
        self._embedding = RowEmbedding(indexer, self._notes, progress)
        self._log = RunLog(indexer)
        self._dry_run = self._is_empty = self._logs = self._is_logged = False
        self._compared = self._expected = 0
        self._split_by = ""  # the settings by which texts are split
        self._table: ComparedTable
        self._comparison: RowComparison
        self._splitter: RowSplitter

    async def run(
        self,
        # Claimed entries of the queue, whose rows alone are read. An entry without a key, or None, reads all rows, or
        # those that the column of changes shows; no row if triggers have noticed every change.
        changes: Sequence[Change] | None = None,
        *,
        # Whether to compare all rows in any case.
        compare: bool = False,
        # Whether rows are deleted even if none of the stored ones is left.
        allow_empty: bool = False,
        dry_run: bool = False,
        # Seconds until a worker reads the table again; None for the default of the way in which changes are noticed. A
        # run over entries of the queue does not change that time.
        next_in: float | None = None,
    ) -> TableSync:
        """Store the changes of the table in the collection."""
        # If the table or a column is missing or has changed, or all stored rows are gone, this raises
        # ConfigurationError before anything is deleted.
        self._dry_run = self.report.dry_run = dry_run
        looks = changes is None or any(change.row_key is None for change in changes)
        seconds = NEXT_LOOK[self._definition.changes] if next_in is None else next_in
        end = RunEnd(report=self.report, next_in=seconds if looks else None)
        if not dry_run:
            self._indexer.refuse_write()
        self._chunks.check(self._indexer.collection)
        try:
            end = await self._run(changes, end, compare=compare, allow_empty=allow_empty)
        except StoppedError:
            self.report.warnings.append(
                f"{self._stored.name} is not followed any more, or its definition was changed: the run ended early, "
                "and nothing was lost"
            )
            return self.report
        except (ConfigurationError, StoreError, ModelError) as error:
            if not dry_run:
                with suppress(SemlexError):  # the first error is the one to report
                    await self._note_end(replace(end, error=error))
            raise
        self.report.seconds = self._log.seconds
        if not dry_run:
            await self._note_end(end)
        return self.report

    async def _run(self, changes: Sequence[Change] | None, end: RunEnd, *, compare: bool, allow_empty: bool) -> RunEnd:
        indexer, notes = self._indexer, self._notes
        chunker = await self._chunks.chunker()
        with_context = indexer.collection.settings.with_context
        self._splitter = RowSplitter(self._stored, chunker, loaders(), with_context, indexer.limits.file)
        self._split_by = ",".join(map(str, chunker.settings))
        everything = [change for change in changes or () if change.row_key is None]
        notes.claim(changes or ())
        self._logs = changes is None
        async with ComparedTable(self._database, self._names, self._stored, self._split_by) as table:
            self._table = self._writes.table = table
            self._comparison = RowComparison(
                self._database, self._stored, table, self._queue, notes, allow_empty=allow_empty
            )
            problems = await self._database.read("read problems", lambda c: self._queue.problems(c, 1))
            notes.has_problems = bool(problems)
            if not self._dry_run:
                await self._writes.wait()
            if changes is None or everything:
                end = await self._all_rows(end, compare=compare or bool(everything))
            # After all rows: the entries of rows that are as stored, or neither in the table nor stored, end here.
            await self._write_all(self._comparison.of_keys(list(notes.claimed)))
            await self._finish_rounds()
            if not self._dry_run:
                await self._writes.end(notes.same, everything)
        self.report.embedded = self._embedding.embedded
        if not self._dry_run and self.report.chunks:
            self.report.warnings += await indexer.end_load(self.report.chunks, self._progress)
        return end

    async def _all_rows(self, end: RunEnd, *, compare: bool) -> RunEnd:
        definition, table = self._definition, self._table
        by_column = definition.changes == "column"
        split_by, _, before = (self._stored.watermark or "").partition(" ")
        latest, is_ahead = await table.latest(before) if by_column else (None, False)
        # Rows that were split in another way are all compared, and those changed since the clock stepped back.
        compare = compare or split_by != self._split_by or is_ahead
        if by_column and not compare:
            await self._write_all(self._comparison.of_column(before))
            keys_compared = await self._are_keys_due()
            if keys_compared:
                await self._whole_table(only_keys=True)
            return replace(end, watermark=self._watermark(latest), keys_compared=keys_compared)
        if definition.changes == "trigger" and not self._dry_run:
            noticed = await TableTriggers(self._names, table.source).look(self._database, self._stored)
            self.report.warnings += noticed.warnings
            is_known = noticed.is_complete and noticed.state == before
            if is_known and not compare and not await self._are_keys_due():
                return end
            latest = noticed.state
        await self._whole_table(only_keys=False)
        report, seen = self.report, self._compared
        report.unchanged = max(0, seen - report.added - report.changed - report.refreshed - report.failed)
        return replace(end, watermark=self._watermark(latest), keys_compared=True)

    def _watermark(self, latest: str | None) -> str | None:
        return None if latest is None else f"{self._split_by} {latest}"

    async def _are_keys_due(self) -> bool:
        before = self._stored.keys_compared_at
        now = await self._database.read("read the clock", server_time)
        # A time to come is left from before the clock stepped back.
        return before is None or not 0 <= (now - before).total_seconds() < self._definition.keys_every

    async def _whole_table(self, *, only_keys: bool) -> None:
        table, comparison = self._table, self._comparison
        stored = self._expected = await table.count_stored()
        if stored:
            await comparison.refuse_emptied()
        known = 0

        async def counted() -> AsyncGenerator[Differences, None]:
            nonlocal known
            async with aclosing(comparison.pages(only_keys=only_keys)) as pages:
                async for page in pages:
                    known += page.known
                    yield page

        await self._write_all(counted())
        if incomplete := await table.count_incomplete():
            self.report.warnings.append(
                f"{incomplete:,} rows of {self._definition.schema}.{self._definition.table} have a NULL in their key "
                "and are not stored: give every row a key"
            )
        if known != stored:
            async for _ in comparison.find_gone():
                await self._delete()

    # Rows that changed before they were written are read again.
    async def _finish_rounds(self) -> None:
        """Delete the documents of rows that are gone, and read again the rows that changed while they were read."""
        notes = self._notes
        await self._delete()
        for _ in range(ROUNDS):
            if not notes.again:
                break
            keys, notes.again = list(notes.again), {}
            await self._write_all(self._comparison.of_keys(keys))
            await self._delete()
        if notes.again:
            self.report.warnings.append(
                f"{len(notes.again):,} rows changed each time they were read: the next run reads them again"
            )

    async def _delete(self) -> None:
        """Delete the documents of rows that are gone."""
        keys, self._notes.gone = list(self._notes.gone), {}
        if not keys:
            return
        if self._dry_run:
            self.report.deleted += len(keys)
            return
        await self._comparison.refuse_emptied()
        await self._begin_log()
        await self._writes.delete(keys)

    # --- the stages -------------------------------------------------------------------------------------------------

    async def _write_all(self, differences: AsyncGenerator[Differences, None]) -> None:
        """Read, split, embed and write rows that differ; each stage works on its own batch."""
        if self._dry_run:
            async with aclosing(differences) as pages:
                async for page in pages:
                    self._note_compared(page)
                    self.report.added += len(page.new)
                    self.report.changed += len(page.changed)
                    self.report.refreshed += len(page.refreshed)
            return
        stages = ahead(self._batches(differences), self._look)
        if self._indexer.embedder is not None:
            stages = ahead(stages, self._embedding.embed)
        at_once = WRITES_AT_ONCE if self._database.has_several_connections else 1

        def tell(_: int) -> None:
            written = self.report.added + self.report.changed
            show_progress(self._progress, "write", written, self._expected, "rows")

        async with BatchWrites(at_once, tell) as writes, aclosing(stages) as batches:
            async for batch in batches:
                await writes.begin(len(batch), set(batch.keys), self._writes.write(batch, is_empty=self._is_empty))
        await self._writes.set_aside()

    async def _batches(self, differences: AsyncGenerator[Differences, None]) -> AsyncGenerator[RowBatch, None]:
        """Read and split the rows that differ, and yield them in batches."""
        is_ready = False
        async with aclosing(differences) as pages:
            async for page in pages:
                self._note_compared(page)
                rows = [*page.new, *page.changed]
                if (rows or page.refreshed) and not is_ready:
                    await self._begin()
                    is_ready = True
                if page.refreshed:
                    await self._refresh(page.refreshed)
                self._expected = max(self._expected, self.report.added + self.report.changed + len(rows))
                for keys in self._slices(rows):
                    for batch in await self._comparison.by_halves(keys, self._read):
                        self._notes.fail(batch.failed)
                        self._notes.gone |= dict.fromkeys(batch.missing)
                        if batch.keys:
                            yield batch

    async def _begin(self) -> None:
        """Prepare the first write."""
        await self._indexer.ensure_version(None)
        await self._chunks.store()
        self._is_empty = await self._indexer.is_empty()
        await self._begin_log()

    async def _refresh(self, keys: Sequence[str]) -> None:
        for part in in_parts(keys, METADATA_ROWS):
            for rows in await self._comparison.by_halves(part, self._table.metadata):
                await self._writes.refresh(part, rows)

    def _slices(self, rows: Sequence[tuple[str, int]]) -> Iterable[list[str]]:
        limit = BATCH_ROWS_WITHOUT_MODEL if self._indexer.embedder is None else BATCH_ROWS
        keys: list[str] = []
        size = 0
        for key, length in rows:
            own = min(length, self._splitter.max_bytes)
            if keys and (len(keys) == limit or size + own > BATCH_BYTES):
                yield keys
                keys, size = [], 0
            keys.append(key)
            size += own
        if keys:
            yield keys

    async def _read(self, keys: Sequence[str]) -> RowBatch:
        splitter = self._splitter
        rows = await self._table.rows(keys, splitter.max_bytes, joined=splitter.joins_texts)
        return await asyncio.to_thread(splitter.batch, keys, rows)

    # Embeds outside of any transaction.
    async def _look(self, batch: RowBatch) -> None:
        if self._indexer.embedder is not None:
            await self._embedding.look(batch, is_empty=self._is_empty)
        elif not self._is_empty:
            await self._indexer.keep_lines(batch.chunks)

    # --- reports ----------------------------------------------------------------------------------------------------

    def _note_compared(self, page: Differences) -> None:
        self._compared += page.rows
        show_progress(self._progress, "compare", self._compared, None, "rows")

    async def _note_end(self, end: RunEnd) -> None:
        if self._is_logged:
            await self._write_log(has_ended=True)
        await self._database.write("note the end of the run", lambda c: write_run(c, self._names, self._stored, end))

    async def _begin_log(self) -> None:
        if self._logs and not self._is_logged:
            self._is_logged = True
            await self._write_log(has_ended=False)

    async def _write_log(self, *, has_ended: bool) -> None:
        report, name = self.report, self._stored.name
        await self._log.write(
            "sync",
            name,
            has_ended=has_ended,
            added=report.added,
            changed=report.changed + report.refreshed,
            unchanged=report.unchanged or 0,
            deleted=report.deleted,
            failed=report.failed,
            chunks=report.chunks,
            problems=[{"source_document": f"{name}/{one.key}", "code": one.code} for one in report.problems],
        )


logger = logging.getLogger("semlex")

COUNTS = ("added", "changed", "refreshed", "deleted", "failed", "chunks", "embedded", "seconds")


async def stored_tables(database: Database, names: Names, name: str | None) -> list[StoredTable]:
    """Return all followed tables of a collection, or only the table `name`; refuse an unknown name."""
    found = await database.read("read followed tables", lambda c: read_tables(c, names))
    tables = [one for one in found if name in (None, one.name)]
    if name is not None and not tables:
        known = [one.name for one in found]
        near = get_close_matches(name, known, n=1) if isinstance(name, str) else []
        hint = f"did you mean {near[0]!r}?" if near else f"followed tables: {', '.join(known) or 'none'}"
        raise ConfigurationError(f"no table {name!r} is followed; {hint}")
    return tables


async def sync_tables(
    indexer: Indexer, tables: Sequence[StoredTable], wanted: WantedOptions, **options: Any
) -> list[TableSync]:
    """Sync tables in turn; if one cannot be read, sync the others and raise its error at the end."""
    reports = []
    failed: list[SemlexError] = []
    for stored in tables:
        try:
            reports.append(await sync_table(indexer, stored, wanted, **options))
        except (ConfigurationError, StoreError) as error:
            failed.append(error)
    for other in failed[1:]:
        logger.warning("%s", other)
    if failed:
        raise failed[0]
    return reports


async def sync_table(
    indexer: Indexer,
    stored: StoredTable,
    wanted: WantedOptions,
    *,
    # Whether to compare all rows in any case.
    compare: bool = False,
    allow_empty: bool = False,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TableSync:
    """Store the queued changes of a table, then compare its rows unless triggers have noticed every change."""
    if indexer.database.joins_transaction:
        raise ConfigurationError("a sync of a followed table begins its own transactions: call it without using()")
    if not dry_run:
        indexer.refuse_write()
    made = partial(TableRun, indexer, stored, wanted, progress)
    reports = []
    queue = ChangeQueue(indexer.collection.names, stored.source_id)
    has_compared = False
    if not dry_run:
        await indexer.database.write("release changes", queue.release_all)
    while not dry_run:
        changes = await indexer.database.write("claim changes", queue.claim)
        if not changes:
            break
        has_compared |= any(change.row_key is None for change in changes)
        reports.append(await made().run(changes, allow_empty=allow_empty))
    if compare or not has_compared:
        reports.append(await made().run(compare=compare, allow_empty=allow_empty, dry_run=dry_run))
    return _summed(reports)


def _summed(reports: list[TableSync]) -> TableSync:
    """Return the sum of the reports of several runs over one table."""
    total = reports[-1]
    for one in reports[:-1]:
        for name in COUNTS:
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.problems = [*one.problems, *total.problems][:SHOWN_PROBLEMS]
        total.warnings = [*one.warnings, *total.warnings]
    return total
