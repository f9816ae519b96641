"""The interface of keyword engines: a base class that finds nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.store.keyword.base import Analyzers, ChangedText, Exclusions, TermScores, excluding

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from psycopg import sql

    from semlex import _core
    from semlex.store.keyword.bm25.index import Bm25Index
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import BestRows, Key, LegPlan
    from semlex.store.schema.names import CollectionIdentity, Names, TableIndex


@dataclass(frozen=True, slots=True)
class LegRequest:
    """A query to a keyword engine."""

    collection: CollectionIdentity
    query: str
    limit: int  # maximum number of chunks
    condition: Filter
    with_phrases: bool = True  # whether every chunk must contain the query's phrases, if the engine reads operators
    rows: BestRows | None = None  # columns of hits to return with the keys, if the leg answers alone and the engine can


class KeywordEngine:
    """Finds chunks by their words. This base class finds nothing; engines override the methods that they support."""

    name: str = "none"
    index: Bm25Index | None = None
    # Whether a query may hold exclusions and phrases.
    reads_operators: bool = True
    _analyzers: Analyzers

    def __init__(self, analyzers: Analyzers) -> None:
        self._analyzers = analyzers

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Return the statements that make the engine's columns, tables and indexes in a new, empty collection."""
        del names
        return ()

    def indexes(self, names: Names) -> Sequence[TableIndex]:
        """Return the indexes that are worth making once a collection is large."""
        del names
        return ()

    def leg(self, request: LegRequest) -> LegPlan | None:
        """Plan the keyword search for a query; return None if this engine does not search."""
        del request
        return None

    def analyzer_for(self, language: str | None) -> _core.Analyzer | None:
        """Return the analyzer that finds a query's words in a text; None if this engine does not search."""
        del language  # other engines than semlex's own read every chunk in the collection's
        return None if self.name == KeywordEngine.name else self._analyzers.of(None)

    async def term_scores(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key]
    ) -> list[TermScores] | None:
        """Return what each word of a query adds to the scores of chunks; None if the engine cannot compute that."""
        del snapshot, names, query, keys
        return None

    async def changed_scores(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], changed: Sequence[ChangedText]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the scores of `keys`, then of `changed`, as if the changed texts were stored."""
        # None if the engine cannot compute them.
        del snapshot, names, query, keys, changed
        return None

    def query_of(self, query: str | None, exclude: Sequence[str]) -> str | None:
        """Return the query for the engine; `exclude` is written into it if the engine reads operators."""
        return excluding(query, exclude) if exclude and self.reads_operators else query

    def exclusions(self, query: str | None, exclude: Sequence[str] = ()) -> Exclusions | None:
        """Return what a search excludes, to be checked in texts; None if it excludes nothing."""
        text = excluding(query if self.reads_operators else None, exclude)
        return Exclusions.of(self._analyzers, text) if text else None

    def without_words(self, exclude: Sequence[str]) -> list[str]:
        """Return those of `exclude` without a word, or with only stop words of the collection's language."""
        own = self._analyzers.of(None)
        return [one for one in exclude if not own.terms(one)]

    async def broken_conditions(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], *, with_phrases: bool = True
    ) -> list[list[str]]:
        """Describe, for each chunk, the required phrases and the exclusions of the query that it violates."""
        del snapshot, names, query, with_phrases
        return [[] for _ in keys]
