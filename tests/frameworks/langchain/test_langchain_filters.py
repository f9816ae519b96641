"""LangChain's filters mean what they say: compared with a plain Python reading of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import F
from semlex.errors import ConfigurationError, ValidationError
from semlex.filters.forms import filter_tree
from semlex.integrations.langchain import SemlexVectorStore, filters_of

NAMES = ("year", "lang", "source_document", "chunk_type")
VALUES = (1, 2, 3, "a", "b")
DOCUMENTS = {
    f"{year}{lang}{kind}": {"year": year, "lang": lang, "source_document": lang}
    | ({"chunk_type": kind} if kind else {})
    for year in (1, 2, 3)
    for lang in "ab"
    for kind in (1, "a", None)
}
MISSING = object()


@pytest.fixture(scope="module")
def store(module_database):
    with SemlexVectorStore(db_url=module_database, embedding_model="none") as opened:
        opened.add_texts(["text"] * len(DOCUMENTS), list(DOCUMENTS.values()), ids=list(DOCUMENTS))
        yield opened


one_value = st.sampled_from(VALUES)
listed = st.lists(one_value, min_size=1, max_size=3)
operations = st.one_of(
    one_value,
    st.dictionaries(st.sampled_from(["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]), one_value, min_size=1, max_size=1),
    st.dictionaries(st.sampled_from(["$in", "$nin"]), listed, min_size=1, max_size=1),
    st.builds(lambda value: {"$exists": value}, st.booleans()),
    st.builds(lambda one, other: {"$between": sorted((one, other))}, *[st.sampled_from((1, 2, 3))] * 2),
    st.builds(lambda value: {"$like": value}, st.sampled_from(("a%", "_", "b"))),
)
conditions = st.builds(lambda name, operation: {name: operation}, st.sampled_from(NAMES), operations)
langchain_filters = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["$and", "$or", "$not"]), st.lists(inner, min_size=1), min_size=1, max_size=2),
        st.builds(lambda part: {"$not": part}, inner),
    ),
    max_leaves=5,
)


def holds(given, metadata):
    return all(_entry(key, value, metadata) for key, value in given.items())


def _entry(key, value, metadata):
    if key == "$and":
        return all(holds(one, metadata) for one in value)
    if key == "$or":
        return any(holds(one, metadata) for one in value)
    if key == "$not":
        return not any(holds(one, metadata) for one in (value if isinstance(value, list) else [value]))
    found = metadata.get(key, MISSING)
    operator, wanted = next(iter(value.items())) if isinstance(value, dict) else ("$eq", value)
    same_kind = type(found) is type(wanted)
    return {
        "$eq": lambda: found == wanted,
        "$ne": lambda: found != wanted,
        "$lt": lambda: same_kind and found < wanted,
        "$lte": lambda: same_kind and found <= wanted,
        "$gt": lambda: same_kind and found > wanted,
        "$gte": lambda: same_kind and found >= wanted,
        "$in": lambda: found in wanted,
        "$nin": lambda: found not in wanted,
        "$exists": lambda: (found is not MISSING) is wanted,
        "$between": lambda: isinstance(found, int) and wanted[0] <= found <= wanted[1],
        "$like": lambda: isinstance(found, str) and found in ({"a%": "a", "b": "b"}.get(wanted, "ab")),
    }[operator]()


@pytest.mark.timeout(3600)
@given(langchain_filters)
def test_a_filter_keeps_what_it_says(store, filters):
    found = store.similarity_search("text", k=100, filter=filters)
    assert {one.id for one in found} == {name for name, metadata in DOCUMENTS.items() if holds(filters, metadata)}


def test_filters_of_semlex_are_taken_as_they_are(store):
    for filters in (F("year") >= 2, "year >= 2", {"year": {"$gte": 2}}):
        assert len(store.similarity_search("text", k=100, filter=filters)) == len(DOCUMENTS) * 2 / 3
    assert len(store.similarity_search("text", k=100, filter={})) == len(DOCUMENTS)
    assert filters_of(None) is None


def test_what_is_not_known_is_refused_by_name(store):
    for filters, message in (
        (lambda document: True, "a function"),
        ({"year": {"$regex": "x"}}, r"filters\.year\.\$regex is not an operator"),
        ({"$nor": [{"year": 1}]}, r"filters\.\$nor is not an operator"),
        ({"year": {"$in": []}}, "a list with at least one value"),
        ({"$and": []}, "at least one"),
        ({"$not": [3]}, "a mapping of fields"),
        ([("year", 1)], "a mapping of field names"),
    ):
        with pytest.raises(ValidationError, match=message):
            store.similarity_search("text", filter=filters)


def test_names_are_keys_of_the_metadata():
    assert filter_tree(filters_of({"source_document": "a"})) == (F('"source_document"') == "a")
    assert filter_tree(filters_of({"@source_document": "a"})) == (F("@source_document") == "a")
    assert filter_tree(filters_of({"$not": [{"a": 1}, {"b": 2}]})) == ~((F("a") == 1) | (F("b") == 2))


@pytest.mark.parametrize("wrapped", [lambda inner: {"$not": inner}, lambda inner: {"$and": [inner, {"b": 1}]}])
def test_a_filter_that_is_nested_too_deep_is_refused(store, wrapped):
    filters = {"a": 1}
    for _ in range(5_000):
        filters = wrapped(filters)
    with pytest.raises(ValidationError, match="filters must be nested at most 64"):
        store.similarity_search("text", filter=filters)


def test_nothing_is_deleted_by_a_filter_that_always_holds(store):
    for nothing in ({}, {"$and": []}, {"$not": []}, {"$not": {}}, {"year": {"$nin": []}}):
        with pytest.raises((ConfigurationError, ValidationError)):
            store.delete(filter=nothing)
        assert len(store.similarity_search("text", k=100)) == len(DOCUMENTS), nothing
