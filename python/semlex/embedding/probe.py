"""Checks that a model still makes the same vectors, by embedding a fixed probe text again.

Different weights may have the same name, for example after a model was replaced on its server. The vector of the probe
text is stored with each set of vectors when the set is begun.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ModelMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.embedding.base import Embedder
    from semlex.models.executor import ModelExecutor

logger = logging.getLogger("semlex")

TEXT = "The keeper of the lighthouse wrote four letters in 1897, and none was answered before the winter."
# Other batches, half precision and servers with many machines stay above the first; other weights are far below the
# second.
EQUAL = 0.999
MIN_COSINE = 0.98


class EmbedderProbe:
    """Checks, before a model is first used with a set of vectors, that the model made these vectors."""

    def __init__(self, embedder: Embedder | None, executor: ModelExecutor) -> None:
        self._embedder = embedder
        self._executor = executor
        self._passed: set[str] = set()
        self.notes: list[str] = []

    async def make(self) -> str | None:
        """Embed the probe text; return its vector for storing, float32 in base64, or None without a model."""
        if self._embedder is None:
            return None
        made = _vector(await self._executor.documents(self._embedder.embed_documents, [TEXT]))
        if made is None:
            return None  # the first use of the model reports what is wrong with its vectors
        stored = b64encode(made.astype("<f4").tobytes()).decode()
        self._passed.add(stored)
        return stored

    async def mismatch(self, stored: str | None, model: str, collection: str) -> ModelMismatchError | None:
        """Compare the model with a set of vectors, once; return an error if it makes other vectors."""
        if stored is None or self._embedder is None or stored in self._passed:
            return None
        made = _vector(await self._executor.query(self._embedder.embed_documents, [TEXT], model=self._embedder))
        before = restored(stored)
        if made is None or len(made) != len(before):
            return None  # as above
        if (cosine := _cosine(made, before)) < MIN_COSINE:
            return ModelMismatchError(
                f"{model} now makes vectors that differ from those of collection {collection!r} (cosine {cosine:.3f} "
                "for the same text): the weights behind this name have changed. Use the old weights, or make "
                f"new vectors: semlex models set MODEL --collection {collection}"
            )
        self._passed.add(stored)
        if cosine < EQUAL:
            note = (
                f"{model} now makes slightly different vectors than those of collection {collection!r} (cosine "
                f"{cosine:.4f} for the same text): its precision or server may have changed; if results are "
                "worse, go back to the earlier precision or server, or index the texts into a new collection"
            )
            self.notes.append(note)
            logger.warning("%s", note)
        return None


def may_be_equal(one: str | None, other: str | None) -> bool:
    """Return whether two stored probe vectors are equal; also True if one of them is missing."""
    if one is None or other is None:
        return True
    left, right = restored(one), restored(other)
    return len(left) == len(right) and _cosine(left, right) >= MIN_COSINE


def restored(stored: str) -> NDArray[np.float32]:
    """Decode a stored probe vector."""
    return np.frombuffer(b64decode(stored, validate=True), dtype="<f4")


def _cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the cosine of two vectors; 0 if one of them is all zero."""
    left, right = one.astype(np.float64), other.astype(np.float64)
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / length if length else 0.0


def _vector(made: object) -> NDArray[np.float32] | None:
    """Return the single row that a model made, or None if it made anything else."""
    try:
        rows = np.asarray(made, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        return None
    return rows[0] if rows.ndim == 2 and len(rows) == 1 and np.isfinite(rows).all() else None  # noqa: PLR2004 - a matrix
