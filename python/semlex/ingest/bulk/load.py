"""Load rows with vectors, from the caller or from another library's table; the next batch is read during a write."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import ConfigurationError, DuplicateError, FieldError, SemlexError, ValidationError
from semlex.ingest.batches import WRITES_AT_ONCE, BatchWrites, ahead
from semlex.ingest.bulk.row_batch import RowBatch, RowFields, checked_fields, unequal
from semlex.ingest.bulk.sources import joined_batches, opened_sources
from semlex.ingest.given_documents import NO_METADATA, SHOWN_ID_CHARACTERS, GivenDocuments, check_on_duplicate
from semlex.ingest.progress import MAX_KEYS, MAX_PROBLEMS, Progress, TableImport, show_progress
from semlex.store.foreign_tables import (
    LAYOUTS,
    ForeignTable,
    RowCounts,
    WantedTable,
    count_rows,
    find_table,
    read_rows,
    source_snapshot,
)
from semlex.store.postgres.addresses import describe
from semlex.validation import check_parameters, is_one_of, kind_errors, strings_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from semlex.ingest.indexer import Indexer
    from semlex.options.collection import StorageName
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.tables import RowPart
    from semlex.store.write.chunks import OnDuplicate, WriteMode


@dataclass(slots=True)
class LoadReport:
    """The result of a load.

    Attributes:
        rows: Rows read.
        written: Rows stored or replaced; only the last row of a repeated id counts.
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
    """One load of rows with vectors into a collection, which is opened once the rows can be read."""

    def __init__(
        self,
        open_indexer: Callable[[], Awaitable[Indexer]],
        fields: RowFields,
        on_duplicate: OnDuplicate,
        progress: Callable[[Progress], None] | None,
        *,
        skip_unchanged: bool = False,
    ) -> None:
        check_on_duplicate(on_duplicate)
        check_parameters(kind_errors("skip_unchanged", skip_unchanged, bool))
        self._open_indexer, self._fields = open_indexer, checked_fields(fields)
        self._on_duplicate, self._skips_unchanged = on_duplicate, skip_unchanged
        self._progress = progress

    async def run(self, given: Any) -> LoadReport:
        """Load rows; see `Collection.tables.load`."""
        sources = await asyncio.to_thread(opened_sources, given, self._fields)
        indexer = await self.opened()
        known = [source.count for source in sources if source.count is not None]
        total = sum(known) if len(known) == len(sources) else None
        batches = self._read(joined_batches(sources, indexer.bulk.batch_size), indexer.vector_storage)
        return await self.write(indexer, batches, total)

    async def opened(self) -> Indexer:
        """Open or make the collection, and check that it can be written."""
        indexer = await self._open_indexer()
        indexer.refuse_write()
        return indexer

    async def write(
        self,
        indexer: Indexer,
        batches: AsyncGenerator[CheckedRows, None],
        total: int | None,
        storage: StorageName | None = None,
    ) -> LoadReport:
        """Write checked batches while the next one is made; `storage` is the vector type of a new collection."""
        started = time.perf_counter()
        updates = self._on_duplicate == "update"
        is_empty = updates and await indexer.is_empty()
        # After a row that is refused because it exists, nothing is stored.
        alone = self._on_duplicate == "fail" or not indexer.database.has_several_connections
        tell = partial(show_progress, self._progress, "write", total=total, unit="rows")
        writes = BatchWrites(1 if alone else WRITES_AT_ONCE, tell)
        try:
            async with writes, aclosing(ahead(batches)) as checked:
                async for batch in checked:
                    await indexer.ensure_version(batch.vectors, storage)
                    # New rows are copied, which takes half as long as merging them. If another writer is first with
                    # one of them, the batch is merged.
                    is_new = is_empty or (updates and await indexer.are_new(batch.documents))
                    mode: WriteMode = "direct" if is_new else "merge"
                    skips = self._skips_unchanged and updates and not is_new
                    write = indexer.add_rows(
                        batch.documents, batch.vectors, mode, self._on_duplicate, skip_unchanged=skips
                    )
                    await writes.begin(batch.read, set(batch.documents.ids), write)
        except (ValidationError, DuplicateError, ConfigurationError) as error:
            raise _with_stored_count(error, writes.rows) from None
        warnings = await indexer.end_load(writes.rows, self._progress)
        return LoadReport(writes.rows, writes.written, time.perf_counter() - started, warnings)

    async def _read(self, batches: Iterator[RowBatch], storage: str) -> AsyncGenerator[CheckedRows, None]:
        def make() -> CheckedRows | None:
            batch = next(batches, None)
            if batch is None:
                return None
            documents = batch.given(self._fields, storage)
            return CheckedRows(documents, batch.vectors, len(batch))

        while (made := await asyncio.to_thread(make)) is not None:
            if made.read:
                yield made


def _with_stored_count(error: SemlexError, rows: int) -> SemlexError:
    """Return the error, its message extended by the number of rows stored so far."""
    if not rows:
        return error
    stored = f"the {rows:,} rows before the error are stored; correct the data, then load all rows again"
    if isinstance(error, ValidationError):
        return ValidationError(error.errors, "; ".join(filter(None, (error.note, stored))))
    if isinstance(error, DuplicateError):
        return DuplicateError(error.ids, stored)
    return type(error)(f"{error}; {stored}") if type(error) is ConfigurationError else error


# LlamaIndex's document of a node without one.
NO_DOCUMENT = "None"
# Field in errors -> column of a layout.
SHOWN_FIELDS = {"content": "text", "embedding": "vector", "id": "id", "metadata": "metadata"}


# Number of a row in its part -> its errors.
_Errors = dict[int, list[FieldError]]


# A row of a file that cannot be stored fails its batch, because a file can be made again. A table belongs to a program
# that runs, and has rows that were never embedded: they are skipped and reported.
class ForeignRows:
    """Turns rows of another library's table into documents, and reports the rows that it skips."""

    def __init__(self, table: ForeignTable, storage: str, report: TableImport) -> None:
        self._table, self._storage, self._report = table, storage, report
        layout = table.layout
        columns = {attribute: getattr(layout, own) for attribute, own in SHOWN_FIELDS.items()}
        self._columns = columns | {"parent_id": "ref_doc_id"}
        self._reasons: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._waiting = 0  # rows read since the last ones that could be stored

    def taken(self, part: RowPart) -> CheckedRows | None:
        """Return the rows of a part that can be stored; None if no row can. Any thread may call this, one at a time."""
        ids, texts, vectors, metadata, later, *others = part.decoded()
        first, count = self._report.rows, len(ids)
        self._report.rows += count
        self._waiting += count
        wrong = self._missing(first, ids, texts, vectors, later)
        made, parents = self._all_metadata(first, ids, metadata, others, wrong)
        for number in sorted(wrong):
            self._skip(wrong[number])
        kept = [number for number in range(count) if number not in wrong]
        while kept:
            documents = GivenDocuments.plain(
                [ids[number] for number in kept],
                [texts[number] for number in kept],
                [made[number] for number in kept],
                [parents[number] for number in kept],
            )
            matrix = np.stack([vectors[number] for number in kept])
            try:
                documents = documents.checked(matrix, self._storage, copied=False)
            except ValidationError as error:
                kept = self._without(first, kept, error.errors)
                continue
            read, self._waiting = self._waiting, 0
            self._note_taken(documents)
            return CheckedRows(documents, matrix, read)
        return None

    def _missing(
        self, first: int, ids: Sequence[Any], texts: Sequence[Any], vectors: Sequence[Any], later: Sequence[Any]
    ) -> _Errors:
        """Return errors for rows without id, text or vector, and for vectors not as long as the table's first one."""
        layout, report = self._table.layout, self._report
        if report.dimensions is None:
            report.dimensions = next((len(vector) for vector in vectors if vector is not None), None)
        length = report.dimensions
        errors: _Errors = {}

        def note(number: int, field: str, code: str, *found: str) -> None:
            label = ids[number] or (f"{layout.later} {later[number]}" if later[number] else None)
            errors.setdefault(number, []).append(_error(first + number, label, field, code, *found))

        for number, (name, text, vector) in enumerate(zip(ids, texts, vectors, strict=True)):
            if not name:
                note(number, layout.id, "missing")
            if text is None:
                note(number, layout.text, "missing")
            if vector is None:
                note(number, layout.vector, "missing")
            elif len(vector) != length:
                note(number, layout.vector, *unequal(length or 0, len(vector)))
        return errors

    def _all_metadata(
        self, first: int, ids: Sequence[Any], metadata: Sequence[Any], others: Sequence[Sequence[Any]], wrong: _Errors
    ) -> tuple[list[dict[str, Any]], list[str | None]]:
        """Return the metadata and the parent documents of all rows; add errors to `wrong`."""
        made: list[dict[str, Any]] = []
        parents: list[str | None] = []
        rows = zip(*others, strict=True) if others else repeat(())
        for number, (text, own) in enumerate(zip(metadata, rows, strict=False)):
            found, parent = NO_METADATA, None
            try:
                found, parent = self._metadata(text, own)
            except (TypeError, ValueError, RecursionError):  # not an object, or nested too deep
                field = self._table.layout.metadata
                error = _error(first + number, ids[number], field, "wrong_type", "a JSON object")
                wrong.setdefault(number, []).append(error)
            made.append(found)
            parents.append(parent)
        return made, parents

    def _metadata(self, text: str | None, others: Sequence[str | None]) -> tuple[dict[str, Any], str | None]:
        """Return a row's metadata and its parent document."""
        found = NO_METADATA if text is None else json.loads(text)
        if found is None:
            found = NO_METADATA
        if not isinstance(found, dict):
            raise TypeError
        if self._table.layout.name == "llama-index":
            return _of_node(found)
        named = zip(self._table.metadata, others, strict=True)
        own = {name: json.loads(value) for name, value in named if value is not None} if others else NO_METADATA
        return ({**found, **{name: value for name, value in own.items() if value is not None}} if own else found), None

    def _without(self, first: int, kept: Sequence[int], errors: Iterable[FieldError]) -> list[int]:
        """Return the numbers of the rows without an error, and report the others as skipped."""
        refused: _Errors = {}
        for error in errors:
            number = kept[error.row]
            field = self._columns.get(error.field, error.field)
            refused.setdefault(number, []).append(replace(error, row=first + number, field=field))
        for found in refused.values():
            self._skip(found)
        return [number for number in kept if number not in refused]

    def _skip(self, errors: Sequence[FieldError]) -> None:
        report = self._report
        report.skipped += 1
        report.problems += errors[: max(0, MAX_PROBLEMS - len(report.problems))]
        self._reasons.update(f"{error.field}: {error.code}" for error in errors)
        report.reasons = dict(self._reasons)

    def _note_taken(self, documents: GivenDocuments) -> None:
        report = self._report
        report.taken += len(documents)
        if len(self._keys) < MAX_KEYS:
            self._keys.update(key for metadata in documents.metadata for key in metadata)
            report.metadata_keys = sorted(self._keys)[:MAX_KEYS]


def _error(number: int, name: str | None, field: str, code: str, *found: str) -> FieldError:
    return FieldError(number, name[:SHOWN_ID_CHARACTERS] if name else None, field, code, *found)


def _of_node(stored: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return metadata and parent document of a LlamaIndex node; its row stores the node as JSON in `_node_content`."""
    document = stored.get("ref_doc_id")
    parent = document if isinstance(document, str) and document != NO_DOCUMENT else None
    try:
        metadata = json.loads(stored["_node_content"])["metadata"]
    except (KeyError, TypeError, ValueError):  # old versions store the metadata directly
        return stored, parent
    return (metadata if isinstance(metadata, dict) else stored), parent


@dataclass(frozen=True, slots=True)
class TableSource:
    """The table to import, in the database at `url`; without `url`, in the collections' database."""

    wanted: WantedTable
    url: str | None

    def checked(self) -> TableSource:
        """Return this source after checking every argument."""
        wanted = self.wanted
        columns = {f"{name}_field": column for name, column in wanted.columns.items() if column is not None}
        texts = {"table": wanted.name, "source_schema": wanted.schema, **columns}
        check_parameters(
            *(text_parameter(name, value) for name, value in texts.items()),
            [] if wanted.metadata is None else strings_errors("metadata_fields", wanted.metadata),
        )
        if wanted.layout is not None and not is_one_of(wanted.layout, LAYOUTS):
            raise ConfigurationError(f"layout must be one of {', '.join(LAYOUTS)}, or None; got {wanted.layout!r:.80}")
        if self.url is not None:
            check_parameters(kind_errors("source_url", self.url, str))
            describe(self.url)
        return self


@dataclass(frozen=True, slots=True)
class OpenTable:
    """Another library's table, open in a snapshot of its database, with the number of its rows."""

    connection: Connection
    table: ForeignTable
    counts: RowCounts

    def report(self) -> TableImport:
        """Return an empty report."""
        return TableImport(
            str(self.table),
            self.table.layout.name,
            self.table.storage,
            repeated=self.counts.repeated,
            left_out=dict(self.counts.left_out),
        )

    async def taken(self, storage: str, report: TableImport) -> AsyncGenerator[CheckedRows, None]:
        """Yield the rows that can be stored, part by part."""
        rows = ForeignRows(self.table, storage, report)
        # The next part is read while this one is checked.
        async with aclosing(ahead(read_rows(self.connection, self.table, self.counts))) as parts:
            async for part in parts:
                made = await asyncio.to_thread(rows.taken, part)
                if made is not None:
                    yield made


@asynccontextmanager
async def open_table(database: Database, source: TableSource) -> AsyncIterator[OpenTable]:
    """Find a table and count its rows; the snapshot lasts as long as the block."""
    async with source_snapshot(database, source.url) as connection:
        table = await find_table(connection, source.wanted)
        yield OpenTable(connection, table, await count_rows(connection, table))


async def inspect_table(
    database: Database, source: TableSource, progress: Callable[[Progress], None] | None
) -> TableImport:
    """Read a table and check every row as an import does, without writing."""
    started = time.perf_counter()
    async with open_table(database, source) as opened:
        report = opened.report()
        async with aclosing(opened.taken(opened.table.storage, report)) as parts:
            async for _ in parts:
                show_progress(progress, "read", report.rows, opened.counts.rows, "rows")
    report.seconds = time.perf_counter() - started
    return report


async def import_table(database: Database, load: VectorLoad, source: TableSource) -> TableImport:
    """Load the rows of a table; see `Collection.tables.import_table`."""
    started = time.perf_counter()
    async with source_snapshot(database, source.url) as connection:
        await find_table(connection, source.wanted)  # else no collection is made for it
    indexer = await load.opened()
    async with open_table(database, source) as opened:
        report = opened.report()
        storage = indexer.vector_storage
        if (storage, report.vector_type) == ("halfvec", "vector"):
            report.warnings.append(
                "the collection stores halfvec: the components of the vectors were rounded to float16"
            )
        # Vectors of others stay as they are, bit for bit, unless halfvec was named.
        loaded = await load.write(indexer, opened.taken(storage, report), opened.counts.rows, "vector")
    report.written = loaded.written
    report.warnings += loaded.warnings
    report.seconds = time.perf_counter() - started
    return report
