"""The command that counts values: ``semlex facets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.figures import print_facets
from semlex.cli.options import INT, Filter, filter_of, whole_number

if TYPE_CHECKING:
    from semlex.types.results import SearchMode


@with_context("collection", ..., *SERVER, "embedding_model", "device")
def facets(
    context: Context,
    fields: Annotated[list[str], typer.Argument(help="Fields, as in filters: year, author.name, @source, @type, …")],
    *,
    filters: Filter = None,
    query: Annotated[
        str | None, typer.Option("--query", help="Count the candidates of a query instead of all chunks.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="Of the query: vector, keyword or hybrid; keyword: only its words.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole_number, metavar=INT, help="Most values of a field.")
    ] = 20,
) -> None:
    """Count which values fields have, over all chunks that pass a filter, or over the candidates of a query."""
    settings = context.settings() if query is not None else context.settings(embedding_model="none")
    with context.opened(settings) as retriever:
        found = retriever.facets(
            fields, filter_of(filters), query=query, mode=cast("SearchMode | None", mode), limit=limit
        )
    context.emit(found.to_dict(), lambda: print_facets(found))
