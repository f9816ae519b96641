"""Measures every way of searching on the same judged queries."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from semlex.errors import ConfigurationError
from semlex.evaluation.metrics import measure_named, randomisation_p
from semlex.evaluation.runs import absent_notes, judged_unit, on_its_loop, ranked_scores, searchable
from semlex.ingest.progress import Progress
from semlex.options.search import FusionMethod
from semlex.retriever.query_log import without_query_log
from semlex.types.queries import MAX_TOP_K
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.evaluation.metrics import Judgements, Run
    from semlex.evaluation.runs import Unit
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.queries import RouteBy
    from semlex.types.results import SearchResult

FUSIONS: tuple[FusionMethod, ...] = get_args(FusionMethod)
RERANKED = "reranked"
ROUTED = "routed"
# They may ask a model for every search, so that they are not asked for deeper hits.
ONCE = (RERANKED, ROUTED)
DEEP = 100  # depth of the recall: what a reranker, or a reader who pages on, could still find
CONCURRENCY = 4  # searches under way at once: enough to keep the server and the model busy


@dataclass(frozen=True, slots=True)
class System:
    """One way of searching, with its measures."""

    name: str  # ``vector``, ``keyword``, the name of a fusion, ``reranked`` or ``routed``
    values: dict[str, NDArray[np.float64]]  # measure -> one value a query, shape (queries,)
    run: Run  # query -> document -> score: the results of a search for k, then what a search for 100 has besides
    p: float | None  # two-sided, of the main measure against the better leg; None for that leg itself

    def mean(self, measure: str) -> float | None:
        """Return the mean over the queries; None if this measure was not taken."""
        return float(self.values[measure].mean()) if measure in self.values else None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an evaluation."""

    queries: list[str]  # ids, in the order of all values
    measures: list[str]  # the first is the main one, which is tested
    systems: dict[str, System]
    baseline: str  # the better of vector and keyword search
    embedding_model: str | None
    reranker_model: str | None
    judged: Unit
    warnings: list[str]  # what a reader of the figures must know
    routes: dict[str, int] = field(default_factory=dict)  # queries of each kind, if the routed search was measured

    def best(self, measure: str) -> float | None:
        """Return the greatest mean of a measure."""
        means = [mean for system in self.systems.values() if (mean := system.mean(measure)) is not None]
        return max(means, default=None)


@on_its_loop
async def evaluate(
    retriever: PostgreSQLRetriever,
    queries: Mapping[str, str],
    judgements: Judgements,
    *,
    k: int = 10,
    fusions: Sequence[FusionMethod] = FUSIONS,
    rerank: bool | None = None,
    judged: Unit | None = None,
    route: RouteBy | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Search every query in every way and compare with the judgements.

    Each query is searched for k results, as a user would. For recall at 100, a second search for 100 results adds
    further ones, without the reranker.

    Args:
        retriever: An open `PostgreSQLRetriever` or `SyncRetriever`.
        queries: Query id -> text.
        judgements: Query id -> document id -> relevance, from 1 relevant.
        k: Depth of the measures, 1 to 1,000.
        rerank: Whether to measure the reranker; None: if one is configured.
        judged: Whether the judged ids are those of chunks or of documents (the source as hits show it; its best chunk
            counts); None: found out by looking them up.
        route: Whether to measure routed searches, too, and what decides the kind of a question.
        progress: Called after every search.

    Raises:
        ConfigurationError: No query is judged, k is out of range, or `rerank` without a reranker.
    """
    check_depth(k)
    texts = {query: text for query, text in queries.items() if judgements.get(query)}
    if not texts:
        raise ConfigurationError("no query is judged: queries and judgements have no ids in common")
    reranker = None if rerank is False else await retriever.open_reranker()
    if rerank and reranker is None:
        raise ConfigurationError("measuring the reranker needs one: name it with reranker_model=")
    considered = {query: judgements[query] for query in texts}
    ways = ways_to_search(retriever, fusions, rerank=rerank)
    if route is not None:
        ways[ROUTED] = {"route": route, "rerank": None if RERANKED in ways else False}
    routes: Counter[str] = Counter()
    unit = judged or await judged_unit(retriever, considered)
    deep = max(k, DEEP)
    runs: dict[str, dict[str, dict[str, float]]] = {name: {query: {} for query in texts} for name in ways}
    warnings: Counter[str] = Counter()
    done = 0

    async def ask(query: str) -> None:
        nonlocal done
        text, cut = searchable(texts[query])
        found = {"the query is longer than a search accepts; its beginning was searched"} if cut else set()
        for name, options in ways.items():
            hits: list[SearchResult] = []
            for depth in (k,) if name in ONCE or deep == k else (k, deep):
                with without_query_log():
                    answer = await retriever.search(text, depth, **options)
                found.update(f"{name}: {warning}" for warning in answer.warnings)
                if answer.route is not None:
                    routes[answer.route.kind] += 1
                hits += answer
            runs[name][query] = ranked_scores(hits, unit)
        warnings.update(found)  # each once a query
        done += 1
        if progress is not None:
            progress(Progress("search", done, len(texts), "queries"))

    await each(texts, ask)
    systems = _measured(runs, considered, k, deep)
    seen = {document for system in systems.values() for scores in system.run.values() for document in scores}
    notes = [*await absent_notes(retriever, considered, unit), *warning_notes(retriever, warnings, len(texts))]
    if not any(document in seen for judged_ids in considered.values() for document in judged_ids):
        notes.append(
            "none of the judged documents was ever found: are their ids those of the collection's chunks or sources?"
        )
    embedding = retriever.info.embedding
    return Report(
        queries=list(texts),
        measures=measure_names(k, deep),
        systems=systems,
        baseline=next(name for name, system in systems.items() if system.p is None),
        embedding_model=embedding.model if embedding is not None and "vector" in systems else None,
        reranker_model=reranker.identity if reranker is not None and RERANKED in systems else None,
        judged=unit,
        warnings=notes,
        routes=dict(sorted(routes.items())),
    )


def ways_to_search(
    retriever: PostgreSQLRetriever, fusions: Sequence[FusionMethod], *, rerank: bool | None
) -> dict[str, dict[str, Any]]:
    """Return the options of `PostgreSQLRetriever.search` for every way that the collection allows, by name."""
    legs = []
    if retriever.info.embedding is not None and retriever.embedder is not None:
        legs.append("vector")
    if retriever.info.settings.keyword_engine != "none":
        legs.append("keyword")
    if not legs:
        raise ConfigurationError("there is nothing to measure: no embedding model is open, and no keyword engine")
    ways: dict[str, dict[str, Any]] = {leg: {"mode": leg, "rerank": False} for leg in legs}
    if len(legs) > 1:
        ways |= {name: {"mode": "hybrid", "fusion": name, "rerank": False} for name in fusions}
    if rerank or (rerank is None and retriever.reranker is not None):
        ways[RERANKED] = {"rerank": True}
    return ways


def check_depth(k: int) -> None:
    """Raise `ConfigurationError` if a search cannot return this many results."""
    check_range("k", k, 1, MAX_TOP_K)


def warning_notes(retriever: PostgreSQLRetriever, warnings: Counter[str], queries: int) -> list[str]:
    """Return the searches' warnings (text -> number of queries), and a note on texts that the model cut."""
    notes = [f"{count} of {queries} queries: {text}" for text, count in warnings.items()]
    if cut := getattr(retriever.embedder, "documents_cut", 0):
        notes.append(f"{cut} texts exceed the model's limit: only their beginning was embedded")
    return notes


def measure_names(k: int, deep: int = DEEP) -> list[str]:
    """Return the measures of a report, the main one first."""
    names = [f"ndcg@{k}", f"recall@{k}", f"mrr@{k}", f"success@{min(3, k)}"]
    return [*names, f"recall@{deep}"] if deep > k else names


def _measured(runs: Mapping[str, Run], judgements: Judgements, k: int, deep: int) -> dict[str, System]:
    values: dict[str, dict[str, NDArray[np.float64]]] = {name: {} for name in runs}
    for name, run in runs.items():
        for measure in measure_names(k, deep):
            function, depth = measure_named(measure)
            if depth <= k or name not in ONCE:
                values[name][measure] = function(run, judgements, depth)
    main = measure_names(k)[0]
    legs = [name for name in runs if name in ("vector", "keyword")]
    baseline = max(legs, key=lambda name: values[name][main].mean())
    return {
        name: System(
            name,
            values[name],
            run,
            None if name == baseline else randomisation_p(values[name][main], values[baseline][main]),
        )
        for name, run in runs.items()
    }


async def each(queries: Mapping[str, str], work: Callable[[str], Awaitable[None]]) -> None:
    """Run the work on every query, a few at a time; the first failure ends all."""
    waiting = iter(list(queries))

    async def worker() -> None:
        for query in waiting:
            await work(query)

    workers = [asyncio.create_task(worker()) for _ in range(CONCURRENCY)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
