"""Hits of followed tables are rows, with live columns and current filters; any hits can be a relation in SQL."""

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import product
from types import SimpleNamespace

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from semlex import Client, Document, SearchResult, SearchResults
from semlex.errors import ConfigurationError, ConnectionFailedError, PrivilegeError, ReadOnlyError, ValidationError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.query.hits import BATCH_ROWS, COLUMNS, INCLUDED, Relation, fill_table, statement
from semlex.testing import HashEmbedder
from semlex.types.display import UNSAFE
from tests.support.databases import new_role
from tests.support.followed import KEYS, articles
from tests.support.http_server import in_process
from tests.support.properties import examples
from tests.support.retrievers import filled, sync_filled, sync_opened

pytestmark = pytest.mark.pg16
MODES = ("keyword", "vector", "hybrid")
OWN = ("document_id", "document_rank")  # only the relation has these columns
fruit = partial(filled, texts={"a": "yellow fruit"}, model=16, collection="words")
JOINS = {
    "int": "a.id = h.key::int",
    "uuid": "a.id = h.key::uuid",
    "text": "a.id = h.key",
    "composite": "(a.tenant_id, a.slug) = ((h.key::jsonb->>0)::int, h.key::jsonb->>1)",
}
steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "rollback", "search", "read again"]), st.integers(0, 11)),
    max_size=25,
)
ALL = ("excerpt", "content", "metadata")
HOSTILE = "' '' \\ \\' %s %(a)s $$ $1 :name :'name' E' -- /* \" {} \x1b[2J \u202e"
texts = st.one_of(
    st.lists(st.sampled_from([*HOSTILE.split(), "\n", "\t"]), max_size=5).map("".join),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e6, 1e6) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
scores = st.none() | st.floats(allow_nan=False, allow_infinity=False)
ranks = st.none() | st.integers(1, 2**31 - 1)
hits = st.lists(
    st.builds(
        SearchResult,
        *(texts, st.dictionaries(texts, values, max_size=3), texts),
        **dict.fromkeys(("source", "source_document", "excerpt"), texts),
        **dict.fromkeys(("line", "page", "vector_rank", "keyword_rank"), ranks),
        **dict.fromkeys(("vector_score", "fused_score", "boost", "rerank_score", "coverage"), scores),
        rank=st.integers(0, 2**31 - 1),
    ),
    max_size=4,
)
names = texts.filter(lambda name: name.strip() and len(name.encode()) <= 63)
switches = st.sampled_from(["on", "off"])


def follow(retriever, table, **options):
    """Follow a table; its rows are in the collection then."""
    live = ["status", "price", "tags", "extra", "published_at"]
    retriever.tables.follow(**table.options(name="articles", metadata=["author"], live=live) | options)
    retriever.tables.sync()


@contextmanager
def followed(url, key="int", rows=5, others=0, **options):
    """A collection that follows a table; with so many documents beside its rows."""
    with articles(url, key, rows=rows) as table, sync_opened(url, collection="shelf") as retriever:
        retriever.add_texts([f"apple elsewhere {n}" for n in range(others)], ids=[f"other{n}" for n in range(others)])
        follow(retriever, table, **options)
        yield retriever, table


@pytest.mark.parametrize("key", KEYS)
def test_a_hit_has_the_key_of_its_row(database_url, key):
    with followed(database_url, key, rows=4, others=1) as (retriever, table):
        found = retriever.search("apple", top_k=10)
        assert {hit.key for hit in found if hit.table == "articles"} == {table.key_of(number) for number in range(4)}
        [other] = [hit for hit in found if hit.table is None]
        assert (other.id, other.key, other.columns) == ("other0", None, None)
        row = next(hit for hit in found if hit.key == table.key_of(1))
        assert (row.source, row.root, row.location) == ("articles", "", row.source_document)
        assert row.source_document.startswith("articles/")
        [chunk] = retriever.get([row.id])
        assert (chunk.table, chunk.key) == (row.table, row.key)
        assert row.to_dict()["key"] == {"uuid": str, "composite": list}.get(key, lambda value: value)(row.key)
        assert retriever.why(row.source_document, "apple").found
        assert "apple" in retriever.documents.get(row.source_document).text
        with psycopg.connect(database_url) as mine:  # a JOIN by the key as text
            retriever.tables.hits_into(mine, found, "hits")
            statement = f"SELECT count(*) FROM hits AS h JOIN shop.articles AS a ON {JOINS[key]}"
            assert mine.execute(statement).fetchone() == (4,)


@pytest.mark.parametrize("mode", MODES)
def test_columns_come_with_the_hits_and_rows_that_are_gone_do_not(database_url, mode):
    """`top_k` is reached past rows that are gone, even if every candidate's is."""
    with followed(database_url, rows=120) as (retriever, table):
        moment = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
        table.update(119, title="new", price="1.50", tags=["a"], published_at=moment)
        connection = table.connection
        connection.execute("ALTER TABLE shop.articles ADD day date DEFAULT 'infinity'")
        connection.execute("CREATE TYPE shop.mood AS ENUM ('glad'); ALTER TABLE shop.articles ADD mood shop.mood")
        connection.execute("UPDATE shop.articles SET mood = 'glad' WHERE id = 119")
        wanted = ["title", "price", "tags", "published_at", "mood", "id", "day"]
        for _ in range(2):
            found = retriever.search("apple", top_k=5, mode=mode, columns=wanted)
            assert len(found) == 5
            assert all(hit.columns is not None and hit.columns["id"] == hit.key for hit in found)
            connection.execute("DELETE FROM shop.articles WHERE id < 115")
        assert {hit.key for hit in found} == {115, 116, 117, 118, 119}
        changed = next(hit for hit in found if hit.key == 119)
        values = ["new", Decimal("1.50"), ["a"], moment, "glad", 119, dt.date(9999, 12, 31)]
        assert changed.columns == dict(zip(wanted, values, strict=True))
        assert changed.to_dict()["columns"]["price"] == 1.5
        connection.execute("DELETE FROM shop.articles")
        assert retriever.search("apple", mode=mode, columns=["title"]) == []
        assert len(retriever.search("apple", top_k=7, mode=mode)) == 7


def test_pages_groups_and_boosts_know_live_columns(database_url):
    with followed(database_url, rows=12, others=3) as (retriever, table):
        for number in range(0, 12, 2):
            table.update(number, status="draft", price=number)
        public, even = "@row.status = 'public'", set(range(0, 12, 2))
        found = [retriever.search("apple", top_k=2, filters=public, max_results=20, columns=["status"])]
        while found[-1].next_cursor is not None:
            found.append(retriever.search_page(found[-1].next_cursor, public))
        hits = [hit for page in found for hit in page]
        assert {hit.key: hit.columns for hit in hits} == {key: {"status": "public"} for key in range(1, 12, 2)}
        assert len(hits) == 6
        many = retriever.search_many(["apple", "title"], 20, "@row.price >= 4")
        assert [{hit.key for hit in found} for found in many] == [{4, 6, 8, 10}] * 2
        assert retriever.count("@row.status = 'draft'") == 6
        assert {chunk.key for chunk in retriever.list_chunks("@row.status in ['draft']")} == even
        assert {hit.table for hit in retriever.search("apple", 20, "@row.status != 'draft'")} == {"articles", None}
        assert len(retriever.search("apple", 3, public, group_by="document", columns=["status"]).documents) == 3
        assert {hit.key for hit in retriever.search("apple", 6, boost={"@row.status = 'draft'": 5})} == even
        facets = retriever.fields.facets(["author"], public)
        assert [(one.value, one.count) for one in facets["author"].values] == [("ann", 6)]
        assert retriever.why("articles/2", "apple", filters=public).code == "filtered"


def test_a_live_column_compared_with_another_kind_is_warned_of(database_url, caplog):
    with followed(database_url) as (retriever, _):
        for filters, column, holds in (
            ("@row.price > '3'", "price", "numbers"),
            ("@row.status = 1", "status", "texts"),
            ("@row.status in [1, 2] or @row.price = 99", "status", "texts"),
        ):
            (warning,) = retriever.search("apple", filters=filters).warnings
            assert f"the live column '@row.{column}' contains {holds}, and the filter compares it" in warning
        for fitting in ("@row.price = 99", "@row.status = 'none'", "@row.extra = 1", "@row.extra.color = 1"):
            assert not retriever.search("apple", filters=fitting).warnings
        retriever.count("@row.price > '3'")
        assert "the live column '@row.price' contains numbers" in caplog.text


def test_what_cannot_be_asked_of_rows(database_url):
    with sync_opened(database_url, collection="bare") as retriever:
        retriever.add_texts(["apple"])
        with pytest.raises(
            ValidationError, match=r"the collection follows no table .* to follow one: semlex follow TABLE --live"
        ):
            retriever.search("apple", filters="@row.status = 'public'")
        with pytest.raises(ValidationError, match="the collection follows none in its own database"):
            retriever.search("apple", columns=["title"])
    with followed(database_url, live=["status", "price"]) as (retriever, table):
        with pytest.raises(ValidationError, match=r"live columns: price, status; did you mean status\?; .*--change"):
            retriever.search("apple", filters={"@row.statu": "public"})
        [warning] = retriever.search("apple", filters="status = 'x'").warnings
        assert "did you mean @row.status, the live column" in warning
        with pytest.raises(ValidationError, match=r"did you mean title\?"):
            retriever.search("apple", columns=["titel"])
        for wrong in ("@row = 1", "@rows.x = 1", "@row. = 1"):
            with pytest.raises(ValidationError):
                retriever.count(wrong)
        with pytest.raises(ConfigurationError, match="delete the rows in that table"):
            retriever.delete(filters="@row.status = 'public'")
        with pytest.raises(ValidationError, match="a live column"):
            retriever.fields.facets(["@row.status"])
        with pytest.raises(ValidationError, match="@created or @updated"):
            retriever.fields.add("@row.status", "text")
        # A table of another database has no live columns here.
        retriever.tables.follow(**table.options(name="far", source_database=database_url))
        retriever.tables.sync("far")
        with pytest.raises(ValidationError, match=r"live columns: price, status; .* --live status,price,author$"):
            retriever.count("@row.author = 'ann'")
        assert retriever.count("@row.status != 'draft'") == 10
        table.connection.execute("ALTER TABLE shop.articles DROP price, ALTER id TYPE int")
        with pytest.raises(ConfigurationError, match=r"live column 'price' of shop\.articles does not exist.*--live"):
            retriever.count("@row.price > 1")
        assert retriever.count("@row.status = 'public'") == 5
        table.connection.execute("ALTER TABLE shop.articles RENAME id TO number")
        with pytest.raises(ConfigurationError, match=r"the key column 'id' of shop\.articles .* --change --key"):
            retriever.search("apple", filters="@row.status = 'public'")
        table.connection.execute("DROP TABLE shop.articles")
        with pytest.raises(ConfigurationError, match=r"shop\.articles, followed as 'articles', does not exist"):
            retriever.search("apple", filters="@row.status = 'public'")


def test_tables_of_several_names(database_url):
    with followed(database_url, rows=3) as (shelf, table), articles(database_url, "text", rows=3, schema="b") as old:
        follow(shelf, old, name="old", live=["status"])
        old.update(2, status="draft")
        table.update(1, price=3)
        [draft] = shelf.search("apple", 10, "@row.status = 'draft'", columns=["price", "status"])
        assert (draft.table, draft.key, draft.columns) == ("old", old.key_of(2), {"price": None, "status": "draft"})
        [priced] = shelf.search("apple", 10, "exists @row.price")
        assert (priced.table, priced.key) == ("articles", 1)
        assert shelf.count("not exists @row.price") == 5
        # Without the column, no row of this table would be known to be a draft.
        old.connection.execute("ALTER TABLE b.articles DROP status")
        with pytest.raises(ConfigurationError, match=r"live column 'status' of b\.articles does not exist any more"):
            shelf.search("apple", 10, "@row.status != 'draft'")


def test_the_policy_of_a_table_holds_for_a_role(database_url):
    asked = ({"filters": "@row.status != 'draft'"}, {"columns": ["title"]})
    with (
        followed(database_url, rows=40) as (_, table),
        new_role(database_url, "USAGE ON SCHEMA semlex, shop", "SELECT ON ALL TABLES IN SCHEMA semlex") as role,
        sync_opened(database_url, collection="shelf", role=role) as reader,
    ):
        for options in asked:
            with pytest.raises(PrivilegeError, match="articles"):
                reader.search("apple", 5, **options)
        table.connection.execute(f"GRANT SELECT ON shop.articles TO {role}")
        table.connection.execute("ALTER TABLE shop.articles ENABLE ROW LEVEL SECURITY")
        table.connection.execute("CREATE POLICY few ON shop.articles USING (id >= 38)")
        for mode in MODES:
            for options in asked:
                assert {hit.key for hit in reader.search("apple", 5, mode=mode, **options)} == {38, 39}
        assert len(reader.search("apple", 5)) == 5  # a search that does not look at the table
        assert reader.count("@row.status != 'draft'") == 2
        assert reader.count("not (@row.status = 'draft' or author = 'bob')") == 2


def test_each_caller_finds_the_rows_that_a_policy_shows_to_it(database_url):
    """What passes for one caller of a collection is not what passes for another."""
    rights = ("USAGE ON SCHEMA semlex", "SELECT ON ALL TABLES IN SCHEMA semlex")
    with followed(database_url, rows=0) as (retriever, table), new_role(database_url, *rights) as role:
        run = table.connection.execute
        # The best hits are nobody's, so that the words are looked for among the rows that the caller may see.
        run(
            "ALTER TABLE shop.articles ADD tenant int; "
            "INSERT INTO shop.articles (id, title, body, author, tenant) SELECT n, 'title ' || n, "
            "'apple ' || repeat('padding ', CASE WHEN n < 400 THEN 0 ELSE 9 + n % 7 END), 'ann', "
            "CASE WHEN n < 400 THEN 3 ELSE 1 + n % 2 END FROM generate_series(0, 799) AS n"
        )
        retriever.tables.sync()
        run(f"GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT ON shop.articles TO {role}")
        run("ALTER TABLE shop.articles ENABLE ROW LEVEL SECURITY")
        run("CREATE POLICY own ON shop.articles USING (tenant = current_setting('shop.tenant')::int)")
        for mode, tenant in product(("keyword", "hybrid"), (1, 2, 1, 2)):
            with psycopg.connect(database_url) as caller:
                caller.execute(f"SET LOCAL ROLE {role}")
                caller.execute("SELECT set_config('shop.tenant', %s, true)", [str(tenant)])
                found = retriever.using(caller).search("apple", 20, mode=mode, columns=["title"])
                assert [1 + int(str(hit.key)) % 2 for hit in found] == [tenant] * 20


async def test_routes_and_the_command_line_show_rows(database_url, shell):
    with followed(database_url, "uuid", rows=3, others=1) as (_, table):
        table.update(2, price="2.5")
        key, search = str(table.key_of(2)), ("search", "apple", "-c", "shelf", "--filter", "@row.price > 2")
        assert shell(*search).stdout.startswith(f"1. articles/{key}\n")
        assert "\n   price: 2.5 · title: title 2\n" in shell(*search, "--columns", "price,title").stdout
        [hit, _] = shell.objects(*search, "--columns", "price,title", "--columns", "id")
        found = {name: hit[name] for name in ("key", "table", "columns")}
        assert found == {"key": key, "table": "articles", "columns": {"price": 2.5, "title": "title 2", "id": key}}
        async with Client(database_url, HashEmbedder(8), use_reranking=False) as client, in_process(client) as server:
            body = {"collection": "shelf", "query": "apple", "filters": "@row.price > 2", "columns": ["price", "id"]}
            answer = (await server.post("/v1/search", body)).json()
            assert [(one["key"], one["columns"]) for one in answer["hits"]] == [(key, {"price": 2.5, "id": key})]
            refused = await server.post("/v1/search", body | {"columns": ["updated_at"]})
            assert refused.status_code == 422
            assert "must be one of the columns that followed tables name: author, body, " in refused.json()["detail"]


@pytest.fixture(scope="module")
def shop(new_database):
    url = new_database()
    with followed(url, rows=12, others=3) as (retriever, table):
        yield url, retriever, table


@given(steps=steps, mode=st.sampled_from(MODES))
@settings(max_examples=examples(30))
def test_a_live_filter_is_right_in_the_snapshot_of_the_search(shop, steps, mode):
    """Two writers, of even and of odd rows, and a reader whose transaction reads one snapshot again and again."""
    url, retriever, table = shop
    table.connection.execute("UPDATE shop.articles SET status = 'public'")
    with psycopg.connect(url) as even, psycopg.connect(url) as odd, psycopg.connect(url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for step, number in steps:
            writer = (even, odd)[number % 2]
            if step == "write":
                changed = "CASE status WHEN 'public' THEN 'draft' ELSE 'public' END"
                writer.execute(f"UPDATE shop.articles SET status = {changed} WHERE id = {number}")
            elif step in ("commit", "rollback"):
                getattr(writer, step)()
            elif step == "read again":
                reader.rollback()
            else:
                seen = dict(reader.execute("SELECT id, status FROM shop.articles").fetchall())
                wanted = ("public", "draft")[number % 2]
                found = retriever.using(reader).search("apple", 12, f"@row.status = '{wanted}'", mode=mode)
                assert {hit.key for hit in found} == {key for key, status in seen.items() if status == wanted}


@pytest.mark.parametrize("mode", MODES)
def test_no_hit_fails_a_live_filter_while_its_table_is_written(shop, mode):
    """Columns come from the search's own snapshot, so that they show what the filter saw."""
    url, retriever, table = shop
    change = "UPDATE shop.articles SET status = CASE (id + %s) %% 3 WHEN 0 THEN 'public' ELSE 'draft' END"
    table.connection.execute(change, [0])

    def write():
        with psycopg.connect(url, autocommit=True) as connection:
            for number in range(150):
                connection.execute(change, [number])

    with ThreadPoolExecutor(1) as pool:
        writing, searches = pool.submit(write), 0
        while not writing.done() or searches < 2:
            found = retriever.search("apple", 12, "@row.status = 'public'", mode=mode, columns=["id", "status"])
            assert [hit.columns["status"] for hit in found if hit.columns] == ["public"] * 4
            assert len({hit.key for hit in found}) == 4
            searches += 1
    writing.result()


@pytest.fixture(scope="module")
def connection(server_url):
    with psycopg.connect(server_url) as opened:
        yield opened


def expected(listed):
    return [{name: getattr(hit, name) for name in (*COLUMNS, *ALL) if name not in OWN} for hit in listed]


def told(rows):
    return [{name: value for name, value in row.items() if name not in OWN} for row in rows]


def fill(connection, relation, table):
    return asyncio.run(fill_table(connection, relation, table))


@given(listed=hits, quoted_by=switches, run_by=switches, table=names)
def test_the_statement_and_the_table_have_the_hits(connection, listed, quoted_by, run_by, table):
    connection.rollback()
    relation = Relation(SearchResults(listed), ALL)
    connection.execute(f"SET standard_conforming_strings = {quoted_by}")
    text = statement(connection, relation)
    assert UNSAFE.search(text) is None
    assert len(text.split("\n")) == (len(listed) + 2 if listed else 1)
    connection.execute(f"SET standard_conforming_strings = {run_by}")
    connection.execute("SET escape_string_warning = off")
    cursor = connection.cursor(row_factory=dict_row)
    assert told(cursor.execute(text.encode()).fetchall()) == expected(listed)
    kinds = [connection.adapters.types[column.type_code].name for column in cursor.description or ()]
    assert kinds == [*COLUMNS.values(), *INCLUDED.values()]
    inside = cursor.execute(b"WITH hits AS (%b) SELECT count(*) AS n FROM hits" % text.encode()).fetchone()
    assert inside == {"n": len(listed)}
    assert fill(connection, relation, table) == len(listed)
    query = psycopg.sql.SQL("SELECT * FROM {}").format(psycopg.sql.Identifier(table))
    assert told(cursor.execute(query).fetchall()) == expected(listed)
    with pytest.raises(ConfigurationError, match="already"):
        fill(connection, Relation(listed, ()), table)
    assert connection.info.transaction_status == TransactionStatus.INTRANS


def test_many_hits_of_any_session(database_url):
    """Settings, row factories and placeholders of the user's connection make no difference, and stay."""
    many = [SearchResult(f"ü {n}", {"n": n}, f"é{n}", rank=n) for n in range(2 * BATCH_ROWS + 1)]
    with psycopg.connect(database_url, client_encoding="LATIN1", row_factory=dict_row) as connection:
        connection.cursor_factory = psycopg.RawCursor
        connection.execute("SET LOCAL search_path = pg_temp; SET LOCAL standard_conforming_strings = off")
        assert fill(connection, Relation(many, ALL), "hits") == len(many)
        rows = connection.execute("SELECT id, content, metadata FROM hits ORDER BY rank").fetchall()
        assert rows == [{"id": one.id, "content": one.content, "metadata": one.metadata} for one in many]
        assert [*connection.execute("SHOW standard_conforming_strings")] == [{"standard_conforming_strings": "off"}]


def test_what_is_no_hit_is_refused(connection):
    connection.rollback()
    for wrong in ("hits", [1], None, [SearchResult("a"), Document("b")]):
        with pytest.raises(ConfigurationError, match="results"):
            Relation(wrong, ())
    with pytest.raises(ConfigurationError, match="excerpt, content, metadata"):
        Relation([], ["vectors"])
    for name, hit in (
        ("id", SearchResult("text", id="a\0b")),
        ("content", SearchResult("\ud800")),
        ("metadata", SearchResult("text", {"when": {1, 2}})),
    ):
        with pytest.raises(ValidationError, match=f"row 1: {name}"):
            Relation([SearchResult("text"), hit], ALL)
    for table in ("", " ", "x" * 64, "a\0b", None, 3):
        with pytest.raises(ConfigurationError, match="table"):
            fill(connection, Relation([], ()), table)
    assert connection.info.transaction_status == TransactionStatus.IDLE


async def test_hits_are_joined_with_tables_of_the_user(database_url):
    texts, connect = {name: f"yellow fruit {name}" for name in "abc"}, psycopg.AsyncConnection.connect
    async with fruit(database_url, texts=texts) as retriever, await connect(database_url) as mine:
        found = await retriever.search("yellow fruit")
        priced = [hit for hit in found if hit.id != "b"]
        await mine.execute("CREATE TABLE price (id text, euro int); INSERT INTO price VALUES ('a', 1), ('c', 3)")
        await mine.commit()
        assert await retriever.tables.hits_into(mine, found, "hits", include=["content"]) == 3
        cursor = await mine.execute(
            "SELECT id, fused_score, content, euro, chunk_text FROM hits JOIN price USING (id) "
            "JOIN semlex.words_chunk AS c ON (c.document_id, c.chunk_id) = (hits.document_id, hits.id) ORDER BY rank"
        )
        assert await cursor.fetchall() == [
            (hit.id, hit.fused_score, hit.content, {"a": 1, "c": 3}[hit.id], hit.content) for hit in priced
        ]
        await mine.commit()
        assert await (await mine.execute("SELECT to_regclass('hits')")).fetchone() == (None,)
        text = await retriever.tables.hits_as_sql(found)
        cursor = await mine.execute(f"SELECT id FROM ({text}) AS found JOIN price USING (id) ORDER BY rank")
        assert await cursor.fetchall() == [(hit.id,) for hit in priced]


async def test_a_transaction_that_cannot_hold_the_table_is_refused(database_url):
    async with fruit(database_url) as retriever:
        found = await retriever.search("yellow fruit")
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as mine:
            with pytest.raises(ConfigurationError, match="in autocommit and outside a transaction"):
                await retriever.tables.hits_into(mine, found, "hits")
            async with mine.transaction():
                await mine.execute("SET TRANSACTION READ ONLY")
                with pytest.raises(ReadOnlyError, match="read-only"):
                    await retriever.tables.hits_into(mine, found, "hits")
                assert mine.info.transaction_status == TransactionStatus.INTRANS
            async with mine.transaction(force_rollback=True):
                with pytest.raises(psycopg.errors.UndefinedTable):
                    await mine.execute("SELECT FROM nowhere")
                with pytest.raises(ConfigurationError, match="roll it back"):
                    await retriever.tables.hits_into(mine, found, "hits")
            async with mine.transaction():
                assert await retriever.tables.hits_into(mine, found, "hits") == 1
        with pytest.raises(ConnectionFailedError, match="closed"):
            await retriever.tables.hits_into(mine, found, "hits")


def test_without_an_event_loop(database_url):
    with sync_filled(database_url, {"a": "yellow fruit"}, 16) as retriever, psycopg.connect(database_url) as mine:
        found, into, as_sql = retriever.search("yellow fruit"), retriever.tables.hits_into, retriever.tables.hits_as_sql
        as_of_django = SimpleNamespace(ensure_connection=lambda: None, connection=mine)
        assert (into(mine, found, "hits"), into(as_of_django, found, "more")) == (1, 1)
        assert mine.execute("SELECT id FROM hits JOIN more USING (id)").fetchall() == [("a",)]
        mine.rollback()
        assert mine.execute(as_sql(found).encode()).rowcount == 1
        assert mine.execute(as_sql([]).encode()).fetchall() == []
        mine.rollback()
        mine.autocommit = True
        for wrong, message in ((mine, "in autocommit and outside"), ("postgresql://", "one of psycopg 3, of Django")):
            with pytest.raises(ConfigurationError, match=message):
                into(wrong, found, "hits")


async def test_behind_a_transaction_pooler(database_url):
    """Two clients in turn on two sessions: each has its table as long as its transaction, and leaves nothing."""
    async with TransactionPooler(database_url, size=2) as pooler, fruit(pooler.address) as retriever:
        found = await retriever.search("yellow fruit")

        async def client(number):
            async with await psycopg.AsyncConnection.connect(pooler.address, autocommit=True) as mine:
                for _ in range(8):  # the driver prepares by itself what it sends six times
                    async with mine.transaction():
                        assert await retriever.tables.hits_into(mine, [replace(found[0], rank=number)], "hits") == 1
                        cursor = await mine.execute("SELECT rank FROM hits", prepare=False)
                        assert await cursor.fetchone() == (number,)

        await asyncio.gather(client(1), client(2))


def test_the_command_line_prints_a_statement(shell):
    shell("index", "docs", "--model", "none")
    names = {*COLUMNS, "excerpt", "metadata"} - {*OWN}
    with psycopg.connect(shell.environment["DATABASE_URL"], row_factory=dict_row) as connection:

        def rows_of(done):
            return connection.execute(done.stdout.encode()).fetchall()

        rows = rows_of(shell("search", "keys", "--sql", "--include", "excerpt", "--include", "metadata"))
        hits = [one for one in shell.objects("search", "keys") if "rank" in one]
        assert told(rows) == [{name: hit[name] for name in names} for hit in hits]
        assert rows[0].keys() - names == {*OWN}
        grouped = rows_of(shell("search", "keys banana", "--sql", "--group", "1"))
        assert [row["document_rank"] for row in grouped] == [1, 2]
        page = shell("search", "keys banana", "--sql", "--max-results", "10", "-k", "1")
        assert len(rows_of(page)) == 1
        cursor = page.stderr.split("--after ")[1].strip()
        assert [row["rank"] for row in rows_of(shell("search", "--after", cursor, "--sql"))] == [2]
        assert rows_of(shell("search", "zebra", "--sql")) == []
    for wrong in ("keys --sql --json", "keys --sql --explain", "--queries docs/fruit.txt --sql"):
        assert "--sql" in shell("search", *wrong.split(), code=2).stderr
    assert "--sql" in shell("search", "keys", "--include", "excerpt", code=2).stderr
    assert "include" in shell("search", "keys", "--sql", "--include", "vectors", code=2).stderr
