"""Filters of Haystack are filters of semlex after a thin conversion."""

from __future__ import annotations

import pytest
from haystack.errors import FilterError

from semlex.filters.forms import filter_tree
from semlex.integrations.haystack import tree_of_haystack


def one(operator, value, field="meta.number"):
    return {"field": field, "operator": operator, "value": value}


def group(operator, *conditions):
    return {"operator": operator, "conditions": list(conditions)}


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        (one("==", 100), "number == 100"),
        (one("!=", 100), "number != 100"),
        (one("==", None), "number == null or not exists number"),
        (one("!=", None), "not (number == null or not exists number)"),
        (one(">", 0), "number > 0"),
        (one("<=", "1969-07-21T20:17:40", "meta.date"), "date <= '1969-07-21T20:17:40'"),
        (one(">", None), "exists @source_document and not exists @source_document"),
        (one("in", [10, -10]), "number in [10, -10]"),
        (one("not in", [9]), "number not in [9]"),
        (one("==", "x", "meta.author.name"), "author.name == 'x'"),
        (group("AND", one("==", 1), one("==", "a", "meta.name")), "number == 1 and name == 'a'"),
        (group("OR", one("==", 1), group("NOT", one("==", 2), one("<", 3))), "number == 1 or not (number == 2 and number < 3)"),  # noqa: E501
    ],
    ids=str,
)  # fmt: skip
def test_a_filter_is_converted(filters, text):
    assert repr(tree_of_haystack(filters)) == repr(filter_tree(text))


@pytest.mark.parametrize(
    "filters",
    [
        one(">", "1"), one("<=", [1]), one("in", 9), one("in", (10, 11)), one("not in", 9), one("like", "x"),
        {"field": "meta.a", "value": 1}, {"operator": "==", "value": 1}, {"field": "meta.a", "operator": "=="},
        group("AND", {"field": "meta.a", "operator": "=="}),
    ],
    ids=str,
)  # fmt: skip
def test_what_haystack_refuses_is_refused(filters):
    with pytest.raises(FilterError):
        tree_of_haystack(filters)


def test_a_filter_that_is_nested_too_deep_is_refused():
    filters = {"field": "meta.a", "operator": "==", "value": 1}
    for depth in range(5_000):
        if depth == 60:
            tree_of_haystack(filters)
        filters = {"operator": "NOT", "conditions": [filters]}
    with pytest.raises(FilterError, match="filters must be nested at most 64"):
        tree_of_haystack(filters)
