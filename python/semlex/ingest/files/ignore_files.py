"""``.gitignore`` and ``.semlexignore``: what a folder's owner does not want to be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from pathspec import GitIgnoreSpec

from semlex.ingest.files.safe_open import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAMES = (".gitignore", ".semlexignore")  # the later one decides
MAX_BYTES = 1024 * 1024
# The rules that hold in a folder: those of a folder above first, each with the length of that folder's path.
Rules: TypeAlias = tuple[tuple[int, GitIgnoreSpec], ...]


def rules_below(root: Path, parts: tuple[str, ...], names: Iterable[str], above: Rules) -> Rules:
    """The rules that hold in a folder.

    Args:
        root: The root.
        parts: The folder's path below it.
        names: What lies in the folder.
        above: The rules of the folder above.
    """
    present = set(names)
    own = [_read(root, (*parts, name)) for name in NAMES if name in present]
    length = len("/".join(parts)) + 1 if parts else 0
    return (*above, *((length, rules) for rules in own if rules is not None))


def is_ignored(rules: Rules, uri: str, *, is_folder: bool) -> bool:
    """Whether the rules leave a path out: the last one that fits decides, and a folder's own come after those above."""
    for length, spec in reversed(rules):
        found = spec.check_file(uri[length:] + ("/" if is_folder else ""))
        if found.include is not None:
            return found.include
    return False


def _read(root: Path, parts: tuple[str, ...]) -> GitIgnoreSpec | None:
    try:
        with os.fdopen(open_file(root, parts), "rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return None  # a link that leads elsewhere, or a folder of that name
    # What lies in a folder is not the folder, which may hold something that a later pattern takes back.
    lines = [f"{line}/*" if line.endswith("/**") else line for line in text.splitlines()]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
