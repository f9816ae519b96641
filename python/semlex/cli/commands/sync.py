"""The commands that keep a collection in step with folders: ``semlex sync`` and ``semlex documents``."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semlex.cli.commands.whole_collection.enrich import filled, lacks_lines, refuse_unasked
from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.interactive.completion import source_names
from semlex.cli.options import (
    ChunkTokens,
    DetectEncoding,
    Exclude,
    IdField,
    Include,
    MinTokens,
    NewSource,
    OnBadText,
    OverlapTokens,
    Recursive,
    TextFields,
    Yes,
    existing_paths,
)
from semlex.cli.progress_bar import resumable
from semlex.cli.sync_output import print_documents, print_sync
from semlex.cli.terminal import messages
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.progress import SyncReport


@with_context("collection", ..., *SERVER, *MODEL, "language", "keyword", "enrichment_model")
def sync(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    source: NewSource = None,
    include: Include = None,
    exclude: Exclude = None,
    recursive: Recursive = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")] = False,
    keep_deleted: Annotated[bool, typer.Option("--keep-deleted", help="Keep documents whose file is gone.")] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="A path that is missing or empty means: delete its documents.")
    ] = False,
    text_field: TextFields = None,
    id_field: IdField = None,
    detect_encoding: DetectEncoding = False,
    on_bad_text: OnBadText = "error",
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
    min_tokens: MinTokens = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, whenever something changes, until Ctrl-C.")] = False,
    poll: Annotated[
        bool, typer.Option("--poll", help="With --watch: look again and again, as for network drives.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make a collection hold what files and folders hold.

    New and changed files are read, renamed ones keep their chunks and vectors, and documents whose file is gone are
    deleted. A file that cannot be read keeps its document: it is listed at the end and the exit code is 5.

    With --enrich a language model writes a line about each chunk, when it was said what that costs.
    """
    if watch and dry_run:
        raise ConfigurationError("--watch and --dry-run exclude each other: give one of them")
    if poll and not watch:
        raise ConfigurationError("--poll says how folders are watched: give --watch, too")
    settings = context.settings(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
    if settings.enrichment_model is not None and settings.enrichment_model != "none":
        if watch or dry_run:
            raise ConfigurationError(
                "--watch and --dry-run ask no language model: give --enrich none, and run semlex enrich afterwards"
            )
        refuse_unasked(settings.enrichment_model, yes=yes)  # before a collection is made
    given: dict[str, Any] = {
        "source": source,
        "include": include or None,
        "exclude": exclude or (),
        "recursive": recursive,
        "keep_deleted": keep_deleted,
        "allow_empty": allow_empty,
        "text_fields": text_field or (),
        "id_field": id_field,
        "detect_encoding": detect_encoding,
        "on_bad_text": on_bad_text,
        "chunk_tokens": chunk_tokens,
        "overlap_tokens": overlap_tokens,
        "min_tokens": min_tokens,
    }
    found = [path.expanduser() for path in paths]
    settings = context.with_only_collection(settings)
    if not all(map(os.path.lexists, found)) and settings.collection not in context.collection_names(settings):
        existing_paths(found)  # refused before a collection is made for it
    with context.opened(settings, create=not dry_run, with_choice=True) as retriever:
        if watch:
            with closing(retriever.watch(*found, **given, poll=poll)) as reports:
                _watch(context, reports)
            return

        def fill(enrichment: Enrichment | None) -> SyncReport:
            with context.progress() as progress:
                return retriever.sync(*found, **given, dry_run=dry_run, enrichment=enrichment, progress=progress)

        with resumable():
            report = filled(settings, fill, lambda report: report.run, yes=yes)
    print_sync(report, as_json=context.as_json)
    if report.run.failed or lacks_lines(report.run.enrichment):
        raise typer.Exit(SOME_FILES)


def _watch(context: Context, reports: Iterator[SyncReport]) -> None:
    for number, report in enumerate(reports):
        print_sync(report, as_json=context.as_json)
        if number == 0:
            how = "the system tells of changes" if report.watched_by == "events" else "by polling"
            messages.print(f"watching, {how}; Ctrl-C ends it")


@with_context("collection", *SERVER)
def documents(
    context: Context,
    *,
    source: Annotated[
        str | None, typer.Option("--source", help="Only this source.", autocompletion=source_names)
    ] = None,
) -> None:
    """List the documents that were read from files, whether these have changed, and what the last run could not read.

    States: ok, changed, gone, and unknown where the folder is not within reach of this machine.
    """
    with context.opened() as retriever:
        found = retriever.documents(source)
    print_documents(found, as_json=context.as_json)
