"""Statements that come again are prepared on semlex's own connections; what makes them outdated stops no search."""

from __future__ import annotations

import pytest

from semlex import Document
from semlex.store.postgres import database, pool
from semlex.store.query import vector
from tests.support.retrievers import opened

CHUNK = "semlex.words_chunk"


@pytest.fixture
def connections(monkeypatch):
    """Those of pools that are opened meanwhile."""
    made = []
    prepare = database.configure

    async def noted(connection):
        await prepare(connection)
        made.append(connection)

    monkeypatch.setattr(database, "configure", noted)
    return made


def ask(connection, statement):
    """The first value of an answer, without the driver's knowing."""
    return connection.pgconn.exec_(statement).get_value(0, 0)


def with_kept_plans(connections):
    """Statements that read chunks by a plan that is kept."""
    text = "SELECT count(*) FROM pg_prepared_statements WHERE generic_plans > 0 AND statement LIKE '%words_chunk%'"
    return sum(int(ask(connection, text.encode()) or 0) for connection in connections)


def prepared(connection):
    return int(ask(connection, b"SELECT count(*) FROM pg_prepared_statements") or 0)


async def searches(retriever):
    return [await retriever.search("stone cloud", mode=mode) for mode in ("hybrid", "keyword", "vector")]


def shown(found):
    return [[hit.to_dict() for hit in results] for results in found]


CHANGES = {
    "nothing": "SELECT 1",
    "statements that are gone": "DEALLOCATE ALL",
    "another type": f"ALTER TABLE {CHUNK} ALTER COLUMN line TYPE int8",
    "an index more": f"CREATE INDEX ON {CHUNK} (line)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_outdated_statements_stop_no_search(database_url, connections, change):
    documents = [Document(f"stone {n} cloud", id=f"d{n}") for n in range(20)]
    async with opened(database_url, collection="words") as retriever:
        await retriever.add_documents(documents)
        first = shown(await searches(retriever))
        for _ in range(pool.PREPARED_FROM + 1):
            assert shown(await searches(retriever)) == first
        (connection,) = connections
        assert prepared(connection) >= 5  # both searches, the rows, words alone, and whether the collection is there
        ask(connection, change.encode())
        for _ in range(3):
            assert shown(await searches(retriever)) == first


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
