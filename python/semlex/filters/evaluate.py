"""Evaluates a filter for one document, slowly and plainly; tests compare the SQL with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import ge, gt, le, lt
from typing import Any

from semlex.filters.fields import ROW, Field, exact, is_number, pattern_pieces
from semlex.filters.tree import PATTERNS, Condition, FilterTree, Group, leaves, node_of

MISSING = object()
_ORDER = {"<": lt, "<=": le, ">": gt, ">=": ge}
# What Postgres takes for a place in a list; below 0 it counts from the end.
_INDEX = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")
_MAX_INDEX = 2**31 - 1
_UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def holds(tree: FilterTree, metadata: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> bool:
    """Return whether a filter holds for a chunk with this metadata and these values of semlex's own fields."""
    # In `own`, "row" has the live columns of a row that are not NULL. It is None if the row is gone or hidden; then no
    # filter that names a live column holds.
    if own is not None and own.get(ROW, MISSING) is None and any(one.field.is_row for one in leaves(tree)):
        return False
    return _holds(tree, metadata, own or {})


def _holds(tree: FilterTree, metadata: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    node = node_of(tree)
    if isinstance(node, Group):
        return (all if node.word == "and" else any)(_holds(part, metadata, own) for part in node.parts)
    if isinstance(node, Condition):
        return _fits(node, value_at(node.field, metadata, own))
    return not _holds(node.part, metadata, own)


def failing(tree: FilterTree, metadata: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> list[FilterTree]:
    """Return the parts of a filter that do not hold; an *or* or a *not* counts as one part."""
    node = node_of(tree)
    if isinstance(node, Group) and node.word == "and":
        return [small for part in node.parts for small in failing(part, metadata, own)]
    return [] if holds(node, metadata, own) else [node]


def value_at(field: Field, metadata: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """Return the value of a field, or `MISSING`."""
    if field.is_own and not field.is_row:
        return own.get(field.path[0], MISSING)
    value: Any = own if field.is_row else metadata
    for part in field.path:
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and is_index(part) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value


def is_index(part: str) -> bool:
    """Return whether a key can also be an index into a list."""
    return _INDEX.fullmatch(part) is not None and abs(int(part)) <= _MAX_INDEX


def _fits(condition: Condition, value: Any) -> bool:
    operator, operand = condition.operator, condition.value
    if operator == "empty":
        return value is MISSING or value is None or (isinstance(value, (str, list, dict)) and not value)
    if value is MISSING or operator == "exists":
        return value is not MISSING
    if operator in _ORDER:
        return _is_ordered(value, operator, operand)
    if operator in PATTERNS:
        return isinstance(value, str) and _is_matched(value, operator, operand)
    if operator in {"==", "in"}:
        return any(is_equal(value, one) for one in (operand if operator == "in" else [operand]))
    wanted = [operand] if operator == "contains" else operand
    found = (isinstance(value, list) and any(is_equal(item, one) for item in value) for one in wanted)
    return (any if operator == "any" else all)(found)


def _is_matched(text: str, operator: str, pattern: str) -> bool:
    if operator == "startswith":
        return text.startswith(pattern)
    return is_like(text, pattern) if operator == "like" else is_like(folded(text), folded(pattern))


def is_equal(first: Any, second: Any) -> bool:
    """Return whether two values are the same JSON; numbers compare by value, and true and false are not numbers."""
    if is_number(first) and is_number(second):
        return exact(first) == exact(second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_equal, first, second))
    return type(first) is type(second) and bool(first == second)


def _is_ordered(value: Any, operator: str, operand: Any) -> bool:
    """Return whether a comparison holds: numbers by value, texts by code point, instants by time; else False."""
    if is_number(value) and is_number(operand):
        value, operand = exact(value), exact(operand)
    elif is_number(value) or type(value) is not type(operand):
        return False
    return bool(_ORDER[operator](value, operand))


def folded(text: str) -> str:
    """Return the text with ``A`` to ``Z`` in lower case; other letters do not change."""
    return text.translate(_UPPER)


def is_like(text: str, pattern: str) -> bool:
    """Return whether the whole text matches a pattern of ``like``."""
    first, *rest = pattern_pieces(pattern) or [[]]
    if not _is_at(text, 0, first) or (not rest and len(text) != len(first)):
        return False
    position = len(first)
    for number, piece in enumerate(rest):
        last = len(text) - len(piece)
        # The last piece is at the end, each of the others as early as possible.
        places = [last] if number == len(rest) - 1 else range(position, last + 1)
        found = next((place for place in places if place >= position and _is_at(text, place, piece)), None)
        if found is None:
            return False
        position = found + len(piece)
    return True


def _is_at(text: str, place: int, piece: list[str | None]) -> bool:
    part = text[place : place + len(piece)]
    return len(part) == len(piece) and all(one in {None, character} for one, character in zip(piece, part, strict=True))
