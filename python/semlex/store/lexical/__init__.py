"""Keyword engines behind one protocol; each score is called what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.store.lexical.none import NoEngine
from semlex.store.lexical.tsvector import RANK_FUNCTIONS, TsvectorEngine

if TYPE_CHECKING:
    from semlex.store.lexical.base import LexicalEngine

__all__ = ["lexical_engine"]


def lexical_engine(name: str, language: str, *, stop_words: bool = True) -> LexicalEngine:
    """The engine of that name.

    Raises:
        ConfigurationError: There is none, or the language is not a plain name.
    """
    del stop_words
    if name == "none":
        return NoEngine()
    if name in RANK_FUNCTIONS:
        return TsvectorEngine(language, name)
    raise ConfigurationError(f"lexical must be one of {', '.join([*RANK_FUNCTIONS, 'none'])}; got {name!r}")
