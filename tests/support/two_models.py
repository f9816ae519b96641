"""Two models whose vectors have the same length and mean different things, and what a collection holds of either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from semlex import PostgreSQLRetriever
from semlex.embedding.base import EmbedderIdentity
from semlex.testing import HashEmbedder
from tests.support import retrievers

DIMENSIONS = 16
NAME = "moving"


class OtherEmbedder(HashEmbedder):
    """As `HashEmbedder`, with another direction for every word.

    Args:
        dimensions: Length of the vectors.
        salt: What makes the directions differ; it is part of the identity.
    """

    def __init__(self, dimensions: int = DIMENSIONS, salt: str = "other") -> None:
        super().__init__(dimensions)
        self._salt = salt

    @property
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on."""
        return EmbedderIdentity(f"tests/{self._salt}", "1", self.dimensions, None, "mean", normalised=True)

    @property
    def counter_name(self) -> str:
        """Name of the way in which tokens are counted."""
        return f"tests/{self._salt}"

    def _direction(self, word: str) -> NDArray[np.float32]:
        return super()._direction(f"{self._salt} {word}")


def old_model() -> HashEmbedder:
    return HashEmbedder(DIMENSIONS)


def new_model() -> OtherEmbedder:
    return OtherEmbedder()


def opened(url: str, model: Any = None, **options: Any) -> PostgreSQLRetriever:
    """The collection with a model, by default the old one."""
    return retrievers.opened(url, old_model() if model is None else model, **{"collection": NAME} | options)


def vectors_of(url: str, version: int, collection: str = NAME) -> dict[str, NDArray[np.float32]]:
    """The vectors of a version by the id of their chunk."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            f"SELECT chunk_id, embedding::text FROM semlex.{collection}_embedding_{version}"  # noqa: S608 - a test's own
        ).fetchall()
    return {chunk_id: np.fromstring(text.strip("[]"), np.float32, sep=",") for chunk_id, text in rows}


def texts_of(url: str, collection: str = NAME) -> dict[str, str]:
    """The texts of all chunks by id, as they are embedded."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            f"SELECT chunk_id, context, chunk_text FROM semlex.{collection}_chunk"  # noqa: S608 - a test's own
        ).fetchall()
    return {chunk_id: f"{context}\n{text}" if context else text for chunk_id, context, text in rows}


def assert_vectors(
    found: Mapping[str, NDArray[np.float32]], texts: Mapping[str, str], model: HashEmbedder, *, whole: bool
) -> None:
    """Every vector is the model's for the present text of its chunk; of a whole version, no chunk lacks one."""
    assert found.keys() == texts.keys() if whole else found.keys() <= texts.keys()
    if found:
        wanted = model.embed_documents([texts[one] for one in found])
        assert np.abs(np.stack(list(found.values())) - wanted).max() <= 1e-6


def versions(url: str, collection: str = NAME) -> tuple[int, dict[int, bool]]:
    """Number of the serving version, and of each whether it is in the making."""
    with psycopg.connect(url) as connection:
        serving = connection.execute(
            "SELECT embedding_version FROM semlex.collection WHERE name = %s", [collection]
        ).fetchone()
        rows = connection.execute(
            "SELECT version, building FROM semlex.embedding_version WHERE name = %s", [collection]
        ).fetchall()
    assert serving is not None
    return serving[0], dict(rows)


def told(results: Any) -> list[tuple[Any, ...]]:
    """What a search found, to be compared: ids and scores, rounded as sums of floats are."""
    return [
        (hit.id, *(None if score is None else round(score, 5) for score in (hit.vector_score, hit.fused_score)))
        for hit in results
    ]
