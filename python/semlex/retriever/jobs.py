"""The background jobs of a collection, and a submitted job as a value with methods."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from semlex.errors import JobTimeoutError
from semlex.options.declare import check_options, operation
from semlex.options.indexing import JobOptions
from semlex.retriever.handle import Part
from semlex.store.jobs import JobQueue, NewJob, job_key
from semlex.store.schema.registry import find_collection
from semlex.types.jobs import JobInfo, values_of
from semlex.validation import check_parameters, number_errors

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Job(JobInfo):
    """The state of a job when it was read; its methods return newer states."""

    _queue: JobQueue = field(repr=False, compare=False, kw_only=True)

    async def status(self) -> Job:
        """Return the job as it is now.

        Raises:
            ConfigurationError: The job has ended and was removed.
        """
        return job_of(await self._queue.get(job_key(self.id)), self._queue)

    async def wait(self, timeout: float | None = None) -> Job:  # noqa: ASYNC109 - it ends with an error of its own
        """Return the job when it has ended: done, failed or cancelled.

        Args:
            timeout: Maximum seconds to wait; None: no limit.

        Raises:
            JobTimeoutError: The job has not ended in this time; it continues.
        """
        check_parameters([] if timeout is None else number_errors("timeout", timeout, 0, threading.TIMEOUT_MAX))
        clock = self._queue.clock
        until = None if timeout is None else clock.monotonic() + timeout
        pause = FIRST_PAUSE_SECONDS
        while not (job := await self.status()).has_ended:
            left = pause if until is None else until - clock.monotonic()
            if left <= 0:
                raise JobTimeoutError(
                    f"job {self.id} is still {job.state} after {timeout:g} s: wait again, or check whether a "
                    "worker runs (semlex worker)"
                )
            await clock.sleep(min(pause, left))
            pause = min(pause * 1.5, LAST_PAUSE_SECONDS)
        return job

    @operation("cancel job", "write")
    async def cancel(self) -> Job:
        """Cancel the job: at once if it is queued; if it is running, its worker ends it after the current batch.

        Raises:
            ConfigurationError: The job is done or has failed.
        """
        return job_of(await self._queue.cancel(job_key(self.id)), self._queue)

    @operation("retry job", "write")
    async def retry(self) -> Job:
        """Queue the job again after it failed or was cancelled; finished parts are not repeated.

        Raises:
            ConfigurationError: The job is queued, running or done.
        """
        return job_of(await self._queue.retry(job_key(self.id)), self._queue)


def job_of(info: JobInfo, queue: JobQueue) -> Job:
    """Return a job with methods, from its stored row."""
    return Job(**values_of(info), _queue=queue)


class Jobs(Part):
    """Submits jobs for a collection; `Collection.jobs` returns this object."""

    @operation("submit job", "write")
    async def submit(self, kind: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Job:
        """Store a job for this collection; a worker runs it (`Client.work`, ``semlex worker``).

        The kinds are ``index`` and ``sync`` (with ``paths`` and most options of these methods), ``add`` (with
        ``documents`` and ``on_duplicate``), ``optimize``, ``rechunk``, ``embed`` and ``reembed`` (with ``model``). An
        interrupted job is continued; nothing it does is stored twice. If the collection does not exist, this call
        makes it.

        Args:
            kind: One of the kinds above.
            arguments: Arguments of the job, at most 1 MiB as JSON. Paths are made absolute and read by the worker.
            **options: See `JobOptions`.

        Raises:
            ConfigurationError: The kind or an argument is unknown, or a value is refused.
            ValidationError: Documents are invalid; it lists every error of every document.
            CollectionNotFoundError: The collection does not exist, and `create` is False.
        """
        from semlex.jobs.kinds import arguments_to_store

        check_options(JobOptions, options, "submit")
        stored = arguments_to_store(kind, arguments)
        database = await self._handle.database()
        if await find_collection(database, self._handle.names) is None:
            await self._handle.ready()
        queue = JobQueue(database, self._handle.names.schema)
        await queue.ensure_table()
        job = NewJob(kind, self._handle.names.collection, stored, **options)
        return job_of(await queue.submit(job), queue)
