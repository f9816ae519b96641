"""Filters of LlamaIndex: each operator beside a slow, obvious twin, through Postgres."""

from operator import ge, gt, le, lt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from semlex import connect_sync
from semlex.errors import ValidationError
from semlex.integrations.llama_index import SemlexVectorStore, tree_of_filters

Operator = FilterOperator
ORDERS = {Operator.GT: gt, Operator.LT: lt, Operator.GTE: ge, Operator.LTE: le}
KEYS = ["a", "b", "a.b", "tags", 'say "x"', "in", "'; DROP TABLE x; --"]
TEXTS = ["", "a", "A", "ab", "b%", "_", "\\", "Ab\\%", "o'k", "' OR '1'='1", "é", "1", " :noon"]
NUMBERS = [0, 1, 1.0, -1, 0.5, 2**53 + 1]
scalars = st.sampled_from([*TEXTS, *NUMBERS])
lists = st.one_of(st.lists(st.sampled_from(TEXTS), max_size=3), st.lists(st.sampled_from([0, 1, 2]), max_size=3))
stored = st.one_of(scalars, lists, st.none(), st.booleans(), st.just({"deep": 1}))
metadata = st.dictionaries(st.sampled_from(KEYS), stored, max_size=4)


@st.composite
def conditions(draw):
    operator = draw(st.sampled_from(Operator))
    if operator in (Operator.IN, Operator.NIN, Operator.ANY, Operator.ALL):
        value = draw(lists)
    elif operator in (Operator.TEXT_MATCH, Operator.TEXT_MATCH_INSENSITIVE):
        value = draw(st.sampled_from(TEXTS))
    else:
        value = None if operator == Operator.IS_EMPTY else draw(scalars)
    return MetadataFilter(key=draw(st.sampled_from(KEYS)), value=value, operator=operator)


def groups(inner):
    conditions = st.sampled_from([*FilterCondition, None])
    return st.builds(MetadataFilters, filters=st.lists(inner, max_size=3), condition=conditions)


trees = st.recursive(groups(conditions()), lambda inner: groups(st.one_of(conditions(), inner)), max_leaves=6)


def same(one, other):
    """Equality of JSON: true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and type(one == other) is bool and one == other


def folded(text):
    return "".join(one.lower() if one.isascii() else one for one in text)


def holds(one, metadata):  # noqa: C901, PLR0911 - one line an operator
    """What a condition means: a missing value is like null, and nothing is coerced."""
    value, wanted, operator = metadata.get(one.key), one.value, one.operator
    if operator == Operator.IS_EMPTY:
        return value is None or value in ("", [])
    if operator in (Operator.NE, Operator.NIN):
        positive = Operator.EQ if operator == Operator.NE else Operator.IN
        return not holds(one.model_copy(update={"operator": positive}), metadata)
    if value is None:
        return False
    if operator == Operator.EQ:
        return same(value, wanted)
    if operator == Operator.IN:
        return any(same(value, each) for each in wanted)
    if operator in ORDERS:
        are_texts = isinstance(value, str) and isinstance(wanted, str)
        are_numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (value, wanted))
        return (are_texts or are_numbers) and ORDERS[operator](value, wanted)
    if operator == Operator.TEXT_MATCH:
        return isinstance(value, str) and wanted in value
    if operator == Operator.TEXT_MATCH_INSENSITIVE:
        return isinstance(value, str) and folded(wanted) in folded(value)
    if operator == Operator.ALL and not wanted:
        return True
    if not isinstance(value, list):
        return False
    sought = [wanted] if operator == Operator.CONTAINS else wanted
    among = [any(same(each, element) for element in value) for each in sought]
    return any(among) if operator == Operator.ANY else all(among)


def all_hold(filters, metadata):
    found = [(all_hold if isinstance(one, MetadataFilters) else holds)(one, metadata) for one in filters.filters]
    if filters.condition == FilterCondition.OR and found:
        return any(found)
    return not any(found) if filters.condition == FilterCondition.NOT else all(found)


@pytest.fixture(scope="module")
def module_client(server_url):
    with connect_sync(server_url, "none", schema="llama_index_filters") as client:
        yield client


@given(rows=st.lists(metadata, min_size=1, max_size=8), filters=st.lists(trees, min_size=1, max_size=6))
def test_filters_mean_what_their_twin_says(module_client, rows, filters):
    store = SemlexVectorStore(module_client.collection("drawn"))
    store.clear()
    store.add([TextNode(id_=f"{row}", text="text", metadata=one) for row, one in enumerate(rows)])
    for one in filters:
        found = {int(each.node_id) for each in store.get_nodes(filters=one)}
        assert found == {row for row, each in enumerate(rows) if all_hold(one, each)}, one


FRAMEWORK_ROWS = [
    {"n": 5, "s": "Report 2024", "tags": ["a", "b"], "e": ""},
    {"n": 7.5, "s": "report", "tags": ["b"], "e": []},
    {"n": -1, "s": "o'brien 100%", "tags": []},
    {"s": "x", "n": None, "tags": ["c", "a"], "e": "full"},
]
FRAMEWORK_CASES = [
    ("n", Operator.EQ, 5), ("n", Operator.NE, 5), ("n", Operator.GT, 5), ("n", Operator.GTE, 5), ("n", Operator.LT, 5),
    ("n", Operator.LTE, 5), ("n", Operator.IN, [5, -1]), ("n", Operator.NIN, [5, -1]), ("s", Operator.IN, ["x"]),
    ("tags", Operator.ANY, ["a", "c"]), ("tags", Operator.ALL, ["a", "b"]), ("tags", Operator.CONTAINS, "a"),
    ("s", Operator.TEXT_MATCH, "port"), ("s", Operator.TEXT_MATCH, "100%"), ("s", Operator.TEXT_MATCH, "'"),
    ("s", Operator.TEXT_MATCH_INSENSITIVE, "REPORT"), ("e", Operator.IS_EMPTY, None), ("n", Operator.IS_EMPTY, None),
    ("none", Operator.NE, "x"), ("none", Operator.NIN, ["x"]), ("n", Operator.IN, []), ("n", Operator.NIN, []),
    ("tags", Operator.ANY, []), ("tags", Operator.ALL, []),
]  # fmt: skip


@pytest.fixture(scope="module")
def framework_store(module_client):
    store = SemlexVectorStore(module_client.collection("framework"))
    store.add([TextNode(id_=f"{row}", text="text", metadata=one) for row, one in enumerate(FRAMEWORK_ROWS)])
    return store


@pytest.mark.parametrize("condition", [*FilterCondition])
@pytest.mark.parametrize(("key", "operator", "value"), FRAMEWORK_CASES, ids=str)
def test_filters_mean_what_the_store_in_memory_says(framework_store, key, operator, value, condition):
    both = [MetadataFilter(key=key, value=value, operator=operator), MetadataFilter(key="s", value="x")]
    filters = MetadataFilters(filters=both, condition=condition)
    passes = build_metadata_filter_fn(lambda row: FRAMEWORK_ROWS[int(row)], filters)
    found = {one.node_id for one in framework_store.get_nodes(filters=filters)}
    assert found == {f"{row}" for row in range(len(FRAMEWORK_ROWS)) if passes(f"{row}")}


def test_what_means_nothing_is_refused():
    for operator, value, told in (
        (Operator.EQ, None, "IS_EMPTY"),
        (Operator.IN, "abc", "must be a list, which the operator 'in' needs; got a str"),
        (Operator.ALL, 1, "must be a list, which the operator 'all' needs; got an int"),
        (Operator.TEXT_MATCH, 1, "must be a text, which the operator 'text_match' needs; got an int"),
        (Operator.TEXT_MATCH_INSENSITIVE, ["a"], "must be a text"),
        (Operator.GT, ["a"], "a number or a text, because other values have no order"),
        (Operator.EQ, "a\0b", "NUL"),
        (Operator.LT, float("nan"), "NaN"),
    ):
        with pytest.raises(ValidationError, match=told):
            tree_of_filters(MetadataFilters(filters=[MetadataFilter(key="key", value=value, operator=operator)]))


def nested(depth):
    inner = MetadataFilters(filters=[MetadataFilter(key="key", value=1)])
    for _ in range(depth - 1):
        inner = MetadataFilters(filters=[inner], condition=FilterCondition.NOT)
    return inner


def test_a_filter_that_is_nested_too_deep_is_refused():
    tree_of_filters(nested(60))
    for depth in (65, 200):
        with pytest.raises(ValidationError, match="filters must be nested at most 64"):
            tree_of_filters(nested(depth))


def test_a_field_of_semlex_is_named_with_its_sign():
    both = [MetadataFilter(key="@source_document", value="a.md"), MetadataFilter(key="a.b", value=1)]
    assert str(tree_of_filters(MetadataFilters(filters=both))) == '@source_document == "a.md" and "a.b" == 1'
