"""``semlex why``: why a document is where it is in an answer, or why it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape

from semlex.cli.commands.search import (
    QUESTION,
    Candidates,
    Deadline,
    Fusion,
    Group,
    MaxResults,
    MinRerank,
    MinSimilarity,
    Mode,
    TopK,
    grouping,
)
from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.options import Boost, Filter, RouteOption, boosts_of, filter_of
from semlex.cli.terminal import output

if TYPE_CHECKING:
    from semlex.options.search import FusionMethod
    from semlex.types.queries import RouteBy
    from semlex.types.results import SearchMode

DOCUMENT = typer.Argument(
    metavar="DOC", help="A path as `semlex documents` lists it, the end of one, keys.md:9, a file, or an id."
)


@with_context("collection", ..., *SERVER, "embedding_model", "device", "reranker_model", "chat_model")
def why(
    context: Context,
    document: Annotated[str, DOCUMENT],
    question: Annotated[list[str], QUESTION],
    *,
    top_k: TopK = None,
    mode: Mode = None,
    fusion: Fusion = None,
    filters: Filter = None,
    boost: Boost = None,
    candidates: Candidates = None,
    deadline: Deadline = None,
    max_results: MaxResults = None,
    group: Group = None,
    route: RouteOption = None,
    min_similarity: MinSimilarity = None,
    min_rerank: MinRerank = None,
) -> None:
    """Say why a document is where it is in the answer to a question, or why it is missing, and what helps.

    Give the options that the search had; what the settings say counts here, too.
    """
    with context.opened(searches=True) as retriever:
        told = retriever.why(
            document,
            " ".join(question),
            top_k,
            filter_of(filters),
            mode=cast("SearchMode | None", mode),
            fusion=cast("FusionMethod | None", fusion),
            boost=boosts_of(boost),
            tuning={"candidates": candidates},
            deadline=deadline,
            max_results=max_results,
            min_similarity=min_similarity,
            min_rerank=min_rerank,
            route=cast("RouteBy | None", route),
            **grouping(group),
        )
    context.emit(told.to_dict(), lambda: output.print(escape(str(told))))
