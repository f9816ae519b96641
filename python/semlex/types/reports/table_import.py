"""What became of the rows of another library's table. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semlex.errors import FieldError

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
