"""Imports run one way, type-only and late ones included, and no files stand in a circle."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import semlex

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
    validation json_values forks telemetry
    errors clock
    rule_messages _core
"""
FLOORS = {name: floor for floor, line in enumerate(reversed(RULE.split("\n"))) for name in line.split()}


@cache
def imports():
    """Name of each module -> the modules that it imports, wherever in the file."""
    files = {
        ".".join(("semlex", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    found = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
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
