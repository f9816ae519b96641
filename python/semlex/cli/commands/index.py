"""``semlex index`` and ``semlex sync``: fill a collection from files and folders."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semlex.cli.commands.maintain import filled, lacks_descriptions, refuse_unasked
from semlex.cli.context import MODEL, NEW, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.options import Flags, Yes, existing_paths, flag_of
from semlex.cli.output import print_note
from semlex.cli.reports import print_report, print_sync, print_table_sync
from semlex.cli.terminal import inform, messages, resumable
from semlex.errors import ConfigurationError
from semlex.options.declare import picked
from semlex.options.indexing import ChunkSizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from semlex.ingest.enrichment import Enrichment
    from semlex.ingest.files.selection import Selection
    from semlex.ingest.progress import IndexReport, SyncReport
    from semlex.settings.table import Settings


@with_context("collection", ..., *SERVER, *MODEL, *NEW, "enrichment_model")
def index(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    options: Annotated[dict[str, Any], Flags("retriever.options:IndexOptions", without=("enrichment",))],
    yes: Yes = False,
) -> None:
    """Add files and folders to a collection; documents whose file is gone stay (`semlex sync` deletes them).

    Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be read
    does not stop the run: it is listed at the end and the exit code is 5.

    With --enrich, a language model describes each chunk in one line. You see the cost first.
    """
    from semlex.ingest.files.roots import plan_places

    settings = context.settings(**picked(ChunkSizes, options))
    found = existing_paths(paths)
    try:
        plan_places(found, {}, options.get("source"))
    except ConfigurationError:  # the folders of a collection that is there may have other names
        if settings.collection not in context.collection_names(settings):
            raise
    if leaves_unmade(context, settings, found, options):
        return
    if settings.enrichment_model is not None and settings.enrichment_model != "none":
        refuse_unasked(settings.enrichment_model, yes=yes)  # before a collection is made
    settings = with_light_model(context, settings, found, options)
    with context.opened(settings, create=True, with_choice=True) as retriever:

        def fill(enrichment: Enrichment | None) -> IndexReport:
            with context.progress() as progress:
                return retriever.index(*found, **options, enrichment=enrichment, progress=progress)

        with resumable():
            report = filled(settings, fill, lambda report: report, yes=yes)
        context.emit(report, lambda: print_report(report))
    if report.failed or lacks_descriptions(report.enrichment):
        raise typer.Exit(SOME_FILES)


def leaves_unmade(context: Context, settings: Settings, paths: Sequence[Path], options: Mapping[str, Any]) -> bool:
    """Return True and print a note if no files were found, so that no collection is made."""
    from semlex.ingest.files.discovery import find_files
    from semlex.ingest.files.selection import Skipped
    from semlex.ingest.progress import IndexReport

    skipped = Skipped()
    if next(find_files(paths, _selection(options), skipped), None) is not None:
        return False
    if settings.collection in context.collection_names(settings):
        return False
    report = IndexReport(skipped=skipped.by_reason())
    context.emit(report, lambda: print_report(report))
    if not context.as_json:
        print_note(f"the collection {settings.collection} was not made: there is nothing to put into it")
    return True


def _selection(options: Mapping[str, Any]) -> Selection:
    from semlex.ingest.files.selection import Selection
    from semlex.ingest.loaders.registry import loaders

    return Selection(
        options.get("include"), options.get("exclude", ()), loaders().keys(), options.get("recursive", True)
    )


def with_light_model(
    context: Context, settings: Settings, paths: Sequence[Path], options: Mapping[str, Any]
) -> Settings:
    """Return settings that give a new collection an ONNX model of this machine, if one is fast enough."""
    from semlex.embedding.onnx import MAX_LIGHT_SECONDS, estimate_seconds, find_light_model
    from semlex.ingest.files.discovery import FoundFile, find_files
    from semlex.models.local.device import automatic_obstacle
    from semlex.models.model_names import DEFAULT_EMBEDDING_MODEL
    from semlex.progress import duration

    name = None if settings.embedding_model is not None else find_light_model()
    if name is None or settings.collection in context.collection_names(settings):
        return settings
    if automatic_obstacle(DEFAULT_EMBEDDING_MODEL, settings.device) is None:  # a larger model, on the GPU
        return settings
    files = find_files(paths, _selection(options))
    seconds = estimate_seconds(name, sum(file.size for file in files if isinstance(file, FoundFile)))
    takes_it = seconds <= MAX_LIGHT_SECONDS
    if not context.as_json:
        why = f"{name} is on this machine and would embed these files in about {duration(seconds)}"
        inform(f"[dim]{why}[/dim]" if takes_it else f"[dim]{why}; for better hits: --model {name}[/dim]")
    if not takes_it:
        return settings
    return replace(settings, embedding_model=name, origins={**settings.origins, "embedding_model": "found here"})


@with_context("collection", ..., *SERVER, *MODEL, *NEW, "enrichment_model")
def sync(
    context: Context,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders.", show_default="all followed tables")
    ] = None,
    *,
    options: Annotated[dict[str, Any], Flags("retriever.options:SyncOptions", without=("enrichment",))],
    table: Annotated[
        str | None, typer.Option(help="Name of a followed table.", show_default="all, if no path is given")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Compare all rows of followed tables, even if a column or triggers show the changed ones."
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running, and sync whenever something changes, until Ctrl-C.")
    ] = False,
    poll: Annotated[
        bool, typer.Option("--poll", help="With --watch: look for changes at intervals, which network drives need.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make a collection match files and folders: as `semlex index`, but documents whose file is gone are deleted.

    Without a path, the collection matches its followed tables (`semlex follow`). Rows that cannot be stored are listed
    at the end and the exit code is 5.

    Renamed files keep their chunks and vectors. A file that cannot be read keeps its document: it is listed at the end
    and the exit code is 5. --watch keeps the collection in sync.

    With --enrich, a language model describes each chunk in one line. You see the cost first.
    """
    if not paths:
        if watch or poll:
            raise ConfigurationError("--watch is for folders: name one; semlex worker keeps followed tables in step")
        _sync_tables(context, table, options, compare=compare)
        return
    if table is not None or compare:
        raise ConfigurationError(
            "--table and --compare are for followed tables, and paths for files: give only one kind"
        )
    if watch and options.get("dry_run"):
        raise ConfigurationError("--watch and --dry-run exclude each other: give one of them")
    if poll and not watch:
        raise ConfigurationError("--poll needs --watch: add it")
    _sync_folders(context, paths, options, watch=watch, poll=poll, yes=yes)


def _sync_folders(
    context: Context, paths: Sequence[Path], options: dict[str, Any], *, watch: bool, poll: bool, yes: bool
) -> None:
    """Bring the collection in step with files and folders, once or until stopped."""
    dry_run = options.get("dry_run", False)
    settings = context.settings(**picked(ChunkSizes, options))
    if settings.enrichment_model is not None and settings.enrichment_model != "none":
        if watch or dry_run:
            raise ConfigurationError(
                "--watch and --dry-run use no language model: give --enrich none, then run semlex maintain enrich"
            )
        refuse_unasked(settings.enrichment_model, yes=yes)  # before a collection is made
    found = [path.expanduser() for path in paths]
    settings = context.with_only_collection(settings)
    if not all(map(os.path.lexists, found)) and settings.collection not in context.collection_names(settings):
        existing_paths(found)  # refused before a collection is made for it
    if not dry_run:
        settings = with_light_model(context, settings, found, options)
    with context.opened(settings, create=not dry_run, with_choice=True) as retriever:
        if watch:
            with closing(retriever.watch(*found, **options, poll=poll)) as reports:
                _watch(context, reports)
            return

        def fill(enrichment: Enrichment | None) -> SyncReport:
            with context.progress() as progress:
                return retriever.sync(*found, **options, enrichment=enrichment, progress=progress)

        with resumable():
            report = filled(settings, fill, lambda report: report.run, yes=yes)
        context.emit(report, lambda: print_sync(report))
    if report.run.failed or lacks_descriptions(report.run.enrichment):
        raise typer.Exit(SOME_FILES)


def _sync_tables(context: Context, table: str | None, options: dict[str, Any], *, compare: bool) -> None:
    """Bring the collection in step with followed tables."""
    wanted = {name: options[name] for name in ("allow_empty", "dry_run") if name in options}
    if of_files := sorted(options.keys() - wanted.keys()):
        raise ConfigurationError(f"{flag_of(of_files[0])} is for files: name a path, or leave the option out")
    with resumable(), context.opened(with_choice=True) as retriever, context.progress() as progress:
        reports = retriever.tables.sync(table, compare=compare, **wanted, progress=progress)
    if not reports and not context.as_json:
        inform("no table is followed: semlex follow TABLE --text COLUMN follows one; semlex sync FOLDER reads files")
    for report in reports:
        context.emit(report, partial(print_table_sync, report))
    if any(report.failed for report in reports):
        raise typer.Exit(SOME_FILES)


def _watch(context: Context, reports: Iterator[SyncReport]) -> None:
    for number, report in enumerate(reports):
        context.emit(report, partial(print_sync, report))
        if number == 0:
            how = "by the system's change events" if report.watched_by == "events" else "by polling"
            messages.print(f"watching, {how}; Ctrl-C ends it")
