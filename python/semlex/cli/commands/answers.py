"""The command that gives passages for a prompt: ``semlex context``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.commands.search import Fusion, Mode, Question
from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.options import (
    INT,
    Boost,
    Filter,
    NearDuplicates,
    Parents,
    RouteOption,
    Sections,
    boosts_of,
    filter_of,
    questions_of,
    share,
    whole_number,
)
from semlex.cli.output import print_note, summary_object
from semlex.cli.terminal import counted, inform, one_line, printable

if TYPE_CHECKING:
    from semlex.types.answers import Context as Passages


@with_context("collection", ..., *SERVER, "embedding_model", "device", "tokenizer", "reranker_model", "chat_model")
def context(
    shared: Context,
    question: Question,
    *,
    tokens: Annotated[
        int, typer.Option("--tokens", parser=whole_number, metavar=INT, help="Most tokens of the whole text.")
    ] = 4000,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", parser=whole_number, metavar=INT, help="Hits of the search, 1 to 200.")
    ] = 20,
    mode: Mode = None,
    fusion: Fusion = None,
    filters: Filter = None,
    boost: Boost = None,
    neighbours: Annotated[
        int,
        typer.Option("--neighbours", parser=whole_number, metavar=INT, help="Chunks before and after each hit."),
    ] = 1,
    per_document: Annotated[
        int | None,
        typer.Option("--per-document", parser=whole_number, metavar=INT, help="Most hits of a document."),
    ] = None,
    sections: Sections = None,
    parents: Parents = False,
    near_duplicates: NearDuplicates = None,
    diversity: Annotated[
        float | None,
        typer.Option(
            "--diversity", parser=share, metavar="SHARE", help="0 to 1: how much unlike vectors count in the order."
        ),
    ] = None,
    route: RouteOption = None,
    order: Annotated[
        str, typer.Option("--order", help="score: best first; document: those of a document together, in its order.")
    ] = "score",
) -> None:
    """Print the passages that fit a question best, as numbered text for a prompt."""
    questions = questions_of(question)
    options: dict[str, Any] = {"mode": mode, "fusion": fusion, "filters": filter_of(filters), "boost": boosts_of(boost)}
    options |= {"top_k": top_k, "neighbours": neighbours, "per_document": per_document, "diversity": diversity}
    options |= surroundings(sections, near_duplicates, parents=parents) | {"order": order, "route": route}
    with shared.opened(searches=True) as retriever:
        for asked in questions:
            made = retriever.context(asked, tokens, **options)
            beside = {} if list(question) != ["-"] else {"question": asked}
            value = beside | made.to_dict() | {"search": summary_object(made.results)}
            shared.emit(value, partial(_show, made))


def surroundings(sections: float | None, near_duplicates: float | None, *, parents: bool) -> dict[str, Any]:
    """The arguments of a context that were given: 0 stands for never."""
    given = {"sections": sections, "near_duplicates": near_duplicates}
    shares = {name: value or None for name, value in given.items() if value is not None}
    return shares | ({"parents": True} if parents else {})


def _show(made: Passages) -> None:
    """The text as it is, for a pipe; everything else beside it."""
    if made.text:
        sys.stdout.write(printable(made.text) + "\n")
        sys.stdout.flush()
    for warning in made.warnings:
        print_note(warning)
    if made.results.route is not None:
        inform(f"[dim]route: {escape(one_line(str(made.results.route)))}[/dim]")
    left_out = f"; {counted(len(made.left_out), 'hit')} left out" if made.left_out else ""
    inform(f"[dim]{counted(len(made.sources), 'passage')}, {counted(made.tokens, 'token')}{left_out}[/dim]")
