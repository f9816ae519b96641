"""Generated parts of pages are fresh; pages name only commands and options that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.generate.parts import generated
from semlex import ChatModel, Embedder, Reranker
from semlex.server import problems
from semlex.server.request_context import NO_METHOD, REFUSALS
from tests.journeys.cli.test_documentation import code
from tests.support.command_tree import MAIN, TREE, is_group, options_of, parted
from tests.support.documented_programs import PAGES
from tests.support.folders import documentation

ALWAYS = {"--help", "--version", "--verbose", "--install-completion"}
# Of docker, a server of models, the benches, and `./x test`.
OF_OTHER_PROGRAMS = {
    "--api-key",
    "--shm-size",
    "--max-client-batch-size",
    *("--quick", "--full", "--random", "--newest", "--oldest", "--beside", "--servers", "--framework"),
    "--data",
    "--million",
    "--no-cache",
}


def test_every_status_of_the_server_is_described() -> None:
    found = {status.value for _, status, _ in problems._STATUSES}
    for path in Path(problems.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "Problem"
                and isinstance(node.args[0], ast.Constant)
            ):
                found.add(node.args[0].value)
    assert set(REFUSALS) == found | {NO_METHOD}


def test_generated_parts_are_fresh() -> None:
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, "./x docs writes it again"


@pytest.mark.parametrize("interface", [Embedder, Reranker, ChatModel])
def test_every_member_of_an_interface_that_users_implement_is_described(interface: type) -> None:
    page = documentation("model-classes.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page.split(f"\n## {interface.__name__}\n")[1], flags=re.MULTILINE)[0]
    described = set(re.findall(rf"^### {interface.__name__}\.(\w+)$|^\| `(\w+)` \|", section, re.MULTILINE))
    members = {name for name in dir(interface) if not name.startswith("_")}
    assert {one or other for one, other in described} == members


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
