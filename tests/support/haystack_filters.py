"""Filters of Haystack, as filters of semlex: a condition has `field`, `operator` and `value`, a group `conditions`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from semlex.filters.fields import refusal
from semlex.filters.tree import F, joined, negated

if TYPE_CHECKING:
    from semlex.filters.tree import FilterTree

GROUPS = ("AND", "OR", "NOT")


def tree_of_haystack(filters: dict[str, Any]) -> FilterTree:
    """The tree of a filter of Haystack.

    Raises:
        ValidationError: A key is missing, an operator is unknown, or a value cannot be compared.
    """
    if filters.get("operator") in GROUPS and "conditions" in filters:
        parts = [tree_of_haystack(one) for one in filters["conditions"]]
        made = joined("or" if filters["operator"] == "OR" else "and", parts)
        return negated(made) if filters["operator"] == "NOT" else made
    for key in ("field", "operator", "value"):
        if key not in filters:
            raise refusal("filters", "missing", key)
    field = F(filters["field"].removeprefix("meta."))
    return _condition(field, filters["operator"], filters["value"])


def _condition(field: F, operator: str, value: Any) -> FilterTree:
    if operator in {"in", "not in"}:
        if not isinstance(value, list):
            raise refusal("filters", "wrong_type", "list", type(value).__name__)
        return field.in_(value) if operator == "in" else field.not_in(value)
    if operator in {"==", "!="}:
        # Haystack does not tell null from missing.
        is_equal = field == value if value is not None else (field == None) | ~field.exists()  # noqa: E711
        return is_equal if operator == "==" else ~is_equal
    if operator not in {"<", "<=", ">", ">="}:
        raise refusal("filters", "wrong_operator", "==, !=, <, <=, >, >=, in, not in")
    if value is None:
        return field.exists() & ~field.exists()  # nothing is above or below it
    if isinstance(value, str) and not _is_time(value):
        raise refusal("filters", "wrong_type", "a number or a time in ISO form", "another text")
    return {"<": field < value, "<=": field <= value, ">": field > value, ">=": field >= value}[operator]


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
