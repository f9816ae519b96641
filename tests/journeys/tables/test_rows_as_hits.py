"""Hits of followed tables are rows: their keys, live columns beside them, and filters on the table of this moment."""

from __future__ import annotations

import datetime as dt
import threading
from contextlib import contextmanager
from decimal import Decimal
from itertools import product
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Client, SyncClient
from semlex.errors import ConfigurationError, PrivilegeError, ValidationError
from semlex.testing import HashEmbedder
from tests.support.databases import new_role
from tests.support.followed import KEYS, articles
from tests.support.http_server import in_process
from tests.support.properties import examples
from tests.support.retrievers import sync_opened

pytestmark = pytest.mark.pg16
MODES = ("keyword", "vector", "hybrid")


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


JOINS = {
    "int": "a.id = h.key::int",
    "uuid": "a.id = h.key::uuid",
    "text": "a.id = h.key",
    "composite": "(a.tenant_id, a.slug) = ((h.key::jsonb->>0)::int, h.key::jsonb->>1)",
}


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
        parts = row.key if isinstance(row.key, tuple) else (row.key,)
        plain = [str(part) if isinstance(part, UUID) else part for part in parts]
        assert row.to_dict()["key"] == (plain if len(parts) > 1 else plain[0])
        assert retriever.why(row.source_document, "apple").found
        assert "apple" in retriever.documents.get(row.source_document).text
        with psycopg.connect(database_url) as mine:  # a JOIN by the key as text
            retriever.tables.hits_into(mine, found, "hits")
            statement = f"SELECT count(*) FROM hits AS h JOIN shop.articles AS a ON {JOINS[key]}"  # noqa: S608
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
        page = retriever.search("apple", top_k=2, filters=public, max_results=20, columns=["status"])
        keys = []
        while True:
            assert all(hit.columns == {"status": "public"} for hit in page)
            keys += [hit.key for hit in page]
            if page.next_cursor is None:
                break
            page = retriever.search_page(page.next_cursor, public)
        assert sorted(keys) == [1, 3, 5, 7, 9, 11]
        many = retriever.search_many(["apple", "title"], 20, "@row.price >= 4")
        assert [{hit.key for hit in found} for found in many] == [{4, 6, 8, 10}] * 2
        assert retriever.count("@row.status = 'draft'") == 6
        assert {chunk.key for chunk in retriever.list_chunks("@row.status in ['draft']")} == even
        assert {hit.table for hit in retriever.search("apple", 20, "@row.status != 'draft'")} == {"articles", None}
        grouped = retriever.search("apple", 3, public, group_by="document", columns=["status"])
        assert len(grouped.documents) == 3
        boosted = retriever.search("apple", 6, boost={"@row.status = 'draft'": 5})
        assert {hit.key for hit in boosted} == even
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


def test_what_cannot_be_asked_of_rows(database_url, new_database):
    with sync_opened(database_url, collection="bare") as retriever:
        retriever.add_texts(["apple"])
        with pytest.raises(ValidationError, match=r"the collection follows no table .* semlex follow TABLE --live"):
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
        for name in ("@row", "@rows.x", "@row."):
            with pytest.raises(ValidationError):
                retriever.count(f"{name} = 1")
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
    with (
        followed(database_url, rows=3) as (retriever, table),
        articles(database_url, "text", rows=3, schema="b") as old,
    ):
        follow(retriever, old, name="old", live=["status"])
        old.update(2, status="draft")
        table.update(1, price=3)
        [draft] = retriever.search("apple", 10, "@row.status = 'draft'", columns=["price", "status"])
        assert (draft.table, draft.key) == ("old", old.key_of(2))
        assert draft.columns == {"price": None, "status": "draft"}
        priced = retriever.search("apple", 10, "exists @row.price")
        assert [(hit.table, hit.key) for hit in priced] == [("articles", 1)]
        assert retriever.count("not exists @row.price") == 5
        # Without the column, no row of this table would be known to be a draft.
        old.connection.execute("ALTER TABLE b.articles DROP status")
        with pytest.raises(ConfigurationError, match=r"live column 'status' of b\.articles does not exist any more"):
            retriever.search("apple", 10, "@row.status != 'draft'")


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
                found = reader.search("apple", 5, mode=mode, **options)
                assert {hit.key for hit in found} == {38, 39}
        assert len(reader.search("apple", 5)) == 5  # a search that does not look at the table
        assert reader.count("@row.status != 'draft'") == 2
        assert reader.count("not (@row.status = 'draft' or author = 'bob')") == 2


def test_each_caller_finds_the_rows_that_a_policy_shows_to_it(database_url):
    """What passes for one caller of a collection is not what passes for another."""
    with (
        followed(database_url, rows=0) as (retriever, table),
        new_role(database_url, "USAGE ON SCHEMA semlex", "SELECT ON ALL TABLES IN SCHEMA semlex") as role,
    ):
        run = table.connection.execute
        # The best hits are nobody's, so that the words are looked for among the rows that the caller may see.
        run("ALTER TABLE shop.articles ADD tenant int")
        run(
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
                assert len(found) == 20
                assert {1 + int(str(hit.key)) % 2 for hit in found} == {tenant}


async def test_routes_and_the_command_line_show_rows(database_url, shell):
    with followed(database_url, "uuid", rows=3, others=1) as (_, table):
        table.update(2, price="2.5")
        key, search = str(table.key_of(2)), ("search", "apple", "-c", "shelf", "--filter", "@row.price > 2")
        assert shell(*search).stdout.startswith(f"1. articles/{key}\n")
        assert "\n   price: 2.5 · title: title 2\n" in shell(*search, "--columns", "price,title").stdout
        [hit, _] = shell.objects(*search, "--json", "--columns", "price,title", "--columns", "id")
        assert (hit["key"], hit["table"]) == (key, "articles")
        assert hit["columns"] == {"price": 2.5, "title": "title 2", "id": key}
        async with Client(database_url, HashEmbedder(8), use_reranking=False) as client, in_process(client) as server:
            body = {"collection": "shelf", "query": "apple", "filters": "@row.price > 2", "columns": ["price", "id"]}
            answer = (await server.post("/v1/search", body)).json()
            assert [(one["key"], one["columns"]) for one in answer["hits"]] == [(key, {"price": 2.5, "id": key})]
            refused = await server.post("/v1/search", body | {"columns": ["updated_at"]})
            assert refused.status_code == 422
            assert "must be one of the columns that followed tables name: author, body, " in refused.json()["detail"]


STATUSES = ("public", "draft")
steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "rollback", "search", "read again"]), st.integers(0, 11)),
    max_size=25,
)


@pytest.fixture(scope="module")
def shop(new_database):
    url = new_database()
    with followed(url, rows=12, others=3) as (retriever, table):
        yield url, retriever, table


@given(steps=steps, mode=st.sampled_from(MODES))
@settings(max_examples=examples(30))
def test_a_live_filter_is_right_in_the_snapshot_of_the_search(shop, steps, mode):
    """Two writers, of even and of odd rows, and a reader whose transaction reads one snapshot again and again."""
    url, _, table = shop
    table.connection.execute("UPDATE shop.articles SET status = 'public'")
    with (
        SyncClient(url, HashEmbedder(8), use_reranking=False) as client,
        psycopg.connect(url) as even,
        psycopg.connect(url) as odd,
        psycopg.connect(url) as reader,
    ):
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        collection = client.collection("shelf")
        for step, number in steps:
            writer = (even, odd)[number % 2]
            if step == "write":
                changed = "CASE status WHEN 'public' THEN 'draft' ELSE 'public' END"
                writer.execute(f"UPDATE shop.articles SET status = {changed} WHERE id = {number}")  # noqa: S608
            elif step in ("commit", "rollback"):
                getattr(writer, step)()
            elif step == "read again":
                reader.rollback()
            else:
                seen = dict(reader.execute("SELECT id, status FROM shop.articles").fetchall())
                wanted = STATUSES[number % 2]
                found = collection.using(reader).search("apple", 12, f"@row.status = '{wanted}'", mode=mode)
                assert {hit.key for hit in found} == {key for key, status in seen.items() if status == wanted}


@pytest.mark.parametrize("mode", MODES)
def test_no_hit_fails_a_live_filter_while_its_table_is_written(shop, mode):
    """Columns come from the search's own snapshot, so that they show what the filter saw."""
    url, retriever, table = shop
    is_over = threading.Event()
    change = "UPDATE shop.articles SET status = CASE (id + %s) %% 3 WHEN 0 THEN 'public' ELSE 'draft' END"
    table.connection.execute(change, [0])

    def write():
        with psycopg.connect(url, autocommit=True) as connection:
            for number in range(150):
                connection.execute(change, [number])
        is_over.set()

    writer = threading.Thread(target=write)
    writer.start()
    searches = 0
    while not is_over.is_set() or searches < 2:
        found = retriever.search("apple", 12, "@row.status = 'public'", mode=mode, columns=["id", "status"])
        assert [hit.columns["status"] for hit in found if hit.columns] == ["public"] * 4
        assert len({hit.key for hit in found}) == 4
        searches += 1
    writer.join()
