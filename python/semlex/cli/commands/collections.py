"""List, drop, dump and restore collections."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import READER, SERVER, Context, with_context
from semlex.cli.groups import group_with_default
from semlex.cli.options import Yes, agree, collection_names
from semlex.cli.output import print_json, print_note, print_table
from semlex.cli.terminal import counted, inform, messages, one_line, output
from semlex.errors import ConfigurationError, SchemaVersionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.diagnostics.status import CollectionStatus, CountedCollection
    from semlex.maintenance.dump import TransferReport
    from semlex.retriever.synchronous import SyncClient
    from semlex.store.write.documents import LogEntry
    from semlex.types.followed import FollowedStatus

collections_app = typer.Typer(help=__doc__, cls=group_with_default("list"))


@collections_app.command("list")
@with_context(*SERVER)
def collections(context: Context) -> None:
    """List the collections with their documents, chunks, model and language."""
    with context.client() as client:
        found = client.count_collections()
    context.emit(found, lambda: print_collections(found, header=context.header))


@with_context("collection", ..., *READER)
def status(
    context: Context,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Count large tables instead of estimating.")] = False,
) -> None:
    """Show the counts, model, server and last run of a collection."""
    with context.opened() as retriever:
        figures = retriever.status(exact=exact)
    context.emit(figures.to_dict(), lambda: print_status(figures))


@collections_app.command()
@with_context("collection", ..., *SERVER)
def describe(
    context: Context,
    text: Annotated[list[str] | None, typer.Argument(help="What is in it; without a text, it is shown.")] = None,
    *,
    reset: Annotated[bool, typer.Option("--reset", help="Let the titles of its documents describe it again.")] = False,
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
    """Refuse a collection that does not exist; if another version's tables prevent listing, let the drop go on."""
    from semlex.store.schema.locks import no_such_collection

    with suppress(SchemaVersionError):
        known = [listed.name for listed in client.collections()]
        if collection not in known:
            raise no_such_collection(collection, known)


LABEL_WIDTH = 24


KEYWORDS_ONLY = "keywords only"


def print_collections(found: Sequence[CountedCollection], *, header: bool) -> None:
    """Print a line per collection."""
    if not found:
        messages.print("no collections: semlex index FOLDER makes one")
        return
    titles = ("name", "documents", "chunks", "model", "language")
    rows = [
        (
            one_line(entry.name),
            _count(entry.documents, estimated=entry.estimated),
            _count(entry.chunks, estimated=entry.estimated),
            one_line(entry.embedding_model or KEYWORDS_ONLY),
            one_line(entry.language),
        )
        for entry in found
    ]
    print_table(titles, rows, {"documents", "chunks"}, header=header)


def print_status(figures: CollectionStatus) -> None:
    """Print a collection's figures in groups."""
    for title, lines in _groups(figures):
        output.print(title, style="bold")
        for label, value in lines:
            output.print(f"  {label:{LABEL_WIDTH}} {escape(one_line(value))}")


def _groups(figures: CollectionStatus) -> Iterable[tuple[str, list[tuple[str, str]]]]:
    estimated = figures.estimated
    yield (
        "Collection",
        [
            ("name", f"{figures.collection}, in the schema {figures.schema}"),
            *([("description", figures.description)] if figures.description else []),
            ("server", figures.server),
            *([("data folder", figures.data_folder)] if figures.data_folder else []),
            ("Postgres", f"{figures.postgres}, pgvector {figures.pgvector or 'missing'}"),
            *([("partitions", f"{figures.partitions} of each large table")] if figures.partitions else []),
        ],
    )
    yield (
        "Content",
        [
            *(
                (name, _count(getattr(figures, name), estimated=estimated))
                for name in ("sources", "documents", "chunks")
            ),
            ("tokens", f"{_count(figures.tokens)}, counted by {figures.token_counter}"),
            *_cutting(figures),
        ],
    )
    yield "Vectors", list(_vectors(figures))
    yield "Words", list(_words(figures))
    if figures.followed:
        yield "Followed tables", list(_followed(figures.followed))
    yield "Last run", list(_last_run(figures.last_run))


def _followed(tables: Sequence[FollowedStatus]) -> Iterable[tuple[str, str]]:
    for one in tables:
        when = "not yet in step" if one.synced_at is None else f"in step at {one.synced_at:%Y-%m-%d %H:%M} UTC"
        counts = [counted(one.rows, "row"), f"{one.waiting:,} waiting", f"{one.failed:,} failed"]
        yield one.table.name, f"{one.table.schema}.{one.table.table}: {', '.join(counts)}; {when}"
        if one.error is not None:
            yield "problem", one.error
        if one.failed:
            yield "failed rows", "semlex follow --list shows why"


def _cutting(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    if (cut := figures.chunk_settings) is not None:
        shared = f"neighbours share at most {cut.overlap_tokens:,}"
        joined = f"sections below {cut.min_tokens:,} are joined"
        yield "tokens of a chunk", f"at most {cut.chunk_tokens:,}; {shared}, {joined}"


def _vectors(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    if (building := figures.building_version) is not None:
        of = f" of {_count(figures.chunks, estimated=figures.estimated)} chunks"
        ended = "" if building.is_running else "; semlex models set with that model goes on"
        yield "in the making", f"version {building.version}, {building.model}: {building.vectors:,}{of}{ended}"
    if figures.embedding_model is None:
        yield "model", f"none: {KEYWORDS_ONLY}"
        return
    if figures.serving_version != figures.embedding_version:
        yield "version", f"{figures.embedding_version}; version {figures.serving_version} serves now"
    yield "model", figures.embedding_model
    yield "dimensions", f"{figures.dimensions:,} ({figures.vector_storage}), distance {figures.distance}"
    if (curve := figures.calibration) is not None:
        learned_at = str(curve.get("learned_at"))[:10]  # of a newer version it may have another form
        yield "calibration", f"hits have a confidence, learned on {learned_at}; judged queries: {curve.get('queries')}"
    yield "chunks with a vector", _count(figures.embedded, estimated=figures.estimated)
    under_way = {build.name for build in figures.index_builds}
    for index in figures.vector_indexes:
        options = {"m": index.m, "ef_construction": index.ef_construction, "lists": index.lists}
        shown = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
        state = "" if index.valid else "; incomplete; semlex maintain create-index rebuilds it"
        state = "; is being built" if index.name in under_way else state
        yield "index", f"{index.name}: {index.kind} over {index.element}, {shown}, {index.bytes / 1e6:,.1f} MB{state}"
    for build in figures.index_builds:
        share = "" if build.total is None else f", {build.done / build.total:.0%}"
        yield "building", f"{build.name or 'an index'}: {build.phase}{share}; searches are exact meanwhile"
    if figures.orphaned_vectors:
        yield "vectors without a chunk", _count(figures.orphaned_vectors)


def _words(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    yield "engine", f"{figures.keyword}, {figures.language}"
    if figures.index_bytes is None:
        return
    yield "size", f"{figures.index_bytes / 1e6:,.1f} MB"
    yield "entries", f"{_count(figures.index_postings)}, in {_segments(figures.index_segments)}"
    if figures.index_tombstones:
        yield "deletions not merged", f"{_count(figures.index_tombstones)}; semlex maintain optimize merges them"
    if figures.index_building is not None:
        yield "rebuilding", "a new index is being made"
    if figures.chunks_not_indexed:
        yield "chunks not indexed", f"{_count(figures.chunks_not_indexed)}; semlex maintain reindex adds them"
    if figures.index_problem:
        yield "problem", figures.index_problem


def _last_run(run: LogEntry | None) -> Iterable[tuple[str, str]]:
    if run is None:
        yield "", "none"
        return
    yield "begun", f"{run.started_at:%Y-%m-%d %H:%M} UTC"
    counts = (("added", "new"), ("changed",) * 2, ("unchanged",) * 2, ("failed",) * 2)
    if run.finished_at is None:
        yield "ended", "not: it was interrupted, or is still going on"
        return
    yield "documents", ", ".join(f"{_count(getattr(run, name))} {word}" for name, word in counts)
    yield "took", f"{run.seconds:.1f} s"


def _segments(number: int | None) -> str:
    return "an unknown number of segments" if number is None else counted(number, "segment")


def _count(number: int | None, *, estimated: bool = False) -> str:
    if number is None:
        return "unknown"
    return f"about {number:,}" if estimated else f"{number:,}"


MIB = 1024 * 1024


@collections_app.command()
@with_context("collection", ..., *SERVER)
def dump(
    context: Context, folder: Annotated[Path, typer.Argument(help="Folder to write; it must not exist or be empty.")]
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
    for warning in report.warnings:
        print_note(warning)
