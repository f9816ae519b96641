"""The map of all modules, from the first paragraphs of their documentation."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = {
    "Python: python/semlex": ROOT / "python" / "semlex",
    "Rust, the algorithms: rust/core/src": ROOT / "rust" / "core" / "src",
    "Rust, the bindings: rust/python/src": ROOT / "rust" / "python" / "src",
}
# What these say is true of their folder.
OF_THE_FOLDER = ("__init__.py", "lib.rs", "mod.rs")
TESTS = ROOT / "rust" / "core" / "src" / "tests"


def modules() -> str:
    """Return a section for each tree of modules."""
    return "\n\n".join(_section(title, tree) for title, tree in TREES.items())


def _section(title: str, tree: Path) -> str:
    parts = [f"## {title}"]
    for folder, files in _folders(tree).items():
        if folder != tree:
            parts.append(f"### {folder.relative_to(tree).as_posix()}/")
        parts += [_first_paragraph(path) for path in files if path.name in OF_THE_FOLDER]
        listed = [path for path in files if path.name not in OF_THE_FOLDER]
        parts.append("\n".join(f"- `{path.stem}`: {_first_paragraph(path)}" for path in listed))
    return "\n\n".join(filter(None, parts))


def _folders(tree: Path) -> dict[Path, list[Path]]:
    files = [path for kind in ("py", "rs") for path in sorted(tree.rglob(f"*.{kind}")) if TESTS not in path.parents]
    return {
        folder: [path for path in files if path.parent == folder] for folder in sorted({one.parent for one in files})
    }


def _first_paragraph(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = ast.get_docstring(ast.parse(text)) or ""
    else:
        opening = itertools.takewhile(lambda line: line.startswith("//!"), text.splitlines())
        found = "\n".join(line.removeprefix("//!").strip() for line in opening)
    return " ".join(found.partition("\n\n")[0].split()).replace("``", "`")
