"""Load rows with vectors: one batch is read and checked while earlier ones are written."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, DuplicateError, SemlexError, ValidationError
from semlex.ingest.bulk.sources import joined_batches, opened_sources
from semlex.ingest.given_documents import check_on_duplicate
from semlex.ingest.overlap import WRITES_AT_ONCE, BatchWrites, ahead
from semlex.ingest.progress import Progress
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from semlex.ingest.bulk.row_batch import RowBatch, RowFields
    from semlex.ingest.given_documents import GivenDocuments
    from semlex.ingest.indexer import Indexer
    from semlex.options.collection import StorageName
    from semlex.store.postgres.database import Database
    from semlex.store.write.chunks import OnDuplicate, WriteMode


@dataclass(slots=True)
class LoadReport:
    """The result of a load.

    Attributes:
        rows: Rows read.
        written: Rows stored or replaced; of a repeated id only the last row.
        seconds: Wall time.
        warnings: Problems that did not end the load, such as an index that could not be built.
    """

    rows: int = 0
    written: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Checked rows of one batch, ready to be stored; vectors are float32, shape (n, d)."""

    documents: GivenDocuments
    vectors: NDArray[np.float32]
    read: int


class VectorLoad:
    """One load of rows with vectors into a collection."""

    def __init__(
        self,
        indexer: Indexer,
        fields: RowFields,
        on_duplicate: OnDuplicate,
        progress: Callable[[Progress], None] | None,
        *,
        skip_unchanged: bool = False,
    ) -> None:
        check_on_duplicate(on_duplicate)
        check_parameters(kind_errors("skip_unchanged", skip_unchanged, bool))
        self._indexer, self._fields = indexer, fields.checked()
        self._on_duplicate, self._skips_unchanged = on_duplicate, skip_unchanged
        self._progress = progress
        self._report = LoadReport()

    @property
    def database(self) -> Database:
        """Database of the collection."""
        return self._indexer.database

    @property
    def storage(self) -> str:
        """Pgvector's type of the collection's vectors."""
        return self._indexer.vector_storage

    async def run(self, given: Any) -> LoadReport:
        """Load rows; see `Collection.tables.load`."""
        self._indexer.refuse_write()
        sources = await asyncio.to_thread(opened_sources, given, self._fields)
        counts = [source.count for source in sources]
        known = [count for count in counts if count is not None]
        total = sum(known) if len(known) == len(counts) else None
        return await self.write(self._read(joined_batches(sources, self._indexer.bulk.batch_size)), total)

    async def write(
        self, batches: AsyncGenerator[CheckedRows, None], total: int | None, storage: StorageName | None = None
    ) -> LoadReport:
        """Write checked batches while the next one is made; `storage` is the default of a new collection."""
        started, report, indexer = time.perf_counter(), self._report, self._indexer
        indexer.refuse_write()
        updates = self._on_duplicate == "update"
        is_empty = updates and await indexer.is_empty()
        # After a row that is refused because it exists, nothing is stored.
        alone = self._on_duplicate == "fail" or not indexer.database.has_several_connections
        writes = BatchWrites(1 if alone else WRITES_AT_ONCE, self._tell(total))
        try:
            async with writes, aclosing(ahead(batches)) as checked:
                async for batch in checked:
                    await indexer.ensure_version(batch.vectors, storage)
                    # New rows are copied, which takes half as long as merging them. If another writer is first with
                    # one of them, the batch is merged.
                    is_new = is_empty or (updates and await indexer.are_new(batch.documents))
                    mode: WriteMode = "direct" if is_new else "merge"
                    write = indexer.add_rows(
                        batch.documents,
                        batch.vectors,
                        mode,
                        self._on_duplicate,
                        skip_unchanged=self._skips_unchanged and updates and not is_new,
                    )
                    await writes.begin(batch.read, set(batch.documents.ids), write)
        except (ValidationError, DuplicateError, ConfigurationError) as error:
            raise _with_stored_count(error, writes.rows) from None
        report.rows, report.written = writes.rows, writes.written
        report.warnings = await indexer.end_load(report.rows, self._progress)
        report.seconds = time.perf_counter() - started
        return report

    def _tell(self, total: int | None) -> Callable[[int], None] | None:
        progress = self._progress
        return None if progress is None else lambda rows: progress(Progress("write", rows, total, "rows"))

    async def _read(self, batches: Iterator[RowBatch]) -> AsyncGenerator[CheckedRows, None]:
        def make() -> CheckedRows | None:
            batch = next(batches, None)
            if batch is None:
                return None
            return CheckedRows(batch.given(self._fields, self.storage), batch.vectors, len(batch))

        while (made := await asyncio.to_thread(make)) is not None:
            if made.read:
                yield made


def _with_stored_count(error: SemlexError, rows: int) -> SemlexError:
    """Return the error with the number of rows stored so far."""
    if not rows:
        return error
    stored = f"the {rows:,} rows before it are stored; load all of them again once it is right"
    if isinstance(error, ValidationError):
        return ValidationError(error.errors, "; ".join(filter(None, (error.note, stored))))
    if isinstance(error, DuplicateError):
        return DuplicateError(error.ids, stored)
    return type(error)(f"{error}; {stored}") if type(error) is ConfigurationError else error
