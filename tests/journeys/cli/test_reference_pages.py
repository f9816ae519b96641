"""Troubleshooting and security: every error, status and command has its row, and every named test is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from semlex import errors, telemetry
from semlex.cli.exit_codes import _CODES, MEANINGS, OTHER
from semlex.errors import SemlexError
from semlex.server import problems
from semlex.server.request_context import REFUSALS
from tests.journeys.cli.test_documentation import code, rows
from tests.support.command_tree import MAIN, TREE, is_group, options_of, parted
from tests.support.documented_programs import PAGES
from tests.support.folders import ROOT, documentation

PAGE = documentation("troubleshooting.md")
# What the framework answers to a method that a route does not have.
OF_THE_FRAMEWORK = {405}
ALWAYS = {"--help", "--version", "--verbose", "--install-completion"}
# Of gunicorn, docker, a server of models, and `./x test`.
OF_OTHER_PROGRAMS = {
    "--preload",
    "--shm-size",
    "--max-client-batch-size",
    "--quick",
    "--data",
    "--million",
    "--no-cache",
}


def classes(kind: type[SemlexError] = SemlexError) -> Iterator[type[SemlexError]]:
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from classes(below)


def statuses() -> set[int]:
    """Every status that stands in the server's code."""
    found = set(REFUSALS) | {status.value for _, status, _ in problems._STATUSES} | OF_THE_FRAMEWORK
    for path in Path(problems.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_problem = isinstance(node, ast.Call) and ast.unparse(node.func) == "Problem" and node.args
            if is_problem and isinstance(node.args[0], ast.Constant):  # type: ignore[attr-defined]
                found.add(node.args[0].value)  # type: ignore[attr-defined]
    return found


def test_every_error_has_its_row_with_its_exit_code() -> None:
    table = {code(cells[0])[0]: int(cells[1]) for cells in rows("troubleshooting.md", "## Errors")}
    known = {kind.__name__: kind for kind in classes()}
    assert table.keys() == known.keys()
    assert len(known) > 25
    for name, kind in known.items():
        assert table[name] == next((number for one, number in _CODES if issubclass(kind, one)), OTHER), name


def test_every_exit_code_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = {int(cells[1]) for cells in rows("troubleshooting.md", "## Errors")}
    sentence = re.search(r"^Exit code 0 .*$", text, re.MULTILINE)
    assert sentence is not None
    assert table | {int(number) for number in re.findall(r"\d+", sentence[0])} == set(MEANINGS)


def test_every_status_of_the_server_has_its_row() -> None:
    table = {int(cells[0]) for cells in rows("troubleshooting.md", "## Answers of the server")}
    assert table == statuses()


# A decision is dated: what it names may be gone.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "decisions.md"], ids=lambda page: page.name)
def test_the_commands_that_are_named_are_there_with_their_options(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).replace("\n", " ")
    named = [part.split()[1:] for part in code(text) if part.startswith("semlex ")]
    for words in named:
        name, rest = ("", words) if words[0].startswith("-") else parted(words)
        command = TREE[name] if name else MAIN
        assert name or rest[0] in {"COMMAND", *ALWAYS}, words
        assert not is_group(command) or not rest or rest[0] == "COMMAND" or rest[0].startswith("-"), words
        options = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
        assert options <= options_of(command) | ALWAYS, words
    assert len(named) >= (20 if page.name == "troubleshooting.md" else 0)
    every = {option for command in (MAIN, *TREE.values()) for option in options_of(command)} | ALWAYS
    alone = {re.split("[ =]", part)[0] for part in code(text) if re.match("--[a-z]", part)}
    assert alone <= every | OF_OTHER_PROGRAMS


def test_the_tests_that_the_page_on_security_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", documentation("security.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    for path, test in named:
        content = (ROOT / path).read_text(encoding="utf-8")
        assert not test or re.search(rf"^(async )?def {test}\(", content, re.MULTILINE), test


def test_every_kind_of_span_has_its_row_with_its_attributes() -> None:
    table = {cells[0]: cells[2] for cells in rows("monitor.md", "## Spans")}
    for work in telemetry.Work:
        first = "METHOD ROUTE" if work is telemetry.Work.REQUEST else work.value[0]
        assert any(first in name for name in table), work
    for attribute in (
        telemetry.ROUTE,
        telemetry.STATUS,
        telemetry.REQUEST_ID,
        telemetry.TOP_K,
        telemetry.SQLSTATE,
        telemetry.INPUT_TOKENS,
    ):
        assert any(f"`{attribute}`" in attributes for attributes in table.values()), attribute
    page = documentation("monitor.md").read_text(encoding="utf-8")
    assert "opentelemetry-instrumentation-fastapi" not in page  # it would record each request twice
