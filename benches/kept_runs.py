"""The newest run of each bench and variant, in `benches/results/NAME.json`."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benches.measuring import Figure, Table, machine, versions

if TYPE_CHECKING:
    from benches.measuring import Bench

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
FULL = "full"
# Keeping a run changes these, which must not make the next run's tree look changed.
WRITTEN = ("benches/results", "docs/reference/figures.md")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a bench, with all that is needed to judge and to repeat it.

    Attributes:
        bench: Its name.
        variant: "full", or the options that make it another measurement, such as "quick" or "million".
        command: What was typed.
        taken: Whether the bench wrote this file, or somebody copied figures into it.
        date: When it began, UTC, ISO 8601.
        commit: The commit, short.
        clean: Whether the code was that of the commit; None if nobody knows.
        machine: System, processor, cores.
        load: Mean number of busy processes in the minute "before" the run and in its last minute ("after"). In words
            if the figures were copied.
        versions: Of Python and of packages.
        figures: By name.
        tables: Results that are not one value each.
        notes: What the figures of this run mean, as Markdown.
    """

    bench: str
    variant: str
    command: str
    taken: Literal["by the bench", "by hand"]
    date: str
    commit: str
    clean: bool | None
    machine: dict[str, Any]
    load: dict[str, float] | str
    versions: dict[str, str]
    figures: dict[str, Figure]
    tables: list[Table]
    notes: list[str]


class Recording:
    """Notes the circumstances of a run when it begins.

    Args:
        variant: Of the run.
        command: Of the run.
    """

    def __init__(self, variant: str, command: str) -> None:
        self._variant, self._command = variant, command
        self._date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
        self._commit = _git("rev-parse", "--short", "HEAD") or "unknown"
        changed = _git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN))
        self._clean = None if changed is None else not changed
        self._load = os.getloadavg()[0]

    def run(self, bench: Bench) -> Run:
        """The run, when it has ended."""
        return Run(
            bench=bench.name,
            variant=self._variant,
            command=self._command,
            taken="by the bench",
            date=self._date,
            commit=self._commit,
            clean=self._clean,
            machine=machine(),
            load={"before": round(self._load, 2), "after": round(os.getloadavg()[0], 2)},
            versions=versions(),
            figures=bench.figures,
            tables=bench.tables,
            notes=[],
        )


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def read(bench: str) -> list[Run]:
    """The kept runs of a bench, the full one first."""
    path = RESULTS / f"{bench}.json"
    if not path.exists():
        return []
    return [
        Run(
            **fields
            | {
                "figures": {name: Figure(**figure) for name, figure in fields["figures"].items()},
                "tables": [Table(**table) for table in fields["tables"]],
            }
        )
        for fields in json.loads(path.read_text(encoding="utf-8"))
    ]


def obstacle(run: Run) -> str | None:
    """Why a run must not be kept; None if it may be."""
    measured = {name for name, figure in run.figures.items() if figure.value is not None}
    if not measured:
        return "it measured nothing"
    for kept in read(run.bench):
        if kept.variant == run.variant:
            lost = [
                name
                for name, figure in kept.figures.items()
                if figure.value is not None and name in run.figures and name not in measured
            ]
            if lost:
                return f"it could not measure what the kept run did: {', '.join(lost)}"
    return None


def keep(run: Run) -> Path:
    """Puts a run in the place of the one of the same variant; the file changes at once or not at all."""
    runs = [kept for kept in read(run.bench) if kept.variant != run.variant] + [run]
    runs.sort(key=lambda one: (one.variant != FULL, one.variant))
    path, part = RESULTS / f"{run.bench}.json", RESULTS / f"{run.bench}.json.part"
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps([asdict(one) for one in runs], indent=1, ensure_ascii=False, allow_nan=False)
    try:
        part.write_text(f"{text}\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
