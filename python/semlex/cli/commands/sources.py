"""The commands about sources: ``semlex sources`` and ``semlex sources move``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.interactive.completion import source_names
from semlex.cli.options import has_command
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.write.sources import SourceInfo

sources_app = typer.Typer(help="Show and move the folders that documents were read from.", invoke_without_command=True)


@sources_app.callback()
@with_context("collection", *SERVER)
def sources(context: Context, ctx: typer.Context) -> None:
    """Show the sources of a collection: name, folder, documents, chunks."""
    if has_command(ctx):
        return
    with context.opened() as retriever:
        found = retriever.sources()
    context.emit(found, lambda: _print_sources(found))


def _print_sources(found: Sequence[SourceInfo]) -> None:
    for entry in found:
        counts = f"{counted(entry.documents, 'document')}, {counted(entry.chunks, 'chunk')}"
        output.print(f"{escape(one_line(entry.name)):24} {counts:36} {escape(one_line(entry.root))}")
    if not found:
        messages.print("no sources: semlex index FOLDER makes one")


@sources_app.command()
@with_context("collection", *SERVER)
def move(
    context: Context,
    name: Annotated[str, typer.Argument(help="Name of the source.", autocompletion=source_names)],
    root: Annotated[Path, typer.Argument(help="Where its folder is now.")],
) -> None:
    """Say where the folder of a source is now; its documents stay what they are."""
    with context.opened() as retriever:
        retriever.move_source(name, root.expanduser())
        moved = next(entry for entry in retriever.sources() if entry.name == name)
    context.emit(moved, lambda: inform(f"{escape(one_line(name))} is {escape(one_line(moved.root))} now"))
