"""Rows of tables: loaded with their vectors; the whole collection dumped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semlex.ingest.bulk.load import LoadReport, VectorLoad
from semlex.ingest.bulk.row_fields import RowFields
from semlex.maintenance.dump import TransferReport, dump
from semlex.validation import callable_errors, check_parameters, needed_path_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from semlex.ingest.indexer import Indexer
    from semlex.ingest.progress import Progress
    from semlex.store.write.chunks import OnDuplicate


class CollectionTables(ABC):
    """What a collection takes from tables; `Collection` is one."""

    @abstractmethod
    async def _ready(self) -> Indexer:
        """The open collection."""

    async def load_vectors(
        self,
        rows: Any,
        *,
        text_field: str = "text",
        vector_field: str = "vector",
        id_field: str | None = None,
        metadata_fields: Sequence[str] | None = None,
        metadata_field: str = "metadata",
        on_duplicate: OnDuplicate = "update",
        progress: Callable[[Progress], None] | None = None,
    ) -> LoadReport:
        """Loads rows that bring their vectors, at the speed of COPY; a row is a chunk, nothing is cut or embedded.

        Vectors of float32 are stored bit for bit; other numbers are rounded to it. Rows are read, checked and written
        in transactions of `bulk.batch_size` rows (fewer where vectors are long), so memory is bounded by the batch
        however many there are. An error names the row; the batches before it are stored, and loading all rows again
        doubles nothing. In a transaction of yours (`using`) it is all or nothing.

        Args:
            rows: A table with an Arrow stream (pyarrow, polars, DuckDB, pandas); a mapping of columns, lists or NumPy
                arrays; an iterable of these; or the path of a Parquet or JSON Lines file, of a folder of them, or
                several paths. Tables of Arrow and Parquet need the extra ``arrow``.
            text_field: The text.
            vector_field: Its vector: numbers, as many in every row.
            id_field: What names a row, a text or a whole number; by default ``id``, where there is such a field. Rows
                without one get ids that follow from text and metadata.
            metadata_fields: Fields that become metadata, each under its name; by default all others. Times become text
                (ISO 8601, to the microsecond). What a row does not have, or is null, is no key of it.
            metadata_field: A field that holds objects, or their JSON text: their keys become metadata as they are.
            on_duplicate: Of a row whose id is stored: ``update`` replaces it, ``skip`` leaves it, ``fail`` fails the
                batch. Of an id that is repeated in a batch the last row wins, or it fails.
            progress: Called after every batch.

        Raises:
            ConfigurationError: A field is missing or of another type, a file cannot be read; nothing was written,
                unless it says how many rows are.
            ValidationError: With every error of every row of the batch.
            DuplicateError: An id is stored or repeated, with ``fail``.
            ModelMismatchError: The vectors are of another model or dimension than the collection's.
            MissingExtraError: pyarrow is needed and not installed.
        """
        check_parameters(callable_errors("progress", progress))
        fields = RowFields(text_field, vector_field, id_field, metadata_fields, metadata_field)
        load = VectorLoad(await self._ready(), fields, on_duplicate, progress)
        return await load.run(rows)

    async def dump(
        self, folder: str | PathLike[str], progress: Callable[[Progress], None] | None = None
    ) -> TransferReport:
        """Writes the collection into a new folder: chunks with vectors, documents, sources and the log, as Parquet.

        It is one snapshot, streamed, while others search and write. The folder appears when all of it is written.
        `Client.restore` reads it, on any server; so do pandas and DuckDB. Needs the extra ``arrow``.

        Args:
            folder: Does not exist, or is empty.
            progress: Called as the work goes on.

        Raises:
            ConfigurationError: The folder holds something, or cannot be made.
            MissingExtraError: pyarrow is not installed.
        """
        check_parameters(needed_path_errors("folder", folder), callable_errors("progress", progress))
        indexer = await self._ready()
        return await dump(indexer.database, indexer.collection, Path(folder), progress)
