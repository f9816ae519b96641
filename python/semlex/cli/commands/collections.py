"""List, drop, dump and restore collections."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.options import Yes, agree, collection_names
from semlex.cli.output import KEYWORDS_ONLY, print_json, print_note, print_table, shown_count
from semlex.cli.terminal import counted, inform, messages, one_line, output
from semlex.errors import ConfigurationError, SchemaVersionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.diagnostics.status import CountedCollection
    from semlex.maintenance.dump import TransferReport
    from semlex.retriever.synchronous import SyncClient

collections_app = typer.Typer(help=__doc__, cls=group_with_default("list"))


@collections_app.command("list")
@with_context(*SERVER)
def collections(context: Context) -> None:
    """List the collections with their documents, chunks, model and language."""
    with context.client() as client:
        found = client.count_collections()
    context.emit(found, lambda: print_collections(found, header=context.header))


@collections_app.command()
@with_context("collection", ..., *SERVER)
def describe(
    context: Context,
    text: Annotated[
        list[str] | None, typer.Argument(help="What the collection contains; default: show the description.")
    ] = None,
    *,
    reset: Annotated[
        bool, typer.Option("--reset", help="Describe the collection by the titles of its documents again.")
    ] = False,
) -> None:
    """Show or set what a collection is about, for language models that search it."""
    if reset and text:
        raise ConfigurationError("give a text or --reset, not both")
    with context.opened() as retriever:
        if reset or text:
            retriever.describe(" ".join(text) if text else None)
        shown = retriever.description()
    context.emit({"description": shown}, lambda: output.print(escape(one_line(shown))))


@collections_app.command()
@with_context(*SERVER)
def drop(
    context: Context,
    collection: Annotated[str, typer.Argument(help="Collection to drop.", autocompletion=collection_names)],
    *,
    yes: Yes = False,
) -> None:
    """Drop a collection with everything in it."""
    with context.client(context.settings(collection=collection, embedding_model="none")) as client:
        if not yes:
            _require(client, collection)
            agree(f"Drop {collection} with everything in it?", yes=yes)
        client.drop(collection)
    if context.as_json:
        print_json({"collection": collection, "dropped": True})


def _require(client: SyncClient, collection: str) -> None:
    """Refuse a collection that does not exist; if another version's tables prevent listing, continue with the drop."""
    from semlex.store.schema.locks import no_such_collection

    with suppress(SchemaVersionError):
        known = [listed.name for listed in client.collections()]
        if collection not in known:
            raise no_such_collection(collection, known)


def print_collections(found: Sequence[CountedCollection], *, header: bool) -> None:
    """Print a line per collection."""
    if not found:
        messages.print("no collections: semlex index FOLDER makes one")
        return
    titles = ("name", "documents", "chunks", "model", "language")
    rows = [
        (
            one_line(entry.name),
            shown_count(entry.documents, estimated=entry.estimated),
            shown_count(entry.chunks, estimated=entry.estimated),
            one_line(entry.embedding_model or KEYWORDS_ONLY),
            one_line(entry.language),
        )
        for entry in found
    ]
    print_table(titles, rows, {"documents", "chunks"}, header=header)


MIB = 1024 * 1024


@collections_app.command()
@with_context("collection", ..., *SERVER)
def dump(
    context: Context, folder: Annotated[Path, typer.Argument(help="Folder to write; a new or an empty one.")]
) -> None:
    """Write a collection with its vectors into a folder of Parquet files."""
    with context.opened() as retriever, context.progress() as progress:
        report = retriever.tables.dump(folder, progress=progress)
    context.emit(report, lambda: _show_transfer(report, "dumped to"))


@collections_app.command()
@with_context("collection", ..., *SERVER, "keyword", "partitions")
def restore(
    context: Context,
    folder: Annotated[Path, typer.Argument(help="Folder that semlex collections dump has written.")],
    *,
    vector_storage: Annotated[str | None, typer.Option(show_default="as dumped", help="vector or halfvec.")] = None,
    build_indexes: Annotated[
        bool, typer.Option("--indexes/--no-indexes", help="Build vector indexes at the end.")
    ] = True,
) -> None:
    """Make a collection from a dump, completely or not at all."""
    given: dict[str, Any] = {
        "keyword": context.keyword,
        "vector_storage": vector_storage,
        "partitions": context.partitions,
    }
    with context.client() as client, context.progress() as progress:
        report = client.restore(folder, context.collection, **given, build_indexes=build_indexes, progress=progress)
    context.emit(report, lambda: _show_transfer(report, "restored from"))


def _show_transfer(report: TransferReport, done: str) -> None:
    inform(
        f"{escape(one_line(report.collection))} {done} {escape(one_line(report.folder))}: "
        f"{counted(report.chunks, 'chunk')}, {counted(report.vectors, 'vector')}, "
        f"{counted(report.documents, 'document')}, {report.bytes / MIB:,.1f} MiB in {report.seconds:.1f} s"
    )
    print_note(*report.warnings)
