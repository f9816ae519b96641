"""Indexes of fields: the server uses them and estimates with them; they change no answer; equal values cost little."""

import json
from contextlib import contextmanager

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import _core
from semlex.errors import ValidationError
from semlex.filters.fields import Field, field_named
from semlex.filters.tree import ORDER, condition
from semlex.store.indexes.choice import other_indexes
from semlex.store.indexes.field_indexes import MAX_PATH_BYTES, FieldIndex, checked_index, read_field_indexes
from semlex.store.query.filters import parse_filters
from semlex.store.schema.names import Names, TableIndex
from tests.support.databases import execute
from tests.support.filter_trees import STORABLE, numbers, texts
from tests.support.properties import examples
from tests.support.retrievers import filled

pytestmark = pytest.mark.pg16
NAMES = Names("semlex", "docs")

HOSTILE = ["", "'", "''", '"', "\\", "{", "}", ",", "NULL", "%", "%s", "%(x)s", "::text[]", "a'::text[]", "$$"]
hostile_parts = st.sampled_from(HOSTILE) | st.text(STORABLE, max_size=6)
hostile_fields = st.lists(hostile_parts, min_size=1, max_size=4).map(lambda parts: Field(tuple(parts)))


@pytest.fixture(scope="module")
def chunks(server_url):
    """A connection with a table of metadata under the name of a collection's."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog")
        connection.execute("CREATE SCHEMA semlex")
        connection.execute("CREATE TABLE semlex.docs_chunk (n int, metadata jsonb, created_at timestamptz)")
        yield connection
        connection.execute("DROP SCHEMA semlex CASCADE")


def store(connection, found):
    rows = "SELECT n, t::jsonb, now() FROM unnest(%s::text[]) WITH ORDINALITY AS t(t, n)"
    texts = [_core.to_json(one).decode() for one in found]
    connection.execute("TRUNCATE semlex.docs_chunk")
    connection.execute(f"INSERT INTO semlex.docs_chunk {rows}", [texts])


@contextmanager
def indexed(connection, *indexes):
    """Makes indexes, and drops all that the table has."""
    try:
        for index in indexes:
            connection.execute(index.table_index(NAMES).create(NAMES))
        connection.execute("ANALYZE semlex.docs_chunk")
        yield
    finally:
        made = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'semlex.docs_chunk'::regclass"
        for (name,) in connection.execute(made).fetchall():
            connection.execute(f"DROP INDEX {name}")


def passing(connection, filters):
    made = parse_filters(filters, NAMES)
    query = sql.SQL("SELECT n FROM semlex.docs_chunk AS c WHERE {} ORDER BY n").format(made.expression)
    return [n for (n,) in connection.execute(query, made.parameters).fetchall()]


def plan(connection, filters):
    made = parse_filters(filters, NAMES)
    query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT * FROM semlex.docs_chunk AS c WHERE {}").format(made.expression)
    return connection.execute(query, made.parameters).fetchone()[0][0]["Plan"]


SERVED = {
    ("year", "number"): ("year >= 2019", "year between 1990 and 1991", "not year < 2019 and year >= 2019"),
    ("day", "text"): ("day > '2025-05-01'", "day startswith '2025-05'", "day like '2025-05-0%'"),
    ("author.born", "number"): ("author.born < 1902",),
    ('"100%"', "number"): ('"100%" >= 9900',),
    ("@created", "instant"): ("@created < '2020-01-05'",),
}


def test_the_server_uses_the_index_and_knows_how_many_pass(chunks):
    chunks.execute(
        """TRUNCATE semlex.docs_chunk;
        INSERT INTO semlex.docs_chunk SELECT n, jsonb_build_object('year', 1900 + n % 125,
        'day', (date '2020-01-01' + n % 2000)::text, 'author', jsonb_build_object('born', 1900 + n % 100), '100%', n,
        'text', repeat('x', 200)), timestamptz '2020-01-01 00:00Z' + n * interval '1 hour'
        FROM generate_series(1, 10000) AS n; ANALYZE semlex.docs_chunk"""
    )
    for (name, of), every in SERVED.items():
        index = checked_index(field_named(name, "name"), of)
        before = {filters: passing(chunks, filters) for filters in every}
        assert all("Seq Scan" in json.dumps(plan(chunks, filters)) for filters in every)
        with indexed(chunks, index):
            for filters, expected in before.items():
                explained = plan(chunks, filters)
                assert f"docs_{index.suffix}" in json.dumps(explained), filters
                assert passing(chunks, filters) == expected, filters
                # The server counts few matches of a pattern in its histogram, and takes two conditions for independent.
                if not any(word in filters for word in ("startswith", "like", "not")):
                    assert len(expected) / 1.5 <= explained["Plan Rows"] <= len(expected) * 1.5 + 10, filters


def test_filters_find_the_same_with_and_without_indexes(chunks, full):
    values = st.one_of(numbers, texts, st.booleans(), st.none(), st.lists(numbers, max_size=2))
    documents = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2), max_size=30)
    patterns = st.tuples(st.just("startswith"), texts.filter(bool))
    bounds = st.lists(st.tuples(st.sampled_from(ORDER), numbers | texts) | patterns, min_size=1, max_size=20)
    indexes = [FieldIndex(Field(("a",)), "number"), FieldIndex(Field(("a",)), "text")]

    @given(documents, bounds)
    @settings(max_examples=500 if full else examples(20))
    def compare(found, wanted):
        store(chunks, found)
        trees = [condition(Field(("a",)), operator, bound) for operator, bound in wanted]
        before = [passing(chunks, tree) for tree in trees]
        with indexed(chunks, *indexes):
            chunks.execute("SET enable_seqscan = off")
            after, plans = [passing(chunks, tree) for tree in trees], [json.dumps(plan(chunks, tree)) for tree in trees]
            chunks.execute("RESET enable_seqscan")
        assert after == before
        assert all("docs_field_" in one for one in plans)

    compare()


async def read_back(url, names=NAMES):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SET search_path = pg_catalog")
        return await read_field_indexes(connection, names)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(found=st.sets(st.tuples(hostile_fields, st.sampled_from(["number", "text"])), max_size=4))
async def test_what_an_index_is_over_is_read_back(chunks, server_url, found):
    indexes = [checked_index(*one) for one in found]
    with indexed(chunks, *indexes):
        assert await read_back(server_url) == dict.fromkeys(indexes, True)


async def test_an_unfinished_index_is_one_and_another_is_none(chunks, server_url):
    index = FieldIndex(Field(("a",)), "text")
    with indexed(chunks, index, FieldIndex(Field(("created",), is_own=True), "instant")):
        others = {"a": "metadata #> '{b}'::text[]", "b": "metadata #>> '{b}'::text[]", "c": "lower('x' || n)"}
        for letter, of in others.items():
            chunks.execute(f"CREATE INDEX docs_field_{letter * 8} ON semlex.docs_chunk (({of}))")
        unfinished = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass(%s)"
        chunks.execute(unfinished, [f"semlex.docs_{index.suffix}"])
        known = {(str(one.field), one.type, valid) for one, valid in (await read_back(server_url)).items()}
        assert known == {("a", "text", False), ("@created", "instant", True)}
        assert await read_back(server_url, Names("semlex", "other")) == {}


def test_no_value_is_too_long_and_no_name_up_to_the_limit(chunks):
    longest = Field(("".join(chr(33 + number * 7 % 90) for number in range(MAX_PATH_BYTES - 3)), "€"))
    indexes = [FieldIndex(longest, "text"), FieldIndex(Field(("a",)), "text"), FieldIndex(Field(("a",)), "number")]
    text = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(40_000))
    chunks.execute("TRUNCATE semlex.docs_chunk")
    with indexed(chunks, *indexes):
        store(chunks, [{"a": text}, {"a": int("9" * 4300)}, {longest.path[0]: {"€": text}}])
        assert passing(chunks, condition(Field(("a",)), ">=", text)) == [1]
        assert passing(chunks, condition(Field(("a",)), ">", 10**4299)) == [2]
        assert passing(chunks, condition(longest, ">", "")) == [3]


@given(field=hostile_fields, of=st.sampled_from(["number", "text"]), length=st.integers(1, 48))
def test_names_fit_and_a_name_is_read_as_it_is_written(field, of, length):
    index = FieldIndex(field, of)
    assert len(f"{'c' * length}_{index.suffix}".encode()) <= 63
    assert field_named(str(field), "name") == field


@pytest.mark.parametrize(
    ("message", "name", "of"),
    [
        ("true and false need no index of the field", "a", "boolean"),
        ("times in the metadata are text", "a", "instant"),
        *(("'number' or 'text'", "a", of) for of in ("Number", None, ["number"])),
        ("'instant', the only type of @created", "@created", "number"),
        ("a field of the metadata, @created or @updated", "@source", "text"),
        *(("is not a field here", "@nothing", "text"), ("NUL", "a\0b", "text"), ("surrogate", "a\udcff", "text")),
        *(("keys with dots between them", name, "text") for name in ("a..b", "")),
        *(("a str", 7, "text"), ("at most 1,000 bytes", "k" * 10_240, "text"), ("64 levels", "a" + ".b" * 64, "text")),
    ],
)
def test_what_no_index_serves_is_refused(message, name, of):
    with pytest.raises(ValidationError, match=message):
        checked_index(field_named(name, "name"), of)


EQUAL_ROWS, NEW_ROWS = 3_000, 200
# A tree that has grown by a level reads a block more.
MAX_MORE_BLOCKS = 3
FIELDS = [FieldIndex(Field((name,)), of) for name, of in (("kind", "text"), ("year", "number"))]
FIELDS += [FieldIndex(Field(("created",), is_own=True), "instant")]
ADD = """
    INSERT INTO {table} (document_id, chunk_id, chunk_no, child_ids, chunk_type, source_document, chapter_title,
        section_title, subsection_title, summary, context, chunk_text, content_hash, metadata, created_at, updated_at)
    SELECT gen_random_uuid(), 'id', 0, '{{}}', 'text', 'handbook/one.pdf', '', '', '{{}}', '', '', 'text', '',
        '{{"kind": "page", "year": 2026}}', 'epoch', 'epoch' FROM generate_series(1, {rows})
"""


def blocks_of_a_row(connection, names, index):
    """Blocks that a new row reads and writes in a table of `EQUAL_ROWS` equal rows, and of twice as many."""
    connection.execute("CREATE SCHEMA equal")
    table = sql.Identifier("equal", f"{names.collection}_chunk")
    connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING IDENTITY)").format(table, names.chunk))
    connection.execute(TableIndex(index.suffix, table, index.definition).create(names))
    found = []
    for _ in range(2):
        connection.execute(sql.SQL(ADD).format(table=table, rows=EQUAL_ROWS))
        add = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + ADD).format(table=table, rows=NEW_ROWS)
        plan = connection.execute(add).fetchone()[0][0]["Plan"]
        found.append((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / NEW_ROWS)
    connection.execute("DROP SCHEMA equal CASCADE")
    return found


async def test_a_row_costs_the_same_beside_any_number_of_equal_ones(database_url):
    async with filled(database_url, {"one": "one"}, collection="equal") as retriever:
        await retriever.indexes.create()
        names, indexes = retriever.info.names, other_indexes(retriever.info)
    indexes += [field.table_index(names) for field in FIELDS]
    with psycopg.connect(database_url, autocommit=True) as connection:
        for index in indexes:
            few, many = blocks_of_a_row(connection, names, index)
            assert many <= few + MAX_MORE_BLOCKS, index.suffix
        # The measure finds an index that reads all equal entries for a new one.
        hashed = TableIndex("hashed", names.chunk, sql.SQL("USING hash (source_document)"))
        few, many = blocks_of_a_row(connection, names, hashed)
        assert many > few + MAX_MORE_BLOCKS
    # No other index is of that kind: a hash index is only over keys of rows, of which each is there once.
    hashes = "SELECT c.relname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE a.amname = 'hash'"
    assert execute(database_url, hashes + " AND c.relnamespace = 'semlex'::regnamespace") == [("row_change_problem",)]
