"""Bring a collection in step with followed tables: store the queued changes of each, then compare its rows."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, SemlexError, StoreError
from semlex.ingest.followed.run import TableRun
from semlex.store.followed.definitions import read_tables
from semlex.store.followed.queue import SHOWN_PROBLEMS, ChangeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.ingest.indexer import Indexer
    from semlex.ingest.progress import Progress
    from semlex.options.collection import WantedOptions
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import Names
    from semlex.types.followed import TableSync

logger = logging.getLogger("semlex")

COUNTS = ("added", "changed", "refreshed", "deleted", "failed", "chunks", "embedded", "seconds")


async def stored_tables(database: Database, names: Names, name: str | None) -> list[StoredTable]:
    """Return the followed tables of a collection, or only the one with a name; refuse an unknown name."""
    found = await database.read("read followed tables", lambda c: read_tables(c, names))
    tables = [one for one in found if name in (None, one.name)]
    if name is not None and not tables:
        known = [one.name for one in found]
        near = get_close_matches(name, known, n=1) if isinstance(name, str) else []
        hint = f"did you mean {near[0]!r}?" if near else f"followed tables: {', '.join(known) or 'none'}"
        raise ConfigurationError(f"no table {name!r} is followed; {hint}")
    return tables


async def sync_tables(
    indexer: Indexer, tables: Sequence[StoredTable], wanted: WantedOptions, **options: Any
) -> list[TableSync]:
    """Sync tables in turn; if one cannot be read, sync the others and raise its error at the end."""
    reports = []
    failed: list[SemlexError] = []
    for stored in tables:
        try:
            reports.append(await sync_table(indexer, stored, wanted, **options))
        except (ConfigurationError, StoreError) as error:
            failed.append(error)
    for other in failed[1:]:
        logger.warning("%s", other)
    if failed:
        raise failed[0]
    return reports


async def sync_table(
    indexer: Indexer,
    stored: StoredTable,
    wanted: WantedOptions,
    *,
    # Whether to compare all rows in any case.
    compare: bool = False,
    allow_empty: bool = False,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TableSync:
    """Store the queued changes of a table, then compare its rows unless triggers have noticed every change."""
    if indexer.database.joins_transaction:
        raise ConfigurationError("a followed table is read in its own transactions: call sync without using()")
    if not dry_run:
        indexer.refuse_write()
    made = partial(TableRun, indexer, stored, wanted, progress)
    reports = []
    queue = ChangeQueue(indexer.collection.names, stored.source_id)
    has_compared = False
    if not dry_run:
        await indexer.database.write("release changes", queue.release_all)
    while not dry_run:
        changes = await indexer.database.write("claim changes", queue.claim)
        if not changes:
            break
        has_compared |= any(change.row_key is None for change in changes)
        reports.append(await made().run(changes, allow_empty=allow_empty))
    if compare or not has_compared:
        reports.append(await made().run(compare=compare, allow_empty=allow_empty, dry_run=dry_run))
    return _summed(reports)


def _summed(reports: list[TableSync]) -> TableSync:
    """Return the sum of the reports of several runs over one table."""
    total = reports[-1]
    for one in reports[:-1]:
        for name in COUNTS:
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.problems = [*one.problems, *total.problems][:SHOWN_PROBLEMS]
        total.warnings = [*one.warnings, *total.warnings]
    return total
