"""No keyword engine: a collection that is searched by vectors alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import LegPlan
    from semlex.store.schema.names import Names

EXCERPT_CHARACTERS = 240


def plain_excerpt() -> sql.Composed:
    """SQL of the beginning of a chunk's text, cut at a word."""
    return sql.SQL("regexp_replace(left(c.chunk_text, {}), '\\s+\\S*$', '')").format(sql.Literal(EXCERPT_CHARACTERS))


class NoEngine:
    """Answers no keyword query."""

    name = "none"
    score_name = "none"
    analyzer_version: int | None = None

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Nothing to add."""
        del names
        return ()

    def indexes(self, names: Names) -> Sequence[tuple[str, sql.Composed]]:
        """No index."""
        del names
        return ()

    def leg(
        self, names: Names, query: str, limit: int, condition: Filter, *, with_phrases: bool = True
    ) -> LegPlan | None:
        """No answer."""
        del names, query, limit, condition, with_phrases
        return None

    def excerpt(self, query: str | None) -> sql.Composed:
        """The beginning of the text; nothing is marked."""
        del query
        return plain_excerpt()

    def excerpts(self, query: str | None, texts: Sequence[str], languages: Sequence[str | None]) -> None:
        """None: the statement makes them."""
        del query, texts, languages

    def match_lines(self, query: str, texts: Sequence[str], languages: Sequence[str | None]) -> list[int | None]:
        """None: no words are looked for."""
        del query, languages
        return [None] * len(texts)
