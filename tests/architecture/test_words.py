"""semlex speaks plain English: turns that readers need to read twice are banned from all text that they see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BANNED = re.compile(
    r"\b(?:is|are|was|were)\s+told\b|\banew\b|\b(?:is|are)\s+no\s|\bthere\s+(?:is|are)\s+none\b|\bgoes\s+before\b"
    r"|\bstands?\s+(?:in|at|on|under|above|below|behind|beside)\b|\b(?:by\s+itself|by\s+themselves)\b|\bwhoever\b"
    r"|\bof\s+(?:yours|ours)\b|\bwhere\s+there\s+(?:is|are)\b|\bwhat\s+(?:is|was)\s+\w+\s+says\b|\bat\s+most\s+by\b"
    r"|\blets?\s+go\s+of\b|\ball\s+the\s+same\b|\bdrawn\s+by\s+lot\b",
    re.IGNORECASE,
)
# Rust is read by its documentation comments alone.
COMMENTS = re.compile(r"^\s*///(.*)$", re.MULTILINE)
# What each folder or file holds that people read: code with its docstrings, messages and help; pages.
READ = {
    "python": ("*.py", "*.pyi", "*.js", "*.html"),
    "rust/python": ("*.rs", "*.py"),
    "docs": ("*.md",),
    "README.md": (),
    "CONTRIBUTING.md": (),
    "tests/README.md": (),
}


def banned(text: str) -> list[str]:
    """The banned turns of a text, with their lines; a turn may be broken between two lines."""
    return [f"{text.count(chr(10), 0, turn.start()) + 1}: {turn[0]}" for turn in BANNED.finditer(text)]


def files() -> Iterator[Path]:
    for place, kinds in READ.items():
        if not kinds:
            yield ROOT / place
        for kind in kinds:
            yield from (ROOT / place).rglob(kind)


def text_of(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix != ".rs":
        return text
    lines = [found[1] if (found := COMMENTS.match(line)) else "" for line in text.splitlines()]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("An error is told.", "is told"),
        ("Files are\ntold.", "are\ntold"),
        ("Build it anew.", "anew"),
        ("It is no list.", "is no "),
        ("These are no\n    hits.", "are no\n"),
        ("There is none.", "There is none"),
        ("An option goes before a file.", "goes before"),
        ("It stands in the table.", "stands in"),
        ("Words stand\nbeside it.", "stand\nbeside"),
        ("It ends by\nitself.", "by\nitself"),
        ("Whoever asks", "Whoever"),
        ("a table of yours", "of yours"),
        ("where there is an index", "where there is"),
        ("what is stored says", "what is stored says"),
        ("It lets go of a lock.", "lets go of"),
        ("It is read all the same.", "all the same"),
        ("a word drawn by lot", "drawn by lot"),
    ],
)
def test_turns_are_found(text: str, found: str) -> None:
    assert banned(f"\n{text}") == [f"2: {found}"]


def test_all_text_is_plain() -> None:
    assert not banned("He told us: no list, a new one, None; this is not a list.")
    read = sorted(files())
    assert len(read) > 400
    places = [f"{path.relative_to(ROOT)}:{turn}" for path in read for turn in banned(text_of(path))]
    assert not places, "\n".join(places)
