"""The commands that move rows: ``semlex import``, ``dump`` and ``restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.terminal import counted, inform, messages, one_line

if TYPE_CHECKING:
    from semlex.maintenance.dump import TransferReport

MIB = 1024 * 1024


@with_context("collection", ..., *SERVER, *MODEL, "keyword", "language")
def import_rows(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Parquet or JSON Lines files, or folders of them.")],
    *,
    text_field: Annotated[str, typer.Option("--text-field", help="The text.")] = "text",
    vector_field: Annotated[str, typer.Option("--vector-field", help="Its vector.")] = "vector",
    id_field: Annotated[
        str | None, typer.Option("--id-field", help="What names a row.", show_default="id, if there is one")
    ] = None,
    metadata_fields: Annotated[
        list[str] | None,
        typer.Option("--metadata-field", help="A field that becomes metadata.", show_default="all others"),
    ] = None,
    metadata_field: Annotated[
        str, typer.Option("--merged-field", help="A field of objects whose keys become metadata.")
    ] = "metadata",
    on_duplicate: Annotated[
        str, typer.Option("--on-duplicate", help="Of an id that is stored: update, skip or fail.")
    ] = "update",
) -> None:
    """Load rows that bring their vectors, from Parquet or JSON Lines; nothing is cut or embedded."""
    settings = context.settings()
    if not settings.is_set("embedding_model"):
        # Their vectors are somebody else's; which model made them is the user's to say.
        settings = context.settings(embedding_model="none")
    with context.opened(settings, create=True) as retriever, context.progress() as progress:
        options: dict[str, Any] = {"on_duplicate": on_duplicate, "progress": progress}
        report = retriever.load_vectors(
            paths,
            text_field=text_field,
            vector_field=vector_field,
            id_field=id_field,
            metadata_fields=metadata_fields or None,
            metadata_field=metadata_field,
            **options,
        )

    def show() -> None:
        left = report.rows - report.written
        rest = f", {left:,} left as they were or repeated" if left else ""
        inform(f"{counted(report.written, 'row')} stored{rest} in {report.seconds:.1f} s")
        _warn(report.warnings)

    context.emit(report, show)


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
    _warn(report.warnings)


def _warn(warnings: tuple[str, ...] | list[str]) -> None:
    for warning in warnings:
        messages.print(f"[yellow]note:[/yellow] {escape(warning)}")
