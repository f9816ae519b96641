"""Reports of long operations. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semlex.types.answers import Usage

if TYPE_CHECKING:
    from semlex.errors import FieldError


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
        left_out: Columns that are left out -> number of rows with a value in them.
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
