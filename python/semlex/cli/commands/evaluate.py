"""Measure the search: with judged queries (`semlex eval DIR`), with the documents' headings, or by logged questions."""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.options import Flags, OptionsOf, Reranker, agree, integer
from semlex.cli.output import check_place, print_lines, print_note, write_page
from semlex.cli.reports import checkup_page, print_checkup
from semlex.cli.terminal import counted, inform, messages, one_line, output
from semlex.errors import ConfigurationError, PrivilegeError
from semlex.types.checkups import MAX_SAMPLE, MAX_SEED
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from semlex.evaluation import CalibrationReport, JudgedSet, Report, TuningReport
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.query_log import LoggedQuery, QueryLogSummary

    OnProgress = Callable[[Progress], None]

Measured = TypeVar("Measured")
evaluation_app = typer.Typer(help=__doc__, cls=group_with_default("run"))

K = Annotated[int, integer("Number of hits that are judged: k of nDCG@k.", "--k", "-k", between=(1, MAX_TOP_K))]
Folds = Annotated[int, integer("Number of folds in the cross-validation.", between=(2,))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The options that name what is measured: a judged set, or a collection with queries and judgements."""

    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of a judged set: corpus.jsonl, queries.jsonl, qrels.tsv (BEIR), or TREC's files."),
    ] = None
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", help="Measure this collection; nothing is written, and the corpus is not read."
        ),
    ] = None
    queries: Annotated[Path | None, typer.Option(help="File of the queries, instead of the folder's.")] = None
    qrels: Annotated[Path | None, typer.Option(help="File of the judgements, instead of the folder's.")] = None
    limit_queries: Annotated[int | None, integer("Measure a random sample of this many queries.", between=(1,))] = None
    keep: Annotated[bool, typer.Option("--keep", help="Keep the collection that is made from the corpus.")] = False

    def judged_set(self, *, unanswerable: bool = False) -> JudgedSet:
        """Read the queries and their judgements."""
        from semlex.evaluation import read_judged_set

        if self.folder is None and (self.collection is None or self.queries is None or self.qrels is None):
            raise ConfigurationError("give the folder of a judged set, or --collection with --queries and --qrels")
        return read_judged_set(
            self.folder, queries=self.queries, judgements=self.qrels, unanswerable=unanswerable
        ).limited(self.limit_queries)

    def measured(
        self,
        context: Context,
        measure: Callable[[PostgreSQLRetriever, OnProgress | None], Awaitable[Measured]],
        *,
        needs_model: str = "",
        **settings: Any,
    ) -> Measured:
        """Return the result of `measure` on the opened collection; `settings` take precedence over the command's."""

        async def work() -> Measured:
            async with self._opened(context, needs_model, settings) as retriever:
                with context.progress() as progress:
                    return await measure(retriever, progress)

        import asyncio

        return asyncio.run(work())

    @asynccontextmanager
    async def _opened(
        self, context: Context, needs_model: str, given: dict[str, Any]
    ) -> AsyncIterator[PostgreSQLRetriever]:
        """Open the collection to measure: the named one, or a temporary one with the corpus, dropped at the end."""
        from semlex.evaluation.datasets import read_corpus
        from semlex.retriever.postgres import PostgreSQLRetriever

        documents = [] if self.collection is not None or self.folder is None else list(read_corpus(self.folder))
        name = self.collection or f"eval_{secrets.token_hex(6)}"
        settings = context.settings(collection=name, **given)
        options = settings.retriever_options | {"calibration": None}  # a calibration from a file is not measured
        async with PostgreSQLRetriever(**options, create=self.collection is None) as retriever:
            if not context.as_json:
                inform(f"[dim]{escape(retriever.embedding_choice)}[/dim]")
            if self.collection is not None:
                yield retriever
                return
            loaded = False
            try:
                if needs_model and retriever.embedder is None:
                    raise ConfigurationError(f"{needs_model}, and no embedding model is open: name one with --model")
                with context.progress() as progress:
                    await retriever.add_documents(documents, progress=progress)
                loaded = True
                yield retriever
            finally:
                if self.keep and loaded:
                    messages.print(f"[dim]kept: --collection {name}[/dim]")
                else:
                    await retriever.drop_collection()


@evaluation_app.command("run", hidden=True)
@with_context(*SERVER, *MODEL, "language", "chat_model")
def measure(
    context: Context,
    *,
    target: Annotated[Target, OptionsOf(Target)],
    k: K = 10,
    fusion: Annotated[list[str] | None, typer.Option(help="Fusion to measure; repeatable; default: all.")] = None,
    rerank: Annotated[
        bool | None, typer.Option("--rerank/--no-rerank", help="Measure the reranker. Default: if one is configured.")
    ] = None,
    reranker: Reranker = None,
    options: Annotated[dict[str, Any], Flags("options.search:SearchArguments", only=("route",))],
    run: Annotated[
        Path | None,
        typer.Option(help="Write TREC run files with this name; the name of the system is added before the suffix."),
    ] = None,
) -> None:
    """Measure vector search, keyword search, every fusion and the reranker with judged queries.

    The corpus of DIR is loaded into a temporary collection. With --collection, an existing collection is
    measured: the judgements name its chunks by id, or its files by path.
    """
    from semlex.answering.questions import check_route
    from semlex.evaluation.evaluate import FUSIONS, evaluate, write_run
    from semlex.options.search import OLD_SCORE

    route: Any = options.get("route")
    check_route(route)
    fusion = ["score" if name == OLD_SCORE else name for name in fusion or ()]
    if unknown := sorted(set(fusion) - set(FUSIONS)):
        raise ConfigurationError(f"--fusion must be one of {', '.join(FUSIONS)}; got {', '.join(unknown)}")
    if run is not None and not run.parent.is_dir():
        raise ConfigurationError(f"--run: folder {run.parent} does not exist")
    fusions = [name for name in FUSIONS if not fusion or name in fusion]
    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> Report:
        texts, judgements = judged.queries, judged.judgements
        return await evaluate(
            retriever, texts, judgements, k=k, fusions=fusions, rerank=rerank, route=route, progress=progress
        )

    report = target.measured(context, work, reranker_model=reranker, use_reranking=rerank)
    context.emit(_objects(report, judged.left_out), lambda: print_evaluation(report, judged.left_out))
    if run is not None:
        for name, system in report.systems.items():
            write_run(run.with_name(f"{run.stem}.{name}{run.suffix}"), system.run, name)


@evaluation_app.command("tune")
@with_context(*SERVER, *MODEL, "language")
def tune_weight(
    context: Context,
    *,
    target: Annotated[Target, OptionsOf(Target)],
    k: K = 10,
    folds: Folds = 5,
) -> None:
    """Suggest the weight of the vector search in the fusion, and tell how far to trust the suggestion.

    Every query is searched once. The weight is chosen on some of the queries and measured on the others; unless the
    gain is significant, the advice is to keep the default.
    """
    from semlex.evaluation import tune

    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> TuningReport:
        return await tune(retriever, judged.queries, judged.judgements, k=k, folds=folds, progress=progress)

    report = target.measured(context, work, needs_model="tuning needs both searches", use_reranking=False)
    value = asdict(report) | {"warnings": [*judged.left_out, *report.warnings]}
    context.emit(value, lambda: print_tuning(report, judged.left_out))


@evaluation_app.command("calibrate")
@with_context(*SERVER, *MODEL, "language")
def calibrate_confidence(
    context: Context,
    *,
    target: Annotated[Target, OptionsOf(Target)],
    depth: Annotated[int, integer("Number of hits of each query to learn from.", between=(1, MAX_TOP_K))] = 10,
    folds: Folds = 5,
    file: Annotated[
        Path | None, typer.Option("--output", help="Write the calibration into this file instead of the collection.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the calibration of --collection.")] = False,
) -> None:
    """Learn which similarity means "relevant with probability p", and store that with the collection's vectors.

    Every hit of a later search then has a confidence. Hits without a judgement count as not relevant. The curve is
    tested with queries that it was not learned from. Another embedding model needs another curve.
    """
    if drop:
        _drop_calibration(context, target, file)
        return
    if file is not None and not file.parent.is_dir():
        raise ConfigurationError(f"--output: folder {file.parent} does not exist")
    from semlex.evaluation.calibrate import calibrate, check_queries
    from semlex.retriever.handle import write_curve

    judged = target.judged_set(unanswerable=True)
    check_queries(len(judged.queries))
    kept = "nothing was kept: --output FILE writes the calibration, --keep keeps the collection with it"

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> CalibrationReport:
        nonlocal kept
        name = retriever.names.collection
        stores = file is None and (target.collection is not None or target.keep)
        if stores and retriever.info.server.read_only:
            raise ConfigurationError(f"collection {name} cannot be written here: name a file with --output")
        report = await calibrate(
            retriever, judged.queries, judged.judgements, depth=depth, folds=folds, progress=progress
        )
        if file is not None:
            write_curve(file, report.curve)
            kept = f"written to {file}; --calibration FILE, or the setting calibration, uses it"
        elif stores:
            try:
                await retriever.embeddings.store_calibration(report.curve)
            except PrivilegeError as error:
                raise ConfigurationError(f"{error}; --output FILE writes the calibration into a file instead") from None
            kept = f"kept with the vectors of {name}: hits of this collection now have a confidence"
        return report

    report = target.measured(context, work, needs_model="a calibration needs vectors", use_reranking=False)
    value = {
        "calibration": report.curve.to_dict(),
        "unjudged": report.unjudged,
        "kept": kept,
        "warnings": [*judged.left_out, *report.warnings],
    }
    context.emit(value, lambda: print_calibration(report, judged.left_out, kept))


def _drop_calibration(context: Context, target: Target, file: Path | None) -> None:
    if any(path is not None for path in (target.folder, target.queries, target.qrels, file)):
        raise ConfigurationError("--drop accepts only --collection: leave the other options out")
    with context.opened(context.settings(collection=target.collection, embedding_model="none")) as retriever:
        info = retriever.info
        name, had = info.names.collection, info.embedding is not None and info.embedding.calibration is not None
        retriever.embeddings.store_calibration(None)
    told = f"the calibration of {name} is dropped" if had else f"{name} has no calibration"
    context.emit({"collection": name, "dropped": had}, lambda: inform(told))


SHOWN_DIGITS = 12


@evaluation_app.command()
@with_context("collection", ..., *SERVER)
def queries(
    context: Context,
    *,
    limit: Annotated[int, integer("Maximum number of questions per list.")] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all logged questions.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --clear: do not ask.")] = False,
) -> None:
    """Show logged questions: the most frequent ones, and those that found nothing.

    Questions are logged only if query_log is hash or text (SEMLEX_QUERY_LOG, or query_log= in Python).
    """
    with context.opened() as retriever:
        name = retriever.asynchronous.names.collection
        if clear:
            agree(f"Delete all logged questions of {name}?", yes=yes)
            cleared = retriever.queries.clear()
            done = f"{counted(cleared, 'question')} deleted"
            context.emit({"collection": name, "cleared": cleared}, lambda: inform(done))
            return
        summary = retriever.queries.summary(limit=limit)
    context.emit(summary.to_dict(), lambda: _print_summary(summary))


def _print_summary(summary: QueryLogSummary) -> None:
    if summary.oldest is None:
        messages.print("no logged questions: SEMLEX_QUERY_LOG=hash (or text) turns the log on")
        return
    since = f"{summary.oldest:%Y-%m-%d %H:%M} UTC"
    output.print(f"{counted(summary.logged, 'question')} since {since}, {summary.without_hits:,} of them without hits")
    _print_list("Most frequent", summary.most_asked)
    _print_list("Nothing was found", summary.nothing_found)


def _print_list(title: str, found: Sequence[LoggedQuery]) -> None:
    if not found:
        return
    output.print(f"\n[bold]{title}[/bold]")
    output.print("   asked  no hits  last                  question", style="dim")
    for one in found:
        last = f"{one.last_asked_at:%Y-%m-%d %H:%M} UTC"
        shown = f"(hash {one.query_hash[:SHOWN_DIGITS]})" if one.query is None else one_line(one.query)
        output.print(escape(f"{one.asked:8,} {one.without_hits:8,}  {last}  {shown}"))


ANNOUNCED_SECONDS = 5.0  # a checkup that takes longer is announced


@evaluation_app.command()
@with_context("collection", ..., *SERVER, "embedding_model", "device")
def checkup(
    context: Context,
    *,
    sample: Annotated[
        int | None,
        integer(
            "Maximum number of headings to ask. Default: 500 (200 with a slow model), until 60 s have passed.",
            "--sample",
            between=(1, MAX_SAMPLE),
        ),
    ] = None,
    seed: Annotated[
        int, integer("Seed of the sample: the same seed draws the same headings.", "--seed", between=(0, MAX_SEED))
    ] = 0,
    options: Annotated[dict[str, Any], Flags("options.search:SearchArguments", only=("mode",))],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Also write the report as an HTML page; an existing file is replaced."
        ),
    ] = None,
) -> None:
    """Report how well a collection can be searched, with its own headings as questions.

    Each heading should find the section below it. The heading is removed from that section first, in memory; nothing
    is written.
    """
    if html is not None:
        check_place(html, "--html")
    with context.opened() as retriever, context.progress() as progress:
        told = retriever.checkup(
            sample, seed=seed, **options, progress=progress, estimated=None if context.as_json else _announce
        )
    if html is not None:
        write_page(html, checkup_page(told), "--html")
    context.emit(told.to_dict(), lambda: print_checkup(told))
    if html is not None and not context.as_json:
        inform(f"[dim]written: {escape(one_line(str(html)))}[/dim]")


def _announce(seconds: float) -> None:
    if seconds >= ANNOUNCED_SECONDS:
        from semlex.progress import duration

        messages.print(f"[dim]this takes about {duration(seconds)}; --sample N draws fewer headings[/dim]")


def _objects(report: Report, left_out: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the measures of each query, then those of all queries together, as JSON objects."""
    of_queries = [
        {
            "type": "query",
            "query_id": query,
            "systems": {
                name: {measure: float(values[index]) for measure, values in system.values.items()}
                for name, system in report.systems.items()
            },
        }
        for index, query in enumerate(report.queries)
    ]
    of_all = {
        name: {measure: system.mean(measure) for measure in report.measures} | {"p": system.p}
        for name, system in report.systems.items()
    }
    names = ("baseline", "judged", "embedding_model", "reranker_model", "routes")
    summary = {"type": "summary", "queries": len(report.queries), "systems": of_all}
    summary |= {name: getattr(report, name) for name in names} | {"warnings": [*left_out, *report.warnings]}
    return [*of_queries, summary]


def print_evaluation(report: Report, left_out: tuple[str, ...]) -> None:
    """Print a line per system: its measures, and p of its difference from the better of vector and keyword search."""
    from rich.table import Table

    table = Table("search", *report.measures, "p", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, system in report.systems.items():
        cells = [_cell(system.mean(measure), report.best(measure)) for measure in report.measures]
        table.add_row(name, *cells, "baseline" if system.p is None else f"{system.p:.4f}")
    output.print(table)
    models = " · ".join(escape(model) for model in (report.embedding_model, report.reranker_model) if model)
    queries = counted(len(report.queries), "query", "queries")
    messages.print(f"[dim]{queries} · * best · {models or 'keywords only'}[/dim]")
    if len(report.systems) > 1:
        messages.print(
            f"[dim]p: probability that a difference this large in {report.measures[0]} from {report.baseline}, the "
            "better search, arises by chance (paired randomisation, two-sided)[/dim]"
        )
    if report.routes:
        counts = ", ".join(f"{number} {kind}" for kind, number in report.routes.items())
        messages.print(f"[dim]routed: {counts}[/dim]")
    print_note(*left_out, *report.warnings)


def _cell(mean: float | None, best: float | None) -> str:
    if mean is None:
        return "-"
    return f"[bold]{mean:.4f}*[/bold]" if mean == best else f"{mean:.4f} "


def print_tuning(report: TuningReport, left_out: tuple[str, ...]) -> None:
    """Print the advice on the fusion's weight, with the measures behind it."""
    low, high = report.interval
    measure = f"ndcg@{report.k}"
    if report.keep_default:
        output.print(f"[bold]keep the default weight {report.default:g}[/bold]: {escape(report.reason)}")
    else:
        output.print(f"[bold]weight {report.suggested:g} for vector search[/bold]: {escape(report.reason)}")
    lines = {
        "queries": str(report.queries),
        "fusion": report.fusion,
        f"{measure}, default": f"{report.default_ndcg:.4f}  (weight {report.default:g})",
        f"{measure}, better search": f"{report.leg_ndcg:.4f}  ({report.better_leg})",
        f"{measure}, held out": f"{report.held_out:.4f}  (p {report.p_against_leg:.4f} against the better search)",
        "gain over the default": f"{report.gain:+.4f}  (95 % interval {low:+.4f} to {high:+.4f}, p {report.p:.4f})",
        "weights of the folds": ", ".join(
            f"{weight:g}" + (f" x {count}" if count > 1 else "")
            for weight, count in sorted(Counter(report.fold_weights).items())
        ),
        "best on all queries": f"{report.best:g}  ({measure} {report.curve[report.best]:.4f}, not held out)",
    }
    print_lines(lines)
    print_note(*left_out, *report.warnings)


SHOWN_PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)


def print_calibration(report: CalibrationReport, left_out: tuple[str, ...], kept: str) -> None:
    """Print the learned curve, how good it is on other queries, and where it was stored."""
    curve, figures = report.curve, report.curve.figures
    share = curve.relevant / curve.pairs
    pairs, relevant = counted(curve.pairs, "hit"), counted(curve.relevant, "hit")
    judged = counted(curve.queries, "query", "queries")
    output.print(f"[bold]confidence = 1 / (1 + exp(-({curve.slope:.4g} x cosine {curve.intercept:+.4g})))[/bold]")
    reached = []
    for probability in SHOWN_PROBABILITIES:
        least = curve.similarity(probability)
        reached.append(f"{probability:g} " + ("never" if least is None else f"from {least:.3f}"))
    lines = {
        "model": curve.model,
        "learned from": f"{judged}, {pairs} to depth {curve.depth}, mode {curve.mode}",
        "relevant": f"{relevant} ({share:.1%}); {report.unjudged:,} without a judgement count as not relevant",
        "calibration error": f"{figures.ece:.4f}  (one confidence for all hits: {figures.ece_base:.4f})",
        "Brier score": f"{figures.brier:.4f}  (one confidence for all hits: {figures.brier_base:.4f})",
        "area under ROC": "unknown: no fold of the queries has both relevant and other hits"
        if figures.auc is None
        else f"{figures.auc:.4f}  (the cosine itself: {figures.auc_cosine:.4f})",
        "confidence by cosine": ", ".join(reached),
    }
    print_lines(lines)
    messages.print("[dim]errors and scores are of queries that the curve was not learned from[/dim]")
    messages.print(f"[dim]{escape(kept)}[/dim]")
    print_note(*left_out, *report.warnings)
