"""Find rows of a followed table that differ from the stored ones: compare all rows, given keys, or recent changes."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from semlex.errors import ConfigurationError, StoreError
from semlex.ingest.batches import in_parts
from semlex.ingest.followed.rows import REPEATED, combined
from semlex.store.followed.compare import ComparedTable, Differences, Part, is_of_row
from semlex.store.followed.queue import Change, ChangeQueue, FailedRow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
    from uuid import UUID

    from semlex.store.followed.definitions import StoredTable
    from semlex.store.postgres.database import Database

T = TypeVar("T")

KEYS_AT_ONCE = 2_000
# Rows of the first page that is compared; later ones take about this many seconds.
FIRST_PAGE_ROWS, MAX_PAGE_ROWS = 5_000, 100_000
PAGE_SECONDS = (0.3, 1.5)


class RowComparison:
    """Compares rows of a table with the stored ones, and notes which are gone, unchanged or unreadable."""

    def __init__(
        self,
        database: Database,
        stored: StoredTable,
        table: ComparedTable,
        queue: ChangeQueue,
        notes: RunNotes,
        *,
        # Whether to continue if none of the stored rows exists any more.
        allow_empty: bool,
    ) -> None:
        self._database, self._stored, self._table = database, stored, table
        self._queue, self._notes = queue, notes
        self._is_checked = allow_empty

    async def pages(self, *, only_keys: bool) -> AsyncGenerator[Differences, None]:
        """Compare all rows, page by page in the order of their keys."""
        after: list[str] | None = None
        rows = FIRST_PAGE_ROWS
        while True:
            began = time.perf_counter()
            until = await self._table.bound(after, rows)
            found = await self._compare(self._table.page(after, until), only_keys=only_keys)
            seconds = time.perf_counter() - began  # without what is done with them
            for one in found:
                yield one
            if until is None:
                return
            after = until
            if seconds < PAGE_SECONDS[0]:
                rows = min(rows * 4, MAX_PAGE_ROWS)
            elif seconds > PAGE_SECONDS[1]:
                rows = max(rows // 2, FIRST_PAGE_ROWS // 10)

    async def of_column(self, watermark: str) -> AsyncGenerator[Differences, None]:
        """Compare rows whose time of change, in a column, is after `watermark` or up to `overlap` seconds before it."""
        table = self._table
        since = table.marked_since(watermark, self._stored.table.overlap)
        after: str | None = None
        while True:
            rest = table.marked_between(after, None, since)
            until = await table.mark_bound(rest, MAX_PAGE_ROWS)
            for one in await self._compare(table.marked_between(after, until, since)):
                yield one
            if until is None:
                return
            after = until

    async def of_keys(self, keys: Sequence[str]) -> AsyncGenerator[Differences, None]:
        """Compare the rows of these keys; note which are gone, and which are unchanged."""
        for part in in_parts(keys, KEYS_AT_ONCE):
            found: set[str] = set()
            differences = await self._compare_keys(part, every=True)
            for one in differences:
                found.update(key for key, _ in (*one.new, *one.changed))
                found.update(one.refreshed, one.same)
                self._notes.same += one.same
            if gone := dict.fromkeys(key for key in part if key not in found and key not in self._notes.failed):
                await self.refuse_emptied()
                self._notes.gone |= gone
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
            return await self._table.compare(self._table.with_keys(some), every=every, only_keys=only_keys)

        found = await self.by_halves(keys, compare)
        return [await self._without_put_off(one) for one in found]

    async def _put_off(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the stored hashes of those rows that failed before and are not due to be tried again."""
        if not self._notes.has_problems or not keys:
            return {}
        return await self._database.read("read problems", lambda c: self._queue.put_off(c, keys))

    async def _without_put_off(self, found: Differences) -> Differences:
        """Leave out rows that failed before, have not changed since, and are not due to be tried again."""
        differing = [*(key for key, _ in (*found.new, *found.changed)), *found.refreshed]
        put_off = await self._put_off([key for key in differing if key not in self._notes.claimed])
        if not put_off:
            return found
        now = await self.by_halves([key for key in put_off if put_off[key] is not None], self._table.states)
        hashes = {key: combined(*one.hashes) for part in now for key, one in part.items()}
        # A row without a hash had none that the server could compute: it has changed.
        left = {key for key, row_hash in put_off.items() if hashes.get(key, REPEATED) == row_hash}
        found.new = [row for row in found.new if row[0] not in left]
        found.changed = [row for row in found.changed if row[0] not in left]
        found.refreshed = [key for key in found.refreshed if key not in left]
        return found

    async def by_halves(self, keys: Sequence[str], work: Callable[[Sequence[str]], Awaitable[T]]) -> list[T]:
        """Call `work` for keys; if a row's values make it fail, set that row aside and call `work` for the others."""
        if not keys:
            return []
        try:
            return [await work(keys)]
        except StoreError as error:
            if not is_of_row(error.sqlstate):
                raise
            if len(keys) == 1:
                failed = FailedRow(keys[0], await self._hash(keys[0]), error.sqlstate or "", str(error))
                self._notes.fail([failed])
                return []
        half = len(keys) // 2
        return [*await self.by_halves(keys[:half], work), *await self.by_halves(keys[half:], work)]

    async def _hash(self, key: str) -> str | None:
        """Return the hash of a row that failed, to notice later whether the row has changed; None if it has no hash."""
        try:
            states = await self._table.states([key])
        except StoreError as error:
            if not is_of_row(error.sqlstate):
                raise
            return None
        return combined(*states[key].hashes) if key in states else None

    async def find_gone(self) -> AsyncGenerator[None, None]:
        """Note the keys of stored rows that are not in the table any more, page by page."""
        async for keys in self._stored_keys(MAX_PAGE_ROWS):
            for part in in_parts(keys, KEYS_AT_ONCE):
                self._notes.gone |= dict.fromkeys(set(part) - await self._table.present(part))
            yield

    async def _stored_keys(self, rows: int) -> AsyncGenerator[list[str], None]:
        """Yield the keys of the stored rows in pages of up to `rows`."""
        after: UUID | None = None
        while True:
            keys, after = await self._table.stored_keys(after, rows)
            if not keys:
                return
            yield keys

    async def refuse_emptied(self) -> None:
        """Refuse to continue if none of the stored rows exists any more."""
        if self._is_checked:
            return
        stored = 0
        async with aclosing(self._stored_keys(KEYS_AT_ONCE)) as pages:
            async for keys in pages:
                if await self._table.present(keys):
                    stored = 0
                    break
                stored += len(keys)
        if stored:
            table = f"{self._stored.table.schema}.{self._stored.table.table}"
            raise ConfigurationError(
                f"none of the {stored:,} rows that were read from {table} exists any more, so nothing was deleted. To "
                f"delete their documents: semlex sync --table {self._stored.name} --allow-empty (allow_empty=True)"
            )
        self._is_checked = True


@dataclass(slots=True)
class RunNotes:
    """Notes of one sync of a followed table about rows, by their keys."""

    claimed: dict[str, list[Change]] = field(default_factory=dict)  # entries of the queue that the run has claimed
    again: dict[str, None] = field(default_factory=dict)  # rows that changed while they were read, to be read again
    # Rows that are not in the table, whose documents are to be deleted.
    gone: dict[str, None] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)  # rows that are stored unchanged
    failed: dict[str, FailedRow] = field(default_factory=dict)  # rows that could not be stored, to be set aside
    has_problems: bool = False  # whether rows were set aside, by this run or before it

    def claim(self, changes: Iterable[Change]) -> None:
        """Note claimed queue entries that concern single rows."""
        for change in changes:
            if change.row_key is not None:
                self.claimed.setdefault(change.row_key, []).append(change)

    def claims_of(self, keys: Sequence[str]) -> list[Change]:
        """Return the claimed queue entries of rows."""
        return [change for key in keys for change in self.claimed.get(key, ())]

    def fail(self, rows: Iterable[FailedRow]) -> None:
        """Note rows that could not be stored."""
        self.failed |= {row.row_key: row for row in rows}
