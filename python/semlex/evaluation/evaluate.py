"""Measures every way of searching on the same judged queries, by rankings of judged documents."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, get_args

import numpy as np

from semlex.errors import ConfigurationError
from semlex.evaluation.metrics import measure_named, randomisation_p
from semlex.filters.tree import F, FilterTree
from semlex.ingest.progress import show_progress
from semlex.options.search import FusionMethod
from semlex.retriever.query_log import without_query_log
from semlex.retriever.synchronous import SyncRetriever
from semlex.types.queries import MAX_QUERY_BYTES, MAX_TOP_K, RouteBy
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from semlex.evaluation.metrics import Judgements, Run
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.results import SearchResult

FUSIONS: tuple[FusionMethod, ...] = get_args(FusionMethod)
RERANKED = "reranked"
ROUTED = "routed"
# These may call a model for every search, so they get no second, deeper search.
ONCE = (RERANKED, ROUTED)
DEEP = 100  # depth of the recall: hits that a reranker, or a reader of further pages, could still find
CONCURRENCY = 4  # searches under way at once: enough to keep the server and the model busy
Unit = Literal["chunk", "document"]
P = ParamSpec("P")
T = TypeVar("T")
_IDS_AT_ONCE = 1_000
_SHOWN = 5


def on_its_loop(
    measure: Callable[Concatenate[PostgreSQLRetriever, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PostgreSQLRetriever | SyncRetriever, P], Coroutine[Any, Any, T]]:
    """Let a measurement also accept a `SyncRetriever`, and run it on the event loop of that retriever."""

    @wraps(measure)
    async def run(retriever: PostgreSQLRetriever | SyncRetriever, *given: P.args, **options: P.kwargs) -> T:
        if isinstance(retriever, SyncRetriever):
            return await retriever.awaited(measure, retriever.asynchronous, *given, **options)
        return await measure(retriever, *given, **options)

    return cast("Callable[Concatenate[PostgreSQLRetriever | SyncRetriever, P], Coroutine[Any, Any, T]]", run)


async def judged_unit(retriever: PostgreSQLRetriever, judgements: Judgements) -> Unit:
    """Return ``chunk`` if one of the judged ids is the id of a stored chunk, else ``document``."""
    ids = _judged_ids(judgements)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        if await retriever.get(ids[start : start + _IDS_AT_ONCE]):
            return "chunk"
    return "document"


def _judged_ids(judgements: Judgements) -> list[str]:
    return list(dict.fromkeys(document for judged in judgements.values() for document in judged))


async def _absent_notes(retriever: PostgreSQLRetriever, judgements: Judgements, unit: Unit) -> list[str]:
    """Return a note on judged ids that the collection lacks; no search finds them, which lowers every figure."""
    judged = _judged_ids(judgements)
    present: set[str] = set()
    for start in range(0, len(judged), _IDS_AT_ONCE):
        ids = judged[start : start + _IDS_AT_ONCE]
        present |= {chunk.id for chunk in await retriever.get(ids) if chunk.id is not None}
        if unit == "document":
            present |= await _paths(retriever, F("@source_document").in_(ids))
    absent = [document for document in judged if document not in present]
    if not absent or not present:
        return []
    known = await _paths(retriever, None) if unit == "document" else set()
    shown = [_with_suggestion(document, known) for document in absent[:_SHOWN]]
    more = f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
    are = "1 judged document is" if len(absent) == 1 else f"{len(absent):,} judged documents are"
    return [f"{are} not in the collection: {', '.join(shown)}{more}"]


async def _paths(retriever: PostgreSQLRetriever, filters: FilterTree | None) -> set[str]:
    counted = await retriever.fields.facets(["@source_document"], filters, limit=_IDS_AT_ONCE)
    return {str(value.value) for value in counted["@source_document"].values}


def _with_suggestion(document: str, known: Iterable[str]) -> str:
    near = get_close_matches(document, known, n=1, cutoff=0.6)
    return f"{document} (did you mean {near[0]}?)" if near else document


def judged_id(hit: SearchResult, unit: Unit) -> str:
    """Return the id under which a hit is judged: the chunk's, or the document's path for chunks of files."""
    return hit.id if unit == "chunk" or hit.char_start is None else hit.source_document


def ranked_scores(hits: Sequence[SearchResult], unit: Unit) -> dict[str, float]:
    """Return judged id -> score, best first; a repeated id keeps its first place."""
    # A score that is not below the previous one in float32 is lowered to the next float, so that trec_eval keeps the
    # order.
    scores: dict[str, float] = {}
    previous = np.float32(np.inf)
    for hit in hits:
        identifier = judged_id(hit, unit)
        if identifier not in scores:
            with np.errstate(over="ignore"):
                score = min(np.float32(_score(hit)), np.nextafter(previous, np.float32(-np.inf)))
            scores[identifier] = float(score)
            previous = score
    return scores


def _score(hit: SearchResult) -> float:
    for score in (hit.mixed_score, hit.fused_score, hit.vector_score, hit.keyword_score):
        if score is not None:
            return score
    return 0.0


def searchable(text: str) -> tuple[str, bool]:
    """Return a query's text cut to the length that a search accepts, and whether it was cut."""
    cleaned = text.replace("\0", " ").strip()
    encoded = cleaned.encode(errors="replace")
    if len(encoded) <= MAX_QUERY_BYTES:
        return encoded.decode(), False
    return encoded[:MAX_QUERY_BYTES].decode(errors="ignore"), True


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run file for trec_eval: query, Q0, document, rank, score, tag; blanks in ids become ``_``."""
    try:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for query, scores in run.items():
                for rank, (document, score) in enumerate(scores.items(), start=1):
                    stream.write(f"{_column(query)} Q0 {_column(document)} {rank} {score:.9g} {_column(tag)}\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _column(text: str) -> str:
    return "_".join(text.split()) or "_"


@dataclass(frozen=True, slots=True)
class System:
    """One way of searching, with its measures."""

    name: str  # ``vector``, ``keyword``, the name of a fusion, ``reranked`` or ``routed``
    values: dict[str, NDArray[np.float64]]  # measure -> one value a query, shape (queries,)
    run: Run  # query -> document -> score: the results of a search for k, then further ones of a search for 100
    p: float | None  # two-sided, of the main measure against the baseline; None for the baseline

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
        """Return the greatest mean of a measure among the systems; None if no system has it."""
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
    the missing ones, without the reranker.

    Args:
        retriever: An open `PostgreSQLRetriever` or `SyncRetriever`.
        queries: Query id -> text.
        judgements: Query id -> document id -> relevance, from 1 relevant.
        k: Depth of the measures, 1 to 1,000.
        rerank: Whether to measure the reranker; None: if one is configured.
        judged: What the judged ids name: ``chunk``, or ``document`` (for files, `source_document` of hits; a document's
            best chunk counts). None: ``chunk`` if any of them is the id of a stored chunk, else ``document``.
        route: How the kind of a question is decided in routed searches. None: they are not measured.
        progress: Called after every query.

    Raises:
        ConfigurationError: No query is judged, k is out of range, or `rerank` without a reranker.
    """
    check_range("k", k, 1, MAX_TOP_K)
    texts, considered = judged_queries(queries, judgements)
    if not texts:
        raise ConfigurationError("no query is judged: queries and judgements have no query ids in common")
    reranker = None if rerank is False else await retriever.open_reranker()
    if rerank and reranker is None:
        raise ConfigurationError("to measure a reranker, name one (--reranker, reranker_model= in Python)")
    ways = ways_to_search(retriever, fusions, rerank=rerank)
    if route is not None:
        ways[ROUTED] = {"route": route, "rerank": None if RERANKED in ways else False}
    routes: Counter[str] = Counter()
    unit = judged or await judged_unit(retriever, considered)
    deep = max(k, DEEP)
    runs: dict[str, dict[str, dict[str, float]]] = {name: {query: {} for query in texts} for name in ways}
    warnings: Counter[str] = Counter()

    async def ask(query: str) -> None:
        text, cut = searchable(texts[query])
        found = {"the query is longer than a search accepts; its beginning was searched"} if cut else set()
        for name, options in ways.items():
            hits: list[SearchResult] = []
            for depth in (k,) if name in ONCE or deep == k else (k, deep):
                answer = await retriever.search(text, depth, **options)
                found.update(f"{name}: {warning}" for warning in answer.warnings)
                if answer.route is not None:
                    routes[answer.route.kind] += 1
                hits += answer
            runs[name][query] = ranked_scores(hits, unit)
        warnings.update(found)  # each once a query

    await each(texts, ask, progress)
    systems = _measured(runs, considered, k, deep)
    seen = {document for system in systems.values() for scores in system.run.values() for document in scores}
    notes = await notes_on(retriever, considered, unit, warnings)
    if not any(document in seen for judged_ids in considered.values() for document in judged_ids):
        notes.append(
            "no search found a judged document: are the judged ids those of the collection's chunks, or paths of its "
            "files?"
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
        raise ConfigurationError(
            "no search can be measured: the collection has no keyword engine, and it has no vectors or their embedding "
            "model is not open"
        )
    ways: dict[str, dict[str, Any]] = {leg: {"mode": leg, "rerank": False} for leg in legs}
    if len(legs) > 1:
        ways |= {name: {"mode": "hybrid", "fusion": name, "rerank": False} for name in fusions}
    if rerank or (rerank is None and retriever.reranker is not None):
        ways[RERANKED] = {"rerank": True}
    return ways


async def notes_on(
    retriever: PostgreSQLRetriever, judgements: Judgements, unit: Unit, warnings: Counter[str]
) -> list[str]:
    """Return notes on absent judged ids, on warnings of searches (text -> number of queries), and on cut texts."""
    notes = await _absent_notes(retriever, judgements, unit)
    notes += [f"{number} of {len(judgements)} queries: {text}" for text, number in warnings.items()]
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


def judged_queries(queries: Mapping[str, str], judgements: Judgements) -> tuple[dict[str, str], Judgements]:
    """Return the queries that have judgements, and their judgements."""
    texts = {query: text for query, text in queries.items() if judgements.get(query)}
    return texts, {query: judgements[query] for query in texts}


async def each(
    queries: Mapping[str, str],
    work: Callable[[str], Awaitable[None]],
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Call `work` for every query, a few at a time and without the query log; the first failure stops the rest."""
    waiting, done = iter(list(queries)), count(1)

    async def worker() -> None:
        for query in waiting:
            await work(query)
            show_progress(progress, "search", next(done), len(queries), "queries")

    with without_query_log():
        workers = [asyncio.create_task(worker()) for _ in range(CONCURRENCY)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
