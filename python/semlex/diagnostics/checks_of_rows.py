"""Checks of rows: orphans, what has no vector or no text, what the model cuts, near-duplicates, dead rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.diagnostics.check import Check
from semlex.embedding.registry import STATIC
from semlex.embedding.static import WHEEL_MODEL
from semlex.ingest.prepare_file import GIVEN
from semlex.store.postgres.server_info import is_standby
from semlex.store.query import health

if TYPE_CHECKING:
    from semlex.diagnostics.check import Subject

# Chunks that are compared with each other, and what is read of each.
COMPARED_TEXTS, COMPARED_CHARACTERS = 400, 4_000
# Runs of five words of one text that stand in another.
NEAR_SHARE, MAX_NEAR_DUPLICATES = 0.9, 0.1
# The server cleans up by itself above a fifth; what stays far above that is not cleaned up.
MIN_DEAD_ROWS, MAX_DEAD_SHARE = 1_000, 0.4


# Averages of tokens, of which there may be any number; and vectors that came from elsewhere.
WITHOUT_LIMIT = (STATIC, WHEEL_MODEL, GIVEN)


async def check_orphans(subject: Subject) -> None:
    """Chunks and documents that have lost what they belong to."""
    connection, names = subject.connection, subject.collection.names
    chunks = await health.orphaned_chunks(connection, names)
    if chunks.found:
        subject.find(
            "chunks_orphaned",
            "warning",
            f"has {chunks.counted('chunk')} whose document is gone; they are found, and no run over files renews them",
            "index the folders again with the files changed, or delete them by their ids (semlex delete)",
        )
    documents = await health.documents_without_source(connection, names)
    if documents.found:
        subject.find(
            "documents_orphaned",
            "warning",
            f"has {documents.counted('document')} whose source is gone; no run over files keeps them in step",
            "delete them by their names (semlex delete --document), and index their folder again",
        )
    if not chunks.sample.is_whole or not documents.sample.is_whole:
        subject.note(
            f"{chunks.sample.described(chunks.looked, 'chunks')}, "
            f"{documents.sample.described(documents.looked, 'documents')}"
        )


async def check_missing_vectors(subject: Subject) -> None:
    """Chunks that searches by vectors do not find."""
    embedding = subject.collection.versions.answering
    if embedding is None:
        return
    share = await health.chunks_without_vector(subject.connection, subject.collection.names, embedding.version)
    if not share.sample.is_whole:
        subject.note(share.sample.described(share.looked, "chunks"))
    if share.found:
        subject.find(
            "vectors_missing",
            "warning",
            f"has {share.counted('chunk')} without a vector: searches by vectors do not find them",
            "embed them",
            subject.command("embed"),
        )


async def check_empty_documents(subject: Subject) -> None:
    """Documents of which nothing is searched."""
    share = await health.documents_without_text(subject.connection, subject.collection.names)
    if not share.sample.is_whole:
        subject.note(share.sample.described(share.looked, "documents"))
    if share.found:
        subject.find(
            "documents_empty",
            "hint",
            f"has {share.counted('document')} without text: empty files, or nothing could be read",
            "look at the files that are scans or pictures; names are in",
            subject.command("documents"),
        )


async def check_cut_chunks(subject: Subject) -> None:
    """Chunks of which the model reads the beginning only."""
    embedding, tried = subject.collection.versions.answering, subject.models.tried
    if embedding is None or embedding.model in WITHOUT_LIMIT:
        return
    if tried is None or tried.max_tokens is None or not subject.models.is_same(tried.name, embedding.model):
        subject.skip(
            "how many tokens its model reads is known only where that model is named here (--model), and says so"
        )
        return
    share = await health.long_chunks(subject.connection, subject.collection.names, tried.max_tokens)
    if not share.sample.is_whole:
        subject.note(share.sample.described(share.looked, "chunks"))
    if share.found:
        subject.find(
            "chunks_cut",
            "warning",
            f"has {share.counted('chunk')} with more tokens than its model reads ({tried.max_tokens:,}): "
            "their ends have no part in their vectors",
            "cut the files into smaller chunks",
            subject.command("rechunk --chunk-tokens 500"),
        )


async def check_near_duplicates(subject: Subject) -> None:
    """Chunks that say nearly the same."""
    texts, sample = await health.some_texts(
        subject.connection, subject.collection.names, COMPARED_TEXTS, COMPARED_CHARACTERS
    )
    if len(texts) < 2:  # noqa: PLR2004 - nothing to compare
        return
    if not sample.is_whole:
        subject.note(f"{sample.described(len(texts), 'chunks')}, compared with each other")
    shares = await asyncio.to_thread(_core.shared_shingles, texts)
    copies = int(np.any(np.tril(shares, -1) >= NEAR_SHARE, axis=1).sum())
    if copies > max(1, MAX_NEAR_DUPLICATES * len(texts)):
        subject.find(
            "near_duplicates",
            "hint",
            f"has {copies:,} near-duplicates among {len(texts):,} chunks: {NEAR_SHARE:.0%} of their runs of five words "
            "stand in another one",
            "leave copies of files out (semlex index --exclude), or text that stands on every page",
        )


async def check_dead_rows(subject: Subject) -> None:
    """Rows that were deleted and that nobody has cleaned up."""
    connection, collection = subject.connection, subject.collection
    if await is_standby(connection):
        subject.skip("a standby has no statistics of its own: ask the primary server")
        return
    names = collection.names
    tables = [names.document, names.chunk, *(names.embedding(one.version) for one in collection.versions.standing)]
    if collection.keyword.index is not None:
        tables += [names.segment, names.posting, names.tombstone, names.manifest]
    for found in await health.dead_rows(connection, tables):
        if found.dead >= MIN_DEAD_ROWS and found.dead > MAX_DEAD_SHARE * (found.live + found.dead):
            subject.find(
                "dead_rows",
                "hint",
                f"has {found.dead:,} dead rows beside {found.live:,} in {found.table}, which take room and time",
                "clean up, and see why autovacuum does not (a transaction that stays open, or its settings)",
                f"VACUUM (ANALYZE) {found.table};",
            )


CHECKS = (
    Check("orphaned rows", check_orphans),
    Check("chunks without a vector", check_missing_vectors),
    Check("documents without text", check_empty_documents),
    Check("chunks that the model cuts", check_cut_chunks),
    Check("near-duplicates", check_near_duplicates),
    Check("dead rows", check_dead_rows),
)
