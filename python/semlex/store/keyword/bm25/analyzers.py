"""The analyzer of a text, by its language."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from semlex import _core
from semlex.errors import ConfigurationError, DamagedSegmentError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Analyzers:
    """The analyzers of a collection.

    Attributes:
        language: The name of the collection's language.
        stop_words: Whether words that every text has are left out.
    """

    language: str
    stop_words: bool

    def of(self, language: str | None) -> _core.Analyzer:
        """The analyzer of a language; of the collection's for None."""
        return analyzer_of(self.language if language is None else language, self.stop_words)


def refuse_unknown_languages(languages: Iterable[str]) -> None:
    """Refuses an index with texts in a language that this version does not know."""
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
