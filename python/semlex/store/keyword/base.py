"""What a keyword engine must offer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import sql

    from semlex import _core
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import LegPlan
    from semlex.store.schema.names import Names

LINE_END = re.compile(r"\r\n?|\n")
# Words beyond these are not searched: a pasted page must not occupy the server.
MAX_TERMS = 64


def terms_cut(terms: int) -> tuple[str, ...]:
    """The warning of a query that has more terms than are searched."""
    return (f"the query has {terms} terms; the first {MAX_TERMS} were searched",) if terms > MAX_TERMS else ()


def match_lines(analyzer: _core.Analyzer, query: str, texts: Sequence[str]) -> list[int | None]:
    """The line of each text, counted from 0, on which the first word of a query stands; None where none does."""
    terms = [term for _, term in analyzer.query(query, MAX_TERMS).wanted]
    offsets = analyzer.first_matches(texts, terms)
    return [
        None if offset is None else len(LINE_END.findall(text, 0, offset))
        for text, offset in zip(texts, offsets, strict=True)
    ]


class LexicalEngine(Protocol):
    """Finds chunks by their words.

    Attributes:
        name: As it is chosen.
        score_name: What its score is.
        analyzer_version: Version of our analyzer that its index depends on, or None.
    """

    name: str
    score_name: str
    analyzer_version: int | None

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Statements that add the engine to a new, empty collection."""
        ...

    def indexes(self, names: Names) -> Sequence[tuple[str, sql.Composed]]:
        """Suffix and statement of each index that is worth making once a collection is large."""
        ...

    def leg(
        self, names: Names, query: str, limit: int, condition: Filter, *, with_phrases: bool = True
    ) -> LegPlan | None:
        """The leg of a query; None when this engine answers none.

        Args:
            names: The collection's tables.
            query: As it was asked.
            limit: Rows wanted.
            condition: Filter over the chunk's row.
            with_phrases: Whether chunks without the query's phrases are left out, by an engine that knows phrases.
        """
        ...

    def excerpt(self, query: str | None) -> sql.Composed:
        """SQL expression over a chunk (alias ``c``): a short part of its text, matched words between ``**``."""
        ...

    def excerpts(self, query: str | None, texts: Sequence[str], languages: Sequence[str | None]) -> list[str] | None:
        """Excerpts of loaded texts by an engine that makes them itself; None when `excerpt` makes them."""
        ...

    def match_lines(self, query: str, texts: Sequence[str], languages: Sequence[str | None]) -> list[int | None]:
        """The line of each loaded text, counted from 0, on which the first word of a query stands, or None."""
        ...
