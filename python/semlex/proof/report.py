"""The report of a proof: what was tried, what was found, and on what."""

from __future__ import annotations

import os
import platform
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from semlex.proof.embedder import STATEMENT
from semlex.proof.faults import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.proof.faults import Fault

MAX_FAULTS = 20  # of a scenario that are written down


@dataclass
class ScenarioReport:
    """What one scenario did.

    Attributes:
        tries: Rounds or calls that were checked.
        kills: Number of processes killed, servers crashed and connections ended.
        found: Faults by their kind.
        seconds: Time that it took; scenarios run beside each other.
        notes: Other figures, by their names.
        faults: The first faults: their kind, what was found, and in which try.
    """

    name: str
    what: str
    tries: int = 0
    kills: int = 0
    found: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def add_fault(self, fault: Fault, seed: str) -> None:
        """Count a fault, and write it down."""
        self.found[fault.kind] += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append({"kind": fault.kind, "what": fault.what, "try": self.tries, "seed": seed})

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "name": self.name,
            "what": self.what,
            "tries": self.tries,
            "kills": self.kills,
            **{kind: self.found[kind] for kind in KINDS},
            "seconds": round(self.seconds, 1),
            "notes": dict(sorted(self.notes.items())),
            "faults": self.faults,
        }


@dataclass
class ProofReport:
    """What a proof did, on what, and with which result."""

    server: str
    facts: dict[str, str]
    seed: int
    scenarios: list[ScenarioReport]
    not_run: dict[str, str]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def faults(self) -> int:
        """Number of tries in which data was lost, doubled or wrong, or a call hung."""
        return sum(one.found.total() for one in self.scenarios)

    @property
    def tries(self) -> int:
        """All tries."""
        return sum(one.tries for one in self.scenarios)

    @property
    def kills(self) -> int:
        """Number of processes killed, servers crashed and connections ended."""
        return sum(one.kills for one in self.scenarios)

    @property
    def passed(self) -> bool:
        """Whether at least one try ran, and no fault was found."""
        return self.faults == 0 and self.tries > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "passed": self.passed,
            "interrupted": self.interrupted,
            "seed": self.seed,
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "tries": self.tries,
            "kills": self.kills,
            "kills_per_minute": round(60 * self.kills / self.seconds, 1) if self.seconds else 0.0,
            **{kind: sum(one.found[kind] for one in self.scenarios) for kind in KINDS},
            "server": self.server,
            "vectors": STATEMENT,
            "versions": versions() | self.facts,
            "scenarios": [one.to_dict() for one in self.scenarios],
            "not_run": self.not_run,
        }


def verdict(report: Mapping[str, Any]) -> str:
    """Return the result of a report (`ProofReport.to_dict`) in words."""
    if any(report[kind] for kind in KINDS):
        return "failed"
    if report["interrupted"]:
        return "interrupted, no fault so far"
    return "passed" if report["passed"] else "failed"


def versions() -> dict[str, str]:
    """Return versions of this machine's programs."""
    return {
        "semlex": version("semlex"),
        "python": platform.python_version(),
        "psycopg": version("psycopg"),
        "platform": platform.platform(),
        "cores": str(os.cpu_count() or 1),
    }
