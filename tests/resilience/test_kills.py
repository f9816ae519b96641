"""A client, a backend or a stream that dies in the middle: nothing lost, nothing twice, and the next run completes."""

import asyncio
from unittest.mock import Mock

import pytest

from semlex import _core
from semlex.errors import IncompleteWriteError, StoreError
from semlex.store.write import chunks as bulk
from semlex.store.write.copy import BulkIngestConfig
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from tests.support.clients import loading_client, table_sync_client
from tests.support.clients.loading_client import documents_of
from tests.support.databases import execute
from tests.support.followed import articles
from tests.support.keyword_index import check_index
from tests.support.lost_answers import lose_answers
from tests.support.programs import Program
from tests.support.retrievers import opened, sync_opened
from tests.support.synchronised import opened as synchronised
from tests.support.whole_collection import count_faults

BATCHES, ROWS = 4, 100


def stored(url):
    """Ids, number of vectors, number of vectors or chunks without their counterpart."""
    tables = ("semlex.default_collection_chunk", "semlex.default_collection_embedding_1")
    if execute(url, "SELECT to_regclass(%s)", [tables[1]]) == [(None,)]:
        return [], 0, 0
    ids, vectors = ([one for (one,) in execute(url, f"SELECT chunk_id FROM {table} ORDER BY 1")] for table in tables)
    return ids, len(vectors), len(set(ids) ^ set(vectors))


def ids_of(batches):
    return sorted(document.id for document in documents_of(0, batches * ROWS))


# Transaction, moment, and at which of its times -> how many batches are stored by then, and what the client has said.
MOMENTS = {
    ("set up the collection", "worked", 1): (0, ""),
    ("add documents", "copying", 1): (0, "open"),  # straight into the empty tables
    ("add documents", "worked", 1): (0, "open"),
    ("add documents", "worked", 3): (2, "open 0 1"),
    ("add documents", "committed", 2): (2, "open 0"),
}


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: " ".join(map(str, moment)))
def test_a_killed_client_loses_and_doubles_nothing(database_url, moment):
    batches, said = MOMENTS[moment]
    with Program(loading_client.main, database_url, BATCHES, ROWS, moment) as client:
        client.until_stopped()
        client.kill()
        assert client.said.split() == said.split()
    assert stored(database_url) == (ids_of(batches), batches * ROWS, 0)
    with sync_opened(database_url) as retriever:
        for batch in range(BATCHES):
            retriever.add_documents(documents_of(batch, ROWS))
    assert stored(database_url) == (ids_of(BATCHES), BATCHES * ROWS, 0)


# Transaction, moment, and at which of its times; rows that are stored by then of 20 that are new.
RUN_MOMENTS = {
    ("store rows", "copying", 1): 0,
    ("store rows", "worked", 2): 5,
    ("store rows", "committed", 3): 15,
    ("store metadata of rows", "worked", 1): 20,
    ("delete rows", "worked", 1): 20,
    ("note the end of the run", "before", 1): 20,
}


@pytest.mark.parametrize("moment", RUN_MOMENTS, ids=lambda moment: " ".join(map(str, moment)))
def test_a_killed_run_over_a_followed_table_loses_and_doubles_nothing(database_url, moment):
    with articles(database_url, rows=20) as table, synchronised(database_url, "rows") as store:
        store.tables.follow(**table.options(name="articles"))
        if moment[0] in ("store metadata of rows", "delete rows"):
            store.tables.sync()
            table.update(1, author="bob")
            table.delete(2)
        with Program(table_sync_client.main, database_url, "rows", moment) as client:
            client.until_stopped()
            client.kill()
        assert execute(database_url, "SELECT count(*) FROM semlex.rows_document") == [(RUN_MOMENTS[moment],)]
        assert count_faults(table.connection, "rows") == {}
        [report] = store.tables.sync()
        assert report.failed == 0
        assert count_faults(table.connection, "rows") == {}
        keys = {f"articles/{key}" for (key,) in table.connection.execute("SELECT id FROM shop.articles")}
        assert {chunk.source_document for chunk in store.list_chunks(limit=100)} == keys
        assert [(one.added, one.changed, one.refreshed, one.deleted) for one in store.tables.sync()] == [(0, 0, 0, 0)]


def end_backends(url, pid=None):
    """Ends the others of the database, or that process."""
    wanted = "datname = current_database() AND pid <> pg_backend_pid() AND pid = coalesce(%s, pid)"
    execute(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {wanted}", [pid])


async def test_backends_that_die_between_batches_are_not_noticed(database_url, monkeypatch):
    """All backends of the database end while each of the first four batches is embedded."""
    embed, kills = HashEmbedder.embed_documents, 0

    def killing(embedder, texts):
        nonlocal kills
        kills += 1
        if kills <= 4:
            end_backends(database_url)
        return embed(embedder, texts)

    monkeypatch.setattr(HashEmbedder, "embed_documents", killing)
    async with opened(database_url, bulk=BulkIngestConfig(batch_size=100)) as retriever:
        documents = documents_of(0, 700)
        assert await retriever.add_documents(documents) == [document.id for document in documents]
        assert await retriever.count() == 700
        end_backends(database_url)
        assert len(await retriever.search("text number", 10)) == 10
    assert kills > 4
    assert stored(database_url)[1:] == (700, 0)


@pytest.mark.parametrize("empty", [True, False], ids=["direct", "staged"])
@pytest.mark.parametrize("deaths", [1, 3, 4])
async def test_a_backend_that_dies_inside_a_copy(database_url, monkeypatch, deaths, empty):
    left, copy_rows = deaths, bulk.copy_rows

    async def dying(connection, *arguments):
        nonlocal left
        written = await copy_rows(connection, *arguments)
        if left > 0:
            left -= 1
            await asyncio.to_thread(end_backends, database_url, connection.info.backend_pid)
        return written

    async with opened(database_url) as retriever:
        if not empty:
            await retriever.add_documents(documents_of(50, 10))
        before = stored(database_url)
        monkeypatch.setattr(bulk, "copy_rows", dying)
        if deaths == 4:  # after four attempts the error is raised, and nothing of the batch is there
            with pytest.raises(StoreError) as caught:
                await retriever.add_documents(documents_of(0, 100))
            assert "text number" not in str(caught.value)
            assert stored(database_url) == before
        await retriever.add_documents(documents_of(0, 100))
    assert stored(database_url) == (sorted([*before[0], *ids_of(1)]), 100 + before[1], 0)


async def test_a_commit_whose_answer_is_lost_is_not_done_twice(database_url, monkeypatch):
    """The batch is committed, the client does not hear of it and tries again: direct first, then merged."""
    async with opened(database_url) as retriever:
        lost = lose_answers(monkeypatch, "add documents", "delete")
        await retriever.add_documents(documents_of(0, 100))
        ids = ids_of(1)
        assert stored(database_url) == (ids, 100, 0)
        report = await retriever.delete(ids[:40])
    assert lost == {"add documents", "delete"}
    assert (report.chunks, report.documents) == (0, 0)  # what the repetition deleted
    assert stored(database_url)[0] == ids[40:]


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_row_whose_commit_was_not_heard_of_is_found_once(database_url, monkeypatch, deleted):
    """Meanwhile a merge takes away the segment of its postings, and the row is deleted: its id must not come back."""
    async with opened(database_url) as retriever, opened(database_url) as other:
        for batch in range(2):  # the second write remembers what the next one needs
            await retriever.add_documents(documents_of(batch, 1))
        merged = []

        async def meanwhile():
            merged.append(await other.indexes.optimize())
            if deleted:
                assert (await other.delete(["d2"])).chunks == 1

        lose_answers(monkeypatch, "add documents", meanwhile=meanwhile)
        await retriever.add_documents(documents_of(2, 1))
        assert [segments > 0 for segments in merged] == [True]
        for _ in range(2):
            check_index(database_url, "default_collection")
            assert (await retriever.search("number 2", 9, mode="keyword"))[0].id == "d2"
            await other.indexes.optimize()
    check_index(database_url, "default_collection")


RealEncoder = _core.CopyEncoder


class ShortEncoder:
    """Sends one row less than it says, in a stream that is well formed."""

    def __init__(self, columns, ids):
        self._short = RealEncoder([(name, kind, values[:-1]) for name, kind, values in columns], ids[:-1])
        self.rows = len(ids)
        self.largest_row = self._short.largest_row

    def encode_into(self, buffer, position):
        position, size = self._short.encode_into(buffer, position)
        return position + (position > self._short.rows), size


@pytest.mark.parametrize("rows_before", [0, 10], ids=["direct", "staged"])
def test_a_stream_that_lacks_a_row_is_rolled_back(database_url, monkeypatch, rows_before):
    with sync_opened(database_url, "none") as retriever:
        if rows_before:
            retriever.add_documents(documents_of(90, rows_before))
        with monkeypatch.context() as patched:
            patched.setattr(_core, "CopyEncoder", ShortEncoder)
            with pytest.raises(IncompleteWriteError, match="sent 100 rows, but the server received 99"):
                retriever.add_documents(documents_of(0, 100))
        assert retriever.count() == rows_before
        retriever.add_documents(documents_of(0, 100))
        assert retriever.count() == rows_before + 100


def test_a_model_that_fails_writes_nothing(database_url):
    embedder = HashEmbedder(8)
    with sync_opened(database_url, embedder, bulk=BulkIngestConfig(batch_size=10)) as retriever:
        retriever.add_documents(documents_of(0, 10))
        embedder.embed_documents = Mock(side_effect=RuntimeError)
        with pytest.raises(RuntimeError):
            retriever.add_documents([Document("new", id="new")])
        assert retriever.count() == 10
