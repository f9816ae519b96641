"""The commands that measure a search: ``semlex eval``, ``semlex eval tune`` and ``semlex eval calibrate``."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.evaluation_output import print_calibration, print_evaluation, print_tuning
from semlex.cli.options import INT, HelpGroup, Reranker, RouteOption, whole_number_between
from semlex.cli.terminal import inform, messages
from semlex.errors import ConfigurationError, PrivilegeError
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.evaluation import CalibrationReport, JudgedSet, Report, TuningReport
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.documents import Document
    from semlex.types.queries import RouteBy

    OnProgress = Callable[[Progress], None]

Measured = TypeVar("Measured")

DEFAULT_COMMAND = "run"


class _DefaultCommand(HelpGroup):
    """A group whose first command needs no name: ``semlex eval DIR`` is ``semlex eval run DIR``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


evaluation_app = typer.Typer(
    help="Measure the search with judged queries: `semlex eval DIR`; choose the fusion's weight: `semlex eval tune "
    "DIR`; learn which similarity means relevant: `semlex eval calibrate DIR`. `semlex eval run --help` has the "
    "options.",
    cls=_DefaultCommand,
)

Folder = Annotated[
    Path | None,
    typer.Argument(help="Folder of a judged set: corpus.jsonl, queries.jsonl, qrels.tsv (BEIR), or TREC's files."),
]
ExistingCollection = Annotated[
    str | None,
    typer.Option("--collection", "-c", help="Measure this collection; nothing is written, the corpus is not read."),
]
Queries = Annotated[Path | None, typer.Option("--queries", help="File of the queries, instead of the folder's.")]
Qrels = Annotated[Path | None, typer.Option("--qrels", help="File of the judgements, instead of the folder's.")]
K = Annotated[
    int,
    typer.Option("--k", "-k", parser=whole_number_between(1, MAX_TOP_K), metavar=INT, help="Depth of the measures."),
]
LimitQueries = Annotated[
    int | None,
    typer.Option(
        "--limit-queries", parser=whole_number_between(1), metavar=INT, help="Measure a random choice of this many."
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the collection that was made of the corpus.")]


@dataclass(frozen=True, slots=True)
class _Target:
    """What is measured, and with what."""

    context: Context
    folder: Path | None
    collection: str | None
    queries: Path | None
    qrels: Path | None
    limit_queries: int | None
    keep: bool
    reranking: dict[str, Any]
    needs_model: str = ""

    def judged_set(self, *, unanswerable: bool = False) -> JudgedSet:
        """Queries and judgements."""
        from semlex.evaluation import read_judged_set

        if self.folder is None and (self.collection is None or self.queries is None or self.qrels is None):
            raise ConfigurationError("give the folder of a judged set, or --collection with --queries and --qrels")
        return read_judged_set(
            self.folder, queries=self.queries, judgements=self.qrels, unanswerable=unanswerable
        ).limited(self.limit_queries)

    def measured(self, measure: Callable[[PostgreSQLRetriever, OnProgress | None], Awaitable[Measured]]) -> Measured:
        """The result of `measure` on the opened collection."""

        async def work() -> Measured:
            async with self._opened() as retriever:
                with self.context.progress() as progress:
                    return await measure(retriever, progress)

        import asyncio

        return asyncio.run(work())

    def _documents(self) -> list[Document]:
        """The corpus, unless the collection is there already."""
        from semlex.evaluation.datasets import read_corpus

        return [] if self.collection is not None or self.folder is None else list(read_corpus(self.folder))

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[PostgreSQLRetriever]:
        """The collection to measure: the named one, or a new one with the corpus, dropped at the end."""
        from semlex.retriever.postgres import PostgreSQLRetriever

        documents = self._documents()
        name = self.collection or f"eval_{secrets.token_hex(6)}"
        settings = self.context.settings(collection=name, **self.reranking)
        options = settings.retriever_options | {"calibration": None}  # that of a file measures nothing
        async with PostgreSQLRetriever(**options, create=self.collection is None) as retriever:
            if not self.context.as_json:
                inform(f"[dim]{escape(retriever.embedding_choice)}[/dim]")
            if self.collection is not None:
                yield retriever
                return
            loaded = False
            try:
                if self.needs_model and retriever.embedder is None:
                    raise ConfigurationError(f"{self.needs_model}; no embedding model is open")
                with self.context.progress() as progress:
                    await retriever.add_documents(documents, progress=progress)
                loaded = True
                yield retriever
            finally:
                if self.keep and loaded:
                    messages.print(f"[dim]kept: --collection {name}[/dim]")
                else:
                    await retriever.drop_collection()


@evaluation_app.command(DEFAULT_COMMAND)
@with_context(*SERVER, *MODEL, "language", "chat_model")
def measure(
    context: Context,
    folder: Folder = None,
    *,
    collection: ExistingCollection = None,
    queries: Queries = None,
    qrels: Qrels = None,
    k: K = 10,
    fusion: Annotated[
        list[str] | None, typer.Option("--fusion", help="Fusion to measure; repeatable; default: all.")
    ] = None,
    rerank: Annotated[
        bool | None, typer.Option("--rerank/--no-rerank", help="Measure the reranker; default: when there is one.")
    ] = None,
    reranker: Reranker = None,
    route: RouteOption = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Write TREC run files: this name, the system's before the suffix.")
    ] = None,
    limit_queries: LimitQueries = None,
    keep: Keep = False,
) -> None:
    """Measure every leg, every fusion and the reranker with judged queries.

    The corpus of DIR is loaded into a collection of its own, which is dropped afterwards. With --collection an existing
    one is measured: its chunk ids, or the sources of its files, are what is judged.
    """
    from semlex.answering.routing import check_route
    from semlex.evaluation.evaluate import FUSIONS, evaluate
    from semlex.evaluation.runs import write_run

    check_route(route)
    unknown = sorted(set(fusion or ()) - set(FUSIONS))
    if unknown:
        raise ConfigurationError(f"--fusion must be one of {', '.join(FUSIONS)}; got {', '.join(unknown)}")
    if run is not None and not run.parent.is_dir():
        raise ConfigurationError(f"--run: there is no folder {run.parent}")
    fusions = [name for name in FUSIONS if not fusion or name in fusion]
    reranking = {"reranker_model": reranker, "use_reranking": rerank}
    target = _Target(context, folder, collection, queries, qrels, limit_queries, keep, reranking)
    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> Report:
        texts, judgements = judged.queries, judged.judgements
        by = cast("RouteBy | None", route)
        return await evaluate(
            retriever, texts, judgements, k=k, fusions=fusions, rerank=rerank, route=by, progress=progress
        )

    report = target.measured(work)
    print_evaluation(report, judged.left_out, as_json=context.as_json)
    if run is not None:
        for name, system in report.systems.items():
            write_run(run.with_name(f"{run.stem}.{name}{run.suffix}"), system.run, name)


@evaluation_app.command("tune")
@with_context(*SERVER, *MODEL, "language")
def tune_weight(
    context: Context,
    folder: Folder = None,
    *,
    collection: ExistingCollection = None,
    queries: Queries = None,
    qrels: Qrels = None,
    k: K = 10,
    folds: Annotated[
        int,
        typer.Option(
            "--folds", parser=whole_number_between(2), metavar=INT, help="Parts of the queries for cross-validation."
        ),
    ] = 5,
    limit_queries: LimitQueries = None,
    keep: Keep = False,
) -> None:
    """Suggest the vector leg's share in the fusion, and say how far to trust that.

    Every query is searched once. The weight is chosen on some of the queries and measured on the others; unless the
    gain is significant, the advice is to keep the default.
    """
    from semlex.evaluation import tune

    reranking = {"use_reranking": False}
    target = _Target(
        context, folder, collection, queries, qrels, limit_queries, keep, reranking, "tuning needs both legs"
    )
    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> TuningReport:
        return await tune(retriever, judged.queries, judged.judgements, k=k, folds=folds, progress=progress)

    report = target.measured(work)
    value = asdict(report) | {"warnings": [*judged.left_out, *report.warnings]}
    context.emit(value, lambda: print_tuning(report, judged.left_out))


@evaluation_app.command("calibrate")
@with_context(*SERVER, *MODEL, "language")
def calibrate_confidence(
    context: Context,
    folder: Folder = None,
    *,
    collection: ExistingCollection = None,
    queries: Queries = None,
    qrels: Qrels = None,
    depth: Annotated[
        int,
        typer.Option("--depth", parser=whole_number_between(1, MAX_TOP_K), metavar=INT, help="Hits of each query."),
    ] = 10,
    folds: Annotated[
        int,
        typer.Option(
            "--folds", parser=whole_number_between(2), metavar=INT, help="Parts of the queries for cross-validation."
        ),
    ] = 5,
    file: Annotated[
        Path | None, typer.Option("--output", help="Write the calibration into this file, not into the collection.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the calibration of --collection.")] = False,
    limit_queries: LimitQueries = None,
    keep: Keep = False,
) -> None:
    """Learn which similarity means "relevant with probability p", and keep that with the collection's vectors.

    Every hit of a later search then has a confidence. Hits without a judgement count as not relevant. The curve is
    judged by queries that it was not learned from; another embedding model needs another curve.
    """
    if drop:
        _drop_calibration(context, collection, given=(folder, queries, qrels, file))
        return
    if file is not None and not file.parent.is_dir():
        raise ConfigurationError(f"--output: there is no folder {file.parent}")
    from semlex.evaluation.calibrate import calibrate, check_queries
    from semlex.retriever.curve_file import write_curve

    reranking = {"use_reranking": False}
    target = _Target(
        context, folder, collection, queries, qrels, limit_queries, keep, reranking, "a calibration needs vectors"
    )
    judged = target.judged_set(unanswerable=True)
    check_queries(len(judged.queries))
    kept = "nothing was kept: --output FILE writes the calibration, --keep keeps the collection with it"

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> CalibrationReport:
        nonlocal kept
        name = retriever.names.collection
        stores = file is None and (collection is not None or keep)
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
                await retriever.store_calibration(report.curve)
            except PrivilegeError as error:
                raise ConfigurationError(f"{error}; --output FILE writes the calibration into a file instead") from None
            kept = f"kept with the vectors of {name}: its hits have a confidence now"
        return report

    report = target.measured(work)
    value = {
        "calibration": report.curve.to_dict(),
        "unjudged": report.unjudged,
        "kept": kept,
        "warnings": [*judged.left_out, *report.warnings],
    }
    context.emit(value, lambda: print_calibration(report, judged.left_out, kept))


def _drop_calibration(context: Context, collection: str | None, given: tuple[Path | None, ...]) -> None:
    if any(path is not None for path in given):
        raise ConfigurationError("--drop goes with --collection alone")
    named = {} if collection is None else {"collection": collection}
    with context.opened(context.settings(**named, embedding_model="none")) as retriever:
        info = retriever.info
        name, had = info.names.collection, info.embedding is not None and info.embedding.calibration is not None
        retriever.store_calibration(None)
    told = f"the calibration of {name} is dropped" if had else f"{name} has no calibration"
    context.emit({"collection": name, "dropped": had}, lambda: inform(told))
