"""A curve of confidence that nothing was learned for."""

from datetime import UTC, datetime

from semlex.types.confidence import ConfidenceCurve, CurveFigures

FIGURES = CurveFigures(ece=0.01, ece_base=0.02, brier=0.1, brier_base=0.2, auc=0.9, auc_cosine=0.9)
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def curve(slope=10.0, intercept=-5.0, **others):
    values = {"identity_key": "tests/model@1", "model": "tests/model", "mode": "hybrid", "depth": 10, "queries": 30}
    values |= {"pairs": 300, "relevant": 40, "learned_at": NOW, "figures": FIGURES}
    return ConfidenceCurve(slope=slope, intercept=intercept, **values | others)
