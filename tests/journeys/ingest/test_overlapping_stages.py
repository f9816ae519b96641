"""The stages of a run over files: at work at the same time, a bounded way ahead of each other, and told of."""

from __future__ import annotations

import asyncio

import pytest

from semlex.embedding import probe
from semlex.ingest import run as file_run
from semlex.ingest.indexer import Indexer
from semlex.testing import HashEmbedder
from tests.support.retrievers import opened
from tests.support.waiting import eventually

FILES = 12


class Counted(HashEmbedder):
    """Counts the texts that it was given."""

    def __init__(self):
        super().__init__(8)
        self.texts = 0

    def embed_documents(self, texts):
        self.texts += len(texts) if list(texts) != [probe.TEXT] else 0
        return super().embed_documents(texts)


@pytest.fixture
def pages(tmp_path):
    for number in range(FILES):
        (tmp_path / f"{number:02}.txt").write_text(f"Text {number}.\n", encoding="utf-8")
    return tmp_path


class Held:
    """Lets nothing be written until it is let go, and sees how far the other stages have come."""

    def __init__(self, monkeypatch):
        self.let_go = asyncio.Event()
        self.reached = asyncio.Event()
        self.prepared = []
        self.written = self.most_ahead = 0
        write, prepare = Indexer.write_batch, file_run.prepare_file

        async def held(indexer, *arguments):
            self.reached.set()
            await self.let_go.wait()
            await write(indexer, *arguments)
            self.written += 1  # a batch is a file here

        def seen(file, *arguments, **options):
            self.prepared.append(file.uri)
            self.most_ahead = max(self.most_ahead, len(self.prepared) - self.written)
            return prepare(file, *arguments, **options)

        monkeypatch.setattr(Indexer, "write_batch", held)
        monkeypatch.setattr(file_run, "prepare_file", seen)


async def test_while_one_batch_is_written_others_are_embedded_and_read(database_url, pages, monkeypatch):
    monkeypatch.setattr(file_run, "BATCH_CHUNKS", 1)
    held, model = Held(monkeypatch), Counted()
    async with opened(database_url, model) as store:
        run = asyncio.create_task(store.index(pages))
        await held.reached.wait()
        # One is being written, one waits with its vector, and so on back to the file that waits to be compared.
        await eventually(lambda: model.texts >= 2 and len(held.prepared) >= 4)
        held.let_go.set()
        report = await run
        assert held.most_ahead == 4
        assert (report.added, report.embedded, model.texts) == (FILES, FILES, FILES)
        assert set(report.stage_seconds) == {"read", "compare", "embed", "write"}


async def test_files_are_read_ahead_up_to_a_bound(database_url, pages, monkeypatch):
    monkeypatch.setattr(file_run, "BATCH_CHUNKS", 1)
    monkeypatch.setattr(file_run, "MAX_BYTES_AHEAD", 0)
    held = Held(monkeypatch)
    async with opened(database_url, Counted()) as store:
        run = asyncio.create_task(store.index(pages))
        await held.reached.wait()
        held.let_go.set()
        assert (await run).added == FILES
        assert held.most_ahead == 1


async def test_a_pool_of_one_connection_is_enough(database_url, pages):
    async with opened(database_url, Counted(), max_connections=1) as store:
        assert (await store.index(pages)).added == FILES
        (pages / "00.txt").write_text("Changed.\n", encoding="utf-8")
        assert (await store.index(pages)).changed == 1


async def test_every_stage_tells_how_far_it_is(database_url, pages, monkeypatch):
    monkeypatch.setattr(file_run, "BATCH_CHUNKS", 1)
    told = []
    async with opened(database_url, Counted()) as store:
        await store.index(pages, progress=told.append)
    for stage, unit in {"read": "files", "embed": "chunks", "write": "chunks"}.items():
        own = [step for step in told if step.stage == stage]
        assert [step.done for step in own] == list(range(1, FILES + 1))
        assert {step.unit for step in own} == {unit}
        assert all(step.total is not None and step.done <= step.total for step in own)
        assert own[-1].total == FILES
