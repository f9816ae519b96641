"""Filters in the forms that users give: a mapping, a text, or a tree made with `F`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from semlex.errors import FieldError, ValidationError
from semlex.filters.fields import (
    COLUMNS,
    SHOWN_CHARACTERS,
    WORDS,
    Field,
    field_named,
    metadata_field,
    nearest,
    own_field,
    refusal,
)
from semlex.filters.text import tree_of_text
from semlex.filters.tree import (
    MAX_DEPTH,
    PLACE,
    Condition,
    FilterTree,
    Group,
    Operator,
    between,
    condition,
    joined,
    listed,
    negated,
    node_of,
)

# Operators of mappings -> operators of the tree.
COMPARISONS: dict[str, Operator] = {"$eq": "==", "$lt": "<", "$lte": "<=", "$gt": ">", "$gte": ">="}
COMPARISONS |= {f"${word}": cast("Operator", word) for word in WORDS if word != "between"}
NEGATIONS: dict[str, Operator] = {"$ne": "==", "$nin": "in"}
SWITCHES: dict[str, Operator] = {"$exists": "exists", "$empty": "empty"}
OF_FIELDS = (*COMPARISONS, *NEGATIONS, *SWITCHES, "$between", "$not")
OF_FILTERS = ("$and", "$or", "$not")
_NAMES: dict[Operator, str] = {operator: name for name, operator in COMPARISONS.items()}
_BOUNDS = 2


# All entries of a mapping must hold. A key that begins with `$` is an operator; any other key is the name of a field.
# `a.b` is a key inside an object, `"a.b"` in double quotes is one key, `@source_document` and the names in `COLUMNS`
# are semlex's own fields. A value must be equal. A list requires that the field's list has all of its values, or that
# the field's single value is one of them. A mapping contains operators, or names of fields inside the field.
# Example: {"year": {"$gte": 2020}, "lang": {"$in": ["de", "en"]}, "$or": [{...}, {...}]}
def tree_of_mapping(mapping: Mapping[str, Any], place: str = PLACE) -> FilterTree | None:
    """Return the tree of a mapping; None for an empty one."""
    reader = _Reader()
    tree = reader.filter(mapping, place, 0) if mapping else None
    if reader.errors:
        raise ValidationError(reader.errors)
    return tree


class _Reader:
    """Reads a whole mapping, and collects its errors."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def filter(self, value: object, place: str, depth: int) -> FilterTree | None:
        """Read a mapping whose entries must all hold; return None if it has an error."""
        try:
            entries = _entries(value, place, depth)
        except ValidationError as error:
            self.errors += error.errors
            return None

        def read(key: str, inner: object, at: str) -> FilterTree | None:
            if key.startswith("$"):
                return self._group(key, inner, at, depth)
            field = own_field(COLUMNS[key], at) if key in COLUMNS else field_named(key, at)
            return self._about(field, inner, at, depth)

        return self._all(entries, place, read)

    def _all(
        self, entries: list[tuple[str, object]], place: str, read: Callable[[str, object, str], FilterTree | None]
    ) -> FilterTree | None:
        """Read every entry, by its key, value and place, and join the results with *and*."""
        parts: list[FilterTree | None] = []
        for number, (key, inner) in enumerate(entries):
            try:
                parts.append(read(key, inner, _below(place, key, number)))
            except ValidationError as error:
                self.errors += error.errors
        return self._joined("and", parts, place)

    def _joined(self, word: Any, parts: list[FilterTree | None], place: str) -> FilterTree | None:
        read = [part for part in parts if part is not None]
        return joined(word, read, place) if read and not self.errors else None

    def _group(self, key: str, value: object, place: str, depth: int) -> FilterTree | None:
        if key not in OF_FILTERS:
            hint = f"; {key} follows the name of a field, as {{'year': {{'{key}': …}}}}"
            limit = ", ".join(OF_FILTERS) + (hint if key in OF_FIELDS else nearest(key, OF_FILTERS))
            raise refusal(place, "wrong_operator", limit)
        if key == "$not":
            part = self.filter(value, place, depth + 1)
            return None if part is None else negated(part, place)
        if not isinstance(value, (list, tuple)) or not value:
            raise refusal(place, "wrong_type", "a list of filters, at least one", _shown(value))
        parts = [self.filter(one, f"{place}[{number}]", depth + 1) for number, one in enumerate(value)]
        return self._joined(key[1:], parts, place)

    def _about(self, field: Field, value: object, place: str, depth: int) -> FilterTree | None:
        if isinstance(value, (list, tuple)):
            return listed(field, value, place)
        if not isinstance(value, Mapping):
            return condition(field, "==", value, place)
        entries = _entries(value, place, depth)
        are_operators = [key.startswith("$") for key, _ in entries]
        if any(are_operators) and not all(are_operators):
            raise refusal(place, "wrong_type", "a mapping of operators, or a mapping of names of fields", "both in one")

        def read(key: str, inner: object, at: str) -> FilterTree | None:
            if key.startswith("$"):
                return self._operator(field, key, inner, at, depth)
            return self._about(_inside(field, key, at), inner, at, depth + 1)

        return self._all(entries, place, read)

    def _operator(self, field: Field, key: str, value: object, place: str, depth: int) -> FilterTree | None:
        if key in COMPARISONS:
            if key == "$eq" and field.kind == "texts" and isinstance(value, str):
                raise refusal(place, "wrong_type", "list", "str")
            return condition(field, COMPARISONS[key], value, place)
        if key in NEGATIONS:
            return negated(condition(field, NEGATIONS[key], value, place), place)
        if key in SWITCHES:
            if not isinstance(value, bool):
                raise refusal(place, "wrong_type", "True or False", _shown(value))
            made = condition(field, SWITCHES[key], None, place)
            return made if value else negated(made, place)
        if key == "$between":
            if not isinstance(value, (list, tuple)) or len(value) != _BOUNDS:
                raise refusal(place, "wrong_type", "a list of two bounds", _shown(value))
            return between(field, value[0], value[1], place)
        if key != "$not":
            raise refusal(place, "wrong_operator", f"{', '.join(OF_FIELDS)}{nearest(key, OF_FIELDS)}")
        part = self._about(field, value, place, depth + 1)
        return None if part is None else negated(part, place)


def _below(place: str, key: str, number: int) -> str:
    """Return the place of a mapping's entry for messages: by its key, or by its number if the key is not printable."""
    return f"{place}.{key[:SHOWN_CHARACTERS]}" if key.isprintable() else f"{place}[{number}]"


def _entries(value: object, place: str, depth: int) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise refusal(place, "wrong_type", "a mapping of fields to values, such as {'lang': 'de'}", _shown(value))
    if not value:
        expected = "a mapping with at least one entry (for an empty object, write {'$eq': {}})"
        raise refusal(place, "wrong_type", expected, "an empty one")
    if depth > MAX_DEPTH:
        raise refusal(place, "too_deep", str(MAX_DEPTH))
    entries = list(value.items())
    for key, _ in entries:
        if not isinstance(key, str):
            raise refusal(place, "key_not_string", None, type(key).__name__)
    return entries


def _inside(field: Field, key: str, place: str) -> Field:
    """Return the field for a key (or path) inside the JSON value of another field."""
    inner = field_named(key, place)
    if (field.is_own and not field.is_row) or inner.is_own:
        raise refusal(place, "wrong_type", "a key of the metadata that contains other keys", "something else")
    made = metadata_field(field.path + inner.path, place)
    return replace(made, is_own=field.is_own)


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple, Mapping)):
        return f"{type(value).__name__} with {len(value)}"
    return type(value).__name__


def mapping_of_tree(tree: FilterTree) -> dict[str, Any]:
    """Return a tree as a mapping of JSON values (and Decimal)."""
    node = node_of(tree)
    if isinstance(node, Group):
        return {f"${node.word}": [mapping_of_tree(part) for part in node.parts]}
    if isinstance(node, Condition):
        name = str(node.field)
        name = json.dumps(name) if name in COLUMNS else name
        if node.operator in SWITCHES.values():
            return {name: {f"${node.operator}": True}}
        return {name: {_NAMES[node.operator]: _plain(node.value)}}
    part = node.part
    if isinstance(part, Condition) and part.operator in NEGATIONS.values():
        [(name, of_field)] = mapping_of_tree(part).items()
        [(_, value)] = of_field.items()
        return {name: {"$ne" if part.operator == "==" else "$nin": value}}
    return {"$not": mapping_of_tree(part)}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


Filters = Mapping[str, Any] | FilterTree | str
# Filters with the factor for the scores of chunks that pass each one.
Boosts = Mapping[str, float] | Sequence[tuple[Filters, float]]


def filter_tree(filters: Filters | None, place: str = PLACE) -> FilterTree | None:
    """Return the tree of a filter; None without one."""
    if filters is None or isinstance(filters, FilterTree):
        return filters
    if isinstance(filters, str):
        return tree_of_text(filters, place)
    if isinstance(filters, Mapping):
        return tree_of_mapping(filters, place)
    limit = (
        "a mapping of field names to values, such as {'lang': 'de'}, a text such as \"lang == 'de'\", or a filter "
        "made with F"
    )
    raise refusal(place, "wrong_type", limit, type(filters).__name__)
