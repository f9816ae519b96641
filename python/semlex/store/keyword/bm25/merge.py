"""Merge segments: many small ones become few large ones, and tombstones are removed."""

# Every writer checks at its end whether a merge is due. It runs in a transaction of its own, under a lock that it does
# not wait for; writers and readers do not wait either. If another process was faster, the server refuses the merge.

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
from psycopg import sql

from semlex import _core
from semlex.errors import SemlexError, StoreError
from semlex.store.keyword.bm25.segments import NewSegment, Source, posting_rows, write_segments
from semlex.store.postgres.errors import LOCK_NOT_AVAILABLE
from semlex.store.postgres.rows import fetch_value
from semlex.store.postgres.settings import set_local
from semlex.store.segments import (
    SEGMENT_CHUNKS,
    check_manifest,
    choose_merge,
    choose_packing,
    merging_lock,
    read_state,
    segment_headers,
    segment_sizes,
    tombstone_ids,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import CollectionIdentity, Names
    from semlex.store.segments import Cursor

logger = logging.getLogger("semlex")

# A segment is rewritten when more than a quarter of it is dead.
DEAD_SHARE = 0.25
# With this many tombstones they are merged, and the dead chunks are counted.
MAX_TOMBSTONES = 32
# A call that wrote this many chunks is a bulk load: half a segment.
BULK_LOAD_CHUNKS = SEGMENT_CHUNKS // 2
SERIALIZATION_FAILURE = "40001"
BUSY_SECONDS = 0.1
BUSY_LIMIT_SECONDS = 60.0
# A merge that deleted this many posting rows vacuums at once: the next merge needs the room.
ROOM_ROWS = 1_000
# Merges of one writer in a row; the next writer goes on.
MAX_MERGES = 16


async def merge_wanted(answer: Cursor) -> bool:
    """Return whether a merge is due, from the answer to `ask_sizes`."""
    return any(
        counts[0] >= MAX_TOMBSTONES if language is None else bool(choose_merge(counts))
        for language, counts in await answer.fetchall()
    )


async def merge_where_wanted(database: Database, collection: CollectionIdentity, *, written: int = 0) -> None:
    """Merge segments as long as a merge is due; log an error instead of raising it."""
    headers: ReadHeaders = {}
    try:
        for _ in range(MAX_MERGES):
            step = await merge_once(database, collection, headers, thoroughly=written >= BULK_LOAD_CHUNKS)
            if not step.done:
                break
            await _give_room_back(database, collection, step)
    except SemlexError as error:
        logger.warning("the keyword index of %s was not merged: %s", collection.names.collection, error)


async def optimize(
    database: Database, collection: CollectionIdentity, progress: Callable[[int, int], None] | None = None
) -> int:
    """Merge all segments into as few as possible, and remove all tombstones; return how many segments were merged."""
    merged = steps = most = 0
    waited = 0.0
    headers: ReadHeaders = {}
    while True:
        step = await merge_once(database, collection, headers, thoroughly=True)
        if step.busy:
            if waited >= BUSY_LIMIT_SECONDS:
                raise StoreError(
                    f"merge the keyword index: another process has been merging it for {waited:.0f} s; "
                    "wait until that process is done, or end its session (the holder of an advisory lock in pg_locks), "
                    "then try again",
                    sqlstate=LOCK_NOT_AVAILABLE,
                )
            await asyncio.sleep(BUSY_SECONDS)
            waited += BUSY_SECONDS
            continue
        waited = 0.0
        # Every step but the last has one segment less: what writers add meanwhile is left to them.
        most = most or step.merged + step.left + 1
        if not step.done or steps == most:
            return merged
        await _give_room_back(database, collection, step)
        steps += 1
        merged += step.merged
        if progress is not None:
            progress(merged, merged + step.left)


async def _give_room_back(database: Database, collection: CollectionIdentity, step: MergeStep) -> None:
    """Free the space of the rows that a merge deleted, by VACUUM; if that is impossible now, leave it to autovacuum."""
    # Autovacuum would do it within a minute or so; a load makes several merges in that time, and the tables would grow
    # to twice their size. With a role it is never possible, because a role belongs to a transaction and VACUUM runs
    # outside of one.
    if step.rows < ROOM_ROWS or database.joins_transaction or database.role is not None:
        return
    names = collection.names
    try:
        async with database.connection() as connection:
            # A caller's pool may have connections that begin a transaction automatically.
            if connection.autocommit:
                await connection.execute(sql.SQL("VACUUM (SKIP_LOCKED) {}, {}").format(names.posting, names.segment))
    except psycopg.Error as error:
        logger.info("the keyword index of %s was not vacuumed: %s", names.collection, error.sqlstate)


@dataclass(frozen=True, slots=True)
class MergeStep:
    """The result of one transaction that merges segments."""

    done: bool
    merged: int = 0  # segments that it replaced
    left: int = 0  # segments that it left unchanged
    rows: int = 0  # posting rows that it deleted
    busy: bool = False  # whether another process was merging


async def merge_once(
    database: Database, collection: CollectionIdentity, headers: ReadHeaders | None = None, *, thoroughly: bool = False
) -> MergeStep:
    """Merge one group of segments of the generation that searches use; if none is due, of the one being built."""
    # Writers add to the second generation, too, even after its rebuild was killed. Rows that a merge there drops too
    # early are restored when a rebuild makes it answer.
    # `headers` are those that earlier merges of the same caller have read; this one adds its own.
    known: ReadHeaders = {} if headers is None else headers

    async def work(connection: Connection) -> MergeStep:
        # A limit of the role is for statements that others wait for, not for this.
        await set_local(connection, statement_timeout=0)
        is_mine = await fetch_value(connection, "SELECT pg_try_advisory_xact_lock(%s)", [merging_lock(collection)])
        if not is_mine:
            return MergeStep(done=False, busy=True)
        state = await read_state(connection, collection)
        for generation, version in zip(state.live, state.versions, strict=True):
            if version == _core.ANALYZER_VERSION:
                step = await _Merge(connection, collection.names, generation, known, thoroughly).run()
                if step.done:
                    # The switch of a rebuild holds this row alone. It must see all of a merge, or the merge must see
                    # it: the server refuses this lock (40001) if the switch was committed after this snapshot. Else a
                    # tombstone that the switch still read would be gone behind it.
                    await read_state(connection, collection, "FOR SHARE")
                    return step
        return MergeStep(done=False)

    try:
        return await database.write("merge the keyword index", work, one_snapshot=True)
    except StoreError as error:
        # Advisory locks are per node on a distributed Postgres, and a snapshot may be older than the lock: then the
        # server, or the number of deleted rows, shows that another process has merged these.
        if error.sqlstate == SERIALIZATION_FAILURE:
            return MergeStep(done=False, busy=True)
        raise


@dataclass(frozen=True, slots=True)
class _Header:
    """A segment's header as it is stored, with the ids of chunks that the header lists."""

    data: bytes
    ids: _core.IdSet


# Segments never change, so one merge can use what another has read.
ReadHeaders = dict[UUID, _Header]


@dataclass(frozen=True, slots=True)
class _Merge:
    """One merge: a transaction with one snapshot."""

    _connection: Connection
    _names: Names
    _generation: int
    _headers: ReadHeaders
    _thoroughly: bool

    async def run(self) -> MergeStep:
        segments = await segment_sizes(self._connection, self._names, self._generation)
        tombstones = await tombstone_ids(self._connection, self._names, self._generation)
        await check_manifest(self._connection, self._names, self._generation, len(segments) + len(tombstones))
        dead = _core.IdSet.union(list(tombstones.values()))
        # Only the headers tell which segment contains which dead chunks: all are read now and then.
        counted = self._thoroughly or len(tombstones) >= MAX_TOMBSTONES
        chunks_of = {segment_id: chunks for segment_id, _, chunks in segments}
        held: dict[UUID, _core.IdSet] = {}
        if counted:
            held = {segment_id: header.ids for segment_id, header in (await self._read(list(chunks_of))).items()}
        sizes = {
            segment_id: chunks - ((held[segment_id] & dead).count if counted else 0)
            for segment_id, _, chunks in segments
        }
        language, chosen = self._chosen(segments, sizes, chunks_of)
        if not chosen and not (counted and len(tombstones) > 1) and not (self._thoroughly and tombstones):
            return MergeStep(done=False)
        merged = await self._read(chosen)
        absorbed = _core.IdSet.union([header.ids for header in merged.values()])
        rows = await self._replace_segments(merged, language, dead)
        for segment_id in chosen:
            del self._headers[segment_id]
        kept = [ids for segment_id, ids in held.items() if segment_id not in chosen] if counted else None
        await self._replace_tombstones(tombstones, absorbed, None if kept is None else _core.IdSet.union(kept))
        return MergeStep(done=True, merged=len(chosen), left=len(segments) - len(chosen), rows=rows)

    def _chosen(
        self, segments: Sequence[tuple[UUID, str, int]], sizes: dict[UUID, int], chunks_of: dict[UUID, int]
    ) -> tuple[str, list[UUID]]:
        """Return the language and the ids of the segments to merge next; no ids if no merge is due."""
        share = 0.0 if self._thoroughly else DEAD_SHARE
        choose = choose_packing if self._thoroughly else choose_merge
        by_language: dict[str, list[UUID]] = {}
        for segment_id, language, _ in segments:
            by_language.setdefault(language, []).append(segment_id)
        for language, own in sorted(by_language.items()):
            positions = choose([sizes[segment_id] for segment_id in own])
            hollow = [one for one in own if chunks_of[one] - sizes[one] > share * chunks_of[one]]
            chosen = [own[position] for position in positions] or hollow[:1]
            if chosen:
                return language, chosen
        return "", []

    async def _read(self, segments: Sequence[UUID]) -> dict[UUID, _Header]:
        """Return the headers of segments; read those that this load or optimisation has not read yet."""
        missing = [segment_id for segment_id in segments if segment_id not in self._headers]
        if missing:
            read = await segment_headers(self._connection, self._names, missing)
            for segment_id, data in read.items():
                self._headers[segment_id] = _Header(data, _core.segment_ids(segment_id.bytes, data))
        return {segment_id: self._headers[segment_id] for segment_id in segments}

    async def _replace_segments(self, chosen: Mapping[UUID, _Header], language: str, dead: _core.IdSet) -> int:
        """Replace the chosen segments by one merged segment; return the number of deleted posting rows."""
        if not chosen:
            return 0
        sources: list[Source] = []
        for segment_id, header in chosen.items():
            rows = await posting_rows(self._connection, self._names, segment_id)
            sources.append((segment_id.bytes, header.data, rows))
        new = await asyncio.to_thread(NewSegment.merged, sources, dead, self._generation, language)
        await self._delete(self._names.segment, "segment_id", chosen, len(chosen))
        await self._delete(self._names.manifest, "part_id", chosen, len(chosen))
        deleted = sum(len(rows) for *_, rows in sources)
        await self._delete(self._names.posting, "segment_id", chosen, deleted)
        await write_segments(self._connection, self._names, [new])
        return deleted

    async def _replace_tombstones(
        self, tombstones: dict[UUID, _core.IdSet], absorbed: _core.IdSet, kept: _core.IdSet | None
    ) -> None:
        """Rewrite tombstones without the ids that no segment contains any more."""
        left = {
            tombstone_id: ids - absorbed if kept is None else ids & kept for tombstone_id, ids in tombstones.items()
        }
        if kept is not None and len(tombstones) > 1:
            done = list(tombstones)
        else:
            done = [tombstone_id for tombstone_id, ids in left.items() if ids.count < tombstones[tombstone_id].count]
        if not done:
            return
        await self._delete(self._names.tombstone, "tombstone_id", done, len(done))
        await self._delete(self._names.manifest, "part_id", done, len(done))
        rest = _core.IdSet.union([left[tombstone_id] for tombstone_id in done])
        await write_segments(self._connection, self._names, [], [(self._generation, rest)])

    async def _delete(self, table: sql.Identifier, key: str, ids: Iterable[UUID], rows: int) -> None:
        """Delete rows by id; raise an error unless their number is `rows`, the number that was read."""
        cursor = await self._connection.execute(
            sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(table, sql.Identifier(key)), [list(ids)]
        )
        if cursor.rowcount != rows:
            raise StoreError(
                f"the merge read {rows} rows but deleted {cursor.rowcount}, so it was rolled back",
                sqlstate=SERIALIZATION_FAILURE,
            )
