"""The examples of README and docs run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
import typer

from semlex.cli.app import app
from semlex.cli.exit_codes import EXIT_CODES
from semlex.settings.load import SETTINGS, Settings
from tests.support.folders import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.shell import Shell

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples() -> list[pytest.ParameterSet]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        found += [pytest.param(block, id=f"{page.name}-{number}") for number, block in enumerate(blocks)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("example", examples())
def test_example_runs(example: str, open_folder: Path, make_server_folder: Callable[[Path], Path]) -> None:
    make_server_folder(open_folder / "postgres")
    environment = {**os.environ, "SEMLEX_DATA_DIR": str(open_folder)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_demonstration_finds_what_it_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import demo.__main__"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = re.search(r"^\|.*?(?=^$|\Z)", text.split(f"{heading}\n", 1)[1], re.DOTALL | re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def runnable(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by its words."""
    if not hasattr(command, "commands") or command.invoke_without_command:
        yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from runnable(below, f"{name} {word}".strip())


def commands() -> dict[str, Any]:
    return {name: command for name, command in runnable(typer.main.get_command(app)) if name}


def test_the_guide_names_every_command() -> None:
    known = commands()
    named = set()
    for cell in rows("guide.md", "## Commands"):
        for example in code(cell[0]):
            words = example.split()[1:]
            found = [" ".join(words[:count]) for count in (1, 2) if " ".join(words[:count]) in known]
            assert found or words[0] == "eval", example  # `semlex eval DIR` is `semlex eval run DIR`
            named |= set(found[-1:])
    assert named == set(known)


def test_the_guide_names_every_exit_code() -> None:
    named = [cell[0] for cell in rows("guide.md", "### Exit codes")]
    assert named == re.findall(r"^ +(\d+)  ", EXIT_CODES, re.MULTILINE)


def test_the_table_of_settings_is_that_of_the_command_line() -> None:
    assert {setting.attribute for setting in SETTINGS} == {one.name for one in fields(Settings)} - {"origins"}
    options = {option for command in commands().values() for one in command.params for option in one.opts}
    cells = rows("settings.md", "# Settings")
    assert [code(cell[0]) for cell in cells] == [[setting.name] for setting in SETTINGS]
    for cell, setting in zip(cells, SETTINGS, strict=True):
        assert code(cell[1]) == list(setting.variables)
        assert set(code(cell[2])) <= options
        built_in = Settings().value(setting)
        shown = "" if built_in in (None, ()) else f"{built_in:g}" if isinstance(built_in, float) else str(built_in)
        assert cell[3] == (shown.lower() if isinstance(built_in, bool) else shown), setting.name


def consoles() -> list[pytest.ParameterSet]:
    """The `semlex` commands of the pages for everybody, in order; other programs (pip, pg_dump) are not run."""
    found = []
    for page in (
        ROOT / "README.md",
        *(ROOT / "docs" / f"{name}.md" for name in ("guide", "installing", "keep-in-step")),
    ):
        blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        lines = [
            line
            for block in blocks
            for line in re.findall(r"^\$ (semlex .*)", block, re.MULTILINE)
            if not line.endswith("--watch")  # goes on until Ctrl-C
        ]
        found.append(pytest.param(lines, id=page.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("lines", consoles())
def test_commands_run_as_they_are_shown(lines: list[str], shell: Shell) -> None:
    (shell.folder / "src").mkdir()
    (shell.folder / "src" / "keys.py").write_text("def rotate(key: str) -> str:\n    return key[::-1]\n")
    for line in lines:
        shell(*shlex.split(line, comments=True)[1:])
