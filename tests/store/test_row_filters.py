"""Filters on live columns mean what the evaluator says, for rows of several tables, rows that are gone, and others."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from json import dumps
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from semlex import _core
from semlex.filters.evaluate import holds
from semlex.filters.fields import Field
from semlex.filters.text import tree_of_text
from semlex.filters.tree import ORDER, condition, leaves
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.store.query.filters import parse_filters, write_filter
from semlex.store.query.rows import LiveTable, live_row, seen_row
from semlex.store.schema.names import Names
from semlex.types.followed import FollowedTable
from tests.support.filter_trees import NAMES, about, documents, fields, trees, values
from tests.support.properties import examples

pytestmark = pytest.mark.pg16
COLUMNS = ("a", "b", "k%(x)s", 'say "x"')
COLLECTION = Names("semlex", "docs")


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
    st.lists(st.sampled_from(NAMES), max_size=2),
)
mixed_trees = trees(about(row_fields) | about(fields)) | trees(about(row_fields))
rows = st.none() | st.dictionaries(st.sampled_from(COLUMNS), values, max_size=4)
# Metadata, which table the chunk is a row of (2: none), and the row; None: it is gone.
chunks = st.lists(st.tuples(documents, st.integers(0, 2), rows), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def connection(new_database):
    with psycopg.connect(new_database(), autocommit=True, options="-c search_path=pg_catalog") as opened:
        opened.execute('CREATE SCHEMA "shop %s"')
        opened.execute('CREATE TABLE "shop %s".news (id int, a jsonb, b jsonb, "k%(x)s" jsonb, "say ""x""" jsonb)')
        opened.execute('CREATE TABLE "shop %s".old (id uuid, name varchar, a jsonb)')
        opened.execute('CREATE TABLE "shop %s".chunk (n int, metadata jsonb, place jsonb, document_id uuid)')
        yield opened


def json(value):
    text = _core.to_json({"v": value})
    return text.decode()


def document_of(table, key):
    """The key of a row's document."""
    return indexed_document_id(table, f"{table}/{key}")


def store(connection, found):
    connection.execute('TRUNCATE "shop %s".news, "shop %s".old, "shop %s".chunk')
    for n, (metadata, table, row) in enumerate(found):
        part = {"uuid": f"00000000-0000-0000-0000-{n:012}"}
        keys = ([n], [part, f"n'{n}"])
        place = None if table == len(TABLES) else Jsonb({"table": TABLES[table].name, "key": keys[table]})
        key = (str(n), dumps([part["uuid"], f"n'{n}"]), "")[table]
        document = None if place is None else document_of(TABLES[table].name, key)
        connection.execute(
            "INSERT INTO \"shop %%s\".chunk VALUES (%s, %s::jsonb -> 'v', %s, %s)", [n, json(metadata), place, document]
        )
        if table == len(TABLES) or row is None:
            continue
        cells = {"id": n} if not table else {"id": part["uuid"], "name": f"n'{n}"}
        columns = [name for name in row if name in TABLES[table].live]
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {}").format(
            sql.Identifier("shop %%s", ("news", "old")[table]),
            sql.SQL(", ").join(sql.Identifier(name.replace("%", "%%")) for name in (*cells, *columns)),
            sql.SQL(", ").join([sql.SQL("%s")] * len(cells) + [sql.SQL("%s::jsonb -> 'v'")] * len(columns)),
        )
        connection.execute(insert, [*cells.values(), *(json(row[name]) for name in columns)])


def own(table, row):
    """The fields of semlex's own that the evaluator is given: nulls and columns that are not live are missing."""
    if table == len(TABLES):
        return {}
    live = TABLES[table].live
    return {"row": None if row is None else {k: v for k, v in row.items() if v is not None and k in live}}


def passing(connection, tree):
    """The chunks that pass, each looked at alone and as the rows of a table."""
    made = write_filter(parse_filters(tree, COLLECTION), COLLECTION, TABLES)
    chunk = sql.SQL('"shop %%s".chunk AS c')
    alone = sql.SQL("SELECT n, {} FROM {} ORDER BY n").format(made.expression, chunk)
    found = [n for n, passes in connection.execute(alone, made.parameters) if passes is True]
    together = sql.SQL("SELECT n FROM {} WHERE {} ORDER BY n").format(chunk, made.expression)
    assert [n for (n,) in connection.execute(together, made.parameters)] == found
    return found


@given(chunks, st.lists(mixed_trees, min_size=8, max_size=8))
@settings(max_examples=examples(25))
def test_the_sql_of_row_filters_equals_the_evaluator(connection, found, some):
    store(connection, found)
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
    store(connection, [({}, 0, public), ({"x": 1}, 0, draft), ({}, 0, None), ({}, 1, public), ({"x": 1}, 2, None)])
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
    made = write_filter(parse_filters(tree, COLLECTION), COLLECTION, TABLES[:1])
    assert made.expression.as_string(connection).count("EXISTS") == 1
    assert len(list(leaves(tree))) == 5
    unwritten = parse_filters(tree, COLLECTION)
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
    made = write_filter(parse_filters(filters, COLLECTION), COLLECTION, [table])
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
    types = {name: kind for name, (kind, _) in TYPES.items()}
    table = live_table("t", types)
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
