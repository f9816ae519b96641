"""Build indexes on request, or after a load once the collection is large."""

# One process at a time builds the indexes of a collection. Progress is read on a second connection.

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import psycopg
from psycopg import IsolationLevel, sql

from semlex.errors import ConfigurationError, SemlexError, StoreError
from semlex.store.indexes.catalog import (
    built_to_their_end,
    free_suffix,
    note_wanted,
    read_running_builds,
    read_vector_indexes,
    searched_tables,
    value_for,
)
from semlex.store.indexes.choice import WantedVectorIndex, indexes_wanted, missing_others, wanted_vector_index
from semlex.store.indexes.estimate import MIN_BUILD_MEMORY, IndexEstimate, estimate_build
from semlex.store.indexes.options import NoIndex, VectorIndex
from semlex.store.indexes.partitions import PartitionedBuild, loose_indexes, whole_index
from semlex.store.postgres.connection import Connection, is_pooled, own_connection, server_process
from semlex.store.postgres.errors import QUERY_CANCELLED, translate
from semlex.store.postgres.settings import SETTINGS, begin_writing, of_role, set_for_session, set_local
from semlex.store.schema.locks import TELL_SECONDS, between_searches, lock_briefly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import TableIndex

    # Name of the index, units done, units in all (None while unknown), unit.
    TellBuild = Callable[[str, int, int | None, str], None]


logger = logging.getLogger("semlex")

SECONDS_BETWEEN_LOOKS = 0.5


@asynccontextmanager
async def watched(
    database: Database, connection: Connection, name: str, tell: TellBuild | None, *, concurrently: bool
) -> AsyncIterator[None]:
    """Report the progress of the build that runs in the block; if reporting fails, the build continues."""
    # Reports need a connection of their own: with a caller's pool or connection, nothing is reported. A concurrent
    # build waits for transactions that began before it; the log names the process of one.
    if database.url is None or (tell is None and not concurrently):
        yield
        return
    backend = await server_process(connection)
    looks = asyncio.create_task(_look(database, backend, name, tell))
    try:
        yield
    finally:
        looks.cancel()
        await asyncio.gather(looks, return_exceptions=True)


async def _look(database: Database, backend: int, name: str, tell: TellBuild | None) -> None:
    assert database.url is not None  # noqa: S101 - `watched` has looked
    phase, since, told = "", 0.0, False
    try:
        async with own_connection(database.url, database.timeout) as connection:
            while True:
                # HNSW counts blocks of the table, IVFFlat the rows that it puts into lists.
                cursor = await connection.execute(
                    "SELECT phase, blocks_done, blocks_total, tuples_done, tuples_total, current_locker_pid "
                    "FROM pg_catalog.pg_stat_progress_create_index WHERE pid = %s",
                    [backend],
                )
                row = await cursor.fetchone()
                if row is not None:
                    now = database.clock.monotonic()
                    if row[0] != phase:
                        phase, since, told = row[0], now, False
                        logger.info("index %s: %s", name, phase)
                    blocks, all_blocks, rows, all_rows, holder = (number or 0 for number in row[1:])
                    if holder and not told and now - since >= TELL_SECONDS:
                        told = True
                        logger.warning(
                            "index %s: the build waits until the transaction of server process %s ends", name, holder
                        )
                    if tell is not None and all_blocks:
                        tell(name, blocks, all_blocks, "blocks")
                    elif tell is not None and all_rows:
                        tell(name, rows, all_rows, "rows")
                await database.clock.sleep(SECONDS_BETWEEN_LOOKS)
    except (psycopg.Error, StoreError) as error:
        logger.debug("index %s: the progress of its build is not known: %s", name, type(error).__name__)


# How long a concurrent build waits for earlier transactions. It blocks nobody meanwhile.
CONCURRENT_LOCK_TIMEOUT = "30min"


def building_lock(collection: CollectionInfo) -> int:
    """Return the key of the advisory lock that a process holds while it builds an index of a collection."""
    return int.from_bytes(collection.collection_id.bytes[4:12], signed=True)


async def is_alone(connection: Connection, collection: CollectionInfo) -> bool:
    """Take the building lock until the transaction ends; return False if another process has it."""
    # Neither bound values nor binary results (`only_row`): the portal of such a statement keeps its snapshot until the
    # next statement, and a concurrent build would wait for it.
    statement = sql.SQL("SELECT pg_catalog.pg_try_advisory_xact_lock({})")
    cursor = await connection.execute(statement.format(building_lock(collection)))
    return await cursor.fetchone() == (True,)


# How long a build waits for current writers; later writers wait behind it.
LOCK_TIMEOUT = "5s"
# No memory for parallel workers, for example in a container, whose shared memory is often 64 MB.
NO_SHARED_MEMORY = ("53100", "53200")


class IndexesBuilt(list[str]):
    """Names of the indexes that were made; empty if none was missing, or other processes build them.

    Attributes:
        busy: Names of missing indexes that another process is building.
        dropped: Names of vector indexes that a new one has replaced, or whose build was not completed.
        warnings: Warnings about the build, for users.
    """

    def __init__(self) -> None:
        super().__init__()
        self.busy: list[str] = []
        self.dropped: list[str] = []
        self.warnings: list[str] = []


@dataclass(frozen=True, slots=True)
class _Plan:
    """The indexes to build, and whether others are to be dropped."""

    given: VectorIndex | None  # the requested vector index
    others: list[TableIndex]  # missing indexes that are not over vectors
    vector: WantedVectorIndex | None
    estimate: IndexEstimate | None  # of `vector`; None if it exists
    settles: bool  # whether to drop vector indexes or note what is wanted
    is_pooled: bool

    def warnings(self, *, concurrently: bool) -> list[str]:
        """Return the warnings to give before the build."""
        found = [] if self.estimate is None else list(self.estimate.warnings)
        if concurrently and self.is_pooled:
            found.append(
                "the server is behind a transaction pooler, through which no index can be built concurrently: each "
                "index is built in one transaction, and writers wait"
            )
        return found


async def estimate_index(
    database: Database, collection: CollectionInfo, index: VectorIndex | None
) -> IndexEstimate | None:
    """Estimate memory, time and size of the build of a vector index; return None if it need not be built."""
    return (await _planned(database, collection, index)).estimate


async def _planned(database: Database, collection: CollectionInfo, given: VectorIndex | None) -> _Plan:
    async def work(connection: Connection) -> _Plan:
        found = await read_vector_indexes(connection, collection)
        vector = wanted_vector_index(collection, found, given)
        estimate = None
        if vector is not None and not isinstance(vector.index, NoIndex) and vector.is_missing(found):
            value = value_for(collection, vector.index)
            estimate = await estimate_build(connection, collection, value, vector.index)
        settles = vector is not None and bool(vector.obsolete(found) or (given is not None and given != found.wanted))
        others = await missing_others(connection, collection)
        return _Plan(given, others, vector, estimate, settles, await is_pooled(connection))

    return await database.read("look at the indexes", work)


@dataclass(frozen=True, slots=True)
class _Step:
    """The build of one missing index."""

    suffix: str
    make: Callable[[Connection], Awaitable[str | None]]
    memory: int  # in bytes
    workers: int | None  # parallel ones; None if the server decides


@dataclass(slots=True)
class IndexBuilder:
    """Builds the indexes of a collection."""

    # Each is built in a transaction of its own (writers wait, readers do not), or concurrently (nobody waits, and it
    # takes longer), under a try-lock: if another process is building, this one continues without it.

    database: Database
    collection: CollectionInfo
    tell: TellBuild | None = None
    built: IndexesBuilt = field(default_factory=IndexesBuilt)
    _failures: list[StoreError] = field(default_factory=list, init=False)

    async def run(self, index: VectorIndex | None = None, *, concurrently: bool = False) -> IndexesBuilt:
        """Build the missing indexes; raise the first failure only after the others are built."""
        if concurrently and self.database.url is None:
            raise ConfigurationError(
                "concurrently=True needs its own connections: open the collection with db_url=, not with pool= or "
                "connection="
            )
        return await self._carry_out(await _planned(self.database, self.collection, index), concurrently=concurrently)

    async def build(self, index: TableIndex) -> IndexesBuilt:
        """Build a single index unless it exists, concurrently if possible."""

        async def work(connection: Connection) -> _Plan:
            built = await built_to_their_end(connection, self.collection.names, [index.suffix])
            missing = [] if built.get(index.suffix) else [index]
            return _Plan(None, missing, None, None, settles=False, is_pooled=await is_pooled(connection))

        plan = await self.database.read("look at the indexes", work)
        if not plan.others:
            return self.built
        if self.database.url is None:
            self.built.warnings.append(
                "an index can be built concurrently only with db_url=, not with pool= or connection=: it is built in "
                "one transaction, and writers wait"
            )
        return await self._carry_out(plan, concurrently=self.database.url is not None)

    async def _carry_out(self, plan: _Plan, *, concurrently: bool) -> IndexesBuilt:
        self.built.warnings += plan.warnings(concurrently=concurrently)
        for warning in self.built.warnings:
            logger.warning("%s: %s", self.collection.names.collection, warning)
        beside, names = concurrently and not plan.is_pooled, self.collection.names
        # Postgres drops no index of a partitioned table concurrently.
        drops_beside = beside and not names.partitions
        if not drops_beside:
            # First and alone: a build that dropped them would keep searches out until its end.
            work = partial(self._drop_unfinished, plan, goes_on=beside)
            await between_searches(self.database, "drop unfinished indexes", names, work)
        for step in self._steps(plan, concurrently=beside):
            await self._build(step, beside=beside)
        if plan.settles and not self.built.busy and not self._failures:
            await self._replace(plan, beside=drops_beside)
        if self.built:
            await self.database.write("analyze", lambda connection: analyze(connection, self.collection))
        if self._failures:
            raise self._failures[0]
        return self.built

    async def _replace(self, plan: _Plan, *, beside: bool) -> None:
        """Drop the indexes that the wanted vector index replaces, unless another process is building."""
        doing = "replace an index"
        if beside:
            async with self._session(doing) as session:
                if session is not None:
                    self.built.dropped += await self._settle(plan, session, concurrently=True)
            return

        async def settle(connection: Connection) -> list[str]:
            await lock_briefly(connection)
            is_free = await is_alone(connection, self.collection)
            return await self._settle(plan, connection, concurrently=False) if is_free else []

        self.built.dropped += await between_searches(self.database, doing, self.collection.names, settle)

    async def _build(self, step: _Step, *, beside: bool) -> None:
        """Build an index; if that fails, note it instead of raising it, so that other indexes are still built."""
        try:
            made = await self._made(step, beside=beside)
        except StoreError as error:
            failure = error
            if error.sqlstate == QUERY_CANCELLED:  # a build has no limit of time
                failure = StoreError(
                    f"build the index {step.suffix}: the build was cancelled by a user of the server "
                    f"[{error.sqlstate}]; indexes.create() or the next load builds the index again",
                    sqlstate=error.sqlstate,
                )
            logger.warning("%s: %s", self.collection.names.collection, failure)
            self._failures.append(failure)
            return
        if made is not None:
            self.built.append(made)
            logger.info("built index %s of %s", made, self.collection.names.collection)

    async def _made(self, step: _Step, *, beside: bool) -> str | None:
        """Build an index; repeat it without parallel workers if the server lacks the shared memory for them."""
        doing = f"build the index {step.suffix}{' concurrently' if beside else ''}"
        build = self._build_concurrently if beside else self._build_plainly
        try:
            return await build(step, step.workers, doing)
        except StoreError as error:
            if step.workers == 0 or error.sqlstate not in NO_SHARED_MEMORY or self.database.joins_transaction:
                raise
            logger.warning(
                "%s: the server lacks shared memory for parallel workers; trying again without them: %s", doing, error
            )
            return await build(step, 0, doing)

    async def _build_plainly(self, step: _Step, workers: int | None, doing: str) -> str | None:
        async def work(connection: Connection) -> str | None:
            if not await is_alone(connection, self.collection):
                self._note_busy(step.suffix)
                return None
            # A role's limit is for interactive statements; a build takes as long as it takes.
            await set_local(connection, lock_timeout=LOCK_TIMEOUT, statement_timeout=0)
            await set_local(connection, **_build_settings(step.memory, workers))
            return await step.make(connection)

        return await self.database.write(doing, work)

    async def _build_concurrently(self, step: _Step, workers: int | None, doing: str) -> str | None:
        # A session for each: one that the server has ended takes no other build along.
        async with self._session(doing) as connection:
            if connection is None:
                self._note_busy(step.suffix)
                return None
            await set_for_session(connection, **_build_settings(step.memory, workers))
            return await step.make(connection)

    @asynccontextmanager
    async def _session(self, doing: str) -> AsyncIterator[Connection | None]:
        """Yield the only session that may build indexes concurrently; None if another process is building."""
        # A concurrent build waits for every transaction with an earlier snapshot, so it would wait for a holder of the
        # lock that reads, and for every process that waits for the lock. The holder is a connection that reads nothing,
        # in READ COMMITTED, where a statement with neither bound values nor binary results leaves no snapshot behind;
        # and no process waits.
        database = self.database
        assert database.url is not None  # noqa: S101 - the caller has looked
        try:
            async with own_connection(database.url, database.timeout) as holder:
                await holder.set_isolation_level(IsolationLevel.READ_COMMITTED)
                async with holder.transaction():
                    await begin_writing(holder, database.role)
                    await set_local(holder, idle_in_transaction_session_timeout=0)
                    if not await is_alone(holder, self.collection):
                        yield None
                        return
                    async with self._builder() as builder:
                        yield builder
        except psycopg.Error as error:
            raise translate(error, doing, database.url, writing=True) from None

    def _steps(self, plan: _Plan, *, concurrently: bool) -> list[_Step]:
        """Return the builds of all missing indexes, in order."""
        steps = [
            _Step(index.suffix, partial(self._make_other, index, concurrently=concurrently), MIN_BUILD_MEMORY, None)
            for index in plan.others
        ]
        if plan.estimate is not None and plan.vector is not None:
            suffix = plan.vector.definition(plan.estimate.rows).suffix
            make = partial(self._make_vector, plan, concurrently=concurrently)
            steps.append(_Step(suffix, make, plan.estimate.granted_bytes, plan.estimate.workers))
        return steps

    def _note_busy(self, suffix: str) -> None:
        self.built.busy = sorted({*self.built.busy, suffix})  # a retry comes here again

    # --- steps, under the lock --------------------------------------------------------------------------------------

    async def _make_other(self, index: TableIndex, connection: Connection, *, concurrently: bool) -> str | None:
        """Build an index and return its suffix; return None if it exists by now or another process builds it."""
        running = await self._running(connection)
        built = await built_to_their_end(connection, self.collection.names, [index.suffix])
        if built.get(index.suffix):
            return None
        if index.suffix in built:
            name = f"{self.collection.names.collection}_{index.suffix}"
            if name in running:
                self._note_busy(index.suffix)
                return None
            if not self._goes_on(concurrently):
                await self._drop(connection, name, concurrently=concurrently)
        return await self._create(index, connection, concurrently=concurrently)

    def _goes_on(self, concurrently: bool) -> bool:
        """Return whether an interrupted build is continued, so that indexes of partitions that it made are kept."""
        return concurrently and self.collection.names.partitions > 0

    async def _drop_unfinished(self, plan: _Plan, connection: Connection, *, goes_on: bool) -> None:
        await lock_briefly(connection)
        if await self._unfinished(plan, connection, goes_on=goes_on) and await is_alone(connection, self.collection):
            # Read again: the process that had the lock may have completed one of them.
            running = await self._running(connection)
            for name in await self._unfinished(plan, connection, goes_on=goes_on) - running:
                await self._drop(connection, name, concurrently=False)

    async def _unfinished(self, plan: _Plan, connection: Connection, *, goes_on: bool) -> set[str]:
        """Return the names of indexes whose build was not completed and is not continued."""
        names = await loose_indexes(connection, self.collection)
        if not goes_on:
            built = await built_to_their_end(connection, self.collection.names, [one.suffix for one in plan.others])
            names += [
                f"{self.collection.names.collection}_{suffix}" for suffix, is_built in built.items() if not is_built
            ]
        if plan.estimate is not None and plan.vector is not None:
            found = await read_vector_indexes(connection, self.collection)
            kept = [one.name for one in found.stored if goes_on and plan.vector.goes_on(one)]
            names += [name for name in found.leftovers if name not in kept]
        return set(names)

    async def _running(self, connection: Connection) -> set[str]:
        """Return the names of indexes that a process of the server still builds, even if its client is gone."""
        # Ask before which indexes are unfinished: one that is completed in between is neither.
        names = {build.name for build in await read_running_builds(connection, self.collection) if build.name}
        return names | set(map(whole_index, names))

    async def _make_vector(self, plan: _Plan, connection: Connection, *, concurrently: bool) -> str | None:
        running = await self._running(connection)
        found = await read_vector_indexes(connection, self.collection)
        vector, estimate = plan.vector, plan.estimate
        if vector is None or estimate is None or not vector.is_missing(found):
            return None
        if running.intersection(found.leftovers):
            self._note_busy(vector.definition(estimate.rows).suffix)
            return None
        index, suffix = vector.definition(estimate.rows), None
        for one in found.stored:
            if one.name in found.leftovers and not self._goes_on(concurrently):
                await self._drop(connection, one.name, concurrently=concurrently)
            elif vector.goes_on(one):
                suffix = one.name.removeprefix(f"{self.collection.names.collection}_")
        suffix = suffix or await free_suffix(connection, self.collection.names, index.suffix)
        made = await self._create(replace(index, suffix=suffix), connection, concurrently=concurrently)
        if not isinstance(vector.index, NoIndex) and not value_for(self.collection, vector.index).is_whole:
            # Nobody needs figures about its expression, and ANALYZE would read every vector for them.
            await connection.execute(
                sql.SQL("ALTER INDEX {} ALTER COLUMN 1 SET STATISTICS 0").format(
                    sql.Identifier(self.collection.names.schema, f"{self.collection.names.collection}_{suffix}")
                )
            )
        return made

    async def _create(self, index: TableIndex, connection: Connection, *, concurrently: bool) -> str:
        if self._goes_on(concurrently):
            create = partial(self._create_one, concurrently=True, tell=None)
            build = PartitionedBuild(self.database, self.collection.names, index, create, self._builder, self.tell)
            await build.run(connection)
            return index.suffix
        return await self._create_one(index, connection, concurrently=concurrently, tell=self.tell)

    @asynccontextmanager
    async def _builder(self) -> AsyncIterator[Connection]:
        """Yield a session with the settings that concurrent builds need."""
        assert self.database.url is not None  # noqa: S101 - `run` has looked
        async with own_connection(self.database.url, self.database.timeout) as connection:
            settings = SETTINGS | of_role(self.database.role)
            await set_for_session(connection, **settings, lock_timeout=CONCURRENT_LOCK_TIMEOUT, statement_timeout=0)
            yield connection

    async def _create_one(
        self, index: TableIndex, connection: Connection, *, concurrently: bool, tell: TellBuild | None
    ) -> str:
        async with watched(self.database, connection, index.suffix, tell, concurrently=concurrently):
            await connection.execute(index.create(self.collection.names, concurrently=concurrently))
        return index.suffix

    async def _settle(self, plan: _Plan, connection: Connection, *, concurrently: bool) -> list[str]:
        """Store which vector index is wanted; drop the indexes that it replaces, and return their names."""
        if plan.vector is None:
            return []
        if plan.given is not None:
            await note_wanted(connection, self.collection, plan.given)
        found = await read_vector_indexes(connection, self.collection)
        obsolete = plan.vector.obsolete(found)
        for name in obsolete:
            await self._drop(connection, name, concurrently=concurrently)
        return obsolete

    async def _drop(self, connection: Connection, name: str, *, concurrently: bool) -> None:
        logger.info("index %s of %s is dropped", name, self.collection.names.collection)
        await connection.execute(
            sql.SQL("DROP INDEX {}{}").format(
                sql.SQL("CONCURRENTLY " if concurrently else ""), sql.Identifier(self.collection.names.schema, name)
            )
        )


def _build_settings(memory: int, workers: int | None) -> dict[str, str | int]:
    settings: dict[str, str | int] = {"maintenance_work_mem": f"{memory // 1024}kB"}
    if workers is None:
        return settings
    if workers == 0:
        return settings | {"max_parallel_maintenance_workers": 0}
    # Large vectors are stored out of line, so that their table looks too small for parallel workers.
    return settings | {"min_parallel_table_scan_size": 0}


async def build_where_wanted(database: Database, collection: CollectionInfo, begin: Callable[[], None]) -> list[str]:
    """Call `begin`, then build the missing indexes, if the collection is large enough; return an error as a warning."""
    try:
        if await database.read("look at the indexes", lambda connection: indexes_wanted(connection, collection)):
            begin()
            await IndexBuilder(database, collection).run()
    except SemlexError as error:
        return [without_indexes(collection, error)]
    return []


def without_indexes(collection: CollectionInfo, error: SemlexError) -> str:
    """Return the warning that indexes could not be built after a load, and log it."""
    warning = f"everything is stored, but an index could not be built, so searches are slower: {error}"
    logger.warning(
        "%s: %s; indexes.create(), the next load or a worker builds it again", collection.names.collection, warning
    )
    return warning


async def can_build_beside(database: Database) -> bool:
    """Return whether indexes can be built concurrently: with an address of the server, and without a pooler."""
    return database.url is not None and not await database.read("look for a pooler", is_pooled)


async def analyze(connection: Connection, collection: CollectionInfo) -> None:
    """Run ANALYZE on the tables that searches read, except those that another session analyzes or indexes."""
    await set_local(connection, statement_timeout=0)
    tables = sql.SQL(", ").join(searched_tables(collection))
    await connection.execute(sql.SQL("ANALYZE (SKIP_LOCKED) {}").format(tables))
