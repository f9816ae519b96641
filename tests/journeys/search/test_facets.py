"""Facets: counts of values equal those of a model in memory and of filters, whatever fields are called."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document, F, SyncRetriever
from semlex.errors import ConfigurationError, SemlexError, ValidationError
from semlex.filters.evaluate import MISSING, is_equal, value_at
from semlex.filters.fields import COLUMNS, Field
from semlex.filters.forms import filter_tree
from tests.support import filter_trees
from tests.support.databases import execute
from tests.support.properties import examples
from tests.support.retrievers import sync_filled

pytestmark = pytest.mark.pg16


@pytest.fixture(scope="module")
def shelf(module_url):
    """A collection that tests fill from scratch."""
    with SyncRetriever(module_url, "none", collection="shelf") as retriever:
        yield retriever


def refill(shelf, rows):
    shelf.delete([f"r{row}" for row in range(8)])
    shelf.add_texts(["same text"] * len(rows), ids=[f"r{row}" for row in range(len(rows))], metadata=rows)


@pytest.fixture(scope="module")
def library(module_url, tmp_path_factory):
    """60 texts and a folder; tests only read it."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "keys.md").write_text("# Keys\n\n## Rotation\n\nTurn it.\n\n## Storage\n\nKeep it.\n", encoding="utf-8")
    values = [(2000 + n % 3, ["a", "b", "a"][: n % 4], f"{n % 7}.pdf") for n in range(60)]
    rows = [dict(zip(("year", "tags", "source_document"), row, strict=True)) for row in values]
    documents = [
        Document(f"{'sea' if n % 2 else 'hill'} number{n}", row, f"d{n:02}", language=None if n % 5 else "german")
        for n, row in enumerate(rows)
    ]
    with sync_filled(module_url, documents, 16, collection="library") as retriever:
        retriever.index(folder, source="handbook", chunk_tokens=16, overlap_tokens=0)
        yield retriever


def named(path):
    name = str(Field(path))
    return json.dumps(name) if name in COLUMNS else name


def plain_counts(rows, path):
    """The slow twin: each value of a field, and how many rows have it."""
    counts = []
    for row in rows:
        value = value_at(Field(path), row, {})
        values = [] if value is MISSING else value if isinstance(value, list) else [value]
        for at, one in enumerate(values):
            if any(is_equal(one, other) for other in values[:at]):
                continue
            place = next((place for place, (known, _) in enumerate(counts) if is_equal(known, one)), None)
            if place is None:
                counts.append((one, 1))
            else:
                counts[place] = (one, counts[place][1] + 1)
    return counts


def same(facet, expected):
    left = list(expected)
    for one in facet.values:
        kept = [pair for pair in left if not (is_equal(pair[0], one.value) and pair[1] == one.count)]
        if len(kept) != len(left) - 1:
            return False
        left = kept
    return len(left) == facet.left_out == 0


@pytest.mark.slow
@given(rows=st.lists(filter_trees.documents, min_size=1, max_size=8), paths=st.lists(filter_trees.paths, max_size=3))
@settings(max_examples=examples(15, full=2_000))
def test_counts_equal_those_of_a_model_in_memory(shelf, rows, paths):
    refill(shelf, rows)
    # Every field that there is, and some that may not be.
    asked = list(dict.fromkeys([*((name,) for row in rows for name in row), *paths]))[:20] or [("missing",)]
    facets = shelf.fields.facets([named(path) for path in asked], limit=1000)
    assert facets.chunks == len(rows)
    for path in asked:
        assert same(facets[named(path)], plain_counts(rows, path)), (path, facets[named(path)])
        counts = [one.count for one in facets[named(path)].values]
        assert counts == sorted(counts, reverse=True)


IN_WORDS = "year > 2000 and @source_document != '3.pdf'"


@pytest.mark.parametrize("filters", [None, {"year": 2001}, F("tags").contains("b"), {"year": 1}, IN_WORDS])
def test_a_count_is_what_the_filter_finds(library, filters):
    fields = ["year", "tags", "@source_document", "@language", "@source", "@heading", "@type"]
    facets = library.fields.facets(fields, filters)
    assert (facets.of, facets.exact, facets.warnings) == ("filter", True, [])
    assert facets.chunks == library.count(filters)
    outer = filter_tree(filters)
    for name, facet in facets.items():
        assert facet.left_out == 0
        for one in facet.values:
            inner = F(name).contains(one.value) if name in {"tags", "@heading"} else F(name) == one.value
            assert library.count(inner if outer is None else outer & inner) == one.count, (name, one)


def test_fields_of_semlexs_own(library):
    fields = ["@source", "@title", "@chapter", "@heading", "@language", "source_document", "@document"]
    facets = library.fields.facets(fields)
    shown = {name: {one.value: one.count for one in facet.values} for name, facet in facets.items()}
    keys = library.count({"@source": "handbook"})
    assert shown["@source"] == {"handbook": keys}
    assert shown["@title"] == shown["@chapter"] == {"Keys": keys}
    assert shown["@heading"]["Keys"] == keys
    assert shown["@language"] == {"german": 12}
    assert shown["source_document"] == {f"{n}.pdf": len(range(n, 60, 7)) for n in range(7)} | {"keys.md": keys}
    assert len(shown["@document"]) == 20
    assert facets["@document"].left_out == 61 - 20


def test_values_are_bounded_and_the_rest_is_told(library, shelf):
    facet = library.fields.facets(["@source_document"], limit=3)["@source_document"]
    assert [(one.value, one.count) for one in facet.values] == [("0.pdf", 9), ("1.pdf", 9), ("2.pdf", 9)]
    assert facet.left_out == 5
    refill(shelf, [{"long": "x" * 5000}, {"long": "x" * 5001}])
    facets = shelf.fields.facets(["long", "missing"])
    assert [(one.values, one.left_out) for one in facets.values()] == [([], 2), ([], 0)]


def test_a_field_that_no_chunk_has_is_told(library):
    facets = library.fields.facets(["yaer", "year", "@source"])
    assert facets["yaer"].values == []
    [warning] = facets.warnings
    assert "'yaer'" in warning
    assert "did you mean year?" in warning
    assert "'yaer'" in str(library.fields.facets(["yaer"], query="sea").warnings)
    assert library.fields.facets(["year"], {"year": 1}).warnings == []


HOSTILE = (
    *("'; DROP TABLE x; --", '"a.b"', "%s", "%(path)s", "{}", "a b", "\\", "é🐘", "$x"),
    *('"@source"', '"source_document"'),
)


def test_hostile_names_are_data(shelf):
    keys = [json.loads(name) if name.startswith('"') else name for name in HOSTILE]
    refill(shelf, [dict.fromkeys(keys, "v"), {key: ["v", "v"] for key in keys}, {"other": 1}])
    facets = shelf.fields.facets([*HOSTILE, "other"])
    for name in HOSTILE:
        assert [(one.value, one.count) for one in facets[name].values] == [("v", 2)], name
    assert [(one.value, one.count) for one in facets["other"].values] == [(1, 1)]


def test_the_candidates_of_a_query(library):
    for mode in ("keyword", "vector", "hybrid"):
        hits = library.search("sea", 1000, {"year": 2001}, mode=mode, tuning={"candidates": 1000})
        facets = library.fields.facets(["tags", "@source_document"], {"year": 2001}, query="sea", mode=mode)
        assert (facets.of, facets.exact, facets.chunks) == ("candidates", True, len(hits))
        rows = [dict(hit.metadata) for hit in hits]
        assert same(facets["tags"], plain_counts(rows, ("tags",)))
        assert same(facets["@source_document"], plain_counts(rows, ("source_document",)))
    few = library.fields.facets(["year"], query="sea", mode="vector", candidates=10)
    assert (few.exact, few.chunks) == (False, 10)
    nothing = library.fields.facets(["year"], query="zzqx", mode="keyword")
    assert (nothing.chunks, nothing["year"].values) == (0, [])
    assert "no word of the query" in nothing.warnings[0]
    without = library.fields.facets(["year"], query="hill -sea", mode="hybrid")
    assert without.chunks == library.count() - 30


def test_a_leg_that_fails_is_told(database_url):
    documents = [Document("sea one", {"n": 1}), Document("sea two", {"n": 2})]
    with sync_filled(database_url, documents, 16) as retriever:
        execute(database_url, "ALTER TABLE semlex.default_collection_embedding_1 RENAME COLUMN embedding TO gone")
        facets = retriever.fields.facets(["n"], query="sea")
        assert (facets.chunks, facets.exact) == (2, False)
        assert "vector search" in facets.warnings[0]
        with pytest.raises(SemlexError):
            retriever.fields.facets(["n"], query="sea", mode="vector")


def test_bad_input_and_json(library):
    for fields in ("year", [], ["a"] * 21, [1], None, 5):
        with pytest.raises(ConfigurationError, match="fields"):
            library.fields.facets(fields)
    for field, told in {"@sourse": "fields.*@source", "": "fields", "a..b": "fields", "\0": "fields"}.items():
        with pytest.raises(ValidationError, match=told):
            library.fields.facets([field])
    for options in ({"limit": 0}, {"limit": 1001}, {"candidates": 0}, {"mode": "vector"}):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            library.fields.facets(["year"], **options)
    with pytest.raises(ValidationError, match="query"):
        library.fields.facets(["year"], query=" ")
    shown = json.loads(json.dumps(library.fields.facets(["year", "tags"], {"year": 2000}).to_dict()))
    assert shown["facets"]["year"] == {"field": "year", "values": [{"value": 2000, "count": 20}], "left_out": 0}
    assert (shown["of"], shown["exact"], shown["chunks"]) == ("filter", True, 20)
