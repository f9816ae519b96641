"""Filters of Haystack as filters of semlex: a condition has `field`, `operator` and `value`, a group `conditions`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from haystack.errors import FilterError

from semlex.errors import ValidationError
from semlex.filters.fields import refusal
from semlex.filters.tree import F
from semlex.integrations.calls import NOTHING, all_of, any_of, check_depth, has_id, key_field

if TYPE_CHECKING:
    from semlex.filters.tree import FilterTree

PLACE = "filters"
GROUPS = ("AND", "OR", "NOT")
ORDER = ("<", "<=", ">", ">=")
MEMBERSHIP = ("in", "not in")
OPERATORS = ("==", "!=", *ORDER, *MEMBERSHIP)
# Fields of a document of Haystack that no filter of semlex looks at, and what helps.
REFUSED = {
    "content": "a retriever, which looks into texts",
    "embedding": "the embedding retriever",
    "score": "the scores of a retriever's documents",
    "blob": "meta",
    "sparse_embedding": "meta",
}


def tree_of_haystack(filters: dict[str, Any] | None, *, needed: bool = False) -> FilterTree | None:
    """Convert a filter of Haystack; None stays None.

    If it is `needed`, every group must have a condition: a filter that always holds must not delete anything.

    Raises:
        FilterError: The filter is malformed, compares what cannot be compared, or is nested too deep.
    """
    try:
        return _tree(filters, PLACE, needed=needed) if filters else None
    except ValidationError as error:
        raise FilterError(str(error)) from error


def _tree(filters: object, place: str, *, needed: bool, depth: int = 1) -> FilterTree:
    check_depth(PLACE, depth)  # the place itself is too long to be read
    if not isinstance(filters, dict):
        raise refusal(place, "wrong_type", "dict", type(filters).__name__)
    is_group = "field" not in filters and ("conditions" in filters or filters.get("operator") in GROUPS)
    for key in ("operator", "conditions") if is_group else ("field", "operator", "value"):
        if key not in filters:
            raise refusal(f"{place}.{key}", "missing")
    operator = filters["operator"]
    if is_group:
        return _group(operator, filters["conditions"], place, needed=needed, depth=depth)
    if operator not in OPERATORS:
        raise refusal(f"{place}.operator", "wrong_operator", ", ".join(OPERATORS))
    name = filters["field"]
    if not isinstance(name, str):
        raise refusal(f"{place}.field", "wrong_type", "str", type(name).__name__)
    if needed and operator == "not in" and filters["value"] == []:
        raise refusal(f"{place}.value", "missing", "a value in the list; delete_all_documents() deletes all")
    if name == "id":
        return _ids(operator, filters["value"], place)
    if name in REFUSED:
        raise refusal(f"{place}.field", "wrong_type", f"'id' or a field of meta; instead of {name} use {REFUSED[name]}")
    field = F(name) if name.startswith("@") else key_field(*name.removeprefix("meta.").split("."))
    return _condition(field, operator, filters["value"], place)


def _group(operator: object, conditions: object, place: str, *, needed: bool, depth: int) -> FilterTree:
    if operator not in GROUPS:
        raise refusal(f"{place}.operator", "wrong_operator", ", ".join(GROUPS))
    if not isinstance(conditions, list):
        raise refusal(f"{place}.conditions", "wrong_type", "list", type(conditions).__name__)
    if needed and not conditions:
        raise refusal(f"{place}.conditions", "missing", "at least one; delete_all_documents() deletes all")
    parts = [
        _tree(one, f"{place}.conditions[{number}]", needed=needed, depth=depth + 1)
        for number, one in enumerate(conditions)
    ]
    if operator == "OR":
        return any_of(parts)
    return all_of(parts) if operator == "AND" else ~all_of(parts)


def _condition(field: F, operator: str, value: object, place: str) -> FilterTree:
    if operator in MEMBERSHIP:
        values = _list(value, place)
        among = [one for one in values if one is not None]
        parts = [field.in_(among)] if among else []
        found = any_of(parts + [_equal(field, None)] * (len(among) < len(values)))
        return found if operator == "in" else ~found
    if operator in {"==", "!="}:
        return _equal(field, value) if operator == "==" else ~_equal(field, value)
    if value is None:
        return NOTHING  # nothing is above or below it
    if isinstance(value, str) and not _is_time(value):
        raise refusal(f"{place}.value", "wrong_type", "a number or a time in ISO form", "another text")
    return {"<": field < value, "<=": field <= value, ">": field > value, ">=": field >= value}[operator]


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise refusal(f"{place}.value", "wrong_type", "list", type(value).__name__)
    return value


def _equal(field: F, value: object) -> FilterTree:
    # Haystack does not tell null from missing.
    return field == value if value is not None else (field == None) | ~field.exists()  # noqa: E711


def _ids(operator: str, value: object, place: str) -> FilterTree:
    if operator in ORDER:
        raise refusal(f"{place}.operator", "wrong_operator", "==, !=, in, not in, of ids")
    given = _list(value, place) if operator in MEMBERSHIP else [value]
    ids = [one for one in given if isinstance(one, str)]
    if len(ids) < len(given):
        raise refusal(f"{place}.value", "wrong_type", "ids, which are texts")
    found = has_id(ids)
    return found if operator in {"==", "in"} else ~found


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
