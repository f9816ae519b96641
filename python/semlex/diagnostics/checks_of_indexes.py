"""Checks of indexes: missing ones, what a vector index finds, the keyword index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex import _core
from semlex.diagnostics.check import Check
from semlex.store.indexes.catalog import (
    INDEX_FROM_ROWS,
    has_rows,
    missing_others,
    read_vector_indexes,
    wanted_vector_index,
)
from semlex.store.keyword.bm25.generations import read_state
from semlex.store.keyword.extensions import read_extension
from semlex.store.query.health import NEIGHBOURS, is_large, tombstone_share, vector_recall

if TYPE_CHECKING:
    from semlex.diagnostics.check import Subject

RECALL_VECTORS, RECALL_SECONDS = 30, 10.0
# The figures of docs/figures.md are above .95 with the usual settings.
MIN_RECALL = 0.9
# Fewer are no burden, whatever their share.
MIN_TOMBSTONES, MAX_TOMBSTONE_SHARE = 1_000, 0.3


async def check_missing(subject: Subject) -> None:
    """Indexes that the collection should have."""
    connection, collection = subject.connection, subject.collection
    found = await read_vector_indexes(connection, collection)
    wanted = wanted_vector_index(collection, found)
    is_large_enough = await has_rows(connection, collection.names.chunk, INDEX_FROM_ROWS)
    if wanted is not None and wanted.is_missing(found) and (wanted.is_chosen or is_large_enough):
        without = "searches by vectors compare every vector" if found.used is None else "another one is used"
        subject.find(
            "vector_index_missing",
            "warning",
            f"lacks the vector index that it should have, so that {without}",
            "build it",
            subject.command("create-index"),
        )
    missing = await missing_others(connection, collection) if is_large_enough else []
    if missing:
        names = ", ".join(f"{collection.names.collection}_{index.suffix}" for index in missing)
        subject.find(
            "index_missing",
            "warning",
            f"lacks the index {names}",
            "build what is missing",
            subject.command("create-index"),
        )


async def check_recall(subject: Subject) -> None:
    """What the vector index finds of what is nearest."""
    connection, collection = subject.connection, subject.collection
    indexes = await read_vector_indexes(connection, collection)
    used = indexes.used
    if used is None:
        return
    recall = await vector_recall(connection, collection, indexes, vectors=RECALL_VECTORS, seconds=RECALL_SECONDS)
    if recall.found is None:
        subject.skip(f"one exact search takes more than {RECALL_SECONDS:g} s here, with which the index is compared")
        return
    subject.note(
        f"{recall.plan}: {recall.found:.2f} of the nearest {NEIGHBOURS} are found, measured on {recall.vectors} of "
        f"{recall.wanted} stored vectors"
    )
    if recall.found >= MIN_RECALL:
        return
    remedy = (
        "ask for more (ef_search= of a search), or build a better graph"
        if used.kind == "hnsw"
        else "look into more lists (probes= of a search), or take a graph, which does not age with the rows"
    )
    subject.find(
        "recall_low",
        "warning",
        f"has a vector index that finds {recall.found:.0%} of the nearest {NEIGHBOURS} vectors ({recall.plan})",
        remedy,
        subject.command("create-index --kind hnsw" + (" --m 32 --ef-construction 200" if used.kind == "hnsw" else "")),
    )


async def check_keyword_index(subject: Subject) -> None:
    """The keyword index: its analyzer, its segments, what it lacks and what it still holds."""
    connection, collection = subject.connection, subject.collection
    extension = await read_extension(connection, collection.settings.keyword_engine)
    if extension is not None and extension.problem is not None:
        subject.find(
            "keyword_extension",
            "error",
            f"has the keyword engine {extension.name}, which cannot be used",
            extension.problem,
        )
    index = collection.keyword.index
    if index is None:
        return
    state = await read_state(connection, collection)
    if state.version != _core.ANALYZER_VERSION:
        subject.find(
            "analyzer_version",
            "error",
            f"has a keyword index of version {state.version} of the analyzer, this is {_core.ANALYZER_VERSION}: "
            "words are not searched, and nothing can be written",
            "rebuild it",
            subject.command("reindex --keyword"),
        )
        return
    large = await is_large(connection, collection.names.chunk)
    figures = await index.statistics(connection, collection, counted=not large)
    if large:
        subject.skip("whether every chunk is in it: its ids are many; semlex status --exact compares them")
    if figures["index_problem"] is not None:
        subject.find("keyword_index_damaged", "error", "has a damaged keyword index", figures["index_problem"])
    if figures["chunks_not_indexed"]:
        subject.find(
            "chunks_not_indexed",
            "warning",
            f"has {figures['chunks_not_indexed']:,} chunks that searches by words do not find: they were written "
            "without semlex",
            "rebuild the keyword index",
            subject.command("reindex --keyword"),
        )
    await _check_tombstones(subject, state.generation)


async def _check_tombstones(subject: Subject, generation: int) -> None:
    tombstones, chunks = await tombstone_share(subject.connection, subject.collection.names, generation)
    if tombstones >= MIN_TOMBSTONES and tombstones > MAX_TOMBSTONE_SHARE * chunks:
        subject.find(
            "tombstones",
            "hint",
            f"has {tombstones:,} tombstones among the {chunks:,} chunks of its keyword index: deleted ones that take "
            "room and time until a merge",
            "merge them away",
            subject.command("optimize"),
        )


CHECKS = (
    Check("indexes", check_missing),
    Check("recall of the vector index", check_recall),
    Check("keyword index", check_keyword_index),
)
