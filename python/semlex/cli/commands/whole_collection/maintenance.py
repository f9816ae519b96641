"""The commands that maintain a collection: ``semlex optimize``, ``reindex``, ``rechunk`` and ``delete``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.interactive.completion import source_names
from semlex.cli.options import ChunkTokens, Filter, MinTokens, OverlapTokens, Yes, agree, filter_of
from semlex.cli.output import print_problems, print_report
from semlex.cli.terminal import counted, inform, messages
from semlex.errors import ConfigurationError
from semlex.ingest.progress import DeleteReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.retriever.synchronous import SyncRetriever
    from semlex.types.documents import WholeDocument

NAMES = typer.Argument(
    metavar="ID|DOC", help="Paths as `semlex documents` lists them, ends of such, keys.md:9, files, or ids of chunks."
)
Source = Annotated[str | None, typer.Option("--source", help="Only this source.", autocompletion=source_names)]


@with_context("collection", *SERVER)
def optimize(context: Context) -> None:
    """Merge a collection's keyword index to few, full segments; worth its time after a large load."""
    with context.opened() as retriever, context.progress() as progress:
        merged = retriever.optimize(progress=progress)
    context.emit({"merged": merged}, lambda: inform(f"{counted(merged, 'segment')} merged"))


@with_context("collection", *SERVER)
def reindex(
    context: Context,
    *,
    keyword: Annotated[bool, typer.Option("--keyword", help="The keyword index (engine bm25).")] = False,
) -> None:
    """Rebuild an index from the stored texts, while the collection is searched and written."""
    if not keyword:
        raise ConfigurationError("say which index: --keyword")
    with context.opened() as retriever, context.progress() as progress:
        rebuilt = retriever.reindex_keyword(progress=progress)
    done = f"{counted(rebuilt.chunks, 'chunk')} indexed again, {counted(rebuilt.segments, 'segment')}"
    value = {"chunks": rebuilt.chunks, "segments": rebuilt.segments, "generation": rebuilt.generation}
    context.emit(value, lambda: inform(done))


@with_context("collection", *SERVER, *MODEL)
def rechunk(
    context: Context,
    *,
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
    min_tokens: MinTokens = None,
    source: Source = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
) -> None:
    """Cut documents again from their files: those that an older version cut, or all of them with other settings."""
    with context.opened() as retriever, context.progress() as progress:
        report = retriever.rechunk(
            chunk_tokens=chunk_tokens,
            overlap_tokens=overlap_tokens,
            min_tokens=min_tokens,
            source=source,
            dry_run=dry_run,
            progress=progress,
        )
    if dry_run and not context.as_json:
        messages.print(
            f"{counted(report.changed, 'document')} would be cut into {counted(report.chunks, 'chunk')}, "
            f"{report.embedded:,} of them embedded; {counted(report.unchanged, 'document')} would stay"
        )
        print_problems(report)
    else:
        print_report(report, as_json=context.as_json)
    if report.failed:
        raise typer.Exit(SOME_FILES)


@with_context("collection", *SERVER)
def delete(
    context: Context,
    names: Annotated[list[str] | None, NAMES] = None,
    *,
    document: Annotated[
        str | None, typer.Option("--document", metavar="DOC", help="A document: the same as an argument.")
    ] = None,
    source: Source = None,
    filters: Filter = None,
    vanished: Annotated[bool, typer.Option("--vanished", help="Only documents whose file is gone.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    yes: Yes = False,
) -> None:
    """Delete documents or chunks with their vectors; the options that are given must all hold."""
    given: dict[str, Any] = {"source": source, "filters": filter_of(filters), "vanished": vanished}
    named = [*(names or ()), *(() if document is None else (document,))]
    with context.opened() as retriever:
        parts = [given | part for part in _parts(retriever, named, source)]
        report = _delete(retriever, parts, dry_run=True)
        found = report.chunks + report.documents
        if not dry_run and (found or source is not None):
            if found:
                whole = counted(report.documents, "whole document")
                agree(f"Delete {counted(report.chunks, 'chunk')} ({whole})?", yes=yes)
            report = _delete(retriever, parts, dry_run=False)
    done = "would be deleted" if dry_run else "deleted"
    text = f"{counted(report.chunks, 'chunk')} {done}, {counted(report.documents, 'document')} with nothing left"
    context.emit(report, lambda: messages.print(text) if dry_run else inform(text))


def _parts(retriever: SyncRetriever, named: Sequence[str], source: str | None) -> list[dict[str, Any]]:
    """What is named, as arguments of `delete`, each for one call: documents, and chunks."""
    if not named:
        return [{}]
    parts: list[dict[str, Any]] = []
    ids: list[str] = []
    for name in named:
        found = _found(retriever, name, source)
        if not found.chunks:  # an empty document
            parts.append({"document": name})
            continue
        first = found.chunks[0]
        if found.name == f"{first.source}: {first.source_document}" and source in (None, first.source):
            parts.append({"document": first.source_document, "source": first.source})
        else:
            ids += [chunk.id or "" for chunk in found.chunks]
    return [*parts, {"ids": ids}] if ids else parts


def _found(retriever: SyncRetriever, name: str, source: str | None) -> WholeDocument:
    """What stands under a name, that of the source first."""
    if source is not None:
        with suppress(ConfigurationError):
            return retriever.get_document(f"{source}: {name}")
    return retriever.get_document(name)


def _delete(retriever: SyncRetriever, parts: Sequence[dict[str, Any]], *, dry_run: bool) -> DeleteReport:
    reports = [retriever.delete(**part, dry_run=dry_run) for part in parts]
    return DeleteReport(sum(one.chunks for one in reports), sum(one.documents for one in reports), dry_run)
