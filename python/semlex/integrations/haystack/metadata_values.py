"""What the metadata of documents holds: distinct values, types, least and greatest values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Metadata = dict[str, Any]
TYPES: dict[type, str] = {bool: "boolean", int: "int", float: "float"}


def bare(field: str) -> str:
    """The name of a field of meta, without the prefix that it has in filters."""
    return field.removeprefix("meta.")


def distinct(metadata: Iterable[Metadata], field: str) -> list[Any]:
    """The different values of a field, as JSON tells them apart (1, 1.0, "1" and true are four), by their texts."""
    values = (one.get(bare(field)) for one in metadata)
    found = {json.dumps(value, sort_keys=True): value for value in values if value is not None}
    return sorted(found.values(), key=lambda value: (str(value), type(value).__name__))


def types(metadata: Iterable[Metadata]) -> dict[str, dict[str, str]]:
    """The type of each field: ``int``, ``float``, ``boolean``; ``keyword`` of all else, and of mixed ones."""
    found: dict[str, set[str]] = {}
    for one in metadata:
        for name, value in one.items():
            if value is not None:
                found.setdefault(name, set()).add(TYPES.get(type(value), "keyword"))
    return {name: {"type": _common(kinds)} for name, kinds in found.items()}


def _common(kinds: set[str]) -> str:
    if kinds == {"int", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "keyword"


def extremes(metadata: Iterable[Metadata], field: str) -> dict[str, Any]:
    """Least and greatest value of a field; None where there are none, or numbers and texts."""
    values = [value for value in distinct(metadata, field) if isinstance(value, (int, float, str))]
    are_texts = {isinstance(value, str) for value in values}
    if len(are_texts) != 1:
        return {"min": None, "max": None}
    return {"min": min(values), "max": max(values)}
