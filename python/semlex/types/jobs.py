"""Jobs: their states, limits and defaults, and a job as it was read. This module does no I/O."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from semlex.types.documents import json_value

if TYPE_CHECKING:
    from datetime import datetime


JobState = Literal["queued", "running", "done", "failed", "cancelled"]
STATES: tuple[JobState, ...] = ("queued", "running", "done", "failed", "cancelled")
ENDED: frozenset[JobState] = frozenset({"done", "failed", "cancelled"})
DEFAULT_ATTEMPTS = 5
DEFAULT_LEASE_SECONDS = 60.0
DEFAULT_KEEP_DAYS = 7.0
MAX_ATTEMPTS = 1_000
MAX_PRIORITY = 1_000_000
MAX_ARGUMENT_BYTES = 1024 * 1024
MAX_UNIQUE_KEY_BYTES = 512
MAX_LISTED_PROBLEMS = 100


class JobProgress(NamedTuple):
    """How far a job has come, as its worker last reported; `total` is None while it is unknown."""

    stage: str
    done: int
    total: int | None
    unit: str


class JobError(NamedTuple):
    """Why an attempt failed: the name of the error's class, and its message."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The state of a job when it was read. All times are the server's.

    Attributes:
        kind: ``index``, ``sync``, ``add``, ``optimize``, ``rechunk``, ``embed`` or ``reembed``.
        arguments: Its arguments, without documents.
        state: ``queued``, ``running``, ``done``, ``failed`` or ``cancelled``.
        priority: Jobs with a higher priority run first.
        cancel_wanted: Whether a running job was asked to end.
        attempts: How often a worker started it; not counted if a stopping worker returned it to the queue.
        progress, error: How far it has come, and why the last attempt failed, or None.
        result: What was done, in numbers; None until it is done. For a job that reads files, ``problems`` has the path
            (``source_document``) and ``code`` of up to 100 files that could not be read, or have no text (``no_text``).
        due_at: When a worker may take it, if it is queued; when its lease ends, if it is running.
    """

    id: str
    kind: str
    collection: str
    arguments: Any
    state: JobState
    priority: int
    unique_key: str | None
    cancel_wanted: bool
    attempts: int
    max_attempts: int
    progress: JobProgress | None
    error: JobError | None
    result: dict[str, Any] | None
    due_at: datetime
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def has_ended(self) -> bool:
        """Return whether it is done, failed or cancelled."""
        return self.state in ENDED

    def to_dict(self) -> dict[str, Any]:
        """Return the job as JSON values: times are ISO 8601 texts."""
        found = values_of(self)
        for name in ("progress", "error"):
            found[name] = None if found[name] is None else found[name]._asdict()
        return {name: json_value(value) for name, value in found.items()}


def values_of(job: JobInfo) -> dict[str, Any]:
    """Return the fields of `JobInfo` with their values in a job."""
    return {one.name: getattr(job, one.name) for one in fields(JobInfo)}
