"""An embedder for tests that needs no model; its vectors look like embeddings but carry no meaning."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from semlex.embedding.base import BaseEmbedder, EmbedderIdentity, check_vectors, normalise
from semlex.validation import check_range, check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")


class HashEmbedder(BaseEmbedder):
    """A deterministic fake embedder: texts that share words have similar vectors.

    Every lower-case word has a fixed random direction, drawn from its BLAKE2 hash; a text is the normalised sum of its
    words. The vectors are equal in every process and on every machine. It cannot replace a model: it knows no synonyms.

    Args:
        dimensions: Length of the vectors, from 1.

    Raises:
        ConfigurationError: ``dimensions`` is below 1.
    """

    counter_name = "semlex.testing/words"

    def __init__(self, dimensions: int = 64) -> None:
        check_range("dimensions", dimensions, 1)
        self._dimensions = dimensions

    @property
    def identity(self) -> EmbedderIdentity:
        """Return the identity, which says what the vectors depend on."""
        return EmbedderIdentity("semlex.testing/hash", "1", self._dimensions, None, "mean", normalised=True)

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._dimensions

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: n texts; all texts without words get the same vector.

        Returns:
            (n, dimensions), each of norm 1.

        Raises:
            ValidationError: A text is not a str or holds a lone surrogate.
        """
        rows = check_texts(texts)
        sums = np.zeros((len(rows), self._dimensions), dtype=np.float32)
        for row, text in enumerate(rows):
            for word in _WORD.findall(text.lower()) or [""]:
                sums[row] += self._direction(word)
        return check_vectors(normalise(sums), rows=len(rows), dimensions=self._dimensions, model=self.identity.model)

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Find the words of a text.

        Args:
            text: The text.

        Returns:
            (t, 2) start and end in characters.
        """
        spans = [match.span() for match in _WORD.finditer(text)]
        return np.array(spans, dtype=np.int64).reshape(-1, 2)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Count words.

        Args:
            texts: n texts.

        Returns:
            (n,).
        """
        return np.array([len(_WORD.findall(text)) for text in texts], dtype=np.int64)

    def _direction(self, word: str) -> NDArray[np.float32]:
        return _direction(word, self._dimensions)


@lru_cache(maxsize=4096)
def _direction(word: str, dimensions: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    # Philox is specified, so the numbers are the same under every version of numpy.
    bits = np.random.Philox(seed).random_raw(dimensions)
    return ((bits >> np.uint64(40)).astype(np.float32) - np.float32(2**23)) / np.float32(2**23)
