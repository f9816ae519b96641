"""A folder and a collection in step: what happens to files happens to documents."""

import asyncio
import os
import shutil
from contextlib import closing
from itertools import pairwise, product
from unittest.mock import AsyncMock

import psycopg
import pytest

from semlex.errors import ConfigurationError, StoreError
from semlex.ingest import chunk_rows, indexer, sync, watch
from semlex.ingest.files import discovery, roots
from semlex.ingest.progress import DocumentName, MovedDocument, SyncCounts
from semlex.proof.folders import age, write
from tests.support import retrievers
from tests.support.spies import before_calls, calls_of
from tests.support.synchronised import contents, counts, opened
from tests.support.waiting import eventually, waiting


@pytest.fixture
def store(database_url):
    with opened(database_url) as retriever:
        yield retriever


@pytest.fixture
def handbook(tmp_path):
    """Three pages, one of them in a folder below, all older than a minute."""
    root = tmp_path / "handbook"
    write(root / "keys.md", "# Keys\n\nA lost key is reported.\n")
    write(root / "start.md", "# Start\n\nOpen the shutter first.\n")
    write(root / "guide" / "end.md", "# End\n\nPark at the zenith.\n")
    return root


def test_every_document_is_looked_up_a_few_times_however_many_files_are_named(store, tmp_path, monkeypatch):
    files = [tmp_path / f"{number}.md" for number in range(30)]
    for file in files:
        write(file, "text")
    store.index(*files)
    looked_up = calls_of(monkeypatch, roots, "lineage")
    monkeypatch.setattr(sync, "lineage", roots.lineage)
    assert store.index(*files).unchanged == 30
    assert store.sync(*files).done.unchanged == 30
    assert 0 < len(looked_up) <= 6 * 30


def test_files_are_looked_at_off_the_event_loop(store, handbook, monkeypatch):
    original = discovery.checked_paths

    def in_a_thread(*given, **options):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return original(*given, **options)

    for module in (discovery, watch):
        monkeypatch.setattr(module, "checked_paths", in_a_thread)
    store.index(handbook)
    store.sync(handbook)
    with closing(store.watch(handbook)) as reports:
        next(reports)
        write(handbook / "more.md", "more")
        assert next(reports).done.added == 1
    assert store.count() == 4
    with pytest.raises(ConfigurationError, match="no such file"):
        next(iter(store.watch(handbook / "nowhere")))


@pytest.mark.parametrize("command", ["index", "sync"])
def test_a_file_with_the_state_of_the_last_run_is_not_read(store, handbook, monkeypatch, command):
    page, reads = handbook / "keys.md", calls_of(monkeypatch, chunk_rows, "read_file")
    monkeypatch.setattr(sync, "read_file", chunk_rows.read_file)

    def run():
        reads.clear()
        getattr(store, command)(handbook)
        return [read["found"].uri for read in reads]

    def rewrite(text):
        """Written in place, with its old size and time."""
        before = page.stat()
        with page.open("r+", encoding="utf-8") as file:
            file.write(text)
        os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns))

    store.index(handbook)
    assert run() == []
    age(page)
    assert (run(), run()) == (["keys.md"], [])
    rewrite("# Kegs")
    assert set(run()) == {"keys.md"}
    assert any("Kegs" in path for *_, path in contents(store))
    # A young file is read again, because no time differs within one step of the file system's clock.
    monkeypatch.setattr(discovery.FoundFile, "state", property(lambda found: f"{found.size}:{found.mtime_ns}"))
    os.utime(page)
    run()
    rewrite("# Cars")
    assert set(run()) == {"keys.md"}
    assert any("Cars" in path for *_, path in contents(store))


def test_moved_files_embed_nothing_and_keep_their_chunks(store, handbook):
    write(handbook / "one.py", "def rotate(key):\n    return key\n")
    store.index(handbook)
    before = {(chunk.content, chunk.created_at) for chunk in store.list_chunks(limit=10)}
    (handbook / "keys.md").rename(handbook / "guide" / "locks.md")
    report = store.sync(handbook)
    assert counts(report) == (0, 0, 1, 0, 3)
    assert report.plan.moved == [MovedDocument("handbook", "keys.md", "guide/locks.md")]
    assert (report.run.chunks, report.run.embedded) == (0, 0)
    assert {(chunk.content, chunk.created_at) for chunk in store.list_chunks(limit=10)} == before
    (hit,) = store.search("lost key", 1, mode="keyword")
    assert hit.source_document == "guide/locks.md"
    assert [chunk.id for chunk in store.get([hit.id])] == [hit.id]
    # Names that are exchanged.
    for target, source in pairwise(["aside", "guide/end.md", "start.md", "guide/locks.md", "aside"]):
        (handbook / source).rename(handbook / target)
    report = store.sync(handbook)
    assert (counts(report), report.run.embedded) == ((0, 0, 3, 0, 1), 0)
    assert {hit.source_document for hit in store.search("lost", 1, mode="keyword")} == {"start.md"}
    (handbook / "guide" / "locks.md").rename(handbook / "start.md")  # over another one
    assert counts(store.sync(handbook)) == (0, 0, 1, 0, 2)
    assert (store.search("lost", 1, mode="keyword"), store.count()) == ([], 3)
    write(handbook / "keys.md", "# Keys\n\nAnother page of the old name.\n")
    assert (counts(store.sync(handbook)), store.count()) == ((1, 0, 0, 0, 3), 4)
    # Code is read again under another name, because its path is a part of it.
    (handbook / "one.py").rename(handbook / "other.py")
    assert counts(store.sync(handbook)) == (1, 0, 0, 1, 3)


async def test_a_vector_that_is_being_added_moves_along(database_url, handbook, monkeypatch):
    """Another process has added the vectors of a moved file's chunks, and commits while the file is moved."""
    added, committed = asyncio.Event(), asyncio.Event()
    write_embeddings = indexer.write_embeddings
    vectors, chunks = "semlex.default_collection_embedding_1", "semlex.default_collection_chunk"

    async def adding(connection, **options):
        count = await write_embeddings(connection, **options)
        added.set()
        await committed.wait()
        return count

    async with retrievers.opened(database_url) as store, retrievers.opened(database_url) as other:
        await store.index(handbook)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f"DELETE FROM {vectors}")
            monkeypatch.setattr(indexer, "write_embeddings", adding)
            filling = asyncio.ensure_future(other.embeddings.fill())
            await added.wait()
            (handbook / "keys.md").rename(handbook / "locks.md")
            moving = asyncio.ensure_future(store.sync(handbook))
            await eventually(lambda: waiting(connection) or moving.done())
            committed.set()
            assert counts(await moving) == (0, 0, 1, 0, 2)
            assert await filling == await store.count()
            query = f"SELECT FROM {chunks} FULL JOIN {vectors} AS e USING (document_id, chunk_id) WHERE "
            assert connection.execute(f"{query} context IS NULL OR embedding IS NULL").rowcount == 0


@pytest.mark.parametrize("sqlstate", ["0A000", "23505"])  # on distributed tables; if another run has made the new one
def test_a_document_that_cannot_change_its_key_is_read_again(store, handbook, monkeypatch, sqlstate):
    refused = AsyncMock(side_effect=StoreError("not supported", sqlstate=sqlstate))
    monkeypatch.setattr(sync, "move_documents", refused)
    store.index(handbook)
    (handbook / "keys.md").rename(handbook / "locks.md")
    report = store.sync(handbook)
    assert (report.differs, report.done) == (True, SyncCounts(added=1, deleted=1, unchanged=2))
    assert {chunk.source_document for chunk in store.list_chunks(limit=9)} == {"locks.md", "start.md", "guide/end.md"}


def test_a_dry_run_writes_nothing(store, handbook):
    assert store.sync(handbook, dry_run=True).plan.counts() == SyncCounts(added=3)
    assert (store.count(), store.documents.sources()) == (0, [])
    store.index(handbook)
    before = (contents(store), store.status().last_run)
    (handbook / "keys.md").rename(handbook / "locks.md")
    (handbook / "guide" / "end.md").unlink()
    write(handbook / "start.md", "# Start\n\nAll is different.\n")
    report = store.sync(handbook, dry_run=True)
    assert report.plan.counts() == SyncCounts(0, 1, 1, 1, 0)
    assert (report.dry_run, report.done) == (True, SyncCounts())
    assert (contents(store), store.status().last_run) == before


def test_documents_of_excluded_unnamed_and_kept_files_stay(store, handbook):
    store.index(handbook)
    write(handbook / ".semlexignore", "keys.md\n")
    report = store.sync(handbook, exclude=["guide"])
    assert (counts(report), store.count()) == ((0, 0, 0, 0, 1), 3)
    assert [one.source_document for one in report.plan.left_out] == ["guide/end.md", "keys.md"]
    (handbook / ".semlexignore").unlink()
    (handbook / "keys.md").unlink()
    write(handbook / "guide" / "more.md", "more")
    assert counts(store.sync(handbook / "guide")) == (1, 0, 0, 0, 1)
    report = store.sync(handbook, keep_deleted=True)
    assert (counts(report), store.count()) == ((0, 0, 0, 0, 3), 4)
    assert report.plan.kept == [DocumentName("handbook", "keys.md")]
    assert (counts(store.sync(handbook)), store.count()) == ((0, 0, 0, 1, 3), 3)
    # A sync takes the options for reading files, too.
    (handbook / "shop.csv").write_text("name,text\nkettle,Boils water\n")
    assert store.sync(handbook, text_fields=["text"], id_field="name").done.added == 1
    [chunk] = store.list_chunks("exists name")
    assert (chunk.metadata["name"], chunk.content) == ("kettle", "Boils water")


def test_a_folder_that_is_gone_or_empty_or_was_never_there(store, handbook):
    with pytest.raises(ConfigurationError, match="no such file or folder"):
        store.sync(handbook.parent / "nowhere", allow_empty=True)
    kept = shutil.copytree(handbook, handbook.parent / "kept")
    for below, is_empty in product(("guide", ""), (True, False)):
        store.sync(handbook)
        folder = handbook / below
        shutil.rmtree(folder)
        if is_empty:
            folder.mkdir()
        for options in ({}, {"dry_run": True}):
            with pytest.raises(ConfigurationError, match=r"--allow-empty \(allow_empty=True\)"):
                store.sync(folder, **options)
        assert store.count() == 3
        deleted = store.sync(folder, allow_empty=True).done.deleted
        assert (deleted, store.count()) == ((1, 2) if below else (3, 0))
        shutil.copytree(kept, handbook, dirs_exist_ok=True)
    store.sync(handbook)
    with pytest.raises(ConfigurationError, match="no such file or folder"):
        store.sync(handbook / "nowhere")  # in the folder of a source, and nothing of it is stored


def test_a_folder_that_cannot_be_read_keeps_its_documents(store, handbook, monkeypatch):
    real_open, real_lstat = os.open, os.lstat
    closed = "guide"

    def closed_open(path, *arguments, **options):
        if str(path) == closed:
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments, **options)

    def closed_lstat(path, **options):
        if f"{closed}/" in str(path):
            raise PermissionError(13, "Permission denied")
        return real_lstat(path, **options)

    store.index(handbook)
    monkeypatch.setattr(os, "open", closed_open)
    monkeypatch.setattr(os, "lstat", closed_lstat)
    report = store.sync(handbook)
    assert counts(report) == (0, 0, 0, 0, 2)
    assert ([one.source_document for one in report.plan.problems], report.run.failed) == (["guide"], 1)
    assert (report.plan.deleted, report.plan.left_out, store.count()) == ([], [], 3)
    closed = str(handbook)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        store.sync(handbook)
    assert store.count() == 3


def test_a_file_or_a_folder_that_vanishes_during_a_sync(store, handbook, monkeypatch):
    deeds = (handbook / "keys.md").unlink, lambda: shutil.rmtree(handbook)
    before_calls(monkeypatch, sync.SyncRun, "_move", *deeds)
    report = store.sync(handbook)
    assert (report.differs, report.plan.counts(), report.done) == (True, SyncCounts(added=3), SyncCounts(added=2))
    assert [one.code for one in report.run.problems] == ["missing"]
    (handbook / "start.md").unlink()
    with pytest.raises(ConfigurationError, match="was removed meanwhile"):
        store.sync(handbook)
    assert store.count() == 2
