"""Code that keyword engines share: analyzers, words that a query excludes, scores of single words, and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError, DamagedSegmentError
from semlex.store.query.leg import NUMBERED_KEYS, Key, Statement, key_arrays
from semlex.types.queries import MAX_QUERY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from semlex.store.schema.names import Names


@dataclass(frozen=True, slots=True)
class Analyzers:
    """Gives the analyzer for each language of a collection's texts."""

    language: str  # the collection's
    stop_words: bool  # whether common words are left out

    @classmethod
    def known(cls, language: str, *, stop_words: bool = True) -> Self:
        """Return analyzers for a text-search language of Postgres; for ``simple`` if semlex does not know it."""
        return cls(language if language in _core.ANALYZER_LANGUAGES else "simple", stop_words)

    def of(self, language: str | None) -> _core.Analyzer:
        """Return the analyzer of a language; with None, that of the collection's language."""
        return analyzer_of(self.language if language is None else language, self.stop_words)


def refuse_unknown_languages(languages: Iterable[str]) -> None:
    """Refuse an index with texts in a language that this version of semlex does not know."""
    for language in languages:
        try:
            _core.language_named(language)
        except ValueError:
            raise DamagedSegmentError(
                None, f"it has texts in the language {language[:80]!a}, which this semlex does not know"
            ) from None


@lru_cache(maxsize=128)
def analyzer_of(language: str, stop_words: bool) -> _core.Analyzer:
    """Return the analyzer of a language."""
    try:
        return _core.Analyzer(language, stop_words)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


LINE_END = re.compile(r"\r\n?|\n")
# Words beyond these are not searched: a pasted page must not occupy the server.
MAX_TERMS = 64
# A word with accents has a second term that keeps them and begins so. In a query its slot is that of the folded term
# with this bit.
TYPED, TYPED_BIT = "=", 1 << 31


def terms_cut(terms: int) -> tuple[str, ...]:
    """Return a warning if a query has more terms than are searched, else nothing."""
    return (f"the query has {terms} terms; the first {MAX_TERMS} were searched",) if terms > MAX_TERMS else ()


def folded(terms: Iterable[str]) -> list[str]:
    """Return the terms without the second term that a word with accents has, so that each word is counted once."""
    return [term for term in terms if not term.startswith(TYPED)]


@dataclass(frozen=True, slots=True)
class TermScores:
    """A word of a query, and what the word adds to the scores of each of n requested chunks."""

    term: str  # as the engine stores it
    weight: float  # inverse document frequency
    chunks: int  # how many chunks contain it
    scores: NDArray[np.float64]  # float64, shape (n,); 0 if a chunk does not contain it


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A chunk with a changed text, which is to be scored as if that text were stored."""

    key: Key
    language: str | None  # None: the collection's
    before: str  # what is analysed of it: context and text
    after: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild of the keyword index."""

    generation: int  # number of the new one
    chunks: int  # read
    segments: int  # written


@dataclass(frozen=True, slots=True)
class Reserved:
    """Index generations and ids for a write; valid while the collection's row in the registry stays unchanged."""

    generations: tuple[int, ...]  # those to be fed
    blocks: tuple[int, ...]  # first ids of the reserved blocks


# Finds exclusions in any language, because it has no stop words.
PLAIN = _core.Analyzer("simple", stop_words=False)
# More terms than the longest query has: nothing is cut.
MAX_CONDITIONS = 4 * MAX_QUERY_BYTES
# Language, context and text of a chunk; nothing of one that is gone.
Row = tuple[str | None, str | None, str | None]


def texts_of(names: Names, keys: Sequence[Key]) -> Statement:
    """Return the statement that reads the `Row` of each chunk, in the order of `keys`."""
    text = sql.SQL(
        "SELECT c.language, c.context, c.chunk_text FROM {} LEFT JOIN {} AS c USING (document_id, chunk_id) "
        "ORDER BY k.number"
    )
    return Statement(text.format(NUMBERED_KEYS, names.chunk), key_arrays(keys))


# What makes a query a sentence or a command line, in which dashes and quotes are words, not operators.
_PROSE = re.compile(r"[?\uff1f\u061f\u2047¿“”„«»]|(?<!\S)(?:--\w|-[^\W\d_](?!\S))")
_QUOTES = re.compile(r'["“”„«»]')
_DASHES = re.compile(r"(?<!\S)-(?=\w)")


def without_operators(query: str) -> str | None:
    """If the query is a sentence or command line with quotes or dashes, return it without them, else None."""
    if not _PROSE.search(query):
        return None
    read = PLAIN.query(query, MAX_CONDITIONS)
    return _DASHES.sub(" ", _QUOTES.sub(" ", query)) if read.phrases or read.excluded else None


def excluding(query: str | None, exclude: Iterable[str]) -> str:
    """Return the query with these words and phrases added as exclusions."""
    return " ".join([query or "", *(f'-"{_QUOTES.sub(" ", one)}"' for one in exclude)]).strip()


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The words and phrases that a query excludes, as the keyword index analyses them."""

    analyzers: Analyzers
    text: str  # the query

    @classmethod
    def of(cls, analyzers: Analyzers, text: str) -> Self | None:
        """Return the exclusions of a query; None if the query excludes nothing."""
        return cls(analyzers, text) if PLAIN.query(text, MAX_CONDITIONS).excluded else None

    def held(self, rows: Sequence[Row]) -> NDArray[np.bool_]:
        """Return for each chunk whether it contains an excluded word or phrase; False for a deleted chunk."""
        held = np.zeros(len(rows), dtype=bool)
        analyzers = [self.analyzers.of(row[0]) for row in rows]
        for analyzer in set(analyzers):
            numbers = [n for n, own in enumerate(analyzers) if own is analyzer and rows[n][2] is not None]
            held[numbers] = ~analyzer.matches([_whole(rows[n]) for n in numbers], [], self._groups(analyzer))
        return held

    def broken(self, row: Row) -> list[str]:
        """Return a sentence for each excluded word or phrase that the chunk contains."""
        analyzer = self.analyzers.of(row[0])
        return [
            f'it contains "{" ".join(group)}", which the query excludes'
            for group in self._groups(analyzer)
            if row[2] is not None and not analyzer.matches([_whole(row)], [], [group])[0]
        ]

    def _groups(self, analyzer: _core.Analyzer) -> list[list[str]]:
        return analyzer.query(self.text, MAX_CONDITIONS).excluded


def _whole(row: Sequence[Any]) -> str:
    return f"{row[1]}\n{row[2]}"
