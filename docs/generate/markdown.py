"""Tables, and texts of help and docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BAR = r"\|"
# Code, which is shown as it is.
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
    """Return the anchor that viewers of Markdown give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Docstring:
    """The parts of a docstring in Google's form."""

    def __init__(self, document: str) -> None:
        parts = re.split(r"(?:^|\n\n)(\w[\w ]*):\n(?=    )", document)
        self._opening = parts[0]
        self.sections = dict(zip(parts[1::2], parts[2::2], strict=True))

    def opening(self) -> Iterator[str]:
        """Return the paragraphs before the sections."""
        for one in self._opening.split("\n\n"):
            if one.startswith("    "):
                yield f"```text\n{inspect.cleandoc(one)}\n```"
            elif one:
                yield text(one.replace("::", ":") if one.endswith("::") else one)

    def rest(self) -> Iterator[str]:
        """Return the arguments, what is returned, and the errors."""
        for name in ("Args", "Returns", "Yields", "Raises"):
            if name in ("Returns", "Yields") and name in self.sections:
                yield f"{name}: {text(self.sections[name])}"
            elif listed := self.listed(name):
                yield listed if name == "Args" else f"{name}:\n\n{listed}"

    def listed(self, name: str) -> str:
        """Return a section as a list."""
        return "\n".join(f"- `{one}`: {text(meaning)}" for one, meaning in self.entries(name))

    def entries(self, name: str) -> Iterator[tuple[str, str]]:
        """Return the names of a section with their descriptions."""
        for found in re.finditer(
            r"^    ([\w*]+(?:, [\w*]+)*): (.+(?:\n {8}.*)*)", self.sections.get(name, ""), re.MULTILINE
        ):
            for one in found[1].split(", "):
                yield one, found[2]
