"""Write and read rows of the keyword index (segments, postings, tombstones), its generations and their lock."""

# One generation answers, another may be under construction.

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import DamagedSegmentError
from semlex.store.query.leg import Statement
from semlex.store.schema.locks import gone
from semlex.store.write.copy import copy_rows, ids_of, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from psycopg import AsyncCursor

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity, Names

    Cursor = AsyncCursor[Any]


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of a collection's index in the registry."""

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
_ROW_LOCKS: dict[RowLock, sql.SQL] = {
    "": sql.SQL(""),
    "FOR SHARE": sql.SQL("FOR SHARE"),
}


async def ask_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> Cursor:
    """Request the state of a collection's index and lock the registry's row; `state_told` reads the answer."""
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
    """Request and read the state."""
    return await state_told(await ask_state(connection, collection, lock), collection)


# A segment numbers its chunks with 16 bits.
SEGMENT_CHUNKS = 65_536
# Up to this many posting rows travel as arrays with the segments, in one statement.
FEW_POSTING_ROWS = 64
# Sizes of data of which four rows fill a page, but three and a different one do not.
QUARTER_PAGE_BYTES = range(1_700, 2_001)
IDS_PAGE = 1_000_000


# Id, header, and posting rows: what `merge_segments` merges.
Source = tuple[bytes, bytes, list[tuple[bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment to be written."""

    # Random and never used again, so that a cached segment is never out of date.
    segment_id: UUID
    generation: int
    language: str  # of all its chunks
    encoded: _core.EncodedSegment  # its header and its posting rows

    @classmethod
    def built(cls, builder: _core.SegmentBuilder, generation: int, language: str) -> NewSegment:
        """Make the segment of a builder's chunks."""
        segment_id = uuid4()
        return cls(segment_id, generation, language, builder.finish(segment_id.bytes))

    @classmethod
    def merged(cls, sources: Sequence[Source], dead: _core.IdSet, generation: int, language: str) -> NewSegment:
        """Merge the live chunks of other segments into one segment."""
        segment_id = uuid4()
        return cls(segment_id, generation, language, _core.merge_segments(segment_id.bytes, sources, dead))

    def without(self, dead: _core.IdSet, generation: int) -> NewSegment:
        """Return a segment with the chunks except the dead ones."""
        rows = list(zip(self.encoded.first_terms, self.encoded.data, strict=True))
        source = (self.segment_id.bytes, self.encoded.header, rows)
        return NewSegment.merged([source], dead, generation, self.language)


async def write_segments(
    connection: Connection,
    names: Names,
    segments: Iterable[NewSegment],
    tombstones: Iterable[tuple[int, _core.IdSet]] = (),
) -> None:
    """Write segments and tombstones."""
    new = [segment for segment in segments if segment.encoded.chunks]
    dead = [(uuid4(), generation, ids) for generation, ids in tombstones if ids]
    if not new and not dead:
        return
    rows = _posting_rows(new)
    if len(rows) > FEW_POSTING_ROWS:
        owners, terms, data = _columns(rows)
        columns = [("segment_id", "uuid", owners), ("first_term", "bytea", terms), ("data", "bytea", data)]
        target = sql.SQL("COPY {} (segment_id, first_term, data) FROM STDIN (FORMAT binary)").format(names.posting)
        await copy_rows(connection, target, [_core.CopyEncoder(columns)])
        rows = []
    await connection.execute(_insertion(names), _values(new, rows, dead))


def few_segments(names: Names, segments: Iterable[NewSegment], keyword_id: int) -> Statement | None:
    """Return the statement that writes segments if a chunk has that id; None if they have too many rows for one."""
    new = [segment for segment in segments if segment.encoded.chunks]
    rows = _posting_rows(new)
    if len(rows) > FEW_POSTING_ROWS:
        return None
    return Statement(_insertion(names, only_with=True), {**_values(new, rows, []), "keyword_id": keyword_id})


PostingRow = tuple[UUID, bytes, bytes]


def _posting_rows(segments: Iterable[NewSegment]) -> list[PostingRow]:
    rows = [
        (segment.segment_id, term, row)
        for segment in segments
        for term, row in zip(segment.encoded.first_terms, segment.encoded.data, strict=True)
    ]
    # Rows of a quarter of a page fill pages next to each other; among others they would leave gaps.
    rows.sort(key=lambda row: len(row[2]) in QUARTER_PAGE_BYTES)
    return rows


def _columns(rows: Sequence[PostingRow]) -> tuple[list[Any], list[Any], list[Any]]:
    owners, terms, data = ([row[column] for row in rows] for column in range(3))
    return owners, terms, data


@lru_cache(maxsize=256)
def _insertion(names: Names, *, only_with: bool = False) -> bytes:
    """Return the statement that inserts `_values`."""
    condition: sql.Composable = sql.SQL("")
    if only_with:
        condition = sql.SQL("WHERE EXISTS (SELECT FROM {} WHERE keyword_id = %(keyword_id)s)").format(names.chunk)
    # Every segment and every tombstone is in the manifest, too.
    return (
        sql.SQL(
            "WITH segments AS (INSERT INTO {} (segment_id, generation, language, chunks, postings, row_keys, header) "
            "SELECT * FROM unnest(%(segment_ids)s::uuid[], %(generations)s::int[], %(languages)s::text[], "
            "%(chunks)s::int[], %(postings)s::bigint[], %(row_keys)s::bytea[], %(headers)s::bytea[]) {condition}), "
            "postings AS (INSERT INTO {} (segment_id, first_term, data) "
            "SELECT * FROM unnest(%(owners)s::uuid[], %(terms)s::bytea[], %(data)s::bytea[]) {condition}), "
            "manifest AS (INSERT INTO {} (part_id, generation) "
            "SELECT * FROM unnest(%(segment_ids)s::uuid[] || %(tombstone_ids)s::uuid[], "
            "%(generations)s::int[] || %(tombstone_generations)s::int[]) {condition}) "
            "INSERT INTO {} (tombstone_id, generation, data) "
            "SELECT * FROM unnest(%(tombstone_ids)s::uuid[], %(tombstone_generations)s::int[], %(dead)s::bytea[])"
        )
        .format(names.segment, names.posting, names.manifest, names.tombstone, condition=condition)
        .as_bytes()
    )


def _values(
    segments: Sequence[NewSegment], rows: Sequence[PostingRow], dead: Sequence[tuple[UUID, int, _core.IdSet]]
) -> dict[str, Any]:
    owners, terms, data = _columns(rows)
    return {
        "segment_ids": [segment.segment_id for segment in segments],
        "generations": [segment.generation for segment in segments],
        "languages": [segment.language for segment in segments],
        "chunks": [segment.encoded.chunks for segment in segments],
        "postings": [segment.encoded.postings for segment in segments],
        "row_keys": [_keys_hash(segment.encoded.first_terms) for segment in segments],
        "headers": [segment.encoded.header for segment in segments],
        "owners": owners,
        "terms": terms,
        "data": data,
        "tombstone_ids": [tombstone_id for tombstone_id, *_ in dead],
        "tombstone_generations": [generation for _, generation, _ in dead],
        "dead": [_core.encode_tombstone(tombstone_id.bytes, ids) for tombstone_id, _, ids in dead],
    }


def _keys_hash(keys: Iterable[bytes]) -> bytes:
    """Return the hash that is stored in `segment.row_keys`."""
    return hashlib.sha256(b"".join(keys)).digest()


@lru_cache(maxsize=256)
def _counting(names: Names) -> bytes:
    """Return SQL of the sizes of segments and the number of tombstones of each live generation."""
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
    """Request the sizes that decide about a merge, as a transaction that has just written sees them."""
    return await connection.execute(_counting(collection.names), {"name": collection.names.collection})


async def segment_sizes(connection: Connection, names: Names, generation: int) -> list[tuple[UUID, str, int]]:
    """Id, language and number of chunks (dead ones included) of every segment, the smallest first."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT segment_id, language, chunks FROM {} WHERE generation = %s ORDER BY chunks, segment_id").format(
            names.segment
        ),
        [generation],
    )
    return await cursor.fetchall()


async def segment_headers(connection: Connection, names: Names, segments: Sequence[UUID]) -> dict[UUID, bytes]:
    """Header of each segment."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT segment_id, header FROM {} WHERE segment_id = ANY(%s)").format(names.segment),
        [list(segments)],
    )
    return dict(await cursor.fetchall())


async def posting_rows(connection: Connection, names: Names, segment: UUID) -> list[tuple[bytes, bytes]]:
    """First term and data of a segment's rows, in order."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT first_term, data FROM {} WHERE segment_id = %s ORDER BY first_term").format(names.posting),
        [segment],
    )
    return await cursor.fetchall()


async def tombstone_ids(connection: Connection, names: Names, generation: int) -> dict[UUID, _core.IdSet]:
    """Return the ids of each tombstone."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT tombstone_id, data FROM {} WHERE generation = %s").format(names.tombstone), [generation]
    )
    return {
        tombstone_id: _core.decode_tombstone(tombstone_id.bytes, data) for tombstone_id, data in await cursor.fetchall()
    }


async def check_manifest(connection: Connection, names: Names, generation: int, parts: int) -> None:
    """Compare the number of segments and tombstones that were read with the manifest's."""
    cursor = await connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE generation = %s").format(names.manifest), [generation]
    )
    row = await cursor.fetchone()
    refuse_lost_parts(parts, 0 if row is None else row[0])


def refuse_lost_parts(found: int, listed: int) -> None:
    """Refuse an index whose segments or tombstones are fewer than the manifest lists."""
    if found != listed:
        raise DamagedSegmentError(None, f"it has {found} segments and tombstones; its manifest lists {listed}")


async def check_row_keys(connection: Connection, names: Names, generation: int) -> None:
    """Compare the keys of all posting rows with those that were written."""
    cursor = await connection.execute(
        sql.SQL("SELECT count(*) FROM {segment} AS s WHERE generation = %s AND {rows_differ}").format(
            segment=names.segment, rows_differ=rows_differ(names)
        ),
        [generation],
    )
    row = await cursor.fetchone()
    refuse_lost_rows(0 if row is None else row[0])


def rows_differ(names: Names) -> sql.Composed:
    """Return SQL of whether the posting rows of the segment `s` have other keys than those that were written."""
    return sql.SQL(
        "s.row_keys <> sha256((SELECT coalesce(string_agg(p.first_term, ''::bytea ORDER BY p.first_term), ''::bytea) "
        "FROM {} AS p WHERE p.segment_id = s.segment_id))"
    ).format(names.posting)


def refuse_lost_rows(segments: int) -> None:
    """Refuse an index if posting rows of this many segments are lost."""
    if segments:
        raise DamagedSegmentError(None, f"posting rows of {segments} segments are missing or have other keys")


async def live_ids(connection: Connection, names: Names, generation: int) -> _core.IdSet:
    """Return ids in a generation's segments and in no tombstone."""
    segments = [segment_id for segment_id, *_ in await segment_sizes(connection, names, generation)]
    headers = await segment_headers(connection, names, segments)
    held = _core.IdSet.union([_core.segment_ids(segment_id.bytes, header) for segment_id, header in headers.items()])
    tombstones = await tombstone_ids(connection, names, generation)
    await check_manifest(connection, names, generation, len(segments) + len(tombstones))
    return held - _core.IdSet.union(list(tombstones.values()))


async def chunk_ids(connection: Connection, names: Names) -> NDArray[np.int64]:
    """Return ids of all chunks, ascending."""
    pages = [np.array([-(2**63)], dtype=np.int64)]
    while len(pages[-1]):
        cursor = await connection.cursor(binary=True).execute(
            sql.SQL(
                "SELECT array_send(array_agg(page.keyword_id)) FROM (SELECT c.keyword_id FROM {} AS c "
                "WHERE c.keyword_id > %s ORDER BY c.keyword_id LIMIT {}) AS page"
            ).format(names.chunk, sql.Literal(IDS_PAGE)),
            [int(pages[-1][-1])],
        )
        row = await cursor.fetchone()
        pages.append(ids_of(row and row[0]))
    return joined(pages[1:])
