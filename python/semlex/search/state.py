"""The state that the stages of one search pass on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from semlex.store.query.filters import Filter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from semlex.options.search import FusionMethod
    from semlex.search.fusion import Candidate
    from semlex.search.request import Request
    from semlex.search.score_completion import Candidates
    from semlex.search.thresholds import LeftOut
    from semlex.store.query.chunks import DocumentKey
    from semlex.store.query.leg import Key, LegResult
    from semlex.store.query.score_calibration import Spread
    from semlex.store.schema.collection import CollectionInfo
    from semlex.types.results import SearchResult


@dataclass(slots=True)
class SearchState:
    """One search.

    Attributes:
        request: The checked request.
        collection: The collection's metadata, with the embedding version that all stages search.
        legs: The legs that are wanted, ``vector`` before ``keyword``.
        vector: The query's vector, float32, shape (d,); None without a vector leg, or if embedding failed.
        query_cached: Whether the vector was in memory.
        failed: Legs that failed and do not run (again).
        with_phrases: Whether chunks without the query's phrases are left out.
        timings: Stage -> milliseconds.
        warnings: What the user should know.
        spread: Mean and deviation of the query's cosines in a sample; None without a sample in memory.
        condition: The filter of the request, as SQL for the snapshot that is read.
    """

    request: Request
    collection: CollectionInfo
    legs: list[str]
    vector: NDArray[np.float32] | None
    query_cached: bool = False
    failed: dict[str, LegResult] = field(default_factory=dict)
    with_phrases: bool = True
    timings: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    spread: Spread | None = None
    condition: Filter = field(default_factory=Filter)

    @property
    def keyword_query(self) -> str | None:
        """The text that keyword search reads: the question's words and the exclusions."""
        return self.collection.keyword.query_of(self.request.words, self.request.exclude)

    def add_time(self, stage: str, seconds: float) -> None:
        """Add to the time of a stage."""
        self.timings[stage] = self.timings.get(stage, 0.0) + seconds * 1000

    def copy(self) -> SearchState:
        """Return a copy of the search, in which later stages can change the state separately."""
        return replace(self, failed=dict(self.failed), timings=dict(self.timings), warnings=list(self.warnings))


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the database stages of a search.

    Attributes:
        results: The result of each leg, failed ones included.
        fusion: The method that ordered the hits.
        hits: Best first, in the order of the fusion.
        candidates: The chunks that the legs found.
        is_short: Whether rows of candidates were gone, and too few are left.
        has_exclusions: Whether the query's words left out chunks that the vector leg found.
        documents: The document of each hit, where they are grouped; else None.
        left_out: Summary of candidates below the minimum cosine; None without one.
        excluded: Candidates that turned out to contain something excluded.
        depth: How many candidates each leg was asked for.
    """

    results: dict[str, LegResult]
    fusion: FusionMethod
    hits: list[tuple[Candidate, SearchResult]]
    candidates: Candidates
    is_short: bool
    has_exclusions: bool
    documents: dict[Key, DocumentKey] | None = None
    left_out: LeftOut | None = None
    excluded: frozenset[Key] = frozenset()
    depth: int = 0

    @property
    def keys(self) -> list[Key]:
        """The keys of all candidates, in their order."""
        return [key for key in self.candidates.union.keys if key not in self.excluded]
