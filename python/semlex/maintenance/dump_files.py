"""The files of a dump: a Parquet file a table, and a manifest that tells what they hold."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import DumpError
from semlex.ingest.bulk.arrow_rows import arrow
from semlex.parameters import CollectionSettings, storage_named
from semlex.store.schema.collection import EmbeddingVersion
from semlex.store.schema.distance import MAX_DIMENSIONS
from semlex.store.tables.columns import CHUNKS, TABLES, VECTOR
from semlex.types.chunk_settings import ChunkSettings
from semlex.types.confidence import ConfidenceCurve
from semlex.validation import check_parameters, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import pyarrow as pa

FORMAT = "semlex dump"
VERSION = 1
BUFFER_BYTES = 8 * 1024 * 1024
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """A file of a dump.

    Attributes:
        rows: Rows in it.
        bytes: Its size.
        sha256: Its hash, as hexadecimal digits.
    """

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a dump holds.

    Attributes:
        collection: Name of the collection.
        created_at: When it was dumped, as ISO 8601.
        settings: Of the collection.
        embedding: What its vectors are, or None.
        vectors: How many there are.
        files: By table.
    """

    collection: str
    created_at: str
    settings: CollectionSettings
    embedding: EmbeddingVersion | None
    vectors: int
    files: dict[str, DumpedFile]

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each table, and vectors."""
        return {table: file.rows for table, file in self.files.items()} | {"vectors": self.vectors}

    def write(self, folder: Path) -> None:
        """Writes the manifest, which is the last file of a dump."""
        cut = self.settings.chunk_settings
        values = asdict(self) | {"format": FORMAT, "version": VERSION}
        values["settings"]["chunk_settings"] = None if cut is None else cut._asdict()
        # Beside the vectors' own values, where older versions of semlex do not look.
        values["calibration"] = None if self.embedding is None else values["embedding"].pop("calibration")
        (folder / MANIFEST).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder.

        Raises:
            DumpError: There is none, or it is not one of this version.
        """
        path = folder / MANIFEST
        try:
            with path.open("rb") as file:
                values = json.loads(file.read(MAX_MANIFEST_BYTES))
        except (OSError, ValueError, RecursionError):
            raise DumpError(f"{folder} is no whole dump: {MANIFEST} is missing or damaged; dump again") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise DumpError(f"{path} is not of a dump; name the folder that semlex dump has made")
        if values.get("version") != VERSION:
            raise DumpError(
                f"{folder} is a dump of version {values.get('version')!r:.20}, this semlex reads version {VERSION}: "
                "update semlex, or dump again with this one"
            )
        try:
            settings = dict(values["settings"])
            cut = settings.pop("chunk_settings")
            embedding = None if values["embedding"] is None else EmbeddingVersion(**values["embedding"])
            if embedding is not None:
                check_parameters(whole_number_errors("dimensions", embedding.dimensions, 1, MAX_DIMENSIONS))
                storage_named(embedding.storage)
                embedding = replace(embedding, calibration=_calibration(values.get("calibration"), path))
            return cls(
                str(values["collection"]),
                str(values["created_at"]),
                CollectionSettings(**settings, chunk_settings=None if cut is None else ChunkSettings(**cut)),
                embedding,
                int(values["vectors"]),
                {table: DumpedFile(**values["files"][table]) for table in TABLES},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DumpError(f"{path} is damaged ({type(error).__name__}): dump again") from None

    def check_files(self, folder: Path) -> None:
        """Compares every file with what was dumped.

        Raises:
            DumpError: One is missing or is another one.
        """
        for table, expected in self.files.items():
            path = file_of(folder, table)
            try:
                with path.open("rb") as file:
                    found = (path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
            except OSError as error:
                raise DumpError(f"{path} cannot be read: {error.strerror}; copy the whole folder again") from None
            if found != (expected.bytes, expected.sha256):
                raise DumpError(
                    f"{path} is not the file that was dumped (cut or changed): copy it again, or dump again"
                )


def _calibration(stored: Any, path: Path) -> dict[str, Any] | None:
    return None if stored is None else ConfidenceCurve.from_dict(stored, f"the calibration in {path}").to_dict()


def file_of(folder: Path, table: str) -> Path:
    """The file of a table."""
    return folder / f"{table}.parquet"


class HashedFile:
    """A file that is hashed while it is written.

    Args:
        file: Open for writing.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Writes bytes at the end."""
        self._hash.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._bytes

    def flush(self) -> None:
        """Hands them on."""
        self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self.closed = True

    def written(self, rows: int) -> DumpedFile:
        """What was written."""
        return DumpedFile(rows, self._bytes, self._hash.hexdigest())


class TableWriter:
    """Writes the rows of a table into its file.

    Args:
        file: Open for writing.
        table: A key of `TABLES`.
        embedding: What the vectors are, or None.
    """

    def __init__(self, file: BinaryIO, table: str, embedding: EmbeddingVersion | None) -> None:
        pyarrow = arrow()
        import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

        self._table = table
        self._embedding = embedding if table == CHUNKS else None
        self._schema = arrow_schema(table, embedding)
        self._hashed = HashedFile(file)
        self._rows = self.vectors = 0
        # Vectors do not get smaller, and of long texts a dictionary is no gain.
        plain = f"{VECTOR}.list.element"
        names = [name for name in self._schema.names if name != VECTOR]
        # Whoever writes into a Python object waits for the interpreter each time, which the one who reads rows holds.
        self._buffered = pyarrow.BufferedOutputStream(pyarrow.PythonFile(self._hashed, "w"), BUFFER_BYTES)
        self._writer = pq.ParquetWriter(
            self._buffered,
            self._schema,
            compression=dict.fromkeys(names, "zstd") | ({plain: "none"} if self._embedding else {}),
            use_dictionary=[name for name in names if name not in ("chunk_id", "chunk_text", "context")],
            write_statistics=names,
        )

    def write(self, columns: Sequence[list[Any]]) -> None:
        """Writes rows as `RowPart.decoded` gives them."""
        pyarrow = arrow()
        arrays = []
        for field, values in zip(self._schema, columns, strict=True):
            if field.name == VECTOR and self._embedding is not None:
                arrays.append(self._vectors(values, field.type))
            elif pyarrow.types.is_timestamp(field.type):
                arrays.append(pyarrow.array(values, pyarrow.int64()).cast(field.type))
            else:
                arrays.append(pyarrow.array(values, field.type))
        self._writer.write_batch(pyarrow.record_batch(arrays, schema=self._schema))
        self._rows += len(columns[0])

    def _vectors(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        missing = np.fromiter((value is None for value in values), bool, len(values))
        self.vectors += int(len(values) - missing.sum())
        none = np.zeros(kind.list_size, np.float32)
        flat = np.concatenate([none if value is None else value for value in values])
        pyarrow = arrow()
        numbers = pyarrow.array(flat.astype(kind.value_type.to_pandas_dtype(), copy=False))
        mask = pyarrow.array(missing) if missing.any() else None
        return pyarrow.FixedSizeListArray.from_arrays(numbers, type=kind, mask=mask)

    def close(self) -> DumpedFile:
        """Ends the file, and tells what it is."""
        self._writer.close()
        self._buffered.close()
        return self._hashed.written(self._rows)

    def abandon(self) -> None:
        """Lets go of a file that is not wanted any more."""
        with suppress(Exception):  # whatever came before is what is told
            self._writer.close()


def arrow_schema(table: str, embedding: EmbeddingVersion | None) -> pa.Schema:
    """The columns of a file."""
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


def table_parts(folder: Path, table: str, embedding: EmbeddingVersion | None, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in parts.

    Args:
        folder: Of the dump.
        table: A key of `TABLES`.
        embedding: What the vectors are, or None.
        rows: Most rows of a part.

    Raises:
        DumpError: It has other columns than a dump of this version.
    """
    pyarrow = arrow()
    import pyarrow.parquet as pq  # noqa: PLC0415 - of an extra

    path = file_of(folder, table)
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1024 * 1024) as file:
            if not file.schema_arrow.equals(arrow_schema(table, embedding)):
                raise DumpError(f"{path} has other columns than a dump of version {VERSION}: dump again")
            yield from file.iter_batches(rows)
    except pyarrow.ArrowException as error:
        raise DumpError(f"{path} is damaged ({type(error).__name__}): copy it again, or dump again") from None
