"""Progress events of long work, and the reports that runs return at their end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from semlex.types.answers import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semlex.errors import FieldError
    from semlex.ingest.files.discovery import FileProblem


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of long work.

    Attributes:
        stage: What is being done, such as ``read``, ``compare``, ``embed``, ``write``, ``enrich``, ``search`` or
            ``build the index NAME``. Stages of a run over files overlap; each is reported separately.
        done: Units done.
        total: Units in all; None while unknown. For chunks of files an estimate by bytes until all are read.
        unit: What is counted, such as ``files``, ``chunks``, ``rows``, ``queries`` or ``blocks`` (of a table).
    """

    stage: str
    done: int
    total: int | None
    unit: str


def show_progress(
    progress: Callable[[Progress], None] | None, stage: str, done: int, total: int | None, unit: str
) -> None:
    """Call `progress` with a new event; without `progress`, do nothing."""
    if progress is not None:
        progress(Progress(stage, done, total, unit))


@dataclass(slots=True)
class IndexReport:
    """The result of a run that indexed or split files.

    Attributes:
        added: New documents.
        changed: Documents that were written again.
        unchanged: Documents that were skipped.
        outdated: Unchanged documents that were read or split by an older semlex, or with other chunk settings;
            `rechunk` splits them again.
        vanished: Source -> number of documents below the paths of this run whose file is gone; ``delete(source=…,
            vanished=True)`` removes these documents.
        failed: Files that could not be read, listed in `problems`.
        chunks: Chunks written.
        embedded: Vectors computed.
        cut: Chunks that exceeded the model's limit, if the model counts them; only their beginning is embedded.
        seconds: Wall time.
        stage_seconds: Time of each stage: ``read``, ``compare`` (which chunks have a vector), ``embed``, ``write``.
            They overlap.
        without_text: Files without text, such as scans: they are stored, and no search finds them.
        skipped: Files left out: reason (``format``, ``ignored`` by an ignore file, ``generated``, ``bad_text``) ->
            suffix, or name of a folder with a slash -> number.
        repaired: Files with replaced characters.
        repaired_characters: Number of replaced characters.
        lines_kept: Rewritten chunks that kept their description.
        enrichment: Result of the chunk descriptions, or None if none were requested.
        warnings: Problems that did not end the run, such as an index that could not be built.
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
    """The result of a deletion: how many chunks were deleted, and how many documents have no chunk left."""

    chunks: int
    documents: int
    dry_run: bool = False


@dataclass(frozen=True, slots=True, order=True)
class DocumentName:
    """The name of a document: its source, and the path of its file below the source's folder."""

    source: str
    source_document: str


@dataclass(frozen=True, slots=True, order=True)
class MovedDocument:
    """A document whose file has a new name and the same bytes; paths are below the source's folder."""

    source: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The differences between folders and a collection.

    Attributes:
        added: Files without a document.
        changed: Files with new bytes.
        moved: Documents whose file has a new name.
        deleted: Documents without a file, to be deleted.
        kept: Documents without a file that stay, because `keep_deleted` is set.
        left_out: Documents whose file is now excluded by a pattern or an ignore file. They stay.
        unchanged: Number of unchanged documents.
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
        """Return the plan in numbers."""
        return SyncCounts(len(self.added), len(self.changed), len(self.moved), len(self.deleted), self.unchanged)


@dataclass(frozen=True, slots=True)
class SyncCounts:
    """The numbers of documents in each group of a `SyncPlan`."""

    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0


@dataclass(slots=True)
class SyncReport:
    """The result of a synchronisation.

    Attributes:
        done: What was done; all 0 with `dry_run`.
        differs: Whether the result differs from the plan, because a file could not be read or has changed since.
        run: Chunks, vectors, problems and warnings of the run.
        watched_by: ``events`` of the system or ``polling`` while folders are watched, else None.
    """

    plan: SyncPlan
    done: SyncCounts = field(default_factory=SyncCounts)
    differs: bool = False
    run: IndexReport = field(default_factory=IndexReport)
    dry_run: bool = False
    watched_by: Literal["events", "polling"] | None = None


@dataclass(frozen=True, slots=True)
class EnrichmentEstimate:
    """Estimated cost of the missing chunk descriptions, in tokens as the collection counts them (not the model).

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
    """The result of a run in which a language model was asked for chunk descriptions.

    Attributes:
        chunks: Chunks without a description when the run began.
        written: Chunks that got a description.
        failed: Chunks for which the model gave no description; the next run asks again.
        left: Chunks that were not tried, because the model failed for one chunk after another.
        first_failure: Why the first failed chunk has no description, or None.
        usage: Tokens read and written, as the model's server reports them.
        estimate: The estimated cost; None unless only an estimate was requested.
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
    """The result of an import of another library's table.

    Attributes:
        table: Schema and table; for LangChain's `PGVector`, also the name of its collection.
        layout: The kind of table, named after the library that made it; one of `LAYOUTS`.
        vector_type: ``vector`` or ``halfvec``.
        rows: Rows that were read; only the last row of a repeated id counts.
        repeated: Earlier rows of repeated ids, which are ignored.
        taken: Rows that can be stored.
        written: Rows that were stored; 0 for an inspection.
        skipped: Rows that cannot be stored.
        reasons: Why rows were skipped: column and rule -> how often.
        problems: The first 100 problems.
        metadata_keys: Keys of the metadata of the rows that can be stored; at most 1,000.
        left_out: Columns that are not imported -> number of rows with a value in that column.
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
