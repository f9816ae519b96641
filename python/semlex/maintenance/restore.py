"""Restores a collection from the files of a dump, in one transaction: completely or not at all."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import numpy as np

from semlex.errors import ConfigurationError, DumpError, SemlexError, ValidationError
from semlex.ingest.batches import ahead
from semlex.ingest.bulk.sources import arrow
from semlex.ingest.progress import Progress, show_progress
from semlex.maintenance.dump import Manifest, TransferReport, table_parts, transfer_report
from semlex.store.embedding_versions import ensure_embedding_version, store_calibration
from semlex.store.followed.definitions import restore_tables
from semlex.store.indexes.build import build_where_wanted
from semlex.store.query.statistics import write_description
from semlex.store.schema.registry import open_collection
from semlex.store.tables import CHUNKS, TABLES, VECTOR, copy_in, count_rows
from semlex.store.write.chunk_batch import ChunkBatch
from semlex.store.write.chunks import write_chunks
from semlex.store.write.documents import settle_chunk_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from semlex.options.collection import StorageName
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

# Bytes of vectors in a part, and its maximum number of chunks.
PART_BYTES = 32 * 1024 * 1024
PART_ROWS = 16_384


class Restore:
    """One restore of a dump."""

    def __init__(
        self,
        database: Database,
        names: Names,
        folder: Path,
        manifest: Manifest,
        *,
        storage: StorageName | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._database, self._names = database, names
        self._folder, self._manifest = folder, manifest
        self._storage = storage
        self._progress = progress
        self._is_written = False  # whether an attempt came to its end; its commit may have failed
        self._followed, self._warnings = _without_triggers(manifest.followed)
        # The queue of changes knows a followed table by its source alone, so that a copy needs another one.
        self._sources = {source: uuid4() for source in manifest.followed}

    async def run(self, *, keyword: str | None, partitions: int | None, build_indexes: bool) -> TransferReport:
        """Restore the collection, as `Client.restore` does."""
        started = time.perf_counter()
        arrow()
        manifest = self._manifest
        await asyncio.to_thread(manifest.check_files, self._folder)
        settings = manifest.settings
        if keyword is not None:
            settings = replace(settings, keyword_engine=keyword)
        if partitions is not None:
            settings = replace(settings, partitions=partitions)
        collection = await open_collection(self._database, self._names, settings)
        for name, stored in asdict(replace(collection.settings, chunk_settings=settings.chunk_settings)).items():
            self._check(name, stored, asdict(settings)[name])
        wanted = manifest.embedding
        if wanted is not None:
            wanted = replace(wanted, storage=self._storage or wanted.storage)
            collection = await ensure_embedding_version(self._database, collection, wanted)
            if collection.embedding is not None:
                self._check("vector_storage", collection.embedding.storage, wanted.storage)
        await self._database.write("restore the collection", lambda c: self._write(c, collection))
        warnings = list(self._warnings)
        index = collection.keyword.index
        if index is not None:
            await index.end_load(self._database, collection, manifest.counts[CHUNKS])
        if build_indexes:
            warnings += await build_where_wanted(self._database, collection, self._begin_indexes)
        return transfer_report(self._names.collection, self._folder, manifest, started, tuple(warnings))

    def _check(self, option: str, stored: object, wanted: object) -> None:
        """Refuse an existing empty collection if this option differs from the dumped collection's."""
        if stored != wanted:
            name = self._names.collection
            raise ConfigurationError(
                f"collection {name!r} was made with {option}={stored!r}, and the dumped one with {wanted!r}: restore "
                f"under another name (--collection), or drop it first: semlex collections drop {name}"
            )

    def _begin_indexes(self) -> None:
        show_progress(self._progress, "build indexes", 0, None, "rows")

    async def _write(self, connection: Connection, collection: CollectionInfo) -> None:
        manifest = self._manifest
        held = await count_rows(connection, collection)
        if self._is_written and held == manifest.counts:
            return  # the attempt before was committed, but its answer was lost
        if any(held.values()):
            raise ConfigurationError(
                f"collection {self._names.collection!r} is not empty ({held['chunks']:,} chunks, "
                f"{held['documents']:,} documents): restore under another name (--collection), or drop it first: "
                f"semlex collections drop {self._names.collection}"
            )
        if manifest.settings.chunk_settings is not None:
            await settle_chunk_settings(connection, collection, manifest.settings.chunk_settings)
        for table in TABLES:
            await self._write_table(connection, collection, table)
        await restore_tables(
            connection, self._names, {self._sources[old]: stored for old, stored in self._followed.items()}
        )
        if manifest.embedding is not None and collection.embedding is not None:
            version, calibration = collection.embedding.version, manifest.embedding.calibration
            await store_calibration(connection, collection, version, calibration)
        if manifest.description is not None:
            await write_description(connection, self._names, manifest.description)
        found = await count_rows(connection, collection)
        if found != manifest.counts:
            raise DumpError(
                f"{self._folder} has rows that differ from its manifest ({_difference(found, manifest.counts)}); "
                "nothing was restored: dump again"
            )
        self._is_written = True

    async def _write_table(self, connection: Connection, collection: CollectionInfo, table: str) -> None:
        embedding = self._manifest.embedding if table == CHUNKS else None
        rows = PART_ROWS if embedding is None else min(PART_ROWS, max(1, PART_BYTES // (4 * embedding.dimensions)))
        done, total = 0, self._manifest.counts[table]
        try:
            async with aclosing(ahead(_batches(table_parts(self._folder, table, embedding, rows), table))) as batches:
                async for batch in batches:
                    if isinstance(batch, ChunkBatch):
                        done += await write_chunks(connection, collection, batch, mode="direct")
                    else:
                        if "source_id" in batch:
                            batch["source_id"] = [str(self._sources.get(one, one)) for one in batch["source_id"]]
                        done += await copy_in(connection, collection, table, batch)
                    if self._progress is not None and table == CHUNKS:
                        self._progress(Progress("restore", done, total, "rows"))
        except ValueError as error:
            if isinstance(error, SemlexError) and not isinstance(error, ValidationError):
                raise
            reason = str(error) if isinstance(error, ValidationError) else type(error).__name__
            raise DumpError(
                f"{self._folder} has a value that cannot be stored, after row {done} of {table}: {reason}; nothing was "
                "restored: dump again"
            ) from None


async def _batches(
    parts: Iterator[pa.RecordBatch], table: str
) -> AsyncGenerator[ChunkBatch | dict[str, list[Any]], None]:
    """Yield the rows of a table in batches for writing; a thread reads them."""

    def make() -> ChunkBatch | dict[str, list[Any]] | None:
        part = next(parts, None)
        if part is None:
            return None
        return _chunks(part) if table == CHUNKS else _columns(part, table)

    while (batch := await asyncio.to_thread(make)) is not None:
        yield batch


def _columns(part: pa.RecordBatch, table: str) -> dict[str, list[Any]]:
    wires = TABLES[table]
    values = {name: part.column(name).to_pylist() for name in wires}
    return {
        name: [value and json.loads(value) for value in column] if wires[name] == "jsonb" else column
        for name, column in values.items()
    }


def _chunks(part: pa.RecordBatch) -> ChunkBatch:
    columns = _columns(part, CHUNKS)
    columns["document_id"] = [UUID(value).bytes for value in columns["document_id"]]
    embeddings: Any = None
    if VECTOR in part.schema.names:
        column = part.column(VECTOR)
        given = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        embeddings = flat.reshape(len(given), column.type.list_size)
        if len(given) < len(column):
            vectors: list[Any] = [None] * len(column)
            for number, vector in zip(given.tolist(), embeddings, strict=True):
                vectors[number] = vector
            embeddings = vectors
    return ChunkBatch(**columns, embeddings=embeddings)


def _without_triggers(followed: Mapping[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the definitions of followed tables, with triggers replaced by comparison of rows, and warnings."""
    warnings = []
    if followed:
        names = ", ".join(sorted(stored["name"] for stored in followed.values()))
        warnings.append(
            f"followed tables are not read until you run semlex sync, which runs SQL from the dump: {names}"
        )
    by_trigger = sorted(stored["name"] for stored in followed.values() if stored["changes"] == "trigger")
    warnings += [
        f"changes of {name} were noticed by triggers, which are not restored; its rows are compared instead, until you "
        f"make the triggers again: semlex follow {name} --change --changes trigger"
        for name in by_trigger
    ]
    changed = {
        source: stored | {"changes": "comparison"} if stored["changes"] == "trigger" else stored
        for source, stored in followed.items()
    }
    return changed, warnings


def _difference(found: dict[str, int], expected: dict[str, int]) -> str:
    return ", ".join(
        f"{found[name]:,} of {wanted:,} {name}" for name, wanted in expected.items() if found[name] != wanted
    )
