"""The files of a dump: a Parquet file a table, and a manifest that tells what they hold."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from semlex.embedding.probe import restored
from semlex.errors import ConfigurationError, DumpError
from semlex.parameters import CollectionSettings, storage_named
from semlex.store.schema.collection import MAX_DIMENSIONS, EmbeddingVersion
from semlex.store.tables import TABLES
from semlex.types.chunks import ChunkSettings
from semlex.types.confidence import ConfidenceCurve
from semlex.validation import check_parameters, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


FORMAT = "semlex dump"
VERSION = 1
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
        """The manifest of a folder."""
        path = folder / MANIFEST
        if not os.path.isdir(folder):  # noqa: PTH112 - says False where Path would raise
            raise DumpError(f"{folder}: no such folder; name the one that semlex dump has made")
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
                if embedding.probe is not None:
                    restored(embedding.probe)
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
        """Compares every file with what was dumped."""
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


@contextmanager
def claimed_folder(folder: Path) -> Iterator[Path]:
    """A folder for a dump, empty, locked against other dumps; when the block fails it is left as it was.

    A dump that was killed leaves tables without a manifest: they are removed.
    """
    name = str(folder)
    try:
        folder = folder.resolve()
        made = not folder.exists()
        if not made and not folder.is_dir():
            raise _exists(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except (OSError, ValueError) as error:  # a name with a NUL character is no OSError
        if isinstance(error, ConfigurationError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "its name cannot be that of a folder"
        raise ConfigurationError(f"the folder {name!a} cannot be made: {reason}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"another dump writes into the folder {name!a}: name another one") from None
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
    return ConfigurationError(f"the folder {str(folder)!a} exists: name a folder that does not, or is empty")


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
