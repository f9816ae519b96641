"""Filters as mapping, text and Python are one tree; what is not understood is told with its place; limits hold."""
# ruff: noqa: E501 - one case a line

import copy
import functools
import operator
import re
from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import F, _core
from semlex.errors import ConfigurationError, ValidationError
from semlex.filters import forms, text
from semlex.filters.evaluate import failing, holds
from semlex.filters.fields import RESERVED, Field, exact, json_text
from semlex.filters.forms import filter_tree, mapping_of_tree, tree_of_mapping
from semlex.filters.text import tree_of_text
from semlex.filters.tree import MAX_CONDITIONS, MAX_DEPTH, Group, Operator, condition
from tests.support.filter_trees import NAMES, all_trees, documents, metadata_trees, values
from tests.support.folders import documentation


def refusals(make):
    with pytest.raises(ValidationError) as caught:
        make()
    assert all(len(line) < 600 for line in str(caught.value).split("\n"))
    return caught.value.errors


@given(all_trees)
def test_a_tree_is_what_its_text_and_its_mapping_are(tree):
    for again in (tree_of_text(str(tree)), tree_of_mapping(mapping_of_tree(tree))):
        assert repr(again) == repr(tree)  # 1, 1.0 and True are different there
        assert (again.depth, again.conditions, again.size) == (tree.depth, tree.conditions, tree.size)
    assert filter_tree(tree) is tree


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), values)
def test_a_field_of_python_is_that_of_text_and_mapping(path, value):
    field = Field(tuple(path))
    made = F(str(field)) == value
    assert repr(made) == repr(condition(field, "==", value))
    assert repr(tree_of_text(f"{field} == {str(made).removeprefix(f'{field} == ')}")) == repr(made)


TREES = [
    (F("year") >= 2020, "year >= 2020", {"year": {"$gte": 2020}}),
    (F("year") == 2020, "year == 2020", {"year": 2020}),
    (F("year") == 2020, "year=2020", {"year": 2020}),
    (F("year") != 2020, "year != 2020", {"year": {"$ne": 2020}}),
    (~(F("year") == 2020), "not year == 2020", {"year": {"$not": {"$eq": 2020}}}),
    (F("a.b").in_([1, "x", None]), "a.b in [1, 'x', null]", {"a": {"b": {"$in": [1, "x", None]}}}),
    (F('"a.b".c').not_in([1]), "'a.b'.c not in [1]", {'"a.b".c': {"$nin": [1]}}),
    (F("a").between(1, 2), "a between 1 and 2", {"a": {"$between": [1, 2]}}),
    (F("a").between(1, 2), "a >= 1 and a <= 2", {"a": {"$gte": 1, "$lte": 2}}),
    (~F("a").between(1, 2), "a not between 1 and 2", {"a": {"$not": {"$between": [1, 2]}}}),
    (F("a").exists() & ~F("b").empty(), "exists a and not empty b", {"a": {"$exists": True}, "b": {"$empty": False}}),
    (F("a").any([1]) | F("a").all([1, 2]), "a any [1] OR a ALL [1, 2]", {"$or": [{"a": {"$any": [1]}}, {"a": {"$all": [1, 2]}}]}),
    (F("a").contains({"b": [1]}), 'a contains {"b": [1]}', {"a": {"$contains": {"b": [1]}}}),
    (F("a").all([1, 2]) | F("a").in_([1, 2]), "a all [1,2] or a in [1,2]", {"a": [1, 2]}),
    (F("a") == [], "a == []", {"a": {"$eq": []}}),
    (F("a").startswith("x"), "a startswith 'x'", {"a": {"$startswith": "x"}}),
    (F("a").like("x%") & F("a").ilike("_X"), "a like 'x%' and a ilike '_X'", {"a": {"$like": "x%", "$ilike": "_X"}}),
    (~((F("a") == 1) & (F("b") == 2)), "not (a == 1 and b == 2)", {"$not": {"a": 1, "b": 2}}),
    ((F("a") == 1) & ((F("b") == 2) | (F("c") == 3)), "a == 1 and (b == 2 or c == 3)", {"a": 1, "$or": [{"b": 2}, {"c": 3}]}),
    ((F("a") == 1) | (F("b") == 2) & (F("c") == 3), "a == 1 or b == 2 and c == 3", {"$or": [{"a": 1}, {"b": 2, "c": 3}]}),
    (F("a") == 1, "((not not (a == 1)))", {"$and": [{"$or": [{"$not": {"$not": {"a": 1}}}]}]}),
    (F("@source_document").like("a/%"), "@source_document like 'a/%'", {"source_document": {"$like": "a/%"}}),
    (F("@chapter") == "X", '@chapter == "X"', {"chapter_title": "X"}),
    (F("@parent") == "X", '@parent == "X"', {"parent_chunk_id": "X"}),
    (F("@type") == "code", '@type == "code"', {"chunk_type": "code"}),
    (F("source_document") == "x", "source_document == 'x'", {'"source_document"': "x"}),
    (F('"@source_document"') == 1, '"@source_document" == 1', {'"@source_document"': 1}),
    (F("@heading").contains("X"), "@heading contains 'X'", {"@heading": {"$contains": "X"}}),
    (F("@heading").all(["X", "Y"]), "@heading all ['X', 'Y']", {"@heading": ["X", "Y"]}),
    (F("@source").in_(["x", "y"]), "@source in ['x', 'y']", {"@source": ["x", "y"]}),
    (F("@created") >= "2026-01-31T00:00+01:00", "@created >= '2026-01-30T23:00Z'", {"@created": {"$gte": "2026-01-30T23:00"}}),
    (F('"in"') == True, '"in" == true', {"in": True}),  # noqa: E712
    (F("é-1_x") == -0.5e-3, "é-1_x == -5e-4", {"é-1_x": -0.0005}),
    (F("a") == Decimal("0.12345678901234567890"), "a == 0.12345678901234567890", {"a": Decimal("0.12345678901234567890")}),
    (F("a") == 'it\'s "é" \\ \n', r"""a == 'it\'s "\u00e9" \\ \n'""", {"a": 'it\'s "é" \\ \n'}),
    (F("a") < Decimal("9" * 400 + ".5"), "a < " + "9" * 400 + ".5", {"a": {"$lt": Decimal("9" * 400 + ".5")}}),
    (F("a") == Decimal("1e40"), "a == 1" + "0" * 40, {"a": 10**40}),
    (F("a") == 1e40, "a == 1e40", {"a": 1e40}),
    (F("a") == Decimal("0.25"), "a == 0.250", {"a": 0.25}),
    (F('""') == 1, '"" == 1', {'""': 1}),
    (F('a"b') == 1, r'"a\"b" == 1', {'a"b': 1}),
    (F("tags.0") == 1, "tags.0 == 1", {"tags": {"0": 1}}),
]  # fmt: skip


def test_spellings_and_operators_are_those_of_the_page():
    for tree, written, mapping in TREES:
        before = copy.deepcopy(mapping)
        assert repr(filter_tree(written)) == repr(tree)
        assert repr(filter_tree(mapping)) == repr(tree)
        assert repr(mapping) == repr(before)
    with pytest.raises(ConfigurationError, match="write & for and"):
        (F("a") == 1) and (F("b") == 2)
    with pytest.raises(ConfigurationError, match="between"):
        assert 1 < F("a") < 3
    for wrong in (lambda: (F("a") == 1) & {"b": 2}, lambda: {F("a"): 1}):
        with pytest.raises(TypeError):
            wrong()
    assert repr(F("a.b")) == "F('a.b')"
    operators = set(get_args(Operator))
    assert {*text.SYMBOLS, *text.WORDS, "exists", "empty"} - {"!=", "between"} == operators
    assert {*forms.COMPARISONS.values(), *forms.SWITCHES.values()} == operators
    assert {*text.WORDS, *text.LITERALS, "and", "or", "not", "exists", "empty"} == RESERVED
    page = documentation("filters.md").read_text(encoding="utf-8")
    grammar = [line.strip() for line in (text.__doc__ or "").split("::\n")[1].split("Words of the")[0].splitlines()]
    found = re.search(r"```\n(filter .*?)```", page, re.DOTALL)
    assert found
    assert [line.strip() for line in found[1].splitlines()] == list(filter(None, grammar))
    rows = [re.split(r"(?<!\\)\|", line)[1:4] for line in page.splitlines() if re.match(r"\| .*\{\"", line)]
    for texts, mappings, python in rows:
        trees = {repr(filter_tree(one)) for one in re.findall(r"`(\w+ [^`]+)`", texts)}
        trees |= {repr(filter_tree(eval(one))) for one in re.findall(r"`(\{[^`]+)`", mappings)}  # noqa: S307
        trees |= {repr(eval(one.replace("\\|", "|"))) for one in re.findall(r"`([~(]*F[^`]+)`", python)}  # noqa: S307
        assert len(trees) == 1, texts
    assert all(f"`{name}`" in page or f'"{name}"' in page for name in forms.OF_FIELDS)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_has_the_value_that_is_stored(number):
    assert Decimal(json_text(number)) == Decimal(_core.to_json(number).decode()) == exact(number)


TEXTS = [
    ("an operator", "year =! 2020", 6), ("an operator", "@source_document.x == 3", 17),
    ("did you mean !=?", "year <> 2020", 6), ("did you mean like?", "year lke 'a'", 6),
    ("did you mean @source_document?", "@source_documnt == 'x'", 1),
    ("a date, must be in quotes", "year >= 2020-01-01", 9), ("must be in quotes", "lang == de", 9),
    ("in quotes", "in == 3", 1), ("the same quotation mark at its beginning and end", "lang == 'de", 9),
    ("a number", "@page == '3'", 10), ("fields: @source", "@ == 3", 1),
    ("must be a str", "@source_document > 3", 20), ("must be a str", "a like 5", 8),
    ("not exists", "@source_document == ''", 21), ("a time in ISO form", "@created > '31.1.2026'", 12),
    ("is not an operator here", "@source_document contains 'x'", 27), ("is not an operator here", "exists @created", 1),
    ("years 1 and 9999", "@created > '0001-01-01T00:00+14:00'", 12),
    ("32 hexadecimal digits", "@document == 'x'", 14),
    ("the end, 'and' or 'or'", "a == 1 b == 2", 8), ("')', 'and' or 'or'", "(a == 1", 8),
    ("the end", "a == 1)", 7), ("the end", "a == 1 & b == 2", 8), ("the end", "a == 1; DROP TABLE x", 7),
    ("the name of a field", "a == 1 and", 11), ("the name of a field", "a..b == 1", 3),
    ("the name of a field", "not", 4),
    ("a value", "a ==", 5), ("a value", "a any [", 8), ("a value", "a == NaN", 6), ("a value", "a == 01", 6),
    ("must be a list", "a in 'x'", 6), ("a list with at least one value", "a in []", 6),
    ("',' or ']'", "a in [1 2]", 9), ("a key in quotes", "a == {x: 1}", 7), (":", "a == {'x' 1}", 11),
    ("and", "a between 1 or 2", 13), ("of one kind", "a between 1 and 'x'", 11),
    ("the lower one first", "a between 2 and 1", 11), ("the lower one first", "a between 'a' and '2'", 11),
    *(("a number or a text", f"a > {value}", 5) for value in ("true", "null", "[1]")),
    ("a text of at least one character", "a startswith ''", 14),
    ("does not end with a single", r"a like 'x\\'", 8),
    ("at most 32 %", "a like '%s'" % ("%a" * 33), 8), ("at most 1,024 bytes", "a like '%s'" % ("a" * 1025), 8),
    ("in JSON's form", r"a == 'x\y'", 6), ("NUL", r"a == '\u0000'", 6), ("surrogate", r"'\ud800' == 1", 1),
    *(("4,300 digits", f"a == {number}", 6) for number in ("1e99999", "1e" + "9" * 40, "9" * 4302)),
    ("at most 64 levels", "a == 1 and b == " + "[" * 70, 81),
]  # fmt: skip


def test_refusals_have_their_place_and_limits():
    for told, written, column in TEXTS:
        [error] = refusals(lambda written=written: tree_of_text(written))
        assert error.field == f"filters at column {column}"
        assert told in str(error)
    for mapping, places, told in MAPPINGS:
        with pytest.raises(ValidationError) as caught:
            tree_of_mapping(mapping)
        assert [error.field for error in caught.value.errors] == places
        assert told in str(caught.value)
    flat = [F("a") == number for number in range(MAX_CONDITIONS)]
    tree = functools.reduce(operator.or_, flat)
    assert (tree.depth, tree.conditions) == (1, MAX_CONDITIONS)
    assert repr(tree_of_text(str(tree))) == repr(tree)
    many = {"$or": [{"a": number} for number in range(MAX_CONDITIONS + 1)]}
    assert [(one.field, one.code) for one in refusals(lambda: tree_of_mapping(many))] == [("filters.$or", "too_long")]
    assert filter_tree({"a": {"$in": list(range(100_000))}}) is not None
    for make in (
        lambda: tree | (F("b") == 1),
        lambda: tree_of_text(" or ".join(["a==1"] * (MAX_CONDITIONS + 1))),
        lambda: tree_of_mapping({"a": {"$in": ["x" * 1024] * 1024}}),
        lambda: tree_of_mapping({"a" * 2**20: 1}),
        lambda: tree_of_mapping({"$or": [{"a": "x" * 2**19}, {"b": "x" * 2**19}]}),
        lambda: F("a") == "é" * 2**19,
        lambda: tree_of_text("a == 1" + " " * 2**20),
    ):
        assert [one.code for one in refusals(make)] == ["too_long"]
    tree = tree_of_text("year > 2020 and (lang == 'de' or lang == 'fr') and not draft == true and exists tags")
    document = {"year": 2019, "lang": "en", "draft": True, "tags": ["a"]}
    assert [str(part) for part in failing(tree, document)] == [
        "year > 2020", 'lang == "de" or lang == "fr"', "draft != true",
    ]  # fmt: skip
    assert failing(tree, {"year": 2021, "lang": "de", "tags": []}) == []


MAPPINGS = [
    ({"$or": []}, ["filters.$or"], "at least one"),
    ({"$and": {"a": 1}}, ["filters.$and"], "a list of filters"),
    ({"$or": [{}]}, ["filters.$or[0]"], "a mapping with at least one entry"),
    ({"$or": [{"a": 1}, 5]}, ["filters.$or[1]"], "a mapping of fields"),
    ({"$or": [{"a": 1}, {"year": {"$gtee": 1}}]}, ["filters.$or[1].year.$gtee"], "did you mean $gte?"),
    ({"$nor": [{"a": 1}]}, ["filters.$nor"], "did you mean $or?"),
    ({"$gt": 1}, ["filters.$gt"], "follows the name of a field"),
    ({"$not": {}}, ["filters.$not"], "a mapping with at least one entry"),
    ({"a": {}}, ["filters.a"], "a mapping with at least one entry"),
    ({"a": []}, ["filters.a"], "a list with at least one value"),
    ({"a": {"$in": []}, "b": {"$nin": "x"}}, ["filters.a.$in", "filters.b.$nin"], "2 errors"),
    ({"a": {"$gt": 1, "b": 2}}, ["filters.a"], "both in one"),
    ({"a": {"b": {"$lt": None}}}, ["filters.a.b.$lt"], "a number or a text"),
    ({"a": {"$between": [1]}}, ["filters.a.$between"], "two bounds"),
    ({"a": {"$between": [2, 1]}}, ["filters.a.$between"], "the lower one"),
    ({"a": {"$between": [True, False]}}, ["filters.a.$between"], "a number or a text"),
    ({"a": {"$exists": 1}}, ["filters.a.$exists"], "True or False"),
    ({"a": {1, 2}}, ["filters.a"], "a set"), ({"a": b"x"}, ["filters.a"], "bytes"),
    ({"a": [object()]}, ["filters.a"], "an object"),
    ({"a": {"$eq": float("inf")}}, ["filters.a.$eq"], "infinity"),
    ({"a": Decimal("NaN")}, ["filters.a"], "NaN"), ({"a": 10**4300}, ["filters.a"], "4,300 digits"),
    ({"a": Decimal("1e5000")}, ["filters.a"], "4,300 digits"),
    ({5: 1}, ["filters"], "keys of JSON"), ({"a": {"b": 1, 5: 1}}, ["filters.a"], "keys of JSON"),
    ({"a": {"$eq": {5: 1}}}, ["filters.a.$eq"], "keys of JSON"),
    ({"a\0b": 1}, ["filters[0]"], "NUL"), ({"\ud800": 1}, ["filters[0]"], "surrogate"),
    ({"": 1}, ["filters."], "the name of a field"), ({"a.": 1}, ["filters.a."], "the name of a field"),
    ({'"a': 1}, ['filters."a'], "the name of a field"), ({'"a"b': 1}, ['filters."a"b'], "the name of a field"),
    ({"@page": "1"}, ["filters.@page"], "a number"),
    ({"@sorce": "x"}, ["filters.@sorce"], "did you mean @source?"),
    ({"@source_document": {"x": 1}}, ["filters.@source_document.x"], "a key of the metadata"),
    ({"a": {"@source_document": 1}}, ["filters.a.@source_document"], "a key of the metadata"),
    ({"@created": 5}, ["filters.@created"], "a time"),
    ({".".join("a" * 65): 1}, ["filters." + ".".join("a" * 65)[:40]], "at most 64 levels"),
    ({"x" * 50: float("nan")}, ["filters." + "x" * 40], "NaN"),
]  # fmt: skip


@pytest.mark.slow
def test_levels():
    deep, inner, nested = {"a": 1}, 1, []
    for _ in range(100_000):
        deep, inner, nested = {"$or": [deep, {"a": 1}]}, {"a": inner}, [nested]
    for one in (deep, inner, {"a": nested}):
        assert refusals(lambda one=one: tree_of_mapping(one))[0].code == "too_deep"
    for written in ("(" * 1_000_000, "not " * 200_000, "a == " + "[" * 1_000_000, "a == " + '{"a":' * 200_000):
        assert refusals(lambda written=written: tree_of_text(written))[0].code == "too_deep"
    tree = F("a") == 1
    for _ in range(MAX_DEPTH // 2):
        tree = ~(tree & (F("b") == 2))
    assert tree.depth == MAX_DEPTH
    assert repr(tree_of_text(str(tree))) == repr(tree)
    assert repr(tree_of_mapping(mapping_of_tree(tree))) == repr(tree)
    assert holds(tree, {"a": 1, "b": 2}) is True
    assert refusals(lambda: tree & (F("b") == 2))[0].code == "too_deep"
    while deep is not None:
        deep = deep.get("$or", [None])[0]  # so that it is not freed by recursion


@given(st.text(st.sampled_from("ab.@\"' ()[]{},=<>!-+0123\\né%$:") | st.characters(), max_size=30))
def test_no_text_is_another_error(written):
    for make in (tree_of_text, F):
        try:
            make(written)
        except ValidationError as error:
            assert str(error)  # noqa: PT017 - what is understood raises nothing


@given(metadata_trees, documents)
def test_parts_fail_just_where_the_filter_does(tree, document):
    parts = failing(tree, document)
    assert (parts == []) == holds(tree, document)
    assert not any(holds(part, document) for part in parts)
    # Each is the smallest: no *and*, of which one part would say it.
    assert not any(isinstance(part, Group) and part.word == "and" for part in parts)
