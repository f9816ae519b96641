"""The commands that measure a search: ``semlex eval`` and ``semlex eval tune``."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.evaluation_output import print_evaluation, print_tuning
from semlex.cli.options import INT, HelpGroup, Reranker, whole_number_between
from semlex.cli.terminal import inform, messages
from semlex.errors import ConfigurationError
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.evaluation import JudgedSet, Report, TuningReport
    from semlex.ingest.progress import Progress
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.documents import Document

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
    both_legs: bool = False

    def judged_set(self) -> JudgedSet:
        """Queries and judgements."""
        from semlex.evaluation import read_judged_set

        if self.folder is None and (self.collection is None or self.queries is None or self.qrels is None):
            raise ConfigurationError("give the folder of a judged set, or --collection with --queries and --qrels")
        return read_judged_set(self.folder, queries=self.queries, judgements=self.qrels).limited(self.limit_queries)

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
        async with PostgreSQLRetriever(**settings.retriever_options, create=self.collection is None) as retriever:
            if not self.context.as_json:
                inform(f"[dim]{escape(retriever.embedding_choice)}[/dim]")
            if self.collection is not None:
                yield retriever
                return
            loaded = False
            try:
                if self.both_legs and retriever.embedder is None:
                    raise ConfigurationError("tuning needs both legs; no embedding model is open")
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
@with_context(*SERVER, *MODEL, "language")
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
    from semlex.evaluation.evaluate import FUSIONS, evaluate
    from semlex.evaluation.runs import write_run

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
        return await evaluate(retriever, texts, judgements, k=k, fusions=fusions, rerank=rerank, progress=progress)

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
    target = _Target(context, folder, collection, queries, qrels, limit_queries, keep, reranking, both_legs=True)
    judged = target.judged_set()

    async def work(retriever: PostgreSQLRetriever, progress: OnProgress | None) -> TuningReport:
        return await tune(retriever, judged.queries, judged.judgements, k=k, folds=folds, progress=progress)

    report = target.measured(work)
    value = asdict(report) | {"warnings": [*judged.left_out, *report.warnings]}
    context.emit(value, lambda: print_tuning(report, judged.left_out))
