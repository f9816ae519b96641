"""Tables, and texts of help and docstrings as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BAR = r"\|"
# Parts that are shown as they are: code, and addresses.
_CODE = re.compile(r"(``?)(.+?)\1")
# Options of commands, and names with an underscore.
_NAMES = re.compile(r"(?<![\w-])--?[a-z][\w-]*|(?:\w+\.)*\w+_\w+(?:\(\)|=)?")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |" for line in lines)


def text(plain: str) -> str:
    """Return a text on one line, in which code, options of commands and names with an underscore are marked up."""
    parts, end = [], 0
    plain = " ".join(plain.split())
    for found in _CODE.finditer(plain):
        parts += [_escaped(plain[end : found.start()]), f"`{found[2]}`"]
        end = found.end()
    return "".join([*parts, _escaped(plain[end:])])


def _escaped(plain: str) -> str:
    return _NAMES.sub(lambda found: f"`{found[0]}`", re.sub(r"([<*\[\]])", r"\\\1", plain))


def slug(heading: str) -> str:
    """Return the anchor of a heading, as it is made of it where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
