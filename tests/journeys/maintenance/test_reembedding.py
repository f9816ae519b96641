"""Another embedding model for a collection: made beside the old one, looked at, and switched to."""

import asyncio
from functools import partial
from itertools import product

import numpy as np
import psycopg
import pytest

from semlex import open_collection
from semlex.embedding import probe
from semlex.errors import ConfigurationError, ModelError, ModelMismatchError, StoreError
from semlex.maintenance import reembed, version_fill
from semlex.store import embedding_versions
from semlex.store.indexes import choice
from semlex.store.indexes.options import HnswIndex, IvfflatIndex
from semlex.types.documents import Document
from tests.support.databases import execute
from tests.support.job_clients import Blocking, reached
from tests.support.manual_clock import ManualClock
from tests.support.two_models import (
    DIMENSIONS,
    NAME,
    OtherEmbedder,
    assert_vectors,
    new_model,
    old_model,
    opened,
    texts_of,
    told,
    vectors_of,
    versions,
)
from tests.support.waiting import LIMIT, eventually

pytestmark = pytest.mark.slow  # most of them

WORDS = "key vault dome comet meteor shutter banana ship lamp zenith rotate store open close yellow".split()  # noqa: SIM905
COUNT = 60  # documents of the collection
QUESTIONS = ("key vault", "yellow banana", "comet zenith dome", "ship")


def documents(count, start=0):
    numbers = np.random.default_rng(start)
    return [Document(" ".join(numbers.choice(WORDS, 6)), id=f"d{number}") for number in range(start, start + count)]


@pytest.fixture(autouse=True)
def long_runs(monkeypatch):
    """Pages are small, every search looks which versions there are, and no run is over because this machine is slow."""
    monkeypatch.setattr(embedding_versions, "RUN_SECONDS", 600.0)
    monkeypatch.setattr(version_fill, "PAGE_ROWS", 10)
    monkeypatch.setattr(version_fill, "LAST_ROWS", 4)
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 0.0)


@pytest.fixture
async def holder(database_url, long_runs):
    """The collection, opened with the old model."""
    async with opened(database_url) as holder:
        await holder.add_documents(documents(COUNT))
        yield holder


async def found_by(retriever):
    return [told(await retriever.search(question, 10)) for question in QUESTIONS]


async def answers(url, model):
    async with opened(url, model) as retriever:
        return await found_by(retriever)


async def test_the_whole_way(database_url, holder):
    steps = []
    before = await found_by(holder)
    async with opened(database_url, "none") as changing:
        dry = await changing.embeddings.change(new_model(), dry_run=True)
        assert (dry.version, dry.previous, dry.embedded, dry.chunks, dry.dry_run) == (None, 1, COUNT, COUNT, True)
        assert versions(database_url) == (1, {1: False})
        report = await changing.embeddings.change(new_model(), progress=steps.append)
    assert (report.version, report.previous, report.model) == (2, 1, "tests/other")
    assert (report.embedded, report.chunks, report.lacking, report.sampled) == (COUNT, COUNT, 0, 20)
    assert (report.recall, report.resumed, report.warnings) == (None, False, [])
    assert {step.stage for step in steps} == {"embed"}
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert versions(database_url) == (2, {1: False, 2: False})
    assert_vectors(vectors_of(database_url, 2), texts_of(database_url), new_model(), whole=True)
    # Who held the old model finds what he found before.
    assert await found_by(holder) == before
    async with opened(database_url, new_model()) as retriever:
        found = await retriever.search("key vault", 3)
        assert (found.embedding_model, found.warnings, found.without_vector) == ("tests/other", [], 0)
        status = await retriever.status()
        assert (status.embedding_version, status.serving_version, status.building_version) == (2, 2, None)
        assert (status.embedding_model, status.embedded) == ("tests/other", COUNT)
    assert execute(database_url, "SELECT token_counter FROM semlex.collection") == [("tests/other",)]
    async with opened(database_url, new_model(), collection="fresh") as fresh:
        await fresh.add_documents(documents(COUNT))
        after = await answers(database_url, new_model())
        assert after == await found_by(fresh)
    assert after != before
    assert await answers(database_url, None) == before


async def test_from_words_alone(database_url):
    async with opened(database_url, "none") as words:
        await words.add_documents(documents(30))
        assert (await words.search("key", 5)).mode == "keyword"
        report = await words.embeddings.change(new_model(), vector_storage="halfvec")
        assert (report.version, report.previous, report.storage, report.embedded) == (1, None, "halfvec", 30)
        # It neither has a model nor vectors of its own.
        assert (await words.search("key", 5)).warnings == []
        await words.add_documents(documents(3, 100))
        await words.delete(["d1"])
    async with opened(database_url, new_model()) as retriever:
        found = await retriever.search("key vault", 40)
        assert (found.mode, found.without_vector) == ("hybrid", 3)
        assert len(vectors_of(database_url, 1)) == 29
        assert await retriever.embeddings.fill() == 3
        assert (await retriever.search("key vault", 40)).without_vector == 0


async def test_from_vectors_that_were_given(database_url):
    texts = documents(20)
    given = np.random.default_rng(1).normal(size=(20, DIMENSIONS)).astype(np.float32)
    async with opened(database_url, "none") as giver:
        await giver.add_documents(texts, given)
        before = told(await giver.search(vector=given[3], top_k=5))
        assert (await giver.embeddings.change(new_model())).version == 2
        # Its vectors are those of the version that it began with.
        assert told(await giver.search(vector=given[3], top_k=5)) == before
        async with opened(database_url, "none") as words:
            await words.add_documents(documents(1, 50))
        with pytest.raises(StoreError, match=r"1 chunks have no vector of given .*--force"):
            await giver.embeddings.roll_back()
        assert (await giver.embeddings.roll_back(force=True)).lacking == 1


async def test_a_storage_of_its_own_for_the_same_model(holder):
    before = [hit.id for hit in await holder.search("key vault", 3)]
    report = await holder.embeddings.change(old_model(), vector_storage="halfvec")
    assert (report.version, report.storage) == (2, "halfvec")
    # The vectors are of its own model: it goes along.
    assert [hit.id for hit in await holder.search("key vault", 3)] == before
    assert (await holder.search("key", 3)).warnings == []
    assert holder.info.embedding.version == 2


class FailingEmbedder(OtherEmbedder):
    """Fails at the text after so many of the collection; as if it were the machine that ends."""

    def __init__(self, texts):
        super().__init__()
        self.left = texts

    def embed_documents(self, texts):
        self.left -= len(texts) if list(texts) != [probe.TEXT] else 0
        if self.left < 0:
            raise ModelError("the machine is gone")
        return super().embed_documents(texts)


async def test_a_run_that_failed_is_continued_or_given_up(database_url, holder):
    with pytest.raises(ModelError, match="gone"):
        await holder.embeddings.change(FailingEmbedder(25))
    assert versions(database_url) == (1, {1: False, 2: True})
    assert len(vectors_of(database_url, 2)) == 20
    building = (await holder.status()).building_version
    assert (building.version, building.vectors, building.is_running) == (2, 20, False)
    # It does not answer, and no other model begins beside it.
    with pytest.raises(ModelMismatchError, match="being made: wait until semlex models set"):
        await opened(database_url, new_model()).initialize()
    with pytest.raises(ConfigurationError, match=r"tests/other .* was begun and is not finished.*--restart"):
        await holder.embeddings.change(OtherEmbedder(salt="third"))
    report = await holder.embeddings.change(new_model())
    assert (report.resumed, report.embedded, report.version) == (True, COUNT - 20, 2)
    await holder.embeddings.roll_back()
    await holder.embeddings.drop(2, force=True)
    with pytest.raises(ModelError):
        await holder.embeddings.change(FailingEmbedder(25))
    report = await holder.embeddings.change(OtherEmbedder(salt="third"), restart=True)
    assert (report.version, report.embedded, report.model) == (4, COUNT, "tests/third")
    # No number is given twice, not even that of the last one.
    assert versions(database_url) == (4, {1: False, 4: False})
    await holder.embeddings.roll_back()
    await holder.embeddings.drop(4, force=True)
    assert (await holder.embeddings.change(new_model())).version == 5


async def test_a_search_whose_vectors_were_dropped_says_so(database_url, holder, monkeypatch):
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", LIMIT)
    async with opened(database_url) as other:
        await other.embeddings.change(new_model())
        await other.embeddings.drop(1, force=True)
    with pytest.raises(ModelMismatchError, match=r"these vectors were dropped.*open it again"):
        await holder.search("key", mode="vector")
    hits = await holder.search("key")
    assert any("were dropped" in warning for warning in hits.warnings)
    assert len(hits)


async def test_wrong_arguments_the_same_model_and_a_user_s_own_connection_are_refused(database_url, holder):
    change = partial(holder.embeddings.change, model=new_model())
    for method, arguments in (
        (change, ("model", "dimensions", "tokenizer", "vector_storage", "restart", "dry_run", "progress")),
        (holder.embeddings.roll_back, ("model", "force", "progress")),
        (partial(holder.embeddings.drop, version=1), ("version", "force")),
    ):
        for argument, wrong in product(arguments, (1.5, b"zebra", [], {}, object())):
            with pytest.raises(ConfigurationError, match=argument):
                await method(**{argument: wrong})
    assert versions(database_url) == (1, {1: False})
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        with pytest.raises(ConfigurationError, match="without connection="):
            await holder.using(connection).embeddings.change(new_model())
    with pytest.raises(ConfigurationError, match=r"has the model .* already.*semlex models fill"):
        await holder.embeddings.change(old_model())
    await holder.embeddings.change(new_model())
    with pytest.raises(ConfigurationError, match=r"as version 1: go back .*semlex models rollback"):
        await holder.embeddings.change(old_model())
    for none in (None, "", "none"):
        with pytest.raises((ConfigurationError, ValueError)):
            await holder.embeddings.change(none)
    assert versions(database_url) == (2, {1: False, 2: False})


class WaitingEmbedder(Blocking, OtherEmbedder):
    """Waits at the first text of the collection, until it may go on."""


async def test_two_runs_at_once(database_url, holder):
    clock, model = ManualClock(), WaitingEmbedder(DIMENSIONS)
    first = asyncio.create_task(holder.embeddings.change(model))
    await reached(model)
    async with opened(database_url, clock=clock) as other:
        assert [entry.is_running for entry in await other.embeddings.list()] == [False, True]
        for changed, restart in ((new_model(), False), (OtherEmbedder(salt="third"), True)):
            # It waits whether the first one says that it goes on.
            second = asyncio.create_task(other.embeddings.change(changed, restart=restart))
            await clock.passes_until(second.done, 601)
            with pytest.raises(StoreError, match="another process is changing the model"):
                await second
        with pytest.raises(StoreError, match="is filling version 2"):
            await other.embeddings.drop(2)
    model.may_go_on.set()
    assert (await first).embedded == COUNT


async def test_a_run_that_was_interrupted_is_continued_at_once(database_url, holder, monkeypatch):
    model = WaitingEmbedder(DIMENSIONS)
    first = asyncio.create_task(holder.embeddings.change(model))
    await reached(model)
    first.cancel()
    model.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert [entry.is_running for entry in await holder.embeddings.list()] == [False, False]
    # The server's clock has stepped back: a dead run seems to have hours left.
    monkeypatch.setattr(embedding_versions, "RUN_SECONDS", 0.05)
    execute(database_url, "UPDATE semlex.embedding_version SET run_until = now() + interval '1 hour'")
    assert (await holder.embeddings.change(new_model())).resumed


async def test_vectors_are_dropped_after_the_clock_has_stepped_back(database_url, holder, monkeypatch):
    await holder.embeddings.change(new_model())
    execute(
        database_url,
        "UPDATE semlex.embedding_version SET run_until = now() + interval '1 hour', "
        "last_used_at = now() + interval '1 hour' WHERE version = 1",
    )
    assert [entry.is_running for entry in await holder.embeddings.list()] == [False, False]
    with pytest.raises(StoreError, match=r"is filling version 1, .* try again in [0-9]+ s"):
        await holder.embeddings.drop(1)
    monkeypatch.setattr(embedding_versions, "RUN_SECONDS", 0.0)
    with pytest.raises(StoreError, match=r"used version 1 [0-9]+ s ago"):
        await holder.embeddings.drop(1)
    monkeypatch.setattr(embedding_versions, "IDLE_SECONDS", 0.0)
    await holder.embeddings.drop(1)


async def test_a_run_that_was_taken_over_writes_nothing(database_url, monkeypatch):
    # By its own clock no time passes: it does not say that it goes on, as if it stood still.
    async with opened(database_url, clock=ManualClock()) as one, opened(database_url) as other:
        await one.add_documents(documents(20))
        model = WaitingEmbedder(DIMENSIONS)
        with monkeypatch.context() as patched:
            patched.setattr(embedding_versions, "RUN_SECONDS", 0.1)
            first = asyncio.create_task(one.embeddings.change(model))
            await reached(model)

        async def is_over():
            return not any(entry.is_running for entry in await other.embeddings.list())

        await eventually(is_over)
        report = await other.embeddings.change(new_model())
        assert (report.embedded, report.resumed) == (20, True)
        model.may_go_on.set()
        with pytest.raises(StoreError, match="taken over version 2"):
            await first
        assert_vectors(vectors_of(database_url, 2), texts_of(database_url), new_model(), whole=True)


async def test_a_model_that_changed_meanwhile_does_not_serve(database_url, holder):
    class ChangedEmbedder(OtherEmbedder):
        """Makes other vectors from some text on, as a server does whose model was exchanged."""

        left = COUNT

        def embed_documents(self, texts):
            self.left -= len(texts)
            model = super() if self.left >= 0 else OtherEmbedder(salt="swapped")
            return model.embed_documents(texts)

    before = told(await holder.search("key", 5))
    with pytest.raises(ModelError, match=r"no longer makes the stored vectors of .* texts.*--restart"):
        await holder.embeddings.change(ChangedEmbedder())
    assert versions(database_url) == (1, {1: False, 2: True})
    assert told(await holder.search("key", 5)) == before


@pytest.mark.parametrize("index", [None, HnswIndex(m=8, ef_construction=32), IvfflatIndex(lists=4, probes=4)])
async def test_the_index_is_built_and_measured_before(database_url, holder, monkeypatch, index):
    monkeypatch.setattr(choice, "INDEX_FROM_ROWS", COUNT - 10)
    await holder.indexes.create(index)
    report = await holder.embeddings.change(new_model())
    kind = "ivfflat_2" if isinstance(index, IvfflatIndex) else "hnsw_2"
    assert report.indexes == [kind]
    assert report.recall >= 0.8
    async with opened(database_url, new_model()) as retriever:
        [stored] = (await retriever.status()).vector_indexes
        assert stored.name == f"{NAME}_{kind}"
        if isinstance(index, HnswIndex):
            assert (stored.m, stored.ef_construction) == (8, 32)


async def test_an_index_that_finds_too_little_stops_it(database_url, holder, monkeypatch):
    monkeypatch.setattr(reembed, "MIN_RECALL", 1.01)
    await holder.indexes.create(HnswIndex())
    with pytest.raises(StoreError, match=r"finds 100% of the 10 nearest.*semlex maintain create-index"):
        await holder.embeddings.change(new_model())
    assert versions(database_url)[0] == 1
    monkeypatch.setattr(reembed, "MIN_RECALL", 0.8)
    report = await holder.embeddings.change(new_model())
    assert (report.resumed, report.embedded) == (True, 0)


async def test_an_index_that_the_new_vectors_cannot_have(holder):
    await holder.indexes.create(IvfflatIndex(lists=2))
    report = await holder.embeddings.change(OtherEmbedder(5_000))
    assert report.indexes == ["hnsw_2"]
    assert [warning for warning in report.warnings if "not possible for the new vectors" in warning]
