"""What counts tokens: a model's tokenizer where it is on this machine, else Unicode words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from semlex import _core
from semlex.errors import MissingExtraError
from semlex.models.files import find_cached, find_model
from semlex.models.tokenizer import open_tokenizer
from semlex.parameters import UNICODE_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.models.files import ModelFolder


class TokenCounter(Protocol):
    """Whatever counts tokens: an embedder, a tokenizer, or words."""

    @property
    def counter_name(self) -> str:
        """Name of the way in which tokens are counted; equal names give equal counts."""
        ...

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Finds where the tokens of a text stand.

        Args:
            text: The text.

        Returns:
            (t, 2) start and end in characters, starts in ascending order; tokens that share a character (bytes of one
            emoji) have equal rows.
        """
        ...

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Counts the tokens of texts.

        Args:
            texts: n texts.

        Returns:
            (n,).
        """
        ...


class WordCounter:
    """Unicode words (Annex 29) in place of a model's tokens. A lone surrogate is a ``ValueError``."""

    counter_name = UNICODE_WORDS

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of every word in characters: (w, 2)."""
        return _core.word_offsets(text)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Words of n texts: (n,)."""
        return np.array([len(_core.word_offsets(text)) for text in texts], dtype=np.int64)


def find_tokenizer(model: str, given: str | None = None) -> TokenCounter:
    """Finds what counts the tokens of a model on a server; never touches the network.

    Args:
        model: The model's name on its server. A hub id may be in the local cache.
        given: Hub id or folder of the tokenizer, or None.

    Returns:
        The given tokenizer; else that of the model, if it is in the local cache; else words.

    Raises:
        ModelNotFoundError: The given tokenizer is not on this machine.
        ModelError: It cannot be read.
    """
    if given is not None:
        return open_tokenizer(find_model(given))
    folder = find_cached(model) if "/" in model else None
    return WordCounter() if folder is None else tokenizer_in(folder)


def tokenizer_in(folder: ModelFolder) -> TokenCounter:
    """The tokenizer of a model's folder, or words where it has none that can be read here.

    Args:
        folder: The model.

    Returns:
        The tokenizer.

    Raises:
        ModelError: There is one, but it is broken.
    """
    if not (folder.path / "tokenizer.json").is_file():
        return WordCounter()
    try:
        return open_tokenizer(folder)
    except MissingExtraError:  # a kind that the Rust core does not read
        return WordCounter()
