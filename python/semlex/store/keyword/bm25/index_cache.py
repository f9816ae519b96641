"""What an open collection keeps in memory of its keyword index: posting lists, languages, the last known state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex import _core
from semlex.store.keyword.bm25.options import DEFAULT_BM25
from semlex.store.keyword.bm25.write import analyzer_of

if TYPE_CHECKING:
    from semlex.store.keyword.bm25.options import Bm25Options
    from semlex.store.keyword.bm25.read import IndexState


class IndexCache:
    """Shared by all searches of an open collection.

    Args:
        language: The collection's language: a name or code of `semlex._core.ANALYZER_LANGUAGES`.
        stop_words: Whether words that every text has are left out.

    Attributes:
        language: Name of the collection's language.
        languages: Languages that chunks of this collection were seen to have; asked for from the first statement on.
        options: The constants in use.
        postings: Posting lists, segments and tombstones.

    Raises:
        ConfigurationError: The language is not known.
    """

    def __init__(self, language: str, *, stop_words: bool) -> None:
        self._stop_words = stop_words
        self.language = analyzer_of(language, stop_words).language
        self.languages = {self.language}
        self.options = DEFAULT_BM25
        self.postings = _core.PostingCache(self.options.cache_bytes)
        self._state: IndexState | None = None
        self._is_steady = False

    def configure(self, options: Bm25Options) -> None:
        """Takes other constants and another size; what is in memory is forgotten."""
        self.options = options
        self.postings = _core.PostingCache(options.cache_bytes)

    def analyzer(self, language: str | None) -> _core.Analyzer:
        """The analyzer of a language; of the collection's for None.

        Raises:
            ConfigurationError: The language is not known.
        """
        return analyzer_of(self.language if language is None else language, self._stop_words)

    @property
    def is_steady(self) -> bool:
        """Whether the last search saw the index as the one before it did: then the next one probably will, too."""
        return self._is_steady

    def saw(self, state: IndexState) -> None:
        """Takes note of the index as a search saw it."""
        self._is_steady, self._state = state == self._state, state
