"""``.gitignore`` and ``.semlexignore``: what a folder's owner does not want to be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from semlex.ingest.files.ignore_patterns import IgnorePattern, read_pattern
from semlex.ingest.files.safe_open import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAMES = (".gitignore", ".semlexignore")  # the later one decides
MAX_BYTES = 1024 * 1024
# The rules that hold in a folder: those of a folder above first, each with the number of parts of that folder's path,
# and the last line of a file first.
Rules: TypeAlias = tuple[tuple[int, tuple[IgnorePattern, ...]], ...]


def rules_below(root: Path, parts: tuple[str, ...], names: Iterable[str], above: Rules) -> Rules:
    """The rules that hold in a folder."""
    present = set(names)
    own = [_read(root, (*parts, name)) for name in NAMES if name in present]
    return (*above, *((len(parts), patterns) for patterns in own if patterns))


def is_ignored(rules: Rules, uri: str, *, is_folder: bool) -> bool:
    """Whether the rules leave a path out: the last one that fits decides, and a folder's own come after those above."""
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
