"""Learns from judgements which cosine means "relevant with probability p" in a collection."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError
from semlex.evaluation.evaluate import (
    Unit,
    each,
    judged_id,
    judged_queries,
    judged_unit,
    notes_on,
    on_its_loop,
    searchable,
)
from semlex.types.confidence import ConfidenceCurve, CurveFigures
from semlex.types.documents import utc_now
from semlex.types.queries import MAX_TOP_K
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from semlex.evaluation.metrics import Judgements
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.results import SearchMode

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
    """Return slope and intercept of the logistic curve that best fits the cosine and the relevance of every hit."""
    # Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods",
    # 1999: each of n relevant hits has the target (n + 1) / (n + 2), each of m others 1 / (m + 2), so that a curve
    # always exists. It is found by Newton's method with halved steps (Lin, Lin and Weng, "A note on Platt's
    # probabilistic outputs for support vector machines", Machine Learning 68, 2007). If greater cosines do not mean
    # more relevance, the slope is 0.
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
    """Return how well curves predict relevance on queries that they were not learned from."""
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
    """Return the mean squared error of probabilities (Brier, 1950)."""
    return float(np.mean((confidences - relevant) ** 2))


def calibration_error(confidences: Numbers, relevant: Truths) -> float:
    """Return the expected calibration error: the mean over bins of |mean confidence - share of relevant hits|."""
    # The bins have equal numbers of hits (Nguyen and O'Connor, EMNLP 2015); equal confidences share a bin.
    places = np.minimum((_middle_ranks(confidences) - 0.5) * BINS / len(confidences), BINS - 1).astype(np.int64)
    apart = np.bincount(places, weights=confidences - relevant, minlength=BINS)
    return float(np.abs(apart).sum() / len(confidences))


def area(scores: Numbers, relevant: Truths) -> float:
    """Return the area under the ROC curve, by ranks (Hanley and McNeil, 1982); ties count half."""
    positives = int(relevant.sum())
    above = _middle_ranks(scores)[relevant].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(relevant) - positives)))


def _middle_ranks(values: Numbers) -> Numbers:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def _probabilities(logits: Numbers) -> Numbers:
    probabilities: Numbers = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    return probabilities


def _loss(logits: Numbers, targets: Numbers) -> float:
    return float(np.sum(np.logaddexp(0, logits) - targets * logits))


DEPTH = 10
FOLDS = 5
# With 10 queries the calibration error on other queries was .09, .05 and .03 on three judged sets, with 30 .07, .04 and
# .02 (docs/reference/figures.md).
MIN_QUERIES = 30
# Of each kind: ten events a variable are the usual least for a logistic regression (Peduzzi et al., "A simulation study
# of the number of events per variable in logistic regression analysis", Journal of Clinical Epidemiology 49, 1996).
MIN_HITS = 10


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """The learned curve with its figures; `store_calibration` stores the curve. Unjudged hits count as not relevant."""

    curve: ConfidenceCurve
    unjudged: int
    warnings: list[str] = field(default_factory=list)


@on_its_loop
async def calibrate(
    retriever: PostgreSQLRetriever,
    queries: Mapping[str, str],
    judgements: Judgements,
    *,
    depth: int = DEPTH,
    folds: int = FOLDS,
    judged: Unit | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> CalibrationReport:
    """Learn a curve from the hits of every query, searched once without a reranker; nothing is stored.

    A hit is relevant if it, or its document, is judged relevant; hits without a judgement are not.
    """
    check_range("depth", depth, 1, MAX_TOP_K)
    check_range("folds", folds, 2)
    embedding, name = retriever.info.embedding, retriever.info.names.collection
    if retriever.embedder is None or embedding is None:
        raise ConfigurationError(
            "a calibration needs cosines, but the collection has no vectors or their embedding model is not open"
        )
    if retriever.info.distance.name != "cosine":
        raise ConfigurationError(
            f"a calibration needs cosines, but collection {name!r} compares vectors by {retriever.info.distance.name}"
        )
    texts, considered = judged_queries(queries, judgements)
    check_queries(len(texts))
    unit = judged or await judged_unit(retriever, considered)
    found: dict[str, list[tuple[float, str]]] = {}  # query -> cosine and judged id of each hit
    modes: dict[str, SearchMode] = {}
    warnings: Counter[str] = Counter()

    async def ask(query: str) -> None:
        hits = await retriever.search(searchable(texts[query])[0], depth, rerank=False)
        warnings.update(set(hits.warnings))
        modes[query] = hits.mode
        found[query] = [(hit.vector_score, judged_id(hit, unit)) for hit in hits if hit.vector_score is not None]

    await each(texts, ask, progress)
    cosines = np.array([cosine for query in texts for cosine, _ in found[query]], dtype=np.float64)
    grades = [considered[query].get(identifier) for query in texts for _, identifier in found[query]]
    relevant = np.array([grade is not None and grade > 0 for grade in grades], dtype=np.bool_)
    numbers = np.repeat(np.arange(len(texts)), [len(found[query]) for query in texts])
    _refuse_too_few(int(relevant.sum()), len(relevant))
    slope, intercept = fitted(cosines, relevant)
    curve = ConfidenceCurve(
        slope=slope,
        intercept=intercept,
        identity_key=embedding.identity_key,
        model=embedding.model,
        mode=Counter(modes[query] for query in texts).most_common(1)[0][0],
        depth=depth,
        queries=len(texts),
        pairs=len(cosines),
        relevant=int(relevant.sum()),
        learned_at=utc_now(),
        figures=cross_validated(cosines, relevant, numbers, folds),
    )
    notes = await notes_on(retriever, considered, unit, warnings)
    if slope == 0:
        notes.append("a greater cosine does not mean more relevance here: every hit gets the same confidence")
    elif curve.figures.brier >= curve.figures.brier_base:
        notes.append("the confidences predict relevance no better than one value for all hits (Brier score)")
    return CalibrationReport(curve, grades.count(None), notes)


def check_queries(count: int) -> None:
    """Refuse to learn from too few queries."""
    if count < MIN_QUERIES:
        found = "1 judged query is" if count == 1 else f"{count} judged queries are"
        raise ConfigurationError(f"{found} too few for a calibration: judge {MIN_QUERIES} or more")


def _refuse_too_few(relevant: int, hits: int) -> None:
    if relevant < MIN_HITS:
        remedy = (
            "are the judged ids those of the collection's chunks, or paths of its files?"
            if not relevant
            else "judge more queries"
        )
        raise ConfigurationError(
            f"{relevant} of {hits:,} hits are judged relevant, too few for a calibration, which needs {MIN_HITS}: "
            f"{remedy}"
        )
    if hits - relevant < MIN_HITS:
        raise ConfigurationError(
            f"{hits - relevant} of {hits:,} hits are not relevant, too few for a calibration, which needs {MIN_HITS}: "
            "search deeper (--depth, depth= in Python), or judge more queries"
        )
