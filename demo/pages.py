"""The documentation that every machine has: the docstrings of Python's standard library, one Markdown page a module."""

from __future__ import annotations

import ast
import inspect
import sysconfig
import warnings
from dataclasses import dataclass
from pathlib import Path

SKIPPED = {"test", "tests", "idlelib", "site-packages", "lib2to3", "turtledemo", "__pycache__", "idle_test"}


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Attributes:
        modules: Number of pages.
        docstrings: Number of docstrings in them.
    """

    modules: int
    docstrings: int


def write_pages(folder: Path) -> Written:
    """Writes a page for every module of the running Python that has docstrings; the sources are read, not imported.

    Args:
        folder: Where to write; pages whose text is the same already are left alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = Path(sysconfig.get_path("stdlib"))
    modules = docstrings = 0
    for source in sorted(library.rglob("*.py")):
        parts = source.relative_to(library).with_suffix("").parts
        if SKIPPED.intersection(parts) or any(part.startswith("config-") for part in parts):
            continue
        sections = _sections(source)
        if not sections:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        page = folder / f"{name}.md"
        text = f"# {name}\n\n" + "\n\n".join(sections) + "\n"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
        modules += 1
        docstrings += len(sections)
    return Written(modules, docstrings)


def _sections(source: Path) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return []  # a file that is meant to be broken
    sections: list[str] = []
    module = ast.get_docstring(tree)
    if module:
        sections.append(module)
    _collect(tree, "", 2, sections)
    return sections


def _collect(node: ast.AST, path: str, level: int, sections: list[str]) -> None:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        name = f"{path}.{child.name}" if path else child.name
        docstring = ast.get_docstring(child)
        if docstring:
            kind = "class " if isinstance(child, ast.ClassDef) else ""
            sections.append(f"{'#' * level} {kind}{name}\n\n{inspect.cleandoc(docstring)}")
        if isinstance(child, ast.ClassDef):
            _collect(child, name, min(level + 1, 4), sections)
