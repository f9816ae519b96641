"""Read the keyword index for a search: everything that is not in memory, in four kinds of rows."""

# If the index is expected to be unchanged, only its state and the missing rows are read.

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.store.keyword.bm25.segments import rows_differ
from semlex.store.query.leg import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import CollectionIdentity, Names

# Behind its version and checksum a row has a byte of 0 when it holds the list of a single term. It is left where it is
# when it is another term's. That byte of a shared row may be damaged as well; such rows are small.
SHARED = "(substring(p.data, 6, 1) <> '\\x00'::bytea OR octet_length(p.data) <= 2048)"
STATE, SEGMENT, TOMBSTONE, POSTING = range(4)

# How many transactions had ended when the snapshot was taken: of two snapshots the one with fewer is older.
ENDED = sql.SQL(
    "pg_catalog.int8send(pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - "
    "(SELECT count(*) FROM pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot())))"
)

# Ids of all segments and of all tombstones, each joined in ascending order: what equal states show is equal.
IndexState = tuple[bytes, bytes]
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
            "SELECT {state}, {ended}, analyzer_version::text, "
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
            ended=ENDED,
            is_segment=sql.Literal(SEGMENT),
            is_tombstone=sql.Literal(TOMBSTONE),
            is_posting=sql.Literal(POSTING),
            shared=sql.SQL(SHARED),
        )
        .as_bytes()
    )


def index_statement(names: Names, plan: _core.PostingPlan) -> Statement:
    """Read the state of the index, its segments and tombstones, and the rows that a plan lacks."""
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


def expected_state(plan: _core.PostingPlan) -> IndexState:
    """Return the state of the index as a plan knows it."""
    return b"".join(plan.known_segments), b"".join(plan.known_tombstones)


def is_unchanged(names: Names) -> sql.Composed:
    """Return SQL of a row that tells whether the index is as expected; no row if the collection is gone."""
    # All names are qualified. The parameters are those of `expectation`.
    ids = sql.SQL(
        "(SELECT pg_catalog.string_agg(pg_catalog.uuid_send(t.{identity}), ''::pg_catalog.bytea ORDER BY t.{identity}) "
        "FROM {table} AS t WHERE t.generation OPERATOR(pg_catalog.=) r.keyword_generation)"
    )
    # OFFSET 0: it is computed once, not for each row that is joined to it.
    return sql.SQL(
        "SELECT r.collection_id OPERATOR(pg_catalog.=) %(collection_id)s "
        "AND r.analyzer_version OPERATOR(pg_catalog.=) {version} "
        "AND coalesce({segments}, '') OPERATOR(pg_catalog.=) %(known_segments)s::pg_catalog.bytea "
        "AND coalesce({tombstones}, '') OPERATOR(pg_catalog.=) %(known_tombstones)s::pg_catalog.bytea AS is_unchanged "
        "FROM {registry} AS r WHERE r.name OPERATOR(pg_catalog.=) %(collection)s OFFSET 0"
    ).format(
        version=sql.Literal(_core.ANALYZER_VERSION),
        segments=ids.format(identity=sql.Identifier("segment_id"), table=names.segment),
        tombstones=ids.format(identity=sql.Identifier("tombstone_id"), table=names.tombstone),
        registry=names.registry,
    )


def expectation(collection: CollectionIdentity, expected: IndexState) -> dict[str, Any]:
    """Return the parameters of `is_unchanged`."""
    return {
        "collection": collection.names.collection,
        "collection_id": collection.collection_id,
        "known_segments": expected[0],
        "known_tombstones": expected[1],
    }


def rows_statement(collection: CollectionIdentity, expected: IndexState, missing: Sequence[MissingRow]) -> Statement:
    """Return the statement that checks whether the index is as expected, and reads the rows that a plan lacks."""
    # A row has this answer, its number in `missing` from 1, first term and data; the last three are NULL if the index
    # has no such row.
    parameters = expectation(collection, expected) | {
        "segments": _uuid_array([segment for segment, _ in missing]),
        "terms": [term.decode() for _, term in missing],
    }
    return Statement(_rows_statement(collection.names), parameters)


@lru_cache(maxsize=256)
def _rows_statement(names: Names) -> bytes:
    return (
        sql.SQL(
            "SELECT s.is_unchanged, f.number, f.first_term, f.data FROM ({is_unchanged}) AS s LEFT JOIN ("
            "SELECT k.number, p.first_term, p.data FROM unnest(%(segments)s::uuid[], %(terms)s::text[]) "
            "WITH ORDINALITY AS k(segment_id, term, number), LATERAL (SELECT p.first_term, p.data FROM {posting} AS p "
            "WHERE p.segment_id = k.segment_id AND p.first_term <= convert_to(k.term, 'UTF8') "
            "ORDER BY p.first_term DESC LIMIT 1) AS p "
            "WHERE p.first_term = convert_to(k.term, 'UTF8') OR {shared}) AS f ON TRUE"
        )
        .format(is_unchanged=is_unchanged(names), posting=names.posting, shared=sql.SQL(SHARED))
        .as_bytes()
    )


def given_rows(missing: Sequence[MissingRow], rows: Sequence[Any]) -> list[PostingRow]:
    """Return the rows of `rows_statement`, as `PostingCache.complete` takes them."""
    found = {number: (first_term, data) for _, number, first_term, data in rows}
    nothing = (None, None)
    return [(*row, *found.get(number, nothing)) for number, row in enumerate(missing, start=1)]


def _uuid_array(ids: Sequence[bytes]) -> str:
    """Return ids in the text form of a uuid[], which costs the driver less than a list."""
    return "{" + ",".join(value.hex() for value in ids) + "}"


class IndexRows:
    """The rows of `index_statement`, sorted by kind."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.analyzer_version: int | None = None  # that made the index; None when the collection is gone
        # How many transactions had ended, how many segments and tombstones the manifest lists, and how many segments
        # that were not known lack posting rows or have others.
        self.ended = self.parts = self.damaged = 0
        self.segments: list[tuple[bytes, str, bytes | None]] = []  # id, language, and header unless it was known
        self.tombstones: list[tuple[bytes, bytes | None]] = []  # id, and data unless it was known
        self.postings: list[PostingRow] = []  # segment, term, first term and data of a row
        for kind, identity, text, first, second in rows:
            if kind == POSTING:
                self.postings.append((identity, text.encode(), first, second))
            elif kind == SEGMENT:
                self.segments.append((identity, text, first))
            elif kind == TOMBSTONE:
                self.tombstones.append((identity, first))
            else:
                self.analyzer_version = None if text is None else int(text)
                self.ended, self.parts, self.damaged = map(int.from_bytes, (identity, first, second))

    @property
    def state(self) -> IndexState:
        """The state of the index."""
        segments, tombstones = (sorted(row[0] for row in rows) for rows in (self.segments, self.tombstones))
        return b"".join(segments), b"".join(tombstones)
