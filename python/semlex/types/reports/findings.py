"""What a diagnosis finds: findings with what helps, what was not checked, and what was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

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
