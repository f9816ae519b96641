"""Why a document has its rank or is missing, and how the hits of a search were found. This module does no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from semlex.types.display import first_lines
from semlex.types.display import lines as as_lines
from semlex.types.documents import json_object

WhyCode = Literal[
    "found",
    "never_seen",
    "not_indexed",
    "skipped",
    "unreadable",
    "deleted",
    "empty",
    "filtered",
    "excluded",
    "no_vector",
    "beyond_vector_depth",
    "missed_by_index",
    "no_shared_word",
    "beyond_keyword_depth",
    "below_top_k",
    "reranked_below",
    "below_threshold",
    "capped",
    "unknown",
]
"""The code of a `Reason`, for programs; docs/reference/search-options.md explains each."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason for the rank of a document: a sentence with figures, and a command that changes it, or ""."""

    code: WhyCode
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]" + (f"\n  remedy: {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of the query, as the keyword index knows it.

    Attributes:
        term: The word, folded and stemmed.
        weight: Its inverse document frequency: the rarer, the greater.
        chunks: How many chunks of the collection contain it.
        held: Whether the chunk contains it.
        score: What the word adds to the chunk's keyword score.
    """

    term: str
    weight: float
    chunks: int
    held: bool
    score: float

    def __str__(self) -> str:
        share = f"adds {self.score:.3f}" if self.held else "is not in the chunk"
        return f"{self.term!r} (weight {self.weight:.2f}, in {_counted(self.chunks, 'chunk')}) {share}"


@dataclass(frozen=True, slots=True)
class LegFigures:
    """The rank of a document's best chunk in vector or keyword search.

    Attributes:
        leg: ``vector`` or ``keyword``.
        rank: Rank among all chunks that pass the filter, from 1, or None. Keyword search ranks only the first 10,000
            chunks.
        score: The search's own score; 0 in keyword search if no word is shared; None if the search did not score it.
        depth: How many candidates were requested.
        last_candidate_score: Score of the last candidate; None without candidates.
        last_hit_score: This search's score of the last hit, or None.
    """

    leg: str
    chunk: str | None
    rank: int | None
    score: float | None
    depth: int
    last_candidate_score: float | None
    last_hit_score: float | None

    def __str__(self) -> str:
        rank = "no rank" if self.rank is None else f"rank {self.rank:,}"
        beside = (
            ("score", self.score),
            ("last candidate", self.last_candidate_score),
            ("last hit", self.last_hit_score),
        )
        figures = ", ".join(f"{name} {value:.4f}" for name, value in beside if value is not None)
        found = f"{self.leg} search: {rank}, {_counted(self.depth, 'candidate')} requested"
        return f"{found}; {figures}" if figures else found


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why a document has its rank in the hits of a query, or why it is missing; ``str()`` gives lines for people.

    Attributes:
        document: The document as requested; `name` is what was found (source and path, or the id of a chunk), or None.
        reasons: The deciding reason first, then others that hold as well. Never empty.
        rank: Place among the hits, from 1; None if no chunk of the document is a hit.
        chunks, chunk: How many of its chunks were examined, and the id of the one with the best place, or None.
        legs: Its rank in each search that answered.
        terms: The query's words, heaviest first, with what they add to that chunk's keyword score.
        fused_rank: Rank among all candidates by fused score, or by the score of the only search, from 1; or None.
        last_fused_score: The fused score of the last hit, or of the last that was reranked.
        notes: What is not known, and what did not go as requested.
    """

    document: str
    name: str | None
    reasons: tuple[Reason, ...]
    rank: int | None = None
    chunks: int = 0
    chunk: str | None = None
    legs: tuple[LegFigures, ...] = ()
    terms: tuple[QueryTerm, ...] = ()
    fused_rank: int | None = None
    fused_score: float | None = None
    last_fused_score: float | None = None
    rerank_score: float | None = None
    last_rerank_score: float | None = None
    mixed_score: float | None = None
    last_mixed_score: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> WhyCode:
        """Return the first reason's code."""
        return self.reasons[0].code

    @property
    def found(self) -> bool:
        """Return whether the document is among the hits."""
        return self.code == "found"

    def leg(self, name: str) -> LegFigures | None:
        """Return the figures of ``vector`` or ``keyword`` search; None if that search did not answer."""
        return next((leg for leg in self.legs if leg.leg == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return every attribute by its name, with ``code`` and ``found``, as JSON values."""
        return {"code": self.code, "found": self.found, **json_object(self)}

    def __repr__(self) -> str:
        return first_lines(str(self))

    def _repr_html_(self) -> str:
        return as_lines(self)

    def __str__(self) -> str:
        lines = [f"{self.name or self.document}: {'found' if self.found else 'not found'}"]
        lines += [str(reason) for reason in self.reasons]
        lines += [str(leg) for leg in self.legs]
        if self.fused_score is not None:
            is_reranked = (self.rerank_score, self.last_rerank_score) != (None, None)
            passed = "reranked candidates" if is_reranked else "hits"
            lines.append(
                f"fused: rank {self.fused_rank:,}, score {self.fused_score:.4f}{_lowest(self.last_fused_score, passed)}"
            )
        if self.rerank_score is not None:
            lines.append(f"reranker: score {self.rerank_score:.4f}{_lowest(self.last_rerank_score)}")
        if self.mixed_score is not None:
            lines.append(f"mixed with the fused score: {self.mixed_score:.4f}{_lowest(self.last_mixed_score)}")
        lines += [f"word {term}" for term in self.terms]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True, slots=True)
class HitExplanation:
    """How one hit got its score.

    Attributes:
        location: Document and place, or "".
        terms: The query's words, heaviest first, with what they add to its keyword score.
        vector_contribution, keyword_contribution: What each search adds to the fused score, with fusion ``score``; else
            None.
        confidence: Probability that the hit is relevant, by the collection's calibration, or None.
        order: Rank of its key among the keys of the hits, from 0; breaks ties.
        heading_factor: Factor on its fused score because its heading is the query; None if it is not.
    """

    id: str
    rank: int
    location: str
    terms: tuple[QueryTerm, ...]
    vector_contribution: float | None
    keyword_contribution: float | None
    confidence: float | None = None
    order: int = 0
    heading_factor: float | None = None

    def __str__(self) -> str:
        parts = ("vector", self.vector_contribution), ("keyword", self.keyword_contribution)
        told = [f"{name} adds {value:.4f}" for name, value in parts if value is not None]
        if self.confidence is not None:
            told.append(f"confidence {self.confidence:.2f}")
        if self.heading_factor is not None:
            told.append(f"its heading is the query: score times {self.heading_factor:g}")
        words = [str(term) for term in self.terms]
        return f"{self.rank}. {self.location or self.id}: " + "; ".join([*told, *words] or ["nothing more is known"])


@dataclass(frozen=True, slots=True, repr=False)
class SearchExplanation:
    """How the hits of a search were found; ``str()`` gives lines for people.

    Attributes:
        depth: Number of candidates requested from vector and from keyword search.
        legs: Name of a search -> how it found its chunks.
        filter_share: Approximate share of the chunks that pass the filter, 0 to 1; None without a filter.
        fusion, weights: How the searches were combined, or None if one answered alone.
        candidates: How many chunks the searches found together.
        similarity_mean, similarity_deviation: Mean and standard deviation of the query's cosines to a sample of chunks;
            None unless the fusion is ``score``. docs/explanation/ranking.md shows how a fused score follows from these
            and `greatest_keyword_score`.
        greatest_keyword_score: The best keyword score of all candidates.
        terms: Search terms that were added to the query.
        terms_by: The language model that wrote `terms`; None: the caller gave them.
    """

    depth: int
    legs: dict[str, str]
    filter_share: float | None
    fusion: str | None
    weights: dict[str, float]
    reranker: str | None
    candidates: int
    hits: tuple[HitExplanation, ...]
    notes: tuple[str, ...] = ()
    similarity_mean: float | None = None
    similarity_deviation: float | None = None
    greatest_keyword_score: float | None = None
    terms: str = ""
    terms_by: str | None = None

    def __repr__(self) -> str:
        return first_lines(str(self))

    def _repr_html_(self) -> str:
        return as_lines(self)

    def __str__(self) -> str:
        plan = "; ".join(f"{name}: {how}" for name, how in self.legs.items())
        lines = [f"plan: {plan}; {_counted(self.depth, 'candidate')} of each search, {self.candidates:,} together"]
        if self.terms:
            lines.append(f"additional search terms: {self.terms}" + (f" (by {self.terms_by})" if self.terms_by else ""))
        if self.filter_share is not None:
            lines.append(f"filter: about {self.filter_share:.2%} of the chunks pass")
        if self.fusion is not None:
            weights = ", ".join(f"{name} {weight:g}" for name, weight in self.weights.items())
            lines.append(f"fusion: {self.fusion}; weights: {weights}")
        lines.append(f"reranker: {self.reranker or 'none'}")
        return "\n".join([*lines, *map(str, self.hits), *(f"note: {note}" for note in self.notes)])


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _lowest(score: float | None, passed: str = "hits") -> str:
    return "" if score is None else f", lowest of the {passed} {score:.4f}"
