"""The curve from a cosine similarity to the probability that a hit is relevant. No input or output."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

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
            over ten bins of equally many hits), and that of one confidence for all hits.
        brier, brier_base: Mean squared distance between confidence and relevance (0 or 1), and that of one confidence.
        auc, auc_cosine: Probability that a relevant hit has the greater confidence (or cosine), mean of the folds; None
            if no fold has both kinds. One confidence for all has 0.5.
    """

    ece: float
    ece_base: float
    brier: float
    brier_base: float
    auc: float | None
    auc_cosine: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceCurve:
    """The probability that a hit with a cosine is relevant: 1 / (1 + exp(-(slope * cosine + intercept))).

    Attributes:
        slope: At least 0, so a greater cosine never has a smaller probability.
        intercept: Log odds of a hit with the cosine 0.
        identity_key: The key of the vectors that the curve was learned from, for which alone it holds; `model` names
            their model.
        mode, depth, queries: The searches that it was learned from: their mode, their hits, and their number.
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
        """Return the least cosine of hits with at least this probability (between 0 and 1); None if none has it."""
        if not 0 < probability < 1:
            raise ConfigurationError(f"a probability must lie between 0 and 1; got {probability!r}")
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
        """Return the curve that `to_dict` stored `where`; raise `ConfigurationError` if it is not one."""
        if not isinstance(stored, dict) or type(stored.get("format")) is not int:
            raise ConfigurationError(f"{where} is not a calibration: semlex eval calibrate makes one")
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
