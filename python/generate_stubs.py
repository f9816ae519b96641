"""Writes the stubs of what type checkers cannot see: `semlex/__init__.pyi` and `semlex/retriever/synchronous.pyi`.

Public names are loaded when they are first used, and the synchronous classes take their methods from the asynchronous
ones when they are loaded. Run it after a change of either: ``./x stubs``. A test compares.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import semlex
from semlex.retriever import synchronous

PUBLIC = '''"""The public names for type checkers, written by ``./x stubs``."""

{imports}

__version__: str
__all__ = {names}
'''
HEADER = '''"""Types of the synchronous classes, written by ``./x stubs``."""

{imports}

P = ParamSpec("P")
T = TypeVar("T")

__all__ = {names}

'''
FOOTER = """

connect_sync = SyncClient

def without_await(found: Any, runner: Any = None) -> Any: ...
"""
DUNDERS = ("__init__", "__init_subclass__", "__eq__", "__hash__", "__reduce__", "__enter__", "__exit__")
WIDTH = 120


@cache
def origins(module: str) -> dict[str, tuple[str, str]]:
    """The names of a module, those for type checkers included -> the module they are in, and how it is imported."""
    found = {}
    for node in ast.walk(ast.parse(Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                found[one.asname or one.name] = (node.module or "", ast.unparse(one))
        elif isinstance(node, ast.ClassDef):
            found.setdefault(node.name, (module, node.name))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: (module, one.id) for one in targets if isinstance(one, ast.Name)}
    return found


def summary(docstring: str | None) -> str:
    """The first paragraph of a docstring as a body."""
    paragraph = inspect.cleandoc(docstring or "").partition("\n\n")[0]
    return '"""' + paragraph.replace("\n", " ") + '"""'


def default(value: object) -> str:
    """A default as written in a signature."""
    if value is inspect.Parameter.empty:
        return ""
    return f" = {value!r}" if isinstance(value, (bool, int, float, str, type(None))) else " = ..."


class Stub:
    """The text of the stub, made of what the loaded module has."""

    def __init__(self) -> None:
        named = [getattr(synchronous, name) for name in synchronous.__all__]
        self.asynchronous = {made: kind for kind, made in synchronous._KINDS.items() if made}  # noqa: SLF001
        self.classes = [*dict.fromkeys([synchronous.Synchronous, synchronous.Opened, *filter(inspect.isclass, named)])]
        self.local = {kind.__name__ for kind in self.classes} | {"P", "T"}
        self.imports = {("typing", "Any"), ("typing", "ParamSpec"), ("typing", "TypeVar")}

    def annotation(self, told: Any, module: str) -> str:
        """An annotation, whose names are imported as its module imports them."""
        text = told if isinstance(told, str) else "Any"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id not in self.local:
                if node.id == "Generator":
                    self.imports.add(("collections.abc", "Generator"))
                elif node.id in origins(module):
                    self.imports.add(origins(module)[node.id])
        return text

    def method(self, name: str, function: FunctionType) -> str:
        """A method with its whole signature."""
        signature, module = inspect.signature(function), inspect.unwrap(function).__module__
        parts: list[str] = []
        for one in signature.parameters.values():
            if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
                parts.append("*")
            stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
            typed = "" if one.name in ("self", "cls") else f": {self.annotation(one.annotation, module)}"
            parts.append(f"{stars}{one.name}{typed}{default(one.default)}")
        kind = "async def" if inspect.iscoroutinefunction(function) else "def"
        end = f" -> {self.annotation(signature.return_annotation, module)}:"
        line = f"    {kind} {name}({', '.join(parts)}){end}"
        if len(line) > WIDTH:
            line = f"    {kind} {name}(\n        " + ",\n        ".join(parts) + f",\n    ){end}"
        return f"{line}\n        {summary(function.__doc__)}" if function.__doc__ else f"{line} ..."

    def getter(self, kind: type, name: str, member: property) -> str:
        """A property; the type of a field that a class only declares is that of its declaration."""
        given = self.asynchronous.get(kind, kind)
        owner = next(one for one in given.__mro__ if name in vars(one) or name in inspect.get_annotations(one))
        told = member.fget.__annotations__.get("return")  # type: ignore[union-attr]
        declared = told or inspect.get_annotations(owner)[name]
        line = f"    @property\n    def {name}(self) -> {self.annotation(declared, owner.__module__)}:"
        return f"{line}\n        {summary(member.__doc__)}" if told else f"{line} ..."

    def kind(self, kind: type) -> str:
        """A class with everything public that it does not inherit."""
        bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
        lines = [f"class {kind.__name__}({bases}):\n    {summary(kind.__doc__)}"]
        if kind in self.asynchronous:
            self.imports.add((self.asynchronous[kind].__module__, self.asynchronous[kind].__name__))
            told = self.asynchronous[kind].__name__
            lines.append(f"    @property\n    def asynchronous(self) -> {told}: ...")
        for name, member in vars(kind).items():
            if name.startswith("_") and name not in DUNDERS:
                continue
            if isinstance(member, property):
                lines.append(self.getter(kind, name, member))
            elif isinstance(member := getattr(member, "__func__", member), FunctionType):
                lines.append(self.method(name, member))
        return "\n\n".join(lines)


def synchronous_stub() -> str:
    """The text of `synchronous.pyi`."""
    stub = Stub()
    body = "\n\n".join(map(stub.kind, stub.classes))
    modules = sorted({module for module, _ in stub.imports})
    imports = [
        f"from {one} import {', '.join(sorted(name for at, name in stub.imports if at == one))}" for one in modules
    ]
    return HEADER.format(imports="\n".join(imports), names=synchronous.__all__) + body + FOOTER


def generated() -> dict[Path, str]:
    """The files with their texts."""
    imports = sorted(f"from {module} import {name} as {name}" for name, module in semlex._MODULES.items())  # noqa: SLF001
    return {
        Path(semlex.__file__).with_suffix(".pyi"): PUBLIC.format(imports="\n".join(imports), names=semlex.__all__),
        Path(synchronous.__file__).with_suffix(".pyi"): synchronous_stub(),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
