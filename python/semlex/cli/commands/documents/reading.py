"""``semlex show``: a chunk or a document; ``semlex outline``: the headings of a document."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.output import print_json, print_note
from semlex.cli.terminal import counted, inform, one_line, output, printable

if TYPE_CHECKING:
    from semlex.types.documents import Outline

DOCUMENT = typer.Argument(
    metavar="ID|DOC", help="A path as `semlex documents` lists it, the end of one, keys.md:9, a file, or a chunk's id."
)
LINE_WIDTH = 6


@with_context("collection", ..., *SERVER)
def show(context: Context, document: Annotated[str, DOCUMENT]) -> None:
    """Print the text of a chunk, of a document, or of what stands at a line of one."""
    with context.opened() as retriever:
        found = retriever.get_document(document)

    def print_text() -> None:
        sys.stdout.write(printable(found.text) + "\n")
        sys.stdout.flush()
        inform(f"[dim]{escape(one_line(found.name))}, {counted(len(found.chunks), 'chunk')}[/dim]")

    context.emit(found.to_dict(), print_text)
    _print_notes(found.notes)


@with_context("collection", ..., *SERVER)
def outline(context: Context, document: Annotated[str, DOCUMENT]) -> None:
    """Print the headings of a document in their order, each with its line."""
    with context.opened() as retriever:
        found = retriever.outline(document)
    if context.as_json:
        for heading in found.to_dict()["headings"]:
            print_json(heading)
    else:
        _print_outline(found)
    _print_notes(found.notes)


def _print_outline(found: Outline) -> None:
    for heading in found.headings:
        line = "" if heading.line is None else str(heading.line)
        output.print(f"{line:>{LINE_WIDTH}}  {'  ' * (heading.level - 1)}{escape(one_line(heading.title))}")
    if not found.headings:
        inform(f"{escape(one_line(found.name))} has no headings")


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        print_note(one_line(note))
