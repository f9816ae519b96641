"""Servers that cannot be used: unreachable, read-only, or named by an address with its password in the wrong place."""

import re
import traceback
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.transaction import OutOfOrderTransactionNesting
from psycopg_pool import ConnectionPool

from semlex import errors
from semlex.embedding import probe
from semlex.errors import ConfigurationError, ConnectionFailedError, SearchTimeoutError, StoreError
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.retriever.synchronous import SyncRetriever
from semlex.store.postgres.addresses import describe, without_password
from semlex.store.postgres.database import Database
from semlex.store.postgres.errors import is_out_of_resources, translate
from semlex.store.postgres.snapshot import Snapshot
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from tests.support.databases import execute, set_in_database
from tests.support.retrievers import opened, sync_opened
from tests.support.spies import calls_of
from tests.support.waiting import LIMIT

# Planted as password and as text: it may stand in no message.
SECRET = "zebra-" * 3 + "stripes"
ENCODED = "%7Aebra-" + "zebra%2D" * 2 + "stripes"
KEY_FILE_SECRET = "lion-" * 3 + "mane"


def told(error):
    """Everything of an error that a log may show."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


def test_a_read_only_database_is_refused_before_anything_is_embedded(database_url, monkeypatch):
    calls = calls_of(monkeypatch, HashEmbedder, "embed_documents")
    with sync_opened(database_url) as retriever:
        retriever.add_documents([Document("the first row", id="first")])
    set_in_database(database_url, "default_transaction_read_only", "on")
    with sync_opened(database_url) as retriever:
        with pytest.raises(errors.ReadOnlyError) as caught:
            retriever.add_documents([Document(SECRET)])
        assert SECRET not in told(caught.value)
        assert {text for call in calls for text in call["texts"]} - {probe.TEXT} == {"the first row"}
        assert retriever.count() == 1
        assert [one.id for one in retriever.search("first row")] == ["first"]
    with pytest.raises(errors.ReadOnlyError, match="primary"):
        sync_opened(database_url, "none", collection="new").initialize()


def test_a_server_that_cannot_be_reached(server_url):
    for url in (
        f"postgresql://somebody:{SECRET}@127.0.0.1:1/nowhere",
        make_conninfo(server_url, dbname="nowhere", password=SECRET),
        make_conninfo(server_url, user="nobody_at_all", password=SECRET),
    ):
        with pytest.raises(ConnectionFailedError, match=r"nowhere|nobody_at_all") as caught:
            sync_opened(url, "none", timeout=LIMIT).initialize()
        assert SECRET not in told(caught.value)
    for password in ("r", "semlex", "e"):  # a password that is part of the message does not spoil it
        nowhere = make_conninfo(server_url, dbname="semlex_nowhere", password=password)
        with pytest.raises(ConnectionFailedError, match='database "semlex_nowhere" does not exist'):
            sync_opened(nowhere, "none", timeout=LIMIT).initialize()


def test_a_malformed_address_is_reported_without_its_password():
    for url in (
        f"postgresql://u:{SECRET}%zz@127.0.0.1:1/d",
        f"host=127.0.0.1 port=1 user=u password=first {SECRET} dbname=d",
        f"host=127.0.0.1 password='{SECRET}",
        f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/d?sslmode=disable",
        f"postgresql://u:pa/{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:12/{SECRET}@127.0.0.1:1/d",
        f"postgresql://u:pa@{SECRET}@127.0.0.1:1/d",
        f"host=127.0.0.1;port=1;user=u;password={SECRET}",
        f"postgresql://u:{SECRET}@[::1/d",
        f"postgresql://u:{SECRET}@127.0.0.1:notaport/d",
        f"postgresql://u:{SECRET}@127.0.0.1:1/d?sslmode=bogus",
        f"postgresql://u:{SECRET}@127.0.0.1:99999/d",
    ):
        with pytest.raises(errors.SemlexError) as caught:
            sync_opened(url, "none", timeout=LIMIT).initialize()
        assert SECRET not in told(caught.value), url


def test_an_address_is_shown_without_its_password():
    for url, shown in (
        (f"postgresql://me:{SECRET}@db.example:5432/notes", "host=db.example port=5432 dbname=notes user=me"),
        (f"postgresql://me%40there:{SECRET}@[::1]/notes", "host=::1 dbname=notes user=me@there"),
        (f"host=one,two port=1,2 password='{SECRET}'", "host=one,two port=1,2"),
        ("postgresql:///notes?host=/run/postgresql", "host=/run/postgresql dbname=notes"),
        (f"hostaddr=127.0.0.1 dbname=notes password={SECRET}", "hostaddr=127.0.0.1 dbname=notes"),
        ("sslmode=prefer", "the default server"),
    ):
        assert describe(url) == shown


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        (f"postgresql+psycopg://me:{SECRET}@h/d", r"begins with postgresql\+psycopg://.*with postgresql:// instead"),
        (f"postgresql+asyncpg://me:{SECRET}@h/notes", "begin it with postgresql:// instead"),
        (f"jdbc:postgresql://h/notes?password={SECRET}", "begin it with postgresql:// instead"),
        (f"mysql://me:{SECRET}@h/notes", "mysql:// is not PostgreSQL"),
        ("", r"is empty; name a server .* \(db_url=None, no --database\) to use the embedded"),
        (" ", "is empty; name a server"),
        ("sqlite:///notes.db", "leave the URL out to use the embedded server"),
        ("localhost:5432/notes", r"put that in front of HOST:PORT/DATABASE"),
        (f"me:{SECRET}@localhost:5432/notes", r"does not begin with postgresql://"),
        (f" postgresql://me:{SECRET}@h/notes", "begins or ends with a blank"),
        (f"'postgresql://me:{SECRET}@h/notes'", "quotation mark; remove that"),
        (f"host=h;user=me;password={SECRET}", "separate them with blanks"),
        (f"user=me:{SECRET}@h dbname=notes", "name contains a ':'; write the password as in"),
        (f"postgresql://me%3A{SECRET}@h/notes", "name contains a ':'; write the password as in"),
        (f"postgresql://me:{SECRET}@there@h/notes", "@ as %40"),
        (f"postgresql://me:50%{SECRET}@h/notes", "% as %25"),
        ("postgresql://h/notes?schema=public", "only libpq's parameters are known"),
    ],
)
def test_a_wrong_address_is_reported_with_a_remedy(url, remedy):
    with pytest.raises(ConfigurationError, match=remedy) as caught:
        SyncRetriever(url, "none")
    assert SECRET not in told(caught.value)


def test_the_remedies_for_addresses_work(server_url):
    parts = conninfo_to_dict(server_url)
    user, place = parts["user"], f"{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    password = "p@ss/w%rd: ?#"  # noqa: S105 - of nothing
    for wrong, right in (
        (f"postgresql+psycopg://{user}@/{place}", f"postgresql://{user}@/{place}"),
        (f"{user}@/{place}", f"postgresql://{user}@/{place}"),
        (f"postgresql://{user}%3Asecret@/{place}", f"postgresql://{user}:secret@/{place}"),
        (f"postgresql://{user}:{password}@/{place}", f"postgresql://{user}:{quote(password, safe='')}@/{place}"),
        (f"{make_conninfo(**parts)} password=my own", f"{make_conninfo(**parts)} password='my own'"),
    ):
        with pytest.raises(ConfigurationError):
            SyncRetriever(wrong, "none")
        describe(right)
        psycopg.connect(right).close()


def test_a_password_is_masked_in_a_message():
    url = f"postgresql://you:{SECRET}@there/e?sslpassword={KEY_FILE_SECRET}"
    for message, shown in (
        (f"bad address postgresql://me:{SECRET}@h/d", "bad address postgresql://me:***@h/d"),
        (f"bad user=me password={SECRET} host=h", "bad user=me password=*** host=h"),
        (f"bad user=me password='{SECRET}'", "bad user=me password='***'"),
        (f"bad postgresql://me:{ENCODED}@h/d", "bad postgresql://me:***@h/d"),
        (f"bad postgresql://h/d?user=me&password={ENCODED}&port=1", "bad postgresql://h/d?user=me&password=***&port=1"),
        (f"bad sslpassword={KEY_FILE_SECRET} host=h", "bad sslpassword=*** host=h"),
        (f"the word {SECRET} stays, and 100%25: as well", f"the word {SECRET} stays, and 100%25: as well"),
    ):
        assert without_password(message, url) == shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_connections": 0}, "max_connections must be between 1 and 10,000; got 0"),
        ({"max_connections": 2.5}, "max_connections must be an int; got a float"),
        ({"timeout": "x"}, "timeout must be a number of seconds; got str"),
        ({"timeout": -1}, "timeout must be a number of seconds above 0; got -1"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds above 0; got nan"),
        ({"schema": "information_schema"}, "belongs to Postgres: choose another name"),
        ({"data_folder": "somewhere"}, "at most one of"),
    ],
)
def test_arguments_that_reach_no_server(server_url, options, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        PostgreSQLRetriever(make_conninfo(server_url, password=SECRET), "none", **options)
    assert SECRET not in told(caught.value)


def test_a_pool_or_connection_of_another_kind(server_url):
    with psycopg.connect(server_url) as connection, ConnectionPool(server_url, open=False) as pool:
        with pytest.raises(ConfigurationError, match=r"connection must be a psycopg\.AsyncConnection; got psycopg"):
            PostgreSQLRetriever(connection=connection)
        with pytest.raises(ConfigurationError, match=r"pool must be a psycopg_pool\.AsyncConnectionPool; got psycopg"):
            PostgreSQLRetriever(pool=pool)


NESTED = OutOfOrderTransactionNesting("transaction commit at the wrong nesting level")
LATE = psycopg.errors.QueryCanceled("canceling statement due to statement timeout")


@pytest.mark.parametrize(
    ("error", "writing", "kind", "words"),
    [
        (psycopg.DataError(f"cannot take {SECRET}"), False, StoreError, "the driver refused a value"),
        (psycopg.OperationalError("server closed"), False, ConnectionFailedError, ""),
        (psycopg.errors.TooManyConnections("too many"), False, ConnectionFailedError, ""),
        (NESTED, False, StoreError, "^work: two tasks use one connection at the same time; give each task its own"),
        (psycopg.errors.DiskFull("No space left on device"), False, StoreError, "make room on the server's disk"),
        (LATE, False, SearchTimeoutError, ""),
        (LATE, True, StoreError, "statement_timeout"),
    ],
)
def test_an_error_of_the_driver_becomes_one_of_ours(error, writing, kind, words):
    ours = translate(error, "work", writing=writing)
    assert type(ours) is kind
    assert re.search(words, str(ours))
    assert SECRET not in str(ours)
    if kind is StoreError:
        assert ours.sqlstate == error.sqlstate
        assert is_out_of_resources(ours) == isinstance(error, psycopg.errors.DiskFull)


async def test_a_write_that_takes_too_long(database_url):
    async def slow(connection):
        await connection.execute("SET LOCAL statement_timeout = 50")  # expires
        await connection.execute("SELECT pg_sleep(3600)")

    async with Database(database_url) as database:
        with pytest.raises(StoreError, match=r"add documents: .*raise the role's statement_timeout"):
            await database.write("add documents", slow)


async def test_first_vectors_never_go_into_a_collection_that_was_made_again(database_url):
    async with opened(database_url, keyword="tsvector") as stale:
        assert await stale.count() == 0
        async with opened(database_url) as other:
            await other.drop_collection()
        async with opened(database_url, keyword="bm25") as other:
            with pytest.raises(errors.CollectionNotFoundError, match="was dropped after it was opened"):
                await stale.add_documents([Document("a row", id="1")])
            assert await other.count() == 0


async def test_nothing_is_written_to_the_drivers_log_when_a_statement_fails(database_url, caplog):
    async def failing(snapshot):
        async with snapshot.in_one_go():
            await snapshot.connection.execute("SELECT 1 / 0")
            await snapshot.connection.execute("SELECT 1")

    async def failing_to_write(connection):
        await failing(Snapshot(connection))

    async with Database(database_url) as database:
        for attempt in (database.read_snapshot("try", failing), database.write("try", failing_to_write)):
            with pytest.raises(StoreError, match="refused a value"):
                await attempt
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []


@pytest.mark.parametrize("count", [1, 100], ids=["by arrays", "by copy"])
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "not empty"])
def test_a_row_that_the_server_refuses_is_not_quoted(database_url, count, empty):
    """The server's DETAIL and CONTEXT hold the whole row."""
    with sync_opened(database_url) as retriever:
        if not empty:
            retriever.add_documents([Document("short", id="short")])
        short = "ADD CONSTRAINT short CHECK (length(chunk_text) < 10)"
        execute(database_url, f"ALTER TABLE semlex.default_collection_chunk {short}")
        documents = [Document("fine", id=f"d{number}") for number in range(count)]
        documents[-1] = Document(SECRET, {"note": SECRET}, id="long")
        with pytest.raises(StoreError) as caught:
            retriever.add_documents(documents)
        assert caught.value.sqlstate == "23514"
        assert SECRET not in told(caught.value)
        assert retriever.count() == (0 if empty else 1)
        retriever.add_documents(documents[:-1] or [Document("fine", id="fine")])
        assert SECRET not in str(retriever.status())
