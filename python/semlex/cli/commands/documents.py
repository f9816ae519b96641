"""List, read, add, import and preview documents; show and move their folders."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import MODEL, NEW, READER, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.groups import group_with_default
from semlex.cli.options import (
    DOCUMENT,
    Flags,
    OnDuplicate,
    OptionsOf,
    Source,
    Yes,
    agree,
    existing_paths,
    read_lines,
    source_names,
    without_none,
)
from semlex.cli.output import print_lines, print_note, write_lines
from semlex.cli.terminal import counted, inform, messages, one_line, output, printable, resumable
from semlex.errors import ConfigurationError
from semlex.ingest.progress import DeleteReport, TableImport
from semlex.options.declare import picked
from semlex.options.indexing import ChunkSizes, FindOptions, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.ingest.bulk.load import LoadReport
    from semlex.ingest.document_states import DocumentStates
    from semlex.ingest.preview import PreviewedFile
    from semlex.models.tokenizer import TokenCounter
    from semlex.retriever.synchronous import SyncRetriever
    from semlex.settings.table import Settings
    from semlex.store.write.sources import SourceInfo
    from semlex.types.documents import Document, Outline, WholeDocument

documents_app = typer.Typer(help=__doc__, cls=group_with_default("list"))


@with_context("collection", *SERVER)
def delete(
    context: Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID|DOC",
            help="Documents: files, or paths as `semlex documents` lists them (the end of a path is enough). Chunks: "
            "ids, or a path with a line (keys.md:9).",
        ),
    ] = None,
    *,
    source: Source = None,
    options: Annotated[dict[str, Any], Flags("options.search:SearchArguments", only=("filters",))],
    vanished: Annotated[bool, typer.Option("--vanished", help="Only documents whose file is gone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    yes: Yes = False,
) -> None:
    """Delete documents or chunks that meet the conditions of all given options."""
    given: dict[str, Any] = options | {"source": source, "vanished": vanished}
    with context.opened() as retriever:
        parts = [given | part for part in _delete_parts(retriever, names or (), source)]
        report = _delete_all(retriever, parts, dry_run=True)
        found = report.chunks + report.documents
        if not dry_run and (found or source is not None):
            if found:
                whole = counted(report.documents, "whole document")
                agree(f"Delete {counted(report.chunks, 'chunk')} ({whole})?", yes=yes)
            report = _delete_all(retriever, parts, dry_run=False)
    whole = f" ({counted(report.documents, 'whole document')})" if report.documents else ""
    text = f"{counted(report.chunks, 'chunk')} {'would be deleted' if dry_run else 'deleted'}{whole}"
    context.emit(report, lambda: messages.print(text) if dry_run else inform(text))


def _delete_parts(retriever: SyncRetriever, named: Sequence[str], source: str | None) -> list[dict[str, Any]]:
    """Return the named documents and chunks as arguments of `delete`, one set for each call."""
    if not named:
        return [{}]
    parts: list[dict[str, Any]] = []
    ids: list[str] = []
    for name in named:
        found = _document_named(retriever, name, source)
        if not found.chunks:  # an empty document
            parts.append({"document": name})
            continue
        first = found.chunks[0]
        if found.name == f"{first.source}: {first.source_document}" and source in (None, first.source):
            parts.append({"document": first.source_document, "source": first.source})
        else:
            ids += [chunk.id or "" for chunk in found.chunks]
    return [*parts, {"ids": ids}] if ids else parts


def _document_named(retriever: SyncRetriever, name: str, source: str | None) -> WholeDocument:
    """Read the document or chunk with a name; try it as a document of the source first."""
    if source is not None:
        with suppress(ConfigurationError):
            return retriever.documents.get(f"{source}: {name}")
    return retriever.documents.get(name)


def _delete_all(retriever: SyncRetriever, parts: Sequence[dict[str, Any]], *, dry_run: bool) -> DeleteReport:
    reports = [retriever.delete(**part, dry_run=dry_run) for part in parts]
    return DeleteReport(sum(one.chunks for one in reports), sum(one.documents for one in reports), dry_run)


@documents_app.command("list")
@with_context("collection", *READER)
def documents(context: Context, *, source: Source = None) -> None:
    """List the documents that were read, whether their files have changed, and what could not be read.

    States: ok, changed, gone, row (of a followed table), unknown (this machine cannot read the folder or the file).
    """
    with context.opened() as retriever:
        found = retriever.documents.list(source)
    read = [{"type": "document", **asdict(one)} for one in found.documents]
    unread = [{"type": "problem", **problem} for problem in found.problems]
    context.emit(read + unread, lambda: _print_documents(found))


def _print_documents(found: DocumentStates) -> None:
    for one in found.documents:
        written = f"{one.written_at:%Y-%m-%d %H:%M}"
        encoding = f"  {one.encoding}" if one.encoding else ""
        name = escape(one_line(f"{one.source}: {one.source_document}"))
        output.print(f"{one.state:8}{counted(one.chunks, 'chunk'):>12}  {written}  {name}{escape(encoding)}")
    if not found.documents:
        messages.print("no documents were read from files: semlex index FOLDER reads some")
    for problem in found.problems:
        name, code = one_line(problem["source_document"]), one_line(problem["code"])
        messages.print(f"[yellow]not read by the last run:[/yellow] {escape(name)}: {escape(code)}")


LINE_WIDTH = 6


@documents_app.command()
@with_context("collection", ..., *READER)
def show(context: Context, document: Annotated[str, DOCUMENT]) -> None:
    """Print the text of a document, of a chunk, or at a line of a document."""
    with context.opened() as retriever:
        found = retriever.documents.get(document)

    def print_text() -> None:
        write_lines([printable(found.text)])
        inform(f"[dim]{escape(one_line(found.name))}, {counted(len(found.chunks), 'chunk')}[/dim]")

    context.emit(found.to_dict(), print_text)
    print_note(*found.notes)


@documents_app.command()
@with_context("collection", ..., *READER)
def outline(context: Context, document: Annotated[str, DOCUMENT]) -> None:
    """Print the headings of a document with their lines."""
    with context.opened() as retriever:
        found = retriever.documents.outline(document)
    context.emit(found.to_dict()["headings"], lambda: _print_outline(found))
    print_note(*found.notes)


def _print_outline(found: Outline) -> None:
    for heading in found.headings:
        line = "" if heading.line is None else str(heading.line)
        output.print(f"{line:>{LINE_WIDTH}}  {'  ' * (heading.level - 1)}{escape(one_line(heading.title))}")
    if not found.headings:
        inform(f"{escape(one_line(found.name))} has no headings")


@documents_app.command()
@with_context("collection", ..., *SERVER, *MODEL, *NEW)
def add(
    context: Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="JSON Lines, one document per line; - is standard input.")
    ],
    *,
    texts: Annotated[bool, typer.Option("--texts", help="Treat each line as the text of a document.")] = False,
    on_duplicate: OnDuplicate = "update",
) -> None:
    """Add documents, each as one chunk: lines of JSON such as {"content": "…", "id": "a", "metadata": {"year": 2024}}.

    Without an id, the id follows from the text, so adding a line twice stores it once. To split files into chunks, use
    `semlex index`.
    """
    documents = [document for path in files for document in _documents(path, as_texts=texts)]
    if not documents:
        raise ConfigurationError("no document to add: give one per line")
    options: dict[str, Any] = {"on_duplicate": on_duplicate}
    with (
        resumable(),
        context.opened(context.with_only_collection(context.settings()), create=True, with_choice=True) as retriever,
        context.progress() as progress,
    ):
        ids = retriever.add_documents(documents, **options, progress=progress)
    context.emit({"ids": ids}, lambda: inform(f"{counted(len(ids), 'document')} added"))


def _documents(path: Path, *, as_texts: bool) -> list[Document]:
    from semlex.jobs.kinds import documents_from_json
    from semlex.types.documents import Document

    lines = read_lines(path)
    if as_texts:
        return [Document(line) for line in lines]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            place = "standard input" if str(path) == "-" else one_line(str(path))
            raise ConfigurationError(
                f"{place}: line {number} (blank lines not counted) is not JSON; --texts takes every line as a text"
            ) from None
    return documents_from_json(rows) if rows else []


TABLE_FILES = (".parquet", ".jsonl", ".ndjson")
SHOWN_KEYS = 20
SHOWN_PROBLEMS = 10
HOW_TO_GO_ON = (
    "[dim]the model of these vectors is unknown: search by words, or with your own query vectors; if semlex can "
    "run the model that made them, import them into a new collection with --model NAME to search by questions[/dim]"
)
LAYOUTS = "langchain-postgres, langchain-pgvector, llama-index, haystack or pgvector (any other table)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The options that say which columns or fields of rows are imported, by the names of `Tables.import_table`."""

    layout: Annotated[
        str | None, typer.Option("--from", show_default="by their columns", help=f"For tables: {LAYOUTS}.")
    ] = None
    source_url: Annotated[
        str | None,
        typer.Option(
            "--source-database", show_default="the collection's", help="For tables: libpq URL of their database."
        ),
    ] = None
    source_schema: Annotated[str | None, typer.Option(show_default="public", help="For tables: their schema.")] = None
    text_field: Annotated[
        str | None, typer.Option(show_default="the layout's, else text", help="Field of the text.")
    ] = None
    vector_field: Annotated[
        str | None, typer.Option(show_default="the layout's, else vector", help="Field of the vector.")
    ] = None
    id_field: Annotated[
        str | None,
        typer.Option(show_default="the layout's, else id if there is one", help="Field that identifies a row."),
    ] = None
    metadata_fields: Annotated[
        list[str] | None,
        typer.Option("--metadata-field", show_default="all others", help="Field to keep as metadata; repeatable."),
    ] = None
    metadata_field: Annotated[
        str | None,
        typer.Option(
            "--merged-field",
            show_default="the layout's, else metadata",
            help="Field that contains an object; the keys of the object become metadata.",
        ),
    ] = None
    on_duplicate: OnDuplicate = "update"


@documents_app.command("import")
@with_context("collection", ..., *SERVER, *MODEL, *NEW)
def import_rows(
    context: Context,
    sources: Annotated[
        list[Path],
        typer.Argument(help="Parquet or JSON Lines files, or folders of them; or tables of other libraries."),
    ],
    *,
    rows: Annotated[Rows, OptionsOf(Rows)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="For tables: read all rows, report what would be skipped, write nothing.")
    ] = False,
) -> None:
    """Import rows with their vectors, from files or from tables of LangChain, LlamaIndex or Haystack.

    Nothing is split or embedded. An argument that is neither a file nor a folder is a table name.
    """
    given = without_none(asdict(rows))
    settings = context.settings()
    has_model = settings.is_set("embedding_model")
    if not has_model:
        # Another program made the vectors; only the user knows with which model.
        settings = context.settings(embedding_model="none")
    settings = context.with_only_collection(settings)
    if given.keys() & {"layout", "source_url", "source_schema"} or _are_tables(sources):
        skipped = _import_tables(context, settings, sources, given, dry_run=dry_run)
        if not (has_model or dry_run or context.as_json):
            inform(HOW_TO_GO_ON)
        if skipped:
            raise typer.Exit(SOME_FILES)
        return
    if dry_run:
        raise ConfigurationError("--dry-run works for tables only: leave it out for files")
    with context.opened_later(settings) as collection:
        with context.progress() as progress:
            report = collection.tables.load(sources, **given, progress=progress)
        context.emit(report, lambda: _show_load(report))


def _are_tables(sources: list[Path]) -> bool:
    """Return whether the arguments are names of tables: no such file exists, and none has a suffix of files to load."""
    tables = [
        not os.path.exists(source)  # noqa: PTH110 - says False where Path would raise
        and len(source.parts) == 1
        and source.suffix.lower() not in TABLE_FILES
        for source in sources
    ]
    if any(tables) and not all(tables):
        name = str(sources[tables.index(True)])
        raise ConfigurationError(f"file {name!a} does not exist; if it is a table, import files and tables separately")
    return all(tables)


def _import_tables(
    context: Context, settings: Settings, names: Sequence[Path], options: dict[str, Any], *, dry_run: bool
) -> int:
    """Import tables; return how many of their rows were skipped."""
    skipped = 0
    with ExitStack() as stack:
        if dry_run:
            collection = stack.enter_context(context.client(settings)).collection(settings.collection)
        else:
            stack.enter_context(resumable())
            collection = stack.enter_context(context.opened_later(settings))
        for name in names:
            with context.progress() as progress:
                report = collection.tables.import_table(str(name), **options, dry_run=dry_run, progress=progress)
            skipped += report.skipped
            context.emit(report, partial(_show_table, report, dry_run=dry_run))
    return skipped


def _show_load(report: LoadReport) -> None:
    left = report.rows - report.written
    rest = f", {left:,} unchanged or repeated" if left else ""
    inform(f"{counted(report.written, 'row')} stored{rest} in {report.seconds:.1f} s")
    print_note(*report.warnings)


def _show_table(report: TableImport, *, dry_run: bool) -> None:
    if dry_run:
        _show_found(report)
    else:
        left = report.taken - report.written
        rest = f", {left:,} unchanged" if left else ""
        inform(
            f"{escape(one_line(report.table))} ({report.layout}): {counted(report.written, 'row')} stored{rest}, "
            f"{report.skipped:,} skipped in {report.seconds:.1f} s"
        )
    for problem in report.problems[:SHOWN_PROBLEMS]:
        messages.print(f"[yellow]{'would be ' if dry_run else ''}skipped:[/yellow] {escape(one_line(str(problem)))}")
    if len(report.problems) > SHOWN_PROBLEMS:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.reasons.items())
        print_note(f"skipped in total: {reasons}; --json names the first {len(report.problems):,}")
    if report.repeated:
        print_note(f"{counted(report.repeated, 'earlier row')} with a repeated id: only the last row is stored")
    for column, count in report.left_out.items():
        print_note(f"the column {column!r} is not imported; it has a value in {counted(count, 'row')}")
    print_note(*report.warnings)


def _show_found(report: TableImport) -> None:
    keys = report.metadata_keys
    shown = ", ".join(keys[:SHOWN_KEYS]) or "none"
    more = f" and {len(keys) - SHOWN_KEYS:,} more" if len(keys) > SHOWN_KEYS else ""
    lines = {
        "table": f"{report.table}, of the layout {report.layout}",
        "rows": f"{report.rows:,}, of which {report.skipped:,} would be skipped",
        "vectors": f"{report.vector_type}, {report.dimensions or 'no'} dimensions",
        "metadata": shown + more,
    }
    print_lines(lines, 9)


@documents_app.command()
@with_context("collection", *SERVER)
def sources(context: Context) -> None:
    """List the folders that documents were read from: name, folder, documents, chunks."""
    with context.opened() as retriever:
        found = retriever.documents.sources()
    context.emit(found, lambda: _print_sources(found))


def _print_sources(found: Sequence[SourceInfo]) -> None:
    for entry in found:
        counts = f"{counted(entry.documents, 'document')}, {counted(entry.chunks, 'chunk')}"
        output.print(f"{escape(one_line(entry.name)):24} {counts:36} {escape(one_line(entry.root))}")
    if not found:
        messages.print("no sources: semlex index FOLDER makes one")


@documents_app.command()
@with_context("collection", *SERVER)
def move(
    context: Context,
    name: Annotated[str, typer.Argument(help="Name of the source.", autocompletion=source_names)],
    root: Annotated[Path, typer.Argument(help="New folder of the source.")],
) -> None:
    """Set where the folder of a source is now; its documents stay as they are."""
    with context.opened() as retriever:
        retriever.documents.move_source(name, root.expanduser())
        moved = next(entry for entry in retriever.documents.sources() if entry.name == name)
    context.emit(moved, lambda: inform(f"{escape(one_line(name))} is {escape(one_line(moved.root))} now"))


@documents_app.command("preview")
@with_context(*MODEL)
def chunks(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    options: Annotated[dict[str, Any], Flags("retriever.options:FileOptions", without=("source",))],
) -> None:
    """Show the chunks that files would become; nothing is written, and no server is used.

    Tokens are counted with `--tokenizer`, else with the model of `--model`, else as Unicode words.
    """
    from semlex.ingest.loaders.base import LoadOptions
    from semlex.ingest.preview import preview_chunks
    from semlex.options.collection import KINDS, WantedOptions

    found = existing_paths(paths)
    settings = context.settings(**picked(ChunkSizes, options))
    stored = settings.retriever_options
    wanted = WantedOptions.checked({name: stored.get(name) for name in KINDS}, stored["defaults"])
    failed = 0
    for file in preview_chunks(
        *found,
        **picked(FindOptions, options),
        **wanted.chunk_settings()._asdict(),
        counter=_token_counter(settings),
        options=LoadOptions(**picked(ReadOptions, options)),
        limits=settings.file_limits,
    ):
        failed += file.problem is not None and not file.is_skipped
        context.emit(file, partial(_print_file, file))
    if failed:
        raise typer.Exit(SOME_FILES)


def _token_counter(settings: Settings) -> TokenCounter | None:
    """Return the token counter: the named tokenizer if no local model is named, else the model; None without either."""
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
        inform(escape(one_line(f"{file.source_document}: {left_out}{file.problem.message}")))
        return
    title = f", {one_line(file.title)!r}" if file.title else ""
    repaired = f", {counted(file.repaired, 'character')} repaired" if file.repaired else ""
    output.print(
        f"{one_line(file.source_document)}: {file.format}{title}, {counted(len(file.chunks), 'chunk')}{repaired}",
        markup=False,
    )
    for number, chunk in enumerate(file.chunks, start=1):
        place = f"{one_line(chunk.place)}, " if chunk.place else ""
        output.print(f"--- {number}: {place}{counted(chunk.tokens, 'token')}, {chunk.chunk_type}", style="dim")
        for line in chunk.context.splitlines():
            output.print(f"  {one_line(line)}", markup=False, style="dim")
        output.print(printable(chunk.text), markup=False)
