"""Examples, commands and outputs of README and docs run; links, tables and generated parts are those of the code."""

import ast
import importlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import nbformat
import psycopg
import pytest
from nbclient import NotebookClient
from psycopg import sql
from psycopg.conninfo import make_conninfo
from starlette.testclient import TestClient

from docs.generate.markdown import slug
from docs.generate.parts import generated
from semlex import ChatModel, Embedder, Reranker
from semlex.server import problems
from semlex.server.request_context import NO_METHOD, REFUSALS
from semlex.settings.sources import QA_KEYS, RAG_KEYS, SERVER_VARIABLES, read_settings
from semlex.settings.table import SETTINGS, camel
from semlex.store.postgres.embedded.folder import find_installations, server_account
from semlex.store.postgres.embedded.server import DATABASE, EmbeddedServer
from tests.support.command_tree import MAIN, TREE, is_group, options_of, parse, parted
from tests.support.documented_programs import (
    FRAMEWORKS,
    PAGES,
    TUTORIALS,
    as_on_a_page,
    documented_programs,
    run_documented,
)
from tests.support.embedded_servers import configure
from tests.support.folders import ROOT, documentation, new_open_folder
from tests.support.settings_forms import world
from tests.support.shell import run_here, run_process
from tests.support.waiting import until

# Pages whose commands need nothing but a collection. Outputs of most are compared with those of the commands, line by
# line; `…` stands for lines that are left out.
COMPARED = (
    *("answers", "assistants", "backup", "change-the-model", "enrich", "evaluate", "filter", "follow-a-table"),
    *("ranking", "search", "search-options", "why"),
)
NOT_COMPARED = ("deploy", "index-folders", "indexes", "install", "monitor")
# They go on until Ctrl-C, or need a model, a table, judgements, a server or versions that are not here.
NOT_RUN = (
    *("--watch", " --http", "semlex worker", "semlex ui", "semlex shell", "--chat-model ollama:", " -c shop"),
    *(" --qrels", " --database ", "semlex models drop"),
)


@pytest.fixture(scope="module")
def running(make_server_folder):
    """An embedded server that goes on running between examples."""
    with new_open_folder() as folder:
        configure(make_server_folder(folder / "postgres"), fsync="off")
        with EmbeddedServer(folder / "postgres") as server:
            with psycopg.connect(make_conninfo(server.url, dbname="template1"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE untouched TEMPLATE {DATABASE}")
            yield server


@pytest.fixture
def embedded(running):
    """The same, as if nobody had used it."""
    roles = "SELECT rolname FROM pg_roles WHERE NOT rolsuper AND rolname !~ '^pg_'"
    with psycopg.connect(make_conninfo(running.url, dbname="template1"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE untouched STRATEGY file_copy")
        for (role,) in connection.execute(roles).fetchall():
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    return running


@pytest.mark.slow
@pytest.mark.parametrize("example", documented_programs())
def test_example_runs(example, embedded):
    run_documented(example, embedded.folder.parent)


def test_every_example_has_its_place():
    """What runs with a framework is run by the tests beside it; nothing is left out."""
    for framework in FRAMEWORKS:
        files = (ROOT / "tests" / "frameworks" / framework).glob("test_*.py")
        runs = re.compile(rf'document(ation_test|ed_programs)\("{framework}"\)')
        assert any(runs.search(file.read_text(encoding="utf-8")) for file in files)
        assert documented_programs(framework)


def test_the_demonstration_finds_what_it_imports():
    importlib.import_module("demo.__main__")


@cache
def anchors(page):
    """The anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    counts = Counter(slug(heading) for heading in re.findall(r"^#+ (.*)", text, re.MULTILINE))
    return {f"{name}-{number}" if number else name for name, count in counts.items() for number in range(count)}


def test_links_lead_somewhere():
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.ipynb")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = page.parent / path if path else page
            leads = there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
            if "://" not in target and not leads:
                broken.append(f"{page.name}: {target}")
    assert not broken


def test_the_first_page_leads_to_every_page():
    first = documentation("index.md")
    linked = {first.parent / target for target in re.findall(r"\]\(([^)#]+)\)", first.read_text(encoding="utf-8"))}
    pages = {page for page in first.parent.glob("*/*") if page.suffix in {".md", ".ipynb"}}
    assert pages == linked


def rows(page, heading):
    """The cells of the first table below a heading, without its head."""
    text = documentation(page).read_text(encoding="utf-8")
    table = re.search(r"^\|.*?(?=^$|\Z)", text.split(f"{heading}\n", 1)[1], re.DOTALL | re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_on_installing_names_every_extra():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {name for cell in rows("install.md", "The extras:") for name in code(cell[0])} == declared.keys()


def test_the_page_of_settings_has_every_name_of_other_programs():
    named = {name for cell in rows("settings.md", "### settings.json") for name in code(cell[0])}
    special = {key for key in RAG_KEYS if key != "qa"} | {f"qa.{key}" for key in QA_KEYS}
    plain = {camel(setting.name) for setting in SETTINGS}
    assert named - {"embeddingModel", "topK", "rerankerModel"} == special - plain
    page = documentation("settings.md").read_text(encoding="utf-8")
    assert [f"`{name}`" in page for name in SERVER_VARIABLES] == [True, True, True]
    leading = {one.name for one in SETTINGS if one.leads_away("http://x/v1#m") or one.name == "query_log"}
    trust = page.split("## Trust\n")[1].split("##")[0]
    others = {"embedding_model", "reranker_model", "chat_model", "enrichment_model"}
    assert [name for name in leading - others if f"`{name}`" not in trust] == []


def test_the_examples_of_files_are_settings():
    found = re.findall(r"```toml\n(.*?)```", documentation("settings.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found
    for example in found:
        with world(own=example):
            assert read_settings()[1] == []


def typed(page):
    """The `semlex` commands that a page shows, and their output; other programs (pip, pg_dump) are not run."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    command = re.compile(r"^\$ (semlex .*?)(?: \| .*)?\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
    return [shown for block in blocks for shown in command.findall(block)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_can_be_typed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line, _ in typed(page):
        name, rest = parted(shlex.split(line, comments=True)[1:])
        parse(name, rest)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*COMPARED, *NOT_COMPARED])
def test_commands_run_as_they_are_shown(page, shell):
    (shell.folder / "src").mkdir()
    (shell.folder / "src" / "keys.py").write_text("def rotate(key: str) -> str:\n    return key[::-1]\n")
    (shell.folder / "tests").symlink_to(ROOT / "tests")
    (shell.folder / "questions.txt").write_text("how often is a key rotated\nwhich fruit is yellow\n")
    shell("index", "docs", "-c", "handbook")
    [table] = re.findall(r"```sql\n(.*?)```", documentation("own-table.md").read_text("utf-8"), re.DOTALL)
    with psycopg.connect(shell.environment["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(table)
    lines = [shown for shown in typed(documentation(f"{page}.md")) if not any(part in shown[0] for part in NOT_RUN)]
    assert lines
    for line, output in lines:
        done = shell(*shlex.split(line, comments=True)[1:])
        said = as_on_a_page(done.stdout + done.stderr, shell.folder).splitlines()
        shown = as_on_a_page(output, shell.folder).splitlines() if page in COMPARED else []
        assert [one for one in shown if one not in {*said, "…"}] == [], (line, said)


# --- reference pages --------------------------------------------------------------------------------------------------

ALWAYS = {"--help", "--version", "--verbose", "--install-completion"}
KNOWN_OPTIONS = ALWAYS.union(*map(options_of, (MAIN, *TREE.values())))
# Of docker, a server of models, the benches, and `./x test`.
KNOWN_OPTIONS |= {
    *("--api-key", "--shm-size", "--max-client-batch-size", "--data", "--million", "--no-cache"),
    *("--quick", "--full", "--random", "--newest", "--oldest", "--beside", "--servers", "--framework"),
}


def test_every_status_of_the_server_is_described():
    found = {status.value for _, status, _ in problems._STATUSES}
    for path in Path(problems.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name("Problem"), args=[ast.Constant(value), *_]):
                    found.add(value)
    assert set(REFUSALS) == found | {NO_METHOD}


def test_generated_parts_are_fresh():
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, "./x docs writes it again"


@pytest.mark.parametrize("interface", [Embedder, Reranker, ChatModel])
def test_every_member_of_an_interface_that_users_implement_is_described(interface):
    page = documentation("model-classes.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page.split(f"\n## {interface.__name__}\n")[1], flags=re.MULTILINE)[0]
    described = set(re.findall(rf"^### {interface.__name__}\.(\w+)$|^\| `(\w+)` \|", section, re.MULTILINE))
    members = {name for name in dir(interface) if not name.startswith("_")}
    assert {one or other for one, other in described} == members


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_that_are_named_are_there_with_their_options(page):
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
    alone = {re.split("[ =]", part)[0] for part in code(text) if re.match("--[a-z]", part)}
    assert alone <= KNOWN_OPTIONS


# --- first pages and tutorials ----------------------------------------------------------------------------------------

FIRST_PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
BLOCK = re.compile(r"((?:(?!^```).)*?)^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A test has the packages and the database already, and no language model.
NOT_FOLLOWED = re.compile("docker |export |./x |pip |.* ollama:")
CHANGING = (
    (re.compile(r"^hybrid search with .*\n", re.MULTILINE), ""),  # depends on the machine
    (re.compile(r"^database_url comes from .*\n", re.MULTILINE), ""),  # depends on the database
    (re.compile(r"(?<=try_docs_)[0-9a-f]+"), ""),
    (re.compile(r" +$", re.MULTILINE), ""),
)


class Reader:
    """Does what a tutorial says."""

    def __init__(self, shell, stack):
        self.shell, self._stack = shell, stack
        self._web = None
        programs = shell.folder / "programs"
        programs.mkdir()
        (programs / "semlex").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m semlex "$@"\n')
        (programs / "semlex").chmod(0o755)
        servers = find_installations(server_account(Path("/nowhere")))
        paths = (str(programs), str(servers[max(servers)]), os.environ["PATH"])
        shell.environment |= {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT / "python")}

    def block(self, before, kind, text):
        """Follows a block; the text before it may name the file to save it in."""
        if name := re.search(r"Save this as `([^`]+)`", before):
            path = self.shell.folder / name[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        else:
            assert kind == "console"
            for command, expected in re.findall(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                self._command(command.replace("\n> ", "\n"), expected)

    def _command(self, command, expected):
        if command == "uvicorn app:app":
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DATABASE_URL", self.shell.environment["DATABASE_URL"])
                app = runpy.run_path(str(self.shell.folder / "app.py"))["app"]
                self._web = self._stack.enter_context(TestClient(app))
        elif command == "semlex worker":
            worker = self._stack.enter_context(self.shell.start("worker"))
            assert worker.stderr.readline() == expected
        elif command.startswith("curl "):
            path = shlex.split(command)[1].removeprefix("localhost:8000")
            until(lambda: self._web.get(path).text == expected.rstrip("\n"), f"{command}: {expected}")
        elif not NOT_FOLLOWED.match(command):
            assert self._comparable(self._output(command)) == self._comparable(expected), command

    def _output(self, command):
        environment, folder = self.shell.environment, self.shell.folder
        if re.match(r"(semlex|python) [^|;$]*\Z", command):
            program, *arguments = shlex.split(command, comments=True)
            if program == "semlex":
                done = run_here(arguments, environment, folder)
            else:
                done = run_process(arguments[1:], environment, folder, arguments[0])
        else:
            where = {"env": environment, "cwd": folder}
            done = subprocess.run(["bash", "-c", command], **where, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def _comparable(self, output):
        """Return the lines that do not differ from run to run; a terminal mixes two streams, in either order."""
        output = as_on_a_page(output, self.shell.folder)
        for pattern, instead in CHANGING:
            output = pattern.sub(instead, output)
        return sorted(filter(None, output.splitlines()))


@pytest.mark.slow
@pytest.mark.parametrize("page", [*FIRST_PAGES, *TUTORIALS], ids=lambda page: page.name)
def test_a_page_shows_what_happens(page, shell):
    if page in TUTORIALS:
        shutil.rmtree(shell.folder / "docs")
    with ExitStack() as stack:
        reader = Reader(shell, stack)
        for before, kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if page in TUTORIALS or kind != "python":  # which run with those of other pages
                reader.block(before, kind, text)


# --- the notebook -----------------------------------------------------------------------------------------------------

# ``jupyter execute --inplace`` writes new outputs into it; keep their texts alone.
NOTEBOOK = ROOT / "docs" / "tutorials" / "pdf-notebook.ipynb"


def shown(cell):
    """The text that a cell shows, without progress; what it prints may come in pieces."""
    outputs = [one for one in cell.get("outputs", []) if one["output_type"] != "display_data"]
    return "".join(one.get("text") or one["data"]["text/plain"] for one in outputs)


@pytest.mark.slow
def test_the_notebook_shows_what_its_page_shows(database_url, tmp_path, monkeypatch):
    stored = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(stored)
    run = nbformat.read(NOTEBOOK, 4)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("DATABASE_URL", database_url)
    NotebookClient(run, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [shown(cell) for cell in run.cells] == [shown(cell) for cell in stored.cells]
