"""Files in: what is read, cut, embedded and stored, again and again."""

import asyncio
import threading
from functools import partial
from itertools import accumulate

import pytest

from semlex.errors import ConfigurationError, EmbeddingsMissingError, ModelMismatchError, StoreError
from semlex.ingest import run as file_run
from semlex.ingest.indexer import Indexer
from tests.support.folders import folder_with
from tests.support.job_clients import Blocking, reached
from tests.support.retrievers import opened
from tests.support.synchronised import CountingEmbedder
from tests.support.waiting import LIMIT, eventually, turns

PAGE = (
    "# Keys\n\nHow keys are kept.\n\n## Rotation\n\nRotate a key every ninety days, and revoke the old one.\n\n"
    "### By hand\n\nOpen the console and press the button.\n\n## Storage\n\nKeys are stored in a vault.\n"
)
FILES = 20
retriever = partial(opened, model=64, collection="files")


@pytest.fixture
def pages(tmp_path):
    return folder_with(tmp_path, {f"{number:02}.txt": f"Text {number}.\n" for number in range(FILES)})


@pytest.fixture
def folder(tmp_path):
    page = "<html><head><title>Ships</title></head><body><h1>Ships</h1><p>A ship sails the sea.</p></body></html>"
    files = {"keys.md": PAGE, "fruit.txt": "A banana is a yellow fruit.\n", "sub/page.html": page}
    return folder_with(tmp_path / "docs", files)


async def test_a_folder_is_found_by_its_words_with_its_places(database_url, folder):
    seen = []
    async with retriever(database_url) as opened:
        with pytest.raises(ConfigurationError):
            await opened.index(folder, chunk_tokens=1)
        report = await opened.index(folder, chunk_tokens=200, overlap_tokens=20, progress=seen.append)
        assert (report.added, report.changed, report.unchanged, report.failed) == (3, 0, 0, 0)
        assert seen[-1].done == seen[-1].total == 3
        assert report.chunks == report.embedded == await opened.count()
        hit = (await opened.search("rotate a key every ninety days", top_k=1))[0]
        assert (hit.source_document, hit.heading_path[0]) == ("keys.md", "Keys")
        assert None not in (hit.char_start, hit.char_end)
        assert PAGE[hit.char_start : hit.char_end] == hit.content
        assert hit.line == PAGE[: hit.char_start].count("\n") + 1
        assert "**" in hit.excerpt
        assert (await opened.get([hit.id]))[0].content == hit.content
        ships = await opened.search("ship", top_k=1, filters={"source_document": "sub/page.html"})
        assert ships[0].heading_path == ("Ships",)
        only = await opened.index(folder, include=["*.txt"], exclude=["sub"], recursive=False)
        assert only.added + only.changed + only.unchanged == 1
        # A file that became empty leaves no chunk.
        (folder / "keys.md").write_text("", encoding="utf-8")
        await opened.index(folder)
        assert await opened.count({"source_document": "keys.md"}) == 0
    with pytest.raises(ModelMismatchError, match="64 dimensions"):
        async with retriever(database_url, model=32):
            pass


async def test_keywords_first_vectors_later(database_url, folder):
    async with retriever(database_url, model="none") as opened:
        await opened.index(folder)
        hits = await opened.search("banana")
        assert (hits.mode, hits[0].source_document) == ("keyword", "fruit.txt")
        with pytest.raises(EmbeddingsMissingError, match="semlex models fill"):
            await opened.search("banana", mode="vector")
        with pytest.raises(EmbeddingsMissingError):
            await opened.embeddings.fill()
    seen = []
    async with retriever(database_url) as opened:
        chunks = await opened.count()
        assert await opened.embeddings.fill(progress=seen.append) == chunks
        assert (seen[-1].done, seen[-1].total) == (chunks, chunks)
        assert await opened.embeddings.fill() == 0
        hits = await opened.search("banana")
        assert (hits.mode, hits[0].vector_rank is None) == ("hybrid", False)
        # The chunks are still counted by words: adding files goes on in the same way.
        (folder / "more.txt").write_text("A cherry is red.", encoding="utf-8")
        assert (await opened.index(folder)).added == 1


async def test_two_first_runs_that_read_different_texts_leave_one_version(database_url, folder):
    page = folder / "keys.md"  # alone: a file that both cut alike would give them away by its keys
    page.write_text("# Keys\n\n" + "The first word of many. " * 200, encoding="utf-8")
    waiting = Blocking(64)
    async with retriever(database_url, model=waiting) as one, retriever(database_url) as other:
        slow = asyncio.ensure_future(one.index(page, chunk_tokens=400, overlap_tokens=0))
        await reached(waiting)
        page.write_text("# Keys\n\n" + "The second text differs. " * 200, encoding="utf-8")
        await other.index(page, chunk_tokens=400, overlap_tokens=0)
        waiting.may_go_on.set()
        # Whoever wrote last has replaced the other's chunks, so that a later run sees whether the file is another.
        assert (await slow).chunks == await one.count()
        assert (await one.index(page, chunk_tokens=400, overlap_tokens=0)).changed == 1
        words = {word for hit in await one.search("first second", top_k=100) for word in hit.content.split()}
        assert ("first" in words, "second" in words) == (False, True)


@pytest.mark.parametrize("ending", ["error", "cancellation"])
async def test_a_run_that_ends_early_leaves_nobody_reading(database_url, pages, monkeypatch, ending):
    monkeypatch.setattr(file_run, "BATCH_CHUNKS", 10)
    prepare, begun, ended = file_run.prepare_file, [], []
    ahead, let_go = threading.Event(), threading.Event()

    def held(file, *arguments, **options):
        begun.append(file.uri)
        if len(begun) > 10:
            ahead.set()
            assert let_go.wait(LIMIT)
        prepared = prepare(file, *arguments, **options)
        ended.append(file.uri)
        return prepared

    async def fail(*_):
        await asyncio.to_thread(ahead.wait, LIMIT)
        if ending == "error":
            raise StoreError("the server has gone")
        await asyncio.Event().wait()

    async with retriever(database_url) as opened:
        monkeypatch.setattr(file_run, "prepare_file", held)
        monkeypatch.setattr(Indexer, "write_batch", fail)
        await opened.count()  # connects, to a standby as well
        before = asyncio.all_tasks()
        run = asyncio.create_task(opened.index(pages))
        assert await asyncio.to_thread(ahead.wait, LIMIT)
        if ending == "cancellation":
            run.cancel()

        def is_cancelled():
            """Each stage cancels the one before it: the last to be asked is the one that reads."""
            stages = asyncio.all_tasks() - before - {run}
            return bool(stages) and all(stage.cancelling() for stage in stages)

        await eventually(is_cancelled)
        await turns()
        assert await opened.count() == 0  # a run that did not wait for the reader would be over
        assert not run.done()
        let_go.set()
        with pytest.raises(StoreError if ending == "error" else asyncio.CancelledError):
            await run
        assert (begun, len(ended)) == (ended, 11)
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize(("bytes_ahead", "most_ahead"), [(None, 4), (0, 1)])
async def test_while_one_batch_is_written_others_are_embedded_and_read_up_to_a_bound(
    database_url, pages, monkeypatch, bytes_ahead, most_ahead
):
    reached, let_go, steps = asyncio.Event(), asyncio.Event(), []  # a file that was read is 1, a batch of one file -1
    write, prepare = Indexer.write_batch, file_run.prepare_file

    async def held(*arguments):
        reached.set()
        await let_go.wait()
        await write(*arguments)
        steps.append(-1)

    def seen(*arguments, **options):
        steps.append(1)
        return prepare(*arguments, **options)

    monkeypatch.setattr(Indexer, "write_batch", held)
    monkeypatch.setattr(file_run, "prepare_file", seen)
    monkeypatch.setattr(file_run, "BATCH_CHUNKS", 1)
    if bytes_ahead is not None:
        monkeypatch.setattr(file_run, "MAX_BYTES_AHEAD", bytes_ahead)
    monkeypatch.setattr(CountingEmbedder, "texts", 0)
    async with opened(database_url, CountingEmbedder(8)) as store:
        run = asyncio.create_task(store.index(pages))
        await reached.wait()
        if bytes_ahead is None:
            # One is being written, one waits with its vector, and so on back to the file that waits to be compared.
            await eventually(lambda: CountingEmbedder.texts >= 2 and len(steps) >= 4)
        let_go.set()
        report = await run
        assert max(accumulate(steps)) == most_ahead
        assert (report.added, report.embedded, CountingEmbedder.texts) == (FILES, FILES, FILES)
        assert set(report.stage_seconds) == {"read", "compare", "embed", "write"}


async def test_every_stage_reports_its_progress_and_one_connection_is_enough(database_url, pages, monkeypatch):
    monkeypatch.setattr(file_run, "BATCH_CHUNKS", 1)
    told = []
    async with opened(database_url, max_connections=1) as store:
        assert (await store.index(pages, progress=told.append)).added == FILES
        (pages / "00.txt").write_text("Changed.\n", encoding="utf-8")
        assert (await store.index(pages)).changed == 1
    for stage, unit in {"read": "files", "embed": "chunks", "write": "chunks"}.items():
        own = [step for step in told if step.stage == stage]
        assert [step.done for step in own] == list(range(1, FILES + 1))
        assert {step.unit for step in own} == {unit}
        assert all(step.total is not None and step.done <= step.total for step in own)
        assert own[-1].total == FILES
