"""Filters of Haystack: a thin conversion, and drawn ones beside Haystack's own reading of them, through Postgres."""

import pytest
from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter
from hypothesis import given
from hypothesis import strategies as st

from semlex.filters.forms import filter_tree
from semlex.integrations.haystack import tree_of_haystack


def one(operator, value, field="meta.number"):
    return {"field": field, "operator": operator, "value": value}


def group(operator, *conditions):
    return {"operator": operator, "conditions": list(conditions)}


def test_a_filter_is_converted():
    either = group("OR", one("==", 1), group("NOT", one("==", 2), one("<", 3)))
    for filters, text in (
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
        (either, "number == 1 or not (number == 2 and number < 3)"),
    ):
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
    filters = one("==", 1)
    for depth in range(5_000):
        if depth == 60:
            tree_of_haystack(filters)
        filters = group("NOT", filters)
    with pytest.raises(FilterError, match="filters must be nested at most 64"):
        tree_of_haystack(filters)


# One type a field, as their reading wants it: it raises where a number meets a text.
VALUES = {
    "number": [0, 1, 1.5, -3, 2**53 + 1],
    "name": ["", "a", "A", "a%", "o'k", "' OR '1'='1", "é", '"'],
    "date": ["1969-07-21T20:17:40", "1972-12-11T19:54:58", "2026-01-31T00:00:00"],
    "tags": [[], ["a"], ["a", "b"]],
    "flag": [True, False],
    "in 'q' \"x\"": ["a", "b"],
}
NESTED = {"deep.name": ["x", "y"]}
ORDERED = ("number", "date")


def nested(meta):
    inner = meta.pop("deep.name", None)
    return meta if inner is None else {**meta, "deep": {"name": inner}}


meta_values = {name: st.one_of(st.none(), st.sampled_from(values)) for name, values in (VALUES | NESTED).items()}
metas = st.fixed_dictionaries({}, optional=meta_values).map(nested)


@st.composite
def conditions(draw):
    name = draw(st.sampled_from([*VALUES, *NESTED, "none"]))
    values = st.one_of(st.none(), st.sampled_from((VALUES | NESTED).get(name, [1, "a"])))
    operators = ["==", "!=", "in", "not in", *(["<", "<=", ">", ">="] if name in ORDERED else [])]
    operator = draw(st.sampled_from(operators))
    value = draw(st.lists(values, max_size=3) if "in" in operator else values)
    return one(operator, value, f"meta.{name}")


def groups(inner):
    return st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(inner, max_size=3)}
    )


trees = st.recursive(conditions(), groups, max_leaves=6)


@given(rows=st.lists(metas, min_size=1, max_size=8), filters=st.lists(trees, min_size=1, max_size=6))
def test_filters_mean_what_haystack_says(module_store, rows, filters):
    module_store.delete_all_documents()
    documents = [Document(id=f"{row}", content="text", meta=meta) for row, meta in enumerate(rows)]
    module_store.write_documents(documents)
    for drawn in filters:
        expected = [document for document in documents if document_matches_filter(drawn, document)]
        assert module_store.filter_documents(drawn) == expected, drawn
        assert module_store.count_documents_by_filter(drawn) == len(expected)


def test_ids(module_store):
    module_store.delete_all_documents()
    documents = [Document(id=one, content="text") for one in ("a", "b", "c's")]
    module_store.write_documents(documents)
    lists = [(operator, ids) for operator in ("in", "not in") for ids in (["a"], ["c's"], ["a", "none"], [])]
    for operator, value in (*lists, ("==", "a"), ("==", "c's"), ("!=", "a"), ("!=", "c's")):
        drawn = one(operator, value, "id")
        expected = [each for each in documents if document_matches_filter(drawn, each)]
        assert module_store.filter_documents(drawn) == expected, drawn
