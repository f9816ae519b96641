"""Embed stored texts slice by slice, and check the vectors before they are written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import _core
from semlex.embedding.base import UNIT_NORM_TOLERANCE, Embedder
from semlex.embedding.probe import EmbedderProbe
from semlex.errors import EmbeddingsMissingError, FieldError, ModelError, ModelMismatchError
from semlex.store.schema.collection import GIVEN, EmbeddingVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from semlex.models.executor import ModelExecutor
    from semlex.options.collection import DistanceName, StorageName
    from semlex.types.vectors import Vectors

# Texts per call of the model: many for a fast model, to fill its batches; few for a slow one, to show progress. A
# slice should take about this many seconds.
FIRST_SLICE_TEXTS = 32
SLICE_TEXTS = (8, 2_048)
SLICE_SECONDS = (2.0, 8.0)


class DocumentVectors:
    """Embeds the texts of a load."""

    def __init__(
        self, collection: str, embedder: Embedder | None, executor: ModelExecutor, probe: EmbedderProbe | None = None
    ) -> None:
        self._collection = collection
        self._embedder = embedder
        self._executor = executor
        self._probe = EmbedderProbe(embedder, executor) if probe is None else probe
        self._slice_texts = FIRST_SLICE_TEXTS

    async def of(
        self, texts: Sequence[str], version: EmbeddingVersion | None, done: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        """Return the vectors of texts: float32, shape (n, d)."""
        if self._embedder is None or version is None:
            raise EmbeddingsMissingError("no embedding model is configured: name one with embedding_model= or --model")
        if (mismatch := await self._probe.mismatch(version.probe, version.model, self._collection)) is not None:
            raise mismatch
        parts = []
        start = 0
        while start < len(texts):
            part = texts[start : start + self._slice_texts]
            began = time.perf_counter()
            parts.append(await self._executor.documents(_checked, self._embedder, part, version))
            self._slice_texts = next_slice(self._slice_texts, time.perf_counter() - began)
            start += len(part)
            if done is not None:
                done(start)
        return np.concatenate(parts)


def _checked(embedder: Embedder, texts: Sequence[str], version: EmbeddingVersion) -> NDArray[np.float32]:
    made = embedder.embed_documents(texts)
    return usable_vectors(made, len(texts), version.dimensions, version.model, version.storage)


def usable_vectors(made: Any, rows: int, dimensions: int, model: str, storage: StorageName) -> NDArray[np.float32]:
    """Check the vectors that a model returned for texts; a user's embedder may return anything."""
    try:
        vectors = np.asarray(made, dtype=np.float32, order="C")
    except (ValueError, TypeError, OverflowError):
        vectors = np.empty(0, dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != rows:  # noqa: PLR2004 - a matrix has two axes
        raise ModelError(
            f"{model} returned {type(made).__name__} of shape {np.shape(vectors)} for {rows} texts; "
            "embed_documents must return numbers of shape (texts, dimensions)"
        )
    if vectors.shape[1] != dimensions:
        raise ModelMismatchError(f"{model} returned vectors of dimension {vectors.shape[1]}; expected {dimensions}")
    faults = _core.validate_rows([("vector", storage, vectors, None)])
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ModelError(f"{model} returned vectors that cannot be stored{more}: {FieldError(*faults[0])}")
    return vectors


# Above so many dimensions, the vectors are most of what a collection takes on disk. As float16 they take half of that.
HALVED_ABOVE_DIMENSIONS = 512


def default_storage(dimensions: int, distance: DistanceName, of_length_1: Callable[[], bool]) -> StorageName:
    """Return the vector type of a new collection; `of_length_1` is called only if the type depends on it."""
    # Float16 has all of its digits between 6e-5 and 65,504, where the numbers of vectors of length 1 are.
    halves = dimensions > HALVED_ABOVE_DIMENSIONS and distance == "cosine" and of_length_1()
    return "halfvec" if halves else "vector"


def are_of_length_1(embeddings: Vectors) -> bool:
    """Return whether each vector has the length 1 or 0 (about 1, for rounded numbers)."""
    lengths = np.array([np.linalg.norm(one) for one in embeddings if one is not None])
    return bool(((np.abs(lengths - 1) < UNIT_NORM_TOLERANCE) | (lengths == 0)).all())


def next_slice(texts: int, seconds: float) -> int:
    """Return how many texts to embed in the next slice, given the seconds that the last one took."""
    fewest, most = SLICE_TEXTS
    if seconds < SLICE_SECONDS[0]:
        return min(texts * 2, most)
    return max(texts // 2, fewest) if seconds > SLICE_SECONDS[1] else texts


def given_version(embeddings: Vectors, model: EmbeddingVersion | None) -> EmbeddingVersion:
    """Return the embedding version of given vectors: the open model's, or one that states only the dimension."""
    dimensions = next(len(vector) for vector in embeddings if vector is not None)
    if model is None:
        return EmbeddingVersion(0, f"{GIVEN}/{dimensions}", GIVEN, None, dimensions)
    if model.dimensions != dimensions:
        raise ModelMismatchError(
            f"the given vectors have {dimensions} dimensions, {model.model} makes {model.dimensions}; "
            "if another model made them, set the model to 'none' (embedding_model=, --model)"
        )
    return model
