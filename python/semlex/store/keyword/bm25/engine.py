"""The keyword leg on an index of our own: true BM25, from posting lists in ordinary tables, scored in Rust.

A search reads three things of one snapshot, in one round trip: which segments and tombstones there are, and the rows of
its terms that are not in memory yet. None of them ever changes once it is written, so what is in memory needs no
invalidation. Scores are exact at every moment: the number of chunks, their average length and in how many of them a
word occurs are those of the snapshot.

Where the index probably is what it was at the last search, the rows that are missing are asked for right away; and when
none is, the search is made in memory first, and one round trip brings the keys of the chunks that were found. With them
comes whether the index is what it was; if it is not, what was read or found so is thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import AnalyzerVersionError, FieldError, ValidationError
from semlex.store.keyword.base import MAX_TERMS, match_lines, terms_cut
from semlex.store.keyword.bm25.read import (
    IndexRows,
    expected_state,
    given_rows,
    index_statement,
    rows_statement,
    state_statement,
)
from semlex.store.keyword.bm25.tables import create_tables
from semlex.store.keyword.bm25.write import analyzer_of
from semlex.store.query.filters import Filter
from semlex.store.query.legs import Beside, Leg, LegAnswer, Question, Statement, fetch, key_arrays, key_order
from semlex.validation import check_parameters, number_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from semlex.store.keyword.bm25.read import IndexState, MissingRow
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.legs import Key
    from semlex.store.schema.names import Names

T = TypeVar("T")

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
# A filter that keeps at most so many chunks is read as a list of their ids; of a wider one the best candidates are
# checked, and more of them until there are enough.
NARROW_FILTER_ROWS = 20_000
DEEPER = 4
# The id of no chunk.
NO_CHUNK = -1
# Whether a phrase stands in a text is seen on the text; so many texts are read at most for one query.
MAX_PHRASE_TEXTS = 2_000


@dataclass(frozen=True, slots=True)
class Bm25Options:
    """How the engine ``bm25`` scores, and how much it remembers.

    Attributes:
        k1: How soon further occurrences of a word stop to count, from 0 (Robertson and Zaragoza, "The Probabilistic
            Relevance Framework", 2009).
        b: How much a long text is held against it, 0 to 1.
        cache_bytes: Most bytes of posting lists that are kept in memory.

    Raises:
        ConfigurationError: Out of range.
    """

    k1: float = 1.2
    b: float = 0.75
    cache_bytes: int = DEFAULT_CACHE_BYTES

    def __post_init__(self) -> None:
        check_parameters(
            number_errors("k1", self.k1, 0, 1000),  # beyond, it is the plain number of occurrences
            number_errors("b", self.b, 0, 1),
            whole_number_errors("cache_bytes", self.cache_bytes, 0, 2**40),
        )


DEFAULT_BM25 = Bm25Options()


class Bm25Engine:
    """True BM25.

    Args:
        language: The collection's language: a name or code of `semlex._core.ANALYZER_LANGUAGES`.
        stop_words: Whether words that every text has are left out.

    Raises:
        ConfigurationError: The language is not known.
    """

    name = "bm25"
    score_name = "bm25"
    analyzer_version: int | None = _core.ANALYZER_VERSION

    def __init__(self, language: str, *, stop_words: bool = True) -> None:
        self.stop_words = stop_words
        self.language = analyzer_of(language, stop_words).language
        self._options = DEFAULT_BM25
        self._cache = _core.PostingCache(self._options.cache_bytes)
        # Languages that chunks of this collection were seen to have; asked for from the first statement on.
        self._languages = {self.language}
        self._seen: IndexState | None = None
        self._is_steady = False

    def analyzer(self, language: str | None) -> _core.Analyzer:
        """The analyzer of a language; of the collection's for None.

        Raises:
            ConfigurationError: The language is not known.
        """
        return analyzer_of(self.language if language is None else language, self.stop_words)

    def configure(self, options: Bm25Options) -> None:
        """Takes other constants and another size of the cache; what is in the cache is forgotten."""
        self._options = options
        self._cache = _core.PostingCache(options.cache_bytes)

    def cache_figures(self) -> dict[str, int]:
        """Hits, misses and bytes of the cache."""
        cache = self._cache
        return {"hits": cache.hits, "misses": cache.misses, "bytes": cache.used_bytes}

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """The tables of the index."""
        return create_tables(names)

    def indexes(self, names: Names) -> Sequence[tuple[str, sql.Composed]]:
        """None that could wait: the tables are only ever asked by their keys."""
        del names
        return ()

    def leg(self, names: Names, query: str, limit: int, condition: Filter) -> Leg | None:
        """Chunks that contain any of the words (all phrases, no excluded word), best first; ties by key."""
        return self._leg(names, query, limit, condition, with_phrases=True)

    def _leg(self, names: Names, query: str, limit: int, condition: Filter, *, with_phrases: bool) -> Leg:
        search = _Search(self, names, query, limit, condition, with_phrases=with_phrases)
        by_words = partial(self._leg, names, query, condition=condition, with_phrases=False)

        async def finish(connection: Connection, rows: list[list[Any]]) -> LegAnswer:
            answer = await search.finish(connection, rows)
            return replace(answer, by_words=by_words) if search.wants_phrases else answer

        return Leg("keyword", search.statements, finish, beside=search.beside())

    def excerpt(self, query: str | None) -> sql.Composed:
        """Nothing: excerpts are made of the loaded texts."""
        del query
        return sql.SQL("NULL::text").format()

    def excerpts(self, query: str | None, texts: Sequence[str], languages: Sequence[str | None]) -> list[str]:
        """A short part of each text, matched words between ``**``.

        Args:
            query: As it was asked; None marks nothing.
            texts: n texts.
            languages: The language of each; None for the collection's.
        """

        def of_language(analyzer: _core.Analyzer, own: list[str]) -> list[str]:
            terms = [] if query is None else [term for _, term in analyzer.query(query, MAX_TERMS).wanted]
            return analyzer.excerpts(own, terms)

        return self._by_language(of_language, texts, languages)

    def match_lines(self, query: str, texts: Sequence[str], languages: Sequence[str | None]) -> list[int | None]:
        """The line of each text, counted from 0, on which the first word of the query stands, or None."""
        return self._by_language(lambda analyzer, own: match_lines(analyzer, query, own), texts, languages)

    def _by_language(
        self,
        work: Callable[[_core.Analyzer, list[str]], list[T]],
        texts: Sequence[str],
        languages: Sequence[str | None],
    ) -> list[T]:
        """What `work` makes of the texts of each language, in their order."""
        made: dict[int, T] = {}
        for language in set(languages):
            places = [place for place, own in enumerate(languages) if own == language]
            made |= zip(places, work(self.analyzer(language), [texts[place] for place in places]), strict=True)
        return [made[place] for place in range(len(texts))]

    # --- for the searches of this engine ----------------------------------------------------------------------------

    @property
    def options(self) -> Bm25Options:
        """The constants in use."""
        return self._options

    @property
    def cache(self) -> _core.PostingCache:
        """What is in memory of the index."""
        return self._cache

    @property
    def languages(self) -> set[str]:
        """Languages of the chunks, as far as they were seen."""
        return self._languages

    @property
    def is_steady(self) -> bool:
        """Whether the last search saw the index as the one before it did: then the next one probably will, too."""
        return self._is_steady

    def saw(self, state: IndexState) -> None:
        """Takes note of the index as a search saw it."""
        self._is_steady, self._seen = state == self._seen, state


class _Search:
    """One query: its statements, and what is made of their rows."""

    def __init__(
        self, engine: Bm25Engine, names: Names, query: str, limit: int, condition: Filter, *, with_phrases: bool
    ) -> None:
        self._engine = engine
        self._names = names
        self._limit = limit
        self._condition = condition
        self._query = query
        self._with_phrases = with_phrases
        self._texts_left = MAX_PHRASE_TEXTS
        # Whether every chunk that may be found was: then no other one holds the phrases.
        self._found_all = False
        self._analysed: dict[str, _core.Query] = {}
        self._analyse(engine.languages)
        # What the other leg wants to know of the chunks.
        self._told: Beside | None = None
        # When the index is taken to be what it was: that, the rows that are missing, and what was found in it.
        self._expected: IndexState | None = None
        self._missing: list[MissingRow] = []
        self._snapshot: _core.PostingSnapshot | None = None
        self._best = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))

    def _analyse(self, languages: set[str]) -> None:
        """Plans the query in each of these languages."""
        for language in sorted(languages):
            self._analysed[language] = self._terms(self._engine.analyzer(language))
        analysed = self._analysed.items()
        self._plan = self._engine.cache.plan(
            [(language, query.wanted, self._phrases_of(query), query.excluded) for language, query in analysed]
        )

    def _phrases_of(self, query: _core.Query) -> list[list[str]]:
        """The phrases that every chunk must hold."""
        return query.phrases if self._with_phrases else []

    @property
    def wants_phrases(self) -> bool:
        """Whether every chunk that is found holds a phrase."""
        return any(self._phrases_of(query) for query in self._analysed.values())

    def _terms(self, analyzer: _core.Analyzer) -> _core.Query:
        """The terms of the query in one language.

        Raises:
            ValidationError: Too many words in quotes or behind a dash. Were some left out, others would be found.
        """
        query = analyzer.query(self._query, MAX_TERMS)
        if query.conditions > MAX_TERMS:
            limit = f"{MAX_TERMS} words in quotes or behind a dash"
            raise ValidationError([FieldError(-1, None, "query", "too_long", limit, f"{query.conditions} words")])
        return query

    @property
    def _has_phrases(self) -> bool:
        """Whether a candidate's text has to be read: a phrase is asked for, or one is excluded."""
        return self.wants_phrases or any(
            len(group) > 1 for query in self._analysed.values() for group in query.excluded
        )

    def beside(self) -> Beside | None:
        """The id of a chunk; nothing where its text would have to be looked at, too."""
        return None if self._has_phrases else Beside(sql.SQL("c.keyword_id"))

    def statements(self, beside: Beside | None) -> Sequence[Statement]:
        """What the index holds for this query, and the ids that a narrow filter keeps.

        Or, when the index is probably what it was: whether it is, and what is still missing: rows of the index, or else
        the keys of the best chunks.
        """
        self._told, self._expected, self._snapshot = beside, None, None
        if self._condition.is_empty and self._engine.is_steady:
            self._expected = expected_state(self._plan)
            state = state_statement(self._names)
            self._missing = self._plan.missing
            if self._missing:
                return (state, rows_statement(self._names, self._missing))
            self._snapshot = self._engine.cache.complete(self._plan, ())
            self._best = self._search(self._snapshot, self._depth(self._limit))
            return (state, self._keys_of(self._best[0], self._condition))
        statements = [index_statement(self._names, self._plan)]
        if not self._condition.is_empty:
            text = sql.SQL("SELECT c.keyword_id FROM {} AS c WHERE {} LIMIT {}").format(
                self._names.chunk, self._condition.expression, sql.Literal(NARROW_FILTER_ROWS + 1)
            )
            statements.append(Statement(text, self._condition.parameters))
        return statements

    async def finish(self, connection: Connection, rows: list[list[Any]]) -> LegAnswer:
        """Scores, and finds the keys of the best chunks."""
        if self._expected is not None:
            state, found = rows
            if [(self._engine.analyzer_version, *self._expected)] == state:
                self._engine.saw(self._expected)
                if self._snapshot is not None:
                    return await self._answer(connection, self._snapshot, None, found)
                snapshot = self._engine.cache.complete(self._plan, given_rows(self._missing, found))
                return await self._answer(connection, snapshot, None, None)
            rows = [await fetch(connection, index_statement(self._names, self._plan))]
        read, *kept = rows
        snapshot = self._snapshot_of(IndexRows(read))
        if snapshot.missing_languages:
            # Chunks in a language that was not seen here before: once more, with the query analysed in it, too.
            self._engine.languages.update(snapshot.missing_languages)
            self._analyse(self._engine.languages)
            read = await fetch(connection, index_statement(self._names, self._plan))
            snapshot = self._snapshot_of(IndexRows(read))
        allowed = None
        if kept and len(kept[0]) <= NARROW_FILTER_ROWS:
            allowed = np.array([row[0] for row in kept[0]], dtype=np.int64)
        return await self._answer(connection, snapshot, allowed, None)

    def _snapshot_of(self, rows: IndexRows) -> _core.PostingSnapshot:
        """The snapshot of what was read.

        Raises:
            AnalyzerVersionError: The index was made by another version of the analyzer.
            DamagedSegmentError: A row is not what was written.
        """
        if rows.analyzer_version != self._engine.analyzer_version:
            raise AnalyzerVersionError(
                f"the keyword index of collection {self._names.collection!r} was made by version "
                f"{rows.analyzer_version} of the analyzer, this is version {self._engine.analyzer_version}; rebuild "
                f"it with: semlex reindex --lexical --collection {self._names.collection}"
            )
        self._engine.saw(rows.state)
        return self._engine.cache.snapshot(self._plan, rows.segments, rows.tombstones, rows.postings)

    async def _answer(
        self,
        connection: Connection,
        snapshot: _core.PostingSnapshot,
        allowed: NDArray[np.int64] | None,
        keys: list[Any] | None,
    ) -> LegAnswer:
        """The best chunks.

        Args:
            connection: In the transaction of the snapshot.
            snapshot: Of everything that the query needs.
            allowed: Ids of the only chunks that may be found.
            keys: What `_keys_of` gave for the best of them, when it was asked already.
        """
        found: list[tuple[float, Key, Any]] = []
        depth, looked_at = self._depth(self._limit), 0
        warnings: list[str] = []
        while True:
            ids, scores = self._best if keys is not None else self._search(snapshot, depth, allowed)
            if keys is None:
                statement = self._keys_of(ids[looked_at:], self._condition if allowed is None else Filter())
                keys = await fetch(connection, statement)
            score_of = dict(zip(ids.tolist(), scores.tolist(), strict=True))
            held = self._hold_phrases([row[4:] for row in keys])
            found += [(score_of[row[2]], (row[0], row[1]), row[3]) for row in compress(keys, held)]
            keys, looked_at = None, len(ids)
            if len(found) >= self._limit or looked_at < depth:
                self._found_all = looked_at < depth and len(found) <= self._limit
                break
            if self._has_phrases and looked_at >= MAX_PHRASE_TEXTS:
                warnings.append(f"the phrase was looked for in the best {looked_at} texts with its words only")
                break
            # Some were left out by the filter, by a phrase, or were deleted behind our back.
            depth = self._depth(depth * DEEPER)
        self._texts_left -= looked_at
        found.sort(key=lambda entry: (-entry[0], *key_order(entry[1])))
        del found[self._limit :]
        return LegAnswer(
            [key for _, key, _ in found],
            np.array([score for score, _, _ in found], dtype=np.float64),
            besides=[told for _, _, told in found] if self._told else None,
            score=None if self._has_phrases else partial(self._scores_by_id, snapshot),
            scores_of=partial(self._scores_of, snapshot),
            filters=self.wants_phrases or any(query.excluded for query in self._analysed.values()),
            coverage=snapshot.coverage,
            warnings=(*warnings, *self._warnings(snapshot)),
        )

    def _depth(self, wanted: int) -> int:
        """How many chunks to find, when so many are wanted; phrases are looked for in a bounded number of texts."""
        return min(wanted, MAX_PHRASE_TEXTS) if self._has_phrases else wanted

    def _search(
        self, snapshot: _core.PostingSnapshot, depth: int, allowed: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and scores of the best chunks."""
        options = self._engine.options
        ids, scores, _ = snapshot.search(depth, k1=options.k1, b=options.b, allowed=allowed)
        # More may come, whose score equals the last.
        most = MAX_PHRASE_TEXTS if self._has_phrases else len(ids)
        return ids[:most], scores[:most]

    def _warnings(self, snapshot: _core.PostingSnapshot) -> tuple[str, ...]:
        queries = self._analysed.values()
        if not any(query.wanted or query.excluded for query in queries):
            return ("the query has no word that the keyword index looks for",)
        told = terms_cut(max(query.total for query in queries))
        if any(query.wanted for query in queries) and snapshot.chunks and not snapshot.postings:
            return (*told, "no word of the query occurs in the collection")
        return told

    def _keys_of(self, ids: NDArray[np.int64], condition: Filter) -> Statement:
        """Of those of the chunks that exist and pass the filter: key, id, what the other leg wants to know, texts."""
        told = self._told or Beside(sql.SQL("NULL"))
        text = sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.keyword_id, {told}{texts} FROM {chunk} AS c "
            "WHERE c.keyword_id = ANY(%(ids)s::bigint[]) AND {condition}"
        ).format(told=told.expression, texts=self._texts(), chunk=self._names.chunk, condition=condition.expression)
        # As text: that costs the driver less than a list of numbers.
        array = "{" + ",".join(map(str, ids.tolist())) + "}"
        return Statement(text, {"ids": array, **condition.parameters, **told.parameters})

    def _texts(self) -> sql.SQL:
        """The columns that phrases are looked for in, when there are any."""
        return sql.SQL(", c.language, c.context, c.chunk_text" if self._has_phrases else "")

    def _hold_phrases(self, rows: Sequence[Sequence[Any]]) -> list[bool]:
        """For each row of the columns of `_texts`, whether it holds every phrase, and none that is excluded."""
        held = [True] * len(rows)
        if not self._has_phrases:
            return held
        analyzers = [self._engine.analyzer(language) for language, _, _ in rows]
        for analyzer in set(analyzers):
            # A chunk that was written behind our back may have a language that no segment has.
            query = self._analysed.get(analyzer.language) or self._terms(analyzer)
            phrases = self._phrases_of(query)
            places = [place for place, own in enumerate(analyzers) if own is analyzer]
            texts = [f"{context}\n{text}" for _, context, text in (rows[place] for place in places)]
            excluded = [phrase for phrase in query.excluded if len(phrase) > 1]
            for place, found in zip(places, analyzer.matches(texts, phrases, excluded).tolist(), strict=True):
                held[place] = found
        return held

    def _scores_of(self, snapshot: _core.PostingSnapshot, keys: Sequence[Key]) -> Question:
        """Exact scores of other chunks; NaN for one that the query itself leaves out, or that is gone."""
        if self.wants_phrases and self._found_all:
            return Question((), lambda _: np.full(len(keys), np.nan))
        text = sql.SQL(
            "SELECT c.keyword_id{texts} FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
            "WITH ORDINALITY AS k(document_id, chunk_id, number) "
            "LEFT JOIN {chunk} AS c ON k.number <= {most} AND c.document_id = k.document_id "
            "AND c.chunk_id = k.chunk_id ORDER BY k.number"
        ).format(
            texts=self._texts(),
            chunk=self._names.chunk,
            most=sql.Literal(max(self._texts_left, 0) if self._has_phrases else len(keys)),
        )

        def scores(rows: list[list[Any]]) -> NDArray[np.float64]:
            ids = [row[0] for row in rows[0]]
            there = [place for place, keyword_id in enumerate(ids) if keyword_id is not None]
            for place, held in zip(there, self._hold_phrases([rows[0][place][1:] for place in there]), strict=True):
                if not held:
                    ids[place] = None
            return self._scores_by_id(snapshot, ids)

        return Question((Statement(text, key_arrays(keys)),), scores)

    def _scores_by_id(self, snapshot: _core.PostingSnapshot, ids: list[int | None]) -> NDArray[np.float64]:
        options = self._engine.options
        also = np.array([NO_CHUNK if keyword_id is None else keyword_id for keyword_id in ids], dtype=np.int64)
        return snapshot.search(0, k1=options.k1, b=options.b, also=also)[2]
