"""The SQL of filters on metadata and live columns equals the evaluator; indexes serve it; no value becomes SQL."""
# ruff: noqa: E501 - many cases a line

import datetime as dt
import json
import random
import re
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from semlex import Document, F, _core
from semlex.errors import ValidationError
from semlex.filters.evaluate import holds
from semlex.filters.fields import OWN, Field
from semlex.filters.forms import filter_tree
from semlex.filters.text import tree_of_text
from semlex.filters.tree import ORDER, condition, leaves
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.query.filters import constant_path, parse_filters, text_hash, typed_value, value_at, write_filter
from semlex.store.query.rows import LiveTable, live_row, seen_row
from semlex.store.schema.names import Names, TableIndex
from semlex.types.followed import FollowedTable
from tests.support.filter_trees import NAMES as PARTS
from tests.support.filter_trees import TEXTS, about, documents, fields, metadata_trees, own_trees, trees, values
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
    of = "unnest(%s::text[]) WITH ORDINALITY AS t(t, n)"
    connection.execute(f"INSERT INTO rows SELECT n, t::jsonb FROM {of}", [texts])


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


def compare(connection, found, trees):
    store(connection, found)
    for document, row in zip(found, answers(connection, trees), strict=True):
        for tree, passes in zip(trees, row, strict=True):
            assert passes == holds(tree, document), (str(tree), document)


def test_known_cases_equal_the_evaluator(rows):
    trees = [tree_of_text(text) for text in KNOWN]
    compare(rows, DOCUMENTS, trees)
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
    def check(found, trees):
        nonlocal pairs
        compare(rows, found, trees)
        pairs += len(found) * len(trees)

    check()
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


class Library:
    def __init__(self, connection, names):
        self.connection, self.names = connection, names
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

    def expected(self, tree):
        """Whether each row passes, by the evaluator."""
        return [holds(tree, metadata, own) for metadata, own in self.rows]

    def passing(self, filters):
        """Whether each row passes, in order."""
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
        assert library.passing(tree) == library.expected(tree), str(tree)

    compare()
    for name in OWN:  # values that are there, so that each is equal to something
        for value in {str(own[name]): own[name] for _, own in library.rows if name in own}.values():
            for made in (F(f"@{name}") == value, F(f"@{name}") != value):
                expected = library.expected(made)
                assert library.passing(made) == expected
                assert any(expected) or str(made).startswith(f"@{name} !=")


def test_ids_and_names_of_documents_are_found_by_their_indexes(library):
    ids = [own["id"] for _, own in library.rows]
    some, files = F("@id").in_([*ids[::7], "gone", 5]), [one for one in ids if "-" in one]
    for tree in (some, ~some, (F("@id") == files[0]) | (F("@type") == "code"), F("@id") != ids[0], F("@id") >= "id3"):
        expected = library.expected(tree)
        assert library.passing(tree) == expected
        assert 0 < sum(expected) < len(ids)
    with library.connection.transaction():
        # Once an index has counted its few rows, the planner would join them another way than those of a large table.
        for way in ("seqscan", "hashjoin", "mergejoin"):
            library.connection.execute(f"SET LOCAL enable_{way} = off")
        plan = plan_of(library.connection, some, library.names, library.names.chunk)
    assert re.search(r"Index Cond: \(\(document_id = .* AND \(chunk_id = ", plan), plan
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
    trees = [tree for one in with_text(payload) if (tree := filter_tree(one)) is not None]
    compare(rows, [whole, {"v": {payload: [payload]}}, {}], trees)
    assert any(answers(rows, trees)[0])
    assert rows.execute("SELECT alive FROM canary").fetchall() == [(1,)]
    for field in (F(f"@{name}") for name in OWN):
        for make in (field.__eq__, field.like, lambda one: field.in_([one]), lambda one: field.any([one])):  # noqa: B023
            try:
                tree = make(payload)
            except ValidationError:
                continue  # of a kind that the field is not, or a pattern that is too long
            assert library.passing(tree) == library.expected(tree)


COLUMNS = ("a", "b", "k%(x)s", 'say "x"')


def live_table(name, columns, schema="public", key=("id",), key_kinds=("int",)):
    table = name.split()[0].replace("'", "")
    definition = FollowedTable(
        name=name, schema=schema, table=table, key=key, key_kinds=key_kinds, text=(), live=tuple(columns)
    )
    return LiveTable(definition, columns)


# The second one lacks columns, and has a key of two.
TABLES = (
    live_table("news", dict.fromkeys(COLUMNS, "jsonb"), "shop %s"),
    live_table("o'ld %s", {"a": "jsonb"}, "shop %s", ("id", "name"), ("uuid", "text")),
)
row_fields = st.builds(
    lambda column, path: Field(("row", column, *path), is_own=True),
    st.sampled_from(COLUMNS),
    st.lists(st.sampled_from(PARTS), max_size=2),
)
mixed_trees = trees(about(row_fields) | about(fields)) | trees(about(row_fields))
some_rows = st.none() | st.dictionaries(st.sampled_from(COLUMNS), values, max_size=4)
# Metadata, which table the chunk is a row of (2: none), and the row; None: it is gone.
chunks = st.lists(st.tuples(documents, st.integers(0, 2), some_rows), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def connection(new_database):
    with psycopg.connect(new_database(), autocommit=True, options="-c search_path=pg_catalog") as opened:
        opened.execute('CREATE SCHEMA "shop %s"')
        opened.execute('CREATE TABLE "shop %s".news (id int, a jsonb, b jsonb, "k%(x)s" jsonb, "say ""x""" jsonb)')
        opened.execute('CREATE TABLE "shop %s".old (id uuid, name varchar, a jsonb)')
        opened.execute('CREATE TABLE "shop %s".chunk (n int, metadata jsonb, place jsonb, document_id uuid)')
        yield opened


def as_json(value):
    return _core.to_json({"v": value}).decode()


def document_of(table, key):
    """The key of a row's document."""
    return indexed_document_id(table, f"{table}/{key}")


def store_rows(connection, found):
    connection.execute('TRUNCATE "shop %s".news, "shop %s".old, "shop %s".chunk')
    for n, (metadata, table, row) in enumerate(found):
        part = {"uuid": f"00000000-0000-0000-0000-{n:012}"}
        keys = ([n], [part, f"n'{n}"])
        place = None if table == len(TABLES) else Jsonb({"table": TABLES[table].name, "key": keys[table]})
        key = (str(n), json.dumps([part["uuid"], f"n'{n}"]), "")[table]
        document = None if place is None else document_of(TABLES[table].name, key)
        insert = "INSERT INTO \"shop %%s\".chunk VALUES (%s, %s::jsonb -> 'v', %s, %s)"
        connection.execute(insert, [n, as_json(metadata), place, document])
        if table == len(TABLES) or row is None:
            continue
        cells = {"id": n} if not table else {"id": part["uuid"], "name": f"n'{n}"}
        columns = [name for name in row if name in TABLES[table].live]
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {}").format(
            sql.Identifier("shop %%s", ("news", "old")[table]),
            sql.SQL(", ").join(sql.Identifier(name.replace("%", "%%")) for name in (*cells, *columns)),
            sql.SQL(", ").join([sql.SQL("%s")] * len(cells) + [sql.SQL("%s::jsonb -> 'v'")] * len(columns)),
        )
        connection.execute(insert, [*cells.values(), *(as_json(row[name]) for name in columns)])


def own(table, row):
    """The fields of semlex's own that the evaluator is given: nulls and columns that are not live are missing."""
    if table == len(TABLES):
        return {}
    live = TABLES[table].live
    return {"row": None if row is None else {k: v for k, v in row.items() if v is not None and k in live}}


def passing(connection, tree):
    """The chunks that pass, each looked at alone and as the rows of a table."""
    made = write_filter(parse_filters(tree, NAMES), NAMES, TABLES)
    chunk = sql.SQL('"shop %%s".chunk AS c')
    alone = sql.SQL("SELECT n, {} FROM {} ORDER BY n").format(made.expression, chunk)
    found = [n for n, passes in connection.execute(alone, made.parameters) if passes is True]
    together = sql.SQL("SELECT n FROM {} WHERE {} ORDER BY n").format(chunk, made.expression)
    assert [n for (n,) in connection.execute(together, made.parameters)] == found
    return found


@given(chunks, st.lists(mixed_trees, min_size=8, max_size=8))
@settings(max_examples=examples(25))
def test_the_sql_of_row_filters_equals_the_evaluator(connection, found, some):
    store_rows(connection, found)
    for tree in some:
        expected = [n for n, (metadata, table, row) in enumerate(found) if holds(tree, metadata, own(table, row))]
        assert passing(connection, tree) == expected, str(tree)
        assert tree_of_text(str(tree)) == tree
    statement = sql.SQL('SELECT {} FROM "shop %%s".chunk AS c ORDER BY n').format(live_row(TABLES))
    seen = [one for (one,) in connection.execute(statement, {})]
    expected = [own(table, row).get("row", 0) for _, table, row in found]
    assert [0 if one is None else seen_row(one) for one in seen] == expected


def test_what_chunks_without_a_row_pass(connection):
    public, draft = {"a": "public", "b": 1}, {"a": "draft", "b": None}
    store_rows(connection, [({}, 0, public), ({"x": 1}, 0, draft), ({}, 0, None), ({}, 1, public), ({"x": 1}, 2, None)])
    for text, expected in {
        "@row.a = 'public'": [0, 3],
        "@row.a != 'draft'": [0, 3, 4],
        "not exists @row.a": [4],
        "empty @row.b": [1, 3, 4],
        "@row.a = 'draft' or x = 1": [1, 4],
        "not (@row.a = 'draft' and x = 1)": [0, 3, 4],
        "@row.a != 'draft' and @row.b >= 1": [0],
        "@row.a in ['public', 'x'] and not @row.a like 'd%'": [0, 3],
    }.items():
        assert passing(connection, tree_of_text(text)) == expected, text


def test_a_row_is_looked_up_once(connection):
    tree = tree_of_text("@row.a = 'x' and y = 1 and @row.b > 1 and not (@row.a = 'z' or @row.b = 2)")
    made = write_filter(parse_filters(tree, NAMES), NAMES, TABLES[:1])
    assert made.expression.as_string(connection).count("EXISTS") == 1
    assert len(list(leaves(tree))) == 5
    unwritten = parse_filters(tree, NAMES)
    assert not unwritten.is_empty
    with pytest.raises(RuntimeError):
        assert unwritten.expression
    assert replace(unwritten, unwritten=None).is_empty


def make_chunks(connection):
    """A table of chunks of a table ``t`` with the keys 0 to 20."""
    connection.execute("CREATE TABLE chunk (n int, metadata jsonb DEFAULT '{}', place jsonb, document_id uuid)")
    for n in range(21):
        place, document = Jsonb({"table": "t", "key": [n]}), document_of("t", str(n))
        connection.execute("INSERT INTO chunk (n, place, document_id) VALUES (%s, %s, %s)", [n, place, document])


def chunks_passing(connection, filters, table, first, last):
    made = write_filter(parse_filters(filters, NAMES), NAMES, [table])
    statement = sql.SQL("SELECT n FROM chunk AS c WHERE n BETWEEN {} AND {} AND {} ORDER BY n")
    return [n for (n,) in connection.execute(statement.format(first, last, made.expression), made.parameters)]


TYPES = {
    "n": ("integer", st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3)),
    "small": ("smallint", st.integers(-2, 3)),
    "x": ("numeric", st.sampled_from(["0.1", "1", "1.0", "-0", "1e30", "9007199254740993", "NaN"]) | st.none()),
    "s": ("text", st.sampled_from(["", "a", "A", "1", "true", "é", "%"])),
    "v": ("character varying", st.sampled_from(["a", "b"]) | st.none()),
    "b": ("boolean", st.booleans()),
    "u": ("uuid", st.sampled_from([UUID(int=1), UUID(int=2)])),
}
operands = st.sampled_from(
    [
        *(0, 1, 2, 1.0, 0.1, 1.5, -0.0, 2**31, 2**63, 2**100, 1e30, 2**53 + 1, True, False, None, []),
        *("", "a", "A", "1", "true", "é", "é%", str(UUID(int=1)), str(UUID(int=2)).replace("-", "")),
    ]
)
typed = st.sampled_from(list(TYPES)).map(lambda name: Field(("row", name), is_own=True))
typed_trees = trees(
    st.one_of(
        st.builds(condition, typed, st.just("=="), operands),
        st.builds(condition, typed, st.just("in"), st.lists(operands, min_size=1, max_size=4)),
        st.builds(
            condition, typed, st.sampled_from(ORDER), operands.filter(lambda one: type(one) in (int, float, str))
        ),
    )
)


@given(st.lists(st.tuples(*(values for _, values in TYPES.values())), max_size=12), st.lists(typed_trees, max_size=8))
@settings(max_examples=examples(40))
def test_columns_are_compared_as_their_json(typed_rows, found, some):
    typed_rows.execute("TRUNCATE t")
    insert = sql.SQL("INSERT INTO t VALUES (%s, {})").format(sql.SQL(", ").join([sql.Placeholder()] * len(TYPES)))
    for n, row in enumerate(found):
        typed_rows.execute(insert, [n, *row])
    table = live_table("t", {name: kind for name, (kind, _) in TYPES.items()})
    for tree in some:
        passes = chunks_passing(typed_rows, tree, table, 0, len(found) - 1)
        live = [{name: one for name, one in zip(TYPES, row, strict=True) if one is not None} for row in found]
        for row in live:
            row["u"] = str(row["u"])
            if row.get("x", "NaN") != "NaN":
                row["x"] = Decimal(row["x"])
        assert passes == [n for n, row in enumerate(live) if holds(tree, {}, {"row": row})], str(tree)


@pytest.fixture(scope="module")
def typed_rows(new_database):
    with psycopg.connect(new_database(), autocommit=True) as opened:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
        opened.execute(f"CREATE TABLE t (id int, {columns})")
        make_chunks(opened)
        yield opened


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_times_are_compared_as_metadata_has_them(new_database, zone):
    types = {"at": "timestamp with time zone", "day": "date", "local": "timestamp without time zone", "n": "numeric"}
    table = live_table("t", types)
    with psycopg.connect(new_database(), autocommit=True, options=f"-c timezone={zone}") as connection:
        connection.execute("CREATE TABLE t (id int, at timestamptz, day date, local timestamp, n numeric)")
        connection.execute(
            "INSERT INTO t VALUES (1, '2026-01-01 00:00:00.5+00', '2026-01-01', '2026-01-01 10:00', 1.50), "
            "(2, 'infinity', NULL, '2026-01-01 10:00:00.000001', 'NaN')"
        )
        make_chunks(connection)
        for text, expected in {
            "@row.at = '2026-01-01T00:00:00.500000+00:00'": [1],
            "@row.at >= '2026-01-01'": [1, 2],
            "@row.at < '2026-01-01T00:00:00.500001+00:00'": [1],
            "@row.day = '2026-01-01'": [1],
            "@row.local between '2026-01-01T10' and '2026-01-01T10:00:00'": [1],
            "@row.local > '2026-01-01T10:00:00'": [2],
            "@row.n = 1.5": [1],
            "empty @row.day": [2],
        }.items():
            assert chunks_passing(connection, text, table, 1, 2) == expected, text
