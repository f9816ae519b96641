"""Segments of an index of chunks: generations, sizes, ids, and which segments are merged next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from psycopg import AsyncCursor, sql

from semlex import _core
from semlex.errors import DamagedSegmentError
from semlex.store.postgres.rows import fetch_rows, fetch_value
from semlex.store.schema.locks import gone
from semlex.store.write.copy import ids_of, joined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity, Names

    Cursor = AsyncCursor[Any]

# A segment numbers its chunks with 16 bits.
SEGMENT_CHUNKS = 65_536
# Size-tiered compaction: segments are grouped by floor(log_TIER(chunks)). A tier with TIER segments is merged, so that
# a chunk is rewritten once per tier.
TIER = 8
# From this power on (4,096 chunks) segments wait until a full one can be made of them.
PACKED_TIER = 4
# A segment with this many chunks is not merged with others.
FULL_CHUNKS = SEGMENT_CHUNKS * 9 // 10


def tier(chunks: int) -> int:
    """Return the tier of a segment with this number of chunks: the logarithm to the base `TIER`, rounded down."""
    power = 0
    while chunks >= TIER:
        chunks //= TIER
        power += 1
    return power


def choose_merge(sizes: Sequence[int]) -> list[int]:
    """Return which segments of one language to merge next, as positions in `sizes`; empty if no merge is due."""
    # Small segments are merged in tiers, as log-structured stores do (P. O'Neil et al., "The Log-Structured
    # Merge-Tree", 1996). Large ones wait until they fill a segment, so that they are rewritten once more and then
    # hardly ever.
    tiers = [tier(size) for size in sizes]
    ascending = sorted(range(len(sizes)), key=sizes.__getitem__)
    for power in range(PACKED_TIER):
        if tiers.count(power) >= TIER:
            return _filled(sizes, [], [position for position in ascending if tiers[position] <= power])
    small = [position for position in reversed(ascending) if tiers[position] <= PACKED_TIER]
    for position in reversed(ascending):
        if tiers[position] > PACKED_TIER and sizes[position] < FULL_CHUNKS:
            filled = _filled(sizes, [position], small)
            if sum(sizes[one] for one in filled) >= FULL_CHUNKS:
                return filled
    if sum(sizes[position] for position in small) > SEGMENT_CHUNKS:
        return _filled(sizes, [], small)
    return []


def choose_packing(sizes: Sequence[int]) -> list[int]:
    """Choose the next merge on the way to the fewest segments: the largest segment with others that fit beside it."""
    descending = sorted(range(len(sizes)), key=lambda position: (-sizes[position], position))
    for number, position in enumerate(descending):
        filled = _filled(sizes, [position], descending[number + 1 :])
        if len(filled) > 1:
            return filled
    return []


def _filled(sizes: Sequence[int], begun: list[int], others: Sequence[int]) -> list[int]:
    """Return `begun`, then each position of `others`, in order, whose segment still fits into the merged one."""
    filled = list(begun)
    room = SEGMENT_CHUNKS - sum(sizes[position] for position in begun)
    for position in others:
        if sizes[position] <= room:
            filled.append(position)
            room -= sizes[position]
    return filled


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of a collection's keyword index, as its row in the registry has it."""

    generation: int  # the one that answers
    version: int | None  # of the analyzer that makes it
    building: int | None  # the one being made
    building_version: int | None  # of the analyzer that makes that one

    @property
    def live(self) -> list[int]:
        """The generations that writers add to."""
        return [self.generation] if self.building is None else [self.generation, self.building]

    @property
    def versions(self) -> list[int | None]:
        """The analyzer version of each generation in `live`."""
        return [self.version] if self.building is None else [self.version, self.building_version]


def merging_lock(collection: CollectionIdentity) -> int:
    """Return the key of the advisory lock for merging or removing segments."""
    return int.from_bytes(collection.collection_id.bytes[:8], signed=True)


RowLock = Literal["", "FOR SHARE"]
_ROW_LOCKS: dict[RowLock, sql.SQL] = {"": sql.SQL(""), "FOR SHARE": sql.SQL("FOR SHARE")}


async def ask_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> Cursor:
    """Send the query for the index's state, with `lock` on the registry's row; `state_told` reads the answer."""
    names = collection.names
    return await connection.execute(
        sql.SQL(
            "SELECT keyword_generation, analyzer_version, building_generation, building_analyzer_version FROM {} "
            "WHERE name = %s AND collection_id = %s {}"
        ).format(names.registry, _ROW_LOCKS[lock]),
        [names.collection, collection.collection_id],
    )


async def state_told(answer: Cursor, collection: CollectionIdentity) -> IndexState:
    """Read the answer to `ask_state`."""
    row = await answer.fetchone()
    if row is None:
        raise gone(collection)
    return IndexState(*row)


async def read_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> IndexState:
    """Return the state of a collection's keyword index, with `lock` on the registry's row."""
    return await state_told(await ask_state(connection, collection, lock), collection)


IDS_PAGE = 1_000_000


@lru_cache(maxsize=256)
def _counting(names: Names) -> bytes:
    """Return the query for the sizes of segments and the number of tombstones in each live generation."""
    return (
        sql.SQL(
            "WITH live AS (SELECT keyword_generation, building_generation FROM {registry} WHERE name = %(name)s) "
            "SELECT language, array_agg(chunks) FROM {segment}, live "
            "WHERE generation IN (keyword_generation, building_generation) GROUP BY generation, language UNION ALL "
            "SELECT NULL, ARRAY[count(*)::int] FROM {tombstone}, live "
            "WHERE generation IN (keyword_generation, building_generation) GROUP BY generation"
        )
        .format(registry=names.registry, segment=names.segment, tombstone=names.tombstone)
        .as_bytes()
    )


async def ask_sizes(connection: Connection, collection: CollectionIdentity) -> Cursor:
    """Send the query for the sizes by which a merge is decided; `merge_wanted` reads the answer."""
    return await connection.execute(_counting(collection.names), {"name": collection.names.collection})


async def segment_sizes(connection: Connection, names: Names, generation: int) -> list[tuple[UUID, str, int]]:
    """Return id, language and number of chunks (with deleted ones) of every segment, the smallest first."""
    statement = sql.SQL("SELECT segment_id, language, chunks FROM {} WHERE generation = %s ORDER BY chunks, segment_id")
    return await fetch_rows(connection, statement.format(names.segment), [generation])


async def segment_headers(connection: Connection, names: Names, segments: Sequence[UUID]) -> dict[UUID, bytes]:
    """Return the header of each of these segments by segment id."""
    statement = sql.SQL("SELECT segment_id, header FROM {} WHERE segment_id = ANY(%s)").format(names.segment)
    return dict(await fetch_rows(connection, statement, [list(segments)]))


async def tombstone_ids(connection: Connection, names: Names, generation: int) -> dict[UUID, _core.IdSet]:
    """Return, for each tombstone of a generation, the ids of chunks that it deletes."""
    statement = sql.SQL("SELECT tombstone_id, data FROM {} WHERE generation = %s").format(names.tombstone)
    found = await fetch_rows(connection, statement, [generation])
    return {tombstone_id: _core.decode_tombstone(tombstone_id.bytes, data) for tombstone_id, data in found}


async def check_manifest(connection: Connection, names: Names, generation: int, parts: int) -> None:
    """Refuse an index if `parts`, the number of segments and tombstones read, differs from the manifest's."""
    statement = sql.SQL("SELECT count(*) FROM {} WHERE generation = %s").format(names.manifest)
    refuse_lost_parts(parts, await fetch_value(connection, statement, [generation]))


def refuse_lost_parts(found: int, listed: int) -> None:
    """Refuse an index that has another number of segments and tombstones than its manifest lists."""
    if found != listed:
        raise DamagedSegmentError(None, f"it has {found} segments and tombstones; its manifest lists {listed}")


async def segment_ids(connection: Connection, names: Names, generation: int) -> list[_core.IdSet]:
    """Return, for each segment of a generation, the ids in it, with those of deleted chunks."""
    # One statement: a merge between two would take segments of the first away from the second.
    statement = sql.SQL("SELECT segment_id, header FROM {} WHERE generation = %s").format(names.segment)
    found = await fetch_rows(connection, statement, [generation])
    return [_core.segment_ids(segment_id.bytes, header) for segment_id, header in found]


async def live_ids(connection: Connection, names: Names, generation: int) -> _core.IdSet:
    """Return the ids of a generation's live chunks: those in its segments and in no tombstone."""
    segments = await segment_ids(connection, names, generation)
    tombstones = await tombstone_ids(connection, names, generation)
    await check_manifest(connection, names, generation, len(segments) + len(tombstones))
    return _core.IdSet.union(segments) - _core.IdSet.union(list(tombstones.values()))


async def chunk_ids(connection: Connection, names: Names) -> NDArray[np.int64]:
    """Return the keyword ids of all stored chunks, ascending."""
    pages = [np.array([-(2**63)], dtype=np.int64)]
    while len(pages[-1]):
        page = await fetch_value(
            connection,
            sql.SQL(
                "SELECT array_send(array_agg(page.keyword_id)) FROM (SELECT c.keyword_id FROM {} AS c "
                "WHERE c.keyword_id > %s ORDER BY c.keyword_id LIMIT {}) AS page"
            ).format(names.chunk, sql.Literal(IDS_PAGE)),
            [int(pages[-1][-1])],
        )
        pages.append(ids_of(page))
    return joined(pages[1:])
