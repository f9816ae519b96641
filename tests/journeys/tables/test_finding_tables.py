"""Which table is meant: by name, layout, schema and database; and what is said where it is not clear."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from semlex import BulkIngestConfig, Client
from semlex.errors import ConfigurationError, ConnectionFailedError, PrivilegeError
from tests.support.foreign_tables import COLLECTION, KINDS, Row, ids, stored_rows
from tests.support.retrievers import opened, sync_opened

ROWS = [Row(f"r{number}", f"apple {number}", f"[{number + 1},1,0.1]", {"n": number}) for number in range(6)]


retriever = partial(sync_opened, model="none", collection="moved")


@contextmanager
def filled(url):
    """All four libraries' tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        for kind in KINDS.values():
            kind.make(connection)
            kind.fill(connection, ROWS)
        yield connection


@pytest.fixture
def source(database_url):
    with filled(database_url) as connection:
        yield connection


@pytest.fixture
def moved(database_url):
    with retriever(database_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def asked(new_database):
    """A collection beside those tables and some that are not clear; no test stores anything in it."""
    url = new_database()
    with filled(url) as connection, retriever(url) as opened:
        connection.execute(
            "CREATE TABLE odd (id text, t text, v vector); CREATE TABLE plain (id text, text text, vector text);"
            "CREATE TABLE twice AS SELECT * FROM lc_docs; CREATE TABLE two AS SELECT * FROM data_li_docs;"
            "CREATE TABLE data_two AS SELECT * FROM data_li_docs;"
            "INSERT INTO langchain_pg_collection VALUES (gen_random_uuid(), 'twice')"
        )
        yield opened


@pytest.mark.parametrize(
    ("name", "layout", "table"),
    [
        ("lc_docs", None, "public.lc_docs"),
        ("lc_docs", "langchain-postgres", "public.lc_docs"),
        (COLLECTION, None, "collection 'old docs' of public.langchain_pg_embedding"),
        (COLLECTION, "langchain-postgres", "collection 'old docs' of public.langchain_pg_embedding"),
        (COLLECTION, "langchain-pgvector", "collection 'old docs' of public.langchain_pg_embedding"),
        ("li_docs", None, "public.data_li_docs"),
        ("LI_Docs", "llama-index", "public.data_li_docs"),
        ("data_li_docs", "llama-index", "public.data_li_docs"),
        ("haystack_docs", None, "public.haystack_docs"),
    ],
)
def test_names(asked, name, layout, table):
    report = asked.tables.import_table(name, layout=layout, dry_run=True)
    assert (report.table, report.rows) == (table, 6)
    assert report.layout in (layout, "langchain-pgvector") or layout is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nothing", {}, r"no table .* 'nothing' .*this schema has 'data_li_docs' \(llama-index\).*'old docs'"),
        ("nothing", {"source_schema": "semlex"}, "no table that can be recognised"),
        ("lc_docs", {"source_schema": "nowhere"}, "schema 'nowhere'"),
        ("lc_docs", {"layout": "haystack"}, "has no column 'id', 'blob_data'.*columns are 'langchain_id'"),
        ("lc_docs", {"layout": "pgvector", "text_field": "content"}, "has no column 'id', 'vector'"),
        ("lc_docs", {"id_field": "nr"}, "match no known layout"),
        ("lc_docs", {"layout": "langchain-postgres", "metadata_fields": ["nr"]}, "no column 'nr'"),
        ("langchain_pg_embedding", {"layout": "langchain-pgvector"}, "give the name of one of these collections"),
        ("odd", {}, "match no known layout"),
        ("odd", {"layout": "pgvector", "text_field": "t", "vector_field": "t"}, "other than vectors in its column 't'"),
        ("plain", {"layout": "pgvector"}, "no table with vectors"),
        ("lc_docs", {"layout": "chroma"}, "layout must be one of langchain-postgres"),
        ("", {}, "table"),
        ("twice", {}, r"the table 'twice' \(--from langchain-postgres\) or the collection 'twice'"),
        ("two", {}, "may be the table 'two'.* or the table 'data_two'"),
    ],
)
def test_what_is_not_clear_is_refused(asked, name, options, message):
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match=message):
            asked.tables.import_table(name, **options, dry_run=dry_run)


def test_a_name_that_may_mean_two_is_one_with_its_layout(source, moved):
    source.execute(
        "CREATE TABLE twice AS SELECT * FROM lc_docs LIMIT 2; UPDATE langchain_pg_collection SET name = 'twice' "
        "WHERE name = 'old docs'"
    )
    assert moved.tables.import_table("twice", layout="langchain-pgvector").rows == 6
    with pytest.raises(ConfigurationError, match="langchain-pgvector"):
        moved.tables.import_table("twice", layout="langchain-postgres")


def test_columns_with_other_names(source, moved):
    source.execute(
        "ALTER TABLE lc_docs RENAME langchain_id TO key; ALTER TABLE lc_docs RENAME content TO body; "
        "ALTER TABLE lc_docs RENAME langchain_metadata TO extra; ALTER TABLE lc_docs RENAME embedding TO v"
    )
    named = {
        "id_field": "key", "text_field": "body", "vector_field": "v", "metadata_field": "extra",
    }  # fmt: skip
    assert moved.tables.import_table("lc_docs", layout="langchain-postgres", **named).written == 6
    assert moved.search("apple", mode="keyword", top_k=9)[0].metadata.keys() == {"n"}


def test_another_schema_and_names_that_must_be_quoted(database_url, source, moved):
    source.execute('CREATE SCHEMA "its ""own"; ALTER TABLE lc_docs SET SCHEMA "its ""own"')
    source.execute('ALTER TABLE "its ""own".lc_docs RENAME TO "ta;b\'le"')
    report = moved.tables.import_table("ta;b'le", source_schema='its "own')
    assert report.written == 6
    assert sorted(stored_rows(database_url, "moved")) == [row.id for row in ROWS]


def test_another_database(source, database_url, empty_database_url):
    with retriever(empty_database_url) as moved:
        with pytest.raises(ConfigurationError, match="source_url="):
            moved.tables.import_table("lc_docs")
        assert moved.tables.import_table("lc_docs", source_url=database_url).written == 6
        assert stored_rows(empty_database_url, "moved") == KINDS["langchain-postgres"].rows(source)


def test_addresses_are_told_without_their_passwords(moved):
    secret = "fiddlesticks"  # noqa: S105
    for url, kind, message in (
        (f"postgresql://me:{secret}@127.0.0.1:1/db", ConnectionFailedError, "host=127.0.0.1"),
        (f"postgresql+psycopg://me:{secret}@127.0.0.1/db", ConfigurationError, "begins with postgresql\\+psycopg"),
        ("", ConfigurationError, "the database URL is empty"),
    ):
        with pytest.raises(kind, match=message) as refused:
            moved.tables.import_table("lc_docs", source_url=url)
        assert secret not in str(refused.value)


def test_a_role_needs_no_more_than_to_read(database_url, source, moved):
    source.execute("CREATE ROLE reads_tables LOGIN")
    try:
        reader = make_conninfo(database_url, user="reads_tables")
        with pytest.raises(PrivilegeError):
            moved.tables.import_table("lc_docs", source_url=reader)
        # Rows are there only for whom no time limit holds.
        source.execute(
            "CREATE VIEW unlimited AS SELECT * FROM lc_docs WHERE current_setting('statement_timeout') = '0'"
        )
        source.execute("GRANT SELECT ON unlimited TO reads_tables")
        source.execute(
            "ALTER ROLE reads_tables SET statement_timeout = '10min'; ALTER ROLE reads_tables SET jit = off;"
            "ALTER ROLE reads_tables SET search_path = nothing; ALTER ROLE reads_tables SET TimeZone = 'Asia/Tokyo'"
        )
        assert moved.tables.import_table("unlimited", source_url=reader).written == 6
    finally:
        source.execute("DROP OWNED BY reads_tables; DROP ROLE reads_tables")


@pytest.mark.usefixtures("source")
def test_a_pool_a_connection_and_a_transaction_of_the_users(database_url):
    async def run():
        async with (
            AsyncConnectionPool(database_url, min_size=1, max_size=3, open=False) as pool,
            opened(model="none", pool=pool, collection="moved") as moved,
        ):
            assert (await moved.tables.import_table("lc_docs")).written == 6
        async with (
            Client(database_url, "none", use_reranking=False) as client,
            await psycopg.AsyncConnection.connect(database_url) as connection,
        ):
            bound = client.collection("bound").using(connection)
            with pytest.raises(ConfigurationError, match="source_url="):
                await bound.tables.import_table("lc_docs")
            await connection.execute("CREATE TABLE mine ()")
            assert (await bound.tables.import_table("lc_docs", source_url=database_url)).written == 6
            await connection.rollback()
            assert await client.collection("bound").search("apple", mode="keyword") == []

    asyncio.run(run())


def test_views_are_tables(source, moved):
    """A view gives any query the columns of a layout."""
    source.execute(
        "CREATE VIEW some_docs AS SELECT * FROM haystack_docs WHERE id <> 'r3'; "
        "CREATE MATERIALIZED VIEW kept_docs AS SELECT * FROM some_docs"
    )
    assert moved.tables.import_table("some_docs").written == 5
    assert moved.tables.import_table("kept_docs").written == 5
    assert "r3" not in ids(moved, "apple")


@pytest.mark.slow
def test_a_source_that_is_lost_is_told_and_what_is_stored_stays(database_url, source, monkeypatch):
    monkeypatch.setattr("semlex.store.tables.PART_BYTES", 100_000)
    # So many bytes that the server is still sending them when the first batch is stored.
    source.execute(
        "INSERT INTO haystack_docs (id, content, embedding) SELECT 'm' || n, 'pear' || repeat(' ', 10000) || n, "
        "'[1,2,3]' FROM generate_series(1, 1000) AS n"
    )
    reading = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT t.%'")
    with retriever(database_url, bulk=BulkIngestConfig(batch_size=50)) as moved:
        with pytest.raises(ConnectionFailedError, match="read the table"):
            moved.tables.import_table("haystack_docs", progress=lambda _: source.execute(reading))
        assert 0 < moved.count() < 1_006
        assert moved.tables.import_table("haystack_docs").written == 1_006
