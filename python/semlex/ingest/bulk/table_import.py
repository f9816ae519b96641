"""Tables of other libraries: read in one snapshot of their database, and loaded, or only looked at."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.bulk.foreign_rows import ForeignRows
from semlex.ingest.pipeline import ahead
from semlex.ingest.progress import Progress
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
from semlex.types.reports import TableImport
from semlex.validation import check_parameters, is_one_of, kind_errors, strings_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from semlex.ingest.bulk.load import CheckedRows, VectorLoad
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database


@dataclass(frozen=True, slots=True)
class TableSource:
    """Which table of which database.

    Attributes:
        wanted: What the user names.
        url: Another database than that of the collections, or None.
    """

    wanted: WantedTable
    url: str | None

    def checked(self) -> TableSource:
        """This, where every argument can be used."""
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
    """A table in a snapshot of its database."""

    connection: Connection
    table: ForeignTable
    counts: RowCounts

    def report(self) -> TableImport:
        """A report in which nothing is read yet."""
        return TableImport(
            str(self.table),
            self.table.layout.name,
            self.table.storage,
            repeated=self.counts.repeated,
            left_out=dict(self.counts.left_out),
        )

    async def taken(self, storage: str, report: TableImport) -> AsyncGenerator[CheckedRows, None]:
        """Its rows that can be stored, part by part."""
        rows = ForeignRows(self.table, storage, report)
        # A part is read while the one before it is looked at.
        async with aclosing(ahead(read_rows(self.connection, self.table, self.counts))) as parts:
            async for part in parts:
                made = await asyncio.to_thread(rows.taken, part)
                if made is not None:
                    yield made


@asynccontextmanager
async def open_table(database: Database, source: TableSource) -> AsyncIterator[OpenTable]:
    """Finds a table and counts its rows; the snapshot lasts as long as the block."""
    async with source_snapshot(database, source.url) as connection:
        table = await find_table(connection, source.wanted)
        yield OpenTable(connection, table, await count_rows(connection, table))


async def inspect_table(
    database: Database, source: TableSource, progress: Callable[[Progress], None] | None
) -> TableImport:
    """Reads a table and checks every row, as an import does; nothing is written. See `Collection.import_table`."""
    started = time.perf_counter()
    async with open_table(database, source) as opened:
        report = opened.report()
        async with aclosing(opened.taken(opened.table.storage, report)) as parts:
            async for _ in parts:
                if progress is not None:
                    progress(Progress("read", report.rows, opened.counts.rows, "rows"))
    report.seconds = time.perf_counter() - started
    return report


async def import_table(load: VectorLoad, source: TableSource) -> TableImport:
    """Loads the rows of a table; see `Collection.import_table`."""
    started = time.perf_counter()
    async with open_table(load.database, source) as opened:
        report = opened.report()
        storage = load.storage
        if (storage, report.vector_type) == ("halfvec", "vector"):
            report.warnings.append("the collection keeps halfvec: the components of the vectors were rounded to it")
        loaded = await load.write(opened.taken(storage, report), opened.counts.rows)
    report.written = loaded.written
    report.warnings += loaded.warnings
    report.seconds = time.perf_counter() - started
    return report
