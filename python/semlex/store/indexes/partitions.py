"""Build an index of a partitioned table while others write: each session builds one partition's index at a time."""

# Postgres builds no index of a partitioned table concurrently. The index is therefore made without those of the
# partitions, which Postgres calls invalid; then each partition's is built concurrently and attached, and with the last
# one the index is valid. What is attached stays when a build is interrupted, and the next one goes on with the rest.

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.indexes.catalog import searched_tables
from semlex.store.postgres.rows import only_row
from semlex.store.postgres.settings import set_for_session
from semlex.store.schema.locks import between_searches, lock_briefly
from semlex.store.schema.names import Names, TableIndex, oid_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

_OF_PARTITION = re.compile(r"_p[0-9]+$")
_LOOSE = sql.SQL(
    "SELECT i.relname FROM pg_catalog.pg_class AS i JOIN pg_catalog.pg_index AS x ON x.indexrelid = i.oid "
    "JOIN pg_catalog.pg_inherits AS h ON h.inhrelid = x.indrelid "
    "WHERE h.inhparent IN (SELECT pg_catalog.to_regclass(t.name) FROM unnest(%s::text[]) AS t(name)) "
    "AND NOT i.relispartition AND i.relname ~ %s ORDER BY i.relname"
)
_LACKING = sql.SQL(
    "SELECT c.relname FROM pg_catalog.pg_inherits AS h JOIN pg_catalog.pg_class AS c ON c.oid = h.inhrelid "
    "WHERE h.inhparent = {table} AND NOT EXISTS (SELECT FROM pg_catalog.pg_index AS x JOIN pg_catalog.pg_inherits AS a "
    "ON a.inhrelid = x.indexrelid AND a.inhparent = {index} WHERE x.indrelid = c.oid) ORDER BY c.oid"
)
# Of a build with workers: here the sessions are the workers.
_MEANS = (
    "SELECT pg_catalog.current_setting('max_parallel_maintenance_workers')::int, "
    "pg_catalog.pg_size_bytes(pg_catalog.current_setting('maintenance_work_mem')) / 1024"
)


def whole_index(name: str) -> str:
    """Return the name of the index to which a partition's index belongs; return any other name unchanged."""
    return _OF_PARTITION.sub("", name)


async def loose_indexes(connection: Connection, collection: CollectionInfo) -> list[str]:
    """Return the names of partitions' indexes that an interrupted build has left without attaching them."""
    if not collection.names.partitions:
        return []
    tables = [table.as_string(connection) for table in searched_tables(collection)]
    cursor = await connection.execute(_LOOSE, [tables, f"^{collection.names.collection}_.*{_OF_PARTITION.pattern}"])
    return [name for (name,) in await cursor.fetchall()]


@dataclass(slots=True)
class PartitionedBuild:
    """The build of one index on all partitions; the process must hold the building lock of the collection."""

    database: Database
    names: Names
    index: TableIndex
    create: Callable[[TableIndex, Connection], Awaitable[str]]  # builds an index concurrently
    session: Callable[[], AbstractAsyncContextManager[Connection]]  # opens another one like that of `run`
    tell: Callable[[str, int, int | None, str], None] | None

    async def run(self, connection: Connection) -> None:
        """Build the index, or continue an interrupted build, in as many sessions as the server allows workers."""
        await self._briefly(
            sql.SQL("CREATE INDEX IF NOT EXISTS {} ON ONLY {} {}").format(
                self.names.index(self.index.suffix), self.index.table, self.index.definition
            )
        )
        cursor = await connection.execute(_LACKING.format(table=oid_of(self.index.table), index=oid_of(self._name)))
        lacking = [name for (name,) in await cursor.fetchall()]
        left = len(lacking)
        workers, memory = await only_row(connection, _MEANS)
        number = max(1, min(left, 1 + workers))
        settings: dict[str, str | int] = {
            "max_parallel_maintenance_workers": 0,
            "maintenance_work_mem": f"{memory // number}kB",
        }

        async def build(session: AbstractAsyncContextManager[Connection]) -> None:
            nonlocal left
            async with session as own:
                await set_for_session(own, **settings)
                while lacking:
                    await self._build(lacking.pop(0), own)
                    left -= 1
                    if self.tell is not None:
                        self.tell(self.index.suffix, self.names.partitions - left, self.names.partitions, "partitions")

        tasks = [asyncio.create_task(build(nullcontext(connection)))]
        tasks += [asyncio.create_task(build(self.session())) for _ in range(number - 1)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _name(self) -> sql.Identifier:
        return self._named(self.index.suffix)

    def _named(self, suffix: str) -> sql.Identifier:
        return sql.Identifier(self.names.schema, f"{self.names.collection}_{suffix}")

    async def _build(self, table: str, connection: Connection) -> None:
        """Build the index of the partition `table`, and attach it to the whole index."""
        part = table.rpartition("_")[2]
        index = replace(
            self.index, suffix=f"{self.index.suffix}_{part}", table=sql.Identifier(self.names.schema, table)
        )
        # What an attempt before has left, valid or not.
        await connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(self._named(index.suffix)))
        await self.create(index, connection)
        await self._briefly(sql.SQL("ALTER INDEX {} ATTACH PARTITION {}").format(self._name, self._named(index.suffix)))

    async def _briefly(self, statement: sql.Composed) -> None:
        """Run a short statement under an exclusive lock, for which searches and writers wait."""
        doing = f"make the index {self.index.suffix}"
        await between_searches(self.database, doing, self.names, lambda connection: lock_briefly(connection, statement))
