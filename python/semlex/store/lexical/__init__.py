"""Keyword engines behind one protocol; each score is called what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.store.lexical.bm25 import Bm25Engine
from semlex.store.lexical.none import NoEngine
from semlex.store.lexical.pg_search import PgSearchEngine
from semlex.store.lexical.pg_textsearch import PgTextsearchEngine
from semlex.store.lexical.tsvector import RANK_FUNCTIONS, TsvectorEngine

if TYPE_CHECKING:
    from semlex.store.lexical.base import LexicalEngine
    from semlex.store.lexical.extension import Extension

__all__ = ["lexical_engine"]


def lexical_engine(
    name: str, language: str, *, stop_words: bool = True, extension: Extension | None = None
) -> LexicalEngine:
    """The engine of that name; with one that stands on an extension, the extension as found in the database.

    Raises:
        ConfigurationError: There is none, or the language is not a plain name.
    """
    if name == Bm25Engine.name:
        return Bm25Engine(language, stop_words=stop_words)
    if name == "none":
        return NoEngine()
    if name in RANK_FUNCTIONS:
        return TsvectorEngine(language, name)
    if name == PgTextsearchEngine.name:
        return PgTextsearchEngine(language, extension)
    if name == PgSearchEngine.name:
        return PgSearchEngine(language, extension, stop_words=stop_words)
    known = ", ".join([Bm25Engine.name, PgTextsearchEngine.name, PgSearchEngine.name, *RANK_FUNCTIONS, "none"])
    raise ConfigurationError(f"lexical must be one of {known}; got {name!r}")
