"""The analyzer of a text, by its language."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from semlex import _core
from semlex.errors import ConfigurationError


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
        """The analyzer of a language; of the collection's for None.

        Raises:
            ConfigurationError: The language is not known.
        """
        return analyzer_of(self.language if language is None else language, self.stop_words)


@lru_cache(maxsize=128)
def analyzer_of(language: str, stop_words: bool) -> _core.Analyzer:
    """The analyzer of a language.

    Raises:
        ConfigurationError: The language is not known.
    """
    try:
        return _core.Analyzer(language, stop_words)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
