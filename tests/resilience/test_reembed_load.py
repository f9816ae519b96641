"""A change of the model under load: no search fails or mixes two models, and no write is lost."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

from semlex import open_collection
from semlex.errors import ModelMismatchError
from semlex.maintenance import version_fill
from semlex.types.documents import Document
from tests.journeys.maintenance.test_reembedding import documents
from tests.support.clients.old_model_client import WORDS
from tests.support.folders import CLIENTS, ROOT
from tests.support.transaction_pooler import TransactionPooler
from tests.support.two_models import assert_vectors, new_model, old_model, opened, texts_of, vectors_of, versions

CLIENT = CLIENTS / "old_model_client.py"
CLIENTS_AT_ONCE = 2


class OldPrograms:
    """Processes that search and write with the old model.

    Args:
        url: The database.
    """

    def __init__(self, url: str) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(CLIENT), url, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"},
            )
            for name in "ab"[:CLIENTS_AT_ONCE]
        ]
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "open\n", (line, process.stderr.read() if process.stderr else "")

    def end(self) -> list[dict[str, Any]]:
        """What each has done."""
        told = []
        for process in self._processes:
            said, errors = process.communicate()
            assert process.returncode == 0, errors
            told.append(json.loads(said))
        return told


async def searches_of_the_new_model(url: str, stop: asyncio.Event) -> int:
    """Opens the collection with the new model again and again; how often it answered."""
    model, answered = new_model(), 0
    while not stop.is_set():
        serving, _ = versions(url)
        try:
            async with opened(url, model) as retriever:
                found = await retriever.search("key vault dome", 10)
        except ModelMismatchError:
            assert serving == 1
            await asyncio.sleep(0.05)
            continue
        assert found.embedding_model == model.identity.model
        scored = [hit for hit in found if hit.vector_score is not None]
        wanted = model.embed_documents([hit.content for hit in scored]) @ model.embed_query("key vault dome")
        assert np.abs(wanted - [hit.vector_score for hit in scored]).max() <= 1e-4
        answered += 1
        await asyncio.sleep(0.05)
    return answered


@pytest.mark.timeout(3600)
async def test_nothing_fails_and_nothing_is_lost(
    database_url: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr(version_fill, "PAGE_ROWS", 50)
    rows = 20_000 if full else 600
    first = {one.id: one.content for one in documents(rows)}
    async with opened(database_url) as loading:
        await loading.add_documents([Document(text, id=one) for one, text in first.items()])
    programs = await asyncio.to_thread(OldPrograms, database_url)
    stop = asyncio.Event()
    searching = asyncio.create_task(searches_of_the_new_model(database_url, stop))
    try:
        async with opened(database_url, "none") as changing:
            report = await changing.reembed(new_model())
        assert (report.version, report.lacking) == (2, 0)
        await asyncio.sleep(10 if full else 1.5)
    finally:
        stop.set()
        told = await asyncio.to_thread(programs.end)
    assert await searching > 0
    for one in told:
        assert one["failed"] == []
        assert one["mixed"] == 0
        assert one["notes"] == 1
        assert one["searches"] > 0
        assert one["writes"] > 0
    present = first | {key: text for one in told for key, text in one["present"].items()}
    assert texts_of(database_url) == present
    assert_vectors(vectors_of(database_url, 1), present, old_model(), whole=True)
    assert_vectors(vectors_of(database_url, 2), present, new_model(), whole=False)
    async with opened(database_url, new_model()) as new:
        await new.embed_missing()
    assert_vectors(vectors_of(database_url, 2), present, new_model(), whole=True)


async def test_behind_a_transaction_pooler(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_fill, "PAGE_ROWS", 10)
    monkeypatch.setattr(version_fill, "LAST_ROWS", 4)
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(open_collection, "NOTE_SECONDS", 0.0)
    async with AsyncExitStack() as stack:
        pooler = await stack.enter_async_context(TransactionPooler(database_url, 3))
        await stack.enter_async_context(asyncio.timeout(120))
        old = await stack.enter_async_context(opened(pooler.address))
        await old.add_documents(documents(60))
        before = [hit.id for hit in await old.search(" ".join(WORDS[:2]), 5)]
        assert (await old.reembed(new_model())).embedded == 60
        assert [hit.id for hit in await old.search(" ".join(WORDS[:2]), 5)] == before
        await old.add_documents(documents(3, 100))
        assert (await old.rollback_embeddings()).version == 1
        await old.drop_embeddings(2, force=True)
        assert [entry.version for entry in await old.embeddings()] == [1]
    assert pooler.discarded == 0
