"""The examples of README and docs run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import cache
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from docs.generate.markdown import slug
from semlex.settings.sources import QA_KEYS, RAG_KEYS, SERVER_VARIABLES, read_settings
from semlex.settings.table import SETTINGS, camel
from semlex.store.postgres.embedded.server import DATABASE, EmbeddedServer
from tests.support.command_tree import TREE, parted
from tests.support.documented_programs import FRAMEWORKS, PAGES, as_on_a_page, documented_programs, run_documented
from tests.support.embedded_servers import configure
from tests.support.folders import ROOT, TEMPORARY, documentation
from tests.support.settings_forms import world
from tests.support.shell import Shell

# Pages whose outputs are compared with those of their commands, line by line; `…` stands for lines that are left out.
COMPARED = (
    *("answers", "assistants", "backup", "change-the-model", "enrich", "evaluate", "filter", "follow-a-table"),
    *("ranking", "search", "search-options", "why"),
)
RUN_PAGES = (*COMPARED, "deploy", "index-folders", "indexes", "install", "monitor")
# They go on until Ctrl-C, or need a model, a table, judgements, a server or versions that are not here.
NOT_RUN = (
    *("--watch", " --http", "semlex worker", "semlex ui", "semlex shell", "--chat-model ollama:", " -c shop"),
    *(" --qrels", " --database ", "semlex models drop"),
)


@pytest.fixture(scope="module")
def running(make_server_folder: Callable[[Path], Path]) -> Iterator[EmbeddedServer]:
    """An embedded server that goes on running between examples."""
    folder = Path(tempfile.mkdtemp(prefix="semlex-test-", dir=TEMPORARY))
    folder.chmod(0o711)
    try:
        configure(make_server_folder(folder / "postgres"), fsync="off")
        with EmbeddedServer(folder / "postgres") as server:
            with psycopg.connect(make_conninfo(server.url, dbname="template1"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE untouched TEMPLATE {DATABASE}")
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def embedded(running: EmbeddedServer) -> EmbeddedServer:
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
def test_example_runs(example: str, embedded: EmbeddedServer) -> None:
    run_documented(example, embedded.folder.parent)


def test_every_example_has_its_place() -> None:
    """What runs with a framework is run by the tests beside it; nothing is left out."""
    for framework in FRAMEWORKS:
        tests = ROOT / "tests" / "frameworks" / framework / f"test_{framework}_documentation.py"
        assert re.search(rf'document(ation_test|ed_programs)\("{framework}"\)', tests.read_text(encoding="utf-8"))
        assert documented_programs(framework)


@pytest.mark.slow
def test_the_demonstration_finds_what_it_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import demo.__main__"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    counts = Counter(slug(heading) for heading in re.findall(r"^#+ (.*)", text, re.MULTILINE))
    return {f"{name}-{number}" if number else name for name, count in counts.items() for number in range(count)}


def test_links_lead_somewhere() -> None:
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.ipynb")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = page.parent / path if path else page
            leads = there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
            if "://" not in target and not leads:
                broken.append(f"{page.name}: {target}")
    assert not broken


def test_the_first_page_leads_to_every_page() -> None:
    first = documentation("index.md")
    linked = {first.parent / target for target in re.findall(r"\]\(([^)#]+)\)", first.read_text(encoding="utf-8"))}
    pages = {page for page in first.parent.glob("*/*") if page.suffix in {".md", ".ipynb"}}
    assert pages == linked


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = documentation(page).read_text(encoding="utf-8")
    table = re.search(r"^\|.*?(?=^$|\Z)", text.split(f"{heading}\n", 1)[1], re.DOTALL | re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_on_installing_names_every_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {name for cell in rows("install.md", "The extras:") for name in code(cell[0])} == declared.keys()


def test_the_page_of_settings_has_every_name_of_other_programs() -> None:
    named = {name for cell in rows("settings.md", "### settings.json") for name in code(cell[0])}
    special = {key for key in RAG_KEYS if key != "qa"} | {f"qa.{key}" for key in QA_KEYS}
    plain = {camel(setting.name) for setting in SETTINGS}
    assert named - {"embeddingModel", "topK", "rerankerModel"} == special - plain
    page = documentation("settings.md").read_text(encoding="utf-8")
    assert [f"`{name}`" in page for name in SERVER_VARIABLES] == [True, True, True]
    leading = {
        setting.name for setting in SETTINGS if setting.leads_away("http://x/v1#m") or setting.name == "query_log"
    }
    trust = page.split("## Trust\n")[1].split("##")[0]
    others = {"embedding_model", "reranker_model", "chat_model", "enrichment_model"}
    assert [name for name in leading - others if f"`{name}`" not in trust] == []


def test_the_examples_of_files_are_settings() -> None:
    page = documentation("settings.md").read_text(encoding="utf-8")
    found = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found
    for example in found:
        with world(own=example):
            _, problems = read_settings()
        assert problems == []


def typed(page: Path) -> list[tuple[str, str]]:
    """The `semlex` commands that a page shows, and their output; other programs (pip, pg_dump) are not run."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    command = re.compile(r"^\$ (semlex .*?)(?: \| .*)?\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
    return [shown for block in blocks for shown in command.findall(block)]


def consoles() -> list[pytest.ParameterSet]:
    """The commands of the pages whose commands need nothing but a collection, with the outputs to be compared."""
    return [
        pytest.param(
            [
                (line, output if page.stem in COMPARED else "")
                for line, output in typed(page)
                if not any(part in line for part in NOT_RUN)
            ],
            id=page.name,
        )
        for page in (documentation(f"{name}.md") for name in RUN_PAGES)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_can_be_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line, _ in typed(page):
        name, rest = parted(shlex.split(line, comments=True)[1:])
        # What options set for a command ends with it.
        Context().run(TREE[name].make_context, name, rest)


@pytest.mark.slow
@pytest.mark.parametrize("lines", consoles())
def test_commands_run_as_they_are_shown(lines: list[tuple[str, str]], shell: Shell) -> None:
    (shell.folder / "src").mkdir()
    (shell.folder / "src" / "keys.py").write_text("def rotate(key: str) -> str:\n    return key[::-1]\n")
    (shell.folder / "tests").symlink_to(ROOT / "tests")
    (shell.folder / "questions.txt").write_text("how often is a key rotated\nwhich fruit is yellow\n")
    shell("index", "docs", "-c", "handbook")
    [table] = re.findall(r"```sql\n(.*?)```", documentation("own-table.md").read_text("utf-8"), re.DOTALL)
    with psycopg.connect(shell.environment["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(table)
    for line, output in lines:
        done = shell(*shlex.split(line, comments=True)[1:])
        said = as_on_a_page(done.stdout + done.stderr, shell.folder).splitlines()
        shown = as_on_a_page(output, shell.folder).splitlines()
        assert [one for one in shown if one not in {*said, "…"}] == [], (line, said)
