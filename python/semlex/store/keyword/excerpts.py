"""Make excerpts of found texts, each with the analyzer of its language."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from semlex import _core
from semlex.store.keyword.base import MAX_TERMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Excerpts:
    """The excerpts of the texts of one search, made together when the first of them is asked for."""

    def __init__(
        self,
        query: str | None,
        texts: Sequence[str],
        languages: Sequence[str | None],
        analyzer_for: Callable[[str | None], _core.Analyzer | None],
    ) -> None:
        self._texts = texts
        self._make = partial(excerpts_of, query, texts, languages, analyzer_for)

    def text(self, row: int) -> str:
        """Return a text."""
        return self._texts[row]

    def of(self, row: int) -> tuple[str, int | None]:
        """Return the excerpt of a text, and the character of the text with its first matched word, or None."""
        return self._made[row]

    @cached_property
    def _made(self) -> list[tuple[str, int | None]]:
        return self._make()


def excerpts_of(
    query: str | None,
    texts: Sequence[str],
    languages: Sequence[str | None],
    analyzer_for: Callable[[str | None], _core.Analyzer | None],
) -> list[tuple[str, int | None]]:
    """Return the excerpt of each text, and the character of the text with its first matched word, or None."""
    found: list[tuple[str, int | None]] = [("", None)] * len(texts)
    for language in set(languages):
        rows = [row for row, own in enumerate(languages) if own == language]
        analyzer = None if query is None else analyzer_for(language)
        terms = [] if analyzer is None else [term for _, term in analyzer.query(query or "", MAX_TERMS).wanted]
        for row, own in zip(rows, _core.excerpts([texts[row] for row in rows], analyzer, terms), strict=True):
            found[row] = own
    return found
