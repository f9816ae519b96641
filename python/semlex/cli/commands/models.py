"""List, change and complete the embeddings of a collection; download models."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.options import Yes, agree, whole_number
from semlex.cli.output import print_note, print_table
from semlex.cli.terminal import counted, inform, messages, one_line, output, resumable
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semlex.maintenance.reembed import EmbeddingFigures, ReembedReport
    from semlex.models.files import PulledModel


models_app = typer.Typer(help=__doc__, cls=group_with_default("list"))


@models_app.command("pull")
@with_context()
def pull(
    context: Context,
    name: Annotated[str, typer.Argument(help="Model of the hub, for example Qwen/Qwen3-Embedding-0.6B.")],
    *,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
) -> None:
    """Download a model from the hub into its local cache.

    Only data files are downloaded (safetensors, JSON, text). With the prefix onnx:, the ONNX file is downloaded
    instead of the safetensors. The same command resumes an interrupted download.
    """
    from semlex.models.files import pull_model

    with _download_bar(shown=not context.as_json) as (announce, progress):
        pulled = pull_model(name, revision=revision, announce=announce, progress=progress)
    value = asdict(pulled)
    folder = value.pop("folder")
    named = {"model": folder["name"], "revision": folder["revision"], "path": str(folder["path"])}
    context.emit(named | value, lambda: _print_pulled(pulled))


@models_app.command("known")
@with_context()
def known(context: Context) -> None:
    """List models that run without torch, with the extra onnx: size, licence, languages and speed.

    Embedders are for --model and rerankers for --reranker. The speed is that of one core, in texts of 250 tokens per
    second. The model static comes with the extra local. Its weights are derived from Llama 2, so that model's
    Community License applies to them.
    """
    from semlex.models.files import find_cached
    from semlex.models.model_names import KNOWN_MODELS, ONNX_PREFIX

    found = [
        {
            "model": f"{ONNX_PREFIX}{model.name}",
            "kind": model.kind,
            "size": f"{model.megabytes:,} MB",
            "licence": model.licence,
            "languages": model.languages,
            "texts_per_second": model.texts_per_second,
            "here": find_cached(model.name, weights="onnx") is not None,
        }
        for model in KNOWN_MODELS
    ]
    titles = ("model", "kind", "size", "licence", "languages", "texts/s", "here")
    rows = [
        [("yes" if value else "no") if isinstance(value, bool) else str(value) for value in entry.values()]
        for entry in found
    ]
    context.emit(found, lambda: print_table(titles, rows, {"size", "texts/s"}, header=context.header))


def _print_pulled(pulled: PulledModel) -> None:
    fetched = f", {decimal(pulled.bytes)} in {counted(pulled.files, 'file')}"
    size = fetched if pulled.files else " (the hub was not reachable)"
    messages.print(f"[dim]{escape(pulled.folder.name)} at {pulled.folder.revision}{size}[/dim]")
    output.print(escape(str(pulled.folder.path)))


@contextmanager
def _download_bar(*, shown: bool) -> Iterator[tuple[Callable[[int, int, int], None], Callable[[int], None]]]:
    """Show the size of the download on one line and, if stderr is a terminal, a bar of the bytes."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True, disable=not (shown and messages.is_terminal)) as bar:
        task = bar.add_task("fetching", total=None, visible=False)

        def announce(files: int, size: int, missing: int) -> None:
            if shown:
                messages.print(f"[dim]{decimal(size)} in {counted(files, 'file')}, {decimal(missing)} to fetch[/dim]")
            bar.update(task, total=missing, visible=missing > 0)

        yield announce, lambda arrived: bar.update(task, completed=arrived)


@models_app.command("fill")
@with_context("collection", *SERVER, *MODEL)
def fill(context: Context) -> None:
    """Compute missing vectors, without reading the files again."""
    with resumable(), context.opened(with_choice=True) as retriever, context.progress() as progress:
        written = retriever.embeddings.fill(progress=progress)
    context.emit({"embedded": written}, lambda: inform(f"{counted(written, 'chunk')} embedded"))


TITLES = ("version", "state", "model", "dimensions", "storage", "vectors", "lacking", "created", "size", "calibrated")
NUMBERS = {"version", "dimensions", "vectors", "lacking", "size"}


@models_app.command("set")
@with_context("collection", ..., *SERVER, "device", "dimensions", "tokenizer")
def set_model(
    context: Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="Embedding model: name, folder, server (openai:NAME, …) or static; default: that of your settings."
        ),
    ] = None,
    *,
    vector_storage: Annotated[
        str | None, typer.Option(help="vector or halfvec; default: as the vectors are stored now.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard the vectors of an interrupted run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
) -> None:
    """Change the embedding model of a collection, while it is searched and written.

    The new vectors are made beside the old ones, checked, and used from then on. Programs that are already running
    keep using the old vectors. The same command continues an interrupted run.
    """
    from semlex.models.model_names import leads_to

    settings = replace(context, embedding_model=model).settings()
    if settings.embedding_model is None:
        raise ConfigurationError("no model is named: semlex models set MODEL")
    at_server = leads_to(settings.embedding_model) == "server"
    # The collection is opened without the new model, whose vectors it does not hold yet.
    alone = replace(context, dimensions=None, tokenizer=None)
    with resumable(), alone.opened() as retriever, context.progress() as progress:
        report = retriever.embeddings.change(
            settings.embedding_model,
            dimensions=settings.dimensions,
            tokenizer=settings.tokenizer if at_server else context.tokenizer,
            vector_storage=vector_storage,  # type: ignore[arg-type]
            restart=restart,
            dry_run=dry_run,
            progress=progress,
        )
    context.emit(report, lambda: _print_reembedded(report))


@models_app.command()
@with_context("collection", ..., *SERVER, *MODEL)
def rollback(
    context: Context,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Roll back even if chunks lack a vector that cannot be computed.")
    ] = False,
) -> None:
    """Go back to the embeddings that were used before the last change."""
    alone = replace(context, embedding_model="none", dimensions=None, tokenizer=None)
    with resumable(), alone.opened() as retriever, context.progress() as progress:
        report = retriever.embeddings.roll_back(context.embedding_model, force=force, progress=progress)
    context.emit(report, lambda: _print_reembedded(report))


def _print_reembedded(report: ReembedReport) -> None:
    print_note(*report.warnings)
    model = f"{escape(one_line(report.model))}, {report.dimensions:,} dimensions, {report.storage}"
    if report.dry_run:
        begun = f", continuing version {report.version}" if report.resumed else ""
        messages.print(
            f"{report.embedded:,} of {counted(report.chunks, 'chunk')} would be embedded with {model}{begun}; nothing "
            "was done"
        )
        return
    recall = "" if report.recall is None else f"; the index finds {report.recall:.0%} of the 10 nearest vectors"
    inform(
        f"version {report.version} is in use now: {model}; {counted(report.embedded, 'chunk')} embedded in "
        f"{report.seconds:.1f} s{recall}"
    )
    if report.lacking:
        inform(f"{counted(report.lacking, 'chunk')} without a vector: only keyword search finds such chunks")
    if report.previous is not None:
        inform(
            f"version {report.previous} stays for programs that use its model: semlex models rollback goes back to it, "
            f"semlex models drop {report.previous} drops it"
        )


@models_app.command("list")
@with_context("collection", *SERVER)
def list_models(context: Context) -> None:
    """List the embeddings of a collection: their models, which are used, and how many chunks lack a vector."""
    with context.opened() as retriever:
        found = retriever.embeddings.list()
    context.emit([entry.to_dict() for entry in found], lambda: _print_versions(found, header=context.header))


@models_app.command()
@with_context("collection", ..., *SERVER)
def drop(
    context: Context,
    version: Annotated[
        int, typer.Argument(parser=whole_number, metavar="VERSION", help="Version, as `semlex models` lists it.")
    ],
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Drop them even if a process is filling them, or searched them within the last minute."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Drop embeddings that are not used any more."""
    with context.opened() as retriever:
        agree(f"Drop version {version} of the embeddings?", yes=yes)
        retriever.embeddings.drop(version, force=force)
    context.emit({"dropped": version}, lambda: inform(f"version {version} of the embeddings is dropped"))


def _print_versions(found: Sequence[EmbeddingFigures], *, header: bool) -> None:
    if not found:
        messages.print("no vectors: semlex models set MODEL makes them")
        return
    rows = [
        (
            str(entry.version),
            entry.state + (", running" if entry.is_running else ""),
            one_line(entry.model),
            f"{entry.dimensions:,}",
            entry.storage,
            f"{entry.vectors:,}",
            f"{entry.lacking:,}",
            f"{entry.created_at:%Y-%m-%d %H:%M}",
            f"{entry.bytes / 1e6:,.1f} MB",
            "-" if entry.calibration is None else str(entry.calibration.get("learned_at"))[:10],
        )
        for entry in found
    ]
    print_table(TITLES, rows, NUMBERS, header=header)
