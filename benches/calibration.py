"""Confidence.

Curves of `semlex eval calibrate` on the English collections of `--data FOLDER`, static embeddings, first ten results.
Each fifth of the queries is judged by the curve of the other four. The baseline of the Brier score is one confidence
for all results; that of the area under ROC is the cosine.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex import PostgreSQLRetriever
from semlex.evaluation import calibrate, read_judged_set
from semlex.evaluation.calibrate import DEPTH, FOLDS, MIN_QUERIES, area, brier, calibration_error, fitted
from semlex.evaluation.datasets import read_corpus
from semlex.evaluation.evaluate import searchable
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench
    from semlex.evaluation import JudgedSet
    from semlex.types.confidence import ConfidenceCurve

    Curve = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

ERROR_BAR = 0.05
QUICK_QUERIES = 120
FOREIGN_QUERIES = 150


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits of all queries of a set: shape (n,) each.

    Attributes:
        queries: Number of the query.
        cosines: Of the hit.
        best: Greatest cosine of the query's hits.
        relevant: Whether it is judged so.
    """

    queries: NDArray[np.int64]
    cosines: NDArray[np.float64]
    best: NDArray[np.float64]
    relevant: NDArray[np.bool_]

    def __getitem__(self, chosen: Any) -> Hits:
        return Hits(self.queries[chosen], self.cosines[chosen], self.best[chosen], self.relevant[chosen])


def run(bench: Bench, *, quick: bool, state: Path, data: Path | None = None) -> None:
    """Takes the figures."""
    sets = {} if data is None else english_sets(data, QUICK_QUERIES if quick else None)
    if not sets:
        bench.unmeasured("calibration error", "", ERROR_BAR, "no judged set: name a folder of them with --data")
        return
    shutil.rmtree(state / "calibration", ignore_errors=True)
    with EmbeddedServer(state / "calibration") as server:
        for folder, judged in sets.items():
            foreign = {other.name: asked.queries for other, asked in sets.items() if other != folder}
            asyncio.run(measure(bench, server.url, folder, judged, foreign))


def english_sets(data: Path, limit: int | None) -> dict[Path, JudgedSet]:
    """The sets of a folder that can be calibrated, by their folders."""
    found = {}
    for path in sorted(data.glob("*/META.json")):
        if json.loads(path.read_text(encoding="utf-8"))["language"] == "en":
            judged = read_judged_set(path.parent).limited(limit)
            if len(judged.queries) >= MIN_QUERIES:
                found[path.parent] = judged
    return found


async def measure(bench: Bench, url: str, folder: Path, judged: JudgedSet, foreign: dict[str, dict[str, str]]) -> None:
    """One set: the curve as the command learns it, other curves, and what they say to questions of other sets."""
    name = folder.name
    async with PostgreSQLRetriever(url, "static", "none", collection="calibration", language="en") as retriever:
        await retriever.add_documents(list(read_corpus(folder)))
        curve = (await calibrate(retriever, judged.queries, judged.judgements)).curve
        hits = await hits_of(retriever, judged)
        report(bench, name, curve)
        for other, made in OTHERS.items():
            show_other(bench, f"{name}: {other}", hits, made)
        for asked, questions in foreign.items():
            texts = list(questions.values())[:FOREIGN_QUERIES]
            cosines = np.array([(await cosines_of(retriever, text)).max() for text in texts])
            for kind, made in {"": logistic, ", with the best hit": with_best_hit}.items():
                said = float(made(hits)(cosines, cosines).mean())
                bench.at_most(f"{name}: nearest hit of questions of {asked}{kind}", said, unit="confidence", bar=None)
        await retriever.drop_collection()


def report(bench: Bench, name: str, curve: ConfidenceCurve) -> None:
    """The figures that have bars."""
    figures = curve.figures
    assert figures.auc is not None
    assert figures.auc_cosine is not None
    bench.at_least(f"{name}: relevant hits", curve.relevant / curve.pairs, unit="of hits", bar=None)
    bench.at_most(f"{name}: calibration error", figures.ece, unit="", bar=ERROR_BAR)
    bench.at_most(f"{name}: Brier score", figures.brier, unit="", bar=None)
    bench.at_most(f"{name}: Brier score by that of the share", figures.brier / figures.brier_base, unit="x", bar=1)
    bench.at_least(f"{name}: area under ROC", figures.auc, unit="", bar=None)
    # Equal but for rounding: the curve rises, so it keeps the cosine's order.
    gain = figures.auc - figures.auc_cosine
    bench.at_least(f"{name}: area under ROC above the cosine's", round(gain, 9), unit="", bar=0)


async def cosines_of(retriever: PostgreSQLRetriever, text: str) -> NDArray[np.float64]:
    """Of the hits of a question."""
    found = await retriever.search(searchable(text)[0], DEPTH, rerank=False)
    return np.array([hit.vector_score for hit in found if hit.vector_score is not None])


async def hits_of(retriever: PostgreSQLRetriever, judged: JudgedSet) -> Hits:
    """The hits of a set's queries."""
    rows = []
    for number, (query, text) in enumerate(judged.queries.items()):
        found = await retriever.search(searchable(text)[0], DEPTH, rerank=False)
        known = [(hit.vector_score, hit.id) for hit in found if hit.vector_score is not None]
        best = max((cosine for cosine, _ in known), default=0.0)
        rows += [(number, cosine, best, judged.judgements[query].get(id_, 0) > 0) for cosine, id_ in known]
    numbers, cosines, best_ones, relevant = zip(*rows, strict=True)
    return Hits(np.array(numbers), np.array(cosines), np.array(best_ones), np.array(relevant))


def show_other(bench: Bench, name: str, hits: Hits, made: Callable[[Hits], Curve]) -> None:
    """Error, Brier score and area of another curve, held out; for comparison only."""
    parts = np.array_split(np.random.default_rng(1).permutation(np.unique(hits.queries)), FOLDS)
    confidences, areas = np.zeros(len(hits.cosines)), []
    for part in parts:
        out = np.isin(hits.queries, part)
        confidences[out] = made(hits[~out])(hits[out].cosines, hits[out].best)
        areas.append(area(confidences[out], hits[out].relevant))
    bench.at_most(f"{name}, calibration error", calibration_error(confidences, hits.relevant), unit="", bar=None)
    bench.at_most(f"{name}, Brier score", brier(confidences, hits.relevant), unit="", bar=None)
    bench.at_least(f"{name}, area under ROC", math.fsum(areas) / len(areas), unit="", bar=None)


def logistic(hits: Hits) -> Curve:
    """The curve that semlex learns."""
    slope, intercept = fitted(hits.cosines, hits.relevant)
    return lambda cosines, _: 1 / (1 + np.exp(-(slope * cosines + intercept)))


def isotonic(hits: Hits) -> Curve:
    """Pooled adjacent violators, straight between the cosines."""
    order = np.argsort(hits.cosines, kind="stable")
    blocks: list[list[float]] = []
    for is_relevant in hits.relevant[order].astype(float):
        blocks.append([is_relevant, 1.0])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            value, weight = blocks.pop()
            last = blocks[-1]
            last[0], last[1] = (last[0] * last[1] + value * weight) / (last[1] + weight), last[1] + weight
    values = np.repeat([value for value, _ in blocks], [int(weight) for _, weight in blocks])
    return lambda cosines, _: np.interp(cosines, hits.cosines[order], values)


def regression(columns: Callable[[Any, Any], list[Any]]) -> Callable[[Hits], Curve]:
    """Logistic regression on columns made of cosine and best cosine."""

    def made(hits: Hits) -> Curve:
        rows = np.stack(columns(hits.cosines, hits.best), axis=1)
        weights = np.zeros(rows.shape[1])
        for _ in range(50):
            expected = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
            curvature = (rows * (expected * (1 - expected))[:, None]).T @ rows + 1e-6 * np.eye(rows.shape[1])
            weights = weights - np.linalg.solve(curvature, rows.T @ (expected - hits.relevant) + 1e-6 * weights)
        return lambda cosines, best: 1 / (1 + np.exp(-np.stack(columns(cosines, best), axis=1) @ weights))

    return made


# Kull, Silva Filho and Flach, "Beta calibration", AISTATS 2017, of (1 + cosine) / 2.
beta = regression(
    lambda cosines, _: [np.ones(len(cosines)), np.log((1 + cosines) / 2), -np.log(np.maximum(1 - cosines, 1e-6) / 2)]
)
with_best_hit = regression(lambda cosines, best: [np.ones(len(cosines)), cosines, best])
OTHERS = {"isotonic": isotonic, "beta": beta, "with the best hit": with_best_hit}
