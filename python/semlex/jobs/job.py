"""A submitted job, as a value with methods."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from semlex.errors import JobTimeoutError
from semlex.options.declare import operation
from semlex.store.jobs import job_key
from semlex.types.reports import JobInfo
from semlex.validation import check_parameters, number_errors

if TYPE_CHECKING:
    from semlex.store.jobs import JobQueue

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Job(JobInfo):
    """A job as it was when it was read; its methods return newer states of the job."""

    _queue: JobQueue = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, info: JobInfo, queue: JobQueue) -> Self:
        """Make a job from its stored row."""
        return cls(**info.values(), _queue=queue)

    async def status(self) -> Job:
        """Return the job as it is now.

        Raises:
            ConfigurationError: The job has ended and was removed.
        """
        return Job.of(await self._queue.get(job_key(self.id)), self._queue)

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
        return Job.of(await self._queue.cancel(job_key(self.id)), self._queue)

    @operation("retry job", "write")
    async def retry(self) -> Job:
        """Queue the job again after it failed or was cancelled; finished parts are not repeated.

        Raises:
            ConfigurationError: The job is in another state.
        """
        return Job.of(await self._queue.retry(job_key(self.id)), self._queue)
