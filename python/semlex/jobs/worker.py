"""Run jobs, several at a time, sync followed tables and finish index builds, until stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import (
    AnalyzerVersionError,
    CollectionNotFoundError,
    ConfigurationError,
    ConnectionFailedError,
    EmbeddingsMissingError,
    LeaseLostError,
    MissingExtraError,
    ModelMismatchError,
    ModelNotAllowedError,
    ModelNotFoundError,
    PrivilegeError,
    SchemaVersionError,
    SemlexError,
    StoreError,
    UnsupportedServerError,
    ValidationError,
    WorkAbandonedError,
)
from semlex.jobs.kinds import KINDS, Allowed, AllowedFolders, Work, check_arguments, models_by_name
from semlex.jobs.tables import REMOVING_SECONDS, RENEWED_AFTER, FollowedTables
from semlex.store.indexes.build import can_build_beside
from semlex.store.indexes.catalog import collections_with_leftovers
from semlex.store.jobs import FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, Claim, JobLeases
from semlex.store.postgres.database import Database, write_guard
from semlex.store.postgres.errors import is_out_of_resources
from semlex.store.schema.names import Names
from semlex.store.schema.registry import find_collection
from semlex.types.followed import DEFAULT_COMPARE_SECONDS
from semlex.types.jobs import DEFAULT_KEEP_DAYS, DEFAULT_LEASE_SECONDS, JobError, JobProgress
from semlex.validation import (
    callable_errors,
    check_parameters,
    kind_errors,
    number_errors,
    whole_number_errors,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from semlex.embedding.base import Embedder
    from semlex.ingest.indexer import Indexer
    from semlex.ingest.progress import Progress
    from semlex.options.collection import WantedOptions
    from semlex.store.indexes.background import IndexBuilds
    from semlex.store.postgres.connection import Connection

logger = logging.getLogger("semlex")

Outcome = Literal["done", "failed", "again", "cancelled", "given back", "lost"]
SHOWN: dict[Outcome, str] = {
    "again": "failed, will be tried again",
    "given back": "returned to the queue",
    "lost": "lost to another worker, or its end could not be stored",
}
# Minimum time between two writes of the progress.
PROGRESS_SECONDS = 2.0
# Errors that another attempt would repeat.
LASTING = (
    AnalyzerVersionError,
    CollectionNotFoundError,
    ConfigurationError,
    EmbeddingsMissingError,
    MissingExtraError,
    ModelMismatchError,
    ModelNotAllowedError,
    ModelNotFoundError,
    PrivilegeError,
    SchemaVersionError,
    UnsupportedServerError,
    ValidationError,
)


class Attempt:
    """One attempt to run a job."""

    def __init__(
        self, claim: Claim, leases: JobLeases, open_collection: Callable[[str], Awaitable[Any]], allowed: Allowed
    ) -> None:
        self.claim = claim
        self._leases = leases
        self._open_collection = open_collection
        self._allowed = allowed
        self._progress: JobProgress | None = None
        self._work: asyncio.Task[dict[str, Any]] | None = None
        self._is_stopping = self._is_cancelled = self._is_lost = False

    async def run(self) -> Outcome:
        """Run the job and store its outcome; raise only if this call is cancelled."""
        self._work = work = asyncio.create_task(self._do())
        try:
            await self._keep(work)
        finally:
            work.cancel()
            await asyncio.wait({work})
        try:
            outcome = await self._note(work)
            if outcome == "lost":
                await self._leases.forgive(self.claim)
        except SemlexError as error:
            # Nothing is lost: after the lease another worker continues.
            logger.warning("job %s: the outcome could not be stored: %s", self.claim.job_id, error)
            return "lost"
        else:
            return outcome

    def stop(self) -> None:
        """End the job after its current batch and return it to the queue."""
        self._is_stopping = True

    def abandon(self) -> None:
        """End the job now; its current batch is rolled back."""
        self._is_stopping = True
        if self._work is not None:
            self._work.cancel()

    # --- the work -----------------------------------------------------------------------------------------------------

    async def _do(self) -> dict[str, Any]:
        write_guard.set(self._guard)
        claim = self.claim
        arguments = check_arguments(claim.kind, claim.arguments)
        collection = await self._open_collection(claim.collection)
        return await KINDS[claim.kind].run(Work(collection, arguments, self._tell, self._allowed))

    @asynccontextmanager
    async def _guard(self, connection: Connection) -> AsyncIterator[None]:
        """Check in every transaction of the job that this worker still holds its lease."""
        if self._is_stopping:
            raise WorkAbandonedError("the worker is being stopped; the job returns to the queue")
        async with self._leases.fenced(connection, self.claim) as cancel_wanted:
            self._is_cancelled |= cancel_wanted
            if cancel_wanted:
                raise WorkAbandonedError("the job was cancelled")
            yield

    def _tell(self, progress: Progress) -> None:
        total = None if progress.total is None else int(progress.total)
        self._progress = JobProgress(progress.stage, int(progress.done), total, progress.unit)

    # --- beside it ----------------------------------------------------------------------------------------------------

    async def _keep(self, work: asyncio.Task[dict[str, Any]]) -> None:
        """Renew the lease and store the progress until the work ends."""
        clock, often = self._leases.clock, self._leases.seconds * RENEWED_AFTER
        renewed, told = clock.monotonic(), self._progress
        while True:
            await clock.wait_for_tasks({work}, min(PROGRESS_SECONDS, often))
            if work.done():
                return
            begun, progress = clock.monotonic(), self._progress
            if self._is_lost or self._is_cancelled or (begun - renewed < often and progress == told):
                continue
            try:
                self._is_cancelled |= await self._leases.renew(self.claim, progress)
                renewed, told = begun, progress
            except LeaseLostError:
                self._is_lost = True
            except StoreError as error:
                # Tried again in a moment; if the lease ends meanwhile, the fence holds.
                logger.info("job %s: the lease could not be renewed: %s", self.claim.job_id, error)
            if self._is_lost or self._is_cancelled:
                work.cancel()

    async def _note(self, work: asyncio.Task[dict[str, Any]]) -> Outcome:
        claim, leases = self.claim, self._leases
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if error is not None and (self._is_lost or isinstance(error, LeaseLostError)):
            return "lost"
        try:
            if error is None:
                await leases.complete(claim, work.result())
                return "done"
            if self._is_cancelled:
                await leases.cancelled(claim)
                return "cancelled"
            if self._is_stopping and isinstance(error, (asyncio.CancelledError, WorkAbandonedError)):
                await leases.release(claim)
                return "given back"
            lasting = isinstance(error, LASTING) or claim.attempts >= claim.max_attempts
            await leases.fail(claim, _job_error(error, claim), None if lasting else delay_after(claim.attempts))
        except LeaseLostError:
            return "lost"
        return "failed" if lasting else "again"


def delay_after(attempts: int) -> float:
    """Return seconds until the next attempt: doubled each time, with jitter."""
    longest = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempts - 1, 20))
    return random.uniform(longest / 2, longest)  # noqa: S311 - not a secret


def _job_error(error: BaseException, claim: Claim) -> JobError:
    """Return an error that any caller may read: only semlex's own errors keep their message; others may quote texts."""
    if isinstance(error, SemlexError):
        return JobError(type(error).__name__, str(error))
    logger.error("job %s failed", claim.job_id, exc_info=error)
    return JobError(type(error).__name__, "an unexpected error; the worker's log has the details")


MAX_CONCURRENCY = 256
# Between two reads of an empty queue, and between two attempts to reach a server.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.2, 2.0
# How long a stopped worker waits for its batches; service managers often kill after 30 s.
STOP_SECONDS = 20.0
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker."""

    concurrency: int = 1  # maximum number of jobs at a time
    allow: Sequence[str | Path] = ()  # folders that jobs may read
    models: Sequence[str | Embedder] = ()  # embedding models that jobs may switch a collection to
    drain: bool = False  # whether the worker ends when no job can be started
    limit: int | None = None  # number of jobs after which the worker ends
    # Seconds without a sign of life of a worker until another one continues its job.
    lease: float = DEFAULT_LEASE_SECONDS
    keep_days: float = DEFAULT_KEEP_DAYS  # for which finished jobs are kept
    compare_every: float = DEFAULT_COMPARE_SECONDS  # seconds, for tables followed by comparison
    tell: Callable[[str], None] | None = None  # Called with a line about each job, and about a lost connection.

    def __post_init__(self) -> None:
        check_parameters(
            whole_number_errors("concurrency", self.concurrency, 1, MAX_CONCURRENCY),
            [error for path in self.allow for error in kind_errors("allow", path, str, Path)]
            if isinstance(self.allow, (list, tuple))
            else wrong_type("allow", "list of str or Path", self.allow),
            kind_errors("drain", self.drain, bool),
            [] if self.limit is None else whole_number_errors("limit", self.limit, 1),
            number_errors("lease", self.lease, 1, DAY_SECONDS),
            number_errors("keep_days", self.keep_days, 0, 36_500),
            number_errors("compare_every", self.compare_every, 1, 365 * DAY_SECONDS),
            callable_errors("tell", self.tell),
        )


class Worker:
    """Takes jobs from the queue and runs them, and syncs followed tables."""

    def __init__(
        self,
        database: Database,
        schema: str,
        # Opens a collection by name, for a job.
        open_collection: Callable[[str], Awaitable[Any]],
        # Opens the indexer of a collection by name, for a followed table.
        open_indexer: Callable[[str], Awaitable[tuple[Indexer, WantedOptions]]],
        options: WorkerOptions,
        *,
        # Index builds that the worker starts; the caller must end them.
        builds: IndexBuilds,
    ) -> None:
        if database.joins_transaction:
            raise ConfigurationError(
                "a worker needs several transactions at a time: open the client without connection="
            )
        self._clock = database.clock
        self._leases = JobLeases(database, schema, options.lease)
        self._open_collection = open_collection
        self._options = options
        self._allowed = Allowed(AllowedFolders(options.allow), models_by_name(options.models))
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._stop = asyncio.Event()
        self._begun = self._ended = 0
        self._remove_at = 0.0
        self._indexes = UnfinishedIndexes(database, schema, builds, self._tell)
        self._tables = FollowedTables(
            database,
            schema,
            open_indexer,
            concurrency=options.concurrency,
            lease=options.lease,
            compare_every=options.compare_every,
            tell=self._tell,
        )

    async def run(self) -> int:
        """Work until stopped, for `limit` jobs or, with `drain`, until no job is left; return how many jobs ended."""
        stopped = asyncio.create_task(self._stop.wait())
        # A worker with a limit of jobs keeps no table in step, and builds no indexes.
        others: list[asyncio.Task[Any]] = []
        if self._options.limit is None:
            others.append(asyncio.create_task(self._keep_tables(stopped)))
            others.append(asyncio.create_task(self._indexes.serve(stopped, drain=self._options.drain)))
        try:
            try:
                await self._serve(stopped)
            except SemlexError:
                self.stop()
                await self._end_running(stopped)
                raise
            await self._end_running(stopped)
            for task in others:
                await task
        finally:
            self._tables.abandon()
            for task in (stopped, *others, *self._running):
                task.cancel()
            await asyncio.gather(stopped, *others, *self._running, return_exceptions=True)
        return self._ended

    async def _keep_tables(self, stopped: asyncio.Task[Any]) -> None:
        """Sync followed tables until stopped; then let running syncs finish their current batch."""
        await self._tables.serve(stopped, drain=self._options.drain)
        await self._tables.end(STOP_SECONDS)

    def stop(self) -> None:
        """Take no more jobs; running ones finish their batch and return to the queue."""
        self._stop.set()

    def abandon(self) -> None:
        """Stop, and roll back the current batches."""
        self._stop.set()
        self._tables.abandon()
        for attempt in self._running.values():
            attempt.abandon()

    async def _serve(self, stopped: asyncio.Task[Any]) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            if self._options.limit is not None and self._begun >= self._options.limit:
                break
            if len(self._running) >= self._options.concurrency:
                await asyncio.wait({stopped, *self._running}, return_when=asyncio.FIRST_COMPLETED)
                continue
            claim = await self._claim(stopped)
            if claim is not None:
                self._begin(claim)
                pause = FIRST_PAUSE_SECONDS
            elif self._options.drain and not self._running:
                break
            else:
                # Jitter, so that workers started together do not poll together.
                seconds = random.uniform(pause / 2, pause)  # noqa: S311 - not a secret
                waited = {stopped, *self._running}
                await self._clock.wait_for_tasks(waited, seconds, asyncio.FIRST_COMPLETED)
                pause = min(pause * 1.5, LAST_PAUSE_SECONDS)

    async def _claim(self, stopped: asyncio.Task[Any]) -> Claim | None:
        """Return the next job, or None; if the server cannot be reached, report that once and try again."""
        pause, is_lost = FIRST_PAUSE_SECONDS, False
        while True:
            try:
                await self._remove_old()
                claim = await self._leases.claim()
            except StoreError as error:
                if not isinstance(error, ConnectionFailedError) and not is_out_of_resources(error):
                    raise
                if not is_lost:
                    self._tell(f"no job can be started; semlex keeps trying to reach the server: {error}")
                is_lost = True
                await self._clock.wait_for_tasks({stopped}, random.uniform(pause / 2, pause))  # noqa: S311 - not a secret
                if self._stop.is_set():
                    return None
                pause = min(pause * 2, LAST_PAUSE_SECONDS)
            else:
                if is_lost:
                    self._tell("the server can be reached again")
                return claim

    async def _remove_old(self) -> None:
        """Remove old jobs, once an hour."""
        now = self._clock.monotonic()
        if now >= self._remove_at:
            await self._leases.remove_ended(self._options.keep_days * DAY_SECONDS)
            self._remove_at = now + REMOVING_SECONDS

    def _begin(self, claim: Claim) -> None:
        attempt = Attempt(claim, self._leases, self._open_collection, self._allowed)
        task = asyncio.create_task(self._follow(attempt))
        self._running[task] = attempt
        task.add_done_callback(lambda done: self._running.pop(done, None))
        self._begun += 1

    async def _follow(self, attempt: Attempt) -> None:
        claim = attempt.claim
        outcome = await attempt.run()
        self._ended += outcome in ("done", "failed", "cancelled")
        said = f"attempt {claim.attempts} of {claim.max_attempts}: {SHOWN.get(outcome, outcome)}"
        self._tell(f"{claim.kind} {claim.collection} {claim.job_id}: {said}")

    async def _end_running(self, stopped: asyncio.Task[Any]) -> None:
        """Wait for running jobs; after a stop, only briefly until their batches end."""
        while self._running and not self._stop.is_set():
            await asyncio.wait({stopped, *self._running}, return_when=asyncio.FIRST_COMPLETED)
        for end, seconds in ((Attempt.stop, STOP_SECONDS), (Attempt.abandon, None)):
            for attempt in self._running.values():
                end(attempt)
            if self._running:
                await self._clock.wait_for_tasks(self._running, seconds)

    def _tell(self, line: str) -> None:
        logger.info("%s", line)
        if self._options.tell is not None:
            self._options.tell(line)


LOOK_SECONDS = 60.0
# After a build was begun, that collection is left alone for so long: an index that cannot be built fails every time.
PAUSE_SECONDS = 3_600.0


class UnfinishedIndexes:
    """Finds indexes whose build was interrupted, and builds them."""

    def __init__(self, database: Database, schema: str, builds: IndexBuilds, tell: Callable[[str], None]) -> None:
        # The builds are those of the worker's client, which ends them when it stops; `tell` is called with a line about
        # each collection.
        self._database, self._schema, self._builds, self._tell = database, schema, builds, tell
        self._not_before: dict[str, float] = {}

    async def serve(self, stopped: asyncio.Task[Any], *, drain: bool = False) -> None:
        """Look for unfinished indexes every minute until `stopped` is done; with `drain`, only once."""
        clock = self._database.clock
        while not stopped.done():
            with suppress(SemlexError):  # the loop that takes jobs reports a lost server
                await self._begin()
            if drain:
                return
            await clock.wait_for_tasks({stopped}, LOOK_SECONDS)

    async def _begin(self) -> None:
        now = self._database.clock.monotonic()
        found = await self._database.read(
            "look for unfinished indexes", lambda connection: collections_with_leftovers(connection, self._schema)
        )
        due = [name for name in found if self._not_before.get(name, now) <= now]
        if not due or not await can_build_beside(self._database):
            return
        for name in due:
            self._not_before[name] = now + PAUSE_SECONDS
            collection = await find_collection(self._database, Names(self._schema, name))
            if collection is not None:
                self._builds.begin(self._database, collection)
                self._tell(f"collection {name}: its unfinished indexes are being built")
