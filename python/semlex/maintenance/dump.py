"""Dumps a collection into files: one snapshot, a Parquet file per table, and a manifest with their hashes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

import numpy as np

from semlex.embedding.probe import restored
from semlex.errors import ConfigurationError, DumpError
from semlex.ingest.bulk.sources import arrow
from semlex.ingest.progress import Progress
from semlex.options.collection import ChunkSettings, CollectionSettings, storage_named
from semlex.store.followed.definitions import definition_from_json, definition_to_json, may_read, read_tables
from semlex.store.query.statistics import read_own_description
from semlex.store.schema.collection import MAX_DIMENSIONS, CollectionInfo, EmbeddingVersion
from semlex.store.schema.locks import gone
from semlex.store.schema.registry import find
from semlex.store.tables import CHUNKS, TABLES, VECTOR, ColumnBuffers, RowPart, copy_out, count_rows
from semlex.types.confidence import ConfidenceCurve
from semlex.types.documents import utc_now
from semlex.validation import check_parameters, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database

if sys.platform != "win32":
    import fcntl


BUFFER_BYTES = 8 * 1024 * 1024
# Numbers of vectors, not vectors, that Parquet's writer takes at a time: with its own 1,024 the lists take three times
# as long as their bytes.
BATCH_VALUES = 256 * 1024


class HashedFile:
    """A file whose content is hashed while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self._bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self.hash.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        """Return the number of written bytes."""
        return self._bytes

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self.closed = True


class TableWriter:
    """Writes the rows of a table into its file."""

    def __init__(self, file: BinaryIO, table: str, embedding: EmbeddingVersion | None) -> None:
        pyarrow = arrow()
        import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

        has_vectors = table == CHUNKS and embedding is not None
        self._schema = arrow_schema(table, embedding)
        self._hashed = HashedFile(file)
        self._rows = self.vectors = 0
        # Vectors cannot be compressed, and a dictionary does not help long texts.
        plain = f"{VECTOR}.list.element"
        names = [name for name in self._schema.names if name != VECTOR]
        # Writing to a Python object waits for the interpreter each time, which the reader of rows holds.
        self._buffered = pyarrow.BufferedOutputStream(pyarrow.PythonFile(self._hashed, "w"), BUFFER_BYTES)
        self._writer = pq.ParquetWriter(
            self._buffered,
            self._schema,
            compression=dict.fromkeys(names, "zstd") | ({plain: "none"} if has_vectors else {}),
            use_dictionary=[name for name in names if name not in ("chunk_id", "chunk_text", "context")],
            write_statistics=names,
            write_batch_size=BATCH_VALUES,
        )

    def write(self, part: RowPart) -> int:
        """Append rows; return how many the file has now."""
        arrays = [arrow_array(field.type, column) for field, column in zip(self._schema, part.buffers(), strict=True)]
        rows = arrow().record_batch(arrays, schema=self._schema)
        self._writer.write_batch(rows)
        if VECTOR in self._schema.names:
            self.vectors += rows.num_rows - arrays[-1].null_count
        self._rows += int(rows.num_rows)
        return self._rows

    def close(self) -> DumpedFile:
        """Close the file and return its size and hash."""
        self._writer.close()
        self._buffered.close()
        return DumpedFile(self._rows, self._hashed.tell(), self._hashed.hash.hexdigest())

    def abandon(self) -> None:
        """Close the file of a dump that failed."""
        with suppress(Exception):  # the first error is reported
            self._writer.close()


def arrow_schema(table: str, embedding: EmbeddingVersion | None) -> pa.Schema:
    """Return the Arrow schema of a table's file."""
    pyarrow = arrow()
    kinds = {
        "uuid": pyarrow.string(),
        "text": pyarrow.string(),
        "jsonb": pyarrow.string(),
        "int4": pyarrow.int32(),
        "int8": pyarrow.int64(),
        "float8": pyarrow.float64(),
        "bytea": pyarrow.binary(),
        "text[]": pyarrow.list_(pyarrow.string()),
        "timestamptz": pyarrow.timestamp("us", "UTC"),
    }
    columns = [(name, kinds[wire]) for name, wire in TABLES[table].items()]
    if table == CHUNKS and embedding is not None:
        number = pyarrow.float16() if embedding.storage == "halfvec" else pyarrow.float32()
        columns.append((VECTOR, pyarrow.list_(number, embedding.dimensions)))
    return pyarrow.schema(columns)


def arrow_array(kind: pa.DataType, column: ColumnBuffers) -> pa.Array:
    """Return a decoded column as an array of Arrow, without copying it if possible."""
    pyarrow = arrow()
    nulls, offsets, values = column
    buffer = pyarrow.py_buffer
    valid = None if nulls is None else buffer(np.packbits(~nulls, bitorder="little"))
    if pyarrow.types.is_fixed_size_list(kind):
        number = np.float16 if pyarrow.types.is_float16(kind.value_type) else np.float32
        numbers = values.astype(number, copy=False)
        if nulls is not None:  # a missing vector has a place
            numbers, given = np.zeros((len(nulls), kind.list_size), numbers.dtype), numbers
            numbers[~nulls] = given.reshape(-1, kind.list_size)
        flat = pyarrow.array(numbers.reshape(-1))
        return pyarrow.Array.from_buffers(kind, len(flat) // kind.list_size, [valid], children=[flat])
    if offsets is None:
        numbers = values.astype(np.int32, copy=False) if pyarrow.types.is_int32(kind) else values
        return pyarrow.Array.from_buffers(kind, len(numbers), [valid, buffer(numbers)])
    if pyarrow.types.is_list(kind):
        elements = arrow_array(kind.value_type, ColumnBuffers(*values))
        return pyarrow.Array.from_buffers(kind, len(offsets) - 1, [valid, buffer(offsets)], children=[elements])
    return pyarrow.Array.from_buffers(kind, len(offsets) - 1, [valid, buffer(offsets), buffer(values)])


def table_parts(folder: Path, table: str, embedding: EmbeddingVersion | None, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table's file in parts."""
    pyarrow = arrow()
    import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

    path = file_of(folder, table)
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1024 * 1024) as file:
            if not file.schema_arrow.equals(arrow_schema(table, embedding)):
                raise DumpError(f"{path} has columns that differ from a dump of version {VERSION}: dump again")
            yield from file.iter_batches(rows)
    except pyarrow.ArrowException as error:
        raise DumpError(f"{path} is damaged ({type(error).__name__}): copy it again, or dump again") from None


FORMAT = "semlex dump"
VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """The rows, size and hash of a file of a dump."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a dump: what was dumped, and the rows and hash of each file."""

    collection: str
    created_at: str
    settings: CollectionSettings
    embedding: EmbeddingVersion | None
    vectors: int
    files: dict[str, DumpedFile]
    description: str | None = None
    # Id of the source of a followed table -> its definition, as it is stored.
    followed: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table, and of vectors."""
        return {table: file.rows for table, file in self.files.items()} | {"vectors": self.vectors}

    def write(self, folder: Path) -> None:
        """Write the manifest, the last file of a dump."""
        cut = self.settings.chunk_settings
        values = asdict(self) | {"format": FORMAT, "version": VERSION}
        values["settings"]["chunk_settings"] = None if cut is None else cut._asdict()
        # Beside the vectors' own values, which older versions of semlex ignore.
        values["calibration"] = None if self.embedding is None else values["embedding"].pop("calibration")
        # A dump that is renamed when it is complete would do as well, but a mounted folder cannot be renamed.
        (folder / MANIFEST).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest in a folder; refuse a folder that is not a complete dump."""
        path = folder / MANIFEST
        if not os.path.isdir(folder):  # noqa: PTH112 - says False where Path would raise
            raise DumpError(f"folder {folder} does not exist; name one that semlex collections dump has made")
        try:
            with path.open("rb") as file:
                values = json.loads(file.read(MAX_MANIFEST_BYTES))
        except (OSError, ValueError, RecursionError):
            raise DumpError(f"{folder} is not a complete dump: {MANIFEST} is missing or damaged; dump again") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise DumpError(
                f"{path} is not the manifest of a dump; name a folder that semlex collections dump has made"
            )
        if values.get("version") != VERSION:
            raise DumpError(
                f"{folder} is a dump of version {values.get('version')!r:.20}, this semlex reads version {VERSION}: "
                "update semlex, or dump again with this semlex"
            )
        try:
            settings = dict(values["settings"])
            cut = settings.pop("chunk_settings")
            embedding = None if values["embedding"] is None else EmbeddingVersion(**values["embedding"])
            if embedding is not None:
                check_parameters(whole_number_errors("dimensions", embedding.dimensions, 1, MAX_DIMENSIONS))
                storage_named(embedding.storage)
                if (curve := values.get("calibration")) is not None:
                    curve = ConfidenceCurve.from_dict(curve, f"the calibration in {path}").to_dict()
                embedding = replace(embedding, calibration=curve)
                if embedding.probe is not None:
                    restored(embedding.probe)
            return cls(
                str(values["collection"]),
                str(values["created_at"]),
                CollectionSettings(**settings, chunk_settings=None if cut is None else ChunkSettings(**cut)),
                embedding,
                int(values["vectors"]),
                {table: DumpedFile(**values["files"][table]) for table in TABLES},
                values.get("description"),
                {
                    str(UUID(source)): definition_to_json(*definition_from_json(stored))
                    for source, stored in values.get("followed", {}).items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DumpError(f"{path} is damaged ({type(error).__name__}): dump again") from None

    def check_files(self, folder: Path) -> None:
        """Refuse files whose hash differs from the manifest's."""
        for table, expected in self.files.items():
            path = file_of(folder, table)
            try:
                with path.open("rb") as file:
                    found = (path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
            except OSError as error:
                raise DumpError(f"{path} cannot be read: {error.strerror}; copy the whole folder again") from None
            if found != (expected.bytes, expected.sha256):
                raise DumpError(
                    f"{path} is not the file that was dumped (truncated or changed): copy it again, or dump again"
                )


def file_of(folder: Path, table: str) -> Path:
    """Return the path of a table's file in a dump."""
    return folder / f"{table}.parquet"


@contextmanager
def claimed_folder(folder: Path) -> Iterator[Path]:
    """Make a folder for a dump, or take an empty one, and lock it; if the block fails, remove what was written."""
    # Files of a killed dump, which has no manifest, are removed.
    if sys.platform == "win32":
        raise ConfigurationError(
            "a dump locks its folder, which is not possible on Windows: dump in WSL 2 or in a container"
        )
    name = str(folder)
    try:
        folder = folder.resolve()
        made = not folder.exists()
        if not made and not folder.is_dir():
            raise _exists(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # with texts that others may not read
        lock = os.open(folder, os.O_RDONLY)
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        if isinstance(error, ConfigurationError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "a folder cannot have this name"
        raise ConfigurationError(f"the folder {name!a} cannot be made: {reason}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"another dump writes into the folder {name!a}: name another folder") from None
        except OSError:  # a file system without locks
            pass
        tables = {file_of(folder, table) for table in TABLES}
        if not tables.issuperset(folder.iterdir()):
            raise _exists(folder)
        _remove(tables)
        try:
            yield folder
        except BaseException:
            _remove({*tables, folder / MANIFEST})
            if made:
                with suppress(OSError):
                    folder.rmdir()
            raise
    finally:
        os.close(lock)


def _exists(folder: Path) -> ConfigurationError:
    return ConfigurationError(f"the folder {str(folder)!a} exists: name a folder that is empty or does not exist")


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The result of a dump or restore.

    Attributes:
        documents: Number of the collection's documents: files, and rows of followed tables.
        bytes: Size of all files.
        seconds: Wall time.
        warnings: Problems that did not stop the dump or restore, such as an index that could not be built.
    """

    collection: str
    folder: str
    chunks: int
    vectors: int
    documents: int
    bytes: int
    seconds: float
    warnings: tuple[str, ...] = ()


def transfer_report(
    name: str, folder: Path, manifest: Manifest, started: float, warnings: tuple[str, ...] = ()
) -> TransferReport:
    """Make the report of a dump or restore that began when `time.perf_counter` returned `started`."""
    counts = manifest.counts
    size = sum(file.bytes for file in manifest.files.values())
    seconds = time.perf_counter() - started
    return TransferReport(
        name, str(folder), counts["chunks"], counts["vectors"], counts["documents"], size, seconds, warnings
    )


async def dump(
    database: Database, opened: CollectionInfo, wanted: Path, progress: Callable[[Progress], None] | None
) -> TransferReport:
    """Write a collection into a new folder; see `Collection.tables.dump`."""
    started = time.perf_counter()
    arrow()

    async def work(connection: Connection) -> Manifest:
        collection = await as_it_is(connection, opened)
        files: dict[str, DumpedFile] = {}
        counts = await count_rows(connection, collection)
        vectors = 0
        for table in TABLES:
            with file_of(folder, table).open("wb") as file:
                writer = TableWriter(file, table, collection.embedding)

                def tell(done: int, total: int = counts[table], *, is_shown: bool = table == CHUNKS) -> None:
                    if progress is not None and is_shown:
                        progress(Progress("dump", done, total, "rows"))

                files[table] = await _dump_table(copy_out(connection, collection, table), writer, tell)
                vectors += writer.vectors
        followed = {}
        if await may_read(connection, collection.names.followed_table):
            for one in await read_tables(connection, collection.names):
                followed[str(one.source_id)] = definition_to_json(one.table, one.types)
        about = await read_own_description(connection, collection.names)
        name, made_at = collection.names.collection, utc_now().isoformat()
        return Manifest(name, made_at, collection.settings, collection.embedding, vectors, files, about, followed)

    with claimed_folder(wanted) as folder:
        manifest = await database.read_whole("dump the collection", work)
        await asyncio.to_thread(manifest.write, folder)
    return transfer_report(opened.names.collection, folder, manifest, started)


async def as_it_is(connection: Connection, opened: CollectionInfo) -> CollectionInfo:
    """Return the collection as the connection's snapshot sees it; another process may have changed its settings."""
    found = await find(connection, opened.names)
    if found is None:
        raise gone(opened)
    own = None if opened.embedding is None else found.versions.of(opened.embedding.identity_key)
    return replace(found, embedding=own or found.embedding)


async def _dump_table(parts: AsyncIterator[RowPart], writer: TableWriter, tell: Callable[[int], None]) -> DumpedFile:
    writing: asyncio.Future[int] | None = None
    try:
        async for part in parts:
            if writing is not None:
                tell(await writing)
            # A part is decoded and written while the next one comes.
            writing = asyncio.ensure_future(asyncio.to_thread(writer.write, part))
        if writing is not None:
            tell(await writing)
        return await asyncio.to_thread(writer.close)
    except BaseException:
        if writing is not None:
            await asyncio.gather(writing, return_exceptions=True)
        writer.abandon()
        raise
