"""Choose the files of a folder that are read, and say why the others are not."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from semlex.ingest.files.safe_open import open_file
from semlex.ingest.loaders.base import suffix_of
from semlex.ingest.loaders.office import MEDIA_TYPES
from semlex.options.collection import DEFAULT_LIMITS, FileLimits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path


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
# An item in brackets: a class, a range, or a character.
_ITEM = re.compile(r"\[:([^\]]*):\]|(\\.|[^\\])-(\\.|[^\\\]])|(\\.|[^\\])", re.DOTALL)


class IgnorePattern(NamedTuple):
    """One line of an ignore file; a part that is None matches any number of folders."""

    ignores: bool
    folders_only: bool
    parts: tuple[re.Pattern[str] | None, ...]

    def fits(self, path: Sequence[str], *, is_folder: bool) -> bool:
        """Return whether the pattern matches a path, given as its parts."""
        if self.folders_only and not is_folder:
            return False
        reached = {0}  # numbers of parts of the path that the pattern may have matched so far
        for part in self.parts:
            if not reached:
                return False
            if part is None:
                reached = set(range(min(reached), len(path) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(path) and part.fullmatch(path[at])}
        return len(path) in reached


def read_pattern(line: str) -> IgnorePattern | None:
    """Return the pattern of a line of an ignore file, or None if the line matches nothing."""
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
    if names[-1] == "**":  # what is in a folder, not the folder itself
        names.append("*")
    parts = [None if name == "**" else _part(name) for name in names]
    if any(part is None and name != "**" for part, name in zip(parts, names, strict=True)):
        return None
    return IgnorePattern(ignores, folders_only, tuple(parts))


def _without_trailing_blanks(line: str) -> str:
    shorter = line.rstrip(" ")
    escapes = len(shorter) - len(shorter.rstrip("\\"))
    return f"{shorter} " if escapes % 2 and len(shorter) < len(line) else shorter


# Matching takes time proportional to the path's length times the pattern's: a star takes as little as it can and never
# gives back. That finds every match, as the text between two stars has a fixed length.
def _part(name: str) -> re.Pattern[str] | None:
    """Return the regular expression of one part of a path, or None if the part is malformed."""
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
    """Return the pattern of a bracket expression and where it ends, or None if it is malformed."""
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
            # A range that ends before it begins is empty.
            items.append(f"{re.escape(low[-1])}-{re.escape(high[-1])}" if is_range else "")
    inner = "".join(items)
    if not inner:
        return ("." if is_negated else "(?!)"), at + 1
    return f"[{'^' if is_negated else ''}{inner}]", at + 1


NAMES = (".gitignore", ".semlexignore")  # the last one takes precedence
MAX_BYTES = 1024 * 1024
# Rules for a folder: those of folders above first, each with the number of parts of that folder's path; the last line
# of a file first.
Rules: TypeAlias = tuple[tuple[int, tuple[IgnorePattern, ...]], ...]


def rules_below(root: Path, parts: tuple[str, ...], names: Iterable[str], above: Rules) -> Rules:
    """Return the ignore rules that apply in a folder: those above, then its own."""
    present = set(names)
    own = [_read(root, (*parts, name)) for name in NAMES if name in present]
    return (*above, *((len(parts), patterns) for patterns in own if patterns))


def is_ignored(rules: Rules, uri: str, *, is_folder: bool) -> bool:
    """Return whether ignore rules exclude a path; the last match decides, rules of inner folders after outer ones."""
    path = uri.split("/") if rules else []
    for length, patterns in reversed(rules):
        for pattern in patterns:
            if pattern.fits(path[length:], is_folder=is_folder):
                return pattern.ignores
    return False


def _read(root: Path, parts: tuple[str, ...]) -> tuple[IgnorePattern, ...]:
    try:
        with os.fdopen(open_file(root, parts, is_above=True), "rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return ()  # a link that leads elsewhere, or a folder of that name
    found = [read_pattern(line.removesuffix("\r")) for line in text.split("\n")]
    return tuple(pattern for pattern in reversed(found) if pattern is not None)


SkipReason = Literal["format", "hidden", "ignored", "generated", "excluded", "bad_text"]

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "_build", "_static"})
"""Folders with generated files, or with files of other projects."""
SKIPPED_FILES = ("searchindex.js", "*.min.js", "*.min.css", "*.map", "package-lock.json", "*.egg-info", "*.dist-info")
"""Generated files: they contain nothing that their source files lack."""


@dataclass(slots=True)
class Skipped:
    """Counts the files that a run leaves out, by reason and suffix; a folder counts once, as its name and a slash."""

    files: Counter[tuple[SkipReason, str]] = field(default_factory=Counter)

    def note(self, reason: SkipReason, name: str, *, is_folder: bool = False) -> None:
        """Count one file or folder that is left out."""
        self.files[reason, f"{name}/" if is_folder else kind_of(name)] += 1

    def by_reason(self) -> dict[str, dict[str, int]]:
        """Return reason -> suffix -> number of files."""
        found: dict[str, dict[str, int]] = {}
        for (reason, suffix), count in self.files.most_common():
            found.setdefault(reason, {})[suffix] = count
        return found


def kind_of(name: str) -> str:
    """Return the suffix under which a file is counted, or its whole name if it has none."""
    stem, dot, suffix = name.rpartition(".")
    return f".{suffix.lower()}" if dot and stem else name


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a folder are wanted; without `include`, those with a known suffix."""

    include: Sequence[str] | None
    exclude: Sequence[str]
    suffixes: Collection[str]
    recursive: bool = True
    limits: FileLimits = DEFAULT_LIMITS

    def skip_folder(self, uri: str) -> SkipReason | None:
        """Return why a folder is not entered, or None."""
        name = uri.rpartition("/")[2]
        if name.startswith("."):
            return "hidden"
        if matches(self.exclude, uri):
            return "excluded"
        return "generated" if name in SKIPPED_FOLDERS else None

    def skip_file(self, uri: str) -> SkipReason | None:
        """Return why a file is not read, or None."""
        if uri.rpartition("/")[2].startswith("."):
            return "hidden"
        if matches(self.exclude, uri):
            return "excluded"
        if self.include is not None:
            return None if matches(self.include, uri) else "excluded"
        if suffix_of(uri) not in self.suffixes:
            return "format"
        return "generated" if matches(SKIPPED_FILES, uri) else None


def max_bytes(name: str, limits: FileLimits) -> int:
    """Return the size limit of a file in bytes."""
    return limits.document if is_document(name) else limits.file


def is_document(name: str) -> bool:
    """Return whether a file is a PDF, office document, e-book or e-mail, which needs the extra ``files``."""
    return suffix_of(name) in MEDIA_TYPES


def matches(patterns: Sequence[str], uri: str) -> bool:
    """Return whether a pattern matches the file's name or, if the pattern has a slash, the path; case is ignored."""
    if not patterns:
        return False
    uri = uri.lower()
    of_names, of_paths = _compiled(tuple(patterns))
    name = uri.rpartition("/")[2]
    return of_names.match(name) is not None or of_paths.match(uri) is not None


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    lowered = [pattern.lower() for pattern in patterns]
    names = [pattern for pattern in lowered if "/" not in pattern]
    paths = [pattern for pattern in lowered if "/" in pattern]
    paths += [pattern[3:] for pattern in paths if pattern.startswith("**/")]
    return _any_of(names), _any_of(paths)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)")
