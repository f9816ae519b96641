"""A query in the languages of the keyword index: its terms, its phrases, and what the user should know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.errors import FieldError, ValidationError
from semlex.store.keyword.base import MAX_TERMS, terms_cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex import _core
    from semlex.store.keyword.bm25.index import IndexCache

# Whether a phrase stands in a text is seen on the text; so many texts are read at most for one query.
MAX_PHRASE_TEXTS = 2_000


@dataclass(frozen=True, slots=True)
class AnalysedQuery:
    """A query in each language of the index.

    Attributes:
        index: Has the analyzers, the lists in memory and the constants.
        text: The query as it was asked.
        with_phrases: Whether its phrases count; otherwise their words do.
        by_language: Its terms.
        plan: Which lists they need.
    """

    index: IndexCache
    text: str
    with_phrases: bool
    by_language: dict[str, _core.Query]
    plan: _core.PostingPlan

    @classmethod
    def of(cls, index: IndexCache, text: str, *, with_phrases: bool) -> AnalysedQuery:
        """Analyses a query in the languages that were seen in the index."""
        by_language = {language: _terms(index.analyzers.of(language), text) for language in sorted(index.languages)}
        plan = index.postings.plan(
            [
                (language, query.wanted, query.phrases if with_phrases else [], query.excluded)
                for language, query in by_language.items()
            ]
        )
        return cls(index, text, with_phrases, by_language, plan)

    def phrases_of(self, query: _core.Query) -> list[list[str]]:
        """The phrases that every chunk must hold."""
        return query.phrases if self.with_phrases else []

    @property
    def wants_phrases(self) -> bool:
        """Whether every chunk that is found holds a phrase."""
        return self.with_phrases and any(query.phrases for query in self.by_language.values())

    @property
    def reads_texts(self) -> bool:
        """Whether a candidate's text has to be read: a phrase is asked for, or one is excluded."""
        return self.wants_phrases or any(
            len(group) > 1 for query in self.by_language.values() for group in query.excluded
        )

    @property
    def excludes(self) -> bool:
        """Whether the query itself leaves chunks out that hold some of its words."""
        return self.wants_phrases or any(query.excluded for query in self.by_language.values())

    @property
    def text_columns(self) -> sql.SQL:
        """The columns that phrases are looked for in, when there are any."""
        return sql.SQL(", c.language, c.context, c.chunk_text" if self.reads_texts else "")

    def hold_phrases(self, rows: Sequence[Sequence[Any]]) -> list[bool]:
        """For each row of `text_columns`, whether it holds every phrase, and none that is excluded."""
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
        """How many chunks to find, when so many are wanted; phrases are looked for in a bounded number of texts."""
        return min(wanted, MAX_PHRASE_TEXTS) if self.reads_texts else wanted

    def texts_left(self, looked_at: int) -> int:
        """In how many more texts phrases may be looked for."""
        return max(MAX_PHRASE_TEXTS - looked_at, 0)

    def best(
        self, postings: _core.PostingSnapshot, depth: int, allowed: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids and scores of the best chunks."""
        options = self.index.options
        ids, scores, _ = postings.search(depth, k1=options.k1, b=options.b, allowed=allowed)
        # More may come, whose score equals the last.
        most = MAX_PHRASE_TEXTS if self.reads_texts else len(ids)
        return ids[:most], scores[:most]

    def warnings(self, postings: _core.PostingSnapshot) -> tuple[str, ...]:
        """What the user should know of the words."""
        queries = self.by_language.values()
        if not any(query.wanted or query.excluded for query in queries):
            return ("the query has no word that the keyword index looks for",)
        warnings = terms_cut(max(query.total for query in queries))
        if any(query.wanted for query in queries) and postings.chunks and not postings.postings:
            return (*warnings, "no word of the query occurs in the collection")
        return warnings


def _terms(analyzer: _core.Analyzer, text: str) -> _core.Query:
    """The terms of a query in one language."""
    query = analyzer.query(text, MAX_TERMS)
    if query.conditions > MAX_TERMS:
        limit = f"{MAX_TERMS} words in quotes or behind a dash"
        raise ValidationError([FieldError(-1, None, "query", "too_long", limit, f"{query.conditions} words")])
    return query
