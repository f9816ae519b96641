"""Jobs, and reports of long work. No input or output."""

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
    """How far a job has come, as its worker has told last.

    Attributes:
        stage: As in `Progress`.
        done: Units done.
        total: Units in all, or None while unknown.
        unit: Of what.
    """

    stage: str
    done: int
    total: int | None
    unit: str


class JobError(NamedTuple):
    """Why an attempt failed.

    Attributes:
        code: Name of the error's class.
        message: What it says.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as it was when it was read. All times are the server's.

    Attributes:
        id: Unique.
        kind: What is to be done: ``index``, ``sync``, ``add``, ``optimize``, ``rechunk``, ``embed`` or ``reembed``.
        collection: Name of the collection.
        arguments: What it is done with, without documents.
        state: ``queued``, ``running``, ``done``, ``failed`` or ``cancelled``.
        priority: A higher one goes first.
        unique_key: As it was submitted, or None.
        cancel_wanted: Whether a running job has been told to end.
        attempts: How often it was begun, as far as that counts: what a worker gives back when it is stopped does not.
        max_attempts: After so many it has failed.
        progress: How far it has come, or None.
        error: Why the last attempt failed, or None.
        result: What was done, in numbers; None until it is done. Of a job that reads files, ``problems`` has the path
            (``uri``) and ``code`` of up to 100 files that could not be read, or have no text (``no_text``).
        due_at: When a worker may take it, if it is queued; when its lease ends, if it is running.
        submitted_at: When it was submitted.
        started_at: When its last attempt began, or None.
        finished_at: When it ended, or None.
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
        """Whether nothing more will be done, unless somebody wants it to be tried again."""
        return self.state in ENDED

    def values(self) -> dict[str, Any]:
        """Every attribute of a `JobInfo` by its name."""
        return {one.name: getattr(self, one.name) for one in fields(JobInfo)}

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON's types: times are ISO 8601 texts."""
        found = self.values()
        for name in ("progress", "error"):
            found[name] = None if found[name] is None else found[name]._asdict()
        return {name: json_value(value) for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class EnrichmentEstimate:
    """What the lines that are lacking cost, by the collection's own count of tokens.

    A model counts otherwise; a price is that of its provider.

    Attributes:
        chunks: Chunks that lack a line; each is one request.
        tokens_in: Tokens that are sent, instructions included.
        tokens_out: Tokens that are kept of the answers, at most.
    """

    chunks: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class EnrichmentReport:
    """What a run that asks for lines did.

    Attributes:
        model: Model and server, in one line.
        chunks: Chunks that lacked a line when it began.
        written: Chunks that have one now.
        failed: Chunks for which the model was asked, and gave none: they stay as they are, and the next run asks again.
        left: Chunks for which it was not asked any more, because it failed for one chunk after another.
        first_failure: Why the first of them has none; None where all were written.
        usage: What the model's server counted, as far as it does.
        seconds: Wall time.
        estimate: What it would cost; None unless that was all that was asked for.
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
    """What was read of a table, and what became of it.

    Attributes:
        table: Schema and table; a collection of LangChain's `PGVector` with its table.
        layout: Which library's tables are like it; one of `LAYOUTS`.
        vector_type: ``vector`` or ``halfvec``.
        dimensions: Of the vectors that were taken; None where there are none.
        rows: Rows that were read: all of the table but those in `repeated`.
        taken: Rows that can be stored.
        written: Rows that were stored, or replaced what was stored; 0 of an inspection.
        skipped: Rows that cannot be stored.
        repeated: Earlier rows of ids that come again: the latest one counts.
        reasons: What is wrong with skipped rows: column and rule -> how often.
        problems: The same for each of them; the first 100.
        metadata_keys: Keys of the metadata that was taken, by name; at most 1,000.
        left_out: Columns that are not taken -> how many rows have something in them.
        seconds: Wall time.
        warnings: What else is to be known, for example an index that could not be built.
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
