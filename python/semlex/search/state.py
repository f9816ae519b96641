"""The state that the stages of one search pass on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from semlex.store.query.filters import Filter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from semlex.options.search import FusionMethod
    from semlex.search.fusion import Candidate, Candidates
    from semlex.search.request import LeftOut, Request
    from semlex.store.query.chunks import DocumentKey
    from semlex.store.query.leg import Key, LegResult
    from semlex.store.query.score_calibration import Spread
    from semlex.store.schema.collection import CollectionInfo
    from semlex.types.results import ReadServer, SearchResult


@dataclass(slots=True)
class SearchState:
    """The state of one search, which each stage reads and changes."""

    request: Request
    collection: CollectionInfo  # with the embedding version that all stages search
    legs: list[str]  # searches that are wanted, "vector" before "keyword"
    vector: NDArray[np.float32] | None  # float32, shape (d,); None without vector search, or if embedding failed
    query_cached: bool = False  # whether the vector was in memory
    failed: dict[str, LegResult] = field(default_factory=dict)  # searches that failed and do not run (again)
    with_phrases: bool = True  # whether chunks without the query's phrases are left out
    timings: dict[str, float] = field(default_factory=dict)  # stage -> milliseconds
    warnings: list[str] = field(default_factory=list)  # for the user
    # Mean and deviation of the query's cosines in a sample; None without a sample in memory.
    spread: Spread | None = None
    read_from: ReadServer | None = None  # where its last stage read, if reads may be on a standby
    condition: Filter = field(default_factory=Filter)  # the filter of the request, as SQL for the snapshot that is read

    @property
    def keyword_query(self) -> str | None:
        """The text that keyword search reads: the question's words and the exclusions."""
        return self.collection.keyword.query_of(self.request.words, self.request.exclude)

    def add_time(self, stage: str, seconds: float) -> None:
        """Add to the time of a stage."""
        self.timings[stage] = self.timings.get(stage, 0.0) + seconds * 1000

    def copy(self) -> SearchState:
        """Return a copy of the state; stages that change one of them do not change the other."""
        return replace(self, failed=dict(self.failed), timings=dict(self.timings), warnings=list(self.warnings))


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the database stages of a search."""

    results: dict[str, LegResult]  # failed searches included
    fusion: FusionMethod  # the method that ordered the hits
    hits: list[tuple[Candidate, SearchResult]]  # best first, in the order of the fusion
    candidates: Candidates
    is_short: bool  # whether rows of candidates were gone, and too few are left
    has_exclusions: bool  # whether the query's words left out chunks that vector search found
    documents: dict[Key, DocumentKey] | None = None  # of each hit, if hits are grouped
    left_out: LeftOut | None = None  # by the minimum cosine; None without one, or without candidates
    excluded: frozenset[Key] = frozenset()  # candidates that turned out to contain something excluded
    depth: int = 0  # how many candidates each search was asked for

    @property
    def answered(self) -> dict[str, LegResult]:
        """The results of the searches that did not fail."""
        return {name: result for name, result in self.results.items() if result.error is None}

    @property
    def keys(self) -> list[Key]:
        """The keys of all candidates, in their order."""
        return [key for key in self.candidates.union.keys if key not in self.excluded]
