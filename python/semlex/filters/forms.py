"""A filter as users give it: a mapping, a text, or a tree that `F` has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semlex.filters.fields import refusal
from semlex.filters.mapping import tree_of_mapping
from semlex.filters.text import tree_of_text
from semlex.filters.tree import PLACE, FilterTree

Filters = Mapping[str, Any] | FilterTree | str
# A factor for what passes each filter.
Boosts = Mapping[str, float] | Sequence[tuple[Filters, float]]


def filter_tree(filters: Filters | None, place: str = PLACE) -> FilterTree | None:
    """The tree of a filter; None where there is none."""
    if filters is None or isinstance(filters, FilterTree):
        return filters
    if isinstance(filters, str):
        return tree_of_text(filters, place)
    if isinstance(filters, Mapping):
        return tree_of_mapping(filters, place)
    limit = "a mapping of field names to values, such as {'lang': 'de'}, a text such as \"lang == 'de'\", or one of F"
    raise refusal(place, "wrong_type", limit, type(filters).__name__)
