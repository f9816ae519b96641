"""The report of a proof: what was tried on which server, and what was found; also as one HTML page."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any

from semlex.proof.check import KINDS, Fault
from semlex.proof.texts import STATEMENT

MAX_FAULTS = 20  # of a scenario that are written down


@dataclass
class ScenarioReport:
    """The result of one scenario.

    Attributes:
        tries: Rounds or calls that were checked.
        kills: Number of processes killed, servers crashed and connections ended.
        found: Number of faults of each kind.
        seconds: Time that it took; scenarios run at the same time.
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
    """The result of a proof: its server, and what its scenarios found."""

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
        """Number of all tries."""
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


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { padding: .3em .6em; border-bottom: 1px solid #ddd }
th { text-align: left } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.bad { background: #fdd; font-weight: bold } .passed { color: #060 } .failed { color: #a00 }
small { color: #666 } pre { background: #f6f6f6; padding: .6em; overflow: auto }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd } th, td { border-color: #444 } td.bad { background: #622 }
  .passed { color: #7c7 } .failed { color: #f88 } small { color: #999 } pre { background: #222 }
}
"""


def html_page(report: Mapping[str, Any]) -> str:
    """Return the page of a report (`ProofReport.to_dict`); it is self-contained."""
    result, style = verdict(report), "passed" if report["passed"] else "failed"
    minutes = report["seconds"] / 60
    summary = (
        f"<p>{report['tries']:,} tries in {minutes:.1f} minutes, {report['kills']:,} kills, crashes and "
        f"ended connections ({report['kills_per_minute']:g} a minute). Seed {report['seed']}, "
        f"{escape(report['started'])}.</p>"
    )
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>semlex prove: {result}</title>",
        f"<style>{STYLE}</style>",
        f"<h1>semlex prove: <span class={style}>{result}</span></h1>",
        summary,
        _table(report["scenarios"]),
        *(_faults(one) for one in report["scenarios"] if one["faults"]),
    ]
    if report["not_run"]:
        rows = "".join(f"<li>{escape(name)}: {escape(why)}" for name, why in report["not_run"].items())
        parts.append(f"<h2>Not run</h2><ul>{rows}</ul>")
    facts = {"server": report["server"], **report["versions"], "vectors": report["vectors"]}
    rows = "".join(f"<tr><th>{escape(name)}<td>{escape(str(value))}" for name, value in facts.items())
    parts.append(f"<h2>Server and machine</h2><table>{rows}</table></html>")
    return "\n".join(parts)


def _table(scenarios: Iterable[Mapping[str, Any]]) -> str:
    heads = "".join(f"<th class=n>{name}" for name in ("tries", "kills", *KINDS, "seconds"))
    rows = []
    for one in scenarios:
        notes = "; ".join(f"{name}: {count:,}" for name, count in one["notes"].items())
        numbers = f"<td class=n>{one['tries']:,}<td class=n>{one['kills']:,}"
        numbers += "".join(f'<td class="n{" bad" if one[kind] else ""}">{one[kind]:,}' for kind in KINDS)
        small = f"<br><small>{escape(notes)}</small>" if notes else ""
        name = f"<b>{escape(one['name'])}</b><br>{escape(one['what'])}{small}"
        rows.append(f"<tr><td>{name}{numbers}<td class=n>{one['seconds']:,.0f}")
    return f"<table><tr><th>scenario{heads}{''.join(rows)}</table>"


def _faults(scenario: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<li>{escape(one['kind'])} in try {one['try']:,} (seed {escape(one['seed'])})<pre>{escape(one['what'])}</pre>"
        for one in scenario["faults"]
    )
    return f"<h2>{escape(scenario['name'])}</h2><ul>{rows}</ul>"
