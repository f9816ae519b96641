"""Definitions of followed tables, and the SQL of their rows' keys, texts and hashes."""

import json
from dataclasses import fields, replace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from semlex.ingest.followed.rows import key_parts
from semlex.store.followed.connection import fix_formatting, source_address
from semlex.store.followed.declaration import changed_table, declared_table
from semlex.store.followed.definitions import definition_from_json, definition_to_json
from semlex.store.followed.source import document_id, find_source
from semlex.store.postgres.settings import SETTINGS, set_local
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.types.documents import StoredPlace
from semlex.types.followed import FollowedTable
from tests.support.followed import KEYS, RELATIONS, articles
from tests.support.properties import OWN_ROWS


@pytest.fixture
def bare_table(database_url):
    with articles(database_url) as table:
        yield table


def definition(of):
    made = {"name": "news %s", "text": ("title", "body"), "metadata": ("author", "tags", "extra", "published_at")}
    return FollowedTable(schema=of.schema, table=of.name, key=of.key_columns, key_kinds=of.key_kinds, **made)


async def found(connection, wanted):
    await set_local(connection, **SETTINGS)
    await fix_formatting(connection)
    return await find_source(connection, wanted)


async def read(url, wanted, column, condition=None, **values):
    """A column of the rows, in the order of the key."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        source = await found(connection, wanted)
        condition = sql.SQL("true") if condition is None else condition(source)
        statement = sql.SQL("SELECT {} FROM {} WHERE %(true)s AND {} ORDER BY {}")
        order = sql.SQL(", ").join(source.key_columns)
        statement = statement.format(getattr(source, column), source.from_, condition, order)
        return [value async for (value,) in await connection.execute(statement, {"true": True, **values})]


@pytest.mark.parametrize(("key", "relation"), [*zip(KEYS, RELATIONS, strict=True)])
async def test_keys_follow_from_their_texts(database_url, key, relation):
    with articles(database_url, key, relation, rows=5) as table:
        wanted = definition(table)
        texts = await read(database_url, wanted, "key_text")
    assert len(texts) == 5
    expected = [table.key_of(number) for number in range(5)]
    for text in texts:
        found = StoredPlace(table=wanted.name, key=key_parts(wanted, text)).row_key
        assert found in expected
        assert text == (json.dumps(found) if isinstance(found, tuple) else str(found))


@pytest.mark.parametrize("key", KEYS)
async def test_rows_are_found_by_their_keys_and_in_pages(database_url, key):
    with articles(database_url, key, rows=7) as table:
        wanted = definition(table)
        names = await read(database_url, wanted, "key_text")
        keys = sql.Placeholder("keys")
        found = await read(database_url, wanted, "key_text", lambda s: s.with_keys(keys), keys=names[1::2])
        assert found == names[1::2]
        third = json.loads(names[3]) if key == "composite" else [names[3]]
        last = {f"part_{number}": str(part) for number, part in enumerate(third)}
        parts = [*map(sql.Placeholder, last)]
        behind = await read(database_url, wanted, "key_text", lambda s: s.compared(sql.SQL(">"), parts), **last)
        up_to = await read(database_url, wanted, "key_text", lambda s: s.compared(sql.SQL("<="), parts), **last)
        assert (up_to, behind) == (names[:4], names[4:])


async def test_metadata_are_json_values_without_nulls(database_url, bare_table):
    bare_table.insert(1, author=None, tags=["a", "b"], extra=Jsonb({"deep": None}))
    bare_table.insert(2, extra=Jsonb(None), published_at="2026-01-01 02:00:00.5+02")
    assert await read(database_url, definition(bare_table), "metadata") == [
        {"tags": ["a", "b"], "extra": {"deep": None}},
        {"author": "ann", "published_at": "2026-01-01T00:00:00.500000+00:00"},
    ]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
cells = st.none() | texts


@OWN_ROWS
@given(rows=st.lists(st.tuples(cells, cells), max_size=8))
async def test_equal_hashes_are_of_equal_rows(bare_table, rows):
    bare_table.connection.execute("TRUNCATE shop.articles")
    for number, (title, body) in enumerate(rows):
        bare_table.insert(number, body=body, title=title)
    wanted = definition(bare_table)
    async with await psycopg.AsyncConnection.connect(bare_table.connection.info.dsn) as connection:
        source = await found(connection, wanted)
        hashes = sql.SQL(", ").join([source.text_hash(), source.text_hash("another"), source.metadata_hash])
        statement = sql.SQL("SELECT {} FROM {} WHERE %s ORDER BY t.id").format(hashes, source.from_)
        every = await (await connection.execute(statement, [True])).fetchall()
    own = [text for text, _, _ in every]
    assert all(len(text) == 16 for row in every for text in row)
    assert [[one == other for other in own] for one in own] == [[one == other for other in rows] for one in rows]
    assert not {text for text, _, _ in every} & {text for _, text, _ in every}
    assert len({metadata for _, _, metadata in every}) <= 1


@OWN_ROWS
@given(key=texts)
async def test_documents_of_any_text_have_the_keys_of_files(bare_table, key):
    statement = sql.SQL("SELECT {}").format(document_id("näws %", sql.SQL("%(key)s::text")))
    [(found,)] = bare_table.connection.execute(statement, {"key": key}).fetchall()
    assert found == indexed_document_id("näws %", f"näws %/{key}")


async def test_definitions_are_read_as_they_were_written():
    table = FollowedTable(
        name="n", schema="s", table="t", key=("a", "b"), key_kinds=("int", "text"), text=("x", "upper(y)"), heading="x",
        formats={"x": "markdown"}, metadata=("m",), live=("l",), changes="column", updated_at="u", overlap=1.5,
        keys_every=0.0, source_database="env:SHOP",
    )  # fmt: skip
    assert all(getattr(table, field.name) != field.default for field in fields(table))
    stored = json.loads(json.dumps(definition_to_json(table, {"a": "bigint"})))
    assert definition_from_json(stored | {"of_a_later_version": 1}) == (table, {"a": "bigint"})


def test_a_server_that_a_definition_names_gets_no_password_in_clear_text(monkeypatch):
    table = FollowedTable(name="n", schema="s", table="t", key=("a",), key_kinds=("int",), text=("x",))
    assert source_address(table) is None
    address = source_address(replace(table, source_database="host=db.example dbname=shop"))
    assert conninfo_to_dict(address or "") == {"host": "db.example", "dbname": "shop", "require_auth": "!password,!md5"}
    monkeypatch.setenv("SHOP", "postgresql://ann:secret@db.example/shop")
    assert source_address(replace(table, source_database="env:SHOP")) == "postgresql://ann:secret@db.example/shop"


NAMES = st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=3, unique=True).map(tuple)
OPTIONS = {
    "key": NAMES,
    "text": NAMES | st.just("upper(a)"),
    "metadata": NAMES | st.just(()) | st.none(),
    "live": NAMES | st.just(()),
    "heading": st.none() | st.just("a"),
    "schema": st.none() | st.just("shop"),
}


@given(st.fixed_dictionaries(OPTIONS), st.fixed_dictionaries({}, optional=OPTIONS), st.booleans())
def test_what_a_change_does_not_name_stays(before, options, by_column):
    stored = declared_table("t", "n", {**before, **({"updated_at": "u"} if by_column else {})})
    changed = changed_table(stored, options)
    for field in fields(FollowedTable):
        expected = options.get(field.name, getattr(stored, field.name))
        if expected is None and field.name in options:
            expected = {"schema": "public", "heading": None}.get(field.name, ())
        assert getattr(changed, field.name) == (("upper(a)",) if expected == "upper(a)" else expected)
    assert changed_table(changed, options) == changed
