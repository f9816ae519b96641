"""The interface of keyword engines and of the index that semlex maintains; analyzers and exclusions of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError, DamagedSegmentError
from semlex.store.query.leg import Statement, key_arrays
from semlex.types.queries import MAX_QUERY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from numpy.typing import NDArray
    from psycopg import AsyncCursor

    from semlex.parameters import Bm25Options
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import Key, LegPlan
    from semlex.store.schema.names import CollectionIdentity, Names, TableIndex


@dataclass(frozen=True, slots=True)
class Analyzers:
    """The analyzers of a collection."""

    language: str  # the collection's
    stop_words: bool  # whether common words are left out

    def of(self, language: str | None) -> _core.Analyzer:
        """The analyzer of a language; of the collection's for None."""
        return analyzer_of(self.language if language is None else language, self.stop_words)


def refuse_unknown_languages(languages: Iterable[str]) -> None:
    """Refuse an index with texts in a language that this version does not know."""
    for language in languages:
        try:
            _core.language_named(language)
        except ValueError:
            raise DamagedSegmentError(
                None, f"it has texts in the language {language[:80]!a}, which this semlex does not know"
            ) from None


@lru_cache(maxsize=128)
def analyzer_of(language: str, stop_words: bool) -> _core.Analyzer:
    """The analyzer of a language."""
    try:
        return _core.Analyzer(language, stop_words)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


LINE_END = re.compile(r"\r\n?|\n")
# Words beyond these are not searched: a pasted page must not occupy the server.
MAX_TERMS = 64
EXCERPT_CHARACTERS = 240


def terms_cut(terms: int) -> tuple[str, ...]:
    """The warning of a query that has more terms than are searched."""
    return (f"the query has {terms} terms; the first {MAX_TERMS} were searched",) if terms > MAX_TERMS else ()


def match_lines(analyzer: _core.Analyzer, query: str, texts: Sequence[str]) -> list[int | None]:
    """The line of each text, from 0, with the first word of a query; None without any."""
    terms = [term for _, term in analyzer.query(query, MAX_TERMS).wanted]
    offsets = analyzer.first_matches(texts, terms)
    return [
        None if offset is None else len(LINE_END.findall(text, 0, offset))
        for text, offset in zip(texts, offsets, strict=True)
    ]


def plain_excerpt() -> sql.Composed:
    """SQL of the beginning of a chunk's text, cut at a word."""
    return sql.SQL("regexp_replace(left(c.chunk_text, {}), '\\s+\\S*$', '')").format(sql.Literal(EXCERPT_CHARACTERS))


@dataclass(frozen=True, slots=True)
class TermScores:
    """A word of a query, and what it adds to the scores of n chunks."""

    term: str  # as the engine stores it
    weight: float  # inverse document frequency
    chunks: int  # how many chunks contain it
    scores: NDArray[np.float64]  # float64, shape (n,); 0 if a chunk does not contain it


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A chunk as it would be with another text."""

    key: Key
    language: str | None  # None: the collection's
    before: str  # what is analysed of it: context and text
    after: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild."""

    generation: int  # number of the new one
    chunks: int  # read
    segments: int  # written


class IndexShare(Protocol):
    """A keyword index's share of one write, in its transaction."""

    def assign_ids(
        self, languages: Sequence[str | None], contexts: Sequence[str], texts: Sequence[str]
    ) -> NDArray[np.int64]:
        """Assign ids to the next rows, int64, shape (n,), and begin to analyse them, each in its language."""
        ...

    async def write(
        self, connection: Connection, stored: NDArray[np.int64] | None, gone: NDArray[np.int64] = ...
    ) -> None:
        """Write what was analysed.

        Args:
            connection: In the transaction that has written the rows.
            stored: Ids that chunks of this transaction have now; None when every row was stored with its own id.
        """
        ...

    async def write_few(self, keyword_id: int) -> Statement | None:
        """The statement that writes all that was analysed if a chunk has that id; None if it takes more than one."""
        ...


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a write relies on; valid while the collection's row in the registry stays unchanged."""

    generations: tuple[int, ...]  # those to be fed
    blocks: tuple[int, ...]  # first ids of the reserved blocks


class ReservedAnswers(Protocol):
    """Answers of the server that are on their way."""

    async def told(self) -> Reserved:
        """Read the answers."""
        ...


class KeywordIndex(Protocol):
    """An index in tables of a collection that semlex itself writes, merges and rebuilds."""

    analyzer_version: int

    @property
    def options(self) -> Bm25Options:
        """The constants in use."""
        ...

    def configure(self, options: Bm25Options) -> None:
        """Take other constants and another size of the cache."""
        ...

    def cache_figures(self) -> dict[str, int]:
        """Hits, misses and bytes of the cache."""
        ...

    def begin_write(
        self, connection: Connection, collection: CollectionIdentity, rows: int
    ) -> AbstractAsyncContextManager[IndexShare]:
        """The index's share of a write of this many rows; takes a writer's first lock."""
        ...

    async def reserve(self, connection: Connection, collection: CollectionIdentity, rows: int) -> ReservedAnswers:
        """Request what a write of this many rows relies on; after a writer's first lock."""
        ...

    def share(self, names: Names, reserved: Reserved) -> AbstractContextManager[IndexShare]:
        """The index's share of a write for which ids are reserved."""
        ...

    async def ask_sizes(self, connection: Connection, collection: CollectionIdentity) -> AsyncCursor[Any]:
        """Ask whether there is something to merge, in the view of a transaction that has just written."""
        ...

    async def wants_merge(self, answer: AsyncCursor[Any]) -> bool:
        """Whether there is something to merge, by the answer to `ask_sizes`."""
        ...

    async def merge(self, database: Database, collection: CollectionIdentity) -> None:
        """Merge what there is to merge; nothing of it fails."""
        ...

    async def end_load(self, database: Database, collection: CollectionIdentity, written: int) -> None:
        """Tidy up after a call that wrote this many chunks; never fail."""
        ...

    async def optimize(
        self, database: Database, collection: CollectionIdentity, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Merge to the fewest segments; return how many were merged."""
        ...

    async def rebuild(
        self, database: Database, collection: CollectionIdentity, progress: Callable[[int, int], None] | None = None
    ) -> Rebuilt:
        """Rebuild the index from the texts."""
        ...

    async def statistics(
        self, connection: Connection, collection: CollectionIdentity, *, counted: bool
    ) -> dict[str, Any]:
        """Size and state of the index."""
        ...


class KeywordEngine:
    """Finds chunks by their words. This one finds nothing; engines override what they support."""

    name: str = "none"
    score_name: str = "none"
    index: KeywordIndex | None = None
    _analyzers: Analyzers | None = None

    def __init__(self, analyzers: Analyzers | None = None) -> None:
        self._analyzers = analyzers

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Statements that add the engine to a new, empty collection."""
        del names
        return ()

    def indexes(self, names: Names) -> Sequence[TableIndex]:
        """The indexes that are worth making once a collection is large."""
        del names
        return ()

    def leg(
        self, names: Names, query: str, limit: int, condition: Filter, *, with_phrases: bool = True
    ) -> LegPlan | None:
        """The leg of a query; None when this engine answers none."""
        del names, query, limit, condition, with_phrases
        return None

    def excerpt(self, query: str | None) -> sql.Composed:
        """SQL expression over a chunk (alias ``c``): a short part of its text, matched words between ``**``."""
        del query
        return plain_excerpt()

    def excerpts(self, query: str | None, texts: Sequence[str], languages: Sequence[str | None]) -> list[str] | None:
        """Excerpts of loaded texts by an engine that makes them itself; None when `excerpt` makes them."""
        del query, texts, languages
        return None

    async def term_scores(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key]
    ) -> list[TermScores] | None:
        """The words of a query with what each adds to the scores of chunks; None where the engine does not tell."""
        del snapshot, names, query, keys
        return None

    async def changed_scores(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], changed: Sequence[ChangedText]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """The scores of chunks, and of some with other texts; None where the engine does not tell."""
        del snapshot, names, query, keys, changed
        return None

    def exclusions(self, query: str) -> Exclusions | None:
        """What a query excludes, to be searched in texts; None if nothing, or for an engine without exclusions."""
        return None if self._analyzers is None else Exclusions.of(self._analyzers, query)

    async def broken_conditions(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], *, with_phrases: bool = True
    ) -> list[list[str]]:
        """Which quotes and exclusions of the query each of some chunks violates, in words."""
        del snapshot, names, query, with_phrases
        return [[] for _ in keys]

    def match_lines(self, query: str, texts: Sequence[str], languages: Sequence[str | None]) -> list[int | None]:
        """The line of each loaded text, from 0, with the first word of the query, or None."""
        del query, languages
        return [None] * len(texts)


# Finds exclusions in any language, because it has no stop words.
PLAIN = _core.Analyzer("simple", stop_words=False)
# More terms than the longest query has: nothing is cut.
MAX_CONDITIONS = 4 * MAX_QUERY_BYTES
TEXTS = sql.SQL(
    "SELECT c.language, c.context, c.chunk_text FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
    "WITH ORDINALITY AS k(document_id, chunk_id, number) "
    "LEFT JOIN {chunk} AS c USING (document_id, chunk_id) ORDER BY k.number"
)
# Language, context and text of a chunk; nothing of one that is gone.
Row = tuple[str | None, str | None, str | None]


def texts_of(names: Names, keys: Sequence[Key]) -> Statement:
    """The statement that reads the `Row` of each chunk, in their order."""
    return Statement(TEXTS.format(chunk=names.chunk), key_arrays(keys))


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The words and phrases that a query excludes, as the keyword index analyses them."""

    analyzers: Analyzers
    text: str  # the query

    @classmethod
    def of(cls, analyzers: Analyzers, text: str) -> Self | None:
        """Return what a query excludes; None if it excludes nothing."""
        return cls(analyzers, text) if PLAIN.query(text, MAX_CONDITIONS).excluded else None

    def held(self, rows: Sequence[Row]) -> NDArray[np.bool_]:
        """Whether each of n chunks contains an exclusion: bool, shape (n,)."""
        held = np.zeros(len(rows), dtype=bool)
        analyzers = [self.analyzers.of(row[0]) for row in rows]
        for analyzer in set(analyzers):
            numbers = [n for n, own in enumerate(analyzers) if own is analyzer and rows[n][2] is not None]
            held[numbers] = ~analyzer.matches([_whole(rows[n]) for n in numbers], [], self._groups(analyzer))
        return held

    def broken(self, row: Row) -> list[str]:
        """The exclusions that one chunk contains, in words."""
        analyzer = self.analyzers.of(row[0])
        return [
            f'it holds "{" ".join(group)}", which the question excludes'
            for group in self._groups(analyzer)
            if row[2] is not None and not analyzer.matches([_whole(row)], [], [group])[0]
        ]

    def _groups(self, analyzer: _core.Analyzer) -> list[list[str]]:
        return analyzer.query(self.text, MAX_CONDITIONS).excluded


def _whole(row: Sequence[Any]) -> str:
    return f"{row[1]}\n{row[2]}"
