"""The keyword leg on the keyword index: true BM25, from posting lists in ordinary tables, scored in Rust.

A search reads three things of one snapshot, in one round trip: which segments and tombstones there are, and the rows of
its terms that are not in memory yet. None of them ever changes once it is written, so what is in memory needs no
invalidation. Scores are exact at every moment: the number of chunks, their average length and in how many of them a
word occurs are those of the snapshot.

Where the index probably is what it was at the last search, the rows that are missing are asked for right away; and when
none is, the search is made in memory first, and one round trip brings the keys of the chunks that were found. With them
comes whether the index is what it was; if it is not, what was read or found so is thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from psycopg import sql

from semlex.store.keyword.base import MAX_TERMS, KeywordEngine, match_lines
from semlex.store.keyword.bm25.analyzers import Analyzers, analyzer_of
from semlex.store.keyword.bm25.index import Bm25Index
from semlex.store.keyword.bm25.query import AnalysedQuery
from semlex.store.keyword.bm25.search import Bm25Leg
from semlex.store.keyword.bm25.tables import create_tables
from semlex.store.keyword.bm25.terms import broken_conditions, changed_scores, term_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex import _core
    from semlex.store.keyword.base import ChangedText, TermScores
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import Key, LegPlan
    from semlex.store.schema.names import Names

T = TypeVar("T")


class Bm25Engine(KeywordEngine):
    """True BM25."""

    name = "bm25"
    score_name = "bm25"
    index: Bm25Index

    def __init__(self, language: str, *, stop_words: bool = True) -> None:
        self._analyzers: Analyzers = Analyzers(analyzer_of(language, stop_words).language, stop_words)
        self.index = Bm25Index(self._analyzers)

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """The tables of the index."""
        return create_tables(names)

    def leg(self, names: Names, query: str, limit: int, condition: Filter, *, with_phrases: bool = True) -> LegPlan:
        """Chunks that contain any of the words (all phrases, no excluded word), best first; ties by key."""
        return Bm25Leg(names, AnalysedQuery.of(self.index.cache, query, with_phrases=with_phrases), limit, condition)

    async def term_scores(self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key]) -> list[TermScores]:
        """The words of a query with what each adds to the scores of chunks."""
        return await term_scores(snapshot, names, self.index.cache, query, keys)

    async def changed_scores(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], changed: Sequence[ChangedText]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The scores of chunks, and of some with other texts."""
        return await changed_scores(snapshot, names, self.index.cache, query, keys, changed)

    async def broken_conditions(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], *, with_phrases: bool = True
    ) -> list[list[str]]:
        """What of the query's quotes and exclusions each of some chunks breaks, in words."""
        analysed = AnalysedQuery.of(self.index.cache, query, with_phrases=with_phrases)
        return await broken_conditions(snapshot, names, analysed, keys)

    def excerpt(self, query: str | None) -> sql.Composed:
        """Nothing: excerpts are made of the loaded texts."""
        del query
        return sql.SQL("NULL::text").format()

    def excerpts(self, query: str | None, texts: Sequence[str], languages: Sequence[str | None]) -> list[str]:
        """A short part of each text, matched words between ``**``."""

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
            positions = [position for position, own in enumerate(languages) if own == language]
            made |= zip(
                positions, work(self._analyzers.of(language), [texts[position] for position in positions]), strict=True
            )
        return [made[position] for position in range(len(texts))]
