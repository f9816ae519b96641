"""What a sync of a followed table notes about rows: claimed, changed again, gone, unchanged or failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.store.followed.queue import Change, FailedRow


@dataclass(slots=True)
class RunNotes:
    """What one sync of a followed table has noted about rows, by their keys."""

    claimed: dict[str, list[Change]] = field(default_factory=dict)  # entries of the queue that the run has claimed
    again: dict[str, None] = field(default_factory=dict)  # rows that changed while they were read, to be read again
    # Rows that are not in the table, whose documents are to be deleted.
    gone: dict[str, None] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)  # rows that are stored unchanged
    failed: dict[str, FailedRow] = field(default_factory=dict)  # rows that could not be stored, to be set aside
    has_problems: bool = False  # whether rows were set aside, by this run or before it

    def claim(self, changes: Iterable[Change]) -> None:
        """Note claimed entries of single rows."""
        for change in changes:
            if change.row_key is not None:
                self.claimed.setdefault(change.row_key, []).append(change)

    def claims_of(self, keys: Sequence[str]) -> list[Change]:
        """Return the claimed entries of rows."""
        return [change for key in keys for change in self.claimed.get(key, ())]

    def fail(self, rows: Iterable[FailedRow]) -> None:
        """Note rows that could not be stored."""
        self.failed |= {row.row_key: row for row in rows}
