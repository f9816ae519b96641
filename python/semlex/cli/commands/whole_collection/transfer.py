"""The commands that move whole collections: ``semlex dump`` and ``restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.output import print_note
from semlex.cli.terminal import counted, inform, one_line

if TYPE_CHECKING:
    from semlex.maintenance.dump import TransferReport

MIB = 1024 * 1024


@with_context("collection", ..., *SERVER)
def dump(
    context: Context, folder: Annotated[Path, typer.Argument(help="A folder that does not exist, or is empty.")]
) -> None:
    """Write a collection with its vectors into a folder of Parquet files."""
    with context.opened() as retriever, context.progress() as progress:
        report = retriever.dump(folder, progress=progress)
    context.emit(report, lambda: _show(report, "dumped to"))


@with_context("collection", ..., *SERVER, "keyword")
def restore(
    context: Context,
    folder: Annotated[Path, typer.Argument(help="What semlex dump has made.")],
    *,
    vector_storage: Annotated[
        str | None, typer.Option("--vector-storage", help="vector or halfvec.", show_default="as dumped")
    ] = None,
    build_indexes: Annotated[
        bool, typer.Option("--indexes/--no-indexes", help="Whether vector indexes are built at the end.")
    ] = True,
) -> None:
    """Make a collection from a dump: as a whole, or not at all."""
    given: dict[str, Any] = {
        "keyword": context.keyword,
        "vector_storage": vector_storage,
    }
    with context.client() as client, context.progress() as progress:
        report = client.restore(folder, context.collection, **given, build_indexes=build_indexes, progress=progress)
    context.emit(report, lambda: _show(report, "restored from"))


def _show(report: TransferReport, done: str) -> None:
    inform(
        f"{escape(one_line(report.collection))} {done} {escape(one_line(report.folder))}: "
        f"{counted(report.chunks, 'chunk')}, {counted(report.vectors, 'vector')}, "
        f"{counted(report.documents, 'document')}, {report.bytes / MIB:,.1f} MiB in {report.seconds:.1f} s"
    )
    for warning in report.warnings:
        print_note(warning)
