"""Write segments with their posting rows, and tombstones; read and check posting rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from psycopg import sql

from semlex import _core
from semlex.errors import AnalyzerVersionError, DamagedSegmentError
from semlex.store.postgres.rows import fetch_value
from semlex.store.query.leg import Statement
from semlex.store.write.copy import copy_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names

# Up to this many posting rows travel as arrays with the segments, in one statement.
FEW_POSTING_ROWS = 64
# Sizes of data of which four rows fill a page, but three and a different one do not.
QUARTER_PAGE_BYTES = range(1_700, 2_001)


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
        """Make a segment of the chunks in a builder."""
        segment_id = uuid4()
        return cls(segment_id, generation, language, builder.finish(segment_id.bytes))

    @classmethod
    def merged(cls, sources: Sequence[Source], dead: _core.IdSet, generation: int, language: str) -> NewSegment:
        """Merge segments into a new one, without the chunks whose ids are in `dead`."""
        segment_id = uuid4()
        return cls(segment_id, generation, language, _core.merge_segments(segment_id.bytes, sources, dead))

    def without(self, dead: _core.IdSet, generation: int) -> NewSegment:
        """Return a copy of this segment for a generation, without the chunks whose ids are in `dead`."""
        rows = list(zip(self.encoded.first_terms, self.encoded.data, strict=True))
        source = (self.segment_id.bytes, self.encoded.header, rows)
        return NewSegment.merged([source], dead, generation, self.language)


async def write_segments(
    connection: Connection,
    names: Names,
    segments: Iterable[NewSegment],
    tombstones: Iterable[tuple[int, _core.IdSet]] = (),
) -> None:
    """Write segments, and tombstones given as (generation, ids of deleted chunks)."""
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
    """Return a statement that writes segments if this transaction stored chunk `keyword_id`; None if they are large."""
    new = [segment for segment in segments if segment.encoded.chunks]
    rows = _posting_rows(new)
    if len(rows) > FEW_POSTING_ROWS:
        return None
    return Statement(_insertion(names, only_with=True), {**_values(new, rows, []), "keyword_id": keyword_id})


# Segment, first term and data.
NewPostingRow = tuple[UUID, bytes, bytes]


def _posting_rows(segments: Iterable[NewSegment]) -> list[NewPostingRow]:
    rows = [
        (segment.segment_id, term, row)
        for segment in segments
        for term, row in zip(segment.encoded.first_terms, segment.encoded.data, strict=True)
    ]
    # Rows of a quarter of a page fill pages next to each other; among others they would leave gaps.
    rows.sort(key=lambda row: len(row[2]) in QUARTER_PAGE_BYTES)
    return rows


def _columns(rows: Sequence[NewPostingRow]) -> tuple[list[Any], list[Any], list[Any]]:
    owners, terms, data = ([row[column] for row in rows] for column in range(3))
    return owners, terms, data


@lru_cache(maxsize=256)
def _insertion(names: Names, *, only_with: bool = False) -> bytes:
    """Return the statement that inserts the rows that `_values` returns."""
    condition: sql.Composable = sql.SQL("")
    if only_with:
        # The id is used once, so the chunk has it only if this transaction has stored it.
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
    segments: Sequence[NewSegment], rows: Sequence[NewPostingRow], dead: Sequence[tuple[UUID, int, _core.IdSet]]
) -> dict[str, Any]:
    owners, terms, data = _columns(rows)
    return {
        "segment_ids": [segment.segment_id for segment in segments],
        "generations": [segment.generation for segment in segments],
        "languages": [segment.language for segment in segments],
        "chunks": [segment.encoded.chunks for segment in segments],
        "postings": [segment.encoded.postings for segment in segments],
        "row_keys": [_core.keys_hash(segment.encoded.first_terms) for segment in segments],
        "headers": [segment.encoded.header for segment in segments],
        "owners": owners,
        "terms": terms,
        "data": data,
        "tombstone_ids": [tombstone_id for tombstone_id, *_ in dead],
        "tombstone_generations": [generation for _, generation, _ in dead],
        "dead": [_core.encode_tombstone(tombstone_id.bytes, ids) for tombstone_id, _, ids in dead],
    }


async def posting_rows(connection: Connection, names: Names, segment: UUID) -> list[tuple[bytes, bytes]]:
    """Return (first term, data) of each posting row of a segment, ordered by term."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT first_term, data FROM {} WHERE segment_id = %s ORDER BY first_term").format(names.posting),
        [segment],
    )
    return await cursor.fetchall()


async def check_row_keys(connection: Connection, names: Names, generation: int) -> None:
    """Refuse an index whose posting rows are lost or have other keys than when they were written."""
    statement = sql.SQL("SELECT count(*) FROM {} AS s WHERE generation = %s AND {}")
    lost = await fetch_value(connection, statement.format(names.segment, rows_differ(names)), [generation])
    refuse_lost_rows(lost)


def rows_differ(names: Names) -> sql.Composed:
    """Return SQL of whether the segment ``s`` lacks posting rows, or has some with other keys than were written."""
    return sql.SQL(
        "s.row_keys <> sha256((SELECT coalesce(string_agg(p.first_term, ''::bytea ORDER BY p.first_term), ''::bytea) "
        "FROM {} AS p WHERE p.segment_id = s.segment_id))"
    ).format(names.posting)


def refuse_lost_rows(segments: int) -> None:
    """Refuse an index if the number of segments with lost or changed posting rows is not 0."""
    if segments:
        raise DamagedSegmentError(None, f"posting rows of {segments} segments are missing or have changed keys")


def refuse_other_analyzer(names: Names, version: int | None) -> None:
    """Refuse an index that another version of the analyzer has made."""
    if version != _core.ANALYZER_VERSION:
        name = names.collection
        raise AnalyzerVersionError(
            f"the keyword index of collection {name!r} was made by version {version} of the analyzer, but this semlex "
            f"has version {_core.ANALYZER_VERSION}; rebuild the index with: semlex maintain reindex --collection {name}"
        )
