"""How sure a search can be: whether a hit is relevant, and whether the collection has an answer. It does no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal, Self

from semlex.errors import ConfigurationError

FORMAT = 1
METHOD = "logistic"
# Beyond it float64 has only 0 and 1.
_MOST_LOGIT = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFigures:
    """How good a curve is on queries that it was not learned from (cross-validation by queries).

    Attributes:
        ece, ece_base: Expected calibration error, 0 to 1 (mean distance between confidence and share of relevant hits,
            over ten bins of equally many hits); `ece_base` if all hits had the same confidence.
        brier, brier_base: Mean squared distance between confidence and relevance (0 or 1); `brier_base` if all hits had
            the same confidence.
        auc, auc_cosine: Probability that a relevant hit has a greater confidence (or cosine) than an irrelevant one,
            mean of the folds; None if no fold has both kinds. Guessing gives 0.5.
    """

    ece: float
    ece_base: float
    brier: float
    brier_base: float
    auc: float | None
    auc_cosine: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceCurve:
    """The probability that a hit is relevant, given its cosine: 1 / (1 + exp(-(slope * cosine + intercept))).

    Attributes:
        slope: At least 0, so a greater cosine never has a smaller probability.
        intercept: Log odds of a hit with the cosine 0.
        identity_key: The identity of the embedding model whose vectors the curve was learned from. The curve holds only
            for vectors of this model; `model` is its name.
        mode, depth, queries: Mode of the searches that the curve was learned from, hits of each, number of searches.
        pairs, relevant: Hits with a cosine, and how many of them are judged relevant.
        figures: How good the curve is on other queries.
    """

    slope: float
    intercept: float
    identity_key: str
    model: str
    mode: str
    depth: int
    queries: int
    pairs: int
    relevant: int
    learned_at: datetime
    figures: CurveFigures

    def probability(self, cosine: float) -> float:
        """Return the probability, 0 to 1, that a hit with this cosine is relevant."""
        logit = self.slope * cosine + self.intercept
        # In this form rounding keeps the order, too.
        return 1 / (1 + math.exp(-min(max(logit, -_MOST_LOGIT), _MOST_LOGIT)))

    def similarity(self, probability: float) -> float | None:
        """Return the minimum cosine of hits with at least this probability (above 0, below 1); None if none has it."""
        if not 0 < probability < 1:
            raise ConfigurationError(f"the probability must be above 0 and below 1; got {probability!r}")
        if self.probability(1.0) < probability:
            return None
        if self.probability(-1.0) >= probability:
            return -1.0
        return (math.log(probability / (1 - probability)) - self.intercept) / self.slope

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as JSON values, in the form in which it is stored."""
        values = asdict(self)
        parameters = {name: values.pop(name) for name in ("slope", "intercept")}
        values["learned_at"] = self.learned_at.isoformat()
        return {"format": FORMAT, "method": METHOD, "parameters": parameters, **values}

    @classmethod
    def from_dict(cls, stored: object, where: str) -> Self:
        """Return the curve from the result of `to_dict`; `where` names its origin in a `ConfigurationError`."""
        if not isinstance(stored, dict) or type(stored.get("format")) is not int:
            raise ConfigurationError(f"{where} is not a calibration: make one with semlex eval calibrate")
        if (stored["format"], stored.get("method")) != (FORMAT, METHOD):
            raise ConfigurationError(
                f"{where} is a calibration of a format that this semlex does not know: update semlex, or calibrate "
                "again with this one (semlex eval calibrate)"
            )
        try:
            values = {one.name: stored[one.name] for one in fields(cls) if one.name not in ("slope", "intercept")}
            values |= {name: _number(stored["parameters"][name]) for name in ("slope", "intercept")}
            values["learned_at"] = datetime.fromisoformat(values["learned_at"])
            values["figures"] = CurveFigures(**values["figures"])
            for name in ("depth", "queries", "pairs", "relevant"):
                values[name] = int(values[name])
            for name in ("identity_key", "model", "mode"):
                values[name] = str(values[name])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"{where} is a damaged calibration ({type(error).__name__}): calibrate again (semlex eval calibrate)"
            ) from None
        if values["slope"] < 0:
            raise ConfigurationError(f"{where} is a damaged calibration: its slope is below 0; calibrate again")
        return cls(**values)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


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
        overlap: Number of chunks among the first ten of both vector and keyword search, divided by ten.
        similarity: Cosine of the nearest chunk.
        background: Mean cosine of a sample of the collection's chunks.
        nearness: How far `similarity` is above `background`, in standard deviations of that sample, 0 to 6.
    """

    words: float | None = None
    overlap: float | None = None
    similarity: float | None = None
    background: float | None = None
    nearness: float | None = None


@dataclass(frozen=True, slots=True)
class SupportCurve:
    """The log odds of an answer: `intercept` plus the weighted sum of some figures of an `Evidence`."""

    intercept: float
    weights: Mapping[str, float]

    def logit(self, evidence: Evidence) -> float | None:
        """Return the log odds of an answer; None if a figure with a weight is not known."""
        logit = self.intercept
        for name, weight in self.weights.items():
            value = getattr(evidence, name)
            if value is None:
                return None
            logit += weight * value
        return logit


# Learned by `./x bench support`. Cosines have other values with each model, so only models that were measured have
# curves with cosines, by the last part of their names. The first curve whose figures are known decides.
WORDS_AND_OVERLAP = SupportCurve(-5.363, {"words": 4.363, "overlap": 3.297})
WORDS = SupportCurve(-5.109, {"words": 4.839})
CURVES: dict[str, tuple[SupportCurve, ...]] = {
    "l2_supercat_256": (
        SupportCurve(
            -5.829, {"words": 3.867, "overlap": 1.903, "similarity": 16.774, "background": -14.289, "nearness": -0.950}
        ),
        SupportCurve(-5.463, {"similarity": 25.102, "background": -17.727, "nearness": -0.639}),
    ),
    "all-MiniLM-L6-v2": (
        SupportCurve(
            -9.41, {"words": 4.696, "overlap": 1.702, "similarity": 18.848, "background": -11.151, "nearness": -0.637}
        ),
        SupportCurve(-7.4, {"similarity": 26.351, "background": -16.974, "nearness": -0.473}),
    ),
}


def support_of(evidence: Evidence, model: str | None, *, coverage: float | None, chunks: int) -> Support:
    """Judge whether a collection probably holds an answer, from the figures of a search that has hits.

    Args:
        model: Name of the embedding model; None without vectors.
        coverage: Greatest `SearchResult.coverage` of the first five hits; None if unknown.
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
