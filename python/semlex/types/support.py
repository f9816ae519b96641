"""A judgement whether a collection probably holds what was searched for. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

Support = Literal["likely", "unsure", "unlikely"]
SUPPORT_TEXT: dict[Support, str] = {
    "likely": "probably in here",
    "unsure": "perhaps in here",
    "unlikely": "probably not in here",
}
# Odds of 1 to 7 and of 9 to 2. `./x bench support` says how many questions with an answer are below the first.
LEAST_LOGIT = -2.0
LIKELY_LOGIT = 1.5
MAX_NEARNESS = 6.0
MIN_CHUNKS = 10
SMALL_COVERAGE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Figures of a search that suggest whether its question has an answer; None for a figure that is not known.

    Attributes:
        words: Greatest coverage of the first five hits, times the square root of the number of the question's terms: a
            long question with an answer has a lower coverage than a short one.
        overlap: Number of chunks that are among the first ten of both searches, divided by ten.
        similarity: Cosine of the nearest chunk.
        background: Mean cosine of a sample of the collection's chunks.
        nearness: How many standard deviations of that sample the nearest chunk is above its mean, 0 to 6.
    """

    words: float | None = None
    overlap: float | None = None
    similarity: float | None = None
    background: float | None = None
    nearness: float | None = None


PARTS = tuple(one.name for one in fields(Evidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportCurve:
    """Weights of the figures of an `Evidence` in the log odds of an answer; None for a figure that does not count."""

    intercept: float
    words: float | None = None
    overlap: float | None = None
    similarity: float | None = None
    background: float | None = None
    nearness: float | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the figures that count."""
        return tuple(name for name in PARTS if getattr(self, name) is not None)

    def logit(self, evidence: Evidence) -> float | None:
        """Return the log odds of an answer; None if a figure that counts is not known."""
        logit = self.intercept
        for name in PARTS:
            weight, value = getattr(self, name), getattr(evidence, name)
            if weight is not None:
                if value is None:
                    return None
                logit += weight * value
        return logit


# Learned by `./x bench support`. Cosines have other values with each model, so only models that were measured have
# curves with cosines, by the last part of their names. The first curve whose parts are known decides.
WORDS_AND_OVERLAP = SupportCurve(intercept=-5.363, words=4.363, overlap=3.297)
WORDS = SupportCurve(intercept=-5.109, words=4.839)
CURVES: dict[str, tuple[SupportCurve, ...]] = {
    "l2_supercat_256": (
        SupportCurve(
            intercept=-5.829, words=3.867, overlap=1.903, similarity=16.774, background=-14.289, nearness=-0.950
        ),
        SupportCurve(intercept=-5.463, similarity=25.102, background=-17.727, nearness=-0.639),
    ),
    "all-MiniLM-L6-v2": (
        SupportCurve(
            intercept=-9.41, words=4.696, overlap=1.702, similarity=18.848, background=-11.151, nearness=-0.637
        ),
        SupportCurve(intercept=-7.4, similarity=26.351, background=-16.974, nearness=-0.473),
    ),
}


def support_of(evidence: Evidence, model: str | None, *, coverage: float | None, chunks: int) -> Support:
    """Judge whether the collection of a search with hits probably holds an answer.

    Args:
        model: Name of the embedding model; None without vectors.
        coverage: Greatest share of the question's weight in one hit; None if unknown.
        chunks: How many chunks the collection has, as far as the search knows.
    """
    if coverage is not None and coverage >= 1:
        return "likely"
    # In a few chunks every word is frequent, and weighs little beside a word that is in none.
    is_too_small = chunks < MIN_CHUNKS and (coverage is None or coverage >= SMALL_COVERAGE)
    for curve in (*CURVES.get((model or "").rpartition("/")[2], ()), WORDS_AND_OVERLAP, WORDS):
        logit = curve.logit(evidence)
        if logit is not None:
            if logit < LEAST_LOGIT and not is_too_small:
                return "unlikely"
            return "likely" if logit >= LIKELY_LOGIT else "unsure"
    return "unsure"
