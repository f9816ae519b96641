"""Which cosine means "relevant with probability p" in a collection, learned from one's own judgements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError
from semlex.evaluation.confidence import cross_validated, fitted
from semlex.evaluation.evaluate import each, warning_notes
from semlex.evaluation.runs import absent_notes, judged_id, judged_unit, on_its_loop, searchable
from semlex.ingest.progress import Progress
from semlex.types.confidence import ConfidenceCurve
from semlex.types.documents import utc_now
from semlex.types.queries import MAX_TOP_K
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semlex.evaluation.metrics import Judgements
    from semlex.evaluation.runs import Unit
    from semlex.retriever.postgres import PostgreSQLRetriever

DEPTH = 10
FOLDS = 5
# With 10 queries the calibration error on other queries was .09, .05 and .03 on three judged sets, with 30 .07, .04 and
# .02 (docs/figures.md).
MIN_QUERIES = 30
# Of each kind: ten events a variable are the usual least for a logistic regression (Peduzzi et al., "A simulation study
# of the number of events per variable in logistic regression analysis", Journal of Clinical Epidemiology 49, 1996).
MIN_HITS = 10


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """What was learned.

    Attributes:
        curve: From a cosine to a probability; `Collection.store_calibration` keeps it.
        unjudged: Hits without a judgement, which count as not relevant.
        warnings: What a reader of the figures must know.
    """

    curve: ConfidenceCurve
    unjudged: int
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Hits:
    """Of one query: cosines, whether each hit is relevant, and how many of them were not judged."""

    cosines: list[float]
    relevant: list[bool]
    unjudged: int
    mode: str


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
    """Learns a curve from the hits of every query; nothing is stored.

    Each query is searched once, as a user searches without a reranker. A hit is relevant where it, or its document, is
    judged so; one without a judgement is not.
    """
    check_range("depth", depth, 1, MAX_TOP_K)
    check_range("folds", folds, 2)
    embedding, name = retriever.info.embedding, retriever.info.names.collection
    if retriever.embedder is None or embedding is None:
        raise ConfigurationError("a calibration needs cosines; no embedding model is open, or no vectors are stored")
    if retriever.info.distance.name != "cosine":
        raise ConfigurationError(
            f"a calibration is of cosines, and collection {name!r} compares by {retriever.info.distance.name}"
        )
    texts = {query: text for query, text in queries.items() if judgements.get(query)}
    check_queries(len(texts))
    considered = {query: judgements[query] for query in texts}
    unit = judged or await judged_unit(retriever, considered)
    found: dict[str, _Hits] = {}
    warnings: Counter[str] = Counter()

    async def ask(query: str) -> None:
        hits = await retriever.search(searchable(texts[query])[0], depth, rerank=False)
        warnings.update(set(hits.warnings))
        own = considered[query]
        with_cosine = [(hit.vector_score, judged_id(hit, unit)) for hit in hits if hit.vector_score is not None]
        found[query] = _Hits(
            [cosine for cosine, _ in with_cosine],
            [own.get(identifier, 0) > 0 for _, identifier in with_cosine],
            sum(identifier not in own for _, identifier in with_cosine),
            hits.mode,
        )
        if progress is not None:
            progress(Progress("search", len(found), len(texts), "queries"))

    await each(texts, ask)
    ordered = [found[query] for query in texts]
    cosines = np.array([cosine for hits in ordered for cosine in hits.cosines], dtype=np.float64)
    relevant = np.array([is_so for hits in ordered for is_so in hits.relevant], dtype=np.bool_)
    numbers = np.repeat(np.arange(len(ordered)), [len(hits.cosines) for hits in ordered])
    _refuse_too_few(int(relevant.sum()), len(relevant))
    slope, intercept = fitted(cosines, relevant)
    curve = ConfidenceCurve(
        slope=slope,
        intercept=intercept,
        identity_key=embedding.identity_key,
        model=embedding.model,
        mode=Counter(hits.mode for hits in ordered).most_common(1)[0][0],
        depth=depth,
        queries=len(texts),
        pairs=len(cosines),
        relevant=int(relevant.sum()),
        learned_at=utc_now(),
        figures=cross_validated(cosines, relevant, numbers, folds),
    )
    notes = [*await absent_notes(retriever, considered, unit), *warning_notes(retriever, warnings, len(texts))]
    if slope == 0:
        notes.append("a greater cosine is no better a sign here: every hit gets the same confidence")
    elif curve.figures.brier >= curve.figures.brier_base:
        notes.append("the confidences are no better than the share of relevant hits for all (Brier score)")
    return CalibrationReport(curve, sum(hits.unjudged for hits in ordered), notes)


def check_queries(count: int) -> None:
    """Refuses to learn from too few queries."""
    if count < MIN_QUERIES:
        found = "1 judged query is" if count == 1 else f"{count} judged queries are"
        raise ConfigurationError(f"{found} too few for a calibration: judge {MIN_QUERIES} or more")


def _refuse_too_few(relevant: int, hits: int) -> None:
    """Refuses hits out of which nothing can be learned."""
    if relevant < MIN_HITS:
        remedy = (
            "are the judged ids those of the collection's chunks or sources?" if not relevant else "judge more queries"
        )
        raise ConfigurationError(
            f"{relevant} of {hits:,} hits are judged relevant, too few for a calibration, which needs {MIN_HITS}: "
            f"{remedy}"
        )
    if hits - relevant < MIN_HITS:
        raise ConfigurationError(
            f"{hits - relevant} of {hits:,} hits are not relevant, too few for a calibration, which needs {MIN_HITS}: "
            "look deeper (--depth, depth= in Python), or judge more queries"
        )
