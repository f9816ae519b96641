"""Minimum scores: only scores with a fixed meaning can be compared, cosine and the reranker's probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.options.search import SearchOptions
    from semlex.search.fusion import Candidate
    from semlex.store.schema.collection import CollectionInfo


def check_thresholds(options: SearchOptions, *, mode: str | None, fusion: str) -> None:
    """Refuse thresholds that a search cannot apply."""
    has_similarity = options.get("min_similarity") is not None
    if options.get("max_results") is not None and (has_similarity or options.get("min_rerank") is not None):
        raise ConfigurationError(
            "a threshold and max_results exclude each other: leave max_results out and raise top_k"
        )
    if has_similarity and mode == "keyword":
        raise ConfigurationError("min_similarity is a cosine, which mode 'keyword' does not compute: use another mode")
    if has_similarity and mode != "vector" and fusion != "score":
        raise ConfigurationError(
            f"min_similarity needs the cosine of every hit, which the fusion {fusion!r} does not compute: use "
            "fusion='score' or mode='vector'"
        )


def without_cosines(options: SearchOptions, mode: str | None) -> str | None:
    """Return why a search cannot keep a minimum cosine; None if it can."""
    if mode == "keyword":
        return "mode 'keyword' computes no cosines"
    if options.get("max_results") is not None:
        return "a list of pages accepts no threshold"
    if mode != "vector" and options.get("fusion") not in (None, "score"):
        return f"the fusion {options['fusion']!r} does not compute the cosine of every hit"
    return None


def check_similarity(collection: CollectionInfo, legs: Iterable[str]) -> None:
    """Refuse a minimum cosine if the search has no cosine."""
    if collection.distance.name != "cosine":
        raise ConfigurationError(
            f"min_similarity is a cosine; collection {collection.names.collection!r} compares by "
            f"{collection.distance.name}"
        )
    if "vector" not in legs:
        raise ConfigurationError(
            "min_similarity needs vector search, and this search has no vector: name a model with "
            "embedding_model= or --model, or give vector="
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Summary of the candidates to which a minimum cosine was applied."""

    least: float  # the minimum cosine
    best: float | None  # greatest cosine of all candidates; None if no candidate has one
    unknown: int  # candidates without a cosine: without a vector, or not computed in time

    def notes(self, hits: int) -> list[str]:
        """Return the warnings for a number of results."""
        notes = []
        if not hits and self.best is not None:
            notes.append(f"nothing reaches min_similarity={self.least:g}; the nearest chunk has {self.best:.3f}")
        if self.unknown:
            notes.append(
                f"{self.unknown} chunks were left out because they have no cosine to compare with min_similarity: "
                "they have no vector (semlex models fill makes what is missing), or time was short"
            )
        return notes


def reaching(candidates: Iterable[Candidate], least: float) -> tuple[list[Candidate], LeftOut | None]:
    """Return the candidates with at least a minimum cosine, in their order; and a summary, None without candidates."""
    every = list(candidates)
    scores = [candidate.vector_score for candidate in every]
    known = [score for score in scores if score is not None]
    kept = [one for one, score in zip(every, scores, strict=True) if score is not None and score >= least]
    return kept, LeftOut(least, max(known, default=None), len(every) - len(known)) if every else None
