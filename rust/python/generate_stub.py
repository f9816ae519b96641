"""Writes `python/semlex/_core.pyi` from the Rust that it describes; a test compares.

Docstrings are the ``///`` lines of what is exported. The types of a function are in its ``#[pyo3(signature)]``, where
PyO3 allows them; those of properties, fields and constants follow as ``// -> TYPE``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Tools that infer types would have little to infer: most arguments are objects that Rust checks itself, since its
# messages name them. They also need a build of their own.

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "rust" / "python" / "src"
TARGET = ROOT / "python" / "semlex" / "_core.pyi"
HEADER = """# Written by `./x stubs` from rust/python/src.
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

__all__ = {names}
"""
# Methods that PyO3 gives no signature, because Python calls them; binary ones get their reflected ones with them.
SPECIAL = {"__len__": "(self) -> int", "__bool__": "(self) -> bool"}
BINARY = {"__and__": "__rand__", "__sub__": "__rsub__"}
DEFAULTS = {"true": "True", "false": "False"}
LITERAL = r"[\w.]+"
WIDTH = 120


class Item:
    """The lines above a definition: its docstring and its attributes."""

    def __init__(self) -> None:
        self.doc: list[str] = []
        self.attributes = ""

    def body(self, indent: str) -> str:
        """The docstring as the body of a definition, or three dots."""
        if not self.doc:
            return " ..."
        text = "\n".join(f"{indent}{line}".rstrip() for line in self.doc)
        raw = "r" if "\\" in text else ""
        end = f"\n{indent}" if len(self.doc) > 1 else ""
        return f'\n{indent}{raw}"""{text.lstrip()}{end}"""'

    def property_type(self, line: str) -> str | None:
        """The type of a property, behind its attribute or its field."""
        found = re.search(r"// -> (.+)$", f"{self.attributes}\n{line}", re.MULTILINE)
        return found[1] if found else None


def parameters(attributes: str) -> tuple[list[str], str]:
    """The parameters that a signature has, and what it returns."""
    found = re.search(r'signature = \((?P<given>.*)\)(?: -> "(?P<returned>[^"]*)")?\)\]', attributes, re.DOTALL)
    if found is None:
        return [], "None"
    given = []
    for one in re.finditer(
        r'(?P<sign>[*/])|(?P<name>\w+): "(?P<kind>[^"]*)"(?: = (?P<default>[^,\n]+))?', found["given"]
    ):
        default = one["default"] and DEFAULTS.get(one["default"], one["default"])
        end = f" = {default if re.fullmatch(LITERAL, default) else '...'}" if default else ""
        given.append(one["sign"] or f"{one['name']}: {one['kind']}{end}")
    return given, found["returned"] or "None"


def method(name: str, item: Item, indent: str) -> str:
    """A function or a method with its whole signature."""
    given, returned = parameters(item.attributes)
    lines = ""
    if "#[staticmethod]" in item.attributes:
        lines = f"{indent}@staticmethod\n"
    elif "#[new]" in item.attributes:
        name, given, returned = "__new__", ["cls", *given], "Self"
        item.doc = []  # the class has it
    elif indent:
        given = ["self", *given]
    line = f"{indent}def {name}({', '.join(given)}) -> {returned}:"
    if len(line) > WIDTH:
        line = (
            f"{indent}def {name}(\n" + "".join(f"{indent}    {one},\n" for one in given) + f"{indent}) -> {returned}:"
        )
    return lines + line + item.body(f"{indent}    ")


def special(name: str, kind: str, item: Item) -> list[str]:
    """A method that Python calls, with its reflected one; the text of `repr` has no place here."""
    if name in SPECIAL:
        return [f"    def {name}{SPECIAL[name]}:{item.body('        ')}"]
    if name in BINARY:
        reflected = f"    def {BINARY[name]}(self, value: {kind}, /) -> {kind}: ..."
        return [f"    def {name}(self, other: {kind}, /) -> {kind}:{item.body('        ')}", reflected]
    return [""] if name == "__repr__" else []


def items(source: str) -> Iterator[tuple[Item, str]]:
    """Every line of code with the lines above it."""
    item, lines = Item(), iter(source.splitlines())
    for line in lines:
        text = line.strip()
        if text.startswith("///"):
            item.doc.append(text[4:])
        elif text.startswith("#["):
            while text.count("[") != text.count("]"):
                text += "\n" + next(lines).strip()
            item.attributes += text + "\n"
        else:
            yield item, line
            item = Item()


def definitions(source: str) -> dict[str, list[str]]:
    """Name of every function and class of a file -> its lines of the stub."""
    found: dict[str, list[str]] = {}
    kind, has_methods = "", False
    for item, line in items(source):
        name = next(iter(re.findall(r"(?:fn|struct|impl) (\w+)|^    (\w+):", line)), ("", ""))
        told = item.property_type(line)
        if "#[pyclass" in item.attributes:
            kind = name[0]
            found[kind] = [f"@final\nclass {kind}:{item.body('    ')}"]
        elif line.startswith("impl "):
            kind, has_methods = name[0], "#[pymethods]" in item.attributes
        elif told and line.startswith("    "):
            property_name = name[0] or name[1]
            found[kind].append(f"    @property\n    def {property_name}(self) -> {told}:{item.body('        ')}")
        elif has_methods and line.startswith("    fn "):
            found[kind] += special(name[0], kind, item) or [method(name[0], item, "    ")]
        elif "#[pyfunction]" in item.attributes:
            found[name[0]] = [method(name[0], item, "")]
        has_methods = has_methods and line != "}"
    return found


def generated() -> dict[Path, str]:
    """The file with its text, in the order in which the module exports."""
    module = (SOURCES / "lib.rs").read_text(encoding="utf-8")
    constants, doc = {}, ""
    for line in module.splitlines():
        if found := re.search(r'module\.add\("(\w+)".*// -> (.+)$', line):
            constants[found[1]] = f"{found[1]}: {found[2]}" + (f'\n"""{doc}"""' if doc else "")
        doc = line.strip().removeprefix("// ") if line.strip().startswith("// ") else ""
    parts = {}
    for file, names in re.findall(r"use crate::(\w+)::(?:\{([^}]*)\}|\w+)?;?", module):
        exported = names or re.search(rf"use crate::{file}::(\w+);", module)[1]  # type: ignore[index]
        known = definitions((SOURCES / f"{file}.rs").read_text(encoding="utf-8"))
        parts |= {name: "\n".join(filter(None, known[name])) for name in re.findall(r"\w+", exported)}
    names = "[\n" + "".join(f'    "{name}",\n' for name in sorted(constants | parts)) + "]"
    text = "\n\n".join([HEADER.format(names=names).rstrip(), *constants.values(), *parts.values()]) + "\n"
    return {TARGET: text}


if __name__ == "__main__":
    TARGET.write_text(generated()[TARGET], encoding="utf-8")
