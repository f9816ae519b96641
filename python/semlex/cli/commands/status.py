"""Show the counts, model, server and last run of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from semlex.cli.context import READER, Context, with_context
from semlex.cli.output import KEYWORDS_ONLY, shown_count
from semlex.cli.terminal import counted, one_line, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.diagnostics.status import CollectionStatus
    from semlex.store.write.documents import LogEntry
    from semlex.types.followed import FollowedStatus

LABEL_WIDTH = 24


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
                (name, shown_count(getattr(figures, name), estimated=estimated))
                for name in ("sources", "documents", "chunks")
            ),
            ("tokens", f"{shown_count(figures.tokens)}, counted by {figures.token_counter}"),
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
        of = f" of {shown_count(figures.chunks, estimated=figures.estimated)} chunks"
        ended = "" if building.is_running else "; semlex models set with that model continues it"
        yield "being made", f"version {building.version}, {building.model}: {building.vectors:,}{of}{ended}"
    if figures.embedding_model is None:
        yield "model", f"none: {KEYWORDS_ONLY}"
        return
    if figures.serving_version != figures.embedding_version:
        newer = f"newly opened collections use version {figures.serving_version}"
        yield "version", f"{figures.embedding_version}; {newer}"
    yield "model", figures.embedding_model
    yield "dimensions", f"{figures.dimensions:,} ({figures.vector_storage}), distance {figures.distance}"
    if (curve := figures.calibration) is not None:
        learned_at = str(curve.get("learned_at"))[:10]  # of a newer version it may have another form
        yield "calibration", f"hits have a confidence, learned on {learned_at}; judged queries: {curve.get('queries')}"
    yield "chunks with a vector", shown_count(figures.embedded, estimated=figures.estimated)
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
        yield "vectors without a chunk", shown_count(figures.orphaned_vectors)


def _words(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    yield "engine", f"{figures.keyword}, {figures.language}"
    if figures.index_bytes is None:
        return
    yield "size", f"{figures.index_bytes / 1e6:,.1f} MB"
    count = figures.index_segments
    segments = "an unknown number of segments" if count is None else counted(count, "segment")
    yield "entries", f"{shown_count(figures.index_postings)}, in {segments}"
    if figures.index_tombstones:
        yield "deletions not merged", f"{shown_count(figures.index_tombstones)}; semlex maintain optimize merges them"
    if figures.index_building is not None:
        yield "rebuilding", "a new index is being made"
    if figures.chunks_not_indexed:
        yield "chunks not indexed", f"{shown_count(figures.chunks_not_indexed)}; semlex maintain reindex adds them"
    if figures.index_problem:
        yield "problem", figures.index_problem


def _last_run(run: LogEntry | None) -> Iterable[tuple[str, str]]:
    if run is None:
        yield "", "none"
        return
    yield "begun", f"{run.started_at:%Y-%m-%d %H:%M} UTC"
    counts = (("added", "new"), ("changed",) * 2, ("unchanged",) * 2, ("failed",) * 2)
    if run.finished_at is None:
        yield "ended", "no: it was interrupted, or is still running"
        return
    yield "documents", ", ".join(f"{shown_count(getattr(run, name))} {word}" for name, word in counts)
    yield "took", f"{run.seconds:.1f} s"
