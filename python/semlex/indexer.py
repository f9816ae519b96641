"""Documents in: the only file that knows all stages of the way in.

    files -> text -> chunks -> vectors -> one transaction a batch

`add_documents` takes texts as they are (never cut again); `index` reads files and cuts them; `embed_missing` fills in
the vectors of a collection that was made without a model.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from semlex import preparation
from semlex.document_rows import DocumentRows, embedded_text, empty_columns, last_of_each
from semlex.document_vectors import DocumentVectors
from semlex.documents.chunking import Chunker, TokenCounter, WordCounter
from semlex.documents.loading import FileProblem, FoundFile
from semlex.errors import (
    ConfigurationError,
    EmbeddingsMissingError,
    ModelMismatchError,
    ReadOnlyError,
    StoreError,
)
from semlex.given_documents import GivenDocuments, check_on_duplicate
from semlex.progress import IndexReport, Progress
from semlex.store import ingestion
from semlex.store.bulk import ChunkRows, write_chunks, write_embeddings
from semlex.store.copying import DEFAULT_BULK, BulkIngestConfig
from semlex.store.indexes import HnswIndex, IndexesBuilt, build_where_wanted, ensure_indexes
from semlex.store.lexical.merging import BULK_LOAD_CHUNKS, merge_wanted, merge_where_wanted, optimize
from semlex.store.lexical.rebuilding import Rebuilt, rebuild
from semlex.store.rows import cut_contexts, delete_chunks
from semlex.store.sampling import VectorSample
from semlex.store.schema import Collection, EmbeddingVersion, ensure_embedding_version
from semlex.types import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from semlex.choosing import OpenModels
    from semlex.collection_options import CollectionOptions
    from semlex.models.calling import ModelCaller
    from semlex.store.bulk import OnDuplicate, RowSource, WriteMode
    from semlex.store.connection import Connection, Database
    from semlex.store.distance import StorageName
    from semlex.store.legs import Key

T = TypeVar("T")

# A batch of files is written as soon as it holds this many chunks, so that progress is visible and little is lost.
FILE_BATCH_CHUNKS = 1_000
EMBED_PAGE_ROWS = 1_000


class Indexer:
    """Writes into one collection.

    Args:
        database: An open database.
        collection: As opened; replaced by the newer view when its first vectors are stored.
        models: As chosen at opening. What they are is not asked again: an embedder may have to wait for its model, and
            this runs on the event loop.
        caller: Runs blocking calls of models.
        bulk: How documents are written.
        storage: pgvector's type of a new collection's vectors.
    """

    def __init__(
        self,
        database: Database,
        collection: Collection,
        models: OpenModels,
        caller: ModelCaller,
        *,
        bulk: BulkIngestConfig = DEFAULT_BULK,
        storage: StorageName = "vector",
    ) -> None:
        self.database = database
        self.collection = collection
        self.embedder = models.embedder
        self._models = models
        self.caller = caller
        self._bulk = bulk
        self._storage = storage
        self._vectors = DocumentVectors(self.embedder, caller)
        self.sample = VectorSample()

    async def add_documents(
        self,
        documents: GivenDocuments,
        embeddings: NDArray[np.float32] | None = None,
        *,
        on_duplicate: OnDuplicate = "update",
        progress: Callable[[Progress], None] | None = None,
    ) -> list[str]:
        """Adds documents as they are; see `PostgreSQLRetriever.add_documents`."""
        check_on_duplicate(on_duplicate)
        stored = self.collection.embedding
        documents = documents.checked(embeddings, stored.storage if stored else self._storage)
        if not documents.ids:
            return []
        self._refuse_read_only()
        self._models.refuse_without_model()
        await self._ensure_version(
            None if embeddings is None else preparation.given_version(embeddings, self._models.version)
        )
        numbers = last_of_each(documents.ids)
        empty = await self.database.read("look at the collection", lambda c: ingestion.is_empty(c, self.collection))
        mode: WriteMode = "direct" if empty and on_duplicate == "update" else "merge"
        size = self._bulk.batch_size
        with_context = self.collection.settings.with_context

        for start in range(0, len(numbers), size):
            part = numbers[start : start + size]
            rows = DocumentRows.of(documents, part, embeddings, with_context=with_context)
            indexed = rows.indexed()
            if indexed:
                rows = replace(rows, contexts=await self._cut_contexts(indexed))
            batch: RowSource = rows
            if embeddings is None and self.embedder is not None:
                batch = whole = rows.whole()
                await self._embed_rows(whole, await self._changed_rows(whole, on_duplicate))
            within = list(dict.fromkeys(document_id for document_id, _ in indexed))
            await self._write(batch, mode, on_duplicate=on_duplicate, within=within)
            self.sample.note_written(len(part))
            if progress is not None:
                progress(Progress("write", min(start + size, len(numbers)), len(numbers), "rows"))
        await self._end_load(len(numbers), progress)
        return documents.ids

    async def index(
        self,
        paths: Sequence[Path],
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        recursive: bool = True,
        wanted: CollectionOptions,
        progress: Callable[[Progress], None] | None = None,
    ) -> IndexReport:
        """Reads files, cuts them and writes their chunks; see `PostgreSQLRetriever.index`."""
        self._refuse_read_only()
        self._models.refuse_without_model()
        started, begun = time.perf_counter(), utc_now()
        chunker = await self._chunker(wanted)
        await self._ensure_version(None)
        found, problems = await asyncio.to_thread(preparation.list_files, paths, include, exclude, recursive)
        report = IndexReport(problems=problems, failed=len(problems))
        run_id = uuid.uuid4()
        cut_before = self._documents_cut()

        async def log(finished: bool) -> None:
            entry = {
                "run_id": run_id,
                "source_uri": ", ".join(str(path) for path in paths),
                "command": "index",
                "client": ingestion.client_name(),
                "embedding_model": self._models.version.model if self._models.version else None,
                "started_at": begun,
                "finished_at": utc_now() if finished else None,
                "seconds": time.perf_counter() - started if finished else None,
                "added": report.added,
                "changed": report.changed,
                "unchanged": report.unchanged,
                "deleted": 0,
                "failed": report.failed,
                "chunks": report.chunks,
                "problems": [{"uri": problem.uri, "code": problem.code} for problem in report.problems[:1000]],
            }
            await self.database.write("write the log", lambda c: ingestion.log_run(c, self.collection, entry))

        await log(finished=False)
        empty = await self.database.read("look at the collection", lambda c: ingestion.is_empty(c, self.collection))
        async for batch in self._read_ahead(found, chunker, report, progress):
            await self._write_files(batch, "direct" if empty else "merge", report, progress)
        report.warnings += await self._end_load(report.chunks, progress)
        report.cut = self._documents_cut() - cut_before
        report.seconds = time.perf_counter() - started
        await log(finished=True)
        return report

    async def embed_missing(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Computes the vectors of chunks that have none; returns how many were written."""
        self._models.refuse_without_model()
        if self.embedder is None:
            raise EmbeddingsMissingError("no embedding model is configured: name one with embedding_model= or --model")
        self._refuse_read_only()
        await self._ensure_version(None)
        total = await self.database.read("count", lambda c: ingestion.count_unembedded(c, self.collection))
        after: Key | None = None
        done = written = 0

        def tell(before: int, count: int) -> None:
            if progress is not None:
                progress(Progress("embed", before + count, total, "chunks"))

        while True:

            async def read(connection: Connection, after: Key | None = after) -> list[ingestion.Unembedded]:
                return await ingestion.unembedded_chunks(connection, self.collection, after, EMBED_PAGE_ROWS)

            page = await self.database.read("read chunks", read)
            if not page:
                break
            texts = [embedded_text(context, text) for *_, context, text in page]
            vectors = await self._vectors.of(texts, self.collection.embedding, partial(tell, done))

            async def write(
                connection: Connection,
                page: list[ingestion.Unembedded] = page,
                vectors: NDArray[np.float32] = vectors,
            ) -> int:
                keys = [(row[0], row[1]) for row in page]
                return await write_embeddings(connection, self.collection, keys, [row[2] for row in page], vectors)

            written += await self.database.write("write embeddings", write)
            self.sample.note_written(len(page))
            after = (page[-1][0], page[-1][1])
            done += len(page)
        await self._build_indexes(progress)
        return written

    async def create_index(self, hnsw: HnswIndex | None = None) -> IndexesBuilt:
        """Builds the indexes now; see `PostgreSQLRetriever.create_index`."""
        self._refuse_read_only()
        return await ensure_indexes(self.database, self.collection, hnsw)

    async def delete_documents(self, ids: Sequence[str]) -> int:
        """Deletes chunks by id; returns how many were there."""
        deleted = await self._write_and_merge("delete documents", lambda c: delete_chunks(c, self.collection, ids))
        self.sample.note_written(deleted)
        return deleted

    async def optimize(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Merges the segments of the keyword index; see `PostgreSQLRetriever.optimize`."""
        self._refuse_read_only()
        if self.collection.lexical.analyzer_version is None:
            return 0

        def tell(done: int, total: int) -> None:
            if progress is not None:
                progress(Progress("merge", done, total, "segments"))

        return await optimize(self.database, self.collection, tell)

    async def reindex_lexical(self, progress: Callable[[Progress], None] | None = None) -> Rebuilt:
        """Rebuilds the keyword index; see `PostgreSQLRetriever.reindex_lexical`."""
        self._refuse_read_only()
        if self.database.joins_transaction:
            raise ConfigurationError(
                "an index is rebuilt in several transactions: open the retriever without connection="
            )

        def tell(done: int, total: int) -> None:
            if progress is not None:
                progress(Progress("rebuild", done, total, "chunks"))

        rebuilt = await rebuild(self.database, self.collection, tell)
        await merge_where_wanted(self.database, self.collection)
        return rebuilt

    # --- one stage each ---------------------------------------------------------------------------------------------

    def _refuse_read_only(self) -> None:
        if self.collection.server.read_only:
            raise ReadOnlyError("this server is read-only (a standby?); documents are added on the primary")

    async def _chunker(self, wanted: CollectionOptions) -> Chunker:
        """What cuts the files of this collection; its settings are stored when the first one is cut.

        Raises:
            CollectionSettingsError: Other settings are wanted than the stored ones.
        """
        counter = self._token_counter()
        Chunker(counter, *wanted.chunk_settings())  # refused before anything is stored
        chunk_tokens, overlap_tokens = await self.database.write(
            "read the chunk settings",
            lambda c: ingestion.settle_chunk_settings(c, self.collection, *wanted.chunk_settings()),
        )
        settings = replace(self.collection.settings, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
        self.collection = replace(self.collection, settings=settings)
        wanted.check(self.collection)
        return Chunker(counter, chunk_tokens, overlap_tokens)

    def _token_counter(self) -> TokenCounter:
        stored = self.collection.settings.token_counter
        words = WordCounter()
        if stored == words.name:
            return words
        if self.embedder is not None and self._models.counter_name == stored:
            return preparation.EmbedderCounter(self.embedder, stored)
        raise ModelMismatchError(
            f"the collection's chunks are counted with {stored}; choose the model that brings it, or a new collection"
        )

    async def _ensure_version(self, given: EmbeddingVersion | None) -> None:
        wanted = given or self._models.version
        if wanted is not None:
            self.collection = await ensure_embedding_version(
                self.database, self.collection, replace(wanted, storage=self._storage)
            )

    def _documents_cut(self) -> int:
        """How many texts were longer than the model reads, where the embedder counts them."""
        return getattr(self.embedder, "documents_cut", 0)

    async def _embed_rows(self, rows: ChunkRows, wanted: list[int], done: Callable[[int], None] | None = None) -> None:
        """Puts the vectors of the wanted rows into `rows`."""
        columns = rows.columns
        texts = [embedded_text(columns["context"][n], columns["chunk_text"][n]) for n in wanted]
        vectors: list[NDArray[np.float32] | None] = [None] * len(rows)
        if texts:
            made = await self._vectors.of(texts, self.collection.embedding, done)
            for number, vector in zip(wanted, made, strict=True):
                vectors[number] = vector
        rows.embeddings = vectors

    async def _changed_rows(self, rows: ChunkRows, on_duplicate: OnDuplicate) -> list[int]:
        """Numbers of the rows whose text has no vector yet."""
        keys = rows.keys()
        known = await self.database.read(
            "look for embeddings", lambda c: ingestion.embedded_hashes(c, self.collection, keys)
        )
        hashes = rows.columns["content_hash"]
        return [
            number
            for number, key in enumerate(keys)
            if key not in known or (on_duplicate == "update" and known[key] != hashes[number])
        ]

    async def _cut_contexts(self, keys: list[Key]) -> dict[str, str]:
        return await self.database.read("look for chunks", lambda c: cut_contexts(c, self.collection, keys))

    async def _write(
        self, rows: RowSource, mode: WriteMode, *, on_duplicate: OnDuplicate, within: list[uuid.UUID]
    ) -> None:
        async def work(connection: Connection, mode: WriteMode) -> None:
            await write_chunks(
                connection,
                self.collection,
                rows,
                mode=mode,
                on_duplicate=on_duplicate,
                within=within,
                bulk=self._bulk,
            )

        await self._write_batch("add documents", mode, work)

    async def _write_batch(
        self, doing: str, mode: WriteMode, work: Callable[[Connection, WriteMode], Awaitable[None]]
    ) -> None:
        try:
            await self._write_and_merge(doing, lambda connection: work(connection, mode))
        except StoreError as error:
            # Somebody else wrote the same id into the empty collection first: merge with it.
            if mode != "direct" or error.sqlstate != "23505":
                raise
            await self._write_and_merge(doing, lambda connection: work(connection, "merge"))

    async def _write_and_merge(self, doing: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Writes, and merges segments of the keyword index when there are many of them now."""

        async def looking(connection: Connection) -> tuple[T, bool]:
            done = await work(connection)
            # A caller's transaction is not committed yet.
            return done, not self.database.joins_transaction and await merge_wanted(connection, self.collection)

        done, wanted = await self.database.write(doing, looking)
        if wanted:
            await merge_where_wanted(self.database, self.collection)
        return done

    async def _end_load(self, written: int, progress: Callable[[Progress], None] | None) -> list[str]:
        """Merges and builds indexes; returns what could not be done. Nothing of it fails: all is stored by now."""
        bulk = written >= BULK_LOAD_CHUNKS and self.collection.lexical.analyzer_version is not None
        if bulk and not self.database.joins_transaction:
            await merge_where_wanted(self.database, self.collection, written=written)
        return await self._build_indexes(progress)

    async def _build_indexes(self, progress: Callable[[Progress], None] | None) -> list[str]:
        # Inside a caller's transaction the rows are not committed yet, and an index build would hold its locks on.
        if self.database.joins_transaction or not self._bulk.build_indexes:
            return []

        def begin() -> None:
            if progress is not None:
                progress(Progress("build indexes", 0, None, "rows"))

        return await build_where_wanted(self.database, self.collection, begin)

    async def _open_sources(self, roots: set[str]) -> dict[str, tuple[uuid.UUID, dict[uuid.UUID, bytes]]]:
        """Key of each source, and the content hash of every document that was read from it before."""

        async def work(connection: Connection) -> dict[str, tuple[uuid.UUID, dict[uuid.UUID, bytes]]]:
            sources = {}
            for root in sorted(roots):
                key = await ingestion.write_source(connection, self.collection, root, "folder", utc_now())
                sources[root] = (key, await ingestion.known_documents(connection, self.collection, key))
            return sources

        return await self.database.write("open the sources", work)

    async def _read_ahead(
        self,
        found: list[FoundFile],
        chunker: Chunker,
        report: IndexReport,
        progress: Callable[[Progress], None] | None,
    ) -> AsyncIterator[list[preparation.PreparedFile]]:
        """Batches of files, read and cut; the next batch is made while the caller writes this one."""
        sources = await self._open_sources({str(file.root) for file in found})
        with_context = self.collection.settings.with_context
        position = 0

        def next_batch() -> list[preparation.PreparedFile]:
            nonlocal position
            batch: list[preparation.PreparedFile] = []
            chunks = 0
            while position < len(found) and chunks < FILE_BATCH_CHUNKS:
                file = found[position]
                position += 1
                source, known = sources[str(file.root)]
                prepared = preparation.prepare_file(file, source, known, chunker, with_context=with_context)
                if prepared is None:
                    report.unchanged += 1
                elif isinstance(prepared, FileProblem):
                    report.problems.append(prepared)
                    report.failed += 1
                else:
                    batch.append(prepared)
                    chunks += len(prepared.chunks["chunk_id"])
            return batch

        pending = asyncio.ensure_future(asyncio.to_thread(next_batch))
        while True:
            batch = await pending
            read = position
            more = read < len(found)
            if more:
                pending = asyncio.ensure_future(asyncio.to_thread(next_batch))
            if batch:
                yield batch
            if progress is not None:
                progress(Progress("read", read, len(found), "files"))
            if not more:
                return

    async def _write_files(
        self,
        batch: list[preparation.PreparedFile],
        mode: WriteMode,
        report: IndexReport,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        changed = [prepared.row.document_id for prepared in batch if not prepared.is_new]
        columns = empty_columns()
        for prepared in batch:
            for name, values in prepared.chunks.items():
                columns[name] += values
        rows = ChunkRows(columns)
        if self.embedder is not None and len(rows):
            wanted = await self._changed_rows(rows, "update")
            before = report.embedded

            def tell(count: int) -> None:
                if progress is not None:
                    progress(Progress("embed", before + count, before + len(wanted), "chunks"))

            await self._embed_rows(rows, wanted, tell)
            report.embedded += len(wanted)

        async def work(connection: Connection, mode: WriteMode) -> None:
            documents = [prepared.row for prepared in batch]
            await write_chunks(connection, self.collection, rows, mode=mode, documents=documents, bulk=self._bulk)

        await self._write_batch("index files", mode, work)
        self.sample.note_written(len(rows))
        report.chunks += len(rows)
        report.changed += len(changed)
        report.added += len(batch) - len(changed)
