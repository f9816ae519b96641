"""The figures of other libraries that the comparison shows, from the page of figures."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate.markdown import table

FIGURES = Path(__file__).parent.parent / "reference" / "figures.md"
FIRST, SECOND = r"^([\d.,]*\d)", r"^[\d.,]+, ([\d.]+)"  # number of a cell
# A column of the page of figures -> the number that is taken from its cells, and the heading in the comparison.
COLUMNS = {
    "p50, p95": (FIRST, "one search, median (ms)"),
    "8 at once: searches/s": (FIRST, "8 at once: searches/s"),
    "rows/s until indexed": (FIRST, "rows loaded and indexed per s"),
    "disk": (FIRST, "disk (MiB)"),
    "keeps 1/10": (SECOND, "recall@10, filter keeps 1/10"),
    "far": (SECOND, "recall@10, filter far from the query"),
    "scifact-sub": (FIRST, "nDCG@10, scifact (part)"),
}
# What the first page of the project shows.
SHORT = {"semlex", "SQL by hand, all words", "langchain-postgres", "LlamaIndex", "LanceDB", "Qdrant Edge"}
SHORT_COLUMNS = ("p50, p95", "far", "scifact-sub")


def peers() -> str:
    """Return a row for each library, with the first measurement of each column."""
    return _table(_figures(), tuple(COLUMNS))


def in_short() -> str:
    """Return some of the rows and columns."""
    return _table({name: cells for name, cells in _figures().items() if name in SHORT}, SHORT_COLUMNS)


def _figures() -> dict[str, dict[str, str]]:
    section = FIGURES.read_text(encoding="utf-8").split("\n## Beside other libraries\n")[1].split("\n## ")[0]
    found: dict[str, dict[str, str]] = {}
    for lines in re.findall(r"^\|.*?(?=^$|\Z)", section, re.DOTALL | re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines.splitlines()]
        for name, *cells in rows:
            for column, cell in zip(head[1:], cells, strict=True):
                found.setdefault(name, {}).setdefault(column, cell)
    return {name: cells for name, cells in found.items() if COLUMNS.keys() <= cells.keys()}


def _table(figures: dict[str, dict[str, str]], columns: tuple[str, ...]) -> str:
    return table(
        ["", *(COLUMNS[column][1] for column in columns)],
        [[name, *(_part(cells[column], COLUMNS[column][0]) for column in columns)] for name, cells in figures.items()],
    )


def _part(cell: str, pattern: str) -> str:
    match = re.search(pattern, cell)
    return match[1] if match else cell
