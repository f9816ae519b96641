"""The package speaks plain English: turns that readers need to read twice are banned from its text."""

from __future__ import annotations

import re

import pytest

from tests.support.folders import ROOT

BANNED = re.compile(
    r"\b(?:is|are)\s+told\b|\banew\b|\b(?:is|are)\s+no\s|\bthere\s+is\s+none\b|\bgoes\s+before\b|\bstands\s+in\b"
    r"|\bby\s+itself\b|\bwhoever\b|\bof\s+yours\b|\bwhere\s+there\s+is\b|\bwhat\s+(?:is|was)\s+\w+\s+says\b",
    re.IGNORECASE,
)
# Its docstrings are written by the Rust build.
GENERATED = "_core.pyi"


def banned(text: str) -> list[str]:
    """The banned turns of a text, with their lines; a turn may be broken between two lines."""
    return [f"{text.count(chr(10), 0, turn.start()) + 1}: {turn[0]}" for turn in BANNED.finditer(text)]


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
        ("It ends by\nitself.", "by\nitself"),
        ("Whoever asks", "Whoever"),
        ("a table of yours", "of yours"),
        ("where there is an index", "where there is"),
        ("what is stored says", "what is stored says"),
    ],
)
def test_turns_are_found(text: str, found: str) -> None:
    assert banned(f"\n{text}") == [f"2: {found}"]


def test_package_is_plain() -> None:
    assert not banned("He told us: no list, a new one, None; this is not a list.")
    package = ROOT / "python" / "semlex"
    files = [path for kind in ("*.py", "*.pyi") for path in package.rglob(kind) if path.name != GENERATED]
    assert len(files) > 100
    places = [f"{path.relative_to(ROOT)}:{turn}" for path in files for turn in banned(path.read_text("utf-8"))]
    assert not places, "\n".join(places)
