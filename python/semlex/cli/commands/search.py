"""The commands that answer questions: ``semlex try``, ``semlex search`` and ``semlex facets``."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.figures import print_facets
from semlex.cli.options import (
    INT,
    NUMBER,
    SECONDS,
    Boost,
    DetectEncoding,
    Filter,
    IdField,
    OnBadText,
    RouteOption,
    TextFields,
    boosts_of,
    existing_paths,
    filter_of,
    number,
    read_lines,
    seconds,
    whole_number,
)
from semlex.cli.output import print_many, print_report, print_results
from semlex.cli.terminal import inform, output
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from semlex.types.results import SearchMode

QUESTION = typer.Argument(
    help="What to look for; quotes around it are not needed. It may begin with '-'; after '--' all is the question."
)
Question = Annotated[list[str], QUESTION]
Fusion = Annotated[str, typer.Option("--fusion", help="How the legs are put together: completed, rrf or linear.")]
TopK = Annotated[
    int, typer.Option("--top-k", "-k", parser=whole_number, metavar=INT, help="Number of results, 1 to 1,000.")
]
Mode = Annotated[
    str | None, typer.Option("--mode", help="vector, keyword or hybrid; default: hybrid where both are possible.")
]
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline", parser=seconds, metavar=SECONDS, help="Seconds; what has answered by then is the answer."
    ),
]
Candidates = Annotated[
    int | None,
    typer.Option(
        "--candidates",
        parser=whole_number,
        metavar=INT,
        help="Candidates of each leg; default: 3 x --top-k, at least 30.",
    ),
]
MaxResults = Annotated[
    int | None,
    typer.Option(
        "--max-results",
        parser=whole_number,
        metavar=INT,
        help="Open a list of at most so many hits, --top-k a page; a cursor for --after is printed.",
    ),
]
Group = Annotated[
    int | None,
    typer.Option(
        "--group",
        parser=whole_number,
        metavar=INT,
        help="Group by document: --top-k documents, each with at most so many chunks.",
    ),
]
MinSimilarity = Annotated[
    float | None,
    typer.Option(
        "--min-similarity",
        parser=number,
        metavar=NUMBER,
        help="Least cosine of a hit, -1 to 1; nothing may reach it.",
    ),
]
MinRerank = Annotated[
    float | None,
    typer.Option("--min-rerank", parser=number, metavar=NUMBER, help="Least score of a hit by the reranker, 0 to 1."),
]


def grouping(size: int | None) -> dict[str, Any]:
    """The arguments of ``--group``."""
    return {} if size is None else {"group_by": "document", "group_size": size}


@with_context(*SERVER, *MODEL, "language")
def try_folder(
    context: Context,
    path: Annotated[Path, typer.Argument(help="File or folder with documents.")],
    question: Question,
    *,
    top_k: TopK = 5,
    mode: Mode = None,
    text_field: TextFields = None,
    id_field: IdField = None,
    detect_encoding: DetectEncoding = False,
    on_bad_text: OnBadText = "error",
) -> None:
    """Index a folder into a collection of its own and ask it a question.

    The second question to the same folder is quick: unchanged files are skipped.
    """
    [resolved] = existing_paths([path])
    # The folder's name is for people, the hash keeps folders of the same name apart.
    name = re.sub(r"[^a-z0-9]+", "_", resolved.name.lower()).strip("_")[:24]
    collection = f"try_{name}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}".replace("__", "_")
    with context.opened(context.settings(collection=collection), create=True, with_choice=True) as retriever:
        with context.progress() as progress:
            report = retriever.index(
                resolved,
                text_fields=text_field or (),
                id_field=id_field,
                detect_encoding=detect_encoding,
                on_bad_text=on_bad_text,
                progress=progress,
            )
        if not context.as_json:
            print_report(report, as_json=False)
        results = retriever.search(" ".join(question), top_k, mode=cast("SearchMode | None", mode))
        print_results(results, as_json=context.as_json)
        if not context.as_json:
            again = f'semlex search "…" --collection {collection}'
            if context.database_url is not None:
                again += " --database …"  # it may hold a password
            if context.data_dir is not None:
                again += f" --data-dir {shlex.quote(str(context.data_dir))}"
            inform(f"[dim]ask again: {escape(again)}[/dim]")


@with_context("collection", ..., *SERVER, "embedding_model", "device", "calibration", "reranker_model", "chat_model")
def search(
    context: Context,
    question: Annotated[list[str] | None, QUESTION] = None,
    *,
    top_k: TopK = 5,
    mode: Mode = None,
    fusion: Fusion = "completed",
    filters: Filter = None,
    boost: Boost = None,
    min_similarity: MinSimilarity = None,
    min_rerank: MinRerank = None,
    candidates: Candidates = None,
    deadline: Deadline = None,
    max_results: MaxResults = None,
    group: Group = None,
    route: RouteOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what the answer rests on: the plan, and the words of every hit.")
    ] = False,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="The next page of a list, instead of a question.")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", metavar="FILE", help="Questions, one a line, instead of one; - is standard input."),
    ] = None,
) -> None:
    """Search a collection; prints location, scores of each leg, and an excerpt of every hit."""
    if sum(given is not None for given in (question, after, queries)) != 1:
        raise ConfigurationError("give a question, --queries with a file of them, or --after with a page's cursor")
    beside = (mode, filters, boost, max_results, group, candidates, min_similarity, min_rerank, route)
    if after is not None and (explain or any(one is not None for one in beside)):
        raise ConfigurationError(
            "--after takes no --mode, --filter, --boost, --max-results, --group, --candidates, --route, --explain and "
            "no thresholds: its cursor is the search"
        )
    if queries is not None and (explain or any(one is not None for one in (deadline, max_results, group, route))):
        raise ConfigurationError("--queries takes no --deadline, --max-results, --group, --route and --explain")
    questions = [" ".join(question)] if question is not None else [] if queries is None else read_lines(queries)
    options: dict[str, Any] = {"mode": mode, "fusion": fusion}
    options |= {"min_similarity": min_similarity, "min_rerank": min_rerank}
    options |= {"filters": filter_of(filters), "boost": boosts_of(boost), "candidates": candidates}
    with context.opened() as retriever:
        if after is not None:
            results = retriever.search_page(after, deadline=deadline)
        elif queries is not None:
            print_many(questions, retriever.search_many(questions, top_k, **options), as_json=context.as_json)
            return
        else:
            options |= {"deadline": deadline, "max_results": max_results, "explain": explain, **grouping(group)}
            options |= {"route": route}
            results = retriever.search(questions[0], top_k, **options)
    print_results(results, as_json=context.as_json)
    if results.explanation is not None and not context.as_json:
        output.print(escape(str(results.explanation)))


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
