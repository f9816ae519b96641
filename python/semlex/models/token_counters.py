"""What counts tokens: a model's tokenizer where it is on this machine, else Unicode words: two tokens each, or one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from semlex import _core
from semlex.errors import MissingExtraError
from semlex.models.files import find_cached
from semlex.models.model_names import leads_to
from semlex.models.tokenizer import TOKENIZER_FILE, TextTokenizer, open_tokenizer, open_tokenizer_file
from semlex.parameters import UNICODE_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

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


# Measured on pieces of 300 words with tokenizers of OpenAI's kind: English manuals have 1.6 to 1.9 tokens a word, other
# European languages 2 to 3, source code 2.3 to 2.8, Chinese 1.2 to 1.5.
TOKENS_PER_WORD = 2


class WordCounter:
    """Unicode words (Annex 29) where there are no tokens to count. A lone surrogate is a ``ValueError``."""

    counter_name = UNICODE_WORDS

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of every word in characters: (w, 2)."""
        return _core.word_offsets(text)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Words of n texts: (n,)."""
        return np.array([len(_core.word_offsets(text)) for text in texts], dtype=np.int64)


class TokenEstimate(WordCounter):
    """Unicode words in place of a model's tokens: each counts as `TOKENS_PER_WORD`."""

    counter_name = f"{TOKENS_PER_WORD}*{UNICODE_WORDS}"

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of every word in characters, as often as it counts: (w * TOKENS_PER_WORD, 2)."""
        return np.repeat(super().token_offsets(text), TOKENS_PER_WORD, axis=0)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Words of n texts, times `TOKENS_PER_WORD`: (n,)."""
        return super().count_tokens(texts) * TOKENS_PER_WORD


def counter_of_words(name: str) -> WordCounter | None:
    """What counts in the way of this name, where that takes no model."""
    return next((counter for counter in (WordCounter(), TokenEstimate()) if counter.counter_name == name), None)


def find_tokenizer(model: str, given: str | PathLike[str] | None = None) -> TokenCounter:
    """Finds what counts the tokens of a model on a server; never touches the network."""
    if given is not None:
        return given_tokenizer(given)
    folder = find_cached(model) if "/" in model else None
    return TokenEstimate() if folder is None else tokenizer_in(folder)


def given_tokenizer(given: str | PathLike[str]) -> TextTokenizer:
    """Opens a tokenizer that the user has named."""
    path = Path(given).expanduser()
    folder = path if os.path.isdir(path) else None  # noqa: PTH112 - says False where Path would raise
    is_there = os.path.exists(path)  # noqa: PTH110 - as above
    if folder is None and not is_there and leads_to(str(given)) is None:
        cached = find_cached(str(given))
        folder = None if cached is None else cached.path
    return open_tokenizer_file(path if folder is None else folder / TOKENIZER_FILE)


def tokenizer_in(folder: ModelFolder) -> TokenCounter:
    """The tokenizer of a model's folder, or words where it has none that can be read here."""
    if not (folder.path / TOKENIZER_FILE).is_file():
        return TokenEstimate()
    try:
        return open_tokenizer(folder)
    except MissingExtraError:  # a kind that the Rust core does not read
        return TokenEstimate()
