"""`import semlex` is light, SQL is in one place and composed, and tests are in folders by what they need."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

import semlex
from semlex.ingest.files.discovery import NOT_TOLD
from semlex.ingest.files.selection import SkipReason
from semlex.ingest.loaders.base import BAD_TEXT_CODES
from tests.support.folders import documentation
from tests.support.sources import statements

PACKAGE = Path(semlex.__file__).parent
TESTS = PACKAGE.parent.parent / "tests"

HEAVY = (
    "torch", "transformers", "model2vec", "tokenizers", "sentence_transformers", "httpx2", "langchain_core",
    "langgraph", "psycopg", "pydantic", "typer",
)  # fmt: skip


def modules():
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}


def test_the_package_pgvector_is_not_needed():
    """Other stores on Postgres need other versions of it, and are installed beside semlex."""
    project = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    texts = [path.read_text(encoding="utf-8") for path in modules().values()]
    for name, is_needed in (("psycopg", True), ("pgvector", False)):
        assert (name in {re.split(r"[^\w.-]", one)[0] for one in needed}) == is_needed
        assert any(re.search(rf"^\s*(?:from|import) {name}\b", text, re.MULTILINE) for text in texts) == is_needed


def is_formatted(node):
    """Whether an expression builds text: an f-string, a ``%`` or a ``+`` with a string, a ``.format`` of a string."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mod) or any(
            is_formatted(side) or isinstance(side, ast.Constant) for side in (node.left, node.right)
        )
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr == "format" and isinstance(method.value, ast.Constant)


@pytest.mark.slow
def test_sql_is_composed_never_formatted():
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    wrong = [
        f"{name}:{node.lineno}"
        for name, source in sources.items()
        if re.search(r"\.(execute|SQL|copy)\(", source)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("execute", "SQL", "copy")
        and any(map(is_formatted, node.args))
    ]
    assert not wrong


def test_formatted_text_is_recognised_and_only_the_store_speaks_sql():
    for text in ["f'{x}'", "'a' + b", "'a' % b", "'a'.format(b)", "b + ('a' + c)"]:
        assert is_formatted(ast.parse(text, mode="eval").body)

    def speaks(path):
        # A session of SQLAlchemy runs the statements that SQLAlchemy writes.
        text = path.read_text(encoding="utf-8").replace("self._session.execute(", "")
        return any(word in text for word in ("sql.SQL", "psycopg.sql", "import sql", ".execute("))

    speakers = {name.split(".")[0] for name, path in modules().items() if speaks(path)}
    assert speakers == {"store"}


def output_of(program, code=0, **options):
    """What a program writes that ends with a code."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, **options, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


EACH_FORKED = """
import os
{before}
for program, code in {programs!r}:
    if not os.fork():
        exec(program, {{}})
        break
    assert os.waitstatus_to_exitcode(os.wait()[1]) == code, program
    print(end="\\f", flush=True)
"""


def outputs_of(*programs, before, **options):
    """What programs write that end with a code, each from where a program that only imports other packages ends."""
    return output_of(EACH_FORKED.format(before=before, programs=programs), **options).split("\f")[:-1]


def test_import_is_light_and_every_public_name_loads():
    program = f"import semlex, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert output_of(program) == "[]\n"
    for name in semlex.__all__:
        assert getattr(semlex, name).__name__ == {"connect": "Client", "connect_sync": "SyncClient"}.get(name, name)
    assert set(dir(semlex)) == set(semlex.__all__)


# What `semlex search` has no use for; each is between ten and five hundred milliseconds of a start.
UNUSED_BY_A_SEARCH = (
    "torch", "transformers", "model2vec", "joblib", "tqdm", "safetensors", "sentence_transformers",
    "huggingface_hub.file_download", "huggingface_hub.hf_api", "httpx2", "langchain_core", "langgraph",
    "multiprocessing.pool", "pydantic", "urllib.request", "rich.markdown", "rich.progress", "rich.table",
    "semlex.answering", "semlex.diagnostics", "semlex.embedding.remote", "semlex.embedding.qwen3",
    "semlex.embedding.sentence_transformers", "semlex.evaluation", "semlex.ingest.indexer", "semlex.ingest.loaders",
    "semlex.jobs", "semlex.maintenance", "semlex.models.http_client", "semlex.models.local.transformer",
    "semlex.reranking.cross_encoder", "semlex.reranking.remote", "semlex.reranking.qwen3",
    "semlex.retriever.documents", "semlex.retriever.embeddings", "semlex.retriever.tables", "semlex.search.why",
    "semlex.store.schema.dropping",
)  # fmt: skip
SEARCH = """
import sys
sys.argv = ["semlex", *{arguments!r}]
import semlex.cli.app
try:
    semlex.cli.app.main()
except SystemExit as done:
    assert not done.code, done.code
assert "semlex.retriever.postgres" in sys.modules
print("loaded:", [name for name in {names!r} if name in sys.modules])
"""


@pytest.mark.slow
def test_help_and_version_load_no_database_no_model_and_no_other_command():
    heavy = ("asyncio", "numpy", "psycopg", "psycopg_pool", "semlex._core", "semlex.retriever.postgres", "semlex.store")
    heavy += ("readline", "semlex.filters.tree", "semlex.ingest", "semlex.search")
    programs, expected = [], []
    for typed, code, own in (
        *(("--version", 0, None), ("--help", 0, None), ("search --help", 0, "search"), ("shell --help", 0, "shell")),
        *(("serach", 2, None), ("collections --help", 0, "collections")),
    ):
        program = f"import atexit, sys; sys.argv = ['semlex', *{typed.split()!r}]\n"
        program += f"found = lambda: [name for name in sys.modules if name in {heavy!r} or '.commands.' in name]\n"
        program += "atexit.register(lambda: print('loaded:', found()))\nfrom semlex.__main__ import main; main()"
        programs.append((program, code))
        expected.append(f"loaded: {[f'semlex.cli.commands.{own}'] if own else []}")
    said = outputs_of(*programs, before="import rich.console, rich.panel, typer")
    assert [one.splitlines()[-1] for one in said] == expected


@pytest.mark.slow
def test_a_search_from_the_shell_loads_what_it_uses(database_url, tmp_path):
    programs = []
    for model in ("static", "none"):
        with semlex.SyncRetriever(database_url, model, collection=model) as retriever:
            retriever.add_texts(["a lion in the grass"])
        arguments = ["search", "lion", "--collection", model, "--database", database_url]
        programs.append((SEARCH.format(arguments=arguments, names=UNUSED_BY_A_SEARCH), 0))
    options = {"cwd": tmp_path, "env": {**os.environ, "HF_HOME": str(tmp_path)}}
    said = outputs_of(*programs, before="import numpy, psycopg_pool, rich.console, typer", **options)
    assert ["a lion in the grass" in one for one in said] == [True, True]
    assert [one.splitlines()[-1] for one in said] == ["loaded: []"] * 2


@pytest.mark.slow
def test_methods_on_an_event_loop_load_nothing():
    """Loading would block the loop. Models are left out, because threads load them."""
    needed = {
        node.module
        for path in (PACKAGE / "retriever").glob("*.py")
        if path.stem not in ("resources", "synchronous")
        for function in statements(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in statements(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("semlex.")
    }
    assert {"semlex.ingest.sync", "semlex.search.why", "semlex.retriever.tables"} <= needed
    programs = [
        (f"import sys; from semlex import {name}; print(sorted({needed!r} - set(sys.modules)))", 0)
        for name in ("connect", "PostgreSQLRetriever", "from_settings")
    ]
    assert outputs_of(*programs, before="import numpy, psycopg_pool") == ["[]\n"] * 3


def test_tests_are_in_folders_by_what_they_need():
    needs = re.compile(r"^\s*(?:async )?def \w+\([^)]*\b(?:database_url|server_url|shell|program)\b", re.MULTILINE)
    assert needs.search("class Tests:\n    def test_a_search(\n        self, database_url\n    ):")
    files = [*(TESTS / "core").rglob("*.py"), *(TESTS / "unit").rglob("*.py")]
    assert [path.name for path in files if needs.search(path.read_text(encoding="utf-8"))] == []
    imports = re.compile(r"^(import|from) (torch|transformers)\b|^from tests.support.*\b(tiny|watched)_", re.MULTILINE)
    files = [path for path in TESTS.rglob("test_*.py") if path.parent.name != "torch"]
    assert [path.name for path in files if imports.search(path.read_text(encoding="utf-8"))] == []


def test_design_pages_name_files_and_functions_that_exist():
    root = TESTS.parent
    sources = {
        f"/{path.relative_to(root).as_posix()}": path
        for folder in ("python", "rust/core", "rust/python", "tests", "docs")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".rs", ".js")
    }
    files = functions = 0
    pages = set((root / "docs" / "design").rglob("*.md")) - {root / "docs" / "design" / "modules.md"}
    for page in sorted(pages):
        text = page.read_text(encoding="utf-8")
        for name, function in re.findall(r"`([\w/]+\.(?:py|rs|js))`(?::\s`(?:\w+\.)?(\w+)`)?", text):
            found = [path for place, path in sources.items() if place.endswith(f"/{name}")]
            assert found, f"{page.name}: {name}"
            files += 1
            if function:
                functions += 1
                defined = re.compile(rf"\b(def|class) {function}\b")
                assert any(defined.search(path.read_text(encoding="utf-8")) for path in found), f"{name}: {function}"
    assert files > 30
    assert functions > 15


# --- codes of problems ------------------------------------------------------------------------------------------------

INGEST = PACKAGE / "ingest"
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


def test_codes_are_found_and_the_page_has_every_one():
    source = "LoadError('a', f'{x}'); FileProblem(uri, 'b', m); x.y(LoadError(code='c', message=m))"
    assert codes_of(f"{source}; LoadError(error.code, m)") == {"a", "b", "c"}
    with pytest.raises(AssertionError, match="made_up"):
        codes_of("LoadError(made_up, m)")
    known = set[str]().union(*(codes_of(path.read_text(encoding="utf-8")) for path in INGEST.rglob("*.py")))
    assert len(known) > 25
    found = sections()
    reasons = found.pop(REASONS)
    assert set[str]().union(*found.values()) == known
    assert sum(map(len, found.values())) == len(known)  # each once
    assert found["Texts"] == BAD_TEXT_CODES
    assert reasons == set(get_args(SkipReason)) - set(NOT_TOLD)
