"""Filters: what passes, what is refused with its remedy, and what is told when nothing passed."""

import functools
import logging
import operator

import pytest

from semlex import Document, F, SearchQuery, SyncRetriever
from semlex.errors import ValidationError
from semlex.filters.tree import MAX_CONDITIONS, MAX_DEPTH
from semlex.store.query.filters import Filter, parse_filters
from semlex.store.schema.names import Names
from tests.support.retrievers import sync_filled


@pytest.fixture(scope="module")
def shelf(module_url):
    """Four documents; tests only read them."""
    documents = [
        Document("a text", {"source_document": "a.md", "year": 2024, "draft": True}, id="number"),
        Document("a text", {"source_document": "b.md", "year": "2024", "draft": "true"}, id="words"),
        Document("a text", {"source_document": "c.md", "year": 2024.5, "size": "1e3"}, id="half"),
        Document("a text", {"source_document": "d.md"}, id="none"),
    ]
    with sync_filled(module_url, documents) as retriever:
        yield retriever


@pytest.fixture(scope="module")
def library(module_url):
    """A collection beside it, of documents without a name."""
    documents = [Document("a text", {"year": 2024, "author": {"name": "Ada"}}), Document("a text", {"year": 1999})]
    with sync_filled(module_url, documents, collection="library") as retriever:
        yield retriever


@pytest.mark.parametrize(
    ("filters", "place", "told"),
    [
        (["x"], "filters", "a mapping of field names to values"),
        (5, "filters", "a mapping"),
        ([], "filters", "a mapping"),
        ("source_document=>a.md", "filters at column 16", "did you mean >=?"),
        (" ", "filters", "blank"),
        ({5: "x"}, "filters", "keys of JSON are strings"),
        ({"chapter_title": 5}, "filters.chapter_title", "must be a str"),
        ({"parent_chunk_id": None}, "filters.parent_chunk_id", "must be a str"),
        ({"$or": [{"year": 1}, {"year": {"$gtt": 3}}]}, "filters.$or[1].year.$gtt", "did you mean $gt?"),
        ({"year": {1, 2}}, "filters.year", "which JSON does not know"),
        ({"year": float("nan")}, "filters.year", "NaN"),
    ],
    ids=str,
)
def test_what_would_find_nothing_is_refused(shelf, filters, place, told):
    for call in (
        *(lambda one: shelf.search("text", filters=one), lambda one: shelf.search(SearchQuery("text", filters=one))),
        *(shelf.count, shelf.list_chunks, lambda one: shelf.delete(filters=one)),
    ):
        with pytest.raises(ValidationError) as caught:
            call(filters)
        assert [(one.row, one.field) for one in caught.value.errors] == [(-1, place)]
        assert told in str(caught.value)


def test_a_condition_without_values_is_a_filter():
    names = Names("semlex", "docs")
    assert Filter().is_empty
    assert [parse_filters(one, names).is_empty for one in ({}, None, "not exists draft")] == [True, True, False]


DRAFT = F("draft") == True  # noqa: E712
SPELLINGS = [
    ({"year": 2024}, F("year") == 2024, "year == 2024", {"number"}),
    ({"year": "2024"}, F("year") == "2024", "year == '2024'", {"words"}),
    ({"year": {"$gt": 2024}}, F("year") > 2024, "year > 2024", {"half"}),
    ({"year": {"$ne": 2024}}, F("year") != 2024, "year != 2024", {"words", "half", "none"}),
    ({"draft": {"$exists": False}}, ~F("draft").exists(), "not exists draft", {"half", "none"}),
    (
        {"@source_document": ["a.md", "d.md"]},
        F("@source_document").in_(["a.md", "d.md"]),
        '@source_document in ["a.md", "d.md"]',
        {"number", "none"},
    ),
    ({"source_document": {"$like": "b%"}}, F("@source_document").like("b%"), "@source_document like 'b%'", {"words"}),
    (
        {"$or": [{"draft": True}, {"size": {"$startswith": "1"}}]},
        DRAFT | F("size").startswith("1"),
        "draft == true or size startswith '1'",
        {"number", "half"},
    ),
]


@pytest.mark.parametrize(("mapping", "tree", "text", "expected"), SPELLINGS)
def test_three_spellings(shelf, mapping, tree, text, expected):
    for filters in (mapping, tree, text, str(tree)):
        assert {chunk.id for chunk in shelf.list_chunks(filters)} == expected
        assert shelf.count(filters) == len(expected)
        assert shelf.delete(filters=filters, dry_run=True).chunks == len(expected)
        for mode in ("vector", "keyword", None):
            assert {hit.id for hit in shelf.search("text", 10, filters, mode=mode)} == expected
        assert {hit.id for hit in shelf.search(SearchQuery("text", filters=filters))} == expected


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *((name, f"did you mean @{name}?") for name in ("source", "source_document")),
        ("yaer", "did you mean year?"),
        *((name, "filters know @source, @source_document") for name in ("nowhere", "year.month")),
    ],
)
def test_a_field_that_no_chunk_has(library, caplog, name, remedy):
    for mode in ("vector", "keyword", None):
        results = library.search("text", filters=f'{name} == "a.md" and year == 2024', mode=mode)
        assert results == []
        told = [one for one in results.warnings if f"no chunk has the metadata field {name!r}" in one]
        assert remedy in " ".join(told)
        assert not any("'year'" in one for one in results.warnings)
    with caplog.at_level(logging.WARNING, "semlex"):
        assert library.count(f"{name} == 1") == 0
    assert f"the metadata field {name!r}" in caplog.text


def test_values_of_another_kind_are_told(library, shelf, database_url):
    for filters, told in {
        'year == "2024"': "'year' contains numbers, and the filter compares it with a text",
        'year in ["2024", "1999"]': "'year' contains numbers",
        'not not year like "20%"': "'year' contains numbers",
        "author.name >= 5": "'author.name' contains texts, and the filter compares it with a number",
    }.items():
        results = library.search("text", filters=filters)
        [warning] = results.warnings
        assert (results, told in warning) == ([], True), filters
    for filters in ("year == 5", 'author.name == "5"', 'year in [5, "2024"]'):
        results = library.search("text", filters=filters)
        assert (results, results.warnings) == ([], []), filters
    assert shelf.search("text", filters={"year": 1999, "source_document": "a.md"}).warnings == []
    assert shelf.search("text", filters={"source_document": "z.md"}).warnings == []
    # A search that found something is not looked at.
    assert shelf.search("text", filters="not nowhere == 1").warnings == []
    with SyncRetriever(database_url, "none") as empty:
        assert empty.search("text", filters={"year": 1}).warnings == ["the collection is empty"]


@pytest.mark.slow
def test_the_largest_filters_are_answered(shelf):
    numbers = functools.reduce(operator.or_, [F("year") > number + 2023.5 for number in range(MAX_CONDITIONS)])
    assert {chunk.id for chunk in shelf.list_chunks(numbers)} == {"number", "half"}
    assert {hit.id for hit in shelf.search("text", filters=numbers)} == {"number", "half"}
    assert shelf.count({"$and": [{"year": {"$ne": str(number)}} for number in range(MAX_CONDITIONS)]}) == 4
    deep = F("year") == 2024
    for _ in range(MAX_DEPTH // 2):
        deep = ~(deep & DRAFT)
    for filters in (deep, str(deep)):
        assert {chunk.id for chunk in shelf.list_chunks(filters)} == {"number", "words", "half", "none"}
    assert shelf.count({"year": {"$in": [*range(100_000), "2024"]}}) == 2
    assert shelf.count({"year": {"$nin": [*range(100_000), "2024"]}}) == 2
    value = 1
    for _ in range(64):
        value = [value]
    assert shelf.count({"year": {"$eq": value}}) == 0
    assert shelf.count({".".join("a" * 64): 1}) == 0
    assert shelf.count(F("year").like("%_" * 32)) == 0
