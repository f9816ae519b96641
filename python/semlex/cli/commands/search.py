"""The commands that answer questions: ``semlex try``, ``semlex search`` and ``semlex facets``."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.figures import print_facets
from semlex.cli.interactive.completion import field_names
from semlex.cli.interactive.editor import open_hit, require_editor
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
    questions_of,
    seconds,
    whole_number,
)
from semlex.cli.output import print_many, print_problems, print_report, print_results, print_statement, print_timings
from semlex.cli.terminal import inform, output
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.store.query.hits import Included
    from semlex.types.results import SearchMode

QUESTION = typer.Argument(
    help="What to look for; quotes around it are not needed. It may begin with '-'; after '--' all is the question."
)
Question = Annotated[list[str], QUESTION]
Fusion = Annotated[
    str | None, typer.Option("--fusion", help="How the legs are put together: completed (default), rrf or linear.")
]
TopK = Annotated[
    int | None,
    typer.Option("--top-k", "-k", parser=whole_number, metavar=INT, help="Number of results, 1 to 1,000; default: 5."),
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


PAGES = ("--max-results", "--group", "--route", "--explain")
# What means nothing beside another option.
SENSELESS = {
    "--after, whose cursor is the search,": (
        *("--top-k", "--mode", "--fusion", "--boost", "--candidates", "--min-similarity", "--min-rerank"),
        *PAGES,
    ),
    "a list of questions": ("--deadline", "--open", "--sql", "--timings", *PAGES),
    "--sql": ("--explain", "--fields", "--json", "--open", "--timings"),
}


def check_together(has_cursor: bool, many: bool, options: Mapping[str, object]) -> None:
    """Refuses options that mean nothing beside each other."""
    given = {name for name, value in options.items() if value is not None and value is not False and value != []}
    for what, holds in zip(SENSELESS, (has_cursor, many, "--sql" in given), strict=True):
        refused = [name for name in SENSELESS[what] if holds and name in given]
        if refused:
            raise ConfigurationError(f"{what} takes no {', '.join(refused)}")
    if "--include" in given and "--sql" not in given:
        raise ConfigurationError("--include says what --sql prints beside the scores: give --sql, too")


@with_context(*SERVER, *MODEL, "language")
def try_folder(
    context: Context,
    path: Annotated[Path, typer.Argument(help="File or folder with documents.")],
    question: Question,
    *,
    top_k: TopK = None,
    mode: Mode = None,
    text_field: TextFields = None,
    id_field: IdField = None,
    detect_encoding: DetectEncoding = False,
    on_bad_text: OnBadText = "error",
    open_page: Annotated[
        bool, typer.Option("--open", help="Then serve the page that shows how the order came about, and open it.")
    ] = False,
) -> None:
    """Index a folder into a collection of its own and ask it a question.

    The second question to the same folder is quick: unchanged files are skipped.
    """
    from semlex.cli.commands.index import leaves_unmade

    if open_page and context.as_json:
        raise ConfigurationError("--json and --open exclude each other: give one of them")
    [resolved] = existing_paths([path])
    # The folder's name is for people, the hash keeps folders of the same name apart.
    name = re.sub(r"[^a-z0-9]+", "_", resolved.name.lower()).strip("_")[:24]
    collection = f"try_{name}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}".replace("__", "_")
    settings = context.settings(collection=collection)
    if leaves_unmade(context, settings, [resolved]):
        return
    with context.opened(settings, create=True, with_choice=True, searches=True) as retriever:
        with context.progress() as progress:
            report = retriever.index(
                resolved,
                text_fields=text_field or (),
                id_field=id_field,
                detect_encoding=detect_encoding,
                on_bad_text=on_bad_text,
                progress=progress,
            )
        if context.as_json:
            print_problems(report)
        else:
            print_report(report, as_json=False)
        results = retriever.search(" ".join(question), top_k, mode=cast("SearchMode | None", mode))
        print_results(results, as_json=context.as_json)
        if not context.as_json:
            inform(f'[dim]ask again: semlex search "…" --collection {collection}[/dim]')
    if open_page:
        from semlex.cli.commands.serving.page import show_page

        show_page(context.given() | {"collection": collection}, " ".join(question))
    if report.failed:
        raise typer.Exit(SOME_FILES)


@with_context("collection", ..., *SERVER, "embedding_model", "device", "calibration", "reranker_model", "chat_model")
def search(
    context: Context,
    question: Annotated[list[str] | None, QUESTION] = None,
    *,
    top_k: TopK = None,
    mode: Mode = None,
    fusion: Fusion = None,
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
    timings: Annotated[
        bool, typer.Option("--timings", help="Say on the error stream how many milliseconds each stage took.")
    ] = False,
    opened_hit: Annotated[
        int | None,
        typer.Option(
            "--open",
            parser=whole_number,
            metavar="[N]",
            help="Open the place of hit N in $EDITOR; without a number that of the first.",
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="The next page of a list, instead of a question.")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", metavar="FILE", help="Questions, one a line, instead of one; - is standard input."),
    ] = None,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the hits as a SELECT, to be joined with your own tables.")
    ] = False,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="COLUMN", help="With --sql: also excerpt, content or metadata; repeatable."),
    ] = None,
) -> None:
    """Search a collection; prints location, scores of each leg, and an excerpt of every hit."""
    if sum(given is not None for given in (question, after, queries)) != 1:
        raise ConfigurationError(
            "give a question, --queries with a file of them, or --after with a page's cursor, and only one of these"
        )
    many = queries is not None or question == ["-"]
    check_together(
        after is not None,
        many,
        {
            "--sql": as_sql,
            "--fields": context.columns,
            "--json": context.as_json and context.columns is None,
            "--open": opened_hit,
            "--explain": explain,
            "--timings": timings,
            "--top-k": top_k,
            "--mode": mode,
            "--fusion": fusion,
            "--filter": filters,
            "--boost": boost,
            "--candidates": candidates,
            "--route": route,
            "--min-similarity": min_similarity,
            "--min-rerank": min_rerank,
            "--include": include,
            "--max-results": max_results,
            "--group": group,
            "--deadline": deadline,
        },
    )
    questions = [] if after is not None else questions_of(question or (), queries)
    options: dict[str, Any] = {"mode": mode, "fusion": fusion}
    options |= {"min_similarity": min_similarity, "min_rerank": min_rerank}
    options |= {"filters": filter_of(filters), "boost": boosts_of(boost), "tuning": {"candidates": candidates}}
    if opened_hit is not None:
        require_editor()
    with context.opened(searches=True) as retriever:
        if after is not None:
            results = retriever.search_page(after, options["filters"], deadline=deadline)
        elif many:
            print_many(questions, retriever.search_many(questions, top_k, **options), as_json=context.as_json)
            return
        else:
            options |= {"deadline": deadline, "max_results": max_results, "explain": explain, **grouping(group)}
            options |= {"route": route}
            results = retriever.search(questions[0], top_k, **options)
        if as_sql:
            columns = cast("list[Included]", include or [])
            print_statement(retriever.hits_as_sql(results, include=columns), results)
            return
    print_results(results, as_json=context.as_json)
    if results.explanation is not None and not context.as_json:
        output.print(escape(str(results.explanation)))
    if timings:
        print_timings(results)
    if opened_hit is not None:
        open_hit(results, opened_hit)


FIELDS = typer.Argument(help="Fields, as in filters: year, author.name, @source, @type, …", autocompletion=field_names)


@with_context("collection", ..., *SERVER, "embedding_model", "device")
def facets(
    context: Context,
    fields: Annotated[list[str], FIELDS],
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
