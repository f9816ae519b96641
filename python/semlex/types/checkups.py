"""Findings of a diagnosis, and the result of a checkup of how well a collection can be searched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from semlex.types.display import joined, notes, paragraph, table, text
from semlex.types.documents import json_object

Severity = Literal["error", "warning", "hint"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a diagnosis found, with its remedy.

    Attributes:
        code: Its name, stable from version to version.
        severity: ``error``: something does not work, or answers are wrong. ``warning``: it will fail, or could be
            better. ``hint``: worth knowing.
        where: Its subject, such as ``collection handbook of schema semlex``; with `what` it is a sentence.
        command: A command line, or SQL for the owner of the tables, that carries out the remedy, or None.
    """

    code: str
    severity: Severity
    where: str
    what: str
    remedy: str
    command: str | None = None

    @property
    def sentence(self) -> str:
        """Return the finding with its remedy and command on one line."""
        return f"{self.where} {self.what}; {self.remedy}" + ("" if self.command is None else f": {self.command}")


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A check that could not be made here, and why not."""

    check: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What a check is based on: a measured figure, or how many rows it has read."""

    check: str
    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong (errors first, hints last), what was not checked, and what was sampled or measured."""

    server: str  # host, port, database and user
    schema: str
    collections: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    looked_at: tuple[Looked, ...]

    @property
    def is_well(self) -> bool:
        """Return whether all findings are hints."""
        return all(finding.severity == "hint" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a dict."""
        return asdict(self) | {"is_well": self.is_well}


def by_severity(findings: list[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, errors first; findings of one severity keep their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def of_collection(schema: str, collection: str) -> str:
    """Return the name of a collection as findings show it."""
    return f"collection {collection} of schema {schema}"


CheckupCode = Literal["duplicate", "no_shared_word", "below_top_k", "beyond_vector_depth", "beyond_keyword_depth"]
"""Why a heading does not find its section: a `WhyCode`, or ``duplicate``: another chunk has the same text."""


MAX_SAMPLE = 100_000
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the headings find their section.

    Attributes:
        share: 0 to 1; 0 if none was searched.
        interval: 95 % interval of the share (Wilson), for headings drawn from the same documents.
    """

    found: int
    asked: int
    share: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many headings were not searched, by reason."""

    repeated: int = 0  # three or more sections have them
    wide: int = 0  # more than 12 chunks are below them
    wordless: int = 0  # they have no word that could be asked
    without_docstring: int = 0  # definitions of source code
    empty: int = 0  # nothing is left below them without the heading
    not_drawn: int = 0  # not in the sample


@dataclass(frozen=True, slots=True)
class AskedHeading:
    """A heading that was searched.

    Attributes:
        path: The heading itself and those above it, outermost first.
        chunk_id: The chunk of the section with the best rank.
        rank: The rank of that chunk, from 1; None if it is not a candidate.
        code: Why the section is not among the first hits; None if it is.
        before: Documents of the hits that rank before the section, best first; up to `Checkup.top`.
    """

    heading: str
    path: tuple[str, ...]
    chunk_id: str
    rank: int | None
    code: CheckupCode | None
    before: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentCheckup:
    """A document whose headings were searched; source and document are "" if its chunks name none."""

    source: str
    document: str
    chunks: int
    headings: tuple[AskedHeading, ...]

    @property
    def missed(self) -> tuple[AskedHeading, ...]:
        """Return the headings whose section was not among the hits when they were searched for."""
        return tuple(one for one in self.headings if one.code is not None)

    @property
    def is_never_found(self) -> bool:
        """Return whether searches for the document's headings found none of its sections."""
        return len(self.missed) == len(self.headings)


@dataclass(frozen=True, slots=True)
class Dominating:
    """A document that headings of other documents find far more often than its size suggests."""

    source: str
    document: str
    hits: int  # its chunks among the first hits of other documents' headings
    share: float  # of all such hits, 0 to 1
    expected: float  # its share of all chunks, 0 to 1


@dataclass(frozen=True, slots=True)
class Checkup:
    """How well a collection can be searched, measured by using its headings as queries.

    Attributes:
        mode: ``hybrid``, ``keyword`` or ``vector``.
        top: A section counts as found if it is among this many first hits.
        with_duplicates: The result if a chunk with the same text counts as found.
        ranks: Share found among the first 1, 3, 5 and 10.
        reasons: Code -> how many headings do not find their section for that reason.
        documents: Documents of which a heading was searched; those never found come first.
        alone: Share that ``vector`` and ``keyword`` search find alone; empty unless both were searched.
        embedded: Chunks that were embedded again.
        seed: Seed of the sample.
    """

    collection: str
    mode: str
    model: str | None
    top: int
    headings: int
    chunks: int
    left_out: LeftOut
    result: Share
    with_duplicates: Share
    ranks: dict[int, float]
    reasons: dict[CheckupCode, int]
    documents: tuple[DocumentCheckup, ...]
    dominating: tuple[Dominating, ...]
    alone: dict[str, float]
    embedded: int
    seconds: float
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the result as a sentence."""
        first = {1: "first hit", 3: "first three hits"}.get(self.top, f"first {self.top} hits")
        share = f"{100 * self.result.share:.0f} %"
        return f"{share} of the headings, asked as questions, find their own section in the {first}"

    def __repr__(self) -> str:
        low, high = self.result.interval
        interval = f"{self.result.found:,} of {self.result.asked:,}; 95 % interval {low:.0%} to {high:.0%}"
        return f"Checkup of {self.collection!r}, {self.mode}: {self.sentence} ({interval})"

    def _repr_html_(self) -> str:
        rows = [
            [text(one.document), text(f"{len(one.missed):,} of {len(one.headings):,}"), text(one.missed[0].heading)]
            for one in self.documents
            if one.missed
        ]
        missed = [table(["document", "headings missed", "for example"], rows)] if rows else []
        return joined([paragraph(text(repr(self))), *missed, notes(self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return the checkup as JSON values."""
        values = json_object(self)
        return values | {"ranks": {str(depth): share for depth, share in values["ranks"].items()}}
