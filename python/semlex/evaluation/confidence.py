"""Cosines and judgements into a curve of probabilities, and how good that curve is on other queries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from semlex.types.confidence import CurveFigures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Truths = NDArray[np.bool_]
    Labels = NDArray[np.int64]

BINS = 10
_STEPS = 100
# A step that changes the log odds by less is the last one.
_ENOUGH = 1e-9
# Cosines are stored as float32, and differ by as much from one machine to another.
_LEAST_SPREAD = 1e-6
_SEED = 1


def fitted(cosines: Numbers, relevant: Truths) -> tuple[float, float]:
    """Slope and intercept of the logistic curve that fits best.

    The method is that of Platt, "Probabilistic outputs for support vector machines and comparisons to regularized
    likelihood methods", 1999: of n relevant hits each has the target (n + 1) / (n + 2), of m others 1 / (m + 2), so
    that a curve exists whatever was judged. It is found by Newton's method with halved steps, as in Lin, Lin and Weng,
    "A note on Platt's probabilistic outputs for support vector machines", Machine Learning 68, 2007. Where a smaller
    cosine is the better sign, and where all are the same, the slope is 0.

    Args:
        cosines: Shape (n,), at least one.
        relevant: Shape (n,).
    """
    positives = int(relevant.sum())
    targets = np.where(relevant, (positives + 1) / (positives + 2), 1 / (len(relevant) - positives + 2))
    middle, spread = float(cosines.mean()), float(cosines.std())
    mean = float(targets.mean())
    flat = math.log(mean / (1 - mean))
    if spread < _LEAST_SPREAD:
        return 0.0, flat
    columns = np.stack([(cosines - middle) / spread, np.ones(len(cosines))], axis=1)
    weights = np.array([0.0, flat])
    loss = _loss(columns @ weights, targets)
    for _ in range(_STEPS):
        expected = _probabilities(columns @ weights)
        gradient = columns.T @ (expected - targets)
        curvature = (columns * (expected * (1 - expected))[:, None]).T @ columns + 1e-12 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        share = 1.0
        while (next_loss := _loss(columns @ (weights - share * step), targets)) > loss and share > _ENOUGH:
            share /= 2
        if next_loss > loss:
            break
        weights, loss = weights - share * step, next_loss
        if float(np.abs(step).max()) < _ENOUGH:
            break
    slope = float(weights[0]) / spread
    return (slope, float(weights[1]) - slope * middle) if slope > 0 else (0.0, flat)


def cross_validated(cosines: Numbers, relevant: Truths, queries: Labels, folds: int) -> CurveFigures:
    """How good curves are that were learned from the hits of other queries.

    Args:
        cosines: Of n hits, shape (n,).
        relevant: Of the same, shape (n,).
        queries: Numbers of their queries, shape (n,).
    """
    known = np.unique(queries)
    parts = np.array_split(np.random.default_rng(_SEED).permutation(known), min(folds, len(known)))
    confidences, base = np.zeros(len(cosines)), np.zeros(len(cosines))
    areas: list[tuple[float, float]] = []
    for part in parts:
        held_out = np.isin(queries, part)
        slope, intercept = fitted(cosines[~held_out], relevant[~held_out])
        confidences[held_out] = _probabilities(slope * cosines[held_out] + intercept)
        base[held_out] = relevant[~held_out].mean()
        own = relevant[held_out]
        if 0 < own.sum() < len(own):
            areas.append((area(confidences[held_out], own), area(cosines[held_out], own)))
    means = np.mean(areas, axis=0).tolist() if areas else (None, None)
    return CurveFigures(
        ece=calibration_error(confidences, relevant),
        ece_base=calibration_error(base, relevant),
        brier=brier(confidences, relevant),
        brier_base=brier(base, relevant),
        auc=means[0],
        auc_cosine=means[1],
    )


def brier(confidences: Numbers, relevant: Truths) -> float:
    """Mean squared error of probabilities (Brier, "Verification of forecasts expressed in terms of probability", 1950).

    Args:
        confidences: Shape (n,).
        relevant: Shape (n,).
    """
    return float(np.mean((confidences - relevant) ** 2))


def calibration_error(confidences: Numbers, relevant: Truths, bins: int = BINS) -> float:
    """Expected calibration error: distance between mean confidence and share of relevant hits, mean over the hits.

    The bins hold equally many hits (Nguyen and O'Connor, "Posterior calibration and exploratory analysis for natural
    language processing models", EMNLP 2015); equal confidences are never parted.

    Args:
        confidences: Shape (n,).
        relevant: Shape (n,).
    """
    places = np.minimum((_middle_ranks(confidences) - 0.5) * bins / len(confidences), bins - 1).astype(np.int64)
    apart = np.bincount(places, weights=confidences - relevant, minlength=bins)
    return float(np.abs(apart).sum() / len(confidences))


def area(scores: Numbers, relevant: Truths) -> float:
    """Area under the ROC curve: the probability that a relevant hit has the greater score; equal ones count half.

    By ranks: Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic curve",
    Radiology 143, 1982.

    Args:
        scores: Shape (n,).
        relevant: Shape (n,), of both kinds.
    """
    positives = int(relevant.sum())
    above = _middle_ranks(scores)[relevant].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(relevant) - positives)))


def _middle_ranks(values: Numbers) -> Numbers:
    """Ranks from 1; equal values have the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def _probabilities(logits: Numbers) -> Numbers:
    probabilities: Numbers = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    return probabilities


def _loss(logits: Numbers, targets: Numbers) -> float:
    """Negative log likelihood, without overflow."""
    return float(np.sum(np.logaddexp(0, logits) - targets * logits))
