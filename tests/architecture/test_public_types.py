"""What type checkers, editors and `help` are told of every public name."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import is_typeddict

import pytest

import semlex

ROOT = Path(semlex.__file__).parent.parent.parent
# Any is the truth of JSON and of rows of any library; it hides nothing of coroutines, arrays, integers, connections.
HARMLESS = (
    "Coroutine[Any, Any, ",
    "AsyncGenerator[Any, ",
    "tuple[Any, ...]",
    "dtype[Any]",
    "numpy.integer[Any]",
    "Connection[Any]",
    "ConnectionPool[Any]",
    "dict[str, Any]",
    "Mapping[str, Any]",
)
# JSON values; what a setting may be; whatever holds rows; classes of packages that are not installed here.
UNTYPED = {
    "FacetValue.value",
    "SearchResults.to_pandas",
    "FacetValue.__init__",
    "Job.arguments",
    "Job.__init__",
    "load_vectors",
    "unused_defaults",
}


def public_classes() -> Iterator[tuple[str, type]]:
    for name in semlex.__all__:
        if inspect.isclass(found := getattr(semlex, name)) and not is_typeddict(found):
            yield name, found


def members(kind: type) -> list[str]:
    """What an editor offers after a dot, but what Python's own classes bring along."""
    builtin = {name for base in kind.__mro__ if base.__module__ in {"builtins", "typing", "abc"} for name in vars(base)}
    return [name for name in dir(kind) if not name.startswith("_") and name not in builtin]


def untyped(told: str) -> bool:
    """Whether a checker's words say Any where something is known."""
    for harmless in HARMLESS:
        told = told.replace(harmless, "")
    return re.search(r"\bAny\b|Unknown", told) is not None


@pytest.mark.slow
def test_every_public_member_has_a_type(tmp_path: Path) -> None:
    lines, names = ["import semlex"], [""]
    for name, kind in public_classes():
        lines += [f"reveal_type(semlex.{name}.__init__)", f"def of_{name}(one: semlex.{name}) -> None:", "    pass"]
        names += [f"{name}.__init__", "", ""]
        lines += [f"    reveal_type(one.{member})" for member in members(kind)]
        names += [f"{name}.{member}" for member in members(kind)]
    program = tmp_path / "members.py"
    program.write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    told = {
        int(line): words for line, words in re.findall(r"members\.py:(\d+): note: Revealed type is (.*)", done.stdout)
    }
    assert [name for number, name in enumerate(names, 1) if name and number not in told] == [], done.stdout
    leaking = {names[line - 1] for line, words in told.items() if untyped(words)}
    known = {name for name in leaking if name.removeprefix("Sync") in UNTYPED or name.rpartition(".")[2] in UNTYPED}
    assert leaking == known
    assert len(told) > 500


def test_what_an_editor_offers_is_described() -> None:
    bare = [
        f"{name}.{member}"
        for name, kind in public_classes()
        for member in members(kind)
        if (found := inspect.getattr_static(kind, member)) is not None
        and (callable(getattr(kind, member)) or isinstance(found, property))
        and not inspect.getdoc(found if isinstance(found, property) else getattr(kind, member))
    ]
    assert bare == []


@pytest.mark.slow
@pytest.mark.parametrize("script", ["rust/python/generate_stub.py", "python/generate_stubs.py"])
def test_the_written_stubs_are_fresh(script: str) -> None:
    for path, text in runpy.run_path(str(ROOT / script))["generated"]().items():
        assert path.read_text(encoding="utf-8") == text, "./x stubs writes it again"


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(semlex.__file__).parent / "py.typed").exists()
