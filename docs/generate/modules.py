"""The map of all packages: the first paragraph of each one's documentation, and the names of its modules."""

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
# Their documentation describes their folder.
OF_THE_FOLDER = ("__init__.py", "lib.rs", "mod.rs")
TESTS = ROOT / "rust" / "core" / "src" / "tests"


def modules() -> str:
    """Return a list of packages for each tree of modules."""
    return "\n\n".join(
        f"## {title}\n\n" + "\n".join(_package(folder, tree) for folder in _folders(tree))
        for title, tree in TREES.items()
    )


def _folders(tree: Path) -> list[Path]:
    files = [path for kind in ("py", "rs") for path in tree.rglob(f"*.{kind}") if TESTS not in path.parents]
    return sorted({path.parent for path in files})


def _package(folder: Path, tree: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".rs"))
    described = next(path for path in files if path.name in OF_THE_FOLDER)
    names = ", ".join(f"`{path.stem}`" for path in files if path != described)
    name = f"`{folder.relative_to(tree).as_posix()}/`: " if folder != tree else ""
    return " ".join(filter(None, [f"- {name}{_first_paragraph(described)}", names]))


def _first_paragraph(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = ast.get_docstring(ast.parse(text)) or ""
    else:
        opening = itertools.takewhile(lambda line: line.startswith("//!"), text.splitlines())
        found = "\n".join(line.removeprefix("//!").strip() for line in opening)
    return " ".join(found.partition("\n\n")[0].split()).replace("``", "`")
