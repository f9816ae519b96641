"""Write into a collection: the stages that all runs share. Each batch is stored in one transaction."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from semlex.errors import (
    CollectionNotFoundError,
    ConfigurationError,
    EmbeddingsMissingError,
    ReadOnlyError,
    SemlexError,
    StoreError,
)
from semlex.ingest.batches import WRITES_AT_ONCE, BatchWrites, in_parts
from semlex.ingest.chunk_rows import DocumentRows, embedded_text, keep_lines, unrepeated
from semlex.ingest.document_chunks import Chunker
from semlex.ingest.embed import DocumentVectors, are_of_length_1, default_storage, given_version
from semlex.ingest.given_documents import GivenDocuments, check_on_duplicate
from semlex.ingest.progress import DeleteReport, Progress, show_progress
from semlex.store.descriptions import stored_lines
from semlex.store.embedding_versions import check_stands, lacking_writes, note_complete, write_embeddings
from semlex.store.indexes.build import IndexBuilder, IndexesBuilt, can_build_beside, without_indexes
from semlex.store.indexes.choice import Looks, indexes_wanted
from semlex.store.postgres.errors import UNIQUE_VIOLATION
from semlex.store.query.chunk_keys import chunk_keys
from semlex.store.query.chunks import cut_contexts, fetch_vectors
from semlex.store.write import documents as ingestion
from semlex.store.write.chunks import NewRows, OnDuplicate, VectorsGoneError, WriteMode, write_chunks
from semlex.store.write.deletes import Selection, count_selection, delete_selection
from semlex.store.write.sources import remove_source
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.ingest.deletion import Deletion
    from semlex.models.tokenizer import TokenCounter
    from semlex.open_collection import OpenCollection
    from semlex.options.collection import ChunkSettings, FileLimits, StorageName, WantedOptions
    from semlex.store.indexes.build import TellBuild
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion
    from semlex.store.write.chunk_batch import ChunkBatch, RowSource
    from semlex.store.write.copy import BulkIngestConfig
    from semlex.types.vectors import Vectors

T = TypeVar("T")

EMBED_PAGE_ROWS = 1_000


class Indexer:
    """Writes documents into one collection."""

    def __init__(
        self,
        opened: OpenCollection,
        *,
        bulk: BulkIngestConfig,
        storage: StorageName | None,
        limits: FileLimits,
    ) -> None:
        self.opened = opened
        self.database = opened.database
        self.embedder = opened.models.embedder
        self.bulk = bulk
        self.sample = opened.sample
        self._models = opened.models
        self.storage = storage
        self.limits = limits
        self._new_rows = NewRows(opened.database)
        self._looks = Looks(opened.clock)
        name = opened.info.names.collection
        self._vectors = DocumentVectors(name, self.embedder, opened.executor, opened.probe)

    @property
    def collection(self) -> CollectionInfo:
        """The collection's metadata."""
        return self.opened.info

    @property
    def vector_storage(self) -> StorageName:
        """Pgvector's type of the collection's vectors; before any are stored, the requested type or ``vector``."""
        stored = self.collection.embedding
        return stored.storage if stored else self.storage or "vector"

    async def add_documents(
        self,
        documents: GivenDocuments,
        embeddings: Vectors | None = None,
        *,
        on_duplicate: OnDuplicate = "update",
        progress: Callable[[Progress], None] | None = None,
    ) -> list[str]:
        """Add documents as they are; see `PostgreSQLRetriever.add_documents`."""
        check_on_duplicate(on_duplicate)
        documents = documents.checked(embeddings, self.vector_storage)
        if not documents.ids:
            return []
        self.refuse_write()
        await self.ensure_version(embeddings)
        numbers = unrepeated(documents.ids, on_duplicate)
        few = len(numbers) <= self.bulk.small_batch_rows
        mode: WriteMode = "direct" if not few and on_duplicate == "update" and await self.is_empty() else "merge"
        tell = partial(show_progress, progress, "write", total=len(numbers), unit="rows")
        # The model serves one batch at a time; after a row that is refused because it exists, nothing is stored.
        asks = embeddings is None or isinstance(embeddings, list)
        alone = asks or on_duplicate == "fail" or not self.database.has_several_connections
        async with BatchWrites(1 if alone else WRITES_AT_ONCE, tell) as writes:
            for part in in_parts(numbers, self.bulk.batch_size):  # no id occurs twice
                await writes.begin(len(part), set(), self._add(documents, part, embeddings, mode, on_duplicate))
        await self.end_load(len(numbers), progress)
        return documents.ids

    async def add_rows(
        self,
        documents: GivenDocuments,
        embeddings: NDArray[np.float32],
        mode: WriteMode,
        on_duplicate: OnDuplicate,
        *,
        skip_unchanged: bool,
    ) -> int:
        """Store checked documents with vectors in one transaction; return the number of stored rows."""
        numbers = await self._changed(documents) if skip_unchanged else unrepeated(documents.ids, on_duplicate)
        return await self._add(documents, numbers, embeddings, mode, on_duplicate) if numbers else 0

    async def _add(
        self,
        documents: GivenDocuments,
        numbers: Sequence[int],
        embeddings: Vectors | None,
        mode: WriteMode,
        on_duplicate: OnDuplicate,
    ) -> int:
        with_context = self.collection.settings.with_context
        rows = DocumentRows.of(documents, numbers, embeddings, with_context=with_context)
        rows = await self._with_cut_contexts(rows)
        batch: RowSource = rows
        if self.embedder is not None and (embeddings is None or isinstance(embeddings, list)):
            batch = whole = rows.whole()
            await self.embed_rows(whole, await self.changed_rows(whole, on_duplicate))
        within = list(dict.fromkeys(document_id for document_id, _ in rows.indexed()))
        written = await self._write(batch, mode, on_duplicate=on_duplicate, within=within)
        self.sample.note_written(len(numbers))
        return written

    async def _changed(self, documents: GivenDocuments) -> list[int]:
        """Return the numbers of the checked documents that must be written: new, different, or without a vector."""
        keys, stored = await self._looked_up(documents, lambda c, b: ingestion.unchanged_rows(c, self.collection, b))
        return sorted(number for number, key in keys.items() if key not in stored)

    async def stored_vectors(self, documents: GivenDocuments) -> dict[int, NDArray[np.float32]]:
        """Return document number -> stored vector, for the checked documents whose text has not changed."""
        if await self.are_new(documents):
            return {}

        async def look(connection: Connection, batch: ChunkBatch) -> dict[str, NDArray[np.float32]]:
            hashes = await ingestion.embedded_hashes(connection, self.collection, batch.keys())
            same = [key[1] for key, own in zip(batch.keys(), batch.content_hash, strict=True) if hashes.get(key) == own]
            return await fetch_vectors(connection, self.collection, same) if same else {}

        keys, stored = await self._looked_up(documents, look)
        return {number: stored[chunk_id] for number, (_, chunk_id) in keys.items() if chunk_id in stored}

    async def _looked_up(
        self, documents: GivenDocuments, look: Callable[[Connection, ChunkBatch], Awaitable[T]]
    ) -> tuple[dict[int, Key], T]:
        """Return document number -> key (only the last document of a repeated id), and the result of `look`."""
        if self.collection.embedding is None:
            await self.opened.refresh()  # another process may have stored the first vectors in the meantime
        numbers = unrepeated(documents.ids, "update")
        rows = DocumentRows.of(documents, numbers, None, with_context=self.collection.settings.with_context)
        batch = (await self._with_cut_contexts(rows)).whole()

        async def read(connection: Connection) -> T:
            await keep_lines(connection, self.collection, batch)
            return await look(connection, batch)

        found = await self.database.read("look for stored rows", read)
        return {number: key for key, (*_, number) in zip(batch.keys(), rows.keyed, strict=True)}, found

    async def _with_cut_contexts(self, rows: DocumentRows) -> DocumentRows:
        """Return the rows; each row that replaces a chunk of an indexed file gets that chunk's stored context."""
        indexed = rows.indexed()
        if not indexed:
            return rows
        contexts = await self.database.read("look for chunks", lambda c: cut_contexts(c, self.collection, indexed))
        return replace(rows, contexts=contexts)

    async def is_empty(self) -> bool:
        """Return whether the collection has no chunks."""
        return await self.database.read("look at the collection", lambda c: ingestion.is_empty(c, self.collection))

    async def are_new(self, documents: GivenDocuments) -> bool:
        """Return whether no chunk of any of these documents is stored yet."""
        keys = chunk_keys(documents.ids)
        return not await self.database.read(
            "look for stored rows", lambda c: ingestion.have_chunks(c, self.collection, keys)
        )

    async def embed_missing(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Compute missing vectors; return how many were written."""
        self.refuse_write()
        if self.embedder is None:
            raise EmbeddingsMissingError("no embedding model is configured: name one with embedding_model= or --model")
        await self.ensure_version(None)

        async def count(connection: Connection) -> tuple[int, int]:
            noted = await lacking_writes(connection, self.collection)
            return noted, await ingestion.count_unembedded(connection, self.collection)

        noted, total = await self.database.read("count", count)
        after: Key | None = None
        done = written = 0

        def tell(count: int) -> None:
            show_progress(progress, "embed", done + count, total, "chunks")

        async def read(connection: Connection) -> list[ingestion.Unembedded]:
            return await ingestion.unembedded_chunks(connection, self.collection, after, EMBED_PAGE_ROWS)

        while page := await self.database.read("read chunks", read):
            texts = [embedded_text(context, text) for *_, context, text in page]
            write = partial(
                write_embeddings,
                collection=self.collection,
                keys=[(row[0], row[1]) for row in page],
                content_hashes=[row[2] for row in page],
                embeddings=await self._vectors.of(texts, self.collection.embedding, tell),
            )
            written += await self.database.write("write embeddings", write)
            self.sample.note_written(len(page))
            after = (page[-1][0], page[-1][1])
            done += len(page)
        if noted:
            await self.database.write("note that no vector is missing", lambda c: note_complete(c, self.collection))
        await self._build_indexes(progress, written)
        return written

    async def create_index(
        self, index: VectorIndex | None, *, concurrently: bool, progress: Callable[[Progress], None] | None
    ) -> IndexesBuilt:
        """Build the indexes now; see `Indexes.create`."""
        self.refuse_read_only()
        if index is None:
            await self.opened.builds.wait(self.collection.names, build_progress(progress))
        else:
            await self.opened.builds.stop(self.collection.names)
        builder = IndexBuilder(self.database, self.collection, build_progress(progress))
        try:
            return await builder.run(index, concurrently=concurrently)
        finally:
            self.opened.indexes.forget()

    async def delete(self, deletion: Deletion, *, dry_run: bool) -> DeleteReport:
        """Delete chunks; see `PostgreSQLRetriever.delete`."""
        if not dry_run:
            self.refuse_read_only()
        log = RunLog(self)
        chunks = documents = 0
        async for selection in deletion.selections(self.database, self.collection):
            if dry_run:
                count = partial(count_selection, collection=self.collection, selection=selection)
                counted = await self.database.read("count", count)
            else:
                counted = await self.delete_selection(selection)
            chunks, documents = chunks + counted[0], documents + counted[1]
        if dry_run:
            return DeleteReport(chunks, documents, dry_run)
        source, now = deletion.whole_source, utc_now()
        if source is not None:
            await self.database.write("remove the source", lambda c: remove_source(c, self.collection, source, now))
        if documents and deletion.files is not None:
            await log.write("delete", deletion.files, has_ended=True, deleted=documents)
        return DeleteReport(chunks, documents)

    async def delete_selection(self, selection: Selection) -> tuple[int, int]:
        """Delete chunks in one transaction; return how many, and how many documents have no chunk left."""
        work = partial(delete_selection, collection=self.collection, selection=selection)
        deleted = await self.write_and_merge("delete", work)
        self.sample.note_written(deleted[0])
        return deleted

    # --- what runs over files need ------------------------------------------------------------------------------------

    def refuse_write(self) -> None:
        """Refuse to write on a standby, or without the collection's embedding model."""
        self.refuse_read_only()
        self._models.refuse_without_model()

    @property
    def model_name(self) -> str | None:
        """The name of the embedding model, for the log."""
        return self._models.version.model if self._models.version else None

    # --- one stage each ---------------------------------------------------------------------------------------------

    def refuse_read_only(self) -> None:
        """Refuse to write on a standby."""
        if self.collection.server.read_only:
            raise ReadOnlyError("this server is read-only (a standby?): write on the primary")

    def token_counter(self) -> TokenCounter:
        """Return the token counter of this collection."""
        return self._models.token_counter(self.collection.names.collection, self.collection.settings.token_counter)

    async def ensure_version(self, given: Vectors | None, storage: StorageName | None = None) -> None:
        """Make sure that the collection can hold the given vectors, or the open model's."""
        # `storage` is that of a new collection for which none was named; None: `default_storage`.
        self.opened.brings_vectors |= given is not None
        wanted = self._models.version if given is None else given_version(given, self._models.version)
        if wanted is None:
            return
        if self.collection.embedding is None:
            wanted = replace(wanted, storage=self.storage or storage or await self._default_storage(wanted, given))
        await self.opened.ensure_version(wanted, is_given=given is not None)

    async def _default_storage(self, wanted: EmbeddingVersion, given: Vectors | None) -> StorageName:
        def of_length_1() -> bool:
            return self._models.of_length_1 if given is None else are_of_length_1(given)

        distance = self.collection.settings.distance
        return await asyncio.to_thread(default_storage, wanted.dimensions, distance, of_length_1)

    def documents_cut(self) -> int:
        """Return how many texts exceeded the model's limit, if the embedder counts them."""
        return getattr(self.embedder, "documents_cut", 0)

    async def embed_rows(
        self, rows: ChunkBatch, wanted: Sequence[int], done: Callable[[int], None] | None = None
    ) -> None:
        """Embed the rows with the numbers `wanted`; the vectors of the other rows are in the database already."""
        texts = [embedded_text(rows.context[n], rows.chunk_text[n]) for n in wanted]
        vectors = [None] * len(rows) if rows.embeddings is None else list(rows.embeddings)
        made = await self._vectors.of(texts, self.collection.embedding, done) if texts else ()
        for number, vector in zip(wanted, made, strict=True):
            vectors[number] = vector
        rows.embeddings, rows.is_embedded = vectors, True

    async def changed_rows(self, rows: ChunkBatch, on_duplicate: OnDuplicate) -> list[int]:
        """Return the numbers of the rows that need a vector; first fill in the stored chunk descriptions."""
        keys, collection = rows.keys(), self.collection

        async def look(connection: Connection) -> dict[Key, bytes]:
            await keep_lines(connection, collection, rows)
            return await ingestion.embedded_hashes(connection, collection, keys)

        try:
            known = await self.database.read("look for embeddings", look)
        except CollectionNotFoundError:  # a table is missing
            await self.database.read("look at the embedding versions", lambda c: check_stands(c, collection))
            raise
        brought = rows.embeddings
        return [
            number
            for number, key in enumerate(keys)
            if (brought is None or brought[number] is None)
            and (key not in known or (on_duplicate == "update" and known[key] != rows.content_hash[number]))
        ]

    async def keep_lines(self, rows: ChunkBatch) -> int:
        """Keep the stored descriptions of unchanged rows; return how many."""
        return await self.database.read("look for descriptions", lambda c: keep_lines(c, self.collection, rows))

    async def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts: float32, shape (n, d)."""
        return await self._vectors.of(texts, self.collection.embedding)

    async def _write(
        self, rows: RowSource, mode: WriteMode, *, on_duplicate: OnDuplicate, within: list[uuid.UUID]
    ) -> int:
        few = len(rows) <= self.bulk.small_batch_rows and not within and not rows.relies_on_stored
        if few and await self._write_new(rows.whole()):
            return len(rows)
        if mode == "merge" and isinstance(rows, DocumentRows):
            keys = rows.keys()
            if await self.database.read("look for descriptions", lambda c: stored_lines(c, self.collection, keys)):
                rows = rows.whole()
                await self.keep_lines(rows)

        async def work(connection: Connection, mode: WriteMode) -> int:
            return await write_chunks(
                connection, self.collection, rows, mode=mode, on_duplicate=on_duplicate, within=within, bulk=self.bulk
            )

        return await self.write_batch("add documents", mode, work, rows)

    async def _write_new(self, rows: ChunkBatch) -> bool:
        """Write a few rows in one round trip if all of them are new; return whether they were written."""
        wants_merge = await self._new_rows.write(self.collection, rows)
        index = self.collection.keyword.index
        if wants_merge and index is not None:
            await index.merge(self.database, self.collection)
        return wants_merge is not None

    async def write_batch(
        self, doing: str, mode: WriteMode, work: Callable[[Connection, WriteMode], Awaitable[T]], rows: RowSource
    ) -> T:
        """Write a batch of these rows in one transaction, then merge segments if needed."""

        async def attempt(connection: Connection) -> T:
            return await work(connection, mode)

        while True:
            try:
                return await self.write_and_merge(doing, attempt)
            except StoreError as error:
                # Another writer was first with the same id: merge.
                if mode != "direct" or error.sqlstate != UNIQUE_VIOLATION:
                    raise
                mode = "merge"
            except VectorsGoneError as error:
                batch = rows.whole()
                await self.embed_rows(batch, [n for n, key in enumerate(batch.keys()) if key in error.keys])

    async def write_and_merge(self, doing: str, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` in a write transaction, then merge segments of the keyword index if there are many."""
        index = self.collection.keyword.index

        async def looking(connection: Connection) -> tuple[T, bool]:
            written = await work(connection)
            if index is None or self.database.joins_transaction:  # a caller's transaction is not committed yet
                return written, False
            return written, await index.wants_merge(await index.ask_sizes(connection, self.collection))

        try:
            done, wants_merge = await self.database.write(doing, looking)
            if wants_merge and index is not None:
                await index.merge(self.database, self.collection)
        finally:
            self.opened.builds.note_write(self.collection.names, self.database.clock.monotonic())
        return done

    async def end_load(self, written: int, progress: Callable[[Progress], None] | None) -> list[str]:
        """Merge segments and build indexes after all data is stored; return warnings."""
        index = self.collection.keyword.index
        if index is not None and not self.database.joins_transaction:
            await index.end_load(self.database, self.collection, written)
        return [*self.opened.note("write"), *await self._build_indexes(progress, written)]

    async def _build_indexes(self, progress: Callable[[Progress], None] | None, written: int) -> list[str]:
        # In a caller's transaction the rows are not committed yet, and an index build would keep its locks.
        if self.database.joins_transaction or not self.bulk.build_indexes or not self._looks.is_due(written):
            return []
        tell, builds = build_progress(progress), self.opened.builds
        try:
            if not await self.database.read("look at the indexes", lambda c: indexes_wanted(c, self.collection)):
                return []
            if await can_build_beside(self.database):
                builds.begin(self.database, self.collection, self._end_builds)
                return await builds.wait(self.collection.names, tell) if self.bulk.wait_for_index else []
            show_progress(progress, "build indexes", 0, None, "rows")
            await IndexBuilder(self.database, self.collection, tell).run()
        except SemlexError as error:
            self._end_builds(is_built=False)
            return [without_indexes(self.collection, error)]
        self._end_builds(is_built=True)
        return []

    def _end_builds(self, *, is_built: bool) -> None:
        """Make the next search read again which indexes exist; if none was built, let the next write try to build."""
        self.opened.indexes.forget()
        if not is_built:
            self._looks = Looks(self.opened.clock)  # the next call tries again


def build_progress(progress: Callable[[Progress], None] | None) -> TellBuild | None:
    """Return a callback for index builds that calls `progress` with the stage ``build the index NAME``."""
    if progress is None:
        return None
    return lambda name, done, total, unit: progress(Progress(f"build the index {name}", done, total, unit))


class RunLog:
    """The entry of one run in the ingestion log."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer
        self._run_id, self._begun, self._started = uuid.uuid4(), utc_now(), time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._started

    async def write(self, command: str, where: str, *, has_ended: bool, **columns: Any) -> None:
        """Write or replace the entry; `columns` are further attributes of `LogEntry`."""
        indexer = self._indexer
        entry = ingestion.LogEntry(
            run_id=self._run_id,
            source_uri=where,
            command=command,
            client=ingestion.client_name(),
            embedding_model=indexer.model_name,
            started_at=self._begun,
            finished_at=utc_now() if has_ended else None,
            seconds=self.seconds if has_ended else None,
            **columns,
        )
        await indexer.database.write("write the log", lambda c: ingestion.log_run(c, indexer.collection, entry))


class RunChunker:
    """The chunk settings of one run; new settings are stored with the run's first documents."""

    def __init__(self, indexer: Indexer, wanted: WantedOptions) -> None:
        self._indexer, self._wanted = indexer, wanted
        # This run's settings, until they are stored.
        self._unstored: ChunkSettings | None = None

    async def chunker(self) -> Chunker:
        """Return the chunker of the collection."""
        counter, stored = self._indexer.token_counter(), await self.stored()
        if stored is None:
            self._unstored = self._wanted.chunk_settings()
            return Chunker(counter, self._unstored)
        self.check(self.cut_as(stored))
        self._indexer.opened.info = self.cut_as(stored)
        return Chunker(counter, stored)

    async def stored(self) -> ChunkSettings | None:
        """Read the collection's chunk settings, which another process may have changed; None if not decided yet."""
        return await self._indexer.database.read(
            "read the chunk settings", lambda c: ingestion.stored_chunk_settings(c, self._indexer.collection)
        )

    def check(self, collection: CollectionInfo) -> None:
        """Refuse options that differ from the collection's chunk settings."""
        self._wanted.check(collection.names.collection, collection.options)

    def cut_as(self, settings: ChunkSettings) -> CollectionInfo:
        """Return a copy of the collection's metadata with these chunk settings."""
        collection = self._indexer.collection
        return replace(collection, settings=replace(collection.settings, chunk_settings=settings))

    async def store(self) -> None:
        """Store this run's settings before its first documents, in a separate transaction."""
        if self._unstored is not None:
            await self._indexer.database.write("store the chunk settings", self.settle)
            self.note_stored()

    async def settle(self, connection: Connection) -> None:
        """Store this run's chunk settings in the caller's transaction; refuse if another run stored other settings."""
        wanted = self._unstored
        if wanted is None:
            return
        settled = await ingestion.settle_chunk_settings(connection, self._indexer.collection, wanted)
        if settled != wanted:
            numbers = ", ".join(f"{name}={number}" for name, number in settled._asdict().items())
            raise ConfigurationError(
                f"another run has meanwhile set this collection's chunk settings to {numbers}: try again without "
                "your settings, or with these"
            )

    def note_stored(self) -> None:
        """Remember that this run's chunk settings were stored with its first documents."""
        if self._unstored is not None:
            self._indexer.opened.info, self._unstored = self.cut_as(self._unstored), None
