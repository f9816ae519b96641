"""Sessions of every kind: settings that a role, a database or the user's connection brings, and prepared statements."""

import asyncio
from datetime import UTC

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex import Document
from semlex.errors import ConfigurationError, ConnectionFailedError, StoreError, UnsupportedServerError
from semlex.store.keyword.bm25 import merge
from semlex.store.postgres import database, pool, settings
from semlex.store.postgres.database import Database
from semlex.store.query import vector
from semlex.store.segments import merging_lock
from tests.support.databases import execute, set_in_database
from tests.support.retrievers import opened
from tests.support.waiting import LIMIT, eventually

TEXT = "grüße straße £ ünïcode\\x41 'quoted' 文字"


def documents(prefix, count):
    return [Document(f"{TEXT} {number}", {"größe": "grün"}, id=f"{prefix}ä{number}") for number in range(count)]


async def fill(retriever):
    """One document by each way of writing: COPY into the empty collection, arrays, COPY with a merge."""
    for prefix, count in (("a", 1), ("b", 1), ("c", 100)):
        await retriever.add_documents(documents(prefix, count))


async def check(retriever):
    for chunk_id in ("aä0", "bä0", "cä7"):
        (found,) = await retriever.get([chunk_id])
        assert found.content == f"{TEXT} {chunk_id[2:]}"
        assert found.metadata == {"größe": "grün"}
    assert len(await retriever.search("grüße", 1000, mode="keyword")) == 102
    assert (await retriever.search(f"{TEXT} 7", 1))[0].id == "cä7"
    assert await retriever.count({"größe": "grün"}) == 102
    status = await retriever.status()
    assert (status.chunks, status.chunks_not_indexed, status.index_problem) == (102, 0, None)
    assert (await retriever.collections())[0].created_at.tzinfo is UTC


def check_as_others_see_it(url):
    with psycopg.connect(url, client_encoding="utf8") as connection:
        texts = connection.execute("SELECT chunk_text FROM semlex.default_collection_chunk").fetchall()
    assert sorted(texts) == sorted((f"{TEXT} {number}",) for number in [0, *range(100), 0])


HOSTILE = [
    *(
        (name, "off")
        for name in ("standard_conforming_strings", "array_nulls", "backslash_quote", "escape_string_warning")
    ),
    *(
        ("transform_null_equals", "on"),
        ("quote_all_identifiers", "on"),
        ("default_transaction_isolation", "serializable"),
    ),
    *(("bytea_output", "escape"), ("DateStyle", "German, DMY"), ("IntervalStyle", "sql_standard")),
    *(("extra_float_digits", "-15"), ("TimeZone", "Asia/Kathmandu")),
]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", None])
async def test_settings_of_the_database_and_the_environment_change_nothing(database_url, monkeypatch, encoding):
    if encoding is None:
        monkeypatch.setenv("PGCLIENTENCODING", "WIN1252")
    else:
        for name, value in [*HOSTILE, ("client_encoding", encoding)]:
            set_in_database(database_url, name, value)
    async with opened(database_url) as retriever:
        await fill(retriever)
        await check(retriever)
    check_as_others_see_it(database_url)


@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_users_connection_keeps_its_settings(database_url, autocommit):
    hostile = {"client_encoding": "LATIN1", "standard_conforming_strings": "off", "array_nulls": "off"}
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=autocommit) as connection:
        for name, value in hostile.items():
            await connection.execute(f"SET {name} = '{value}'")
        await connection.commit()

        async def present():
            return {name: (await (await connection.execute(f"SHOW {name}")).fetchone())[0] for name in hostile}

        async with opened(connection=connection) as retriever:
            await retriever.add_documents(documents("a", 1))
            await connection.commit()
            async with connection.transaction():
                assert await present() == hostile
                await retriever.add_documents(documents("b", 1))
                assert await present() == hostile
                await retriever.add_documents(documents("c", 100))
                await check(retriever)
                assert await present() == hostile
            await connection.commit()
            await check(retriever)
            assert await present() == hostile
    check_as_others_see_it(database_url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_is_refused(server_url, encoding):
    name = f"semlex_test_{encoding.lower()}"
    url = make_conninfo(server_url, dbname=name)
    execute(server_url, f"CREATE DATABASE {name} ENCODING {encoding} LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(UnsupportedServerError, match=f"{encoding}.*CREATE DATABASE name ENCODING 'UTF8'"):
            await opened(url).initialize()
        async with await psycopg.AsyncConnection.connect(url, client_encoding="utf8") as own:
            with pytest.raises(UnsupportedServerError, match=encoding):
                await opened(connection=own).initialize()
    finally:
        execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_time_that_python_does_not_know_fails_no_answer(database_url):
    async with opened(database_url) as retriever:
        await retriever.add_documents(documents("a", 2))
        execute(
            database_url,
            "UPDATE semlex.default_collection_chunk SET created_at = '-infinity', updated_at = '20000-01-01'",
        )
        assert [hit.updated_at.year for hit in await retriever.search("grüße", 2)] == [9999, 9999]
        assert [one.created_at.year for one in await retriever.get(["aä0"])] == [1]


async def in_a_write(url, *names):
    async def work(connection):
        return [(await (await connection.execute(f"SHOW {name}")).fetchone())[0] for name in names]

    async with Database(url) as database:
        return await database.write("look at the settings", work)


async def test_a_lock_is_waited_for_with_a_limit_and_the_server_looks_after_a_writer_over_tcp(database_url):
    """On a Unix socket the settings of TCP stand at 0; over TCP they are those of the transaction."""
    assert str(conninfo_to_dict(database_url)["host"]).startswith("/")
    assert "tcp_user_timeout" in settings._write_settings(None).decode()
    names = [*(f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")), "tcp_user_timeout"]
    assert await in_a_write(database_url, "lock_timeout", *names) == ["1min", "0", "0", "0", "0"]
    set_in_database(database_url, "lock_timeout", "50s")
    assert await in_a_write(database_url, "lock_timeout") == ["50s"]


@pytest.mark.slow
async def test_a_locked_row_is_named_as_the_reason_and_a_merge_that_stands_still(database_url, monkeypatch):
    monkeypatch.setattr(merge, "BUSY_LIMIT_SECONDS", 0.3)
    set_in_database(database_url, "lock_timeout", "200ms")  # expires
    async with opened(database_url) as retriever:
        await retriever.add_documents(documents("a", 1))
        with psycopg.connect(database_url) as other:
            other.execute("SELECT 1 FROM semlex.default_collection_chunk FOR UPDATE")
            with pytest.raises(StoreError, match="another transaction holds a lock") as caught:
                await retriever.add_documents([Document("changed", id="aä0")])
        assert caught.value.sqlstate == "55P03"
        await retriever.add_documents([Document("changed", id="aä0")])
        with psycopg.connect(database_url) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [merging_lock(retriever.info)])
            async with asyncio.timeout(LIMIT):
                with pytest.raises(StoreError, match="another process has been merging it"):
                    await retriever.indexes.optimize()
                with pytest.raises(StoreError, match="another transaction holds a lock"):
                    await retriever.indexes.rebuild_keyword()
        await retriever.indexes.optimize()
        await retriever.indexes.rebuild_keyword()


async def test_a_connection_that_cannot_be_used_is_refused(database_url):
    connection = await psycopg.AsyncConnection.connect(database_url)
    retriever = opened(connection=connection)
    await retriever.initialize()
    await connection.commit()
    with pytest.raises(psycopg.Error):
        await connection.execute("SELECT 1 / 0")
    with pytest.raises(ConfigurationError, match="has failed; roll it back first"):
        await retriever.add_documents(documents("a", 1))
    await connection.rollback()
    await retriever.add_documents(documents("a", 1))
    await connection.close()
    with pytest.raises(ConnectionFailedError, match="is closed"):
        await retriever.count()


@pytest.mark.slow
async def test_a_late_search_does_not_undo_what_the_user_does_next(database_url):
    """The search ends on the user's connection before it returns: its savepoint is rolled back by then."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("CREATE TABLE own (n int)")
        database = Database(connection=connection)

        async def slow(connection):
            await connection.execute("SELECT pg_sleep(3600)")

        def sleeps():
            with psycopg.connect(database_url) as other:
                sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = %s"
                return other.execute(sleeping, [connection.info.backend_pid]).fetchone() is not None

        async with connection.transaction():
            await connection.execute("INSERT INTO own VALUES (1)")
            with pytest.raises(TimeoutError):
                await database.read("search", slow, deadline=0.05)  # expires
            await connection.execute("INSERT INTO own VALUES (2)")
        async with connection.transaction():
            searching = asyncio.create_task(database.read("search", slow, deadline=LIMIT))
            await eventually(sleeps)
            searching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await searching
            await connection.execute("INSERT INTO own VALUES (3)")
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nothing is left that could undo anything
        rows = await (await connection.execute("SELECT n FROM own ORDER BY n")).fetchall()
        assert rows == [(1,), (2,), (3,)]


async def test_opening_makes_one_connection(database_url, monkeypatch):
    made, connect = [], psycopg.AsyncConnection.connect.__func__

    async def counted(cls, *arguments, **options):
        made.append(cls)
        return await connect(cls, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", classmethod(counted))
    async with Database(database_url) as database:
        for _ in range(2):
            async with database.connection() as connection:
                assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
    assert len(made) == 1


async def test_a_pool_that_does_not_open_is_reported_as_a_failed_connection(database_url, monkeypatch):
    async def fails(connection):
        await connection.execute("SELECT 1 / 0")

    monkeypatch.setattr(database, "configure", fails)
    with pytest.raises(ConnectionFailedError, match=r"^connect to .*: no connection became free in time"):
        await Database(database_url, timeout=0.1).open()  # expires


WORDS_CHUNK = "semlex.words_chunk"


@pytest.fixture
def connections(monkeypatch):
    """The connections of pools that a test opens."""
    made = []
    prepare = database.configure

    async def noted(connection):
        await prepare(connection)
        made.append(connection)

    monkeypatch.setattr(database, "configure", noted)
    return made


def prepared(connection, where="true"):
    """The number of prepared statements, asked in a way that the driver does not notice."""
    text = f"SELECT count(*) FROM pg_prepared_statements WHERE {where}"  # noqa: S608
    return int(connection.pgconn.exec_(text.encode()).get_value(0, 0))


def with_kept_plans(connections):
    """The number of statements that read chunks by a kept plan."""
    where = "generic_plans > 0 AND statement LIKE '%words_chunk%'"
    return sum(prepared(connection, where) for connection in connections)


async def searches(retriever):
    found = [await retriever.search("stone cloud", mode=mode) for mode in ("hybrid", "keyword", "vector")]
    return [[hit.to_dict() for hit in results] for results in found]


CHANGES = {
    "nothing": "SELECT 1",
    "statements that are gone": "DEALLOCATE ALL",
    "another type": f"ALTER TABLE {WORDS_CHUNK} ALTER COLUMN line TYPE int8",
    "an index more": f"CREATE INDEX ON {WORDS_CHUNK} (line)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_outdated_statements_stop_no_search(database_url, connections, change):
    documents = [Document(f"stone {n} cloud", id=f"d{n}") for n in range(20)]
    async with opened(database_url, collection="words") as retriever:
        await retriever.add_documents(documents)
        first = await searches(retriever)
        for _ in range(pool.PREPARED_FROM + 1):
            assert await searches(retriever) == first
        (connection,) = connections
        assert prepared(connection) >= 5  # both searches, the rows, words alone, and whether the collection is there
        connection.pgconn.exec_(change.encode())
        for _ in range(3):
            assert await searches(retriever) == first


@pytest.mark.parametrize("is_large", [True, False])
async def test_only_a_large_collection_keeps_plans(database_url, connections, monkeypatch, is_large):
    """A plan that is kept may be that of a table that was empty."""
    if is_large:
        monkeypatch.setattr(vector, "INDEX_FROM_ROWS", 1)
    async with opened(database_url, collection="words") as retriever:
        await retriever.add_documents([Document(f"stone {n} cloud", id=f"d{n:02}") for n in range(60)])
        assert "hnsw_1" in await retriever.indexes.create()
        first = [hit.to_dict() for hit in await retriever.search("stone cloud", 60)]
        for _ in range(10):
            assert [hit.to_dict() for hit in await retriever.search("stone cloud", 60)] == first
        assert (with_kept_plans(connections) > 0) is is_large


async def test_plans_for_words_are_kept_for_a_size(database_url, connections):
    async with opened(database_url, collection="words") as retriever:
        for known, size in enumerate((5, 20, 80)):
            await retriever.add_documents([Document(f"stone {n} cloud", id=f"d{n:02}") for n in range(size)])
            for _ in range(3):  # the index is read, and then its changes are asked for
                await retriever.search("stone cloud", mode="keyword")
            assert with_kept_plans(connections) == known
            for _ in range(10):
                await retriever.search("stone cloud", mode="keyword")
            assert with_kept_plans(connections) == known + 1


async def test_a_program_that_searches_once_prepares_nothing(database_url, connections):
    async with opened(database_url, collection="words") as retriever:
        await retriever.add_documents([Document("stone")])
        await retriever.search("stone")
        assert [prepared(connection) for connection in connections] == [0]
