"""Filters of LlamaIndex as filters of semlex."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from semlex.filters.fields import refusal
from semlex.filters.tree import F
from semlex.integrations.conversion import NOTHING, all_of, any_of, check_depth, key_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.filters.tree import FilterTree

PLACE = "filters"
# What a list must hold and what a text must be, by the operators that need one.
LISTS = (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
TEXTS = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
WILDCARDS = re.compile(r"[\\%_]")


def tree_of_filters(filters: MetadataFilters, *, needed: bool = False, depth: int = 1) -> FilterTree:
    """The tree of a filter, nested as it is. Without conditions it always holds.

    Args:
        filters: As LlamaIndex has them.
        needed: Whether conditions must be there: nothing is deleted by a filter that always holds.
        depth: How many groups this one stands in, itself included.

    Raises:
        ValidationError: A value cannot be compared by its operator; conditions are missing, or nested too deep.
    """
    check_depth(PLACE, depth)
    if not filters.filters:
        if needed:
            raise refusal(PLACE, "missing", "a condition in every group; clear() deletes all nodes")
        return all_of([])
    parts = [
        tree_of_filters(part, needed=needed, depth=depth + 1)
        if isinstance(part, MetadataFilters)
        else tree_of_filter(part, needed=needed)
        for part in filters.filters
    ]
    if filters.condition == FilterCondition.OR:
        return any_of(parts)
    # Several conditions under "not": none of them holds.
    return ~any_of(parts) if filters.condition == FilterCondition.NOT else all_of(parts)


def tree_of_filter(one: MetadataFilter, *, needed: bool = False) -> FilterTree:
    """The tree of one condition. Its key is one key of the metadata, dots and all, or a field of semlex's (``@uri``).

    Args:
        one: As LlamaIndex has it.
        needed: Whether it must not be one that always holds.

    Raises:
        ValidationError: The value cannot be compared by the operator.
    """
    operator, value = FilterOperator(one.operator), one.value
    place = f"{PLACE}.{one.key[:40]}"
    field = F(one.key) if one.key.startswith("@") else key_field(one.key)
    if operator == FilterOperator.IS_EMPTY:
        return field.empty()
    if value is None:
        raise refusal(place, "wrong_type", "a value; for what has none, use FilterOperator.IS_EMPTY", "None")
    if operator in LISTS:
        if not isinstance(value, list):
            raise refusal(
                place, "wrong_type", f"a list, as the operator '{operator.value}' has it", type(value).__name__
            )
        if needed and operator == FilterOperator.NIN and not value:
            raise refusal(place, "missing", "a value in the list; clear() deletes all nodes")
        return _listed(field, operator, value)
    if operator in TEXTS:
        if not isinstance(value, str):
            raise refusal(place, "wrong_type", f"a text, as '{operator.value}' has it", type(value).__name__)
        pattern = "%" + WILDCARDS.sub(r"\\\g<0>", value) + "%"
        return field.like(pattern) if operator == FilterOperator.TEXT_MATCH else field.ilike(pattern)
    return {
        FilterOperator.EQ: field.__eq__,
        FilterOperator.NE: field.__ne__,
        FilterOperator.GT: field.__gt__,
        FilterOperator.GTE: field.__ge__,
        FilterOperator.LT: field.__lt__,
        FilterOperator.LTE: field.__le__,
        FilterOperator.CONTAINS: field.contains,
    }[operator](value)


def _listed(field: F, operator: FilterOperator, values: Sequence[object]) -> FilterTree:
    """A condition with a list; an empty one is in nothing, and every list has all of it."""
    if operator in {FilterOperator.IN, FilterOperator.NIN}:
        found = field.in_(values) if values else NOTHING
        return found if operator == FilterOperator.IN else ~found
    if operator == FilterOperator.ANY:
        return field.any(values) if values else NOTHING
    return field.all(values) if values else field.exists() & ~(field == None)  # noqa: E711 - JSON's null
