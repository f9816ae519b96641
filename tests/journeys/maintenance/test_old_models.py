"""Programs that hold an old model: they go on, say so once, note their use, and learn when their vectors are gone."""

import asyncio
import logging
from functools import partial

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from semlex import Client, open_collection
from semlex.embedding import probe
from semlex.errors import ConfigurationError, ModelError, ModelMismatchError, StoreError
from semlex.store import embedding_versions
from semlex.types.documents import Document
from tests.journeys.maintenance.test_reembedding import WORDS, FailingEmbedder, documents
from tests.support.databases import new_role
from tests.support.lost_answers import lose_answers
from tests.support.two_models import NAME, OtherEmbedder, new_model, old_model, opened, told, vectors_of, versions
from tests.support.waiting import LIMIT, eventually, waiting

pytestmark = pytest.mark.slow  # most of them


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(open_collection, "NOTE_SECONDS", 0.0)


@pytest.fixture
async def old(database_url, quick_looks):
    """The collection, opened with the old model."""
    async with opened(database_url) as old:
        await old.add_documents(documents(10))
        yield old


@pytest.fixture
async def new(database_url, old):
    """The same collection, opened with the new model, which serves now."""
    await changed(database_url)
    async with opened(database_url, new_model()) as new:
        yield new


async def changed(url):
    async with opened(url, "none") as changing:
        await changing.embeddings.change(new_model())


async def test_it_says_once_that_another_version_serves(database_url, old, caplog):
    await changed(database_url)
    caplog.set_level(logging.WARNING, "semlex")
    first, second, *_ = [await old.search("key vault", 3) for _ in range(3)]
    [note] = first.warnings
    has_changed = f"collection {NAME!r} has version 2 of its vectors now (tests/other); this process keeps using"
    assert note.startswith(has_changed)
    assert second.warnings == []
    assert first.embedding_model == second.embedding_model == old_model().identity.model
    assert [record.getMessage() for record in caplog.records] == [note]
    assert [one.warnings for one in await old.search_many(["key", "vault"], 3)] == [[], []]
    # One that is opened afterwards, with the old model by name, too.
    async with opened(database_url) as later:
        assert (await later.search_many(["key", "vault"], 3))[0].warnings == [note]


async def test_what_it_adds_has_no_vector_of_the_new_model(database_url, old, new):
    await old.add_documents(documents(3, 50))
    found = await new.search(" ".join(WORDS), 20)
    assert (len(found), found.without_vector) == (13, 3)
    await new.add_documents(documents(2, 60))
    expected = [(13, 2, "old"), (12, 3, "serving")]
    assert [(entry.vectors, entry.lacking, entry.state) for entry in await new.embeddings.list()] == expected
    assert await new.embeddings.fill() == 3
    assert vectors_of(database_url, 1).keys() == {f"d{number}" for number in [*range(10), 50, 51, 52]}
    assert len(vectors_of(database_url, 2)) == 15


def noted(results):
    lacking = f"vector search misses some chunks of collection {NAME!r}"
    return any(warning.startswith(lacking) for warning in results.warnings)


def client_of(url):
    return Client(url, new_model(), use_reranking=False)


async def queued(retriever):
    async with client_of(retriever._resources.database.url) as client:
        return [job.kind for job in await client.jobs(state="queued")]


@pytest.mark.parametrize("rows", [1, 80])
async def test_what_it_adds_is_noted_until_its_vectors_are_made(database_url, old, monkeypatch, rows):
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 600.0)  # the old one has not heard of the new version
    await old.add_documents(documents(1, 20))
    assert not noted(await old.search("key"))
    await changed(database_url)
    async with opened(database_url, new_model()) as new:
        assert not noted(await new.search("key"))
        assert await queued(new) == []
        await old.add_documents(documents(rows, 100))  # new ones, and others
        for _ in range(2):
            searches = (await new.search("key"), *await new.search_many(["key", "vault"]))
            assert [noted(one) for one in searches] == [True] * 3
        assert noted(await new.search("key", mode="vector"))
        assert noted(await new.search("key", explain=True))
        assert not noted(await new.search("key", mode="keyword"))
        assert not noted(await old.search("key"))
        # What the new model writes is whole; a changed text of the old one is not.
        await new.embeddings.fill()
        assert not noted(await new.search("key"))
        await new.add_documents(documents(2, 300))
        assert not noted(await new.search("key"))
        await old.add_documents([Document("another text", id="d0")])
        assert noted(await new.search("key"))
        assert await queued(new) == ["embed"]  # one, however often
        async with client_of(database_url) as client:
            assert await client.work(drain=True) == 1
        assert not noted(await new.search("key"))
        assert [entry.lacking for entry in await new.embeddings.list()][1] == 0
        await old.add_documents([Document("yet another text", id="d0")])
        assert await queued(new) == ["embed"]


@pytest.mark.parametrize("behind", [False, True], ids=["ahead", "behind the page"])
async def test_what_is_written_while_vectors_are_made_stays_noted(database_url, old, new, behind):
    """If another process makes all vectors meanwhile, a text behind the page leaves the number of writes as it was."""
    await old.add_documents(documents(1, 20))

    async def meanwhile():
        if behind:
            assert await new.embeddings.fill() == 1
        await old.add_documents([Document("key", id="a0")] if behind else documents(1, 10))

    loop = asyncio.get_running_loop()

    class Between(OtherEmbedder):
        def embed_documents(self, texts):
            if list(texts) != [probe.TEXT]:
                asyncio.run_coroutine_threadsafe(meanwhile(), loop).result(LIMIT)
            return super().embed_documents(texts)

    async with opened(database_url, Between()) as filling:
        await filling.embeddings.fill()
        if not behind:
            assert noted(await filling.search("key"))
    async with opened(database_url, new_model()) as fresh:
        if behind:
            assert [entry.lacking for entry in await fresh.embeddings.list()][1] == 1
            assert noted(await fresh.search("key"))
        assert await fresh.embeddings.fill() == 1
        assert not noted(await fresh.search("key"))
        assert [entry.lacking for entry in await fresh.embeddings.list()][1] == 0


async def test_what_a_transaction_adds_is_noted_when_it_commits(database_url, new):
    async with opened(database_url) as old, await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute("SELECT 1")
        await old.using(connection).add_documents(documents(1, 20))
        await connection.rollback()
        assert not noted(await new.search("key"))
        assert await queued(new) == []
        await connection.execute("SELECT 1")
        await old.using(connection).add_documents(documents(1, 20))
        await connection.commit()
        assert noted(await new.search("key"))
        assert await queued(new) == ["embed"]
        # The job that a writer relies on does not run before it commits.
        await connection.execute("SELECT 1")
        await old.using(connection).add_documents(documents(1, 30))
        async with client_of(database_url) as client:
            working = asyncio.ensure_future(client.work(drain=True))
            with psycopg.connect(database_url, autocommit=True) as looking:
                await eventually(lambda: working.done() or waiting(looking))
            await connection.commit()
            await working
            assert noted(await new.search("key"))
            assert await queued(new) == ["embed"]
            assert await client.work(drain=True) == 1
            assert not noted(await new.search("key"))


async def test_going_back_without_the_model_is_noted(database_url, new):
    await new.add_documents(documents(1, 20))
    async with opened(database_url, "none") as back:
        await back.embeddings.roll_back(force=True)
    async with opened(database_url) as old:
        assert noted(await old.search("key"))
        await old.embeddings.fill()
        assert not noted(await old.search("key"))


async def test_a_version_in_use_is_not_dropped(database_url, old, monkeypatch):
    async with opened(database_url, "none") as other:
        with pytest.raises(ConfigurationError, match="version 1 serves"):
            await other.embeddings.drop(1)
        with pytest.raises(ConfigurationError, match=r"has no version 7 .*; it has 1"):
            await other.embeddings.drop(7)
        await changed(database_url)
        with pytest.raises(StoreError, match="used version 1"):
            await other.embeddings.drop(1)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("UPDATE semlex.embedding_version SET last_used_at = last_used_at - interval '1 hour'")
            assert (await other.embeddings.list())[0].idle_seconds > 3_000
            begun = connection.execute("SELECT clock_timestamp()").fetchone()
            await old.search("key", 3)
            used, serving = await other.embeddings.list()
            passed = connection.execute("SELECT extract(epoch FROM clock_timestamp() - %s)", begun).fetchone()
        assert used.idle_seconds <= passed[0]
        assert serving.idle_seconds is None
        with pytest.raises(StoreError, match="used version 1"):
            await other.embeddings.drop(1)
        monkeypatch.setattr(embedding_versions, "IDLE_SECONDS", 0.0)
        await other.embeddings.drop(1)
    assert versions(database_url) == (2, {2: False})
    search = partial(old.search, "key", 3)
    adding = partial(old.add_documents, documents(1, 70))
    for work in (search, partial(search, mode="vector"), adding, old.embeddings.fill):
        with pytest.raises(ModelMismatchError, match="were dropped since it was opened: open it again"):
            await work()
    with pytest.raises(ModelMismatchError, match="semlex models set"):
        await opened(database_url).initialize()
    # What needs no vectors goes on.
    await old.delete(["d1"])
    assert await old.count() == 9
    async with opened(database_url, new_model()) as new:
        assert len(await new.search("key vault", 20)) == 9


async def test_a_version_is_dropped_although_the_answer_is_lost(database_url, new, monkeypatch):
    lost = lose_answers(monkeypatch, "drop an embedding version")
    await new.embeddings.drop(1, force=True)
    assert lost == {"drop an embedding version"}
    assert versions(database_url) == (2, {2: False})
    with pytest.raises(ConfigurationError, match="has no version 1"):
        await new.embeddings.drop(1)


async def test_a_program_without_a_model_goes_with_the_serving_version(database_url, old, monkeypatch):
    async with opened(database_url, "none") as words:
        await words.search("key", 3)
        await changed(database_url)
        assert (await words.search("key", 3)).warnings == []
        assert [entry.idle_seconds is None for entry in await words.embeddings.list()] == [False, True]
        monkeypatch.setattr(embedding_versions, "IDLE_SECONDS", 0.0)
        await words.embeddings.drop(1)
        assert len(await words.search("key vault dome comet meteor shutter banana ship lamp", 20)) > 0
        await words.add_documents(documents(1, 30))
        await words.delete(["d2"])
        assert (await words.status()).embedded == 9


async def test_a_process_with_a_third_model_adds_nothing_during_a_run_and_then_searches_by_words(database_url):
    """It was opened when there were no vectors at all."""
    async with opened(database_url, "none") as words, opened(database_url) as third:
        await words.add_documents(documents(10))
        with pytest.raises(ModelError, match="gone"):
            await words.embeddings.change(FailingEmbedder(0))
        with pytest.raises(ModelMismatchError, match=r"first vectors .* are being made, with tests/other"):
            await third.add_documents(documents(1, 40))
        await words.add_documents(documents(1, 40))
        assert (await words.embeddings.change(new_model())).embedded == 11
        found = await third.search("key vault", 5)
        assert found.mode == "keyword"
        [note] = found.warnings
        assert "uses keyword search only" in note
        with pytest.raises(ModelMismatchError):
            await third.search("key", mode="vector")
        with pytest.raises(ModelMismatchError):
            await third.add_documents(documents(1, 20))


async def test_a_role_that_may_only_read_goes_on(database_url, old, caplog):
    before = told(await old.search("key vault", 5))
    await changed(database_url)
    caplog.set_level(logging.INFO, "semlex")
    with new_role(database_url, "USAGE ON SCHEMA semlex", "SELECT ON ALL TABLES IN SCHEMA semlex") as role:
        async with opened(make_conninfo(database_url, user=role)) as reader:
            for _ in range(2):
                assert told(await reader.search("key vault", 5)) == before
    # Tried once, and never again.
    assert len([one for one in caplog.records if "could not be recorded" in one.getMessage()]) == 1


async def test_back_and_forth(database_url, old):
    before = told(await old.search("key vault", 5))
    with pytest.raises(ConfigurationError, match="no earlier vectors to go back to"):
        await old.embeddings.roll_back()
    await changed(database_url)
    async with opened(database_url, new_model()) as new:
        await new.add_documents(documents(5, 20))
        report = await old.embeddings.roll_back()
        assert (report.version, report.previous, report.embedded, report.lacking) == (1, 2, 5, 0)
        assert versions(database_url) == (1, {1: False, 2: False})
        # The other way round now.
        assert (await new.search("key", 3)).embedding_model == "tests/other"
        assert (await new.embeddings.roll_back()).version == 2
    assert versions(database_url)[0] == 2
    async with opened(database_url) as again:
        await again.delete([f"d{number}" for number in range(20, 25)])
        assert told(await again.search("key vault", 5)) == before


async def test_back_without_the_old_model(database_url, new):
    report = await new.embeddings.roll_back()  # nothing is missing
    assert (report.version, report.embedded) == (1, 0)
    await new.embeddings.roll_back()
    await new.add_documents(documents(3, 20))
    with pytest.raises(StoreError, match=r"3 chunks have no vector of semlex.testing/hash .*--force"):
        await new.embeddings.roll_back()
    assert versions(database_url)[0] == 2
    with pytest.raises(ModelMismatchError, match="makes other vectors"):
        await new.embeddings.roll_back(new_model())
    assert (await new.embeddings.roll_back(force=True)).lacking == 3
    await new.embeddings.roll_back()
    assert (await new.embeddings.roll_back(old_model())).embedded == 3
    assert versions(database_url)[0] == 1
