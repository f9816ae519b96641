"""The commands about fields: ``semlex fields``, ``semlex fields add`` and ``semlex fields remove``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.interactive.completion import field_names
from semlex.cli.options import has_command
from semlex.cli.output import print_json, print_note
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.types.fields import FieldSummaries, FieldSummary

# Names are aligned up to this width, and shown up to that length; --json has them whole.
NAME_WIDTH = 24
SHOWN_CHARACTERS = 80

fields_app = typer.Typer(
    help="Show the fields of a collection's metadata, and index those that filters compare.",
    invoke_without_command=True,
)

Name = Annotated[str, typer.Argument(help="The field, as filters write it.", autocompletion=field_names)]


@fields_app.callback()
@with_context(..., "collection", *SERVER)
def fields(
    context: Context,
    ctx: typer.Context,
    *,
    values: Annotated[bool, typer.Option("--values", help="Show the most frequent values, too.")] = False,
) -> None:
    """Show the fields: names, types with counts, which have an index; of at most 10,000 chunks."""
    if has_command(ctx):
        return
    with context.opened() as retriever:
        found = retriever.fields(values=values)
    if context.as_json:
        for field in found:
            print_json({"type": "field", **asdict(field)})
        print_json({"type": "summary", "chunks": found.chunks, "are_all": found.are_all, "left_out": found.left_out})
    else:
        _print_fields(found)


def _print_fields(found: FieldSummaries) -> None:
    for field in found:
        name = one_line(field.name)
        shown = name if len(name) <= SHOWN_CHARACTERS else f"{name[: SHOWN_CHARACTERS - 1]}…"
        output.print(f"{escape(shown):{NAME_WIDTH}} {'  '.join(map(escape, _parts(field)))}")
    if found.left_out:
        inform(f"… and {counted(found.left_out, 'rarer field')}")
    looked_at = counted(found.chunks, "chunk")
    inform(f"[dim]counts of all {looked_at}[/dim]" if found.are_all else f"[dim]counts of {looked_at}, a sample[/dim]")


def _parts(field: FieldSummary) -> Iterable[str]:
    types = ", ".join(f"{kind} {n:,}" for kind, n in field.types.items())
    elements = ", ".join(f"{kind} {n:,}" for kind, n in field.elements.items())
    yield f"{types} of {elements}" if elements else types
    if field.indexed:
        yield f"index: {', '.join(field.indexed)}"
    if field.unfinished:
        yield f"index not finished: {', '.join(field.unfinished)}"
    if field.values:
        yield one_line(", ".join(json.dumps(value, ensure_ascii=False) for value in field.values))


@fields_app.command()
@with_context(..., "collection", *SERVER)
def add(
    context: Context,
    name: Name,
    of: Annotated[
        str, typer.Argument(metavar="TYPE", help="number or text, as which it is compared; instant for @created.")
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if no chunk has such a value.")] = False,
) -> None:
    """Index a field for comparisons (<, <=, >, >=, between) and prefixes; equality needs no index of its own."""
    with context.opened() as retriever, context.progress() as progress:
        built = retriever.add_field(name, of, force=force, progress=progress)  # type: ignore[arg-type]
    value = {"name": name, "type": of, "built": list(built), "busy": built.busy, "warnings": built.warnings}
    if context.as_json:
        print_json(value)
        return
    for warning in built.warnings:
        print_note(one_line(warning))
    if built.busy:
        messages.print("another process is building an index of this collection; try again when it is done")
    else:
        inform(f"{escape(one_line(name))} {'has an index now' if built else 'had its index already'}")


@fields_app.command()
@with_context(..., "collection", *SERVER)
def remove(context: Context, name: Name) -> None:
    """Drop the index of a field; values and what filters find stay as they are."""
    with context.opened() as retriever:
        dropped = retriever.remove_field(name)
    value = {"name": name, "dropped": list(dropped)}
    context.emit(value, lambda: inform(f"{escape(one_line(name))} has no index any more ({', '.join(dropped)})"))
