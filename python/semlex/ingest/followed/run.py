"""One run over a followed table: its rows are compared with what is stored; those that differ are read and written.

A transaction that writes rows first locks their source, then compares their hashes again, and writes only rows that are
still as they were read. So rows that change meanwhile, and several runs at a time, do no harm: what was not written is
read again. Nothing is embedded inside a transaction.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, TypeVar

from semlex import _core
from semlex.errors import (
    ConfigurationError,
    FieldError,
    ModelError,
    ModelMismatchError,
    ModelNotAllowedError,
    ModelNotFoundError,
    ModelServerError,
    SemlexError,
    StoreError,
    ValidationError,
)
from semlex.ingest.followed.rows import RowBatch, RowSplitter, combined
from semlex.ingest.loaders.registry import loaders
from semlex.ingest.overlap import ahead
from semlex.ingest.progress import Progress
from semlex.ingest.run_chunker import RunChunker
from semlex.store.followed.compare import ComparedTable, Differences, is_of_row
from semlex.store.followed.definitions import RunEnd, hold_table, write_run
from semlex.store.followed.queue import ChangeQueue, FailedRow
from semlex.store.followed.refresh import RowMetadata, refresh_metadata
from semlex.store.followed.triggers import TableTriggers
from semlex.store.postgres.settings import server_time
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.query.filters import Filter
from semlex.store.schema.locks import share_writing
from semlex.store.write import documents
from semlex.store.write.chunks import write_chunks
from semlex.store.write.deletes import BATCH_DOCUMENTS, Selection, delete_within
from semlex.store.write.documents import begin_write
from semlex.types.documents import utc_now
from semlex.types.followed import RowProblem, TableSync

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from semlex.ingest.indexer import Indexer
    from semlex.parameters import WantedOptions
    from semlex.store.followed.compare import Part, RowState
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.followed.queue import Change
    from semlex.store.postgres.connection import Connection
    from semlex.store.write.chunks import WriteMode

T = TypeVar("T")

# A batch is one transaction; see `ingest.run`.
BATCH_ROWS, BATCH_ROWS_WITHOUT_MODEL = 1_000, 5_000
BATCH_BYTES = 16 * 1024 * 1024
METADATA_ROWS = 5_000
KEYS_AT_ONCE = 2_000
# Rows of the first page that is compared; later ones take about this many seconds.
FIRST_PAGE_ROWS, MAX_PAGE_ROWS = 5_000, 100_000
PAGE_SECONDS = (0.3, 1.5)
# How often rows that change while they are read are read again in the same run.
ROUNDS = 3
# So many texts, and none that was embedded: the model fails, not the texts.
MAX_REFUSED = 8
SHOWN_PROBLEMS = 100
# Seconds until a worker looks again, by the way in which changes are noticed. With triggers it looks whether they are
# all there; what they have noticed it reads at once.
NEXT_LOOK = {"comparison": 600.0, "column": 5.0, "trigger": 60.0}
# Statuses with which a server refuses a text, not every request.
TEXT_REFUSED = frozenset({400, 413, 422})
NOT_OF_TEXTS = (ModelNotFoundError, ModelNotAllowedError, ModelMismatchError)


class _StoppedError(Exception):
    """The table is not followed any more, or by another definition."""


class TableRun:
    """One run over a followed table.

    Args:
        stored: As it was read right before.
    """

    def __init__(
        self,
        indexer: Indexer,
        stored: StoredTable,
        wanted: WantedOptions,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._indexer, self._stored, self._progress = indexer, stored, progress
        self._database, self._definition = indexer.database, stored.table
        self._names = indexer.collection.names
        self._chunks = RunChunker(indexer, wanted)
        self._queue = ChangeQueue(self._names, stored.source_id)
        self.report = TableSync(name=stored.name, changes=stored.table.changes)
        self._started, self._begun, self._run_id = time.perf_counter(), utc_now(), uuid.uuid4()
        self._allow_empty = self._dry_run = False
        # Key -> its claimed entries.
        self._claimed: dict[str, list[Change]] = {}
        self._logs = self._is_logged = False
        # Keys of rows that changed while they were read; that have no row; that are as stored.
        self._again: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._same: list[str] = []
        self._failed: dict[str, FailedRow] = {}
        self._has_problems = self._is_checked = self._is_empty = self._embeds = False
        self._compared = self._expected = self._written = self._embedded = self._to_embed = 0
        self._table: ComparedTable
        self._splitter: RowSplitter

    async def run(
        self,
        changes: Sequence[Change] | None = None,
        *,
        compare: bool = False,
        allow_empty: bool = False,
        dry_run: bool = False,
        next_in: float | None = None,
    ) -> TableSync:
        """Bring the collection in step.

        Args:
            changes: Claimed entries of the queue, whose rows alone are read; an entry without a key, or None: all rows,
                or those that the column that grows shows; none, if triggers have noticed every change.
            compare: Whether to compare all rows in any case.
            allow_empty: Whether rows are deleted even if none of the stored ones is left.
            dry_run: Whether to count only.
            next_in: Seconds until a worker looks again; None: as suits the way in which changes are noticed.

        Raises:
            ConfigurationError: A table or column is not there as it was followed, or all stored rows are gone; nothing
                was deleted.
        """
        self._allow_empty, self._dry_run, self.report.dry_run = allow_empty, dry_run, dry_run
        end = RunEnd(report=self.report, next_in=NEXT_LOOK[self._definition.changes] if next_in is None else next_in)
        if self._database.joins_transaction:
            raise ConfigurationError("a followed table is read in transactions of its own: call this without using()")
        if not dry_run:
            self._indexer.refuse_write()
        self._chunks.check(self._indexer.collection)
        try:
            end = await self._run(changes, end, compare=compare)
        except _StoppedError:
            self.report.warnings.append(
                f"{self._stored.name} was changed or is not followed any more: the run ended, and nothing was lost"
            )
            return self.report
        except (ConfigurationError, StoreError, ModelError) as error:
            if not dry_run:
                with suppress(SemlexError):  # the first error is the one to report
                    await self._note_end(RunEnd(report=self.report, next_in=end.next_in, error=error))
            raise
        self.report.seconds = time.perf_counter() - self._started
        if not dry_run:
            await self._note_end(end)
        return self.report

    async def _run(self, changes: Sequence[Change] | None, end: RunEnd, *, compare: bool) -> RunEnd:
        chunker = await self._chunks.chunker()
        indexer = self._indexer
        self._splitter = RowSplitter(
            self._stored,
            chunker,
            loaders(),
            indexer.collection.settings.with_context,
            indexer.limits.file,
        )
        salt = ",".join(map(str, chunker.settings))
        async with ComparedTable(self._database, self._names, self._stored, salt) as self._table:
            self._has_problems = bool(await self._database.read("read problems", lambda c: self._queue.problems(c, 1)))
            for change in changes or ():
                if change.row_key is not None:
                    self._claimed.setdefault(change.row_key, []).append(change)
            everything = [change for change in changes or () if change.row_key is None]
            self._logs = changes is None
            if changes is not None and not everything:
                await self._write_all(self._of_keys(list(self._claimed)))
            else:
                end = await self._all_rows(end, compare=compare or bool(everything))
            await self._finish_rounds()
            if everything and not self._dry_run:
                await self._end_changes(everything)
        if not self._dry_run and self.report.chunks:
            self.report.warnings += await indexer.end_load(self.report.chunks, self._progress)
        return end

    async def _all_rows(self, end: RunEnd, *, compare: bool) -> RunEnd:
        definition, table = self._definition, self._table
        by_column = definition.changes == "column"
        latest = await table.latest() if by_column else None
        if by_column and self._stored.watermark is not None and not compare:
            await self._write_all(self._of_column(self._stored.watermark))
            keys_compared = await self._are_keys_due()
            if keys_compared:
                await self._whole_table(only_keys=True)
            return RunEnd(report=end.report, next_in=end.next_in, watermark=latest, keys_compared=keys_compared)
        if definition.changes == "trigger" and not self._dry_run:
            noticed = await TableTriggers(self._names, table.source).look(self._database, self._stored)
            self.report.warnings += noticed.warnings
            is_known = noticed.is_complete and noticed.state == self._stored.watermark
            if is_known and not compare and not await self._are_keys_due():
                return end
            latest = noticed.state
        await self._whole_table(only_keys=False)
        report, seen = self.report, self._compared
        report.unchanged = max(0, seen - report.added - report.changed - report.refreshed - report.failed)
        return RunEnd(report=end.report, next_in=end.next_in, watermark=latest, compared=True, keys_compared=True)

    async def _are_keys_due(self) -> bool:
        before = self._stored.keys_compared_at
        now = await self._database.read("read the clock", server_time)
        return before is None or (now - before).total_seconds() >= self._definition.keys_every

    async def _whole_table(self, *, only_keys: bool) -> None:
        table = self._table
        stored = self._expected = await table.count_stored()
        if stored:
            await self._refuse_emptied()
        known = 0

        async def counted() -> AsyncGenerator[Differences, None]:
            nonlocal known
            async with aclosing(self._pages(only_keys=only_keys)) as pages:
                async for page in pages:
                    known += page.known
                    yield page

        await self._write_all(counted())
        if incomplete := await table.count_incomplete():
            self.report.warnings.append(
                f"{incomplete:,} rows of {self._definition.schema}.{self._definition.table} have a NULL in their key: "
                "they are not searched"
            )
        if known == stored:
            return
        after: UUID | None = None
        while True:
            keys, after = await table.stored_keys(after, MAX_PAGE_ROWS)
            if not keys:
                return
            for start in range(0, len(keys), KEYS_AT_ONCE):
                part = keys[start : start + KEYS_AT_ONCE]
                self._gone |= dict.fromkeys(set(part) - await table.present(part))
            await self._delete()

    async def _finish_rounds(self) -> None:
        """Delete what is gone, and read rows again that changed meanwhile."""
        await self._delete()
        for _ in range(ROUNDS):
            if not self._again:
                break
            keys, self._again = list(self._again), {}
            await self._write_all(self._of_keys(keys))
            await self._delete()
        if self._again:
            count = len(self._again)
            self.report.warnings.append(f"{count:,} rows changed again and again: the next run reads them")
        await self._end_same()

    # --- what differs -----------------------------------------------------------------------------------------------

    async def _pages(self, *, only_keys: bool) -> AsyncGenerator[Differences, None]:
        """Compare all rows, page by page in the order of their keys."""
        after: list[str] | None = None
        rows = FIRST_PAGE_ROWS
        while True:
            began = time.perf_counter()
            until = await self._table.bound(after, rows)
            for one in await self._compare(self._table.page(after, until), only_keys=only_keys):
                yield one
            if until is None:
                return
            after, seconds = until, time.perf_counter() - began
            if seconds < PAGE_SECONDS[0]:
                rows = min(rows * 4, MAX_PAGE_ROWS)
            elif seconds > PAGE_SECONDS[1]:
                rows = max(rows // 2, FIRST_PAGE_ROWS // 10)

    async def _of_column(self, watermark: str) -> AsyncGenerator[Differences, None]:
        """Compare the rows that the column that grows shows."""
        table = self._table
        since = table.marked_since(watermark, self._definition.overlap)
        after: str | None = None
        while True:
            rest = table.marked_between(after, None, since)
            until = await table.mark_bound(rest, MAX_PAGE_ROWS)
            for one in await self._compare(table.marked_between(after, until, since)):
                yield one
            if until is None:
                return
            after = until

    async def _of_keys(self, keys: Sequence[str]) -> AsyncGenerator[Differences, None]:
        """Compare the rows of these keys; notes which are gone, and which are as stored."""
        for start in range(0, len(keys), KEYS_AT_ONCE):
            part = keys[start : start + KEYS_AT_ONCE]
            found: set[str] = set()
            differences = await self._compare_keys(part, every=True)
            for one in differences:
                found.update(key for key, _ in (*one.new, *one.changed))
                found.update(one.refreshed, one.same)
                self._same += one.same
            if gone := dict.fromkeys(key for key in part if key not in found and key not in self._failed):
                await self._refuse_emptied()
                self._gone |= gone
            for one in differences:
                yield one

    async def _compare(self, part: Part, *, only_keys: bool = False) -> list[Differences]:
        try:
            found = await self._table.compare(part, only_keys=only_keys)
        except StoreError as error:
            if not is_of_row(error.sqlstate):
                raise
            # The texts or metadata of some row cannot be read: all others are compared without it.
            keys = await self._table.keys(part)
            put_off = await self._put_off(keys)
            failing = {key for key, row_hash in put_off.items() if row_hash is None}
            return await self._compare_keys([key for key in keys if key not in failing], only_keys=only_keys)
        return [await self._without_put_off(found)]

    async def _compare_keys(
        self, keys: Sequence[str], *, every: bool = False, only_keys: bool = False
    ) -> list[Differences]:
        async def compare(some: Sequence[str]) -> Differences:
            part = self._table.with_keys(some)
            return await self._table.compare(part, every=every, only_keys=only_keys)

        found = await self._by_halves(keys, compare) if keys else []
        return [await self._without_put_off(one) for one in found]

    async def _put_off(self, keys: Sequence[str]) -> dict[str, str | None]:
        if not self._has_problems or not keys:
            return {}
        return await self._database.read("read problems", lambda c: self._queue.put_off(c, keys))

    async def _without_put_off(self, found: Differences) -> Differences:
        """Leave out rows that could not be stored, are as they were then, and are not due again."""
        differing = [*(key for key, _ in (*found.new, *found.changed)), *found.refreshed]
        put_off = await self._put_off([key for key in differing if key not in self._claimed])
        if not put_off:
            return found
        now = await self._by_halves([key for key in put_off if put_off[key] is not None], self._table.states)
        hashes = {key: combined(*one.hashes) for part in now for key, one in part.items()}
        left = {key for key, row_hash in put_off.items() if row_hash is None or hashes.get(key) == row_hash}
        found.new = [row for row in found.new if row[0] not in left]
        found.changed = [row for row in found.changed if row[0] not in left]
        found.refreshed = [key for key in found.refreshed if key not in left]
        return found

    async def _by_halves(self, keys: Sequence[str], work: Callable[[Sequence[str]], Awaitable[T]]) -> list[T]:
        """Do work for keys; where the values of a row make it fail, for all others, and set that row aside."""
        if not keys:
            return []
        try:
            return [await work(keys)]
        except StoreError as error:
            if not is_of_row(error.sqlstate):
                raise
            if len(keys) == 1:
                self._fail([FailedRow(keys[0], None, error.sqlstate or "", str(error))])
                return []
        half = len(keys) // 2
        return [*await self._by_halves(keys[:half], work), *await self._by_halves(keys[half:], work)]

    async def _refuse_emptied(self) -> None:
        """Refuse to go on if none of the stored rows is there any more."""
        if self._is_checked or self._allow_empty:
            return
        after: UUID | None = None
        stored = 0
        while True:
            keys, after = await self._table.stored_keys(after, KEYS_AT_ONCE)
            if not keys:
                break
            stored += len(keys)
            if await self._table.present(keys):
                stored = 0
                break
        if stored:
            table = f"{self._definition.schema}.{self._definition.table}"
            raise ConfigurationError(
                f"none of the {stored:,} rows that were read from {table} is there any more: nothing was changed. If "
                f"they are to be deleted: semlex sync --table {self._stored.name} --allow-empty (allow_empty=True)"
            )
        self._is_checked = True

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
        stages = ahead(self._batches(differences))
        if self._indexer.embedder is not None:
            stages = ahead(ahead(stages, self._look_for_vectors), self._embed)
        else:
            stages = ahead(stages, self._keep_lines)
        async with aclosing(stages) as batches:
            async for batch in batches:
                await self._write(batch)
        await self._set_aside()

    async def _batches(self, differences: AsyncGenerator[Differences, None]) -> AsyncGenerator[RowBatch, None]:
        """Yield batches of the rows that differ, read and split."""
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
                self._expected = max(self._expected, self._written + len(rows))
                for keys in self._slices(rows):
                    for batch in await self._by_halves(keys, self._read):
                        self._fail(batch.failed)
                        self._gone |= dict.fromkeys(batch.missing)
                        if batch.keys:
                            yield batch

    async def _begin(self) -> None:
        """Prepare the first write."""
        await self._indexer.ensure_version(None)
        self._is_empty = await self._indexer.is_empty()
        if self._logs and not self._is_logged:
            self._is_logged = True
            await self._log(None)

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

    async def _look_for_vectors(self, batch: RowBatch) -> None:
        rows = batch.chunks
        batch.wanted = range(len(rows)) if self._is_empty else await self._indexer.changed_rows(rows, "update")
        self._to_embed += len(batch.wanted)

    async def _keep_lines(self, batch: RowBatch) -> None:
        if not self._is_empty:
            await self._indexer.keep_lines(batch.chunks)

    async def _embed(self, batch: RowBatch) -> None:
        refused: dict[int, Exception] = {}
        await self._embed_some(batch, list(batch.wanted), refused)
        if not refused:
            return
        number_of = {key: number for number, key in enumerate(batch.documents.document_id)}
        failed = {number_of[batch.chunks.document_id[row]]: error for row, error in refused.items()}
        self._fail(self._failed_row(batch, number, error) for number, error in failed.items())
        kept = batch.selected([number for number in range(len(batch)) if number not in failed])
        batch.keys, batch.states, batch.documents, batch.chunks = kept.keys, kept.states, kept.documents, kept.chunks

    async def _embed_some(self, batch: RowBatch, wanted: Sequence[int], refused: dict[int, Exception]) -> None:
        """Embed chunks; a text that the model refuses is found by halving."""

        def tell(count: int) -> None:
            self._tell("embed", self._embedded + count, self._to_embed, "chunks")

        if not wanted:
            return
        try:
            await self._indexer.embed_rows(batch.chunks, wanted, tell)
        except Exception as error:
            if not _is_of_text(error):
                raise
            if len(wanted) == 1:
                refused[wanted[0]] = error
                if not self._embeds and len(refused) >= MAX_REFUSED:
                    raise
                return
            half = len(wanted) // 2
            await self._embed_some(batch, wanted[:half], refused)
            await self._embed_some(batch, wanted[half:], refused)
            return
        self._embeds = True
        self._embedded += len(wanted)
        self.report.embedded += len(wanted)

    # --- transactions -----------------------------------------------------------------------------------------------

    async def _hold(self, connection: Connection) -> None:
        """Take a writer's first locks, then the source: from here on, what other runs have written is seen."""
        await share_writing(connection, self._indexer.collection)
        if not await hold_table(connection, self._names, self._stored):
            raise _StoppedError

    async def _write(self, batch: RowBatch) -> None:
        if not batch.keys:
            return
        indexer = self._indexer
        new: set[UUID] = set()

        async def work(connection: Connection, mode: WriteMode) -> tuple[RowBatch, list[str]]:
            new.clear()
            await self._hold(connection)
            same = await self._table.unchanged(dict(zip(batch.keys, batch.states, strict=True)), connection)
            still = [number for number, key in enumerate(batch.keys) if key in same]
            kept = batch if len(still) == len(batch) else batch.selected(still)
            if kept.keys:
                await self._chunks.settle(connection)
                await write_chunks(
                    connection,
                    indexer.collection,
                    kept.chunks,
                    mode=mode,
                    documents=kept.documents,
                    new_documents=new,
                    bulk=indexer.bulk,
                )
                await self._settle(connection, kept.keys)
            stored = set(kept.keys)
            return kept, [key for key in batch.keys if key not in stored]

        try:
            kept, moved = await indexer.write_batch("store rows", "direct" if self._is_empty else "merge", work)
        except StoreError as error:
            if not is_of_row(error.sqlstate):
                raise
            if len(batch) == 1:
                self._fail([self._failed_row(batch, 0, error)])
                return
            half = len(batch) // 2
            await self._write(batch.selected(range(half)))
            await self._write(batch.selected(range(half, len(batch))))
            return
        self._again |= dict.fromkeys(moved)
        self._chunks.note_stored()
        indexer.sample.note_written(len(kept.chunks))
        report = self.report
        report.added += len(new)
        report.changed += len(kept) - len(new)
        report.chunks += len(kept.chunks)
        self._written += len(kept)
        self._tell("write", self._written, self._expected, "rows")

    async def _refresh(self, keys: Sequence[str]) -> None:
        """Replace the metadata of rows whose text is as stored."""
        for start in range(0, len(keys), METADATA_ROWS):
            for rows in await self._by_halves(keys[start : start + METADATA_ROWS], self._table.metadata):
                states = {key: state for key, state, _ in rows}
                faults = _core.validate_rows([("metadata", "jsonb", [values for *_, values in rows], None)])
                wrong = {rows[one[0]][0]: FieldError(-1, *one[1:]) for one in reversed(faults)}
                self._fail(
                    FailedRow(key, combined(*states[key].hashes), error.code, str(error))
                    for key, error in wrong.items()
                )
                made = {
                    key: RowMetadata(self._document_id(key), *state.hashes, _core.to_json(values))
                    for key, state, values in rows
                    if key not in wrong
                }
                self._again |= dict.fromkeys(key for key in keys[start : start + METADATA_ROWS] if key not in states)
                await self._write_metadata(made, states)

    async def _write_metadata(self, rows: dict[str, RowMetadata], states: dict[str, RowState]) -> None:
        async def work(connection: Connection) -> list[str]:
            await self._hold(connection)
            same = await self._table.unchanged({key: states[key] for key in rows}, connection)
            done = await refresh_metadata(connection, self._names, [rows[key] for key in rows if key in same])
            keys = [key for key, row in rows.items() if row.document_id in done]
            await self._settle(connection, keys)
            return keys

        refreshed = await self._database.write("store metadata of rows", work)
        self.report.refreshed += len(refreshed)
        self._again |= dict.fromkeys(rows.keys() - set(refreshed))
        self._indexer.sample.note_written(len(refreshed))

    async def _delete(self) -> None:
        """Delete the documents of rows that are still gone."""
        keys, self._gone = list(self._gone), {}
        if not keys:
            return
        if self._dry_run:
            self.report.deleted += len(keys)
            return
        await self._refuse_emptied()
        if self._logs and not self._is_logged:
            self._is_logged = True
            await self._log(None)
        collection = self._indexer.collection
        for start in range(0, len(keys), BATCH_DOCUMENTS):
            part = keys[start : start + BATCH_DOCUMENTS]

            async def work(connection: Connection, part: Sequence[str] = part) -> tuple[int, int, set[str]]:
                async with begin_write(connection, collection) as index:
                    if not await hold_table(connection, self._names, self._stored):
                        raise _StoppedError
                    present = await self._table.present(part, connection)
                    gone = [key for key in part if key not in present]
                    selection = Selection([self._document_id(key) for key in gone], Filter(), whole=True)
                    chunks, emptied = await delete_within(connection, collection, selection, index)
                    await self._settle(connection, gone)
                    return chunks, emptied, present

            chunks, emptied, present = await self._indexer.write_and_merge("delete rows", work)
            self._indexer.sample.note_written(chunks)
            self.report.deleted += emptied
            self._again |= dict.fromkeys(present)

    async def _settle(self, connection: Connection, keys: Sequence[str]) -> None:
        """End what is noted of rows that are now as stored."""
        claimed = [change for key in keys for change in self._claimed.get(key, ())]
        done = keys if self._has_problems else ()
        if claimed or done:
            await self._queue.settle(connection, claimed, done=done)

    async def _end_same(self) -> None:
        """End the claimed entries of rows that are as stored: a later change has an entry of its own."""
        keys, self._same = self._same, []
        if self._dry_run or (not any(key in self._claimed for key in keys) and not (keys and self._has_problems)):
            return
        await self._database.write("settle rows", lambda c: self._settle(c, keys))

    async def _end_changes(self, changes: Sequence[Change]) -> None:
        await self._database.write("settle changes", lambda c: self._queue.settle(c, changes))

    def _fail(self, rows: Iterable[FailedRow]) -> None:
        self._failed |= {row.row_key: row for row in rows}

    def _failed_row(self, batch: RowBatch, number: int, error: Exception) -> FailedRow:
        state = batch.states[number]
        code = (error.sqlstate if isinstance(error, StoreError) else None) or type(error).__name__
        return FailedRow(batch.keys[number], combined(*state.hashes), code, str(error))

    async def _set_aside(self) -> None:
        """Set rows aside that could not be stored, to be tried again later."""
        failed, self._failed = list(self._failed.values()), {}
        if not failed:
            return
        claimed = [change for row in failed for change in self._claimed.pop(row.row_key, ())]

        async def work(connection: Connection) -> None:
            await self._hold(connection)
            await self._queue.settle(connection, claimed, failed=failed)

        await self._database.write("set rows aside", work)
        self._has_problems = True
        self.report.failed += len(failed)
        room = SHOWN_PROBLEMS - len(self.report.problems)
        self.report.problems += [
            RowProblem(key=row.row_key, code=row.code, message=row.message) for row in failed[:room]
        ]

    # --- reports ----------------------------------------------------------------------------------------------------

    def _document_id(self, key: str) -> UUID:
        return indexed_document_id(self._stored.source_key, f"{self._stored.name}/{key}")

    def _note_compared(self, page: Differences) -> None:
        self._compared += page.rows
        self._tell("compare", self._compared, None, "rows")

    def _tell(self, stage: str, done: int, total: int | None, unit: str) -> None:
        if self._progress is not None:
            self._progress(Progress(stage, done, total, unit))

    async def _note_end(self, end: RunEnd) -> None:
        if self._is_logged:
            await self._log(utc_now())
        await self._database.write("note the end of the run", lambda c: write_run(c, self._names, self._stored, end))

    async def _log(self, finished: datetime | None) -> None:
        report = self.report
        entry = documents.LogEntry(
            run_id=self._run_id,
            source_uri=self._stored.name,
            command="sync",
            client=documents.client_name(),
            embedding_model=self._indexer.model_name,
            started_at=self._begun,
            finished_at=finished,
            seconds=report.seconds if finished else None,
            added=report.added,
            changed=report.changed + report.refreshed,
            unchanged=report.unchanged or 0,
            deleted=report.deleted,
            failed=report.failed,
            chunks=report.chunks,
            problems=[
                {"source_document": f"{self._stored.name}/{one.key}", "code": one.code} for one in report.problems
            ],
        )
        await self._database.write("write the log", lambda c: documents.log_run(c, self._indexer.collection, entry))


def _is_of_text(error: Exception) -> bool:
    """Whether an error of a model may be about a text, not about every request."""
    if isinstance(error, ModelServerError):
        return error.status in TEXT_REFUSED
    if isinstance(error, SemlexError):
        return isinstance(error, (ModelError, ValidationError)) and not isinstance(error, NOT_OF_TEXTS)
    return True  # of the user's own model
