"""A worker: takes jobs of a schema one after another, several at a time, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, ConnectionFailedError, SemlexError, StoreError
from semlex.jobs.allowed_folders import AllowedFolders
from semlex.jobs.allowed_models import Allowed, models_by_name
from semlex.jobs.attempt import Attempt
from semlex.store.jobs import JobLeases
from semlex.store.postgres.errors import is_out_of_resources
from semlex.types.reports import DEFAULT_KEEP_DAYS, DEFAULT_LEASE_SECONDS
from semlex.validation import (
    callable_errors,
    check_parameters,
    kind_errors,
    number_errors,
    whole_number_errors,
    wrong_type,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from semlex.embedding.base import Embedder
    from semlex.store.jobs import Claim
    from semlex.store.postgres.database import Database

logger = logging.getLogger("semlex")

MAX_CONCURRENCY = 256
# Between two looks at an empty queue, and between two attempts to reach a server.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.2, 2.0
# A worker that is stopped waits so long for batches to end; service managers often kill after 30 s.
STOP_SECONDS = 20.0
REMOVING_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works.

    Attributes:
        concurrency: Most jobs at a time.
        allow: Folders that jobs may read.
        models: Names or embedders to which jobs may change a collection.
        drain: Whether it ends when there is no job that may be begun.
        limit: How many jobs it begins before it ends; None: any number.
        lease: Seconds after which a job of a silent worker goes on elsewhere.
        keep_days: Days for which ended jobs are kept.
        tell: Gets a line about each job, and about a server that is lost.
    """

    concurrency: int = 1
    allow: Sequence[str | Path] = ()
    models: Sequence[str | Embedder] = ()
    drain: bool = False
    limit: int | None = None
    lease: float = DEFAULT_LEASE_SECONDS
    keep_days: float = DEFAULT_KEEP_DAYS
    tell: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        check_parameters(
            whole_number_errors("concurrency", self.concurrency, 1, MAX_CONCURRENCY),
            wrong_type("allow", "list of str or Path", self.allow)
            if isinstance(self.allow, (str, bytes)) or not isinstance(self.allow, (list, tuple))
            else [error for path in self.allow for error in kind_errors("allow", path, str, Path)],
            kind_errors("drain", self.drain, bool),
            [] if self.limit is None else whole_number_errors("limit", self.limit, 1),
            number_errors("lease", self.lease, 1, DAY_SECONDS),
            number_errors("keep_days", self.keep_days, 0, 36_500),
            callable_errors("tell", self.tell),
        )


class Worker:
    """Takes jobs and does them."""

    def __init__(
        self,
        database: Database,
        schema: str,
        open_collection: Callable[[str], Awaitable[Any]],
        options: WorkerOptions,
    ) -> None:
        if database.joins_transaction:
            raise ConfigurationError("a worker has several transactions at a time: open the client without connection=")
        self._clock = database.clock
        self._leases = JobLeases(database, schema, options.lease)
        self._open_collection = open_collection
        self._options = options
        self._allowed = Allowed(AllowedFolders(options.allow), models_by_name(options.models))
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._stop = asyncio.Event()
        self._begun = self._ended = 0
        self._remove_at = 0.0

    async def run(self) -> int:
        """Works until it is drained, has begun its number of jobs, or is stopped; returns how many jobs have ended."""
        stopped = asyncio.create_task(self._stop.wait())
        try:
            try:
                await self._serve(stopped)
            except SemlexError:
                self.stop()
                await self._end_running(stopped)
                raise
            await self._end_running(stopped)
        finally:
            stopped.cancel()
            for task in self._running:
                task.cancel()
            await asyncio.gather(stopped, *self._running, return_exceptions=True)
        return self._ended

    def stop(self) -> None:
        """Takes no more jobs; those that are running come to the end of their batch and are given back."""
        self._stop.set()

    def abandon(self) -> None:
        """As `stop`, and what is being written is rolled back."""
        self._stop.set()
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
                # Workers that were started together must not come together.
                seconds = random.uniform(pause / 2, pause)  # noqa: S311 - not a secret
                waited = {stopped, *self._running}
                await self._clock.wait_for_tasks(waited, seconds, asyncio.FIRST_COMPLETED)
                pause = min(pause * 1.5, LAST_PAUSE_SECONDS)

    async def _claim(self, stopped: asyncio.Task[Any]) -> Claim | None:
        """The next job, if there is one. While the server is lost or full, tries again, and says so once."""
        pause, is_lost = FIRST_PAUSE_SECONDS, False
        while True:
            try:
                await self._remove_old()
                claim = await self._leases.claim()
            except StoreError as error:
                if not isinstance(error, ConnectionFailedError) and not is_out_of_resources(error):
                    raise
                if not is_lost:
                    self._tell(f"no job can be taken; the server is tried again and again: {error}")
                is_lost = True
                await self._clock.wait_for_tasks({stopped}, random.uniform(pause / 2, pause))  # noqa: S311 - not a secret
                if self._stop.is_set():
                    return None
                pause = min(pause * 2, LAST_PAUSE_SECONDS)
            else:
                if is_lost:
                    self._tell("the server is back")
                return claim

    async def _remove_old(self) -> None:
        """Removes jobs that ended long ago, once in an hour."""
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
        said = f"attempt {claim.attempts} of {claim.max_attempts}: {outcome}"
        self._tell(f"{claim.kind} {claim.collection} {claim.job_id}: {said}")

    async def _end_running(self, stopped: asyncio.Task[Any]) -> None:
        """Waits for what is running; once the worker is stopped, for the ends of batches, and not for long."""
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
