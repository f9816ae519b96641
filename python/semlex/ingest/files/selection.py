"""Which of the files in a folder are read, and why the others are not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from semlex.ingest.loaders.office import MEDIA_TYPES
from semlex.parameters import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from semlex.parameters import FileLimits

SkipReason = Literal["format", "hidden", "ignored", "generated", "excluded", "bad_text"]

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "_build", "_static"})
"""Folders of other people's files and of what is generated."""
SKIPPED_FILES = ("searchindex.js", "*.min.js", "*.min.css", "*.map", "package-lock.json", "*.egg-info", "*.dist-info")
"""Generated files: a search finds nothing else in them than in what they were made of."""


@dataclass(slots=True)
class Skipped:
    """What was left out, by reason and by suffix.

    Attributes:
        files: Number of files by reason and suffix (``.pdf``, or the name of a file that has none); of a folder that
            is not entered one, with its name and a slash.
    """

    files: Counter[tuple[SkipReason, str]] = field(default_factory=Counter)

    def note(self, reason: SkipReason, name: str, *, is_folder: bool = False) -> None:
        """Counts one."""
        self.files[reason, f"{name}/" if is_folder else kind_of(name)] += 1

    def by_reason(self) -> dict[str, dict[str, int]]:
        """Reason -> suffix -> number of files."""
        found: dict[str, dict[str, int]] = {}
        for (reason, suffix), count in self.files.most_common():
            found.setdefault(reason, {})[suffix] = count
        return found


def kind_of(name: str) -> str:
    """By what a file is counted: its suffix with the dot, or its name where it has none."""
    stem, dot, suffix = name.rpartition(".")
    return f".{suffix.lower()}" if dot and stem else name


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a folder are wanted.

    Attributes:
        include: Patterns of the files to take; None for those with a suffix that is known.
        exclude: Patterns of files and folders to leave out.
        suffixes: Those that are known, without the dot; for a name without a dot the name.
        recursive: Whether folders below are entered.
        limits: The largest files that are read.
    """

    include: Sequence[str] | None
    exclude: Sequence[str]
    suffixes: Collection[str]
    recursive: bool = True
    limits: FileLimits = DEFAULT_LIMITS

    def skip_folder(self, uri: str) -> SkipReason | None:
        """Why a folder is not entered; None where it is."""
        name = uri.rpartition("/")[2]
        if name.startswith("."):
            return "hidden"
        if matches(self.exclude, uri):
            return "excluded"
        return "generated" if name in SKIPPED_FOLDERS else None

    def skip_file(self, uri: str) -> SkipReason | None:
        """Why a file is not read; None where it is."""
        name = uri.rpartition("/")[2].lower()
        if name.startswith("."):
            return "hidden"
        if matches(self.exclude, uri):
            return "excluded"
        if self.include is not None:
            return None if matches(self.include, uri) else "excluded"
        if name.rpartition(".")[2] not in self.suffixes:
            return "format"
        return "generated" if matches(SKIPPED_FILES, uri) else None


def max_bytes(name: str, limits: FileLimits) -> int:
    """Bytes of the largest file of a name that is read."""
    return limits.document if is_document(name) else limits.file


def is_document(name: str) -> bool:
    """Whether a file is of a format that the extra ``files`` reads."""
    return name.lower().rpartition(".")[2] in MEDIA_TYPES


def matches(patterns: Sequence[str], uri: str) -> bool:
    """Whether a pattern fits: one without ``/`` the name, another the path; upper and lower case are equal."""
    if not patterns:
        return False
    uri = uri.lower()
    of_names, of_paths = _compiled(tuple(patterns))
    name = uri.rpartition("/")[2]
    return of_names.match(name) is not None or of_paths.match(uri) is not None


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What fits names, and what fits paths; what nothing fits where there are no such patterns."""
    lowered = [pattern.lower() for pattern in patterns]
    names = [pattern for pattern in lowered if "/" not in pattern]
    paths = [pattern for pattern in lowered if "/" in pattern]
    paths += [pattern[3:] for pattern in paths if pattern.startswith("**/")]
    return _any_of(names), _any_of(paths)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)")
