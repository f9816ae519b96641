"""Writes docs/reference/figures.md from the kept runs; a bench's docstring gives title and text of its section."""

from __future__ import annotations

import ast
import textwrap
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benches import BENCHES, kept_runs
from benches.measuring import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benches.kept_runs import Run
    from benches.measuring import Figure

PAGE = kept_runs.ROOT / "docs" / "reference" / "figures.md"
NOTICE = "<!-- Written by `./x bench --figures`. Change the docstrings and the runs in benches/, not this page. -->"
COLUMNS = ["figure", "ours", "baseline", "ratio", "bar", "met"]
# Longer lists of figures without a bar are folded.
UNFOLDED = 10


def write() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page, as Markdown."""
    title, text = described("__init__")
    parts = [NOTICE, f"# {title}", text]
    for bench in BENCHES:
        parts += section(bench)
    return "\n\n".join(part for part in parts if part) + "\n"


@cache
def described(module: str) -> tuple[str, str]:
    """The first line of a module's docstring, and the rest."""
    source = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    title, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    return title.removesuffix("."), text


def section(bench: str) -> Iterator[str]:
    """A bench's paragraphs and tables."""
    title, text = described(bench)
    runs = kept_runs.read(bench)
    yield from (f"## {title}", text)
    if not runs:
        yield "No run is kept."
    for run in runs:
        if shown := list(tables(run, elsewhere(run, runs))):
            yield from (*shown, circumstances(run), *map(fill, run.notes))


def elsewhere(run: Run, runs: list[Run]) -> set[str]:
    """Names of figures that need not be shown with a run, because `--million` measures those of the full run again."""
    both = [one for one in runs if one.variant in {kept_runs.FULL, "million"}]
    if run not in both:
        return set()
    own = run.figures
    return {
        name
        for other in both
        if other is not run
        for name, figure in other.figures.items()
        if figure.value is not None and name in own and (own[name].value is None or other.date > run.date)
    }


def tables(run: Run, left_out: set[str]) -> Iterator[str]:
    """The tables of a run."""
    shown = {name: figure for name, figure in run.figures.items() if name not in left_out}
    folded = {name: figure for name, figure in shown.items() if figure.bar is None}
    if len(folded) <= UNFOLDED:
        folded = {}
    if first := [row(name, figure) for name, figure in shown.items() if name not in folded]:
        yield table(COLUMNS, first)
    if folded:
        yield f"<details><summary>{len(folded)} figures without a bar</summary>"
        yield table(COLUMNS, [row(name, figure) for name, figure in folded.items()])
        yield "</details>"
    for own in run.tables:
        yield fill(own.title)
        yield table(own.columns, own.rows)


def row(name: str, figure: Figure) -> list[str]:
    """A figure's cells."""
    if figure.value is None:
        return [name.strip(), "not measured", "", "", "", ""]
    ours, baseline = (
        "" if value is None else f"{number(value)} {figure.unit}".strip() for value in (figure.ours, figure.baseline)
    )
    if figure.ratio is None:
        limit = f"{figure.limit} {figure.unit}".strip() if figure.limit else ""
        return [name.strip(), ours, baseline, "", limit, figure.verdict]
    return [name.strip(), ours, baseline, f"{figure.ratio:,.3g}", figure.limit, figure.verdict]


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table as Markdown, without the columns that are empty."""
    filled = [place for place in range(len(columns)) if any(cells[place] for cells in rows)]
    lines = [[cells[place].strip().replace("|", "\\|") for place in filled] for cells in (columns, *rows)]
    head, *body = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([head, f"|{'---|' * len(filled)}", *body])


def fill(text: str) -> str:
    """A paragraph in lines of this project's width."""
    return textwrap.fill(text, 119, break_long_words=False, break_on_hyphens=False)


def circumstances(run: Run) -> str:
    """When, of what, on what machine and beside how much other work a run was taken."""
    changed = " with uncommitted changes" if run.clean is False else ""
    machine = f"{run.machine['processor']}, {run.machine['cores']} cores"
    if isinstance(run.load, str):
        when, load = f"written down by hand on {run.date[:10]}", run.load
    else:
        when = datetime.fromisoformat(run.date).strftime("%Y-%m-%d %H:%M UTC")
        load = f"load {run.load['before']:g} before, {run.load['after']:g} after"
    command = f"`{run.command}`, " if run.command else ""
    return fill(f"{command}{when}, commit {run.commit}{changed}; {machine}; {load}.")
