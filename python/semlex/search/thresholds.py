"""Least scores: those that have a meaning may be asked for, cosine and the reranker's probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.search.fusion import is_number, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.search.fusion import Candidate
    from semlex.store.schema.collection import CollectionInfo


def check_thresholds(
    min_similarity: float | None, min_rerank: float | None, *, mode: str | None, fusion: str, paged: bool
) -> None:
    """Refuses thresholds that are no numbers of their scale, or that a search cannot keep."""
    if min_similarity is not None and not (is_number(min_similarity) and -1 <= min_similarity <= 1):
        raise ConfigurationError(f"min_similarity must be a number from -1 to 1; got {shown(min_similarity)}")
    # A reranker of one's own may have another scale than 0 to 1.
    if min_rerank is not None and not (is_number(min_rerank) and math.isfinite(min_rerank)):
        raise ConfigurationError(f"min_rerank must be a finite number, such as 0.5; got {shown(min_rerank)}")
    if paged and (min_similarity is not None or min_rerank is not None):
        raise ConfigurationError("a threshold and max_results exclude each other: ask for more with top_k")
    if min_similarity is not None and mode == "keyword":
        raise ConfigurationError("min_similarity is a cosine, which mode 'keyword' does not compute: use another mode")
    if min_similarity is not None and mode != "vector" and fusion != "completed":
        raise ConfigurationError(
            f"min_similarity needs the cosine of every hit, which the fusion {fusion!r} does not compute: use "
            "fusion='completed' or mode='vector'"
        )


def check_similarity(collection: CollectionInfo, legs: Iterable[str]) -> None:
    """Refuses a least cosine where there is none."""
    if collection.distance.name != "cosine":
        raise ConfigurationError(
            f"min_similarity is a cosine; collection {collection.names.collection!r} compares by "
            f"{collection.distance.name}"
        )
    if "vector" not in legs:
        raise ConfigurationError(
            "min_similarity needs the vector leg, and there is no vector to search with: name a model with "
            "embedding_model= or --model, or give vector="
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a least cosine has left out.

    Attributes:
        least: The cosine.
        best: Greatest cosine of all candidates; None where none has one.
        unknown: Candidates without a cosine: they have no vector, or it was not computed in time.
    """

    least: float
    best: float | None
    unknown: int

    def notes(self, hits: int) -> list[str]:
        """What is told with so many results."""
        notes = []
        if not hits and self.best is not None:
            notes.append(f"nothing reaches min_similarity={self.least:g}; the nearest chunk has {self.best:.3f}")
        if self.unknown:
            notes.append(
                f"{self.unknown} chunks were left out because they have no cosine to compare with min_similarity: "
                "they have no vector (semlex embed makes what is missing), or time was short"
            )
        return notes


def reaching(candidates: Iterable[Candidate], least: float) -> tuple[list[Candidate], LeftOut]:
    """The candidates with at least a cosine, in their order, and what is told of the others."""
    every = list(candidates)
    scores = [candidate.vector_score for candidate in every]
    known = [score for score in scores if score is not None]
    kept = [one for one, score in zip(every, scores, strict=True) if score is not None and score >= least]
    return kept, LeftOut(least, max(known, default=None), len(every) - len(known))
