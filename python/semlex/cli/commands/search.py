"""``semlex try``, ``semlex search`` and ``semlex why``."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, READER, SERVER, Context, with_context
from semlex.cli.editor import open_hit, require_editor
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.options import DOCUMENT, Flags, existing_paths, flag_of, integer, questions_of
from semlex.cli.output import print_many, print_results, print_statement, print_timings
from semlex.cli.reports import print_problems, print_report
from semlex.cli.terminal import inform, output
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.store.query.hits import Included

QUESTION = typer.Argument(help="Question or words; needs no quotes. After '--', everything is the question.")
Question = Annotated[list[str], QUESTION]
# Flags of many questions beside those of the ranking.
MANY = {"--top-k", "--filter", "--mode", "--json", "--fields", "--include"}


def check_together(options: Mapping[str, Any], own: Mapping[str, object], *, has_cursor: bool, many: bool) -> None:
    """Refuse options that cannot be combined; `own` has the flags that are not search options."""
    searched = {flag_of(name) for name in options.keys() | options.get("tuning", {}).keys() - {"tuning", "group_by"}}
    given = searched | {flag for flag, value in own.items() if value}
    refused: dict[str, set[str]] = {}
    if has_cursor:
        refused["--after (the cursor contains the options)"] = searched - Flags("options.search:PageArguments").flags()
    if many:
        refused["a list of questions"] = given - Flags("options.search:RankingOptions").flags() - MANY
    if "--sql" in given:
        refused["--sql"] = given & {"--explain", "--fields", "--json", "--open", "--timings"}
    for what, flags in refused.items():
        if flags:
            raise ConfigurationError(f"{what} does not accept {', '.join(sorted(flags))}")
    if "--include" in given and "--sql" not in given:
        raise ConfigurationError("--include adds columns to --sql: give --sql, too")


@with_context(*SERVER, *MODEL, "language")
def try_folder(
    context: Context,
    path: Annotated[Path, typer.Argument(help="File or folder with documents.")],
    question: Question,
    *,
    options: Annotated[dict[str, Any], Flags("options.search:SearchArguments", only=("top_k", "mode"))],
    reading: Annotated[dict[str, Any], Flags("options.indexing:ReadOptions")],
    open_page: Annotated[bool, typer.Option("--open", help="Then open a page that explains the ranking.")] = False,
) -> None:
    """Index a folder into its own collection and ask it a question.

    The second question to the same folder is quick: unchanged files are skipped.
    """
    from semlex.cli.commands.index import leaves_unmade, with_light_model

    if open_page and context.as_json:
        raise ConfigurationError("--json and --open exclude each other: give one of them")
    [resolved] = existing_paths([path])
    # The folder's name is for people, the hash keeps folders of the same name apart.
    name = re.sub(r"[^a-z0-9]+", "_", resolved.name.lower()).strip("_")[:24]
    collection = f"try_{name}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}".replace("__", "_")
    settings = context.settings(collection=collection)
    if leaves_unmade(context, settings, [resolved], {}):
        return
    settings = with_light_model(context, settings, [resolved], {})
    with context.opened(settings, create=True, with_choice=True, searches=True) as retriever:
        with context.progress() as progress:
            report = retriever.index(resolved, **reading, progress=progress)
        (print_problems if context.as_json else print_report)(report)
        results = retriever.search(" ".join(question), **options)
        print_results(results, as_json=context.as_json)
        if not context.as_json:
            inform(f'[dim]ask again: semlex search "…" --collection {collection}[/dim]')
    if open_page:
        from semlex.cli.commands.serve import show_page

        show_page(context.given() | {"collection": collection}, " ".join(question))
    if report.failed:
        raise typer.Exit(SOME_FILES)


@with_context("collection", ..., *READER, "embedding_model", "device", "calibration", "reranker_model", "chat_model")
def search(
    context: Context,
    question: Annotated[list[str] | None, QUESTION] = None,
    *,
    options: Annotated[dict[str, Any], Flags("options.search:SearchArguments")],
    timings: Annotated[bool, typer.Option("--timings", help="Print the milliseconds of each stage to stderr.")] = False,
    opened_hit: Annotated[
        int | None, integer("Open hit N in $EDITOR; without a number, the first.", "--open", metavar="[N]")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Cursor of the next page, instead of a question.")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of questions, one per line; - is standard input.")
    ] = None,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the hits as a SELECT to join with your own tables.")
    ] = False,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="With --sql: also excerpt, content or metadata; repeatable."),
    ] = None,
) -> None:
    """Search a collection, and print place, headings and an excerpt of each hit; with -v also scores and times."""
    if sum(given is not None for given in (question, after, queries)) != 1:
        raise ConfigurationError(
            "give a question, --queries with a file of them, or --after with a page's cursor, and only one of these"
        )
    many = queries is not None or question == ["-"]
    own: dict[str, Any] = {
        "--open": opened_hit is not None,
        "--sql": as_sql,
        "--timings": timings,
        "--include": include,
        "--fields": context.shown_fields,
        "--json": context.as_json and context.shown_fields is None,
    }
    check_together(options, own, has_cursor=after is not None, many=many)
    questions = [] if after is not None else questions_of(question or (), queries)
    if opened_hit is not None:
        require_editor()
    with context.opened(searches=True) as retriever:
        if after is not None:
            results = retriever.search_page(after, **options)
        elif many:
            print_many(questions, retriever.search_many(questions, **options), as_json=context.as_json)
            return
        else:
            results = retriever.search(questions[0], **options)
        if as_sql:
            columns = cast("list[Included]", include or [])
            print_statement(retriever.tables.hits_as_sql(results, include=columns), results)
            return
    print_results(results, as_json=context.as_json)
    if results.explanation is not None and not context.as_json:
        output.print(escape(str(results.explanation)))
    if timings:
        print_timings(results)
    if opened_hit is not None:
        open_hit(results, opened_hit)


@with_context("collection", ..., *READER, "embedding_model", "device", "reranker_model", "chat_model")
def why(
    context: Context,
    document: Annotated[str, DOCUMENT],
    question: Annotated[list[str], QUESTION],
    *,
    options: Annotated[dict[str, Any], Flags("options.search:SearchArguments", without=("explain",))],
) -> None:
    """Explain why a search ranks a document where it is, or why it is missing, and what helps.

    Give the same options as for that search; the settings apply here, too.
    """
    with context.opened(searches=True) as retriever:
        told = retriever.why(document, " ".join(question), **options)
    context.emit(told.to_dict(), lambda: output.print(escape(str(told))))
