"""Hits as a relation: a statement that holds them, and a temporary table of a transaction of the user's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from semlex import Document, SearchResult, SearchResults
from semlex.errors import ConfigurationError, ConnectionFailedError, ReadOnlyError, ValidationError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.query.hits import BATCH_ROWS, COLUMNS, INCLUDED, Relation, fill_table, statement
from semlex.types.display import UNSAFE
from tests.support.retrievers import opened, sync_opened

pytestmark = pytest.mark.pg16

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


@pytest.fixture(scope="module")
def connection(server_url):
    with psycopg.connect(server_url) as opened:
        yield opened


OWN = ("document_id", "document_rank")  # of the relation alone


def expected(listed, *include):
    return [{name: getattr(hit, name) for name in (*COLUMNS, *include) if name not in OWN} for hit in listed]


def told(rows):
    return [{name: value for name, value in row.items() if name not in OWN} for row in rows]


@given(listed=hits, quoted_by=st.sampled_from(["on", "off"]), run_by=st.sampled_from(["on", "off"]))
def test_the_statement_gives_the_hits(connection, listed, quoted_by, run_by):
    connection.rollback()
    relation = Relation(SearchResults(listed), ALL)
    connection.execute(f"SET standard_conforming_strings = {quoted_by}")
    text = statement(connection, relation)
    assert UNSAFE.search(text) is None
    assert len(text.split("\n")) == (len(listed) + 2 if listed else 1)
    connection.execute(f"SET standard_conforming_strings = {run_by}")
    connection.execute("SET escape_string_warning = off")
    cursor = connection.cursor(row_factory=dict_row)
    assert told(cursor.execute(text.encode()).fetchall()) == expected(listed, *ALL)
    kinds = [connection.adapters.types[column.type_code].name for column in cursor.description or ()]
    assert kinds == [*COLUMNS.values(), *INCLUDED.values()]
    inside = cursor.execute(b"WITH hits AS (%b) SELECT count(*) AS n FROM hits" % text.encode()).fetchone()
    assert inside == {"n": len(listed)}


def filled(connection, relation, table):
    return asyncio.run(fill_table(connection, relation, table))


@given(listed=hits, table=texts.filter(lambda name: name.strip() and len(name.encode()) <= 63))
def test_the_table_holds_the_hits(connection, listed, table):
    connection.rollback()
    assert filled(connection, Relation(listed, ALL), table) == len(listed)
    query = psycopg.sql.SQL("SELECT * FROM {}").format(psycopg.sql.Identifier(table))
    cursor = connection.cursor(row_factory=dict_row)
    assert told(cursor.execute(query).fetchall()) == expected(listed, *ALL)
    with pytest.raises(ConfigurationError, match="already"):
        filled(connection, Relation(listed, ()), table)
    assert connection.info.transaction_status == TransactionStatus.INTRANS


def test_many_hits_of_any_session(database_url):
    """Settings, row factories and placeholders of the user's connection make no difference, and stay."""
    many = [SearchResult(f"ü {n}", {"n": n}, f"é{n}", rank=n) for n in range(2 * BATCH_ROWS + 1)]
    with psycopg.connect(database_url, client_encoding="LATIN1", row_factory=dict_row) as connection:
        connection.cursor_factory = psycopg.RawCursor
        connection.execute("SET LOCAL search_path = pg_temp; SET LOCAL standard_conforming_strings = off")
        assert filled(connection, Relation(many, ALL), "hits") == len(many)
        rows = connection.execute("SELECT id, content, metadata FROM hits ORDER BY rank").fetchall()
        assert rows == [{"id": one.id, "content": one.content, "metadata": one.metadata} for one in many]
        stayed = connection.execute("SHOW standard_conforming_strings").fetchone()
        assert stayed == {"standard_conforming_strings": "off"}


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
            filled(connection, Relation([], ()), table)
    assert connection.info.transaction_status == TransactionStatus.IDLE


retriever_of = partial(opened, model=16, collection="words")


async def test_hits_are_joined_with_tables_of_the_user(database_url):
    async with retriever_of(database_url) as retriever, await psycopg.AsyncConnection.connect(database_url) as mine:
        await retriever.add_documents([Document(f"yellow fruit {name}", id=name) for name in "abc"])
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
        cursor = await mine.execute(f"SELECT id FROM ({text}) AS found JOIN price USING (id) ORDER BY rank")  # noqa: S608
        assert await cursor.fetchall() == [(hit.id,) for hit in priced]


async def test_a_transaction_that_cannot_hold_the_table_is_refused(database_url):
    async with retriever_of(database_url) as retriever:
        await retriever.add_documents([Document("yellow fruit", id="a")])
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
                with pytest.raises(ConfigurationError, match="already"):
                    await retriever.tables.hits_into(mine, found, "hits")
                assert await (await mine.execute("SELECT count(*) FROM hits")).fetchone() == (1,)
            with psycopg.connect(database_url) as synchronous:
                assert await retriever.tables.hits_into(synchronous, found, "hits") == 1
                assert synchronous.execute("SELECT id FROM hits").fetchall() == [("a",)]
        with pytest.raises(ConnectionFailedError, match="closed"):
            await retriever.tables.hits_into(mine, found, "hits")


def test_without_an_event_loop(database_url):
    with sync_opened(database_url, 16) as retriever:
        retriever.add_documents([Document("yellow fruit", id="a")])
        found = retriever.search("yellow fruit")
        with psycopg.connect(database_url) as mine:
            assert retriever.tables.hits_into(mine, found, "hits") == 1
            django = SimpleNamespace(ensure_connection=lambda: None, connection=mine)
            assert retriever.tables.hits_into(django, found, "more") == 1
            assert mine.execute("SELECT id FROM hits JOIN more USING (id)").fetchall() == [("a",)]
            mine.rollback()
            assert mine.execute(retriever.tables.hits_as_sql(found).encode()).rowcount == 1
            assert mine.execute(retriever.tables.hits_as_sql([]).encode()).fetchall() == []
        with psycopg.connect(database_url, autocommit=True) as mine:
            with pytest.raises(ConfigurationError, match="in autocommit and outside a transaction"):
                retriever.tables.hits_into(mine, found, "hits")
            with pytest.raises(ConfigurationError, match="connection must be one of psycopg 3, of Django"):
                retriever.tables.hits_into("postgresql://", found, "hits")


async def test_behind_a_transaction_pooler(database_url):
    """Two clients in turn on two sessions: each has its table as long as its transaction, and leaves nothing."""
    async with TransactionPooler(database_url, size=2) as pooler, retriever_of(pooler.address) as retriever:
        await retriever.add_documents([Document("yellow fruit", id="a")])
        found = await retriever.search("yellow fruit")

        async def client(number):
            mine = await psycopg.AsyncConnection.connect(pooler.address, autocommit=True)
            async with mine:
                for _ in range(8):  # the driver prepares by itself what it sends six times
                    async with mine.transaction():
                        own = [replace(found[0], rank=number)]
                        assert await retriever.tables.hits_into(mine, own, "hits") == 1
                        cursor = await mine.execute("SELECT rank FROM hits", prepare=False)
                        assert await cursor.fetchone() == (number,)

        await asyncio.gather(client(1), client(2))


def test_the_command_line_prints_a_statement(shell):
    shell("index", "docs", "--model", "none")
    done = shell("search", "keys", "--sql", "--include", "excerpt", "--include", "metadata")
    names = {*COLUMNS, "excerpt", "metadata"} - {*OWN}
    with psycopg.connect(shell.environment["DATABASE_URL"], row_factory=dict_row) as connection:

        def rows_of(done):
            return connection.execute(done.stdout.encode()).fetchall()

        rows = rows_of(done)
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
    for wrong in (
        ["keys", "--sql", "--json"],
        ["keys", "--sql", "--explain"],
        ["--queries", "docs/fruit.txt", "--sql"],
    ):
        assert "--sql" in shell("search", *wrong, code=2).stderr
    assert "--sql" in shell("search", "keys", "--include", "excerpt", code=2).stderr
    assert "include" in shell("search", "keys", "--sql", "--include", "vectors", code=2).stderr
