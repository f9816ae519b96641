"""A collection out into files: one snapshot, streamed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from semlex.ingest.bulk.arrow_rows import arrow
from semlex.ingest.progress import Progress
from semlex.maintenance.dump_files import Manifest, claimed_folder, file_of
from semlex.maintenance.dump_tables import TableWriter
from semlex.store.schema.presence import gone
from semlex.store.schema.registry import find
from semlex.store.tables import CHUNKS, TABLES, copy_out, count_rows
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from semlex.maintenance.dump_files import DumpedFile
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.tables import RowPart


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What was dumped or restored.

    Attributes:
        collection: Name of the collection.
        folder: The dump.
        chunks: Rows.
        vectors: Vectors.
        documents: Documents that were read from files.
        bytes: Size of all files.
        seconds: Wall time.
        warnings: What did not go as asked, for example an index that could not be built.
    """

    collection: str
    folder: str
    chunks: int
    vectors: int
    documents: int
    bytes: int
    seconds: float
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, name: str, folder: Path, manifest: Manifest, started: float, warnings: tuple[str, ...] = ()
    ) -> TransferReport:
        """The report of work that began at a time of `time.perf_counter`."""
        counts = manifest.counts
        size = sum(file.bytes for file in manifest.files.values())
        seconds = time.perf_counter() - started
        return cls(name, str(folder), counts["chunks"], counts["vectors"], counts["documents"], size, seconds, warnings)


async def dump(
    database: Database, opened: CollectionInfo, wanted: Path, progress: Callable[[Progress], None] | None
) -> TransferReport:
    """Writes a collection into a new folder; see `Collection.dump`."""
    started = time.perf_counter()
    arrow()

    async def work(connection: Connection) -> Manifest:
        collection = await _as_it_is(connection, opened)
        files: dict[str, DumpedFile] = {}
        counts = await count_rows(connection, collection)
        vectors = 0
        for table in TABLES:
            with file_of(folder, table).open("wb") as file:
                writer = TableWriter(file, table, collection.embedding)
                tell = partial(_tell, progress if table == CHUNKS else None, counts[table])
                files[table] = await _dump_table(connection, collection, table, writer, tell)
                vectors += writer.vectors
        stored = collection.embedding
        return Manifest(collection.names.collection, utc_now().isoformat(), collection.settings, stored, vectors, files)

    with claimed_folder(wanted) as folder:
        manifest = await database.read_whole("dump the collection", work)
        await asyncio.to_thread(manifest.write, folder)
    return TransferReport.of(opened.names.collection, folder, manifest, started)


async def _as_it_is(connection: Connection, opened: CollectionInfo) -> CollectionInfo:
    """The collection in this snapshot: another process may have added the first vectors, or changed its settings."""
    found = await find(connection, opened.names)
    if found is None:
        raise gone(opened)
    collection, _ = found
    own = None if opened.embedding is None else collection.versions.of(opened.embedding.identity_key)
    return replace(collection, embedding=own or collection.embedding)


async def _dump_table(
    connection: Connection,
    collection: CollectionInfo,
    table: str,
    writer: TableWriter,
    tell: Callable[[int], None],
) -> DumpedFile:
    done = 0
    writing: asyncio.Future[int] | None = None
    try:
        async for part in copy_out(connection, collection, table):
            if writing is not None:
                done += await writing
                tell(done)
            # A part is decoded and written while the next one comes.
            writing = asyncio.ensure_future(asyncio.to_thread(_write, writer, part))
        if writing is not None:
            tell(done + await writing)
        return await asyncio.to_thread(writer.close)
    except BaseException:
        if writing is not None:
            await asyncio.gather(writing, return_exceptions=True)
        writer.abandon()
        raise


def _write(writer: TableWriter, part: RowPart) -> int:
    return writer.write(part.buffers())


def _tell(progress: Callable[[Progress], None] | None, total: int, done: int) -> None:
    if progress is not None:
        progress(Progress("dump", done, total, "rows"))
