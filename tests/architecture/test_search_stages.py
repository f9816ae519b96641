"""The stages of a search hand on values: no function is passed between them, and none leaves a trace in a module."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import semlex
from semlex.search.pipeline import SearchPipeline

PACKAGE = Path(semlex.__file__).parent
# `Database.read_snapshot` takes a function, because it runs it again where a connection was lost: that is the store's
# own interface in store/postgres. What is handed to it is defined where it is called, and stored nowhere.
FILES = [
    *(PACKAGE / "search").glob("*.py"),
    *(PACKAGE / "store" / "query").glob("*.py"),
    PACKAGE / "store" / "keyword" / "bm25" / "query.py",
    PACKAGE / "store" / "keyword" / "bm25" / "search.py",
]
FUNCTIONS = ("Callable", "Awaitable", "Coroutine", "partial", "ContextVar", "WeakKeyDictionary")


def written(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_function_is_handed_on(path: Path) -> None:
    names = {node.id for node in ast.walk(written(path)) if isinstance(node, ast.Name)}
    names |= {
        alias.name for node in ast.walk(written(path)) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert names.isdisjoint(FUNCTIONS)
    assert not [node.lineno for node in ast.walk(written(path)) if isinstance(node, ast.Global)]


def attributes_set_late(path: Path) -> list[str]:
    """Attributes of ``self`` that another method than the constructor sets, as Class.method: attribute."""
    found = []
    for owner in ast.walk(written(path)):
        if not isinstance(owner, ast.ClassDef):
            continue
        for method in owner.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name != "__init__":
                found += [
                    f"{owner.name}.{method.name}: {node.attr}"
                    for node in ast.walk(method)
                    if isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "self"
                ]
    return found


# What an open retriever remembers of its collection between searches; no stage of one search reads it from another.
KEPT_BETWEEN_SEARCHES = {"VectorSample.note_written: _written", "VectorSample.spread: _drawn"}


def test_no_stage_leaves_an_attribute_for_the_next() -> None:
    assert {late for path in FILES for late in attributes_set_late(path)} == KEPT_BETWEEN_SEARCHES


def test_the_stages_are_read_in_one_function() -> None:
    assert len(inspect.getsource(SearchPipeline.run).splitlines()) <= 40


def test_files_of_the_search_are_short() -> None:
    sizes = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: lines for name, lines in sizes.items() if lines > 400} == {}
