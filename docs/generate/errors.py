"""The errors and exit codes: from the classes with their docstrings, and the tables of codes and statuses."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from docs.generate.markdown import Docstring, slug, table, text
from semlex import errors
from semlex.cli.exit_codes import _CODES, MEANINGS, OTHER
from semlex.errors import FieldError, SemlexError
from semlex.server.problems import _STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAILED = 500


def classes() -> str:
    """Return the tree of the errors, and a table of all."""
    tree = "\n".join(
        f"{'  ' * depth}- [`{kind.__name__}`](#{slug(kind.__name__)}){_builtin(kind)}"
        for depth, kind in _tree(SemlexError)
    )
    sections = [part for _, kind in _tree(SemlexError) for part in (*_described(kind), _codes(kind))]
    return "\n\n".join([tree, *sections, *_described(FieldError)])


def exit_codes() -> str:
    """Return the table of the exit codes."""
    return table(["code", "meaning"], ([str(code), text(meaning)] for code, meaning in MEANINGS.items()))


def _tree(kind: type[SemlexError], depth: int = 0) -> Iterator[tuple[int, type[SemlexError]]]:
    """Return the classes of the module with their depth, each before those that derive from it."""
    yield depth, kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below, depth + 1)


def _builtin(kind: type[SemlexError]) -> str:
    others = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception]
    return f" (`{others[0]}`)" if others else ""


def _described(kind: type) -> Iterator[str]:
    described = Docstring(inspect.getdoc(kind) or "")
    yield f"### {kind.__name__}"
    yield from described.opening()
    yield from filter(None, [described.listed("Attributes")])


def _codes(kind: type[SemlexError]) -> str:
    code = next((code for kinds, code in _CODES if issubclass(kind, kinds)), OTHER)
    status = next((status.value for one, status, _ in _STATUSES if issubclass(kind, one)), _FAILED)
    return f"Exit code {code}, HTTP status {status}."
