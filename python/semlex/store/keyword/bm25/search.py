"""Run a query on the keyword index: analyse the query, read the index, find the best chunks, score given chunks."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from psycopg import sql

from semlex.errors import DamagedSegmentError, FieldError, ValidationError
from semlex.store.keyword.base import MAX_TERMS, terms_cut
from semlex.store.keyword.bm25.index import MAX_PASSING, IndexCache, PassingQuery, PassingRow
from semlex.store.keyword.bm25.read import (
    IndexChanges,
    IndexRows,
    MissingRow,
    PartIds,
    PostingRow,
    expectation,
    given_rows,
    index_statement,
    rows_statement,
    state_row,
)
from semlex.store.keyword.bm25.segments import refuse_lost_rows, refuse_other_analyzer
from semlex.store.postgres.snapshot import Snapshot, SnapshotDiffersError, SnapshotEndedError
from semlex.store.query.filters import Filter
from semlex.store.query.leg import NUMBERED_KEYS, KnownScores, LegResult, Scorer, SideColumn, Statement, key_arrays
from semlex.store.query.run import fetch
from semlex.store.segments import refuse_lost_parts
from semlex.store.write.copy import array_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex import _core
    from semlex.options.collection import Bm25Options
    from semlex.store.query.leg import BestRows, Key, ScoreQuery
    from semlex.store.schema.names import CollectionIdentity, Names


# Phrases are checked on the texts; up to this many are read for one query.
MAX_PHRASE_TEXTS = 2_000


class Best(NamedTuple):
    """The best chunks of a query, best first."""

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    work: tuple[int, int, int]  # postings unpacked, blocks skipped, chunks rescored

    def first(self, count: int) -> Best:
        """Return the first `count` chunks, and those with the same score as the last of these."""
        if len(self.ids) <= count:
            return self
        kept = int((-self.scores).searchsorted(-self.scores[count - 1], side="right"))
        return Best(self.ids[:kept], self.scores[:kept], self.work)


class Earlier(NamedTuple):
    """Hits found in the expected state of the index; they shorten the search if the index turns out to have changed."""

    postings: _core.PostingSnapshot
    options: Bm25Options
    depth: int
    best: Best


@dataclass(frozen=True, slots=True)
class AnalysedQuery:
    """A query, analysed in each language of the index."""

    index: IndexCache  # has the analyzers, the cache and the constants
    text: str
    with_phrases: bool  # whether its phrases count; otherwise their words do
    by_language: dict[str, _core.Query]  # its terms
    plan: _core.PostingPlan  # which posting lists they need
    missing: list[MissingRow]  # rows that the plan lacks

    @classmethod
    def of(cls, index: IndexCache, text: str, *, with_phrases: bool) -> AnalysedQuery:
        """Analyse a query in the languages that occur in the index."""
        by_language = {language: _terms(index.analyzers.of(language), text) for language in sorted(index.languages)}
        plan = index.postings.plan(
            [
                (language, query.wanted, query.phrases if with_phrases else [], query.excluded)
                for language, query in by_language.items()
            ]
        )
        return cls(index, text, with_phrases, by_language, plan, plan.missing)

    def in_memory(self) -> _core.PostingSnapshot | None:
        """Return the part of the index that this query needs, if it is in memory and probably unchanged."""
        if self.missing or not self.index.is_steady:
            return None
        try:
            return self.index.postings.complete(self.plan, [])
        except DamagedSegmentError:
            # The leg reads the index, and reports what is damaged still: the other leg may answer.
            self.index.is_steady = False
            return None

    def phrases_of(self, query: _core.Query) -> list[list[str]]:
        """Return the phrases that every hit must contain."""
        return query.phrases if self.with_phrases else []

    @property
    def wants_phrases(self) -> bool:
        """Whether every hit must contain a phrase."""
        return self.with_phrases and any(query.phrases for query in self.by_language.values())

    @property
    def reads_texts(self) -> bool:
        """Whether the texts of candidates have to be read, because a phrase is required or excluded."""
        return self.wants_phrases or any(
            len(group) > 1 for query in self.by_language.values() for group in query.excluded
        )

    @property
    def excludes(self) -> bool:
        """Whether a chunk with the query's words may still not match: a phrase is required, or words are excluded."""
        return self.wants_phrases or any(query.excluded for query in self.by_language.values())

    def hold_phrases(self, rows: Sequence[Sequence[Any]]) -> list[bool]:
        """Return for each row of `TEXTS` whether it contains every phrase and no excluded one."""
        held = [True] * len(rows)
        if not self.reads_texts:
            return held
        analyzers = [self.index.analyzers.of(language) for language, _, _ in rows]
        for analyzer in set(analyzers):
            # A chunk that another client wrote meanwhile may have a language that no segment has.
            query = self.by_language.get(analyzer.language) or _terms(analyzer, self.text)
            numbers = [number for number, own in enumerate(analyzers) if own is analyzer]
            texts = [f"{context}\n{text}" for _, context, text in (rows[number] for number in numbers)]
            excluded = [phrase for phrase in query.excluded if len(phrase) > 1]
            matches = analyzer.matches(texts, self.phrases_of(query), excluded).tolist()
            for number, found in zip(numbers, matches, strict=True):
                held[number] = found
        return held

    def depth(self, wanted: int) -> int:
        """Return `wanted`, the number of chunks to find, but at most `MAX_PHRASE_TEXTS` if texts have to be read."""
        return min(wanted, MAX_PHRASE_TEXTS) if self.reads_texts else wanted

    def texts_left(self, looked_at: int) -> int:
        """Return the number of texts in which phrases may still be checked, after `looked_at` texts."""
        return max(MAX_PHRASE_TEXTS - looked_at, 0)

    def best(
        self,
        postings: _core.PostingSnapshot,
        depth: int,
        allowed: NDArray[np.int64] | None = None,
        earlier: Earlier | None = None,
    ) -> Best:
        """Return the `depth` best chunks and those of equal score; with `allowed`, only chunks with these ids."""
        options, before = self.index.options, None
        if earlier is not None and earlier.options == options:
            before = earlier.postings, earlier.depth, earlier.best.ids, earlier.best.scores
        ids, scores, _, work = postings.search(depth, k1=options.k1, b=options.b, allowed=allowed, before=before)
        # More may come, whose score equals the last.
        most = MAX_PHRASE_TEXTS if self.reads_texts else len(ids)
        return Best(ids[:most], scores[:most], work)

    def warnings(self, postings: _core.PostingSnapshot) -> tuple[str, ...]:
        """Return warnings for users about words of the query that were not searched or not found."""
        if not postings.chunks:
            return ("the collection is empty",)
        queries = self.by_language.values()
        if not any(query.wanted or query.excluded for query in queries):
            return ("the query has no word for keyword search: stop words and punctuation are ignored",)
        warnings = terms_cut(max(query.total for query in queries))
        if any(query.wanted for query in queries) and not postings.postings:
            return (*warnings, "no word of the query occurs in the collection")
        return warnings


def _terms(analyzer: _core.Analyzer, text: str) -> _core.Query:
    """Return the terms of a query in one language."""
    query = analyzer.query(text, MAX_TERMS)
    if query.conditions > MAX_TERMS:
        limit = f"{MAX_TERMS} words in quotes or after a dash"
        raise ValidationError([FieldError(-1, None, "query", "too_long", limit, f"{query.conditions} words")])
    return query


# With a wide filter the best chunks are checked: this many times the number that its share predicts, then as many times
# what those that passed predict.
SPARE = 1.25
DEEPER = 4
# Maximum number of chunks in the first check.
MAX_DEPTH = 10_000
# Reading the ids of all chunks that pass costs, for a chunk of the collection, an eighth of a check; and they are kept
# for the next searches with the filter.
READ_COST = 1 / 32
# Chunks that are checked where too many pass for reading their ids.
MAX_CHECKED = 40_000
# So many more chunks than wanted are sought while the index changes: what the last of them scores tells after a change
# that no other chunk of the same segments can be among the best.
MORE = 10
# With more ids, or more postings, the best chunks are sought in a thread: that takes more than half a millisecond.
MAX_ON_LOOP = 20_000
MAX_POSTINGS_ON_LOOP = 500_000
ENTRY_BYTES = 12  # of a bigint in an array that the server sends
WORK = ("postings", "skipped_blocks", "rescored")
# The id of no chunk.
NO_CHUNK = -1
# The columns in which phrases are checked.
TEXTS = sql.SQL(", c.language, c.context, c.chunk_text")
# The innermost heading above a chunk.
HEADING = sql.SQL(
    "COALESCE(c.subsection_title[pg_catalog.cardinality(c.subsection_title)], "
    "CASE WHEN c.section_title OPERATOR(pg_catalog.<>) '' THEN c.section_title END, c.chapter_title)"
)

# The rows of the best of the chunks that are there and pass the filter, as many as are wanted, and of those of equal
# scores. A chunk whose heading is the query may become one of the best. Others may, too: their rows are asked for.
BEST_ROWS = sql.SQL(
    " LEFT JOIN LATERAL (SELECT {columns} FROM {chunk} AS c "
    "WHERE c.keyword_id OPERATOR(pg_catalog.=) k.keyword_id "
    "AND (k.place OPERATOR(pg_catalog.<=) %(wanted)s AND k.number OPERATOR(pg_catalog.<=) %(most)s "
    "OR pg_catalog.lower(k.heading) OPERATOR(pg_catalog.=) pg_catalog.lower(%(heading)s::pg_catalog.text)) "
    "OFFSET 0) AS w ON TRUE"  # by key for every row, however many the planner expects
)
# The chunk's place among those of other scores. The ids ascend, so that they are found by halving.
PLACE = sql.SQL(", pg_catalog.rank() OVER scores AS place")
BY_SCORE = sql.SQL(
    " WINDOW scores AS (ORDER BY (%(places)s::pg_catalog.int4[])"
    "[pg_catalog.width_bucket(c.keyword_id, %(ids)s::pg_catalog.int8[])])"
)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The statement that reads the keys of chunks by their ids, and with them whether the index has changed."""

    names: Names
    side_column: bytes
    reads_texts: bool
    rows: bytes | None  # `BestRows.columns`
    # Whether it tells what has changed, and not only that the index is as expected; both even without chunks. None if
    # the transaction has read the index.
    with_changes: bool | None
    # Of the collection: each power of four has a statement of its own, so no plan outlives the size it was made for.
    size: int

    def text(self, condition: Filter) -> sql.Composed:
        """Return the SQL of the statement; the constants from `STATE` to `ROW` are the positions of its columns."""
        keys = sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.keyword_id, {column} AS side_value, {heading} AS heading, "
            "pg_catalog.row_number() OVER {order} AS number{others} "
            "FROM {chunk} AS c "
            "WHERE c.keyword_id OPERATOR(pg_catalog.=) ANY(%(ids)s::pg_catalog.int8[]) AND {condition}{window}"
        ).format(
            column=sql.SQL(self.side_column.decode()),
            heading=HEADING,
            order=sql.SQL("()" if self.rows is None else "scores"),
            others=TEXTS if self.reads_texts else PLACE if self.rows is not None else sql.SQL(""),
            window=sql.SQL("") if self.rows is None else BY_SCORE,
            chunk=self.names.chunk,
            condition=condition.expression,
        )
        state: sql.Composable = sql.SQL("SELECT TRUE AS is_unchanged, NULL AS changes")
        if self.with_changes is not None:
            state = state_row(self.names, with_changes=self.with_changes)
        text = sql.SQL(
            "SELECT s.is_unchanged, "
            "CASE WHEN k.number OPERATOR(pg_catalog.=) 1 OR k.number IS NULL THEN s.changes END AS changes, "
            "k.*{columns} FROM ({state}) AS s LEFT JOIN ({keys}) AS k ON TRUE{rows} /* {size} */"
        )
        size = sql.Literal(self.size)
        if self.rows is None:
            return text.format(columns=sql.SQL(""), state=state, keys=keys, rows=sql.SQL(""), size=size)
        rows = BEST_ROWS.format(columns=sql.SQL(self.rows.decode()), chunk=self.names.chunk)
        return text.format(columns=sql.SQL(", w.*"), state=state, keys=keys, rows=rows, size=size)


@lru_cache(maxsize=256)
def _unfiltered(keys: _Keys) -> bytes:
    return keys.text(Filter()).as_bytes()


# Columns of `_Keys`: those of `state_row`, then those of a chunk: key, id, side column, heading, and a number of the
# row. The texts begin at 8; or else the place is there, and the row of one of the best begins at 9.
STATE, CHANGES, KEY, ID, SIDE_VALUE, PLACE_OF_HEADING, TEXT, ROW = 0, 1, slice(2, 4), 4, 5, 6, 8, 9
# Up to so many times the rows that are wanted come along where scores are equal.
MOST_ROWS = 4


@dataclass(frozen=True, slots=True)
class Bm25Leg:
    """The planned keyword search of one query."""

    name: ClassVar[str] = "keyword"
    settings: ClassVar[dict[str, str | int]] = {}

    collection: CollectionIdentity
    query: AnalysedQuery
    limit: int
    condition: Filter  # over the chunk's row
    rows: BestRows | None  # if this leg answers alone
    in_memory: _core.PostingSnapshot | None  # `AnalysedQuery.in_memory`
    least_depth: int  # of the best chunks to check first: what the last search had to, if it was this one

    @property
    def side_column(self) -> SideColumn | None:
        """The column that vector search adds for keyword scores: the chunk's id; None if they need the text, too."""
        return None if self.query.reads_texts else SideColumn(b"c.keyword_id")

    @property
    def depth(self) -> int:
        """How many of the best chunks to check first."""
        if self.unchecked.is_empty:
            return self.query.depth(self.limit)
        share = self.condition.share or 1 / DEEPER
        return self.query.depth(max(self.least_depth, min(MAX_DEPTH, math.ceil(SPARE * self.limit / share))))

    @property
    def unchecked(self) -> Filter:
        """The filter that the best chunks still have to be checked against; empty if only ids that pass are scored."""
        return self.condition if self.condition.ids is None else Filter()

    @property
    def takes_long(self) -> bool:
        """Whether this search scores too many postings or ids to be prepared in the event loop."""
        return self.in_memory is not None and _takes_long(self.in_memory, self.condition.ids)

    def prepare(self, side_column: SideColumn | None) -> PreparedBm25Leg | ExpectingBm25Leg | FilteringBm25Leg:
        """Prepare to read the index, and also the passing ids if the last search with this filter needed them."""
        passing = self.query.index.passing
        if self.unchecked.is_empty or not passing.wants(self.condition):
            return self._read_index(side_column)
        query = passing.of(self.collection.names, self.condition)
        return FilteringBm25Leg(self._read_index(side_column, with_keys=False), query)

    def _read_index(
        self, side_column: SideColumn | None, *, with_keys: bool = True
    ) -> PreparedBm25Leg | ExpectingBm25Leg:
        """Prepare to read the parts of the index that are not in memory; if all are, the keys of the best chunks."""
        # If the index has probably changed little, the statement reads what is missing: rows of the index, or else the
        # keys of the best chunks, and their rows if they are wanted. It tells whether the index has changed, and how.
        query = self.query
        if not query.index.is_steady:
            return PreparedBm25Leg(self, side_column, (index_statement(self.collection.names, query.plan),))
        expected = query.plan.state
        if self.in_memory is None or not with_keys:
            statement = rows_statement(self.collection, expected, query.missing)
            return ExpectingBm25Leg(self, side_column, (statement,), expected)
        with_changes, depth = not query.index.is_quiet, self.depth
        earlier: Earlier | None = None
        if with_changes and self.condition.ids is None and not query.reads_texts:
            options, deeper = query.index.options, depth + MORE
            found = query.best(self.in_memory, deeper)
            best, earlier = found.first(depth), Earlier(self.in_memory, options, deeper, found)
        else:
            best = query.best(self.in_memory, depth, self.condition.ids)
        keys = self.keys_of(best, side_column, expected=expected, with_changes=with_changes)
        return ExpectingBm25Leg(self, side_column, (keys,), expected, with_changes, best, earlier)

    def keys_of(
        self,
        best: Best,
        side_column: SideColumn | None,
        *,
        looked_at: int = 0,
        expected: PartIds | None = None,
        with_changes: bool = False,
    ) -> Statement:
        """Return the statement for key, id, side column, heading and texts of chunks that exist and pass the filter."""
        # The first `looked_at` of the best chunks were checked before. `expected` is the state of the index that the
        # statement must confirm, or else say what has changed; None if the transaction has read it.
        ids, condition, column = best.ids[looked_at:], self.unchecked, side_column or SideColumn(b"NULL")
        rows = None if looked_at or self.query.reads_texts else self.rows
        parameters = {**condition.parameters, **column.parameters}
        if expected is not None:
            parameters |= expectation(self.collection, expected, with_changes=with_changes)
        large: tuple[int, ...] = ()
        if rows is not None:
            order, descending = ids.argsort(), -best.scores
            places = descending.searchsorted(descending)  # equal scores, equal places
            parameters |= {"places": array_text(places[order].tolist()), "heading": self.query.text}
            parameters |= {"wanted": rows.count, "most": MOST_ROWS * rows.count}
            ids, large = ids[order], tuple(ROW + place for place in rows.large_columns)
        parameters["ids"] = array_text(ids.tolist())
        keys = _Keys(
            self.collection.names,
            column.expression,
            self.query.reads_texts,
            None if rows is None else rows.columns,
            None if expected is None else with_changes,
            0 if self.in_memory is None else self.in_memory.chunks.bit_length() // 2,
        )
        text = _unfiltered(keys) if condition.is_empty else keys.text(condition)
        return Statement(text, parameters, is_qualified=condition.is_empty, large_columns=large)


@dataclass(frozen=True, slots=True)
class PreparedBm25Leg:
    """A keyword search that reads all parts of the index that it needs and that are not in memory."""

    leg: Bm25Leg
    side_column: SideColumn | None  # the other leg's
    statements: tuple[Statement]  # the index

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Score chunks with the index that was read, then read the keys of the best ones."""
        leg, (index,) = self.leg, rows
        names, query = leg.collection.names, leg.query
        postings = indexed(query.index, query.plan, IndexRows.of(index), names)
        if postings.missing_languages:
            # Chunks in a new language: search again, with the query analysed in it, too.
            query = AnalysedQuery.of(query.index, query.text, with_phrases=query.with_phrases)
            leg = replace(leg, query=query)
            index = await fetch(snapshot, index_statement(names, query.plan))
            postings = indexed(query.index, query.plan, IndexRows.of(index), names)
        return await _result(snapshot, leg, self.side_column, postings)


@dataclass(frozen=True, slots=True)
class ExpectingBm25Leg:
    """A keyword search that expects the index to have changed little, or not at all, since the last search."""

    leg: Bm25Leg
    side_column: SideColumn | None  # the other leg's
    statements: tuple[Statement]  # the state of the index, and what is missing
    expected: PartIds  # the expected state of the index
    with_changes: bool = True  # whether they also ask what has changed
    best: Best | None = None  # if nothing is missing: the best chunks, whose keys are requested
    earlier: Earlier | None = None  # with more than these chunks, for the search after a change

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Use the answer if the index is as expected; otherwise apply the changes of the index first."""
        leg, (found,) = self.leg, rows
        query, cache = leg.query, leg.query.index
        if found and found[0][STATE]:
            cache.confirmed(self.expected)
            postings = leg.in_memory or cache.postings.complete(query.plan, self._rows(found))
            first = None if self.best is None else (self.best, found)
            return await _result(snapshot, leg, self.side_column, postings, first=first)
        cache.moved()
        try:
            return await self._read_changed(snapshot, found)
        except SnapshotEndedError as error:
            raise SnapshotDiffersError from error

    async def _read_changed(self, snapshot: Snapshot, found: list[Any]) -> LegResult:
        """Apply the changes of the index; if they are too many, read the index again."""
        leg, query, cache = self.leg, self.leg.query, self.leg.query.index
        told = found
        if not self.with_changes:
            if snapshot.has_ended:
                raise SnapshotEndedError  # the next snapshot asks what has changed
            told = await fetch(snapshot, rows_statement(leg.collection, self.expected, ()))
        changes = next((row[CHANGES] for row in told if row[CHANGES] is not None), None)
        changed = None if changes is None else self._changed(changes, found)
        if changed is None:
            cache.in_vain()
            if snapshot.has_ended:
                raise SnapshotEndedError
            statement = index_statement(leg.collection.names, query.plan)
            reread = PreparedBm25Leg(leg, self.side_column, (statement,))
            return await reread.read(snapshot, [await fetch(snapshot, statement)])
        first = None
        if self.best is not None:
            best = await _best(query, changed, leg.depth, leg.condition.ids, self.earlier)
            # Mostly a commit changes nothing of the best chunks but their scores.
            if set(self.best.ids.tolist()).issuperset(best.ids.tolist()):
                first = best, found
        return await _result(snapshot, leg, self.side_column, changed, first=first)

    def _rows(self, found: list[Any]) -> list[PostingRow]:
        """Return the posting rows that the plan lacked and the statement has read."""
        missing = self.leg.query.missing
        return given_rows(missing, found) if missing else []

    def _changed(self, changes: Sequence[Sequence[bytes]], found: list[Any]) -> _core.PostingSnapshot | None:
        """Return the index with the changes applied; None if that needs more rows of the index."""
        query, cache = self.leg.query, self.leg.query.index
        index = IndexChanges.read(cache.postings, query.plan, changes)
        if index is None:
            return None
        refuse_lost_parts(index.parsed.parts, index.parts)
        refuse_lost_rows(index.parsed.damaged)
        cache.take_languages(index.parsed.languages)
        postings = cache.postings.follow(query.plan, index.parsed, self._rows(found), index.ended)
        if postings.is_latest:
            cache.saw(index.state)
        return None if postings.missing_languages else postings


@dataclass(frozen=True, slots=True)
class FilteringBm25Leg:
    """A keyword search with a narrow filter: few of the chunks with the query's words pass it."""

    prepared: PreparedBm25Leg | ExpectingBm25Leg  # reads the index, and no keys yet
    query: PassingQuery

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements that read the index, and the one that reads the ids that pass the filter."""
        return (*self.prepared.statements, self.query.statement)

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Score only the chunks that pass the filter; if they are too many, search first and filter later."""
        *index, (row,) = rows
        leg = self.prepared.leg
        ids = await _read_passing(leg, self.query, row)
        if ids is not None:
            leg = replace(leg, condition=replace(leg.condition, ids=ids))
        return await replace(self.prepared, leg=leg).read(snapshot, index)


def indexed(cache: IndexCache, plan: _core.PostingPlan, rows: IndexRows, names: Names) -> _core.PostingSnapshot:
    """Put the rows that were read into the cache, and return the index; refuse a damaged or outdated index."""
    refuse_other_analyzer(names, rows.analyzer_version)
    refuse_lost_parts(len(rows.segments) + len(rows.tombstones), rows.parts)
    refuse_lost_rows(rows.damaged)
    cache.take_languages({language for _, language, _ in rows.segments})
    postings = cache.postings.snapshot(plan, rows.segments, rows.tombstones, rows.postings, rows.ended)
    if postings.is_latest:
        cache.saw(rows.state)
    return postings


async def _result(
    snapshot: Snapshot,
    leg: Bm25Leg,
    side_column: SideColumn | None,
    postings: _core.PostingSnapshot,
    *,
    first: tuple[Best, list[Any]] | None = None,
) -> LegResult:
    """Return the result: the best chunks that pass the filter and contain the phrases."""
    query = leg.query
    found: list[tuple[float, Key, int, Any, str]] = []
    brought: dict[Key, Any] = {}
    depth, looked_at = leg.depth, 0
    warnings: list[str] = []
    work: Sequence[int] = (0, 0, 0)
    while True:
        if first is not None:
            best, rows = first
        else:
            best = await _best(query, postings, depth, leg.condition.ids)
            is_more = len(best.ids) > looked_at
            rows = await _keys(snapshot, leg.keys_of(best, side_column, looked_at=looked_at)) if is_more else []
        work = [one + more for one, more in zip(work, best.work, strict=True)]
        score_of = dict(zip(best.ids.tolist(), best.scores.tolist(), strict=True))
        rows = [row for row in rows if row[ID] in score_of]
        if query.reads_texts:
            rows = list(compress(rows, query.hold_phrases([row[TEXT:] for row in rows])))
        elif leg.rows is not None:
            brought |= {row[KEY]: row[ROW:] for row in rows if len(row) > ROW and row[ROW] is not None}
        found += [(score_of[row[ID]], row[KEY], row[ID], row[SIDE_VALUE], row[PLACE_OF_HEADING]) for row in rows]
        first, looked_at = None, len(best.ids)
        if len(found) >= leg.limit or looked_at < depth:
            break
        if query.reads_texts and not query.texts_left(looked_at):
            warnings.append(f"only the best {looked_at} chunks with the phrase's words were checked for the phrase")
            break
        # Some were left out by the filter, by a phrase, or were deleted by another client since.
        if leg.unchecked.is_empty:
            depth = query.depth(depth * DEEPER)
            continue
        further = await _further(snapshot, leg, postings, depth=depth, looked_at=looked_at, passed=len(found))
        if further is None:
            warnings.append(
                f"only the best {looked_at:,} chunks with the query's words were checked by the filter, because more "
                f"than {MAX_PASSING:,} chunks pass the filter"
            )
            break
        leg, depth = further
        if leg.condition.ids is not None:
            looked_at = 0
            found.clear()
    # Whether every chunk that may be found was: then no other one holds the phrases.
    found_all = looked_at < depth and len(found) <= leg.limit
    found.sort(key=lambda entry: (-entry[0], entry[1][0].int, entry[1][1]))
    del found[leg.limit :]
    return LegResult(
        [key for _, key, *_ in found],
        np.array([score for score, *_ in found], dtype=np.float64),
        side_values=[value for *_, value, _ in found] if side_column else None,
        numbers=np.array([number for _, _, number, *_ in found], dtype=np.int64),
        headings=[heading for *_, heading in found],
        rows=brought,
        scorer=Bm25Scorer(leg.collection.names, query, postings, query.texts_left(looked_at), found_all=found_all),
        has_exclusions=query.excludes,
        has_phrases=query.wants_phrases,
        postings=postings,
        terms=max((min(own.total, MAX_TERMS) for own in query.by_language.values()), default=0),
        warnings=(*warnings, *query.warnings(postings)),
        plan=_plan(leg.condition, looked_at),
        work=dict(zip(WORK, work, strict=True)),
        selection=None if leg.condition.is_empty else leg.condition,
    )


async def _keys(snapshot: Snapshot, statement: Statement) -> list[Any]:
    return await fetch(snapshot, statement, is_last=bool(statement.large_columns))


async def _further(
    snapshot: Snapshot, leg: Bm25Leg, postings: _core.PostingSnapshot, *, depth: int, looked_at: int, passed: int
) -> tuple[Bm25Leg, int] | None:
    """Return how to search on after too few chunks passed the filter: the search and its depth, or None to stop."""
    # Either more of the best chunks are checked, or the ids of all that pass are read, whichever is less; then the leg
    # looks among these ids alone.
    likely = SPARE * leg.limit * looked_at / passed if passed else math.inf
    likely = min(likely, postings.postings + 1)  # no more chunks have the words
    if depth == leg.depth and likely <= READ_COST * postings.chunks:
        deeper = max(math.ceil(likely), depth + 1)
        leg.query.index.passing.deepen(leg.condition, leg.query.text, deeper)  # the snapshot may have ended
        return leg, leg.query.depth(deeper)
    ids = await _passing(snapshot, leg)
    if ids is None:
        return (leg, leg.query.depth(depth * DEEPER)) if looked_at < MAX_CHECKED else None
    leg = replace(leg, condition=replace(leg.condition, ids=ids))
    return leg, leg.depth


async def _passing(snapshot: Snapshot, leg: Bm25Leg) -> NDArray[np.int64] | None:
    """Read the ids of the chunks that pass the filter; return None if these are too many."""
    passing = leg.query.index.passing
    passing.want(leg.condition)  # the snapshot may have ended
    query = passing.of(leg.collection.names, leg.condition)
    (row,) = await fetch(snapshot, query.statement)
    return await _read_passing(leg, query, row)


async def _read_passing(leg: Bm25Leg, query: PassingQuery, row: PassingRow) -> NDArray[np.int64] | None:
    state, array = row
    # Half a million ids are unpacked and sorted in 10 ms.
    is_long = array is not None and len(array) > ENTRY_BYTES * MAX_ON_LOOP
    ids = await asyncio.to_thread(query.read, row) if is_long else query.read(row)
    leg.query.index.passing.keep(query, state, ids)
    return ids


async def _best(
    query: AnalysedQuery,
    postings: _core.PostingSnapshot,
    depth: int,
    allowed: NDArray[np.int64] | None,
    earlier: Earlier | None = None,
) -> Best:
    if _takes_long(postings, allowed):
        return await asyncio.to_thread(query.best, postings, depth, allowed, earlier)
    return query.best(postings, depth, allowed, earlier)


def _takes_long(postings: _core.PostingSnapshot, allowed: NDArray[np.int64] | None) -> bool:
    return postings.postings > MAX_POSTINGS_ON_LOOP or (allowed is not None and len(allowed) > MAX_ON_LOOP)


def _plan(condition: Filter, looked_at: int) -> str:
    if condition.is_empty:
        return "keyword index"
    if condition.ids is not None:
        return "keyword index, among the ids that pass the filter"
    return f"keyword index, the best {looked_at:,} checked by the filter"


@dataclass(frozen=True, slots=True)
class Bm25Scorer(Scorer):
    """Gives keyword scores to chunks that vector search found; NaN to deleted chunks and those the query excludes."""

    names: Names
    query: AnalysedQuery
    postings: _core.PostingSnapshot  # what it needs of the index
    texts_left: int  # in how many more texts phrases may be checked
    found_all: bool  # whether the leg found every chunk that it may find

    def scores_from_column(self, values: list[int | None]) -> NDArray[np.float64] | None:
        """Return the scores of the chunks with these ids; None if phrases have to be checked in texts first."""
        return None if self.query.reads_texts else self.scores_by_id(values)

    def missing_scores(self, keys: Sequence[Key]) -> ScoreQuery:
        """Return the query that reads the chunks' ids, and their texts if phrases have to be checked."""
        if self.query.wants_phrases and self.found_all:
            return KnownScores(np.full(len(keys), np.nan))
        text = sql.SQL(
            "SELECT c.keyword_id{texts} FROM {keys} LEFT JOIN {chunk} AS c ON k.number <= {most} "
            "AND c.document_id = k.document_id AND c.chunk_id = k.chunk_id ORDER BY k.number"
        ).format(
            texts=TEXTS if self.query.reads_texts else sql.SQL(""),
            keys=NUMBERED_KEYS,
            chunk=self.names.chunk,
            most=sql.Literal(self.texts_left if self.query.reads_texts else len(keys)),
        )
        return Bm25Scores((Statement(text, key_arrays(keys)),), self)

    def scores_by_id(self, ids: Sequence[int | None]) -> NDArray[np.float64]:
        """Return the scores of chunks by their ids in the index; NaN for None."""
        options = self.query.index.options
        score_ids = np.array([NO_CHUNK if keyword_id is None else keyword_id for keyword_id in ids], dtype=np.int64)
        return self.postings.search(0, k1=options.k1, b=options.b, score_ids=score_ids)[2]


@dataclass(frozen=True, slots=True)
class Bm25Scores:
    """The query that reads ids of chunks, with texts if phrases have to be checked, and scores the chunks."""

    statements: tuple[Statement]  # one
    scorer: Bm25Scorer  # of the query

    def scores(self, rows: list[list[Any]]) -> NDArray[np.float64]:
        """Return the scores of chunks that contain the phrases; NaN for the others."""
        ids = [row[0] for row in rows[0]]
        existing = [number for number, keyword_id in enumerate(ids) if keyword_id is not None]
        held = self.scorer.query.hold_phrases([rows[0][number][1:] for number in existing])
        for number, holds in zip(existing, held, strict=True):
            if not holds:
                ids[number] = None
        return self.scorer.scores_by_id(ids)
