"""Writes docs/design/modules.md, the map of all modules, from the first paragraphs of their documentation.

Run it after a module is added, renamed or described differently: ``./x stubs``. A test compares.
"""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design" / "modules.md"
OPENING = """# Modules

Every module with the first sentence of its documentation. `./x stubs` writes this page, and a test compares it.
[Architecture](architecture.md) shows how the packages work together.
"""
TREES = {
    "Python: python/semlex": ROOT / "python" / "semlex",
    "Rust, the algorithms: rust/core/src": ROOT / "rust" / "core" / "src",
    "Rust, the bindings: rust/python/src": ROOT / "rust" / "python" / "src",
}
# What these say is true of their folder.
OF_THE_FOLDER = ("__init__.py", "lib.rs", "mod.rs")
TESTS = ROOT / "rust" / "core" / "src" / "tests"


def first_paragraph(path: Path) -> str:
    """Return what a module says about itself, as one line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = ast.get_docstring(ast.parse(text)) or ""
    else:
        opening = itertools.takewhile(lambda line: line.startswith("//!"), text.splitlines())
        found = "\n".join(line.removeprefix("//!").strip() for line in opening)
    return " ".join(found.partition("\n\n")[0].split()).replace("``", "`")


def modules(tree: Path) -> dict[Path, list[Path]]:
    """Return the folders of a tree -> the modules in each."""
    files = [path for kind in ("py", "rs") for path in sorted(tree.rglob(f"*.{kind}")) if TESTS not in path.parents]
    return {
        folder: [path for path in files if path.parent == folder] for folder in sorted({one.parent for one in files})
    }


def section(title: str, tree: Path) -> str:
    """Return the part of the page about one tree of modules."""
    lines = [f"## {title}", ""]
    for folder, files in modules(tree).items():
        if folder != tree:
            lines += [f"### {folder.relative_to(tree).as_posix()}/", ""]
        for path in files:
            if path.name in OF_THE_FOLDER:
                lines += [first_paragraph(path), ""]
        listed = [f"- `{path.stem}`: {first_paragraph(path)}" for path in files if path.name not in OF_THE_FOLDER]
        lines += [*listed, ""] if listed else []
    return "\n".join(lines)


def generated() -> dict[Path, str]:
    """Return the page -> its text."""
    parts = [OPENING, *(section(title, tree) for title, tree in TREES.items())]
    return {PAGE: "\n".join(parts).rstrip() + "\n"}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
