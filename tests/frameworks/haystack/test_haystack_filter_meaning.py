"""Drawn filters of Haystack beside its own reading of them, through Postgres."""

from __future__ import annotations

from contextlib import closing

import pytest
from haystack import Document
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter
from hypothesis import given
from hypothesis import strategies as st

from semlex.integrations.haystack import SemlexDocumentStore

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


metas = st.fixed_dictionaries(
    {}, optional={name: st.one_of(st.none(), st.sampled_from(values)) for name, values in (VALUES | NESTED).items()}
).map(nested)


@st.composite
def conditions(draw):
    name = draw(st.sampled_from([*VALUES, *NESTED, "none"]))
    values = st.one_of(st.none(), st.sampled_from((VALUES | NESTED).get(name, [1, "a"])))
    operators = ["==", "!=", "in", "not in", *(["<", "<=", ">", ">="] if name in ORDERED else [])]
    operator = draw(st.sampled_from(operators))
    value = draw(st.lists(values, max_size=3) if "in" in operator else values)
    return {"field": f"meta.{name}", "operator": operator, "value": value}


def groups(inner):
    return st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(inner, max_size=3)}
    )


trees = st.recursive(conditions(), groups, max_leaves=6)


@pytest.fixture(scope="module")
def store(module_database):
    with closing(SemlexDocumentStore(Secret.from_token(module_database))) as made:
        yield made


@given(rows=st.lists(metas, min_size=1, max_size=8), filters=st.lists(trees, min_size=1, max_size=6))
def test_filters_mean_what_haystack_says(store, rows, filters):
    store.delete_all_documents()
    documents = [Document(id=f"{row}", content="text", meta=meta) for row, meta in enumerate(rows)]
    store.write_documents(documents)
    for one in filters:
        expected = [document for document in documents if document_matches_filter(one, document)]
        assert store.filter_documents(one) == expected, one
        assert store.count_documents_by_filter(one) == len(expected)


@pytest.mark.parametrize("operator", ["==", "!=", "in", "not in"])
def test_ids(store, operator):
    store.delete_all_documents()
    documents = [Document(id=one, content="text") for one in ("a", "b", "c's")]
    store.write_documents(documents)
    for ids in (["a"], ["c's"], ["a", "none"], []):
        if "in" not in operator and len(ids) != 1:
            continue
        one = {"field": "id", "operator": operator, "value": ids if "in" in operator else ids[0]}
        assert store.filter_documents(one) == [each for each in documents if document_matches_filter(one, each)]
