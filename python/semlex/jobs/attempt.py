"""One attempt at a job: the lease is kept, every write is fenced, and the outcome is noted."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import (
    AnalyzerVersionError,
    CollectionNotFoundError,
    ConfigurationError,
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
from semlex.jobs.kinds import KINDS, Work, check_arguments
from semlex.store.postgres.database import write_guard
from semlex.types.reports import JobError, JobProgress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.ingest.progress import Progress
    from semlex.jobs.allowed_models import Allowed
    from semlex.store.jobs import Claim, JobLeases
    from semlex.store.postgres.connection import Connection

logger = logging.getLogger("semlex")

Outcome = Literal["done", "failed", "again", "cancelled", "given back", "lost"]
# Progress is stored no more often than that.
PROGRESS_SECONDS = 2.0
# The lease is renewed when this share of it is over.
RENEWED_AFTER = 1 / 3
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 5.0, 600.0
# What another attempt would end with as well.
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
    """One attempt at a job."""

    def __init__(
        self,
        claim: Claim,
        leases: JobLeases,
        open_collection: Callable[[str], Awaitable[Any]],
        allowed: Allowed,
    ) -> None:
        self.claim = claim
        self._leases = leases
        self._open_collection = open_collection
        self._allowed = allowed
        self._progress: JobProgress | None = None
        self._work: asyncio.Task[dict[str, Any]] | None = None
        self._is_stopping = self._is_cancelled = self._is_lost = False

    async def run(self) -> Outcome:
        """Does the job, and notes the outcome; nothing of it fails but what is cancelled from outside."""
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
            # Nothing is lost: when the lease is over, somebody does the rest.
            logger.warning("job %s: its outcome could not be stored: %s", self.claim.job_id, error)
            return "lost"
        else:
            return outcome

    def stop(self) -> None:
        """Lets it end after the batch that is being written, to be given back."""
        self._is_stopping = True

    def abandon(self) -> None:
        """Ends it now; what is being written is rolled back."""
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
        """What every transaction of the job stands in."""
        if self._is_stopping:
            raise WorkAbandonedError("the worker is being stopped; the job is given back")
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
        """Renews the lease and stores the progress until the work has ended."""
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
                logger.info("job %s: its lease could not be renewed: %s", self.claim.job_id, error)
            if self._is_lost or self._is_cancelled:
                work.cancel()

    async def _note(self, work: asyncio.Task[dict[str, Any]]) -> Outcome:
        """Notes the outcome."""
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        try:
            return await self._noted(work, error)
        except LeaseLostError:
            return "lost"

    async def _noted(self, work: asyncio.Task[dict[str, Any]], error: BaseException | None) -> Outcome:
        claim, leases = self.claim, self._leases
        if error is None:
            await leases.complete(claim, work.result())
            return "done"
        if self._is_lost or isinstance(error, LeaseLostError):
            return "lost"
        if self._is_cancelled:
            await leases.cancelled(claim)
            return "cancelled"
        if self._is_stopping and isinstance(error, (asyncio.CancelledError, WorkAbandonedError)):
            await leases.release(claim)
            return "given back"
        lasting = isinstance(error, LASTING) or claim.attempts >= claim.max_attempts
        await leases.fail(claim, _told(error, claim), None if lasting else delay_after(claim.attempts))
        return "failed" if lasting else "again"


def delay_after(attempts: int) -> float:
    """Seconds until the next attempt: twice as long each time, and jobs that failed together do not come together."""
    longest = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempts - 1, 20))
    return random.uniform(longest / 2, longest)  # noqa: S311 - not a secret


def _told(error: BaseException, claim: Claim) -> JobError:
    """An error as others may read it: ours never quote a text; of another nobody knows what it quotes."""
    if isinstance(error, SemlexError):
        return JobError(type(error).__name__, str(error))
    logger.error("job %s failed", claim.job_id, exc_info=error)
    return JobError(type(error).__name__, "an error that is not semlex's own; the log of the worker has it")
