"""The checks of a collection: access, models, indexes, rows, questions. Each adds its findings to a `Subject`."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.embedding.registry import STATIC
from semlex.embedding.static import WHEEL_MODEL
from semlex.store.indexes.catalog import read_vector_indexes
from semlex.store.indexes.choice import INDEX_FROM_ROWS, has_rows, missing_others, wanted_vector_index
from semlex.store.keyword.extensions import read_extension
from semlex.store.postgres.server_info import is_standby
from semlex.store.postgres.settings import server_time
from semlex.store.query import health
from semlex.store.query.health import (
    NEIGHBOURS,
    READING,
    WRITING,
    grant,
    is_large,
    table_privileges,
    tables_of,
    tombstone_share,
    vector_recall,
)
from semlex.store.query_log import count_since
from semlex.store.schema.collection import GIVEN, CollectionInfo, EmbeddingVersion
from semlex.store.segments import read_state
from semlex.types.checkups import Finding, Looked, NotChecked, Severity, of_collection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from semlex.diagnostics.doctor import ModelExamination
    from semlex.diagnostics.server_settings import Advice
    from semlex.store.postgres.connection import Connection, Pooling


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The embedding model that was tried on this machine, and functions that compare it with a collection's model."""

    tried: ModelExamination | None
    dimensions: int | None
    is_named: bool  # whether the caller named it
    is_same: Callable[[str, str], bool]
    stored_problem: Callable[[EmbeddingVersion], str | None]


@dataclass(slots=True)
class Results:
    """Findings of checks, checks that could not be made, and figures that checks have measured or sampled."""

    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    looked_at: list[Looked] = field(default_factory=list)


@dataclass(slots=True)
class Subject:
    """A collection during one check, with the transaction's connection and the results of that check."""

    collection: CollectionInfo
    models: ModelFacts
    check: str
    connection: Connection
    results: Results = field(default_factory=Results)

    @property
    def where(self) -> str:
        """The name of the collection as findings show it."""
        return of_collection(self.collection.names.schema, self.collection.names.collection)

    def command(self, words: str) -> str:
        """Return a command line for this collection."""
        return f"semlex {words} --collection {self.collection.names.collection}"

    def find(self, code: str, severity: Severity, what: str, remedy: str, command: str | None = None) -> None:
        """Add a finding."""
        self.results.findings.append(Finding(code, severity, self.where, what, remedy, command))

    def skip(self, reason: str) -> None:
        """Record why the check cannot be made."""
        self.results.not_checked.append(NotChecked(self.check, self.where, reason))

    def note_sample(self, share: health.Share, noun: str) -> None:
        """Record how many rows the check has read, unless it has read all."""
        if not share.sample.is_whole:
            self.note(share.sample.described(share.looked, noun))

    def note(self, what: str) -> None:
        """Record a measured or sampled figure."""
        self.results.looked_at.append(Looked(self.check, self.where, what))


async def check_privileges(subject: Subject) -> None:
    """Check which tables this role can read and write."""
    connection, names = subject.connection, subject.collection.names
    # Readers need no access to the query log, which reports its own problems.
    tables = [name for name in tables_of(subject.collection) if name != f"{names.collection}_query_log"]
    found = await table_privileges(connection, names.schema, tables)
    for privileges, code, what in (
        (READING, "privilege_read", "cannot be searched by this role"),
        (WRITING, "privilege_write", "can be searched by this role, but not written"),
    ):
        # Only migrations write the version of a schema.
        asked = [one for one in found if code == "privilege_read" or one.table != "registry_version"]
        lacking = [one.table for one in asked if set(one.missing) & set(privileges)]
        missing = [name for name in privileges if any(name in one.missing for one in asked)]
        if not lacking or (code == "privilege_write" and subject.collection.server.read_only):
            continue
        subject.find(
            code,
            "error" if code == "privilege_read" else "hint",
            f"{what}: it lacks {', '.join(missing)} on {_listed(lacking)}",
            "if the role needs this, let the owner of the tables run",
            grant(connection, names.schema, missing, lacking),
        )
        return
    owners = sorted({one.owner for one in found if not one.is_owner})
    if owners and not subject.collection.server.read_only:
        subject.find(
            "privilege_migrate",
            "hint",
            "can be written by this role, but not migrated, and this role cannot build its indexes: its tables belong "
            "to " + ", ".join(owners),
            "after an update of semlex, let the owner of the tables run",
            "semlex maintain migrate",
        )


def _listed(tables: list[str]) -> str:
    few = 3
    more = f" and {len(tables) - few} more tables" if len(tables) > few else ""
    return ", ".join(tables[:few]) + more


def findings_of_settings(settings: list[Advice]) -> Iterator[Finding]:
    """Yield server settings that are worth changing."""
    for advice in settings:
        if advice.met is False:
            yield Finding(
                "setting",
                "hint",
                f"setting {advice.setting}",
                f"is {advice.now}; recommended is {advice.advised}",
                advice.reason,
                advice.statement,
            )


def findings_of_pooling(pooling: Pooling, server: str) -> Iterator[Finding]:
    """Yield a finding if the server is reached through a connection pooler."""
    if pooling != "none":
        how = ", which may give each transaction a different session" if pooling == "transaction" else ""
        yield Finding(
            "pooler",
            "hint",
            f"server {server}",
            f"is reached through a pooler{how}",
            "through it, index builds block writers even with --concurrently, and nothing else is affected: run "
            "semlex maintain create-index --concurrently with the address of the server itself",
        )


def findings_of_models(examinations: Iterable[ModelExamination]) -> Iterator[Finding]:
    """Yield the problems of the models that are configured here."""
    for examined in examinations:
        if examined.problem is not None:
            yield Finding(
                "model_unusable",
                "error",
                f"{examined.role} model {examined.name}",
                "does not work here",
                examined.problem,
            )


async def check_model(subject: Subject) -> None:
    """Check that the configured model made the collection's vectors, or that the collection's own model is usable."""
    stored, models = subject.collection.versions.answering, subject.models
    if stored is None:
        return
    tried = models.tried
    if tried is not None and models.is_same(tried.name, stored.model):
        if tried.identity is None:
            return  # it does not work, which is reported already
        here = tried.identity
        if models.dimensions is None:
            here = replace(here, dimensions=stored.dimensions)
        if here.key != stored.identity_key:
            _differs(subject, tried.name, f"this machine has {here.key}, the collection has {stored.identity_key}")
    elif tried is not None and models.is_named:
        _differs(subject, tried.name, f"{tried.name} is named here, the collection has {stored.model}")
    else:
        problem = models.stored_problem(stored)
        if problem is not None:
            subject.find(
                "model_missing",
                "warning",
                f"has vectors of {stored.model!r}, which cannot be used here: only keyword search works",
                problem,
            )


def _differs(subject: Subject, model: str, what: str) -> None:
    subject.find(
        "model_differs",
        "error",
        f"has vectors of another model than the one that is configured here: {what}",
        "configure the collection's model here (--model, SEMLEX_EMBEDDING_MODEL), or give the collection another model",
        subject.command(f"models set {shlex.quote(model)}"),
    )


RECALL_VECTORS, RECALL_SECONDS = 30, 10.0
# The figures of docs/reference/figures.md are above .95 with the usual settings.
MIN_RECALL = 0.9
# Fewer do no harm, whatever their share.
MIN_TOMBSTONES, MAX_TOMBSTONE_SHARE = 1_000, 0.3


async def check_missing(subject: Subject) -> None:
    """Check for missing indexes."""
    connection, collection = subject.connection, subject.collection
    found = await read_vector_indexes(connection, collection)
    wanted = wanted_vector_index(collection, found)
    is_large_enough = await has_rows(connection, collection.names.chunk, INDEX_FROM_ROWS)
    if wanted is not None and wanted.is_missing(found) and (wanted.is_chosen or is_large_enough):
        without = "each vector search compares all vectors" if found.used is None else "another index is used"
        subject.find(
            "vector_index_missing",
            "warning",
            f"lacks the vector index that it should have, so that {without}",
            "build it",
            subject.command("maintain create-index"),
        )
    missing = await missing_others(connection, collection) if is_large_enough else []
    if missing:
        names = ", ".join(f"{collection.names.collection}_{index.suffix}" for index in missing)
        subject.find(
            "index_missing",
            "warning",
            f"lacks {'the index' if len(missing) == 1 else 'the indexes'} {names}",
            "build all missing indexes",
            subject.command("maintain create-index"),
        )


async def check_recall(subject: Subject) -> None:
    """Check the recall of the vector index."""
    connection, collection = subject.connection, subject.collection
    indexes = await read_vector_indexes(connection, collection)
    used = indexes.used
    if used is None:
        return
    recall = await vector_recall(connection, collection, indexes, vectors=RECALL_VECTORS, seconds=RECALL_SECONDS)
    if recall.found is None:
        subject.skip(f"an exact search, with which the index is compared, takes more than {RECALL_SECONDS:g} s here")
        return
    subject.note(
        f"{recall.plan}: {recall.found:.2f} of the nearest {NEIGHBOURS} are found, measured on {recall.vectors} of "
        f"{recall.wanted} sampled vectors"
    )
    if recall.found >= MIN_RECALL:
        return
    remedy = (
        'search more candidates (tuning={"ef_search": 1000}), or build a better graph'
        if used.kind == "hnsw"
        else 'search more lists (tuning={"probes": N}), or use a graph (hnsw), which stays good as rows change'
    )
    subject.find(
        "recall_low",
        "warning",
        f"has a vector index that finds {recall.found:.0%} of the nearest {NEIGHBOURS} vectors ({recall.plan})",
        remedy,
        subject.command(
            "maintain create-index --kind hnsw" + (" --m 32 --ef-construction 200" if used.kind == "hnsw" else "")
        ),
    )


async def check_keyword_index(subject: Subject) -> None:
    """Check the keyword index: its analyzer, its segments, missing chunks, and deleted chunks still in it."""
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
            f"has a keyword index made by version {state.version} of the analyzer, but this semlex has version "
            f"{_core.ANALYZER_VERSION}: keyword search does not work, and nothing can be written",
            "rebuild the keyword index",
            subject.command("maintain reindex"),
        )
        return
    large = await is_large(connection, collection.names.chunk)
    figures = await index.statistics(connection, collection, counted=not large)
    if large:
        subject.skip(
            "the collection has too many chunks to check here that each is indexed; semlex status --exact checks it"
        )
    if figures["index_problem"] is not None:
        subject.find("keyword_index_damaged", "error", "has a damaged keyword index", figures["index_problem"])
    if figures["chunks_not_indexed"]:
        subject.find(
            "chunks_not_indexed",
            "warning",
            f"has {figures['chunks_not_indexed']:,} chunks that keyword search does not find: they were written "
            "without semlex",
            "rebuild the keyword index",
            subject.command("maintain reindex"),
        )
    tombstones, chunks = await tombstone_share(connection, collection.names, state.generation)
    if tombstones >= MIN_TOMBSTONES and tombstones > MAX_TOMBSTONE_SHARE * chunks:
        subject.find(
            "tombstones",
            "hint",
            f"has {tombstones:,} tombstones among the {chunks:,} chunks of its keyword index: deleted chunks that take "
            "space and time until segments are merged",
            "merge the segments",
            subject.command("maintain optimize"),
        )


# Chunks compared with each other, and characters of each.
COMPARED_TEXTS, COMPARED_CHARACTERS = 400, 4_000
# Share of a text's runs of five words that another text contains, and the tolerated share of such texts.
NEAR_SHARE, MAX_NEAR_DUPLICATES = 0.9, 0.1
# Autovacuum starts above a fifth; a share far above that means it does not run.
MIN_DEAD_ROWS, MAX_DEAD_SHARE = 1_000, 0.4


# Models that average any number of tokens, and vectors that callers gave.
WITHOUT_LIMIT = (STATIC, WHEEL_MODEL, GIVEN)


async def check_orphans(subject: Subject) -> None:
    """Check for chunks without a document, and documents without a source."""
    connection, names = subject.connection, subject.collection.names
    chunks = await health.orphaned_chunks(connection, names)
    if chunks.found:
        subject.find(
            "chunks_orphaned",
            "warning",
            f"has {chunks.counted('chunk')} whose document is gone: searches find them, but nothing updates them",
            "change the files and index their folders again, or delete the chunks by their ids (semlex delete ID)",
        )
    documents = await health.documents_without_source(connection, names)
    if documents.found:
        subject.find(
            "documents_orphaned",
            "warning",
            f"has {documents.counted('document')} whose source is gone: semlex index and sync never update them",
            "delete the documents by their names (semlex delete NAME), and index their folder again",
        )
    subject.note_sample(chunks, "chunks")
    subject.note_sample(documents, "documents")


async def check_missing_vectors(subject: Subject) -> None:
    """Check for chunks without a vector."""
    embedding = subject.collection.versions.answering
    if embedding is None:
        return
    share = await health.chunks_without_vector(subject.connection, subject.collection.names, embedding.version)
    subject.note_sample(share, "chunks")
    if share.found:
        subject.find(
            "vectors_missing",
            "warning",
            f"has {share.counted('chunk')} without a vector: vector search does not find them",
            "embed them",
            subject.command("models fill"),
        )


async def check_empty_documents(subject: Subject) -> None:
    """Check for documents without text."""
    share = await health.documents_without_text(subject.connection, subject.collection.names)
    subject.note_sample(share, "documents")
    if share.found:
        subject.find(
            "documents_empty",
            "hint",
            f"has {share.counted('document')} without text: the files are empty, or no text could be read",
            "list the documents, and check whether those with 0 chunks are scans or pictures",
            subject.command("documents"),
        )


async def check_cut_chunks(subject: Subject) -> None:
    """Check for chunks that exceed the model's limit."""
    embedding, tried = subject.collection.versions.answering, subject.models.tried
    if embedding is None or embedding.model in WITHOUT_LIMIT:
        return
    if tried is None or tried.max_tokens is None or not subject.models.is_same(tried.name, embedding.model):
        subject.skip(
            "the token limit of the collection's model is unknown here: name the model (--model), if it reports a limit"
        )
        return
    share = await health.long_chunks(subject.connection, subject.collection.names, tried.max_tokens)
    subject.note_sample(share, "chunks")
    if share.found:
        subject.find(
            "chunks_cut",
            "warning",
            f"has {share.counted('chunk')} with more tokens than its model reads ({tried.max_tokens:,}): "
            "only their beginnings are embedded",
            "split the files into smaller chunks",
            subject.command("maintain rechunk --chunk-tokens 500"),
        )


async def check_near_duplicates(subject: Subject) -> None:
    """Check for near-duplicates."""
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
            f"has {copies:,} near-duplicates among {len(texts):,} chunks: at least {NEAR_SHARE:.0%} of their "
            "sequences of five words occur in another chunk",
            "exclude copies of files (semlex index --exclude), or remove text that is on every page",
        )


async def check_dead_rows(subject: Subject) -> None:
    """Check for dead rows that are not cleaned up."""
    connection, collection = subject.connection, subject.collection
    if await is_standby(connection):
        subject.skip("a standby keeps no statistics: check the primary server")
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
                f"has {found.dead:,} dead and {found.live:,} live rows in {found.table}; dead rows take space and time",
                "clean up, and find out why autovacuum did not (an open transaction, or its settings)",
                f"VACUUM (ANALYZE) {found.table};",
            )


QUESTION_DAYS = 30
# A few queries without hits mean nothing.
MIN_QUESTIONS, MAX_SHARE_WITHOUT_HITS = 10, 0.2


async def check_questions(subject: Subject) -> None:
    """Check for logged queries without hits."""
    since = await server_time(subject.connection) - timedelta(days=QUESTION_DAYS)
    asked, nothing = await count_since(subject.connection, subject.collection.names, since)
    if asked >= MIN_QUESTIONS and nothing > MAX_SHARE_WITHOUT_HITS * asked:
        subject.find(
            "queries_without_hits",
            "hint",
            f"got {asked:,} queries in {QUESTION_DAYS} days, of which {nothing:,} found nothing",
            "list the queries, and see what the documents lack",
            subject.command("eval queries"),
        )


# Name -> the check of a collection.
CHECKS: dict[str, Callable[[Subject], Awaitable[None]]] = {
    "privileges": check_privileges,
    "model": check_model,
    "indexes": check_missing,
    "recall of the vector index": check_recall,
    "keyword index": check_keyword_index,
    "orphaned rows": check_orphans,
    "chunks without a vector": check_missing_vectors,
    "documents without text": check_empty_documents,
    "chunks that the model cuts": check_cut_chunks,
    "near-duplicates": check_near_duplicates,
    "dead rows": check_dead_rows,
    "queries without hits": check_questions,
}
