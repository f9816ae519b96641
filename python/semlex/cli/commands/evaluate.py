"""The commands that measure a search: ``semlex eval`` and ``semlex eval tune``."""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape

from semlex.cli.options import (
    INT,
    AsJson,
    Database,
    DataDir,
    Device,
    Dimensions,
    HelpGroup,
    KeepAlive,
    Language,
    Model,
    Reranker,
    whole_number_between,
)
from semlex.cli.output import print_json
from semlex.cli.progress_bar import progress_bar
from semlex.cli.terminal import inform, messages, output
from semlex.errors import ConfigurationError
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.evaluation import JudgedSet, Report, TuningReport
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.documents import Document

    Tell = Callable[[Progress], None]

Measured = TypeVar("Measured")

DEFAULT_COMMAND = "run"


class _DefaultCommand(HelpGroup):
    """A group whose first command needs no name: ``semlex eval DIR`` is ``semlex eval run DIR``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


evaluation_app = typer.Typer(
    help="Measure the search with judged queries: `semlex eval DIR`, or choose the fusion's weight: `semlex eval tune "
    "DIR`. `semlex eval run --help` has the options.",
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


def _settings(
    *,
    database: str | None,
    data_dir: Path | None,
    keep_alive: float | None,
    model: str | None,
    device: str | None,
    dimensions: int | None,
    language: str | None,
) -> dict[str, Any]:
    """The options that both commands have, by the names of `semlex.settings.load`; nothing is reranked."""
    return {
        "database_url": database,
        "data_dir": data_dir,
        "keep_alive": keep_alive,
        "embedding_model": model,
        "use_reranking": False,
        "device": device,
        "dimensions": dimensions,
        "language": language,
    }


@dataclass(frozen=True, slots=True)
class _Target:
    """What is measured, and with what."""

    folder: Path | None
    collection: str | None
    queries: Path | None
    qrels: Path | None
    limit_queries: int | None
    keep: bool
    as_json: bool
    settings: dict[str, Any]
    both_legs: bool = False

    def judged_set(self) -> JudgedSet:
        """Queries and judgements."""
        from semlex.evaluation import read_judged_set  # noqa: PLC0415 - `--help` should not load it

        if self.folder is None and (self.collection is None or self.queries is None or self.qrels is None):
            raise ConfigurationError("give the folder of a judged set, or --collection with --queries and --qrels")
        return read_judged_set(self.folder, queries=self.queries, judgements=self.qrels).limited(self.limit_queries)

    def measured(self, measure: Callable[[PostgreSQLRetriever, Tell | None], Awaitable[Measured]]) -> Measured:
        """What `measure` says of the opened collection."""

        async def work() -> Measured:
            async with self._opened() as retriever:
                with progress_bar(shown=not self.as_json) as progress:
                    return await measure(retriever, progress)

        import asyncio  # noqa: PLC0415 - `--help` should not load it

        return asyncio.run(work())

    def _documents(self) -> list[Document]:
        """The corpus, unless the collection is there already."""
        from semlex.evaluation.datasets import read_corpus  # noqa: PLC0415 - as above

        return [] if self.collection is not None or self.folder is None else list(read_corpus(self.folder))

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[PostgreSQLRetriever]:
        """The collection to measure: the named one, or a new one with the corpus, dropped at the end."""
        from semlex.retriever.postgres import PostgreSQLRetriever  # noqa: PLC0415 - loads the driver
        from semlex.settings.load import load_settings  # noqa: PLC0415 - `--help` should not load it

        documents = self._documents()
        name = self.collection or f"eval_{secrets.token_hex(6)}"
        settings = load_settings(collection=name, **self.settings)
        async with PostgreSQLRetriever(**settings.retriever_options, create=self.collection is None) as retriever:
            if not self.as_json:
                inform(f"[dim]{escape(retriever.embedding_choice)}[/dim]")
            if self.collection is not None:
                yield retriever
                return
            loaded = False
            try:
                if self.both_legs and retriever.embedder is None:
                    raise ConfigurationError("tuning needs both legs; no embedding model is open")
                with progress_bar(shown=not self.as_json) as progress:
                    await retriever.add_documents(documents, progress=progress)
                loaded = True
                yield retriever
            finally:
                if self.keep and loaded:
                    messages.print(f"[dim]kept: --collection {name}[/dim]")
                else:
                    await retriever.drop_collection()


@evaluation_app.command(DEFAULT_COMMAND)
def measure(
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
    run: Annotated[
        Path | None, typer.Option("--run", help="Write TREC run files: this name, the system's before the suffix.")
    ] = None,
    limit_queries: LimitQueries = None,
    keep: Keep = False,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    language: Language = None,
    as_json: AsJson = False,
) -> None:
    """Measure every leg, every fusion and the reranker with judged queries.

    The corpus of DIR is loaded into a collection of its own, which is dropped afterwards. With --collection an existing
    one is measured: its chunk ids, or the sources of its files, are what is judged.
    """
    from semlex.evaluation.evaluate import FUSIONS, evaluate  # noqa: PLC0415 - `--help` should not load it
    from semlex.evaluation.runs import write_run  # noqa: PLC0415 - as above

    unknown = sorted(set(fusion or ()) - set(FUSIONS))
    if unknown:
        raise ConfigurationError(f"--fusion must be one of {', '.join(FUSIONS)}; got {', '.join(unknown)}")
    if run is not None and not run.parent.is_dir():
        raise ConfigurationError(f"--run: there is no folder {run.parent}")
    fusions = [name for name in FUSIONS if not fusion or name in fusion]
    settings = _settings(
        database=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        model=model,
        device=device,
        dimensions=dimensions,
        language=language,
    )
    settings |= {"reranker_model": reranker, "use_reranking": rerank}
    target = _Target(folder, collection, queries, qrels, limit_queries, keep, as_json, settings)
    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: Tell | None) -> Report:
        texts, judgements = judged.queries, judged.judgements
        return await evaluate(retriever, texts, judgements, k=k, fusions=fusions, rerank=rerank, progress=progress)

    report = target.measured(work)
    _print_report(report, judged.left_out, as_json=as_json)
    if run is not None:
        for name, system in report.systems.items():
            write_run(run.with_name(f"{run.stem}.{name}{run.suffix}"), system.run, name)


@evaluation_app.command("tune")
def tune_weight(
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
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    language: Language = None,
    as_json: AsJson = False,
) -> None:
    """Suggest the vector leg's share in the fusion, and say how far to trust that.

    Every query is searched once. The weight is chosen on some of the queries and measured on the others; unless the
    gain is significant, the advice is to keep the default.
    """
    from semlex.evaluation import tune  # noqa: PLC0415 - `--help` should not load it

    settings = _settings(
        database=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        model=model,
        device=device,
        dimensions=dimensions,
        language=language,
    )
    target = _Target(folder, collection, queries, qrels, limit_queries, keep, as_json, settings, both_legs=True)
    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: Tell | None) -> TuningReport:
        return await tune(retriever, judged.queries, judged.judgements, k=k, folds=folds, progress=progress)

    report = target.measured(work)
    if as_json:
        print_json(asdict(report) | {"warnings": [*judged.left_out, *report.warnings]})
    else:
        _print_tuning(report)
        _print_notes(judged.left_out, report.warnings)


def _print_report(report: Report, left_out: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        for place, query in enumerate(report.queries):
            systems = {
                name: {measure: float(values[place]) for measure, values in system.values.items()}
                for name, system in report.systems.items()
            }
            print_json({"type": "query", "query_id": query, "systems": systems})
        figures = {
            name: {measure: system.mean(measure) for measure in report.measures} | {"p": system.p}
            for name, system in report.systems.items()
        }
        print_json(
            {
                "type": "summary",
                "queries": len(report.queries),
                "systems": figures,
                "baseline": report.baseline,
                "judged": report.judged,
                "embedding_model": report.embedding_model,
                "reranker_model": report.reranker_model,
                "warnings": [*left_out, *report.warnings],
            }
        )
        return
    from rich.table import Table  # noqa: PLC0415 - `semlex search` prints none

    table = Table("search", *report.measures, "p", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, system in report.systems.items():
        cells = [_cell(system.mean(measure), report.best(measure)) for measure in report.measures]
        table.add_row(name, *cells, "baseline" if system.p is None else f"{system.p:.4f}")
    output.print(table)
    models = " · ".join(escape(model) for model in (report.embedding_model, report.reranker_model) if model)
    count = len(report.queries)
    messages.print(f"[dim]{count} {'query' if count == 1 else 'queries'} · * best · {models or 'keywords only'}[/dim]")
    if len(report.systems) > 1:
        messages.print(
            f"[dim]p: chance of such a difference in {report.measures[0]} from {report.baseline}, the better leg, "
            "if there were none (paired randomisation, two-sided)[/dim]"
        )
    _print_notes(left_out, report.warnings)


def _print_notes(left_out: tuple[str, ...], warnings: list[str]) -> None:
    for note in (*left_out, *warnings):
        messages.print(f"[yellow]note:[/yellow] {escape(note)}")


def _cell(mean: float | None, best: float | None) -> str:
    if mean is None:
        return "-"
    return f"[bold]{mean:.4f}*[/bold]" if mean == best else f"{mean:.4f} "


def _print_tuning(report: TuningReport) -> None:
    low, high = report.interval
    measure = f"ndcg@{report.k}"
    if report.keep_default:
        output.print(f"[bold]keep the default weight {report.default:g}[/bold]: {escape(report.reason)}")
    else:
        output.print(f"[bold]weight {report.suggested:g} for the vector leg[/bold]: {escape(report.reason)}")
    lines = {
        "queries": str(report.queries),
        "fusion": report.fusion,
        f"{measure}, default": f"{report.default_ndcg:.4f}  (weight {report.default:g})",
        f"{measure}, better leg": f"{report.leg_ndcg:.4f}  ({report.better_leg})",
        f"{measure}, held out": f"{report.held_out:.4f}  (p {report.p_against_leg:.4f} against the better leg)",
        "gain over the default": f"{report.gain:+.4f}  (95 % interval {low:+.4f} to {high:+.4f}, p {report.p:.4f})",
        "weights of the folds": ", ".join(
            f"{weight:g}" + (f" x {count}" if count > 1 else "")
            for weight, count in sorted(Counter(report.fold_weights).items())
        ),
        "best on all queries": f"{report.best:g}  ({measure} {report.curve[report.best]:.4f}, not held out)",
    }
    for name, value in lines.items():
        output.print(f"{name:24} {value}")
