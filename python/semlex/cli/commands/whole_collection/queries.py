"""``semlex queries``: the questions that a collection was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.options import INT, agree, whole_number
from semlex.cli.output import print_json
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.types.query_log import LoggedQuery, QueryLogSummary

SHOWN_DIGITS = 12


@with_context("collection", ..., *SERVER)
def queries(
    context: Context,
    *,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole_number, metavar=INT, help="Most questions of each list.")
    ] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all logged questions.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --clear: do not ask.")] = False,
) -> None:
    """Show the questions that were asked: the most frequent ones, and those that found nothing.

    They are logged where query_log is hash or text (SEMLEX_QUERY_LOG, or query_log= in Python); by default nothing is.
    """
    with context.opened() as retriever:
        name = retriever.asynchronous.names.collection
        if clear:
            agree(f"Delete all logged questions of {name}?", yes=yes)
            cleared = retriever.clear_queries()
            if context.as_json:
                print_json({"collection": name, "cleared": cleared})
            else:
                inform(f"{counted(cleared, 'question')} deleted")
            return
        summary = retriever.queries(limit=limit)
    context.emit(summary.to_dict(), lambda: _print_summary(summary))


def _print_summary(summary: QueryLogSummary) -> None:
    if summary.oldest is None:
        messages.print("no questions: they are logged with SEMLEX_QUERY_LOG=hash (or text)")
        return
    since = f"{summary.oldest:%Y-%m-%d %H:%M} UTC"
    output.print(f"{counted(summary.logged, 'question')} since {since}, {summary.without_hits:,} of them without hits")
    _print_list("Most frequent", summary.most_asked)
    _print_list("Nothing was found", summary.nothing_found)


def _print_list(title: str, found: Sequence[LoggedQuery]) -> None:
    if not found:
        return
    output.print(f"\n[bold]{title}[/bold]")
    output.print("   asked  no hits  last                  question", style="dim")
    for one in found:
        last = f"{one.last_asked_at:%Y-%m-%d %H:%M} UTC"
        shown = f"(hash {one.query_hash[:SHOWN_DIGITS]})" if one.query is None else one_line(one.query)
        output.print(escape(f"{one.asked:8,} {one.without_hits:8,}  {last}  {shown}"))
