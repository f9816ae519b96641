"""Patterns of ignore files, as git reads them.

The time for a path is that of its length times the pattern's: a star takes as little as it can and gives nothing back,
which finds a match wherever there is one, since what stands between two stars has a fixed length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLASSES = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_ANY = re.compile(r".+", re.DOTALL)
# What stands in brackets: a class, a range, or a character.
_ITEM = re.compile(r"\[:([^\]]*):\]|(\\.|[^\\])-(\\.|[^\\\]])|(\\.|[^\\])", re.DOTALL)


class IgnorePattern(NamedTuple):
    """One line.

    Attributes:
        ignores: Whether it leaves out what it fits; else it takes back.
        folders_only: Whether it fits folders alone.
        parts: A pattern for each part of a path; None for any number of parts.
    """

    ignores: bool
    folders_only: bool
    parts: tuple[re.Pattern[str] | None, ...]

    def fits(self, path: Sequence[str], *, is_folder: bool) -> bool:
        """Whether it fits a path, given by its parts."""
        if self.folders_only and not is_folder:
            return False
        reached = {0}  # how many parts of the path those of the pattern may have taken so far
        for part in self.parts:
            if not reached:
                return False
            if part is None:
                reached = set(range(min(reached), len(path) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(path) and part.fullmatch(path[at])}
        return len(path) in reached


def read_pattern(line: str) -> IgnorePattern | None:
    """The pattern of a line; None where it has none, or none that fits anything."""
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    line = _without_trailing_blanks(line if ignores else line[1:])
    folders_only = line.endswith("/")
    line = line.removesuffix("/")
    names = line.removeprefix("/").split("/")
    if not all(names):
        return None
    if "/" not in line:
        names.insert(0, "**")
    if names[-1] == "**":  # what lies in a folder, not the folder
        names.append("*")
    parts: list[re.Pattern[str] | None] = []
    for name in names:
        part = None if name == "**" else _part(name)
        if name != "**" and part is None:
            return None
        parts.append(part)
    return IgnorePattern(ignores, folders_only, tuple(parts))


def _without_trailing_blanks(line: str) -> str:
    shorter = line.rstrip(" ")
    escapes = len(shorter) - len(shorter.rstrip("\\"))
    return f"{shorter} " if escapes % 2 and len(shorter) < len(line) else shorter


def _part(name: str) -> re.Pattern[str] | None:
    """The pattern of one part of a path; None where it is broken, and fits nothing."""
    pieces = [""]
    at = 0
    while at < len(name):
        sign, at = name[at], at + 1
        if sign == "*":
            pieces += [""] if pieces[-1] or len(pieces) == 1 else []
            continue
        if sign == "?":
            pieces[-1] += "."
        elif sign == "[":
            found = _brackets(name, at)
            if found is None:
                return None
            pieces[-1] += found[0]
            at = found[1]
        elif sign != "\\":
            pieces[-1] += re.escape(sign)
        elif at == len(name):
            return None
        else:
            pieces[-1] += re.escape(name[at])
            at += 1
    if pieces == ["", ""]:
        return _ANY
    first, *middle = pieces
    last = [f".*{middle.pop()}"] if middle else []
    return re.compile("".join([first, *(f"(?>.*?{piece})" for piece in middle), *last]), re.DOTALL)


def _brackets(name: str, at: int) -> tuple[str, int] | None:
    """The pattern of what stands in brackets from a place on, and the place behind them; None where they are broken."""
    is_negated = name[at : at + 1] in ("!", "^")
    at += is_negated
    items: list[str] = []
    while name[at : at + 1] != "]" or not items:
        item = _ITEM.match(name, at)
        if item is None:
            return None
        at = item.end()
        known, low, high, one = item.groups()
        if known is not None:
            if known not in _CLASSES:
                return None
            items.append(_CLASSES[known])
        elif one is not None:
            items.append(re.escape(one[-1]))
        else:
            is_range = low[-1] <= high[-1]
            # One that ends before it begins holds nothing.
            items.append(f"{re.escape(low[-1])}-{re.escape(high[-1])}" if is_range else "")
    inner = "".join(items)
    if not inner:
        return ("." if is_negated else "(?!)"), at + 1
    return f"[{'^' if is_negated else ''}{inner}]", at + 1
