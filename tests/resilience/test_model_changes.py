"""A change of the model under load, and killed wherever: no search fails or mixes two models, no write is lost."""

import asyncio
import json
import random
from contextlib import ExitStack

import numpy as np
import pytest

from semlex import open_collection
from semlex.errors import ModelMismatchError
from semlex.maintenance import version_fill
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.types.documents import Document
from tests.journeys.maintenance.test_reembedding import documents
from tests.support.clients import old_model_client, reembedding_client
from tests.support.clients.old_model_client import NAME, WORDS
from tests.support.databases import execute
from tests.support.programs import PROCESSES, Program
from tests.support.retrievers import sync_opened
from tests.support.two_models import assert_vectors, new_model, old_model, opened, texts_of, told, vectors_of, versions
from tests.support.waiting import eventually

PROGRAMS = "ab"  # their names


async def new_model_answers(url):
    """Whether the collection opens with the new model; then its answer must be that of this model."""
    model, query, (serving, _) = new_model(), "key vault dome", versions(url)
    try:
        async with opened(url, model) as retriever:
            found = await retriever.search(query, 10)
    except ModelMismatchError:
        assert serving == 1
        return False
    assert found.embedding_model == model.identity.model
    scored = [hit for hit in found if hit.vector_score is not None]
    wanted = model.embed_documents([hit.content for hit in scored]) @ model.embed_query(query)
    assert np.abs(wanted - [hit.vector_score for hit in scored]).max() <= 1e-4
    return True


@pytest.mark.timeout(3600)
async def test_nothing_fails_and_nothing_is_lost(database_url, monkeypatch, full):
    monkeypatch.setattr(version_fill, "PAGE_ROWS", 50)
    rows = 20_000 if full else 300
    first = {one.id: one.content for one in documents(rows)}
    async with opened(database_url) as loading:
        await loading.add_documents([Document(text, id=one) for one, text in first.items()])
    ended = PROCESSES.Event()
    with ExitStack() as stack:
        programs = [stack.enter_context(Program(old_model_client.main, database_url, own, ended)) for own in PROGRAMS]
        for program in programs:
            program.until_said("open")
        assert not await new_model_answers(database_url)
        searching = asyncio.create_task(eventually(lambda: new_model_answers(database_url)))
        async with opened(database_url, "none") as changing:
            report = await changing.embeddings.change(new_model())
        assert (report.version, report.lacking) == (2, 0)
        assert await searching
        for program in programs:
            await asyncio.to_thread(program.until_said, "went-on")
        ended.set()
        assert [await asyncio.to_thread(program.ended) for program in programs] == [0] * len(programs)
        told = [json.loads(program.said.splitlines()[-1]) for program in programs]
    for one in told:
        assert (one["failed"], one["mixed"], one["notes"]) == ([], 0, 1)
        assert min(one["searches"], one["writes"]) > 0
    present = first | {key: text for one in told for key, text in one["present"].items()}
    assert texts_of(database_url) == present
    assert_vectors(vectors_of(database_url, 1), present, old_model(), whole=True)
    assert_vectors(vectors_of(database_url, 2), present, new_model(), whole=False)
    async with opened(database_url, new_model()) as new_retriever:
        await new_retriever.embeddings.fill()
    assert_vectors(vectors_of(database_url, 2), present, new_model(), whole=True)


async def test_behind_a_transaction_pooler(database_url, monkeypatch):
    monkeypatch.setattr(version_fill, "PAGE_ROWS", 10)
    monkeypatch.setattr(version_fill, "LAST_ROWS", 4)
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(open_collection, "NOTE_SECONDS", 0.0)
    async with TransactionPooler(database_url, 3) as pooler, asyncio.timeout(120), opened(pooler.address) as old:
        await old.add_documents(documents(60))
        before = [hit.id for hit in await old.search(" ".join(WORDS[:2]), 5)]
        assert (await old.embeddings.change(new_model())).embedded == 60
        assert [hit.id for hit in await old.search(" ".join(WORDS[:2]), 5)] == before
        await old.add_documents(documents(3, 100))
        assert (await old.embeddings.roll_back()).version == 1
        await old.embeddings.drop(2, force=True)
        assert [entry.version for entry in await old.embeddings.list()] == [1]
    assert pooler.discarded == 0


ROWS = 60
# Where one run after another is killed; by the last, the new model serves.
MOMENTS = [
    ("begin to change the embedding model", "worked", 1),
    ("begin to change the embedding model", "committed", 1),
    ("write embeddings", "worked", 2),
    ("write embeddings", "committed", 2),
    ("switch to another embedding version", "worked", 1),
    ("switch to another embedding version", "committed", 1),
]


def texts(chance, numbers):
    return [Document(" ".join(chance.choices(WORDS, k=5)), id=f"d{number}") for number in numbers]


@pytest.mark.timeout(3600)
def test_a_kill_at_every_moment_and_then_it_is_done(database_url, full):
    for _ in range(20 if full else 1):
        chance = random.Random(random.getrandbits(64))
        with sync_opened(database_url, old_model(), collection=NAME) as old:
            old.add_documents(texts(chance, range(ROWS)))
            for moment in MOMENTS:
                assert versions(database_url)[0] == 1, moment
                with Program(reembedding_client.main, database_url, moment) as changing:
                    changing.until_stopped()
                    changing.kill()
                execute(database_url, "UPDATE semlex.embedding_version SET run_until = now()")
                # The old model answers all the while, and writes.
                assert told(old.search("key vault", 5))
                old.add_documents(texts(chance, chance.choices(range(ROWS), k=5)))
                old.delete([f"d{chance.randrange(ROWS)}"])
                assert_vectors(vectors_of(database_url, 1), texts_of(database_url), old_model(), whole=True)
            assert versions(database_url) == (2, {1: False, 2: False})
            assert_vectors(vectors_of(database_url, 2), texts_of(database_url), new_model(), whole=False)
        with sync_opened(database_url, new_model(), collection=NAME) as new:
            new.embeddings.fill()
            assert "hnsw_2" in new.status().vector_indexes[-1].name
            assert_vectors(vectors_of(database_url, 2), texts_of(database_url), new_model(), whole=True)
            new.drop_collection()
