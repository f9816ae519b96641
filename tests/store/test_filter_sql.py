"""The SQL of filters means what the evaluator says; indexes serve it; no value becomes SQL."""
# ruff: noqa: E501 - many cases a line

from __future__ import annotations

import datetime as dt
import json
import random
import re
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import Document, F, _core
from semlex.errors import ValidationError
from semlex.filters.evaluate import holds
from semlex.filters.fields import OWN
from semlex.filters.forms import filter_tree
from semlex.filters.text import tree_of_text
from semlex.store.query.filters import constant_path, parse_filters, text_hash, typed_value, value_at
from semlex.store.schema.names import Names, TableIndex
from tests.support.filter_trees import TEXTS, documents, metadata_trees, own_trees
from tests.support.properties import examples
from tests.support.retrievers import sync_opened

pytestmark = pytest.mark.pg16
NAMES = Names("semlex", "docs")


@pytest.fixture(scope="module")
def rows(server_url):
    """A connection with a table of metadata; its index is the one that large collections have."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE rows (n int, metadata jsonb)")
        connection.execute("CREATE INDEX ON rows USING gin (metadata jsonb_path_ops)")
        yield connection


def store(connection, found):
    connection.execute("TRUNCATE rows")
    texts = [_core.to_json(one).decode() for one in found]
    connection.execute(
        "INSERT INTO rows SELECT n, t::jsonb FROM unnest(%s::text[]) WITH ORDINALITY AS t(t, n)", [texts]
    )


def answers(connection, trees):
    """Of each row, in order: whether each filter lets it pass."""
    made = [parse_filters(tree, NAMES, prefix=f"f{number}") for number, tree in enumerate(trees)]
    columns = sql.SQL(", ").join(sql.SQL("{} IS TRUE").format(one.expression) for one in made)
    parameters = {name: value for one in made for name, value in one.parameters.items()}
    return connection.execute(sql.SQL("SELECT {} FROM rows AS c ORDER BY n").format(columns), parameters).fetchall()


DOCUMENTS = [
    {},
    *({"v": value} for value in (None, "", [], {}, True, "true", "Z", "a", "B", "Éa", "éA", "éa", "ab", "%_\\", "a%", "\uffff", "🐘")),
    *({"v": value} for value in (1, 1.0, "1", 0.1, -0.0, 10**40, 10**40 + 1, 1e40, 2**53, 2**53 + 1, 1e-300)),
    *({"v": value} for value in ([1, 2], [2, 1], ["a", "B"], [["a"]], [["a", "b"]], [None], [{}], [{"k": 1}], ["a", "a", 1, True])),
    *({"v": value} for value in ({"0": "a"}, {"-1": "B"}, {"k": ["a"]}, {"k": {"k": 1}}, {"k": [{"k": 1}]}, {"k": None})),
    {"v.k": 1, "k%": "a", "": 0, "v": {"k.k": 1}},
]  # fmt: skip
KNOWN = [
    "v.0 == 'a'", 'v."-1" == "B"', 'v."+0" == "a"', 'v." 1" == "B"', "v.0.0 == 'a'", "v.9 == 1", "v.0 in ['a', 1]", "v.k.0 contains 'a'",
    "exists v.0", "exists v.k", "v.k == null", "v.k.k == 1", "v.k contains 'a'", "v.k.0.k == 1", "'v.k' == 1", "v.'k.k' == 1", "'k%' == 'a'", "'' == 0",
    "exists v", "empty v", "not empty v", "v == null", "v != null", "v == ''", "v == []", "v == {}", "v == true", "v == 'true'",
    "v == 1", "v != 1", "v == '1'", "v in [1, 'a']", "v not in [1, 'a', null]", "v in [[1, 2], {}]", "v == [1, 2]", "v == [1.0, 2]", "v == {'k': {'k': 1.0}}",
    "v > 0", "v < 0.1", "v >= 1e40", "v > 10000000000000000000000000000000000000000", "v <= 9007199254740992", "v between 0 and 1", "not v > 0", "v > 'a'",
    "v < 'a'", "v >= 'Z'", "v > '\uffff'", "v between 'B' and 'b'", "v startswith 'a'", "v startswith 'é'", "v startswith '%'", "v like 'a%'", "v like '_'",
    "v like '%a'", r"v like 'a\\%'", r"v like '\\%\\_\\\\'", "v like ''", "v ilike 'b'", "v ilike 'éA'", "v ilike 'ÉA'", "v not ilike '%'",
    "v contains 1", "v contains true", "v contains null", "v contains ['a']", "v contains {}", "v contains {'k': 1}", "v contains 'a'", "v not contains 'a'",
    "v any ['a', 5]", "v any [['a'], 7]", "v all ['a', 1]", "v all [['a', 'b']]", "v all [1, 2, 1]", "v all [['a'], 1]", "v not any [1]", "not (v == 1 or v.k.k == 1)",
    "not (exists v and not v > 0)", "v == 1 and not v == 1", "v in [" + ", ".join(map(str, range(40))) + "]", "v any [" + ", ".join(map(str, range(40))) + "]",
]  # fmt: skip


def test_known_cases_equal_the_evaluator(rows):
    store(rows, DOCUMENTS)
    trees = [tree_of_text(text) for text in KNOWN]
    for document, row in zip(DOCUMENTS, answers(rows, trees), strict=True):
        for tree, passes in zip(trees, row, strict=True):
            assert passes == holds(tree, document), (str(tree), document)
    # As conditions of their own, where the index may be used.
    rows.execute("SET enable_seqscan = off")
    for tree in trees:
        made = parse_filters(tree, NAMES)
        text = sql.SQL("SELECT n FROM rows AS c WHERE {} ORDER BY n").format(made.expression)
        found = [n for (n,) in rows.execute(text, made.parameters)]
        assert found == [n for n, document in enumerate(DOCUMENTS, 1) if holds(tree, document)], str(tree)
    rows.execute("RESET enable_seqscan")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sql_equals_the_evaluator(rows, full):
    pairs = 0

    @given(st.lists(documents, min_size=40, max_size=40), st.lists(metadata_trees, min_size=40, max_size=40))
    @settings(max_examples=70 if full else 4)
    def compare(found, trees):
        nonlocal pairs
        store(rows, found)
        for document, row in zip(found, answers(rows, trees), strict=True):
            for tree, passes in zip(trees, row, strict=True):
                assert passes == holds(tree, document), (str(tree), document)
        pairs += len(found) * len(trees)

    compare()
    assert pairs >= (100_000 if full else 5_000)


@pytest.fixture(scope="module")
def library(new_database, tmp_path_factory):
    """A collection with documents of files and added ones, whose fields are texts that filters are about, too."""
    folder = tmp_path_factory.mktemp("ab")
    for name in ("a", "ab", "B"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nIntroduction.\n\n## a%\n\n    code()\n\n### b\n\nEnd.\n")
    draw = random.Random(7)
    documents = []
    for number in range(60):
        titles = ("source_document", "chapter_title", "section_title")
        metadata = {name: draw.choice(TEXTS) if number % 5 else "" for name in titles}
        metadata["subsection_title"] = draw.sample(TEXTS, number % 5 and number % 2)
        made = dt.datetime(1, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=draw.randrange(365 * 9_000), hours=number)
        parent = draw.choice([None, *filter(None, TEXTS)])
        document = Document("text", metadata, f"id{number}", parent, created_at=made, updated_at=made)
        document.language = draw.choice([None, "german", "en"])
        documents.append(document)
    url = new_database()
    with sync_opened(url, "none", collection="library") as retriever:
        retriever.index(folder, source="ab")
        retriever.add_documents(documents)
    with psycopg.connect(url, autocommit=True, options="-c timezone=UTC") as connection:
        names = Names("semlex", "library")
        paged = "UPDATE {} SET page = 1 + abs(hashtext(chunk_id)) % 3 WHERE hashtext(chunk_id) % 2 = 0"
        connection.execute(sql.SQL(paged).format(names.chunk))
        yield Library(connection, names)


@dataclass
class Library:
    connection: psycopg.Connection[Any]
    names: Names

    def __post_init__(self):
        text = sql.SQL(
            "SELECT c.metadata, c.source_document, c.chapter_title, c.section_title, c.subsection_title, c.chunk_type, "
            "c.language, c.parent_chunk_id, c.page, c.created_at, c.updated_at, replace(c.document_id::text, '-', ''), c.chunk_id, s.name, "
            "d.title FROM {} AS c LEFT JOIN {} AS d USING (document_id) LEFT JOIN {} AS s USING (source_id) "
            "ORDER BY c.ctid"
        ).format(self.names.chunk, self.names.document, self.names.source)
        self.rows = [self._read(*row) for row in self.connection.execute(text)]

    @staticmethod
    def _read(metadata, uri, chapter, section, below, *rest):
        names = ("type", "language", "parent", "page", "created", "updated", "document", "id", "source", "title")
        own = dict(zip(names, rest, strict=True)) | {"source_document": uri, "chapter": chapter, "section": section}
        own["heading"] = [title for title in (chapter, section, *below) if title]
        return metadata, {name: value for name, value in own.items() if value}

    def passing(self, filters):
        """Of every row, in order."""
        made = parse_filters(filters, self.names)
        text = sql.SQL("SELECT {} IS TRUE FROM {} AS c ORDER BY c.ctid").format(made.expression, self.names.chunk)
        return [passes for (passes,) in self.connection.execute(text, made.parameters)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fields_of_our_own_equal_the_evaluator(library, full):
    assert {len(own.get("heading", ())) for _, own in library.rows} == {0, 1, 2, 3}
    assert {own.get("source") for _, own in library.rows} == {None, "ab"}

    @given(own_trees)
    @settings(max_examples=3_000 if full else examples(100))
    def compare(tree):
        assert library.passing(tree) == [holds(tree, metadata, own) for metadata, own in library.rows], str(tree)

    compare()
    for name in OWN:  # values that are there, so that each is equal to something
        for value in {str(own.get(name)): own.get(name) for _, own in library.rows}.values():
            for made in [] if value is None else [F(f"@{name}") == value, F(f"@{name}") != value]:
                expected = [holds(made, metadata, own) for metadata, own in library.rows]
                assert library.passing(made) == expected
                assert any(expected) or str(made).startswith(f"@{name} !=")


def test_ids_are_found_by_the_primary_key(library):
    ids = [own["id"] for _, own in library.rows]
    some, files = F("@id").in_([*ids[::7], "gone", 5]), [one for one in ids if "-" in one]
    for tree in (some, ~some, (F("@id") == files[0]) | (F("@type") == "code"), F("@id") != ids[0], F("@id") >= "id3"):
        expected = [holds(tree, metadata, own) for metadata, own in library.rows]
        assert library.passing(tree) == expected
        assert 0 < sum(expected) < len(ids)
    with library.connection.transaction():
        # Once an index has counted its few rows, the planner would join them another way than those of a large table.
        for way in ("seqscan", "hashjoin", "mergejoin"):
            library.connection.execute(f"SET LOCAL enable_{way} = off")
        plan = plan_of(library.connection, some, library.names, library.names.chunk)
    assert re.search(r"Index Cond: \(\(document_id = .* AND \(chunk_id = ", plan), plan


def test_names_of_documents_are_found_by_their_index(library):
    definition = sql.SQL("(({}))").format(text_hash(sql.SQL("source_document")))
    with library.connection.transaction(force_rollback=True):
        library.connection.execute(TableIndex("document_name", library.names.chunk, definition).create(library.names))
        library.connection.execute("SET LOCAL enable_seqscan = off")
        for filters in ("@source_document == 'a.md'", "@source_document in ['a.md', 'b.md']"):
            assert "_document_name" in plan_of(library.connection, filters, library.names, library.names.chunk), filters


SERVED = [
    "year == 2020", "author.name == 'a'", "lang in ['de', 'en']", "tags contains 'x' and not exists draft",
    "tags all ['x', 'y']", "tags any ['x', 'y']", "year == 2020 or lang == 'de'", "number >= 5", "number between 5 and 7",
    "title < 'b'", "title startswith 'b'", "title like 'b%c'",
]  # fmt: skip


def plan_of(connection, filters, names, table):
    made = parse_filters(filters, names)
    text = sql.SQL("EXPLAIN SELECT 1 FROM {} AS c WHERE {}").format(table, made.expression)
    return "\n".join(line for (line,) in connection.execute(text, made.parameters))


def test_an_index_serves_a_filter(rows):
    with rows.transaction(force_rollback=True):
        for name, kind in (("number", "number"), ("title", "text")):
            value = typed_value(value_at(constant_path([name]), sql.SQL("metadata")), kind)
            rows.execute(sql.SQL("CREATE INDEX ON rows ({})").format(value))
        rows.execute("INSERT INTO rows SELECT n, jsonb_build_object('number', n) FROM generate_series(1, 1000) AS n")
        rows.execute("SET LOCAL enable_seqscan = off")
        for filters in (*SERVED, "year != 2020", "year >= 5"):
            assert ("Index" in plan_of(rows, filters, NAMES, sql.SQL("rows"))) is (filters in SERVED), filters


PAYLOADS = [
    "x' OR '1'='1", "x'; DROP TABLE canary; --", "'); DROP TABLE canary; --", "x'::jsonb; DROP TABLE canary; --",
    '"; DROP TABLE canary; --', '{"a": 1}', "{a,b}", "$$; DROP TABLE canary; $$", "E'\\''; DROP TABLE canary; --",
    "\\'; DROP TABLE canary; --", "\\", "%s", "%(filter_0)s", "%", "%%", ":noon", "{}", "{0}", "NULL", "o'brien", "/* */",
    "-- ", "*", "$1", "\u2019; DROP TABLE canary", "\uff07 OR 1=1", "a\tb\nc\rd", "$.a ? (@ == 1)", "c.metadata", "x" * 10_240,
]  # fmt: skip


def with_text(text):
    """Filters with a text in every place where one can stand."""
    name = json.dumps(text)
    field = F(name)
    return [
        field == text, field != 1, field.in_([text, 1]), field.in_([[text]] * 40), field.exists(), ~field.empty(),
        field > text, field <= text, field.startswith(text), field.contains(text), field.any([text]),
        field.all([text, {text: text}]),
        F(f"a.{name}") == text, F(f"a.{name}.0") == text, F("v") == text, F("v") == {text: [text]}, F("v") == [text],
        F("v") < text, F("v").startswith(text), F("v").between("", text), F("v").in_([text]), F("v") != text,
        F("tags").contains(text), F("tags").any([text, text]), F("tags").all([text]), F("tags.0") == text,
        {name: {"$in": [text]}}, {"v": {"$nin": [text]}}, {"a": {name: text}}, f"{name} == {name}", f"v in [{name}]",
        *(F("v").like(one) for one in [text.replace("\\", "\\\\")] if len(one) < 1_024),
        *(field.ilike(one) for one in [text.replace("\\", "\\\\")] if len(one) < 1_024),
    ]  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda one: ascii(one)[:30])
def test_no_text_becomes_sql(rows, library, payload):
    rows.execute("CREATE TEMP TABLE IF NOT EXISTS canary AS SELECT 1 AS alive")
    whole = {payload: payload, "v": payload, "tags": [payload], "a": {payload: [payload]}}
    documents = [whole, {"v": {payload: [payload]}}, {}]
    store(rows, documents)
    trees = [tree for one in with_text(payload) if (tree := filter_tree(one)) is not None]
    found = answers(rows, trees)
    assert found == [tuple(holds(tree, document) for tree in trees) for document in documents]
    assert any(found[0])
    assert rows.execute("SELECT alive FROM canary").fetchall() == [(1,)]
    for field in (F(f"@{name}") for name in OWN):
        for make in (field.__eq__, field.like, lambda one: field.in_([one]), lambda one: field.any([one])):  # noqa: B023
            try:
                tree = make(payload)
            except ValidationError:
                continue  # of a kind that the field is not, or a pattern that is too long
            assert library.passing(tree) == [holds(tree, metadata, own) for metadata, own in library.rows]
