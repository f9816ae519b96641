"""Every code that a file's problem can have, and every reason to leave one out, stands on the page for users."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import semlex
from semlex.ingest.files.discovery import NOT_TOLD
from semlex.ingest.files.selection import SkipReason
from semlex.ingest.loaders.base import BAD_TEXT_CODES
from tests.support.folders import documentation

INGEST = Path(semlex.__file__).parent / "ingest"
# Where the code of a problem stands among the arguments.
PLACES = {"LoadError": 0, "FileProblem": 1}
REASONS = "What is left out of folders"


def given(source):
    """What is given as a code, wherever a problem is made."""
    for node in ast.walk(ast.parse(source)):
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in PLACES:
            (code,) = [one.value for one in node.keywords if one.arg == "code"] or [node.args[PLACES[name]]]
            yield code


def codes_of(source):
    """The codes of a module, each written where it is used; ``error.code`` and ``header["code"]`` hand one on."""
    found = set()
    for code in given(source):
        if isinstance(code, ast.Constant):
            found.add(str(code.value))
        else:
            assert ast.unparse(code) in ("error.code", "header['code']"), ast.unparse(code)
    return found


def sections():
    """The first column of the tables below the headings of the page that list reasons and codes."""
    page = documentation("file-formats.md").read_text(encoding="utf-8")
    listed = page.split(f"\n## {REASONS}\n")[1].split("\n## ")[:2]
    parts = f"{REASONS}\n{listed[0]}\n### {listed[1]}".split("\n### ")
    return {part.partition("\n")[0]: set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) for part in parts}


def test_codes_are_found():
    source = "LoadError('a', f'{x}'); FileProblem(uri, 'b', m); x.y(LoadError(code='c', message=m))"
    assert codes_of(f"{source}; LoadError(error.code, m)") == {"a", "b", "c"}
    with pytest.raises(AssertionError, match="made_up"):
        codes_of("LoadError(made_up, m)")


def test_the_page_has_every_code_and_no_other():
    known = set[str]().union(*(codes_of(path.read_text(encoding="utf-8")) for path in INGEST.rglob("*.py")))
    assert len(known) > 25
    found = sections()
    reasons = found.pop(REASONS)
    assert set[str]().union(*found.values()) == known
    assert sum(map(len, found.values())) == len(known)  # each once
    assert found["Texts"] == BAD_TEXT_CODES
    assert reasons == set(get_args(SkipReason)) - set(NOT_TOLD)
