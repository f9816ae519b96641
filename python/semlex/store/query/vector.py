"""Vector search: find the nearest vectors, through the index or exactly."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from struct import pack
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from semlex.options.search import MAX_FILTER_ROWS, MIN_FILTER_SHARE
from semlex.store.indexes.catalog import Element, IndexedValue, VectorIndexes
from semlex.store.indexes.choice import INDEX_FROM_ROWS
from semlex.store.query.filters import Filter
from semlex.store.query.leg import NUMBERED_KEYS, Scorer, SideColumn, Statement, ranked, scores_by_key, scores_in_column
from semlex.store.query.passing_chunks import table_state
from semlex.store.query.passing_rows import RoundedVectors
from semlex.store.query.run import fetch
from semlex.store.query.score_calibration import WIRE_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.options.collection import StorageName
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.server_info import ServerInfo
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key, LegResult, ScoreQuery
    from semlex.store.query.passing_rows import PassingRows
    from semlex.store.schema.collection import CollectionInfo, Distance
    from semlex.store.schema.names import Names

MAX_EF_SEARCH = 1000  # pgvector's own bound
# Of the index's own candidates, however few go into the fusion. Recall@10 of 100,000 x 256 real texts is .97 then, and
# .91 at pgvector's default of 40.
DEFAULT_EF_SEARCH = 120
# More vectors need a longer list: of 1,000,000, recall@10 of 480 questions is .912 with 120, .941 with 200 (1.5 times
# the server's time) and .951 with 320 (2.4 times).
EF_SEARCH_UP_TO_ROWS, EF_SEARCH_PER_DECADE = 100_000, 200
# Under a filter the list is longer, the more the fewer chunks pass: recall@10 is .95 to .98 then at 1/2, 3/10 and 1/10.
# At 1/10 a list of two thirds, with half as many rows to spare again, takes a seventh less and finds .005 less.
# It grows with the vectors as that of all searches does: of 300,000, 1/10 finds .983 with 540, .968 with 302.
FILTERED_EF_SEARCH = 30
MAX_FILTERED_EF_SEARCH = 400
# Times the vectors that a filter's share lets expect, before the index is given up: a filter that leaves out just what
# lies near the query costs that much on top of the exact answer, 1.3 to 1.4 times in all (1.6 at four times).
PATIENCE = 2
# Rows that pass are taken in the index's order, which is not quite that of the distances.
SPARE = 1.2
# The same if so few of so many pass that an exact answer would take longer: with a list of 1,000 and 300,000 vectors,
# 1/20 finds .987 in 60 ms (.967 in 28 with half as many), 1/100 finds .995 in 179 ms.
NARROW_SPARE = 6
MIN_SHARE = 0.0001
# pgvector ends a scan early after this many vectors or this much memory: both are beyond what a search needs.
MIN_SCANNED, MAX_SCANNED, SCANNED = 20_000, 2_000_000_000, 10
SCAN_MEMORY = 4  # times work_mem
# Of the vectors of a filter's rows, that are read in one statement: 8 MB.
MAX_NUMBERS_AT_ONCE = 4_000_000
# Times the rows wanted that are compared by the whole vectors where the index holds less of them.
OVERSAMPLING: dict[Element, float] = {"halfvec": 1.2, "bit": 4.0}


class _WireValue:
    """A value in the binary form of a type that the driver does not know, such as pgvector's."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class _WireValueDumper(Dumper):
    # No type is named: the cast in the statement decides, and the server reads the binary form of that type.
    # So nothing has to be looked up or registered on a connection that may be a caller's.
    format = Format.BINARY

    def dump(self, obj: _WireValue) -> bytes:
        return obj.data


def vector_parameter(values: NDArray[np.floating], storage: str) -> Any:
    """Return a vector as a value to bind; the statement must cast it."""
    return _WireValue(pack(">HH", len(values), 0) + values.astype(WIRE_TYPES[storage]).tobytes())


def register_vector_parameter(connection: Connection) -> None:
    """Prepare a connection to send values of `vector_parameter`; other values are sent as before."""
    connection.adapters.register_dumper(_WireValue, _WireValueDumper)


VectorPlan = Literal["index", "rows", "keys", "scan"]
"""How the nearest vectors are found: by the index; or exactly, among rows of known place, by key, or by a full scan."""

FoundName = Literal["rows", "checked_rows", "keys", "scan", "index", "rescored", "filtered"]
_FOUND: dict[FoundName, sql.SQL] = {
    # Adding zero keeps the planner off the vector index, which would stop early.
    "scan": sql.SQL(
        "SELECT e.document_id, e.chunk_id, ({distance}) AS distance "
        "FROM {embedding} AS e JOIN {chunk} AS c USING (document_id, chunk_id) WHERE {condition} "
        "ORDER BY ({distance}) + 0.0::float8, e.document_id, e.chunk_id LIMIT %(limit)s"
    ),
    # The locations of rows are those of one state of the database: in another one the statement finds nothing. The
    # array is the result of a subquery, so that the planner takes it for short and reads no other rows.
    "rows": sql.SQL(
        "SELECT n.document_id, n.chunk_id, n.distance FROM (SELECT e.document_id, e.chunk_id, {distance} AS distance "
        "FROM {embedding} AS e WHERE e.ctid = ANY((SELECT CASE WHEN {state} = %(state)s::text "
        "THEN %(locations)s::pg_catalog.tid[] END)::pg_catalog.tid[]) OFFSET 0) AS n "
        "ORDER BY n.distance, n.document_id, n.chunk_id LIMIT %(limit)s"
    ),
    # In another state these are the same rows if all are there and older than the transactions that ran at that time.
    # Once so many transactions have begun that their numbers start again, this cannot be checked.
    "checked_rows": sql.SQL(
        "SELECT n.document_id, n.chunk_id, n.distance FROM (SELECT e.document_id, e.chunk_id, {distance} AS distance, "
        "count(*) OVER () AS number FROM {embedding} AS e WHERE e.ctid = ANY((SELECT CASE WHEN {file} = %(file)s::text "
        "THEN %(locations)s::pg_catalog.tid[] END)::pg_catalog.tid[]) "
        "AND age(e.xmin) > age((%(horizon)s::pg_catalog.xid8)::pg_catalog.xid) "
        "AND age((%(horizon)s::pg_catalog.xid8)::pg_catalog.xid) >= 0 OFFSET 0) AS n "
        "WHERE n.number = %(number)s ORDER BY n.distance, n.document_id, n.chunk_id LIMIT %(limit)s"
    ),
    # OFFSET 0 keeps the subqueries apart: a nested loop, however the planner rates the filter.
    "keys": sql.SQL(
        "SELECT k.document_id, k.chunk_id, n.distance "
        "FROM (SELECT c.document_id, c.chunk_id FROM {chunk} AS c WHERE {condition} OFFSET 0) AS k "
        "CROSS JOIN LATERAL (SELECT {distance} AS distance FROM {embedding} AS e "
        "WHERE e.document_id = k.document_id AND e.chunk_id = k.chunk_id OFFSET 0) AS n "
        "ORDER BY n.distance, k.document_id, k.chunk_id LIMIT %(limit)s"
    ),
    # The key is part of the order, so that it decides among equal distances where the candidates end; Postgres sorts
    # the index's rows incrementally for that, and reads one row more than it returns.
    "index": sql.SQL(
        "SELECT e.document_id, e.chunk_id, {distance} AS distance FROM {embedding} AS e "
        "ORDER BY {distance}, e.document_id, e.chunk_id LIMIT {limit}"
    ),
    # The index is coarser than the stored vectors: more of it is read, and compared by the whole vectors.
    "rescored": sql.SQL(
        "SELECT r.document_id, r.chunk_id, r.distance FROM ("
        "SELECT e.document_id, e.chunk_id, {distance} AS distance FROM {embedding} AS e "
        "ORDER BY {index_distance} LIMIT {candidates}) AS r "
        "ORDER BY r.distance, r.document_id, r.chunk_id LIMIT {limit}"
    ),
    # The condition is checked chunk by chunk, as the index returns them, until enough pass or enough were checked.
    "filtered": sql.SQL(
        "SELECT r.document_id, r.chunk_id, r.distance FROM ("
        "SELECT e.document_id, e.chunk_id, {distance} AS distance FROM ("
        "SELECT e.document_id, e.chunk_id, e.embedding FROM {embedding} AS e "
        "ORDER BY {index_distance} LIMIT %(scanned)s) AS e "
        "WHERE (SELECT {condition} FROM {chunk} AS c WHERE c.document_id = e.document_id AND c.chunk_id = e.chunk_id) "
        "LIMIT %(candidates)s) AS r ORDER BY r.distance, r.document_id, r.chunk_id LIMIT %(limit)s"
    ),
}
# From this version on Postgres sorts the rows of a vector index by more columns. Before, a second column in the order
# keeps it off the index, so that the key orders what was found, and does not decide where the candidates end.
INDEX_IN_SORTS = 17
VECTORS = sql.SQL(
    "SELECT array_send(array_agg({extension}.l2_normalize(e.embedding)::{extension}.halfvec({dimensions}))), "
    "array_send(array_agg(e.ctid)) "
    "FROM {embedding} AS e WHERE e.ctid = ANY((SELECT CASE WHEN {state} = %(state)s::text "
    "THEN %(locations)s::pg_catalog.tid[] END)::pg_catalog.tid[])"
)
# relaxed_order may return rows out of order: they are sorted once more. Adding zero makes the server do so, which from
# version 17 on takes the order inside the WITH for granted.
ALONE = sql.SQL(
    "WITH nearest AS MATERIALIZED ({found}) SELECT n.document_id, n.chunk_id, {offset}::float8 - n.distance "
    "FROM nearest AS n ORDER BY n.distance + 0.0::float8, n.document_id, n.chunk_id"
)
WITH_SIDE_COLUMN = sql.SQL(
    "WITH nearest AS MATERIALIZED ({found}) SELECT n.document_id, n.chunk_id, {offset}::float8 - n.distance, "
    "(SELECT {side_column} FROM {chunk} AS c WHERE c.document_id = n.document_id AND c.chunk_id = n.chunk_id) "
    "FROM nearest AS n ORDER BY n.distance + 0.0::float8, n.document_id, n.chunk_id"
)


def vector_leg(
    collection: CollectionInfo,
    query: NDArray[np.float32],
    limit: int,
    condition: Filter,
    *,
    plan: VectorPlan = "index",
    indexes: VectorIndexes | None = None,
    ef_search: int | None = None,
    probes: int | None = None,
    iterates: bool = False,
) -> VectorLeg:
    """Plan vector search for a query vector, float32 of shape (d,)."""
    # With the plan ``index`` the vector index answers, if one exists: an HNSW index with ``ef_search`` above `limit`.
    # Dead rows alone can leave fewer rows than requested. A scan that `iterates` goes on past them, but takes a sixth
    # longer. Under a filter it always iterates, and stops after a few times the vectors that the filter's share
    # predicts: the answer may be short, and the caller then searches exactly. If an index contains less than the whole
    # vectors, the same statement compares its results by those.
    stored = StoredVectors.of(collection)
    vector = {"vector": vector_parameter(query, stored.storage)}
    scorer = VectorScorer(stored, vector, condition)
    parameters = {**vector, "limit": limit, **condition.parameters}
    if plan == "rows" and condition.rows is not None:
        rows = condition.rows
        parameters = {**vector, "limit": limit}
        if rows.must_check:
            parameters |= {"file": rows.file, "horizon": rows.horizon, "number": rows.number}
        else:
            parameters["state"] = rows.state
        found = FoundBy("checked_rows" if rows.must_check else "rows")
        words = f"exact, {len(rows.ids):,} rows that pass"
        nearest = partial(rows.nearest, query.astype(WIRE_TYPES[stored.storage]), limit)
        return VectorLeg(scorer, found, parameters, {}, words, nearest, rows.takes_long)
    if plan != "index":
        words = "exact, vectors by key" if plan == "keys" else "exact, all vectors"
        return VectorLeg(scorer, FoundBy(plan), parameters, {}, words)
    used = None if indexes is None else indexes.used
    is_whole = used is None or used.element == stored.storage
    share = 1.0 if condition.is_empty else max(condition.share or 1.0, MIN_SHARE)
    vectors = 0 if indexes is None else indexes.rows
    candidates, rescored = limit, ""
    if not condition.is_empty:
        candidates = math.ceil((NARROW_SPARE if is_narrow(share, vectors) else SPARE) * limit)
    element: Element | None = None
    if used is not None and not is_whole:
        element = used.element
        # A given list is rescored as a whole. Under a filter the scan goes on until the candidates pass it: of bits,
        # whose order is coarse, they are those of the list that probably do, and else no more than are needed.
        listed = ef_search or 0
        if not condition.is_empty:
            listed = math.floor(listed * share / SPARE) if element == "bit" else 0
        candidates = max(math.ceil(OVERSAMPLING[element] * limit), candidates, listed)
        rescored = f", {candidates} of {element} rescored"
    parameters |= {"candidates": candidates, "scanned": math.ceil(PATIENCE * candidates / share)}
    orders_by_key = used is None or (is_whole and collection.server.postgres >= INDEX_IN_SORTS)
    unfiltered: FoundName = "index" if orders_by_key else "rescored"
    found = FoundBy(unfiltered, element, limit, candidates) if condition.is_empty else FoundBy("filtered", element)
    if indexes is not None and used is not None and used.kind == "ivfflat":
        settings: dict[str, str | int] = {
            "ivfflat__probes": probes or indexes.probes,
            "ivfflat__iterative_scan": "relaxed_order",
        }
        words = f"vector index, probes {settings['ivfflat__probes']}{rescored}"
    else:
        filtered_share = None if condition.is_empty else share
        settings = _hnsw_settings(
            candidates, vectors, filtered_share, ef_search, parameters["scanned"], iterates=iterates
        )
        words = f"vector index, ef_search {settings['hnsw__ef_search']}{rescored}"
    if used is not None and condition.is_empty and indexes is not None and indexes.rows >= INDEX_FROM_ROWS:
        settings["plan_cache_mode"] = "auto"
    if indexes is not None and used is None:
        words = "exact, all vectors"
    return VectorLeg(scorer, found, parameters, settings, words)


def default_ef_search(vectors: int) -> int:
    """Return the default of ``ef_search`` (candidates of the HNSW index) for this number of vectors."""
    decades = math.log10(max(vectors / EF_SEARCH_UP_TO_ROWS, 1.0))
    return DEFAULT_EF_SEARCH + round(EF_SEARCH_PER_DECADE * decades)


def filtered_ef_search(share: float, vectors: int) -> int:
    """Return the default of ``ef_search`` for a filter that this share of the chunks passes."""
    by_default = default_ef_search(vectors)
    growth = by_default / DEFAULT_EF_SEARCH
    for_share = math.ceil(FILTERED_EF_SEARCH * growth / max(share, MIN_SHARE))
    return min(max(for_share, by_default), round(MAX_FILTERED_EF_SEARCH * growth), MAX_EF_SEARCH)


def is_narrow(share: float, vectors: int) -> bool:
    """Return whether few of the vectors pass a filter, but too many to compare all of these exactly."""
    return share < MIN_FILTER_SHARE and share * vectors > MAX_FILTER_ROWS


def _hnsw_settings(
    limit: int, vectors: int, share: float | None, ef_search: int | None, scanned: int, *, iterates: bool
) -> dict[str, str | int]:
    wanted = default_ef_search(vectors) if share is None else filtered_ef_search(share, vectors)
    candidates = min(MAX_EF_SEARCH, max(limit + 1, ef_search or wanted))
    iterates = iterates or share is not None or candidates <= limit
    scan = "relaxed_order" if iterates else "off"
    settings: dict[str, str | int] = {"hnsw__ef_search": candidates, "hnsw__iterative_scan": scan}
    if share is not None:
        settings["hnsw__max_scan_tuples"] = min(max(MIN_SCANNED, SCANNED * scanned), MAX_SCANNED)
        settings["hnsw__scan_mem_multiplier"] = SCAN_MEMORY
    return settings


@dataclass(frozen=True, slots=True)
class FoundBy:
    """Which statement finds the nearest vectors, and the form in which the index it uses stores vectors."""

    name: FoundName
    element: Element | None = None  # what the index holds of each vector; None for all of it
    # Of a statement for all vectors: how many rows it returns, and takes from the index. They are parts of the text, so
    # that a plan that is kept is one for these numbers.
    limit: int | None = None
    candidates: int | None = None


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """The facts about a collection's vectors on which the text of a statement depends."""

    names: Names
    version: int
    storage: StorageName
    dimensions: int
    distance: Distance
    server: ServerInfo

    @classmethod
    def of(cls, collection: CollectionInfo) -> Self:
        """Return the facts about the vectors that a collection uses."""
        used = collection.vectors
        return cls(
            collection.names, used.version, used.storage, used.dimensions, collection.distance, collection.server
        )

    @property
    def parts(self) -> dict[str, sql.Composable]:
        """Return the names and SQL expressions from which statements are composed; the query is bound as ``vector``."""
        return {
            "distance": self.distance.between(self.server.extension, sql.SQL("e.embedding"), self._query),
            "offset": sql.Literal(self.distance.offset),
            "embedding": self.names.embedding(self.version),
            "chunk": self.names.chunk,
            **table_state(self.names, self.version)._asdict(),
        }

    @property
    def _query(self) -> sql.Composed:
        return sql.SQL("%(vector)s::{}.{}").format(self.server.extension, sql.Identifier(self.storage))

    def nearest(self, found: FoundBy, condition: sql.Composable, side_column: bytes | None) -> sql.Composed:
        """Return the statement for the nearest vectors: keys, scores, and the side column of keyword search."""
        parts = {**self.parts, "condition": condition}
        parts["index_distance"] = parts["distance"]
        if found.element is not None:
            value = IndexedValue(found.element, self.storage, self.dimensions, self.distance, self.server.extension)
            parts["index_distance"] = value.between(sql.SQL("e.embedding"), self._query)
        parts["limit"], parts["candidates"] = sql.Literal(found.limit), sql.Literal(found.candidates)
        parts["found"] = _FOUND[found.name].format(**parts)
        if side_column is None:
            return ALONE.format(**parts)
        return WITH_SIDE_COLUMN.format(**parts, side_column=sql.SQL(side_column.decode()))


async def read_vectors(
    snapshot: Snapshot, collection: CollectionInfo, rows: PassingRows, has_time: Callable[[], bool]
) -> PassingRows | None:
    """Read the vectors of rows into memory; None if the state has changed, time is up, or a vector is all zeros."""
    # Each statement has a time limit of its own; `has_time` is asked before each, since they may be many.
    stored = StoredVectors.of(collection)
    text = VECTORS.format(**stored.parts, extension=stored.server.extension, dimensions=sql.Literal(stored.dimensions))
    read = list[RoundedVectors]()
    for at, locations in await asyncio.to_thread(rows.parts, max(1, MAX_NUMBERS_AT_ONCE // stored.dimensions)):
        if not has_time():
            return None
        parameters = {"state": rows.state, "locations": _WireValue(locations)}
        ((vectors, places),) = await fetch(snapshot, Statement(text, parameters))
        part = await asyncio.to_thread(RoundedVectors.read, vectors, places, at=at, dimensions=stored.dimensions)
        if part is None:
            return None
        read.append(part)
    return replace(rows, vectors=await asyncio.to_thread(RoundedVectors.joined, read))


# Composing and rendering a text takes longer than sending it.
@lru_cache(maxsize=256)
def _unfiltered(stored: StoredVectors, found: FoundBy, side_column: bytes | None) -> bytes:
    return stored.nearest(found, Filter().expression, side_column).as_bytes()


@lru_cache(maxsize=256)
def _similarity(stored: StoredVectors) -> bytes:
    """Return SQL of the similarity of a chunk's vector to the query; NULL for a chunk without a vector."""
    text = sql.SQL(
        "(SELECT {offset}::float8 - ({distance}) FROM {embedding} AS e "
        "WHERE e.document_id = c.document_id AND e.chunk_id = c.chunk_id)"
    )
    return text.format(**stored.parts).as_bytes()


@dataclass(frozen=True, slots=True)
class VectorScorer(Scorer):
    """Computes similarities of chunks that keyword search found."""

    stored: StoredVectors
    vector: dict[str, Any]  # the query as a bound value
    condition: Filter

    @property
    def parts(self) -> dict[str, sql.Composable]:
        """Return the names and SQL expressions from which statements are composed."""
        return {**self.stored.parts, "condition": self.condition.expression}

    def scores_from_column(self, values: list[float | None]) -> NDArray[np.float64]:
        """Return the column's values, which are the scores."""
        return scores_in_column(values)

    def missing_scores(self, keys: Sequence[Key]) -> ScoreQuery:
        """Return the query that computes the similarities of these chunks."""
        text = sql.SQL(
            "SELECT {offset}::float8 - ({distance}) FROM {keys} LEFT JOIN {embedding} AS e "
            "USING (document_id, chunk_id) ORDER BY k.number"
        ).format(**self.parts, keys=NUMBERED_KEYS)
        return scores_by_key(Statement(text, self.vector), keys)


@dataclass(frozen=True, slots=True)
class VectorLeg:
    """The planned vector search of one query."""

    name: ClassVar[str] = "vector"

    scorer: VectorScorer
    found: FoundBy
    parameters: dict[str, Any]  # bound by name in the statement
    settings: dict[str, str | int]  # of the leg's transaction
    plan: str  # in words
    # Returns the locations of a filter's rows to compare on the server, after comparing the vectors that are in memory.
    nearest: Callable[[], bytes] | None = None
    takes_long: bool = False  # whether these rows are many

    @property
    def side_column(self) -> SideColumn:
        """The similarity of a chunk's vector to the query."""
        return SideColumn(_similarity(self.scorer.stored), self.scorer.vector)

    @property
    def selection(self) -> Filter | None:
        """The filter of the search; None if every chunk passes."""
        condition = self.scorer.condition
        return None if condition.is_empty else condition

    def prepare(self, side_column: SideColumn | None) -> PreparedVectorLeg:
        """Prepare the statement for the nearest chunks; it also selects the side column of keyword search."""
        stored, condition = self.scorer.stored, self.scorer.condition
        column = None if side_column is None else side_column.expression
        text: sql.Composed | bytes
        if condition.is_empty or condition.rows is not None:
            text = _unfiltered(stored, self.found, column)
        else:
            text = stored.nearest(self.found, condition.expression, column)
        parameters = self.parameters if side_column is None else self.parameters | side_column.parameters
        if self.nearest is not None:
            parameters = parameters | {"locations": _WireValue(self.nearest())}
        return PreparedVectorLeg((Statement(text, parameters),), self, has_side_column=side_column is not None)


@dataclass(frozen=True, slots=True)
class PreparedVectorLeg:
    """Vector search, ready to be sent."""

    statements: tuple[Statement]  # one, of rows that `ranked` takes
    leg: VectorLeg
    has_side_column: bool

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Return the result of the search."""
        del snapshot
        leg = self.leg
        return ranked(
            rows[0], leg.scorer, with_side_values=self.has_side_column, plan=leg.plan, selection=leg.selection
        )
