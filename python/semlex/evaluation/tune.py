"""Finds the weight of vector search that suits your judgements best, and how far that can be trusted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

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
from semlex.evaluation.metrics import bootstrap_interval, discounts, ideal_gains, randomisation_p
from semlex.search.fusion import DEFAULT_VECTOR_WEIGHT
from semlex.types.queries import MAX_TOP_K
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from semlex.evaluation.metrics import Judgements
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.results import SearchMode, SearchResults

WeightedFusion = Literal["score", "linear"]
GRID = np.round(np.arange(21) * 0.05, 2)
# Deep enough for the first ten of every weight. A search returns as many hits as one leg has candidates, the best of
# both: with half as many, nDCG@10 of one leg alone was off by 0.001 in one of three judged sets.
CANDIDATES = 400
FOLDS = 5
# With fewer queries, a gain of a few points may as well be luck; the advice is then to keep the default weight.
MIN_QUERIES = 30
MAX_P_VALUE = 0.05
LEGS: tuple[SearchMode, ...] = ("keyword", "vector")
_SEED = 1


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The weight of vector search that the judgements suggest, with the figures behind it."""

    queries: int
    k: int  # depth of nDCG
    fusion: WeightedFusion
    suggested: float  # the best on all queries, or the default unless it is shown to be worse
    best: float  # with the greatest mean nDCG on all queries
    default: float
    keep_default: bool
    reason: str
    curve: dict[float, float]  # weight -> mean nDCG on all queries, not held out
    held_out: float  # mean nDCG of queries under the weight that was chosen without them
    default_ndcg: float
    leg_ndcg: float
    better_leg: str
    gain: float  # `held_out` minus `default_ndcg`
    interval: tuple[float, float]  # 95 % bootstrap interval of the gain
    p: float  # two-sided, of a paired randomisation test of the gain
    p_against_leg: float  # of `held_out` against the better leg
    fold_weights: list[float]  # chosen by each fold without its own queries
    warnings: list[str] = field(default_factory=list)


# The fused score is a weighted sum of a keyword part and a vector part, so each query is searched once and then fused
# with every weight without the server.
@dataclass(frozen=True, slots=True)
class Parts:
    """One query's candidates with the two parts of their scores: at weight w, (1 - w) * keyword + w * vector."""

    ids: list[str]  # judged ids
    keyword: NDArray[np.float64]
    vector: NDArray[np.float64]
    ranks: NDArray[np.float64]  # in keyword and in vector search, shape (2, n); NaN if not found
    warnings: list[str] = field(default_factory=list)


@on_its_loop
async def tune(
    retriever: PostgreSQLRetriever,
    queries: Mapping[str, str],
    judgements: Judgements,
    *,
    fusion: WeightedFusion = "score",
    k: int = 10,
    folds: int = FOLDS,
    judged: Unit | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> TuningReport:
    """Suggest a weight of vector search for the fused score, by searching every query once; nothing is stored."""
    texts, considered = judged_queries(queries, judgements)
    if min(folds, len(texts)) < 2:  # noqa: PLR2004 - nothing could be held out
        raise ConfigurationError(f"tuning needs at least 2 folds and 2 judged queries; got {folds} and {len(texts)}")
    check_range("k", k, 1, MAX_TOP_K)
    if retriever.embedder is None or retriever.info.embedding is None:
        raise ConfigurationError(
            "tuning needs vector search, but the collection has no vectors or their embedding model is not open"
        )
    if retriever.info.settings.keyword_engine == "none":
        raise ConfigurationError("tuning needs keyword search, but the collection was made without a keyword engine")
    # Some embedders declare what suits them.
    usual = getattr(retriever.embedder, "fusion_weight", DEFAULT_VECTOR_WEIGHT)
    unit = judged or await judged_unit(retriever, considered)
    found: dict[str, Parts] = {}

    async def ask(query: str) -> None:
        found[query] = await search_parts(retriever, searchable(texts[query])[0], fusion, max(k, CANDIDATES), unit)

    await each(texts, ask, progress)
    values = np.array([ndcg_by_weight(found[query], considered[query], k) for query in texts])
    legs = np.array([ndcg_of_legs(found[query], considered[query], k) for query in texts])
    warnings = Counter(warning for parts in found.values() for warning in set(parts.warnings))
    report = choose_weight(values, legs, fusion=fusion, k=k, default=usual, folds=folds)
    return replace(report, warnings=await notes_on(retriever, considered, unit, warnings))


async def search_parts(
    retriever: PostgreSQLRetriever, text: str, fusion: WeightedFusion, candidates: int, unit: Unit
) -> Parts:
    """Return one query's candidates with the two parts of their fused scores."""
    if fusion == "linear":
        legs = [await retriever.search(text, candidates, mode=mode, rerank=False) for mode in LEGS]
        judged = {hit.id: judged_id(hit, unit) for leg in legs for hit in leg}
        parts = linear_parts([_leg_scores(leg) for leg in legs])
        warnings = [warning for leg in legs for warning in leg.warnings]
        return replace(parts, ids=[judged[chunk] for chunk in parts.ids], warnings=warnings)
    hits = await retriever.search(
        text,
        candidates,
        mode="hybrid",
        fusion=fusion,
        tuning={"candidates": candidates},
        weights={"vector": DEFAULT_VECTOR_WEIGHT},  # any that leaves something of both parts
        rerank=False,
    )
    ids = [judged_id(hit, unit) for hit in hits]
    by_leg = [[hit.keyword_rank for hit in hits], [hit.vector_rank for hit in hits]]
    ranks = np.array(by_leg, dtype=np.float64)  # None becomes NaN
    if hits.fusion is None:  # one leg answered alone
        keyword, vector = _column(hit.keyword_score for hit in hits), _column(hit.vector_score for hit in hits)
    else:
        keyword = _column(hit.keyword_contribution for hit in hits) / (1 - DEFAULT_VECTOR_WEIGHT)
        vector = _column(hit.vector_contribution for hit in hits) / DEFAULT_VECTOR_WEIGHT
    return Parts(ids, keyword, vector, ranks, hits.warnings)


def _column(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([value or 0.0 for value in values], dtype=np.float64)


def _leg_scores(leg: SearchResults) -> dict[str, float]:
    """Return chunk id -> score of one search."""
    scores = ((hit.id, hit.keyword_score if leg.mode == "keyword" else hit.vector_score) for hit in leg)
    return {chunk: score for chunk, score in scores if score is not None}


def linear_parts(legs: Sequence[Mapping[str, float]]) -> Parts:
    """Return the parts for linear fusion: each search's scores scaled to 0..1, and 0 for chunks it did not find."""
    ids = sorted(set().union(*legs))
    parts = []
    for leg in legs:
        least, greatest = min(leg.values(), default=0.0), max(leg.values(), default=0.0)
        width = greatest - least
        scaled = {name: (score - least) / width if width else 1.0 for name, score in leg.items()}
        parts.append(np.array([scaled.get(name, 0.0) for name in ids], dtype=np.float64))
    keyword, vector = parts
    by_leg = [{name: rank for rank, name in enumerate(leg, start=1)} for leg in legs]
    ranks = np.array([[found.get(name, np.nan) for name in ids] for found in by_leg], dtype=np.float64)
    return Parts(ids, keyword, vector, ranks)


def ndcg_by_weight(parts: Parts, judged: Mapping[str, int], k: int) -> NDArray[np.float64]:
    """Return nDCG at every weight of the grid, shape (21,). If a document has several chunks, its best one counts."""
    weights = GRID[:, None]
    return _ndcg(parts, judged, k, (1 - weights) * parts.keyword + weights * parts.vector)


def ndcg_of_legs(parts: Parts, judged: Mapping[str, int], k: int) -> NDArray[np.float64]:
    """Return nDCG of keyword search and of vector search alone, shape (2,)."""
    return _ndcg(parts, judged, k, -parts.ranks)


def _ndcg(parts: Parts, judged: Mapping[str, int], k: int, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return nDCG of each row of scores, shape (rows, candidates); NaN means that the candidate was not found."""
    names: dict[str, int] = {}
    numbers = np.array([names.setdefault(name, len(names)) for name in parts.ids], dtype=np.int64)
    gains = np.array([max(0, judged.get(name, 0)) for name in names], dtype=np.float64)
    weights = discounts(k)
    ideal = float((ideal_gains({"": judged}, k) @ weights)[0])
    values = np.zeros(len(scores))
    if not ideal:
        return values
    for row, of_row in enumerate(scores):
        order = np.argsort(-of_row, kind="stable")
        ranked = numbers[order[~np.isnan(of_row[order])]]
        first = np.sort(np.unique(ranked, return_index=True)[1])[:k]
        values[row] = gains[ranked[first]] @ weights[: len(first)] / ideal
    return values


def choose_weight(
    values: NDArray[np.float64],
    legs: NDArray[np.float64],
    *,
    fusion: WeightedFusion,
    k: int,
    default: float = DEFAULT_VECTOR_WEIGHT,
    folds: int = FOLDS,
) -> TuningReport:
    """Choose a weight by cross-validation, from `values`, nDCG by query and weight: (queries, 21)."""
    count = len(values)
    usual = int(np.abs(GRID - default).argmin())
    parts = np.array_split(np.random.default_rng(_SEED).permutation(count), min(folds, count))
    held_out = np.zeros(count)
    chosen = []
    for part in parts:
        rest = np.setdiff1d(np.arange(count), part)
        weight = _best(values[rest], usual)
        held_out[part] = values[part, weight]
        chosen.append(float(GRID[weight]))
    means = values.mean(axis=0)
    best = _best(values, usual)
    leg = int(legs.mean(axis=0).argmax())
    gain = float((held_out - values[:, usual]).mean())
    p = randomisation_p(held_out, values[:, usual])
    if count < MIN_QUERIES:
        reason = f"{count} judged queries are too few to choose a weight: judge {MIN_QUERIES} or more"
    elif best == usual:
        reason = "no other weight is better on these queries"
    elif gain <= 0:
        reason = "a weight that was chosen on one part of the queries is not better on the rest"
    elif p >= MAX_P_VALUE:
        reason = f"the gain may be chance (p {p:.2f})"
    else:
        reason = ""
    return TuningReport(
        queries=count,
        k=k,
        fusion=fusion,
        suggested=float(GRID[usual if reason else best]),
        best=float(GRID[best]),
        default=float(GRID[usual]),
        keep_default=bool(reason),
        reason=reason or f"on queries that were not used to choose the weight, nDCG rises by {gain:.3f} (p {p:.3f})",
        curve={float(weight): float(mean) for weight, mean in zip(GRID, means, strict=True)},
        held_out=float(held_out.mean()),
        default_ndcg=float(means[usual]),
        leg_ndcg=float(legs[:, leg].mean()),
        better_leg=LEGS[leg],
        gain=gain,
        interval=bootstrap_interval(held_out, values[:, usual]),
        p=p,
        p_against_leg=randomisation_p(held_out, legs[:, leg]),
        fold_weights=chosen,
    )


def _best(values: NDArray[np.float64], usual: int) -> int:
    """Return the column with the greatest mean; of ties, the nearest to the default weight."""
    means = values.mean(axis=0)
    equal = np.flatnonzero(means >= means.max() - 1e-12)  # equal but for the order of the sums
    return int(equal[np.abs(equal - usual).argmin()])
