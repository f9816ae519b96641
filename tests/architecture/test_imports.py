"""Imports of Python and of the Rust core run one way, in no circle; defaults in the code of the index have reasons."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import semlex
from tests.support.sources import statements

PACKAGE = Path(semlex.__file__).parent

# A module imports from the lines below its own; what stands on one line does not know each other.
RULE = """
    __main__
    cli
    server
    evaluation integrations proof
    retriever
    diagnostics maintenance testing jobs answering progress
    ingest search
    open_collection
    store embedding reranking
    chat settings
    models
    options
    types
    filters lru_cache
    validation json_values whole_file forks telemetry
    errors clock
    rule_messages _core
"""
FLOORS = {name: floor for floor, line in enumerate(reversed(RULE.split("\n"))) for name in line.split()}


def assert_no_circle(imports):
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@cache
def imports():
    """Name of each module -> the modules that it imports, wherever in the file, type-only and late ones included."""
    files = {
        ".".join(("semlex", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    found = {name: set() for name in files}
    for name, path in files.items():
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}: relative import"
                module = node.module or ""
                for alias in node.names:
                    whole = f"{module}.{alias.name}"
                    found[name].add(whole if whole in files or whole == "semlex._core" else module)
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
    return {name: {other for other in others if other.startswith("semlex.")} for name, others in found.items()}


def room(module):
    return module.split(".")[1]


def test_imports_run_downwards_without_circles():
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name != "semlex" and room(name) != room(other) and FLOORS[room(other)] >= FLOORS[room(name)]
    ]
    assert wrong == []
    rooms = {room(name) for name in imports() if name != "semlex"} | {"_core"}
    assert rooms == set(FLOORS)
    assert_no_circle(imports())
    assert [one for one in imports()["semlex.store.segments"] if one.startswith("semlex.store.keyword")] == []


WITHOUT_POSIX = """
import asyncio, importlib, multiprocessing, pkgutil, subprocess, sys
import psycopg_pool, rich.console, typer, uvicorn, anyio, fastapi, mcp.server.stdio, psutil, platformdirs, semlex
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
sys.platform = "win32"
for module in pkgutil.walk_packages(semlex.__path__, "semlex."):
    if not module.name.startswith("semlex.integrations") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_no_module_needs_what_windows_lacks():
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- the Rust core ----------------------------------------------------------------------------------------------------

CORE = Path(__file__).parents[2] / "rust" / "core" / "src"
# Part of the index -> parts that it must not import.
FORBIDDEN = {
    "segments": ("keyword",),
    "keyword::analyzer": ("keyword::format", "keyword::build", "keyword::search", "segments"),
    "keyword::format": ("keyword::analyzer", "keyword::build", "keyword::search"),
    "keyword::build": ("keyword::analyzer", "keyword::search"),
    "keyword::search": ("keyword::build",),
}
USE = re.compile(r"(\bpub(?:\(\w+\))? )?\buse ([^;]+);")
# A missing value is an error, not a wrong answer.
DEFAULT = re.compile(r"\bunwrap_or(_default|_else)?\((?!PoisonError)")


def rust_sources():
    """Path of each module from the crate's root -> its code, without its own tests."""
    sources = {}
    for file in CORE.rglob("*.rs"):
        *folders, name = file.relative_to(CORE).with_suffix("").parts
        if folders[:1] == ["tests"]:
            continue
        module = "::".join(folders if name in ("mod", "lib") else [*folders, name])
        sources[module] = file.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests {")[0]
    return sources


MODULES = {module: re.sub(r"//[^\n]*", "", code) for module, code in rust_sources().items()}


def expanded(tree):
    """``a::{b, c::{d, e}}`` -> ``a::b``, ``a::c::d``, ``a::c::e``; some of them twice."""
    group = re.search(r"\{([^{}]*)\}", tree)
    if group is None:
        return [re.sub(r" as \w+|\s|::self\b", "", tree)]
    names = [name for name in group[1].split(",") if name.strip()]
    return [path for name in names for path in expanded(tree[: group.start()] + name + tree[group.end() :])]


def defining(path, module):
    """The module that defines what a path names in another one; that one itself for what is of no module."""
    first, *names = path.split("::")
    here = {"crate": "", "super": module.rpartition("::")[0]}.get(first, f"{module}::{first}".removeprefix("::"))
    if here not in MODULES:
        return module
    for name in names:
        below = f"{here}::{name}".removeprefix("::")
        if below not in MODULES:
            exports = (one for pub, tree in USE.findall(MODULES[here]) if pub for one in expanded(tree))
            return next((defining(one, here) for one in exports if one.endswith(f"::{name}")), here)
        here = below
    return here


@cache
def rust_imports():
    found = {}
    for module, code in MODULES.items():
        body = re.sub(r"\bmod \w+;", "", USE.sub("", code))
        used = [(pub, path) for pub, tree in USE.findall(code) for path in expanded(tree)]
        # What a module only names again is not its own import.
        paths = [path for pub, path in used if not pub or re.search(rf"\b{path.rpartition('::')[2]}\b", body)]
        paths += re.findall(r"\b\w+(?:::\w+)+", body)
        found[module] = {defining(path, module) for path in paths} - {module}
    return found


def is_within(module, part):
    return f"{module}::".startswith(f"{part}::")


def test_no_rust_files_stand_in_a_circle():
    assert {"keyword::search::top", "segments", "segments::bitmap"} < rust_imports()["keyword::search::score"]
    assert_no_circle(rust_imports())


def test_parts_of_an_index_import_one_way_and_defaults_have_reasons():
    for part, forbidden in FORBIDDEN.items():
        own = [module for module in MODULES if is_within(module, part)]
        assert own
        pairs = ((module, other) for module in own for other in rust_imports()[module])
        assert [pair for pair in pairs if any(is_within(pair[1], other) for other in forbidden)] == []
        sources = {module: code.splitlines() for module, code in rust_sources().items() if is_within(module, part)}
        assert sources
        bare = [
            f"{module}:{number}: {line.strip()}"
            for module, lines in sources.items()
            for number, line in enumerate(lines, start=1)
            if DEFAULT.search(line) and not any("//" in near for near in lines[number - 2 : number + 1])
        ]
        assert bare == []
