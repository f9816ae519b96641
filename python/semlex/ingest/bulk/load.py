"""Loads rows that bring their vectors: one batch is read and checked while those before are written."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, DuplicateError, SemlexError, ValidationError
from semlex.ingest.bulk.batch_writes import WRITES_AT_ONCE, BatchWrites
from semlex.ingest.bulk.sources import joined_batches, opened_sources
from semlex.ingest.given_documents import check_on_duplicate
from semlex.ingest.pipeline import ahead
from semlex.ingest.prepare_file import given_version
from semlex.ingest.progress import Progress

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from semlex.ingest.bulk.row_batch import RowBatch
    from semlex.ingest.bulk.row_fields import RowFields
    from semlex.ingest.given_documents import GivenDocuments
    from semlex.ingest.indexer import Indexer
    from semlex.store.write.chunks import OnDuplicate, WriteMode


@dataclass(slots=True)
class LoadReport:
    """What a load did.

    Attributes:
        rows: Rows that were read.
        written: Rows that were stored, or replaced what was stored; of a repeated id the last one.
        seconds: Wall time.
        warnings: What else did not go as asked, for example an index that could not be built.
    """

    rows: int = 0
    written: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)


class VectorLoad:
    """One load.

    Args:
        indexer: Of the collection.
        fields: Which field is what.
        on_duplicate: What becomes of a row whose id is stored.
        progress: Called after every batch.
    """

    def __init__(
        self,
        indexer: Indexer,
        fields: RowFields,
        on_duplicate: OnDuplicate,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        check_on_duplicate(on_duplicate)
        self._indexer, self._fields = indexer, fields.checked()
        self._on_duplicate = on_duplicate
        self._progress = progress
        self._report = LoadReport()

    async def run(self, given: Any) -> LoadReport:
        """Loads rows; see `Collection.load_vectors`."""
        started, report, indexer = time.perf_counter(), self._report, self._indexer
        indexer.refuse_write()
        sources = await asyncio.to_thread(opened_sources, given, self._fields)
        counts = [source.count for source in sources]
        known = [count for count in counts if count is not None]
        total = sum(known) if len(known) == len(counts) else None
        batches = joined_batches(sources, indexer.bulk.batch_size)
        is_empty = await indexer.is_empty() and self._on_duplicate == "update"
        mode: WriteMode = "direct" if is_empty else "merge"
        # A row that is refused because it is stored has none after it stored.
        alone = self._on_duplicate == "fail" or not indexer.database.has_several_connections
        writes = BatchWrites(1 if alone else WRITES_AT_ONCE, self._tell(total))
        try:
            async with writes, aclosing(ahead(self._read(batches))) as checked:
                async for documents, batch in checked:
                    await indexer.ensure_version(given_version(batch.vectors, indexer.model_version))
                    write = indexer.add_rows(documents, batch.vectors, mode, self._on_duplicate)
                    await writes.begin(len(batch), set(documents.ids), write)
        except (ValidationError, DuplicateError, ConfigurationError) as error:
            raise _told(error, writes.rows) from None
        report.rows, report.written = writes.rows, writes.written
        report.warnings = await indexer.end_load(report.rows, self._progress)
        report.seconds = time.perf_counter() - started
        return report

    def _tell(self, total: int | None) -> Callable[[int], None] | None:
        progress = self._progress
        return None if progress is None else lambda rows: progress(Progress("write", rows, total, "rows"))

    async def _read(self, batches: Iterator[RowBatch]) -> AsyncGenerator[tuple[GivenDocuments, RowBatch], None]:
        """Batches, checked."""

        def make() -> tuple[GivenDocuments, RowBatch] | None:
            batch = next(batches, None)
            if batch is None:
                return None
            stored = self._indexer.collection.embedding
            return batch.given(self._fields, stored.storage if stored else self._indexer.storage), batch

        while (made := await asyncio.to_thread(make)) is not None:
            if len(made[1]):
                yield made


def _told(error: SemlexError, rows: int) -> SemlexError:
    """The error, with what is stored by now."""
    if not rows:
        return error
    stored = f"the {rows:,} rows before it are stored; load all of them again once it is right"
    if isinstance(error, ValidationError):
        return ValidationError(error.errors, "; ".join(filter(None, (error.note, stored))))
    if isinstance(error, DuplicateError):
        return DuplicateError(error.ids, stored)
    return type(error)(f"{error}; {stored}") if type(error) is ConfigurationError else error
