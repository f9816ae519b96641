"""The keyword leg on an index of our own: true BM25, from posting lists in ordinary tables, scored in Rust.

A search reads three things of one snapshot, in one round trip: which segments and tombstones there are, and the rows of
its terms that are not in memory yet. None of them ever changes once it is written, so what is in memory needs no
invalidation. Scores are exact at every moment: the number of chunks, their average length and in how many of them a
word occurs are those of the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import AnalyzerVersionError, ConfigurationError
from semlex.store.legs import Leg, LegAnswer, Statement, key_arrays
from semlex.store.lexical.base import MAX_TERMS, terms_cut
from semlex.store.lexical.reading import IndexRows, index_statement
from semlex.store.lexical.tables import create_tables
from semlex.store.lexical.writing import analyzer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.store.connection import Connection
    from semlex.store.filters import Filter
    from semlex.store.legs import Key
    from semlex.store.names import Names

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
# A filter that keeps at most so many chunks is read as a list of their ids; of a wider one the best candidates are
# checked, and more of them until there are enough.
NARROW_FILTER_ROWS = 20_000
DEEPER = 4
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
        if not 0 <= self.k1 <= 1000:  # noqa: PLR2004 - beyond, it is the plain number of occurrences
            raise ConfigurationError(f"k1 must be 0 to 1000; got {self.k1!r}")
        if not 0 <= self.b <= 1:
            raise ConfigurationError(f"b must be 0 to 1; got {self.b!r}")
        if not 0 <= self.cache_bytes <= 2**40:
            raise ConfigurationError(f"cache_bytes must be 0 to 2**40; got {self.cache_bytes!r}")


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
        search = _Search(self, names, query, limit, condition)
        return Leg("keyword", search.statements(), search.finish)

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
        made = [""] * len(texts)
        for language in set(languages):
            analyzer = self.analyzer(language)
            terms = [] if query is None else [term for _, term in analyzer.query(query, MAX_TERMS).wanted]
            places = [place for place, own in enumerate(languages) if own == language]
            for place, excerpt in zip(places, analyzer.excerpts([texts[n] for n in places], terms), strict=True):
                made[place] = excerpt
        return made

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


class _Search:
    """One query: its statements, and what is made of their rows."""

    def __init__(self, engine: Bm25Engine, names: Names, query: str, limit: int, condition: Filter) -> None:
        self._engine = engine
        self._names = names
        self._limit = limit
        self._condition = condition
        self._query = query
        self._analysed: dict[str, _core.Query] = {}
        self._analyse(engine.languages)
        self._snapshot: _core.PostingSnapshot | None = None
        # Ids of chunks that other legs found; None where the query's words leave the chunk out, or it is gone.
        self._ids: dict[Key, int | None] = {}

    def _analyse(self, languages: set[str]) -> None:
        """Plans the query in each of these languages."""
        for language in sorted(languages):
            self._analysed[language] = self._engine.analyzer(language).query(self._query, MAX_TERMS)
        analysed = self._analysed.items()
        self._plan = self._engine.cache.plan(
            [(language, query.wanted, query.phrases, query.excluded) for language, query in analysed]
        )

    @property
    def _has_phrases(self) -> bool:
        """Whether a candidate's text has to be read: a phrase is asked for, or one is excluded."""
        return any(
            query.phrases or any(len(group) > 1 for group in query.excluded) for query in self._analysed.values()
        )

    def statements(self) -> tuple[Statement, ...]:
        """What the index holds for this query, and the ids that a narrow filter keeps."""
        statements = [index_statement(self._names, self._plan)]
        if not self._condition.is_empty:
            text = sql.SQL("SELECT c.lexical_id FROM {} AS c WHERE {} LIMIT {}").format(
                self._names.chunk, self._condition.expression, sql.Literal(NARROW_FILTER_ROWS + 1)
            )
            statements.append(Statement(text, self._condition.parameters))
        return tuple(statements)

    async def finish(self, connection: Connection, rows: list[list[Any]], before: Sequence[Key]) -> LegAnswer:
        """Scores, and finds the keys of the best chunks."""
        read, *kept = rows
        engine = self._engine
        snapshot = self._seen(IndexRows(read))
        if snapshot.missing_languages:
            # Chunks in a language that was not seen here before: once more, with the query analysed in it, too.
            engine.languages.update(snapshot.missing_languages)
            self._analyse(engine.languages)
            statement = index_statement(self._names, self._plan)
            cursor = connection.cursor(binary=True)
            await cursor.execute(statement.text, statement.parameters)
            snapshot = self._seen(IndexRows(await cursor.fetchall()))
        self._snapshot = snapshot
        allowed = None
        if kept and len(kept[0]) <= NARROW_FILTER_ROWS:
            allowed = np.array([row[0] for row in kept[0]], dtype=np.int64)
        return await self._best(connection, snapshot, allowed, before)

    def _seen(self, rows: IndexRows) -> _core.PostingSnapshot:
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
        return self._engine.cache.snapshot(self._plan, rows.segments, rows.tombstones, rows.postings)

    async def _best(
        self,
        connection: Connection,
        snapshot: _core.PostingSnapshot,
        allowed: NDArray[np.int64] | None,
        before: Sequence[Key],
    ) -> LegAnswer:
        options = self._engine.options
        found: list[tuple[float, Key]] = []
        depth, looked_at = self._limit, 0
        warnings: list[str] = []
        while True:
            ids, scores, _ = snapshot.search(depth, k1=options.k1, b=options.b, allowed=allowed)
            found += await self._resolve(connection, ids[looked_at:], scores[looked_at:], allowed is None, before)
            before = ()
            looked_at = len(ids)
            if len(found) >= self._limit or looked_at < depth:
                break
            if self._has_phrases and looked_at >= MAX_PHRASE_TEXTS:
                warnings.append(f"the phrase was looked for in the best {looked_at} texts with its words only")
                break
            # Some were left out by the filter, by a phrase, or were deleted behind our back.
            depth *= DEEPER
        found.sort(key=lambda entry: (-entry[0], entry[1][0].bytes, entry[1][1].encode()))
        del found[self._limit :]
        return LegAnswer(
            [key for _, key in found],
            np.array([score for score, _ in found], dtype=np.float64),
            scores_of=self._scores_of,
            filters=any(query.phrases or query.excluded for query in self._analysed.values()),
            warnings=(*warnings, *self._told()),
        )

    def _told(self) -> tuple[str, ...]:
        queries = self._analysed.values()
        if not any(query.wanted or query.excluded for query in queries):
            return ("the query has no word that the keyword index looks for",)
        return terms_cut(max(query.total for query in queries))

    async def _resolve(
        self,
        connection: Connection,
        ids: NDArray[np.int64],
        scores: NDArray[np.float64],
        check_filter: bool,
        before: Sequence[Key],
    ) -> list[tuple[float, Key]]:
        """Score and key of those chunks that exist, pass the filter, and hold the phrases.

        In the same go the chunks of other legs (`before`) are looked up, for `_scores_of`.
        """
        text = sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.lexical_id{texts} FROM {chunk} AS c "
            "WHERE c.lexical_id = ANY(%(ids)s::bigint[]) AND {condition}"
        ).format(
            texts=self._texts(),
            chunk=self._names.chunk,
            condition=self._condition.expression if check_filter else sql.SQL("TRUE"),
        )
        parameters: dict[str, Any] = {"ids": ids.tolist()}
        if check_filter:
            parameters |= self._condition.parameters
        async with connection.pipeline():
            cursor, others = connection.cursor(binary=True), connection.cursor(binary=True)
            await cursor.execute(text, parameters)
            if before:
                await others.execute(self._by_key(), key_arrays(before))
        rows = self._with_phrases(await cursor.fetchall())
        if before:
            self._keep(before, await others.fetchall())
        score_of = dict(zip(ids.tolist(), scores.tolist(), strict=True))
        return [(score_of[row[2]], (row[0], row[1])) for row in rows]

    def _by_key(self) -> sql.Composed:
        """The statement that looks chunks up by their keys, as `_resolve` finds them by their ids."""
        return sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.lexical_id{texts} "
            "FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) AS k(document_id, chunk_id) "
            "JOIN {chunk} AS c USING (document_id, chunk_id)"
        ).format(texts=self._texts(), chunk=self._names.chunk)

    def _keep(self, keys: Sequence[Key], rows: list[Any]) -> None:
        """Remembers which of these chunks the words do not leave out, and their ids."""
        self._ids |= dict.fromkeys(keys)
        self._ids |= {(row[0], row[1]): row[2] for row in self._with_phrases(rows)}

    def _texts(self) -> sql.SQL:
        """The columns that phrases are looked for in, when there are any."""
        return sql.SQL(", c.language, c.context, c.chunk_text" if self._has_phrases else "")

    def _with_phrases(self, rows: list[Any]) -> list[Any]:
        """Those rows of `_texts` that hold every phrase, and none that is excluded."""
        if not self._has_phrases:
            return rows
        kept = []
        for row in rows:
            language, context, text = row[3:]
            analyzer = self._engine.analyzer(language)
            # A chunk that was written behind our back may have a language that no segment has.
            query = self._analysed.get(analyzer.language) or analyzer.query(self._query, MAX_TERMS)
            both = f"{context}\n{text}"
            wanted = all(analyzer.contains_phrase([both], phrase)[0] for phrase in query.phrases)
            excluded = any(analyzer.contains_phrase([both], phrase)[0] for phrase in query.excluded if len(phrase) > 1)
            if wanted and not excluded:
                kept.append(row)
        return kept

    async def _scores_of(self, connection: Connection, keys: Sequence[Key]) -> NDArray[np.float64]:
        """Exact scores of other chunks; NaN for one that the query itself leaves out, or that is gone."""
        scores = np.full(len(keys), np.nan)
        if self._snapshot is None:
            return scores
        unknown = [key for key in keys if key not in self._ids]
        if unknown:
            cursor = connection.cursor(binary=True)
            await cursor.execute(self._by_key(), key_arrays(unknown))
            self._keep(unknown, await cursor.fetchall())
        places, ids = [], []
        for place, key in enumerate(keys):
            lexical_id = self._ids[key]
            if lexical_id is not None:
                places.append(place)
                ids.append(lexical_id)
        if ids:
            options = self._engine.options
            asked = np.array(ids, dtype=np.int64)
            _, _, scores[places] = self._snapshot.search(0, k1=options.k1, b=options.b, also=asked)
        return scores
