"""The keyword index of an open collection: its cache, and how it is written, merged, rebuilt and measured."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.errors import AnalyzerVersionError, DamagedSegmentError
from semlex.options.collection import DEFAULT_BM25, Bm25Options
from semlex.store.keyword.base import Analyzers, Rebuilt, Reserved, refuse_unknown_languages
from semlex.store.keyword.bm25 import merge, rebuild, write
from semlex.store.keyword.bm25.segments import check_row_keys
from semlex.store.postgres.rows import only_row
from semlex.store.query.passing_ids import database_state, passing_ids
from semlex.store.segments import ask_sizes, check_manifest, chunk_ids, live_ids, read_state
from semlex.store.write.copy import ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.keyword.bm25.read import PartIds
    from semlex.store.keyword.bm25.write import BatchIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import Statement
    from semlex.store.schema.names import CollectionIdentity, Names


async def index_figures(connection: Connection, collection: CollectionIdentity, *, counted: bool) -> dict[str, Any]:
    """Return the size and state of the index."""
    names = collection.names
    state = await read_state(connection, collection)
    parts = await _parts(connection, names, state.generation)
    tables = [names.segment, names.posting, names.tombstone, names.manifest]
    segments, postings, tombstones, size, empty = await only_row(
        connection,
        sql.SQL(
            "SELECT count(*), coalesce(sum(postings), 0)::bigint, "
            "(SELECT count(*) FROM {tombstone} WHERE generation = %(generation)s), "
            "(SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest(%(tables)s::text[]) AS name), "
            "count(*) FILTER (WHERE postings > 0 "
            "AND NOT EXISTS (SELECT FROM {posting} AS p WHERE p.segment_id = s.segment_id)) "
            "FROM {segment} AS s WHERE generation = %(generation)s"
        ).format(segment=names.segment, tombstone=names.tombstone, posting=names.posting),
        {"generation": state.generation, "tables": [table.as_string(connection) for table in tables]},
    )
    problem, missing = None, None
    try:
        await check_manifest(connection, names, state.generation, segments + tombstones)
        if counted:
            await check_row_keys(connection, names, state.generation)
            held = await live_ids(connection, names, state.generation)
            missing = (_core.IdSet(await chunk_ids(connection, names)) - held).count
    except (AnalyzerVersionError, DamagedSegmentError) as error:
        problem = str(error)
    if empty and problem is None:
        problem = str(DamagedSegmentError(None, f"posting rows of {empty} segments are missing"))
    if (problem or missing) and parts != await _parts(connection, names, state.generation):
        problem = missing = None  # in a caller's transaction, others wrote between two statements
    return {
        "index_generation": state.generation,
        "index_building": state.building,
        "index_segments": segments,
        "index_tombstones": tombstones,
        "index_postings": postings,
        "index_bytes": size,
        "chunks_not_indexed": missing,
        "index_problem": problem,
    }


async def _parts(connection: Connection, names: Names, generation: int) -> Any:
    """Return a value that changes with every segment and tombstone of a generation."""
    statement = sql.SQL("SELECT md5(string_agg(part_id::text, '' ORDER BY part_id)) FROM {} WHERE generation = %s")
    return await only_row(connection, statement.format(names.manifest), [generation])


# Bytes of small segments, which are kept with all their rows so that no query has to read them again: those that were
# read last. Each has mostly 150 KB or less, and merges leave a few dozens.
SMALL_BYTES = 48_000_000
# Searches in a row that may expect an index that has changed too much. Each takes one round trip more than if it had
# read the index at once.
MAX_IN_VAIN = 2
# After so many searches that saw the same index the next ones no longer ask what has changed, which takes the server a
# tenth of a millisecond; the first search after a change then takes one round trip more.
QUIET_SEARCHES = 100


class IndexCache:
    """The part of an index that all searches share in memory: posting lists, languages, the last known state."""

    def __init__(self, analyzers: Analyzers) -> None:
        self.analyzers = analyzers
        # Languages of chunks seen in this collection; searched from the first statement on
        self.languages = {analyzers.of(None).language}
        self.options = DEFAULT_BM25
        # Posting lists, segments and tombstones; small segments with all their rows.
        self.postings = _core.PostingCache(self.options.cache_bytes, SMALL_BYTES)
        self.passing = PassingIds()  # the ids that pass the last wide filters
        # Whether the next search expects the last state.
        self.is_steady = False
        self._state: PartIds | None = None
        self._in_vain = 0  # searches in a row that expected the last state and had to read the index after all
        self._quiet = 0  # searches since the index was last seen to change

    def configure(self, options: Bm25Options) -> None:
        """Change the BM25 constants and the size of the cache; running searches continue."""
        self.options = options
        self.postings.resize(options.cache_bytes)

    def take_languages(self, languages: set[str]) -> None:
        """Search in these languages, too, from the next query on; refuse one that semlex does not know."""
        new = sorted(languages - self.languages)
        refuse_unknown_languages(new)
        self.languages.update(new)

    @property
    def is_quiet(self) -> bool:
        """Whether many searches in a row saw the same index, so that it probably has not changed."""
        return self._quiet >= QUIET_SEARCHES

    def confirmed(self, state: PartIds) -> None:
        """Note that a search found the index in the expected state."""
        self.is_steady, self._state, self._in_vain = True, state, 0
        self._quiet += 1

    def moved(self) -> None:
        """Note that a search found the index in another state than expected."""
        self._quiet = 0

    def in_vain(self) -> None:
        """Note that the index had changed too much for its changes to be applied, so that a search has to read it."""
        self.is_steady = False
        self._in_vain += 1

    def saw(self, state: PartIds) -> None:
        """Note that a search has read the latest state of the index."""
        if state == self._state:
            self._in_vain = 0
        else:
            self._quiet = 0
        # If the index changes too much all the time, every search reads it until two of them see the same.
        self.is_steady, self._state = self._in_vain < MAX_IN_VAIN, state


class Bm25Index:
    """The keyword index of one collection; semlex itself writes, merges and rebuilds it."""

    analyzer_version = _core.ANALYZER_VERSION
    reserve = staticmethod(write.reserve)
    ask_sizes = staticmethod(ask_sizes)
    wants_merge = staticmethod(merge.merge_wanted)
    optimize = staticmethod(merge.optimize)
    statistics = staticmethod(index_figures)

    def __init__(self, analyzers: Analyzers) -> None:
        self.cache = IndexCache(analyzers)

    @property
    def options(self) -> Bm25Options:
        """The BM25 constants and the cache size in use."""
        return self.cache.options

    def configure(self, options: Bm25Options) -> None:
        """Change the BM25 constants and the size of the cache."""
        self.cache.configure(options)

    def cache_figures(self) -> dict[str, int]:
        """Return hits and misses of the cache of posting lists, and the bytes that it takes."""
        postings = self.cache.postings
        return {"hits": postings.hits, "misses": postings.misses, "bytes": postings.used_bytes + postings.small_bytes}

    def begin_write(
        self, connection: Connection, collection: CollectionIdentity, rows: int
    ) -> AbstractAsyncContextManager[BatchIndex]:
        """Take a writer's first lock, and reserve ids for `rows` rows; see `bm25.write.begin_write`."""
        return write.begin_write(connection, collection, self.cache.analyzers, rows)

    def share(self, names: Names, reserved: Reserved) -> AbstractContextManager[BatchIndex]:
        """Return the `BatchIndex` of a write for which ids are reserved; see `bm25.write.index_share`."""
        return write.index_share(names, self.cache.analyzers, reserved)

    async def merge(self, database: Database, collection: CollectionIdentity) -> None:
        """Merge segments if a merge is due; see `bm25.merge.merge_where_wanted`."""
        await merge.merge_where_wanted(database, collection)

    async def end_load(self, database: Database, collection: CollectionIdentity, written: int) -> None:
        """Merge the segments of a bulk load into full segments; do nothing after a small load."""
        if written >= merge.BULK_LOAD_CHUNKS:
            await merge.merge_where_wanted(database, collection, written=written)

    async def rebuild(
        self, database: Database, collection: CollectionIdentity, progress: Callable[[int, int], None] | None = None
    ) -> Rebuilt:
        """Rebuild the index from the stored texts, with this version's analyzer; searches and writes continue."""
        return await rebuild.Rebuild(database, collection, self.cache.analyzers, progress).run()


# State of the database, and ids.
PassingRow = tuple[str | None, bytes | None]
# Ids that are read for one filter, and that are kept of all: 16 MB.
MAX_PASSING = 2_000_000


class PassingIds:
    """Remembers the ids of chunks that pass recent filters, and for which state of the database the ids are valid."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[str, NDArray[np.int64]]] = OrderedDict()
        self._wanted: Hashable | None = None
        self._deeper: tuple[Hashable, int] | None = None

    def depth(self, condition: Filter, text: str) -> int:
        """Return how many of the best chunks to check, as the last `deepen` noted; 0 if that was for another search."""
        key, depth = self._deeper or (None, 0)
        return depth if key == (condition.key, text) else 0

    def deepen(self, condition: Filter, text: str, depth: int) -> None:
        """Note how many of the best chunks this search has to check when it is tried again."""
        self._deeper = (condition.key, text), depth

    def wants(self, condition: Filter) -> bool:
        """Return whether a search with this filter probably needs the ids, because the last such search did."""
        if self._wanted is None and not self._kept:
            return False
        return condition.key == self._wanted or condition.key in self._kept

    def want(self, condition: Filter) -> None:
        """Note that a search with this filter needs the ids when it is tried again."""
        self._wanted = condition.key

    def of(self, names: Names, condition: Filter) -> PassingQuery:
        """Return the query for the ids of the chunks that pass."""
        key = condition.key
        known, ids = self._kept.get(key, (None, None))
        return PassingQuery(names, condition, key, known, ids)

    def keep(self, query: PassingQuery, state: str | None, ids: NDArray[np.int64] | None) -> None:
        """Keep the ids that a query has returned, for the next search with the same filter."""
        self._wanted = None
        if state is None or ids is None:
            return
        self._kept[query.key] = state, ids
        self._kept.move_to_end(query.key)
        while sum(len(kept) for _, kept in self._kept.values()) > MAX_PASSING:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class PassingQuery:
    """A query for the ids of the chunks that pass a filter; ids that are still valid are not sent again."""

    # The ids are sent again when a transaction has ended on the server since: only metadata may have changed, which the
    # keyword index does not show.

    names: Names
    condition: Filter
    key: Hashable  # of the condition
    known: str | None  # state of the database in which the ids that are kept pass
    ids: NDArray[np.int64] | None  # the kept ones

    @property
    def statement(self) -> Statement:
        """The statement, which returns one row: the state of the database, and the ids unless that state is `known`."""
        state = database_state(self.names)
        return passing_ids(self.names, self.condition, MAX_PASSING, state=state, known=self.known)

    def read(self, row: PassingRow) -> NDArray[np.int64] | None:
        """Return the ids, ascending; None if there are more than `MAX_PASSING`."""
        state, array = row
        ids = self.ids
        if ids is None or state != self.known:
            ids = ids_of(array)
        return None if len(ids) > MAX_PASSING else ids
