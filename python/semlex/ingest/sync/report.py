"""What is to be done so that a collection holds what a folder holds, and what was done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from semlex.ingest.progress import IndexReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.ingest.files.discovery import FileProblem


@dataclass(frozen=True, slots=True, order=True)
class DocumentName:
    """Which document.

    Attributes:
        source: Name of its source.
        uri: Path below the folder of the source.
    """

    source: str
    uri: str


@dataclass(frozen=True, slots=True, order=True)
class MovedDocument:
    """A document whose file has another name now, and the same bytes.

    Attributes:
        source: Name of its source.
        old: Path below the folder of the source, as it was.
        new: Path as it is now.
    """

    source: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What is different between folders and a collection.

    Attributes:
        added: Files of which there is no document.
        changed: Files with other bytes than were read.
        moved: Documents whose file has another name.
        deleted: Documents that have no file any more, and are to be deleted.
        kept: Documents that have no file any more, and are to stay.
        left_out: Documents whose file is there, but is not among those that are read now: left out by a pattern or an
            ignore file. They stay.
        unchanged: Number of documents whose file is what was read.
        skipped: As in `IndexReport`.
        problems: Files that cannot be read; their documents stay.
    """

    added: Sequence[DocumentName] = ()
    changed: Sequence[DocumentName] = ()
    moved: Sequence[MovedDocument] = ()
    deleted: Sequence[DocumentName] = ()
    kept: Sequence[DocumentName] = ()
    left_out: Sequence[DocumentName] = ()
    unchanged: int = 0
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    problems: Sequence[FileProblem] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.added or self.changed or self.moved or self.deleted)

    def counts(self) -> SyncCounts:
        """The plan in numbers."""
        return SyncCounts(len(self.added), len(self.changed), len(self.moved), len(self.deleted), self.unchanged)


@dataclass(frozen=True, slots=True)
class SyncCounts:
    """Numbers of documents.

    Attributes:
        added: New ones.
        changed: Those that were there and were written again.
        moved: Those that have another name.
        deleted: Those that are gone.
        unchanged: Those that stayed what they were.
    """

    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0


@dataclass(slots=True)
class SyncReport:
    """What was to be done, and what was done.

    Attributes:
        plan: What was different.
        done: What was done; all 0 where the plan alone was asked for.
        differs: Whether that is not what was planned, because a file could not be read, or changed meanwhile.
        run: Chunks, vectors, problems and warnings of the run.
        dry_run: Whether the plan alone was asked for.
        watched_by: What tells of changes while folders are watched: ``events`` of the system, or ``polling``; None
            where they are not watched.
    """

    plan: SyncPlan
    done: SyncCounts = field(default_factory=SyncCounts)
    differs: bool = False
    run: IndexReport = field(default_factory=IndexReport)
    dry_run: bool = False
    watched_by: Literal["events", "polling"] | None = None
