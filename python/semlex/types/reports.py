"""Jobs, and the reports of long operations. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from semlex.types.answers import Usage
from semlex.types.documents import json_value

if TYPE_CHECKING:
    from datetime import datetime

    from semlex.errors import FieldError


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
    """A job as it was when it was read. All times are the server's.

    Attributes:
        kind: ``index``, ``sync``, ``add``, ``optimize``, ``rechunk``, ``embed`` or ``reembed``.
        arguments: Its arguments, without documents.
        state: ``queued``, ``running``, ``done``, ``failed`` or ``cancelled``.
        priority: Jobs with a higher priority run first.
        cancel_wanted: Whether a running job was asked to end.
        attempts: How often a worker started it; starts that a stopping worker gave back do not count.
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

    def values(self) -> dict[str, Any]:
        """Return every attribute of a `JobInfo` by its name."""
        return {one.name: getattr(self, one.name) for one in fields(JobInfo)}

    def to_dict(self) -> dict[str, Any]:
        """Return the job as JSON values: times are ISO 8601 texts."""
        found = self.values()
        for name in ("progress", "error"):
            found[name] = None if found[name] is None else found[name]._asdict()
        return {name: json_value(value) for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class EnrichmentEstimate:
    """What the missing chunk descriptions would cost, in tokens as the collection counts them (not the model).

    Attributes:
        chunks: Chunks without a description; each is one request.
        tokens_in: Tokens that are sent, instructions included.
        tokens_out: Maximum tokens of the stored descriptions.
    """

    chunks: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class EnrichmentReport:
    """What a run did that asked a language model for chunk descriptions.

    Attributes:
        chunks: Chunks without a description when it began.
        written: Chunks that have one now.
        failed: Chunks for which the model gave no description; the next run asks again.
        left: Chunks that were not tried, because the model failed for one chunk after another.
        first_failure: Why the first of these has no description, or None.
        usage: What the model's server counted.
        estimate: What the run would cost; None unless only that was requested.
    """

    model: str
    chunks: int
    written: int = 0
    failed: int = 0
    left: int = 0
    first_failure: str | None = None
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    seconds: float = 0.0
    estimate: EnrichmentEstimate | None = None


MAX_PROBLEMS = 100
MAX_KEYS = 1_000


@dataclass(slots=True)
class TableImport:
    """What an import of another library's table read and stored.

    Attributes:
        table: Schema and table; a collection of LangChain's `PGVector` with its table.
        layout: The library whose tables are like it; one of `LAYOUTS`.
        vector_type: ``vector`` or ``halfvec``.
        rows: Rows that were read, without `repeated`: earlier rows of ids that occur again (the latest one counts).
        taken, written, skipped: Rows that can be stored, that were stored (0 for an inspection), and that cannot be.
        reasons, problems: What is wrong with skipped rows: column and rule -> how often; and each of the first 100.
        metadata_keys: Keys of the metadata that was taken; at most 1,000.
        left_out: Columns that are not taken -> how many rows have something in them.
    """

    table: str
    layout: str
    vector_type: str
    dimensions: int | None = None
    rows: int = 0
    taken: int = 0
    written: int = 0
    skipped: int = 0
    repeated: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    problems: list[FieldError] = field(default_factory=list)
    metadata_keys: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
