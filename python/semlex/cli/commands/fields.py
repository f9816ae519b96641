"""Show the fields of a collection's metadata, and index those that filters compare."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.options import Flags, field_names
from semlex.cli.output import json_text, print_note
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.store.indexes.build import IndexesBuilt
    from semlex.types.fields import Facets, FieldSummaries, FieldSummary

NAME_WIDTH = 24  # of the column of names; longer names push what follows to the right
SHOWN_CHARACTERS = 80  # of a name; --json has all

fields_app = typer.Typer(help=__doc__, cls=group_with_default("list"))

Name = Annotated[str, typer.Argument(help="Field, as in filters.", autocompletion=field_names)]


@fields_app.command("list")
@with_context(..., "collection", *SERVER)
def fields(
    context: Context,
    *,
    values: Annotated[bool, typer.Option("--values", help="Also show the most frequent values.")] = False,
) -> None:
    """List the fields with types, counts and indexes, from up to 10,000 chunks."""
    with context.opened() as retriever:
        found = retriever.fields.list(values=values)
    summary = {"type": "summary", "chunks": found.chunks, "are_all": found.are_all, "left_out": found.left_out}
    context.emit([*({"type": "field", **asdict(field)} for field in found), summary], lambda: _print_fields(found))


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
        yield ", ".join(map(json_text, field.values))


@fields_app.command()
@with_context(..., "collection", *SERVER)
def add(
    context: Context,
    name: Name,
    of: Annotated[
        str, typer.Argument(metavar="TYPE", help="How values are compared: number or text; instant for @created.")
    ],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Add the index even if no chunk has a value of this type.")
    ] = False,
) -> None:
    """Index a field for comparisons (<, <=, >, >=, between) and prefixes; equality needs no index."""
    with context.opened() as retriever, context.progress() as progress:
        built = retriever.fields.add(name, of, force=force, progress=progress)  # type: ignore[arg-type]
    value = {"name": name, "type": of, "built": list(built), "busy": built.busy, "warnings": built.warnings}
    context.emit(value, lambda: _print_built(name, built))


def _print_built(name: str, built: IndexesBuilt) -> None:
    print_note(*built.warnings)
    if built.busy:
        messages.print("another process is building an index of this collection; try again when it is done")
    else:
        inform(f"{escape(one_line(name))} {'has an index now' if built else 'had an index already'}")


@fields_app.command()
@with_context(..., "collection", *SERVER)
def remove(context: Context, name: Name) -> None:
    """Drop the index of a field; its values stay, and filters find the same chunks."""
    with context.opened() as retriever:
        dropped = retriever.fields.remove(name)
    value = {"name": name, "dropped": list(dropped)}
    context.emit(value, lambda: inform(f"{escape(one_line(name))} has no index now ({', '.join(dropped)})"))


def print_facets(found: Facets) -> None:
    """Print the values of each field with their counts, and which chunks were counted."""
    for name, facet in found.items():
        output.print(escape(one_line(name)), style="bold")
        counts = [f"{one.count:,}" for one in facet.values]
        width = max(map(len, counts), default=0)
        for count, one in zip(counts, facet.values, strict=True):
            value = one.value if isinstance(one.value, str) else json_text(one.value)
            output.print(f"  {count.rjust(width)}  {escape(one_line(value))}")
        if facet.left_out:
            output.print(f"  and {counted(facet.left_out, 'more value')}", style="dim")
        if not facet.values and not facet.left_out:
            output.print("  no values", style="dim")
    print_note(*found.warnings)
    of = "that pass the filter" if found.of == "filter" else "that the query found"
    among = "all" if found.exact else "the best"
    inform(f"[dim]of {among} {counted(found.chunks, 'chunk')} {of}[/dim]")


@fields_app.command()
@with_context("collection", ..., *SERVER, "embedding_model", "device")
def facets(
    context: Context,
    fields: Annotated[
        list[str],
        typer.Argument(help="Fields, as in filters: year, author.name, @source, @type, …", autocompletion=field_names),
    ],
    *,
    options: Annotated[
        dict[str, Any], Flags("options.search:FacetArguments", only=("filters", "mode", "query", "limit"))
    ],
) -> None:
    """Count the values of fields, in all chunks that pass a filter or in the candidates of a query."""
    settings = context.settings() if "query" in options else context.settings(embedding_model="none")
    with context.opened(settings) as retriever:
        found = retriever.fields.facets(fields, **options)
    context.emit(found.to_dict(), lambda: print_facets(found))
