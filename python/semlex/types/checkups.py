"""What a diagnosis finds, and how well a collection can be searched. No input or output."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from semlex.types.display import joined, notes, paragraph, table, text
from semlex.types.documents import json_value

Severity = Literal["error", "warning", "hint"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        code: Its name, stable from version to version.
        severity: ``error``: something does not work, or answers are wrong. ``warning``: it will fail, or is worse than
            it could be. ``hint``: worth knowing.
        where: What it is about, such as ``collection handbook of schema semlex``; with `what` it is a sentence.
        what: What was found.
        remedy: What helps.
        command: A command line, or SQL for the owner of the tables, that does it; None where there is none.
    """

    code: str
    severity: Severity
    where: str
    what: str
    remedy: str
    command: str | None = None

    @property
    def sentence(self) -> str:
        """All of it on one line."""
        return f"{self.where} {self.what}; {self.remedy}" + ("" if self.command is None else f": {self.command}")


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A check that could not be made here.

    Attributes:
        check: Its name.
        where: What it would have been about.
        reason: Why not, and what would make it possible.
    """

    check: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What a check has looked at, where that was a sample or gave a figure.

    Attributes:
        check: Its name.
        where: What it is about.
        what: How much of it, and the figure.
    """

    check: str
    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, and what was not looked at.

    Attributes:
        server: Host, port, database and user.
        schema: Schema of the collections.
        collections: Names of the collections that were looked at.
        findings: Errors first, then warnings, then hints.
        not_checked: Checks that could not be made.
        looked_at: What was a sample, and what was measured.
    """

    server: str
    schema: str
    collections: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    looked_at: tuple[Looked, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing but hints was found."""
        return all(finding.severity == "hint" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        return asdict(self) | {"is_well": self.is_well}


def by_severity(findings: list[Finding]) -> tuple[Finding, ...]:
    """Errors first; of one severity in the order that they have."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def of_collection(schema: str, collection: str) -> str:
    """How findings name a collection."""
    return f"collection {collection} of schema {schema}"


CheckupCode = Literal["duplicate", "no_shared_word", "below_top_k", "beyond_vector_depth", "beyond_keyword_depth"]
"""Why a heading does not find its section; those of `WhyCode` but ``duplicate``: the same text stands elsewhere."""


MAX_SAMPLE = 100_000
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the headings find their section.

    Attributes:
        found: So many do.
        asked: Of so many.
        share: 0 to 1; 0 where none was asked.
        interval: 95 % interval of the share (Wilson), of headings drawn from the same documents.
    """

    found: int
    asked: int
    share: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Headings that were not asked.

    Attributes:
        repeated: Three or more sections have them.
        wide: There are more than 12 chunks under them.
        wordless: There is no word in them that could be asked.
        without_docstring: Definitions of source code that have none.
        empty: Nothing is left under them without the heading.
        not_drawn: Could have been asked, and are not in the sample.
    """

    repeated: int = 0
    wide: int = 0
    wordless: int = 0
    without_docstring: int = 0
    empty: int = 0
    not_drawn: int = 0


@dataclass(frozen=True, slots=True)
class AskedHeading:
    """A heading that was asked.

    Attributes:
        heading: As it was asked.
        path: The headings above and itself, outermost first.
        chunk_id: Of the section's chunk that came farthest.
        rank: Its place, from 1; None where it is no candidate.
        code: Why it is not among the first hits; None where it is.
        before: Names of the documents of the first hits that are not the section's, best first.
    """

    heading: str
    path: tuple[str, ...]
    chunk_id: str
    rank: int | None
    code: CheckupCode | None
    before: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentCheckup:
    """A document whose headings were asked.

    Attributes:
        source: Name of its source; "" for what was added.
        document: Its name; "" where it has none.
        chunks: How many it has.
        headings: Those that were asked.
    """

    source: str
    document: str
    chunks: int
    headings: tuple[AskedHeading, ...]

    @property
    def missed(self) -> tuple[AskedHeading, ...]:
        """The headings that do not find their section."""
        return tuple(one for one in self.headings if one.code is not None)

    @property
    def is_never_found(self) -> bool:
        """Whether no heading finds its section."""
        return len(self.missed) == len(self.headings)


@dataclass(frozen=True, slots=True)
class Dominating:
    """A document that is found far more often than its size lets expect, where another one was asked for.

    Attributes:
        source: Name of its source.
        document: Its name.
        hits: So many of the first hits of other documents' headings are its chunks.
        share: Of all such hits, 0 to 1.
        expected: Its share of all chunks, 0 to 1.
    """

    source: str
    document: str
    hits: int
    share: float
    expected: float


@dataclass(frozen=True, slots=True)
class WeightCheckup:
    """What another weight of the vectors would change, by the same candidates.

    Attributes:
        default: The weight in use.
        best: The one that finds the most.
        curve: Weight -> share found.
        words: Share found by words alone.
        vectors: Share found by vectors alone.
        gain: Share found more by headings that did not choose the weight (five parts, each by the others' choice).
        interval: 95 % interval of the gain.
        keep: Whether the advice is to change nothing: the interval reaches 0, or fewer than 30 headings were asked.
    """

    default: float
    best: float
    curve: dict[float, float]
    words: float
    vectors: float
    gain: float
    interval: tuple[float, float]
    keep: bool


@dataclass(frozen=True, slots=True)
class Checkup:
    """How well a collection can be searched, by its own headings.

    Attributes:
        collection: Its name.
        mode: ``hybrid``, ``keyword`` or ``vector``: what was searched by.
        model: Of the vectors, or None.
        top: So many first hits count.
        headings: How many there are.
        chunks: How many chunks there are.
        left_out: Headings that were not asked, and why.
        result: How many find their section.
        with_duplicates: The same, where a chunk with the same text counts as found.
        ranks: Share found among the first 1, 3, 5 and 10.
        reasons: Code -> how many headings do not find their section for that reason.
        documents: Those of which a heading was asked: first those of which none finds its section.
        dominating: Documents that outrank the rest.
        weight: What another weight would change; None unless both words and vectors were searched.
        embedded: Chunks that were embedded anew.
        seconds: It took.
        seed: Of the sample.
        notes: What a reader of the figures must know.
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
    weight: WeightCheckup | None
    embedded: int
    seconds: float
    seed: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """How many headings find their section, in a sentence."""
        found = f"{self.result.found:,} of {self.result.asked:,} headings find their section"
        low, high = self.result.interval
        share = f"{self.result.share:.0%} (95 % interval {low:.0%} to {high:.0%})"
        return f"Checkup of {self.collection!r}, {self.mode}: {found} among the first {self.top}: {share}"

    def _repr_html_(self) -> str:
        """The sentence, and a table of the documents with headings that do not find theirs, which notebooks show."""
        rows = [
            [text(one.document), text(f"{len(one.missed):,} of {len(one.headings):,}"), text(one.missed[0].heading)]
            for one in self.documents
            if one.missed
        ]
        missed = [table(["document", "headings missed", "for example"], rows)] if rows else []
        return joined([paragraph(text(repr(self))), *missed, notes(self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        values: dict[str, Any] = json_value(self)
        weight: dict[str, Any] | None = values["weight"]
        if weight is not None:
            weight["curve"] = {f"{at:.2f}": share for at, share in weight["curve"].items()}
        return values | {"ranks": {str(depth): share for depth, share in values["ranks"].items()}}
