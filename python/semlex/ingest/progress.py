"""Progress events of long work, and its final reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.ingest.files.discovery import FileProblem
    from semlex.types.reports import EnrichmentReport


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long piece of work has come.

    Attributes:
        stage: ``read``, ``embed``, ``write``, ``enrich``, ``build indexes``, or ``build the index NAME``. Those of a
            run over files overlap: each is told of by itself.
        done: Units done.
        total: Units in all, or None while unknown. Of the chunks of files an estimate until all are read, from what
            came of the bytes so far.
        unit: ``files``, ``chunks``, ``rows`` or ``blocks`` (of a table).
    """

    stage: str
    done: int
    total: int | None
    unit: str


@dataclass(slots=True)
class IndexReport:
    """What a run did.

    Attributes:
        added: New documents.
        changed: Documents that were there and were written again.
        unchanged: Documents that were skipped.
        outdated: How many of those an older version of semlex has read or cut; `rechunk` cuts them anew.
        vanished: Name of a source -> how many of its documents, below the paths of this run, have no file any more;
            ``delete(source=…, vanished=True)`` removes them.
        failed: Files that could not be read; each is in `problems`.
        chunks: Chunks written.
        embedded: Vectors computed.
        cut: Chunks of which the model read only the beginning, as far as it reports that.
        seconds: Wall time.
        stage_seconds: How long each stage was at work: ``read``, ``compare`` (which chunks have a vector already),
            ``embed``, ``write``. They overlap.
        problems: One per failed file.
        without_text: One per file that was read and has no text, such as a scan: it is stored, and no search finds it.
        skipped: What was left out of the folders: reason (``format`` where nothing reads such files, ``ignored`` by a
            ``.gitignore`` or ``.semlexignore``, ``generated``, ``bad_text`` as `LoadOptions.on_bad_text` asks for) ->
            suffix, or name and slash of a folder -> number.
        repaired: Files in which something was no text, and was repaired.
        repaired_characters: Characters that were put for it.
        lines_kept: Chunks that were written again with the line that a language model had written about them.
        enrichment: What became of the lines that were asked for; None where none were.
        warnings: What else did not go as asked, for example an index that could not be built.
    """

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    failed: int = 0
    chunks: int = 0
    embedded: int = 0
    cut: int = 0
    seconds: float = 0.0
    problems: list[FileProblem] = field(default_factory=list)
    without_text: list[FileProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    outdated: int = 0
    vanished: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, dict[str, int]] = field(default_factory=dict)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    repaired: int = 0
    repaired_characters: int = 0
    lines_kept: int = 0
    enrichment: EnrichmentReport | None = None


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """What was deleted.

    Attributes:
        chunks: Chunks, with their vectors.
        documents: Documents of which nothing is left.
        dry_run: Whether it would have been, and nothing was.
    """

    chunks: int
    documents: int
    dry_run: bool = False


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
