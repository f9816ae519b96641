"""Figures of collections as text: one in groups of lines, several in a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_note
from semlex.cli.terminal import counted, inform, messages, one_line, output

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from semlex.diagnostics.status import CollectionStatus, CountedCollection
    from semlex.store.write.documents import LogEntry
    from semlex.types.fields import Facets

LABEL_WIDTH = 24
KEYWORDS_ONLY = "keywords only"


def print_collections(found: Sequence[CountedCollection], *, header: bool) -> None:
    """Prints a line per collection."""
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


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str], *, header: bool
) -> None:
    """Prints columns that are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in [titles, *rows] if header else rows:
        cells = [
            cell.rjust(width) if title in numbers else cell.ljust(width)
            for title, cell, width in zip(titles, row, widths, strict=True)
        ]
        output.print(escape("  ".join(cells).rstrip()), style="bold" if row is titles else None)


def print_facets(found: Facets) -> None:
    """Prints the values of each field with their counts, and what was counted."""
    for name, facet in found.items():
        output.print(escape(one_line(name)), style="bold")
        counts = [f"{one.count:,}" for one in facet.values]
        width = max(map(len, counts), default=0)
        for count, one in zip(counts, facet.values, strict=True):
            output.print(f"  {count.rjust(width)}  {escape(one_line(_value_text(one.value)))}")
        if facet.left_out:
            output.print(f"  and {counted(facet.left_out, 'more value')}", style="dim")
        if not facet.values and not facet.left_out:
            output.print("  no values", style="dim")
    for warning in found.warnings:
        print_note(warning)
    of = "that pass the filter" if found.of == "filter" else "that the query found"
    among = "all" if found.exact else "the best"
    inform(f"[dim]of {among} {counted(found.chunks, 'chunk')} {of}[/dim]")


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_status(figures: CollectionStatus) -> None:
    """Prints a collection's figures in groups."""
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
            ("server", figures.server),
            *([("data folder", figures.data_folder)] if figures.data_folder else []),
            ("Postgres", f"{figures.postgres}, pgvector {figures.pgvector or 'missing'}"),
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
    yield "Last run", list(_last_run(figures.last_run))


def _cutting(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    if (cut := figures.chunk_settings) is not None:
        shared = f"neighbours share at most {cut.overlap_tokens:,}"
        joined = f"sections below {cut.min_tokens:,} are joined"
        yield "tokens of a chunk", f"at most {cut.chunk_tokens:,}; {shared}, {joined}"


def _vectors(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    if (building := figures.building_version) is not None:
        of = f" of {_count(figures.chunks, estimated=figures.estimated)} chunks"
        ended = "" if building.is_running else "; semlex reembed with that model goes on"
        yield "in the making", f"version {building.version}, {building.model}: {building.vectors:,}{of}{ended}"
    if figures.embedding_model is None:
        yield "model", f"none: {KEYWORDS_ONLY}"
        return
    if figures.serving_version != figures.embedding_version:
        yield "version", f"{figures.embedding_version}; version {figures.serving_version} serves now"
    yield "model", figures.embedding_model
    yield "dimensions", f"{figures.dimensions:,}, distance {figures.distance}"
    if (curve := figures.calibration) is not None:
        learned_at = str(curve.get("learned_at"))[:10]  # of a newer version it may have another form
        yield "calibration", f"hits have a confidence, learned on {learned_at}; judged queries: {curve.get('queries')}"
    yield "chunks with a vector", _count(figures.embedded, estimated=figures.estimated)
    for index in figures.vector_indexes:
        options = {"m": index.m, "ef_construction": index.ef_construction, "lists": index.lists}
        shown = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
        state = "" if index.valid else "; not built to its end, semlex create-index makes it anew"
        yield "index", f"{index.name}: {index.kind} over {index.element}, {shown}, {index.bytes / 1e6:,.1f} MB{state}"
    if figures.orphaned_vectors:
        yield "vectors without a chunk", _count(figures.orphaned_vectors)


def _words(figures: CollectionStatus) -> Iterable[tuple[str, str]]:
    yield "engine", f"{figures.keyword}, {figures.language}"
    if figures.index_bytes is None:
        return
    yield "size", f"{figures.index_bytes / 1e6:,.1f} MB"
    yield "entries", f"{_count(figures.index_postings)}, in {_segments(figures.index_segments)}"
    if figures.index_tombstones:
        yield "deletions not merged", f"{_count(figures.index_tombstones)}; semlex optimize merges them"
    if figures.index_building is not None:
        yield "rebuilding", "a new index is being made"
    if figures.chunks_not_indexed:
        yield "chunks not indexed", f"{_count(figures.chunks_not_indexed)}; semlex reindex --keyword adds them"
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
