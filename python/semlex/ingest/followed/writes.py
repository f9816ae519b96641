"""Store rows, replace metadata, delete documents and set rows aside, each in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.errors import FieldError, StoreError
from semlex.ingest.batches import in_parts
from semlex.ingest.followed.rows import RowBatch, combined
from semlex.store.followed.compare import ComparedTable, RowMetadata, RowState, is_of_row, refresh_metadata
from semlex.store.followed.definitions import StoredTable, hold_table
from semlex.store.followed.queue import SHOWN_PROBLEMS, Change, ChangeQueue, FailedRow
from semlex.store.followed.source import row_document_id
from semlex.store.query.filters import Filter
from semlex.store.schema.locks import share_writing
from semlex.store.write.chunks import WriteMode, write_chunks
from semlex.store.write.deletes import BATCH_DOCUMENTS, Selection, delete_within
from semlex.store.write.documents import begin_write, lock_documents
from semlex.types.followed import RowProblem, TableSync

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.ingest.followed.changed_rows import RunNotes
    from semlex.ingest.indexer import Indexer
    from semlex.store.postgres.connection import Connection


class StoppedError(Exception):
    """The table is not followed any more, or its definition has changed."""


class RowWrites:
    """Writes the rows of one run, each batch in a transaction, and counts them in the run's report."""

    # Each transaction first locks the documents of its rows, compares the rows again, and writes only those that have
    # not changed since they were read. So rows that change meanwhile, and several transactions and runs at a time, do
    # no harm.
    def __init__(
        self, indexer: Indexer, stored: StoredTable, queue: ChangeQueue, notes: RunNotes, report: TableSync
    ) -> None:
        self._indexer, self._database, self._names = indexer, indexer.database, indexer.collection.names
        self._stored, self._queue, self._notes, self.report = stored, queue, notes, report
        self.table: ComparedTable

    async def _hold(self, connection: Connection, *, alone: bool = False) -> None:
        """Lock the collection, then the followed table; raise `StoppedError` if the table is not followed as before."""
        await share_writing(connection, self._indexer.collection)
        if not await hold_table(connection, self._names, self._stored, alone=alone):
            raise StoppedError

    async def wait(self) -> None:
        """Wait, before rows are read, for the transactions of other runs that have already compared rows."""
        # They may write rows as they were before the changes that this run has claimed. If this run compared its rows
        # before that, they would count as unchanged, and would not be read again.
        await self._database.write("wait for other runs", lambda c: self._hold(c, alone=True))

    async def write(self, batch: RowBatch, *, is_empty: bool) -> int:
        """Store the rows of a batch with their chunks; return how many rows it had."""
        # `is_empty` means that the collection had no chunks when the run began.
        if not batch.keys:
            return 0
        indexer = self._indexer
        replaced: set[bytes] = set()

        async def work(connection: Connection, mode: WriteMode) -> tuple[RowBatch, list[str]]:
            replaced.clear()
            await self._hold(connection)
            known: set[bytes] = set()
            if mode == "merge":  # else hardly one exists, and one that does ends this attempt
                known = await lock_documents(connection, self._names, batch.documents.document_id)
            same = await self.table.unchanged(batch.states(), connection)
            still = [number for number, key in enumerate(batch.keys) if key in same]
            kept = batch if len(still) == len(batch) else batch.selected(still)
            if kept.keys:
                await write_chunks(
                    connection,
                    indexer.collection,
                    kept.chunks,
                    mode=mode,
                    documents=kept.documents,
                    known_documents=known,
                    replaced_documents=replaced,
                    bulk=indexer.bulk,
                )
                await self._settle(connection, kept.keys)
            stored = set(kept.keys)
            return kept, [key for key in batch.keys if key not in stored]

        try:
            kept, moved = await indexer.write_batch("store rows", "direct" if is_empty else "merge", work, batch.chunks)
        except StoreError as error:
            if not is_of_row(error.sqlstate):
                raise
            if len(batch) == 1:
                self._notes.fail([batch.failure(0, error)])
                return 1
            half = len(batch) // 2
            await self.write(batch.selected(range(half)), is_empty=is_empty)
            await self.write(batch.selected(range(half, len(batch))), is_empty=is_empty)
            return len(batch)
        self._notes.again |= dict.fromkeys(moved)
        indexer.sample.note_written(len(kept.chunks))
        report = self.report
        report.added += len(kept) - len(replaced)
        report.changed += len(replaced)
        report.chunks += len(kept.chunks)
        return len(batch)

    async def refresh(self, keys: Sequence[str], rows: Sequence[tuple[str, RowState, dict[str, Any]]]) -> None:
        """Replace the metadata of rows whose text has not changed."""
        # `keys` are those of the rows that were to be read, `rows` what `ComparedTable.metadata` returns for them.
        states = {key: state for key, state, _ in rows}
        faults = _core.validate_rows([("metadata", "jsonb", [values for *_, values in rows], None)])
        wrong = {rows[one[0]][0]: FieldError(-1, *one[1:]) for one in reversed(faults)}
        self._notes.fail(
            FailedRow(key, combined(*states[key].hashes), error.code, str(error)) for key, error in wrong.items()
        )
        made = {
            key: RowMetadata(row_document_id(self._stored.name, key), *state.hashes, _core.to_json(values))
            for key, state, values in rows
            if key not in wrong
        }
        self._notes.again |= dict.fromkeys(key for key in keys if key not in states)
        await self._write_metadata(made, states)

    async def _write_metadata(self, rows: dict[str, RowMetadata], states: dict[str, RowState]) -> None:
        async def work(connection: Connection) -> list[str]:
            await self._hold(connection)
            await lock_documents(connection, self._names, [row.document_id.bytes for row in rows.values()])
            same = await self.table.unchanged({key: states[key] for key in rows}, connection)
            done = await refresh_metadata(connection, self._names, [rows[key] for key in rows if key in same])
            keys = [key for key, row in rows.items() if row.document_id in done]
            await self._settle(connection, keys)
            return keys

        refreshed = await self._database.write("store metadata of rows", work)
        self.report.refreshed += len(refreshed)
        self._notes.again |= dict.fromkeys(rows.keys() - set(refreshed))
        self._indexer.sample.note_written(len(refreshed))

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the documents of rows that are still gone."""
        collection = self._indexer.collection
        for part in in_parts(keys, BATCH_DOCUMENTS):

            async def work(connection: Connection, part: Sequence[str] = part) -> tuple[int, int, set[str]]:
                async with begin_write(connection, collection) as index:
                    if not await hold_table(connection, self._names, self._stored):
                        raise StoppedError
                    documents = {key: row_document_id(self._stored.name, key) for key in part}
                    await lock_documents(connection, self._names, [one.bytes for one in documents.values()])
                    present = await self.table.present(part, connection)
                    gone = [key for key in part if key not in present]
                    selection = Selection([documents[key] for key in gone], Filter(), whole=True)
                    chunks, emptied = await delete_within(connection, collection, selection, index)
                    await self._settle(connection, gone)
                    return chunks, emptied, present

            chunks, emptied, present = await self._indexer.write_and_merge("delete rows", work)
            self._indexer.sample.note_written(chunks)
            self.report.deleted += emptied
            self._notes.again |= dict.fromkeys(present)

    async def _settle(self, connection: Connection, keys: Sequence[str], changes: Sequence[Change] = ()) -> None:
        """Remove `changes`, and the entries of rows whose stored form is now up to date, from the queue."""
        claimed = [*changes, *self._notes.claims_of(keys)]
        done = keys if self._notes.has_problems else ()
        if claimed or done:
            await self._queue.settle(connection, claimed, done=done)

    async def end(self, keys: Sequence[str], changes: Sequence[Change]) -> None:
        """Remove `changes`, and the entries of rows whose stored form needs no change, from the queue."""
        if changes or self._notes.claims_of(keys) or (keys and self._notes.has_problems):
            await self._database.write("settle rows", lambda c: self._settle(c, keys, changes))

    async def set_aside(self) -> None:
        """Record the rows that could not be stored, so that later runs try them again."""
        failed, self._notes.failed = list(self._notes.failed.values()), {}
        if not failed:
            return
        claimed = [change for row in failed for change in self._notes.claimed.pop(row.row_key, ())]

        async def work(connection: Connection) -> None:
            await self._hold(connection, alone=True)
            await self._queue.settle(connection, claimed, failed=failed)

        await self._database.write("set rows aside", work)
        self._notes.has_problems = True
        self.report.failed += len(failed)
        room = SHOWN_PROBLEMS - len(self.report.problems)
        self.report.problems += [
            RowProblem(key=row.row_key, code=row.code, message=row.message) for row in failed[:room]
        ]
