"""A collection out into files: one snapshot, streamed."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.bulk.arrow_rows import arrow
from semlex.ingest.progress import Progress
from semlex.maintenance.dump_files import Manifest, TableWriter, file_of
from semlex.store.tables.columns import CHUNKS, TABLES
from semlex.store.tables.copy_in import count_rows
from semlex.store.tables.copy_out import copy_out
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from semlex.maintenance.dump_files import DumpedFile
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.tables.copy_out import RowPart


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
    database: Database, collection: CollectionInfo, folder: Path, progress: Callable[[Progress], None] | None
) -> TransferReport:
    """Writes a collection into a new folder; see `Collection.dump`."""
    started = time.perf_counter()
    arrow()
    folder, unfinished = await asyncio.to_thread(_made, folder)

    async def work(connection: Connection) -> Manifest:
        files: dict[str, DumpedFile] = {}
        counts = await count_rows(connection, collection)
        vectors = 0
        for table in TABLES:
            with file_of(unfinished, table).open("wb") as file:
                writer = TableWriter(file, table, collection.embedding)
                tell = partial(_tell, progress if table == CHUNKS else None, counts[table])
                files[table] = await _dump_table(connection, collection, table, writer, tell)
                vectors += writer.vectors
        stored = collection.embedding
        return Manifest(collection.names.collection, utc_now().isoformat(), collection.settings, stored, vectors, files)

    try:
        manifest = await database.read_whole("dump the collection", work)
        await asyncio.to_thread(manifest.write, unfinished)
        await asyncio.to_thread(unfinished.rename, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return TransferReport.of(collection.names.collection, folder, manifest, started)


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
    columns = part.decoded()
    writer.write(columns)
    return len(columns[0])


def _tell(progress: Callable[[Progress], None] | None, total: int, done: int) -> None:
    if progress is not None:
        progress(Progress("dump", done, total, "rows"))


def _made(folder: Path) -> tuple[Path, Path]:
    """The folder as an absolute path, and an empty one beside it that gets its name when it is full."""
    try:
        folder = folder.resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigurationError(f"the folder {str(folder)!a} exists: name a folder that does not, or is empty")
        unfinished = folder.with_name(f"{folder.name}.partial")
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)  # of a dump that was killed
        unfinished.mkdir()
        if folder.exists():
            folder.rmdir()
    except (OSError, ValueError) as error:  # a name with a NUL character is no OSError
        if isinstance(error, ConfigurationError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "its name cannot be that of a folder"
        raise ConfigurationError(f"the folder {str(folder)!a} cannot be made: {reason}") from None
    return folder, unfinished
