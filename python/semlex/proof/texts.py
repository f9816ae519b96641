"""Texts for scenarios, made of few different words, so that every search finds several; and their vectors."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from semlex.embedding.base import EmbedderIdentity
from semlex.testing import HashEmbedder
from semlex.types.documents import Document

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

WORDS = ("cat", "dog", "ship", "running", "the", "key", "rotation", "vault", "banana", "yellow", "fruit", "Straße")


def draw_text(chance: random.Random, longest: int = 12) -> str:
    """Return a text of a few words."""
    return " ".join(chance.choices(WORDS, k=chance.randint(2, longest)))


def documents(texts: Mapping[str, str]) -> list[Document]:
    """Return texts (id -> text) as documents."""
    return [Document(text, id=one) for one, text in texts.items()]


DIMENSIONS = 16
STATEMENT = (
    f"sums of fixed random directions of words ({DIMENSIONS} dimensions): no embedding model, so that every stored "
    "vector can be computed again from its text"
)


class WordDirections(HashEmbedder):
    """A `HashEmbedder` whose vectors of words depend on a salt, and are cached."""

    def __init__(self, dimensions: int = DIMENSIONS, salt: str = "") -> None:
        super().__init__(dimensions)
        self._salt = salt
        self.counter_name = f"semlex.proof/words{self._salt and '-'}{self._salt}"
        self._remembered = lru_cache(maxsize=10_000)(self._computed)

    @property
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on."""
        return EmbedderIdentity(self.counter_name, "1", self.dimensions, None, "mean", normalised=True)

    def _direction(self, word: str) -> NDArray[np.float32]:
        return self._remembered(word)

    def _computed(self, word: str) -> NDArray[np.float32]:
        return super()._direction(f"{self._salt} {word}" if self._salt else word)
