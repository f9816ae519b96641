"""Read the parts of the keyword index that a search lacks in memory: state, segments, tombstones, posting rows."""

# If the index is expected to be as it was, only its state, the missing rows, and what has changed are read.

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.store.keyword.bm25.segments import rows_differ
from semlex.store.query.leg import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.store.schema.names import CollectionIdentity, Names

# Behind its version and checksum a row has a byte of 0 when it holds the list of a single term. It is left where it is
# when it is another term's. That byte of a shared row may be damaged as well; such rows are small.
SHARED = "(substring(p.data, 6, 1) <> '\\x00'::bytea OR octet_length(p.data) <= 2048)"
STATE, SEGMENT, TOMBSTONE, POSTING = range(4)
ID_BYTES = 16
# Of two snapshots the one in which fewer transactions had ended is older: see `_ended`.
SNAPSHOT = sql.SQL("pg_catalog.convert_to(pg_catalog.pg_current_snapshot()::pg_catalog.text, 'UTF8')")

# New segments are sent with all their rows if each has up to so many postings, which is mostly about 50 KB (with long
# words that occur once, a megabyte), and all together up to so many. What one commit writes is mostly less.
SMALL_POSTINGS = 20_000
ALL_POSTINGS = 200_000

# Ids of all segments and of all tombstones, each joined in ascending order: what equal states show is equal.
PartIds = tuple[bytes, bytes]
# Segment, and a term that its list is needed of.
MissingRow = tuple[bytes, bytes]
# Segment, term, first term and data of a row; None and None without a row.
PostingRow = tuple[bytes, bytes, bytes | None, bytes | None]


@lru_cache(maxsize=256)
def _index_statement(names: Names) -> bytes:
    # Of a generation that is being built nothing is read. Headers and tombstones that are in memory are not sent. A
    # term is in the row with the greatest first term that is not beyond it; a long row holds a single term, and is left
    # where it is when it is another's. The keys of all posting rows are checked once: with the header.
    return (
        sql.SQL(
            "WITH live AS (SELECT keyword_generation, analyzer_version FROM {registry} WHERE name = %(collection)s), "
            "s AS MATERIALIZED (SELECT segment_id, language, segment_id = ANY(%(segments)s::uuid[]) AS known, "
            "row_keys, header "
            "FROM {segment} JOIN live ON generation = keyword_generation) "
            "SELECT {state}, {snapshot}, analyzer_version::text, "
            "(SELECT int8send(count(*)) FROM {manifest} WHERE generation = keyword_generation), "
            "(SELECT int8send(count(*)) FROM s WHERE CASE WHEN NOT known THEN {rows_differ} END) FROM live "
            "UNION ALL SELECT {is_segment}, uuid_send(segment_id), language, "
            "CASE WHEN NOT known THEN header END, NULL FROM s "
            "UNION ALL SELECT {is_tombstone}, uuid_send(tombstone_id), NULL, "
            "CASE WHEN NOT tombstone_id = ANY(%(tombstones)s::uuid[]) THEN data END, NULL "
            "FROM {tombstone} JOIN live ON generation = keyword_generation "
            "UNION ALL SELECT {is_posting}, uuid_send(s.segment_id), t.term, "
            "CASE WHEN p.holds THEN p.first_term END, CASE WHEN p.holds THEN p.data END "
            "FROM s JOIN unnest(%(languages)s::text[], %(terms)s::text[], %(cold)s::bool[]) "
            "AS t(language, term, cold) ON t.language = s.language AND (t.cold OR NOT s.known) "
            "LEFT JOIN LATERAL (SELECT p.first_term, p.data, "
            "p.first_term = convert_to(t.term, 'UTF8') OR {shared} AS holds "
            "FROM {posting} AS p WHERE p.segment_id = s.segment_id AND p.first_term <= convert_to(t.term, 'UTF8') "
            "ORDER BY p.first_term DESC LIMIT 1) AS p ON TRUE"
        )
        .format(
            registry=names.registry,
            segment=names.segment,
            tombstone=names.tombstone,
            posting=names.posting,
            manifest=names.manifest,
            rows_differ=rows_differ(names),
            state=sql.Literal(STATE),
            snapshot=SNAPSHOT,
            is_segment=sql.Literal(SEGMENT),
            is_tombstone=sql.Literal(TOMBSTONE),
            is_posting=sql.Literal(POSTING),
            shared=sql.SQL(SHARED),
        )
        .as_bytes()
    )


def index_statement(names: Names, plan: _core.PostingPlan) -> Statement:
    """Return the statement that reads the state of the index, its parts, and the posting rows that a plan lacks."""
    asked = [(*entry, True) for entry in plan.cold] + [(*entry, False) for entry in plan.warm]
    parameters = {
        "collection": names.collection,
        "segments": _uuid_array(plan.known_segments),
        "tombstones": _uuid_array(plan.known_tombstones),
        "languages": [language for language, _, _ in asked],
        "terms": [term.decode() for _, term, _ in asked],
        "cold": [cold for _, _, cold in asked],
    }
    return Statement(_index_statement(names), parameters)


def state_row(names: Names, *, with_changes: bool) -> sql.Composed:
    """Return SQL of one row: whether the index is unchanged, and its changes; no row if the collection is gone."""
    # `changes` is NULL if the index is as expected, if it is that of another collection or analyzer, if new segments
    # have too many postings, and without `with_changes`. All names are qualified. The parameters are those of
    # `expectation`. OFFSET 0: it is computed once, not for each row that is joined to it.
    return sql.SQL(
        "SELECT i.is_own AND i.is_equal AS is_unchanged, {changes} AS changes FROM ("
        "SELECT i.keyword_generation, i.segments, i.tombstones, i.is_own, "
        "i.segments OPERATOR(pg_catalog.=) %(known_segments)s::pg_catalog.bytea "
        "AND i.tombstones OPERATOR(pg_catalog.=) %(known_tombstones)s::pg_catalog.bytea AS is_equal FROM ("
        "SELECT i.keyword_generation, i.collection_id OPERATOR(pg_catalog.=) %(collection_id)s "
        "AND i.analyzer_version OPERATOR(pg_catalog.=) {version} AS is_own, "
        "coalesce((SELECT {segment_ids} FROM {segment} AS m WHERE {is_alive}), '') AS segments, "
        "coalesce((SELECT {tombstone_ids} FROM {tombstone} AS m WHERE {is_alive}), '') AS tombstones "
        "FROM {registry} AS i WHERE i.name OPERATOR(pg_catalog.=) %(collection)s OFFSET 0) AS i) AS i OFFSET 0"
    ).format(
        changes=_changes(names) if with_changes else sql.NULL,
        version=sql.Literal(_core.ANALYZER_VERSION),
        segment_ids=_JOINED_IDS.format(sql.SQL("m.segment_id")),
        tombstone_ids=_JOINED_IDS.format(sql.SQL("m.tombstone_id")),
        is_alive=_IS_ALIVE,
        registry=names.registry,
        segment=names.segment,
        tombstone=names.tombstone,
    )


def _changes(names: Names) -> sql.Composed:
    """Return SQL of the changes of the index, in the form that `IndexChanges.read` takes."""
    # It is an array of rows of bytes, which the driver reads much faster than records: the state, new segments, new
    # tombstones, and the posting rows of these segments in order. Two bounds stand for an equality, for which the
    # server would expect as many rows as other segments have, and read the whole table.
    is_new = sql.SQL("{} AND NOT m.segment_id OPERATOR(pg_catalog.=) ANY(%(segments)s::pg_catalog.uuid[])").format(
        _IS_ALIVE
    )
    return sql.SQL(
        "CASE WHEN i.is_own AND NOT i.is_equal "
        "AND (SELECT coalesce(pg_catalog.max(m.postings) OPERATOR(pg_catalog.<=) %(small_postings)s "
        "AND pg_catalog.sum(m.postings) OPERATOR(pg_catalog.<=) %(all_postings)s, TRUE) FROM {segment} AS m "
        "WHERE {is_new}) THEN pg_catalog.array_cat(pg_catalog.array_cat(pg_catalog.array_cat("
        "ARRAY[ARRAY[{state}, {snapshot}, pg_catalog.int8send((SELECT pg_catalog.count(*) FROM {manifest} AS m "
        "WHERE {is_alive})), i.segments, i.tombstones]], "
        "(SELECT pg_catalog.array_agg(ARRAY[{is_segment}, pg_catalog.uuid_send(m.segment_id), "
        "pg_catalog.convert_to(m.language, 'UTF8'), m.header, m.row_keys]) FROM {segment} AS m WHERE {is_new})), "
        "(SELECT pg_catalog.array_agg(ARRAY[{is_tombstone}, pg_catalog.uuid_send(m.tombstone_id), '', m.data, '']) "
        "FROM {tombstone} AS m WHERE {is_alive} "
        "AND NOT m.tombstone_id OPERATOR(pg_catalog.=) ANY(%(tombstones)s::pg_catalog.uuid[]))), "
        "(SELECT pg_catalog.array_agg(ARRAY[{is_posting}, pg_catalog.uuid_send(m.segment_id), '', "
        "p.first_term, p.data] ORDER BY p.first_term) FROM {segment} AS m CROSS JOIN LATERAL ("
        "SELECT p.first_term, p.data FROM {posting} AS p WHERE p.segment_id OPERATOR(pg_catalog.>=) m.segment_id "
        "AND p.segment_id OPERATOR(pg_catalog.<=) m.segment_id OFFSET 0) AS p WHERE {is_new})) END"
    ).format(
        state=sql.Literal(str(STATE)),
        snapshot=SNAPSHOT,
        is_segment=sql.Literal(str(SEGMENT)),
        is_tombstone=sql.Literal(str(TOMBSTONE)),
        is_posting=sql.Literal(str(POSTING)),
        is_alive=_IS_ALIVE,
        is_new=is_new,
        segment=names.segment,
        tombstone=names.tombstone,
        manifest=names.manifest,
        posting=names.posting,
    )


_JOINED_IDS = sql.SQL("pg_catalog.string_agg(pg_catalog.uuid_send({0}), ''::pg_catalog.bytea ORDER BY {0})")
_IS_ALIVE = sql.SQL("m.generation OPERATOR(pg_catalog.=) i.keyword_generation")


def expectation(collection: CollectionIdentity, expected: PartIds, *, with_changes: bool) -> dict[str, Any]:
    """Return the values that `state_row` binds: the collection, and the state in which the index is expected."""
    parameters = {
        "collection": collection.names.collection,
        "collection_id": collection.collection_id,
        "known_segments": expected[0],
        "known_tombstones": expected[1],
    }
    if with_changes:
        segments, tombstones = _uuid_arrays(expected)
        parameters |= {"segments": segments, "tombstones": tombstones}
        parameters |= {"small_postings": SMALL_POSTINGS, "all_postings": ALL_POSTINGS}
    return parameters


def rows_statement(collection: CollectionIdentity, expected: PartIds, missing: Sequence[MissingRow]) -> Statement:
    """Return the statement that compares the index with `expected`, and reads the posting rows in `missing`."""
    # A row has the columns of `state_row`, its number in `missing` from 1, first term and data; the last three are NULL
    # if the index has no such row.
    parameters = expectation(collection, expected, with_changes=True) | {
        "missing": _uuid_array([segment for segment, _ in missing]),
        "terms": [term.decode() for _, term in missing],
    }
    return Statement(_rows_statement(collection.names), parameters)


@lru_cache(maxsize=256)
def _rows_statement(names: Names) -> bytes:
    return (
        sql.SQL(
            "SELECT s.is_unchanged, CASE WHEN f.place = 1 OR f.place IS NULL THEN s.changes END, "
            "f.number, f.first_term, f.data FROM ({state}) AS s LEFT JOIN ("
            "SELECT row_number() OVER () AS place, k.number, p.first_term, p.data "
            "FROM unnest(%(missing)s::uuid[], %(terms)s::text[]) "
            "WITH ORDINALITY AS k(segment_id, term, number), LATERAL (SELECT p.first_term, p.data FROM {posting} AS p "
            "WHERE p.segment_id = k.segment_id AND p.first_term <= convert_to(k.term, 'UTF8') "
            "ORDER BY p.first_term DESC LIMIT 1) AS p "
            "WHERE p.first_term = convert_to(k.term, 'UTF8') OR {shared}) AS f ON TRUE"
        )
        .format(state=state_row(names, with_changes=True), posting=names.posting, shared=sql.SQL(SHARED))
        .as_bytes()
    )


def given_rows(missing: Sequence[MissingRow], rows: Sequence[Any]) -> list[PostingRow]:
    """Return the posting rows that `rows_statement` has read, in the form that `PostingCache.complete` takes."""
    found = {number: (first_term, data) for _, _, number, first_term, data in rows}
    nothing = (None, None)
    return [(*row, *found.get(number, nothing)) for number, row in enumerate(missing, start=1)]


def _uuid_array(ids: Iterable[bytes]) -> str:
    """Return ids in the text form of a uuid[], which the driver sends faster than a list."""
    return "{" + ",".join(value.hex() for value in ids) + "}"


@lru_cache(maxsize=16)
def _uuid_arrays(state: PartIds) -> tuple[str, str]:
    return _uuid_array(_ids(state[0])), _uuid_array(_ids(state[1]))


def _ended(snapshot: bytes) -> int:
    """Return how many transactions had ended when a snapshot was taken, a number that orders snapshots in time."""
    # Its text is xmin:xmax:list of those that run.
    _, following, running = snapshot.split(b":")
    return int(following) - len(running.split(b",") if running else ())


def _ids(joined: bytes) -> list[bytes]:
    """Split the bytes of concatenated ids into single ids."""
    return [joined[start : start + ID_BYTES] for start in range(0, len(joined), ID_BYTES)]


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """The changes of the keyword index since a plan was made, and the state of the index after these changes."""

    state: PartIds
    parts: int  # segments and tombstones that the manifest lists
    ended: int  # transactions
    parsed: _core.PostingChanges

    @classmethod
    def read(
        cls, cache: _core.PostingCache, plan: _core.PostingPlan, changes: Sequence[Sequence[bytes]]
    ) -> IndexChanges | None:
        """Parse the changes that `state_row` returned; return None if a segment or tombstone is unknown here."""
        (_, snapshot, parts, segments, tombstones), *new = changes
        parsed = cache.changes(plan, segments, tombstones, new)
        if parsed is None:
            return None
        return cls((segments, tombstones), int.from_bytes(parts), _ended(snapshot), parsed)


class IndexRows:
    """The rows that `index_statement` returns, sorted into state, segments, tombstones and posting rows."""

    def __init__(self) -> None:
        self.analyzer_version: int | None = None  # that made the index; None when the collection is gone
        # How many transactions had ended, how many segments and tombstones the manifest lists, and how many segments
        # that were not known lack posting rows or have others.
        self.ended = self.parts = self.damaged = 0
        self.segments: list[tuple[bytes, str, bytes | None]] = []  # id, language, and header unless it was known
        self.tombstones: list[tuple[bytes, bytes | None]] = []  # id, and data unless it was known
        self.postings: list[PostingRow] = []  # segment, term, first term and data of a row

    @classmethod
    def of(cls, rows: Sequence[Any]) -> IndexRows:
        """Sort the rows of `index_statement`."""
        index = cls()
        for kind, identity, text, first, second in rows:
            if kind == POSTING:
                index.postings.append((identity, text.encode(), first, second))
            elif kind == SEGMENT:
                index.segments.append((identity, text, first))
            elif kind == TOMBSTONE:
                index.tombstones.append((identity, first))
            else:
                index.analyzer_version = None if text is None else int(text)
                index.ended = _ended(identity)
                index.parts, index.damaged = int.from_bytes(first), int.from_bytes(second)
        return index

    @property
    def state(self) -> PartIds:
        """The state of the index: the ids of its segments and of its tombstones."""
        segments, tombstones = (sorted(row[0] for row in rows) for rows in (self.segments, self.tombstones))
        return b"".join(segments), b"".join(tombstones)
