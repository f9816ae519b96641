"""The command ``semlex import``: rows of files, and tables of other libraries."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.output import print_note
from semlex.cli.progress_bar import resumable
from semlex.cli.terminal import counted, inform, messages, one_line, output
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from semlex.ingest.bulk.load import LoadReport
    from semlex.retriever.synchronous import SyncCollection
    from semlex.settings.table import Settings
    from semlex.types.reports import TableImport

FILES = (".parquet", ".jsonl", ".ndjson")
SHOWN_KEYS = 20
SHOWN_PROBLEMS = 10
HOW_TO_GO_ON = (
    "[dim]no model is known of these vectors: search by words, or with vectors of your own; where semlex has the model "
    "that made them, import them into a new collection with --model NAME, and it embeds the questions[/dim]"
)
LAYOUTS = "langchain-postgres, langchain-pgvector, llama-index, haystack or pgvector (any other table)"


@with_context("collection", ..., *SERVER, *MODEL, "keyword", "language")
def import_rows(
    context: Context,
    sources: Annotated[
        list[Path], typer.Argument(help="Parquet or JSON Lines files, folders of them; or tables of other libraries.")
    ],
    *,
    layout: Annotated[
        str | None,
        typer.Option("--from", help=f"Of tables: {LAYOUTS}.", show_default="as its columns show"),
    ] = None,
    source_database: Annotated[
        str | None,
        typer.Option(
            "--source-database",
            help="Of tables: libpq URL of their database.",
            show_default="the collection's",
        ),
    ] = None,
    source_schema: Annotated[
        str | None, typer.Option("--source-schema", help="Of tables: their schema.", show_default="public")
    ] = None,
    text_field: Annotated[
        str | None, typer.Option("--text-field", help="The text.", show_default="text, or the layout's")
    ] = None,
    vector_field: Annotated[
        str | None, typer.Option("--vector-field", help="Its vector.", show_default="vector, or the layout's")
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option("--id-field", help="What names a row.", show_default="id, if there is one, or the layout's"),
    ] = None,
    metadata_fields: Annotated[
        list[str] | None,
        typer.Option("--metadata-field", help="A field that becomes metadata.", show_default="all others"),
    ] = None,
    metadata_field: Annotated[
        str | None,
        typer.Option(
            "--merged-field",
            help="A field of objects whose keys become metadata.",
            show_default="metadata, or the layout's",
        ),
    ] = None,
    on_duplicate: Annotated[
        str, typer.Option("--on-duplicate", help="Of an id that is stored: update, skip or fail.")
    ] = "update",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of tables: read all rows, say what would be skipped, write nothing.")
    ] = False,
) -> None:
    """Load rows that bring their vectors: from files, or from tables of LangChain, LlamaIndex or Haystack.

    Nothing is cut or embedded. What is no file and no folder is taken for the name of a table.
    """
    of_tables: dict[str, Any] = {"layout": layout, "source_url": source_database, "source_schema": source_schema}
    named = {name: value for name, value in of_tables.items() if value is not None}
    fields = {
        "text_field": text_field,
        "vector_field": vector_field,
        "id_field": id_field,
        "metadata_fields": metadata_fields or None,
        "metadata_field": metadata_field,
    }
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None} | {
        "on_duplicate": on_duplicate
    }
    settings = context.settings()
    has_model = settings.is_set("embedding_model")
    if not has_model:
        # Their vectors are somebody else's; which model made them is the user's to say.
        settings = context.settings(embedding_model="none")
    settings = context.with_only_collection(settings)
    if named or _are_tables(sources):
        skipped = _import_tables(context, settings, [str(source) for source in sources], named | given, dry_run=dry_run)
        if not (has_model or dry_run or context.as_json):
            inform(HOW_TO_GO_ON)
        if skipped:
            raise typer.Exit(SOME_FILES)
        return
    if dry_run:
        raise ConfigurationError("--dry-run is for tables: files are read as they are loaded; leave it out")
    with context.opened(settings, create=True) as retriever, context.progress() as progress:
        report = retriever.load_vectors(sources, **given, progress=progress)
    context.emit(report, lambda: _show_load(report))


def _are_tables(sources: list[Path]) -> bool:
    """Whether arguments are names of tables: nothing there is called so, and no file would be."""
    tables = [
        not os.path.exists(source)  # noqa: PTH110 - says False where Path would raise
        and len(source.parts) == 1
        and source.suffix.lower() not in FILES
        for source in sources
    ]
    if any(tables) and not all(tables):
        name = str(sources[tables.index(True)])
        raise ConfigurationError(f"there is no file {name!a}; where it is a table, import files and tables apart")
    return all(tables)


def _import_tables(
    context: Context, settings: Settings, names: list[str], options: dict[str, Any], *, dry_run: bool
) -> int:
    """Imports tables; returns how many of their rows were skipped."""
    skipped = 0
    with ExitStack() as stack:
        stack.enter_context(nullcontext() if dry_run else resumable())
        if dry_run:
            options |= {"dry_run": True}
            client = stack.enter_context(context.client(settings))
            collection: SyncCollection = client.collection(settings.collection)
        else:
            collection = stack.enter_context(context.opened(settings, create=True))
        for name in names:
            with context.progress() as progress:
                report = collection.import_table(name, **options, progress=progress)
            skipped += report.skipped
            context.emit(report, partial(_show_table, report, dry_run=dry_run))
    return skipped


def _show_load(report: LoadReport) -> None:
    left = report.rows - report.written
    rest = f", {left:,} left as they were or repeated" if left else ""
    inform(f"{counted(report.written, 'row')} stored{rest} in {report.seconds:.1f} s")
    for warning in report.warnings:
        print_note(warning)


def _show_table(report: TableImport, *, dry_run: bool) -> None:
    if dry_run:
        _show_found(report)
    else:
        left = report.taken - report.written
        rest = f", {left:,} left as they were" if left else ""
        inform(
            f"{escape(one_line(report.table))} ({report.layout}): {counted(report.written, 'row')} stored{rest}, "
            f"{report.skipped:,} skipped in {report.seconds:.1f} s"
        )
    for problem in report.problems[:SHOWN_PROBLEMS]:
        messages.print(f"[yellow]{'would be ' if dry_run else ''}skipped:[/yellow] {escape(one_line(str(problem)))}")
    if len(report.problems) > SHOWN_PROBLEMS:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.reasons.items())
        print_note(f"skipped in all: {one_line(reasons)}; --json names the first {len(report.problems):,}")
    if report.repeated:
        print_note(f"{counted(report.repeated, 'earlier row')} of ids that come again: the latest one counts")
    for column, count in report.left_out.items():
        print_note(f"the column {one_line(column)!r} is not taken; {counted(count, 'row')} have something in it")
    for warning in report.warnings:
        print_note(warning)


def _show_found(report: TableImport) -> None:
    keys = report.metadata_keys
    shown = ", ".join(one_line(key) for key in keys[:SHOWN_KEYS]) or "none"
    more = f" and {len(keys) - SHOWN_KEYS:,} more" if len(keys) > SHOWN_KEYS else ""
    lines = {
        "table": f"{one_line(report.table)}, of the layout {report.layout}",
        "rows": f"{report.rows:,}, of which {report.skipped:,} would be skipped",
        "vectors": f"{report.vector_type}, {report.dimensions or 'no'} dimensions",
        "metadata": shown + more,
    }
    for name, value in lines.items():
        output.print(f"{name:<10}{escape(value)}")
