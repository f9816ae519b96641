"""The commands that fill a collection, ``semlex index`` and ``embed``, and ``semlex chunks``, which shows with what."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.commands.whole_collection.enrich import filled, lacks_lines, refuse_unasked
from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
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
from semlex.cli.output import print_json, print_note, print_report
from semlex.cli.progress_bar import resumable
from semlex.cli.terminal import counted, inform, one_line, output, printable
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.ingest.enrichment.options import Enrichment
    from semlex.ingest.preview import PreviewedFile
    from semlex.ingest.progress import IndexReport
    from semlex.models.tokenizer import TokenCounter
    from semlex.settings.table import Settings


@with_context("collection", ..., *SERVER, *MODEL, "language", "keyword", "enrichment_model")
def index(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    source: NewSource = None,
    include: Include = None,
    exclude: Exclude = None,
    recursive: Recursive = True,
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
    min_tokens: MinTokens = None,
    text_field: TextFields = None,
    id_field: IdField = None,
    detect_encoding: DetectEncoding = False,
    on_bad_text: OnBadText = "error",
    yes: Yes = False,
) -> None:
    """Read files and folders, cut them, and store their chunks.

    Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be read
    does not stop the run: it is listed at the end and the exit code is 5.

    With --enrich a language model writes a line about each chunk, when it was said what that costs.
    """
    from semlex.ingest.files.roots import plan_places

    settings = context.settings(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
    found = existing_paths(paths)
    try:
        plan_places(found, {}, source)
    except ConfigurationError:  # the folders of a collection that is there may have other names
        if settings.collection not in context.collection_names(settings):
            raise
    if leaves_unmade(context, settings, found, include, exclude or (), recursive=recursive):
        return
    if settings.enrichment_model is not None and settings.enrichment_model != "none":
        refuse_unasked(settings.enrichment_model, yes=yes)  # before a collection is made
    opened = context.opened(settings, create=True, with_choice=True)
    with resumable(), opened as retriever:

        def fill(enrichment: Enrichment | None) -> IndexReport:
            with context.progress() as progress:
                return retriever.index(
                    *found,
                    source=source,
                    include=include or None,
                    exclude=exclude or (),
                    recursive=recursive,
                    chunk_tokens=chunk_tokens,
                    overlap_tokens=overlap_tokens,
                    min_tokens=min_tokens,
                    text_fields=text_field or (),
                    id_field=id_field,
                    detect_encoding=detect_encoding,
                    on_bad_text=on_bad_text,
                    enrichment=enrichment,
                    progress=progress,
                )

        report = filled(settings, fill, lambda report: report, yes=yes)
    print_report(report, as_json=context.as_json)
    if report.failed or lacks_lines(report.enrichment):
        raise typer.Exit(SOME_FILES)


def leaves_unmade(
    context: Context,
    settings: Settings,
    paths: Sequence[Path],
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    *,
    recursive: bool = True,
) -> bool:
    """Whether a collection is not made because no file is there for it; prints that."""
    from semlex.ingest.files.discovery import find_files
    from semlex.ingest.files.selection import Selection, Skipped
    from semlex.ingest.loaders.registry import loaders
    from semlex.ingest.progress import IndexReport

    skipped = Skipped()
    selection = Selection(include or None, exclude, loaders().keys(), recursive)
    if next(find_files(paths, selection, skipped), None) is not None:
        return False
    if settings.collection in context.collection_names(settings):
        return False
    print_report(IndexReport(skipped=skipped.by_reason()), as_json=context.as_json)
    if not context.as_json:
        print_note(f"the collection {settings.collection} was not made: there is nothing to put into it")
    return True


@with_context("collection", *SERVER, *MODEL)
def embed(context: Context) -> None:
    """Compute the vectors of chunks that have none, without reading the files again."""
    with resumable(), context.opened(with_choice=True) as retriever, context.progress() as progress:
        written = retriever.embed_missing(progress=progress)
    context.emit({"embedded": written}, lambda: inform(f"{counted(written, 'chunk')} embedded"))


@with_context(*MODEL)
def chunks(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    include: Include = None,
    exclude: Exclude = None,
    text_field: TextFields = None,
    id_field: IdField = None,
    detect_encoding: DetectEncoding = False,
    on_bad_text: OnBadText = "error",
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
    min_tokens: MinTokens = None,
) -> None:
    """Show what files become when they are indexed; nothing is written, and no server is asked.

    Tokens are counted by `--tokenizer`, or by the model that `--model` names, else as Unicode words.
    """
    from semlex.ingest.loaders.base import LoadOptions
    from semlex.ingest.preview import preview_chunks
    from semlex.parameters import KINDS, WantedOptions

    found = existing_paths(paths)
    settings = context.settings(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
    options = settings.retriever_options
    wanted = WantedOptions.checked({name: options.get(name) for name in KINDS}, options["defaults"])
    failed = 0
    for file in preview_chunks(
        *found,
        include=include or None,
        exclude=exclude or (),
        **wanted.chunk_settings()._asdict(),
        counter=_token_counter(settings),
        options=LoadOptions(tuple(text_field or ()), id_field, detect_encoding, on_bad_text),
        limits=settings.file_limits,
    ):
        failed += file.problem is not None and not file.is_skipped
        if context.as_json:
            print_json(asdict(file))
        else:
            _print_file(file)
    if failed:
        raise typer.Exit(SOME_FILES)


def _token_counter(settings: Settings) -> TokenCounter | None:
    """The named tokenizer, where it stands for a model behind a server or for none; else the named model."""
    from semlex.embedding.registry import KEYWORDS_ONLY, choose_embedder
    from semlex.models.model_names import leads_to
    from semlex.models.tokenizer import given_tokenizer

    model = settings.embedding_model or KEYWORDS_ONLY
    if settings.tokenizer is not None and (model == KEYWORDS_ONLY or leads_to(model) == "server"):
        return given_tokenizer(settings.tokenizer)
    said = settings.retriever_options.get("tokenizer")
    return choose_embedder(model, device=settings.device, dimensions=settings.dimensions, tokenizer=said).model


def _print_file(file: PreviewedFile) -> None:
    if file.problem is not None:
        left_out = "left out: " if file.is_skipped else ""
        inform(escape(one_line(f"{file.uri}: {left_out}{file.problem.message}")))
        return
    title = f", {one_line(file.title)!r}" if file.title else ""
    repaired = f", {counted(file.repaired, 'character')} repaired" if file.repaired else ""
    output.print(
        f"{one_line(file.uri)}: {file.format}{title}, {counted(len(file.chunks), 'chunk')}{repaired}", markup=False
    )
    for number, chunk in enumerate(file.chunks, start=1):
        page = f", page {chunk.page}" if chunk.page else ""
        output.print(
            f"--- {number}: line {chunk.line}{page}, {counted(chunk.tokens, 'token')}, {chunk.chunk_type}", style="dim"
        )
        for line in chunk.context.splitlines():
            output.print(f"  {one_line(line)}", markup=False, style="dim")
        output.print(printable(chunk.text), markup=False)
