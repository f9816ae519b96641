"""Servers that cannot be used: unreachable, read-only, or named by an address with its password in the wrong place."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex.errors import ConfigurationError, ConnectionFailedError, ReadOnlyError, SemlexError, StoreError
from semlex.store.addresses import describe
from semlex.sync import SyncRetriever
from semlex.testing import HashEmbedder
from semlex.types import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

# Planted as password and as text: it may stand in no message.
SECRET = "zebra-" * 3 + "stripes"


class CountingEmbedder(HashEmbedder):
    """Counts the texts that it was given to store."""

    def __init__(self) -> None:
        super().__init__(8)
        self.embedded = 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.embedded += len(texts)
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return HashEmbedder(8).embed_query(text)


def told(error: BaseException) -> str:
    """Everything of an error that a log may show."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


def test_a_read_only_database_is_refused_before_anything_is_embedded(database_url: str) -> None:
    with SyncRetriever(database_url, HashEmbedder(8), use_reranking=False) as retriever:
        retriever.add_documents([Document("the first row", id="first")])
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    embedder = CountingEmbedder()
    with SyncRetriever(database_url, embedder, use_reranking=False) as retriever:
        with pytest.raises(ReadOnlyError) as caught:
            retriever.add_documents([Document(SECRET)])
        assert SECRET not in told(caught.value)
        assert embedder.embedded == 0
        assert retriever.count() == 1
        assert [one.id for one in retriever.search("first row")] == ["first"]
    with pytest.raises(ReadOnlyError, match="primary"):
        SyncRetriever(database_url, "none", use_reranking=False, collection="new").initialize()


def test_a_server_that_cannot_be_reached(server_url: str) -> None:
    for url in (
        f"postgresql://somebody:{SECRET}@127.0.0.1:1/nowhere",
        make_conninfo(server_url, dbname="nowhere", password=SECRET),
        make_conninfo(server_url, user="nobody_at_all", password=SECRET),
    ):
        retriever = SyncRetriever(url, "none", use_reranking=False, timeout=2)
        with pytest.raises(ConnectionFailedError, match=r"nowhere|nobody_at_all") as caught:
            retriever.initialize()
        assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    "url",
    [
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
    ],
)
def test_no_password_is_told_of_a_malformed_address(url: str) -> None:
    with pytest.raises(SemlexError) as caught:
        SyncRetriever(url, "none", use_reranking=False, timeout=1).initialize()
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{SECRET}@db.example:5432/notes", "host=db.example port=5432 dbname=notes user=me"),
        (f"postgresql://me%40there:{SECRET}@[::1]/notes", "host=::1 dbname=notes user=me@there"),
        (f"host=one,two port=1,2 password='{SECRET}'", "host=one,two port=1,2"),
        ("postgresql:///notes?host=/run/postgresql", "host=/run/postgresql dbname=notes"),
        (f"hostaddr=127.0.0.1 dbname=notes password={SECRET}", "hostaddr=127.0.0.1 dbname=notes"),
        ("", "the default server"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert describe(url) == shown


def test_two_servers_are_refused(server_url: str) -> None:
    with pytest.raises(ConfigurationError, match="at most one of") as caught:
        SyncRetriever(server_url + f" password={SECRET}", "none", data_folder="somewhere")
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize("count", [1, 100], ids=["by arrays", "by copy"])
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "not empty"])
def test_a_row_that_the_server_refuses_is_not_quoted(database_url: str, count: int, empty: bool) -> None:
    """The server's DETAIL and CONTEXT hold the whole row."""
    with SyncRetriever(database_url, HashEmbedder(8), use_reranking=False) as retriever:
        if not empty:
            retriever.add_documents([Document("short", id="short")])
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "ALTER TABLE semlex.default_collection_chunk ADD CONSTRAINT own CHECK (length(chunk_text) < 10)"
            )
        documents = [Document("fine", id=f"d{number}") for number in range(count)]
        documents[-1] = Document(SECRET, {"note": SECRET}, id="long")
        with pytest.raises(StoreError) as caught:
            retriever.add_documents(documents)
        assert caught.value.sqlstate == "23514"
        assert SECRET not in told(caught.value)
        assert retriever.count() == (0 if empty else 1)
        retriever.add_documents(documents[:-1] or [Document("fine", id="fine")])
        assert SECRET not in str(retriever.status())
