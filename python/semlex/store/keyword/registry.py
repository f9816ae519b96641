"""Choose a keyword engine by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.store.keyword.base import Analyzers
from semlex.store.keyword.bm25.engine import Bm25Engine
from semlex.store.keyword.engine import KeywordEngine
from semlex.store.keyword.pg_search import PgSearchEngine
from semlex.store.keyword.pg_textsearch import PgTextsearchEngine
from semlex.store.keyword.tsvector import RANK_FUNCTIONS, TsvectorEngine

if TYPE_CHECKING:
    from semlex.store.keyword.extensions import Extension


def keyword_engine(
    name: str, language: str, *, stop_words: bool = True, extension: Extension | None = None
) -> KeywordEngine:
    """Return the engine with this name; `extension` is the state of the extension that the engine may need."""
    if name == Bm25Engine.name:
        return Bm25Engine(language, stop_words=stop_words)
    if name == KeywordEngine.name:
        return KeywordEngine(Analyzers.known(language, stop_words=stop_words))
    if name in RANK_FUNCTIONS:
        return TsvectorEngine(language, name)
    if name == PgTextsearchEngine.name:
        return PgTextsearchEngine(language, extension)
    if name == PgSearchEngine.name:
        return PgSearchEngine(language, extension, stop_words=stop_words)
    known = ", ".join(
        [Bm25Engine.name, PgTextsearchEngine.name, PgSearchEngine.name, *RANK_FUNCTIONS, KeywordEngine.name]
    )
    raise ConfigurationError(f"keyword must be one of {known}; got {name!r}")
