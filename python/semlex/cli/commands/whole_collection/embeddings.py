"""The commands about sets of vectors: ``semlex reembed`` and ``semlex embeddings``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.figures import print_table
from semlex.cli.options import INT, agree, whole_number
from semlex.cli.output import print_note
from semlex.cli.progress_bar import resumable
from semlex.cli.terminal import counted, inform, messages, one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.maintenance.reembed import EmbeddingFigures, ReembedReport
    from semlex.retriever.synchronous import SyncRetriever

TITLES = ("version", "state", "model", "dimensions", "storage", "vectors", "lacking", "created", "size", "calibrated")
NUMBERS = {"version", "dimensions", "vectors", "lacking", "size"}


@with_context("collection", *SERVER, *MODEL)
def reembed(
    context: Context,
    *,
    vector_storage: Annotated[
        str | None, typer.Option("--vector-storage", help="vector or halfvec; default: as the vectors are stored now.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Give up what an earlier run has made.")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the vectors that served before the last change.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --rollback: also where chunks lack a vector that cannot be made.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
) -> None:
    """Change the embedding model of a collection, while it is searched and written.

    The vectors of `--model` are made beside those that serve, looked at, and serve from then on. Who holds the old
    model goes on with the old vectors. A run that was ended is continued by the same command.
    """
    others = {"--restart": restart, "--dry-run": dry_run, "--vector-storage": vector_storage is not None}
    if rollback and (given := [name for name, value in others.items() if value]):
        raise ConfigurationError(f"--rollback has no {' and no '.join(given)}")
    if force and not rollback:
        raise ConfigurationError("--force goes with --rollback")
    # The collection is opened without the new model, whose vectors it does not hold yet.
    alone = replace(context, embedding_model="none", dimensions=None, tokenizer=None)
    with resumable(), alone.opened() as retriever:
        if rollback:
            with context.progress() as progress:
                report = retriever.rollback_embeddings(context.embedding_model, force=force, progress=progress)
        else:
            report = _changed(context, retriever, vector_storage, restart=restart, dry_run=dry_run)
    context.emit(report, lambda: _print_report(report))


def _changed(
    context: Context, retriever: SyncRetriever, vector_storage: str | None, *, restart: bool, dry_run: bool
) -> ReembedReport:
    from semlex.models.model_names import leads_to
    from semlex.parameters import storage_named

    settings = context.settings()
    model = settings.embedding_model
    if model is None:
        raise ConfigurationError("say which model the collection is to have: --model NAME")
    at_server = leads_to(model) == "server"
    with context.progress() as progress:
        return retriever.reembed(
            model,
            dimensions=settings.dimensions,
            tokenizer=settings.tokenizer if at_server else context.tokenizer,
            vector_storage=None if vector_storage is None else storage_named(vector_storage),
            restart=restart,
            dry_run=dry_run,
            progress=progress,
        )


def _print_report(report: ReembedReport) -> None:
    for warning in report.warnings:
        print_note(warning)
    model = f"{escape(one_line(report.model))}, {report.dimensions:,} dimensions, {report.storage}"
    if report.dry_run:
        begun = f", as version {report.version}, which was begun" if report.resumed else ""
        messages.print(
            f"{report.embedded:,} of {counted(report.chunks, 'chunk')} would be embedded with {model}{begun}; nothing "
            "was done"
        )
        return
    recall = "" if report.recall is None else f"; the index finds {report.recall:.0%} of the 10 nearest"
    inform(
        f"version {report.version} serves: {model}; {counted(report.embedded, 'chunk')} embedded in "
        f"{report.seconds:.1f} s{recall}"
    )
    if report.lacking:
        inform(f"{counted(report.lacking, 'chunk')} have no vector: words find them")
    if report.previous is not None:
        inform(
            f"version {report.previous} stays for those who hold its model: semlex reembed --rollback goes back to it, "
            f"semlex embeddings --drop {report.previous} drops it"
        )


@with_context("collection", ..., *SERVER)
def embeddings(
    context: Context,
    *,
    drop: Annotated[
        int | None, typer.Option("--drop", parser=whole_number, metavar=INT, help="Drop the vectors of this number.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --drop: although a process has used them within the last minute.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --drop: do not ask.")] = False,
) -> None:
    """List the sets of vectors of a collection: their models, which of them serves, and what they lack."""
    if drop is None and (force or yes):
        raise ConfigurationError("--force and --yes go with --drop")
    with context.opened() as retriever:
        if drop is not None:
            agree(f"Drop version {drop} of the vectors?", yes=yes)
            retriever.drop_embeddings(drop, force=force)
        found = retriever.embeddings()
    if drop is not None:
        context.emit({"dropped": drop}, lambda: inform(f"version {drop} of the vectors is dropped"))
        return
    context.emit([entry.to_dict() for entry in found], lambda: _print_versions(found, header=context.header))


def _print_versions(found: Sequence[EmbeddingFigures], *, header: bool) -> None:
    if not found:
        messages.print("no vectors: semlex reembed --model NAME, or semlex embed, makes them")
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
