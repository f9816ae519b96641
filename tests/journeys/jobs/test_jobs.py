"""Jobs of every kind, submitted and done; those that are refused; those that fail, and why."""

import importlib
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from semlex import Document
from semlex.errors import CollectionNotFoundError, ConfigurationError, ModelServerError, ValidationError
from semlex.jobs import worker
from semlex.jobs.worker import delay_after
from semlex.store.jobs import FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.job_clients import client
from tests.support.two_models import OtherEmbedder


@pytest.mark.slow
async def test_every_kind_is_done(database_url, opened, book, docs):
    async def done(kind, arguments=None):
        job = await book.jobs.submit(kind, arguments)
        assert (job.state, job.kind, job.collection) == ("queued", kind, "book")
        assert await opened.work(drain=True, allow=[docs]) == 1
        job = await job.wait(0)
        assert (job.state, job.error, job.attempts) == ("done", None, 1), job
        return job.result

    folder_with(docs, {"bad.md": b"\xff\xff", "empty.md": b""})
    result = await done("index", {"paths": [docs], "exclude": ["2.*"]})
    problems = [{"source_document": "bad.md", "code": "not_utf8"}, {"source_document": "empty.md", "code": "no_text"}]
    assert (result["added"], result["failed"], result["problems"]) == (3, 1, problems)
    for name in ("bad.md", "empty.md"):
        (docs / name).unlink()
    assert (await book.delete(source="docs", vanished=True)).documents == 1
    assert "problems" not in await done("index", {"paths": [docs], "exclude": ["2.*"]})
    (docs / "0.md").unlink()
    found = await done("sync", {"paths": [docs]})
    assert (found["added"], found["deleted"], found["unchanged"]) == (1, 1, 1)
    given = [{"content": "a lion", "metadata": {"n": 1}, "id": "lion"}, {"content": "a zebra"}]
    assert await done("add", {"documents": given}) == {"written": 2}
    assert (await book.get(["lion"]))[0].metadata == {"n": 1}
    assert (await done("rechunk", {"chunk_tokens": 300}))["changed"] == 2
    assert "merged" in await done("optimize")
    execute(database_url, "DELETE FROM semlex.book_embedding_1")
    assert await done("embed") == {"embedded": 4}
    assert sorted(hit.content for hit in await book.search("lion zebra", 2)) == ["a lion", "a zebra"]


async def test_a_document_comes_out_of_a_job_as_it_went_in(opened):
    at = datetime(2020, 1, 2, 3, 4, 5, 6, UTC)
    given = Document("Text ✓", {"deep": {"n": [1, 2.5, None, True]}}, "", "whole", ["a"], at, at, "german", "0", "9")
    direct, queued = opened.collection("direct"), opened.collection("queued")
    (key,) = await direct.add_documents([given])
    await queued.jobs.submit("add", {"documents": (one for one in [given])})
    assert (await opened.work(drain=True), await queued.get([key])) == (1, await direct.get([key]))


async def test_submitting_a_job_opens_no_model_and_working_with_another_model_fails_at_once(database_url):
    class Untouched(HashEmbedder):
        embed_documents = None

    async with client(database_url) as opened:
        await opened.collection("book").add_texts(["a"])
    async with client(database_url, Untouched(8)) as opened:
        book = opened.collection("book", create=False)
        job = await book.jobs.submit("embed")
        assert book._handle._opened is None
        with pytest.raises(CollectionNotFoundError, match="book"):
            await opened.collection("other", create=False).jobs.submit("optimize")
    async with client(database_url, HashEmbedder(9)) as opened:
        assert (await failed(opened, await opened.job(job.id))).startswith("ModelMismatchError: ")


async def test_a_collection_changes_to_a_model_of_the_worker_only(database_url):
    new = OtherEmbedder(8)
    async with client(database_url) as opened:
        book = opened.collection("book")
        await book.add_documents([Document(f"a lion {number}", id=f"l{number}") for number in range(5)])
        job = await book.jobs.submit("reembed", {"model": new.identity.model})
        for models in ([], ["static"], [HashEmbedder(8)]):
            assert "--allow-model" in await failed(opened, job, models=models)
            await job.retry()
        for embedded in (5, 0):
            await opened.work(drain=True, models=[new])
            job = await job.wait(0)
            assert (job.state, job.result) == ("done", {"embedded": embedded})
            job = await book.jobs.submit("reembed", {"model": new.identity.model})
        with pytest.raises(ConfigurationError, match="models must be a list"):
            await opened.work(drain=True, models="static")
    async with client(database_url, new) as opened:
        (hit, *_) = await opened.collection("book", create=False).search("lion 3", 1, mode="vector")
        assert hit.id == "l3"


async def test_bad_arguments_and_documents_are_refused(opened):
    submit = opened.collection("book").jobs.submit
    for kind, arguments, match in (
        ("delete", {}, "kinds: index, sync, add"),
        ("os.system", {"paths": ["/"]}, "unknown job kind"),
        ("index", {}, "needs paths"),
        ("index", {"paths": []}, "at least one"),
        ("index", {"paths": ["a\0b"]}, "NUL"),
        ("index", {"paths": ["a"], "includ": ["*"]}, "did you mean include"),
        ("index", {"paths": ["a"], "include": "*.md"}, "include must be"),
        ("index", {"paths": ["a"], "include": ["*.md", "a\0b"]}, "include .*NUL"),
        ("index", {"paths": ["a"], "text_fields": ["\ud800"]}, "text_fields .*surrogate"),
        ("index", {"paths": ["a"], "recursive": "yes"}, "recursive must be"),
        ("index", {"paths": ["a"], "chunk_tokens": "9"}, "chunk_tokens must be"),
        ("index", {"paths": ["a"], "on_bad_text": "hide"}, "on_bad_text must be"),
        ("index", {"paths": ["a"], "progress": print}, "has no argument 'progress'"),
        ("sync", {"paths": ["a"], "dry_run": True}, "has no argument 'dry_run'"),
        ("optimize", {"thoroughly": True}, "it takes none"),
        ("add", {"documents": [Document("x")], "on_duplicate": "both"}, "on_duplicate must be"),
        ("add", {"documents": []}, "at least one"),
        ("add", {"documents": [{"text": "x"}]}, "row 0 must be an object with 'content'"),
        ("add", {"documents": [{"content": "x", "created_at": "now"}]}, "ISO 8601"),
        ("add", {"documents": [Document("x" * 100_000, id=str(n)) for n in range(11)]}, "submit several jobs"),
        ("optimize", [], "arguments must be"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            await submit(kind, arguments)
    with pytest.raises(ValidationError) as caught:
        await submit("add", {"documents": [Document(""), Document("a\0")]})
    assert [(error.row, error.field) for error in caught.value.errors] == [(0, "content"), (1, "content")]
    assert (await opened.collections(), await opened.jobs()) == ([], [])


async def failed(opened, job, **options):
    """Why the job has failed, at its first attempt."""
    await opened.work(drain=True, **options)
    job = await job.status()
    assert (job.state, job.attempts) == ("failed", 1), job
    return f"{job.error.code}: {job.error.message}"


@pytest.mark.slow
async def test_paths_that_are_not_allowed_or_not_seen_fail_and_delete_nothing(opened, book, docs, tmp_path):
    outside = folder_with(tmp_path / "outside", {"secret.md": "secret"})
    (docs / "link").symlink_to(outside)
    await book.index(docs)
    for paths in ([outside], [outside / "secret.md"], [docs / "link"], [docs, outside], ["/etc/passwd"]):
        assert "may read" in await failed(opened, await book.jobs.submit("index", {"paths": paths}), allow=[docs])
    for kind, arguments in (("index", {"paths": [docs]}), ("sync", {"paths": [docs]}), ("rechunk", {})):
        assert "--allow" in await failed(opened, await book.jobs.submit(kind, arguments))
    for allow_empty in (False, True):
        gone = {"paths": [docs / "gone"], "allow_empty": allow_empty}
        assert "cannot see" in await failed(opened, await book.jobs.submit("sync", gone), allow=[docs])
    for page in range(3):
        os.rename(docs / f"{page}.md", outside / f"{page}.md")  # noqa: PTH104
    assert "but 3 documents" in await failed(opened, await book.jobs.submit("sync", {"paths": [docs]}), allow=[docs])
    os.rename(docs, tmp_path / "moved")  # noqa: PTH104
    for kind, arguments in (("sync", {"paths": [docs], "allow_empty": True}), ("rechunk", {"chunk_tokens": 100})):
        assert "cannot see" in await failed(opened, await book.jobs.submit(kind, arguments), allow=[tmp_path])
    assert await book.count() == 3
    (tmp_path / "moved").rename(docs)
    assert (await (await opened.jobs(state="failed"))[-1].retry()).state == "queued"
    with pytest.raises(ConfigurationError, match=r"0\.md' is not an existing folder"):
        await opened.work(drain=True, allow=[docs / "0.md"])


@pytest.mark.parametrize("moment", ["run.plan_places", "files.discovery.find_files", "chunk_rows.read_file"])
async def test_a_link_that_appears_after_the_check_is_not_followed(opened, tmp_path, monkeypatch, moment):
    module_name, _, name = moment.rpartition(".")
    module = importlib.import_module(f"semlex.ingest.{module_name}")
    original = getattr(module, name)
    outside, docs = folder_with(tmp_path / "outside", {"inner/a.md": "secret"}), tmp_path / "docs"
    cases = [  # what a job reads, and what of it is replaced by a link
        *(("index", "sub/inner/a.md", "sub/inner/a.md"), ("index", "sub/inner/a.md", "sub")),
        *(("index", "sub/inner", "sub/inner"), ("index", "sub/inner", "sub"), ("sync", "sub/inner", "sub")),
    ]
    for number, (kind, path, swapped) in enumerate(cases):
        folder = folder_with(docs / str(number), {"sub/inner/a.md": "public"})
        pending = [(folder / swapped, outside / Path(swapped).relative_to("sub"))]

        def swapping(*given, pending=pending, **named):
            while pending:
                place, target = pending.pop()
                place.rename(place.with_name(f"{place.name}-before"))
                place.symlink_to(target)
            return original(*given, **named)

        monkeypatch.setattr(module, name, swapping)
        book = opened.collection("book")
        job = await book.jobs.submit(kind, {"paths": [folder / path], "source": str(number)})
        assert await opened.work(drain=True, allow=[docs]) == 1
        monkeypatch.undo()
        job = await job.status()
        assert not pending
        if name == "plan_places":
            assert "folders that may be read: start the worker or server with --allow FOLDER" in str(job.error)
        else:
            assert (job.result["added"], job.result["failed"]) == (0, 1), (kind, path, swapped)
        assert await book.count() == 0


@pytest.mark.full
async def test_no_race_of_links_is_won(database_url, tmp_path):
    """As above, without knowing the moment."""
    folder_with(tmp_path, {"docs/a.md": "public", "public.md": "public", "secret.md": "secret"})
    docs, made, is_over = tmp_path / "docs", tmp_path / "made", threading.Event()

    def swap():
        while not is_over.is_set():
            for make, target in ((made.hardlink_to, "public.md"), (made.symlink_to, "secret.md")):
                make(tmp_path / target)
                made.replace(docs / "a.md")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        async with client(database_url) as opened:
            book = opened.collection("book")
            for _ in range(300):
                await book.jobs.submit("index", {"paths": [docs / "a.md"]})
                await opened.work(drain=True, allow=[docs])
                assert {chunk.content for chunk in await book.list_chunks()} <= {"public"}
    finally:
        is_over.set()
        swapping.join()


async def test_what_others_have_written_into_the_table_is_checked(database_url, opened, book, docs):
    for number, (column, value, match) in enumerate(
        (
            ("kind", "os.system", "unknown job kind"),
            ("kind", "sync", "needs paths"),
            ("arguments", "[]", "must be an object"),
            ("arguments", "7", "must be an object"),
            ("arguments", '{"paths": 5}', "has no argument 'paths'"),
            ("collection", "other", "collection 'other' does not exist"),
            ("collection", "Robert'); DROP TABLE", "collection"),
        )
    ):
        job = await book.jobs.submit("optimize")
        execute(database_url, f"UPDATE semlex.job SET {column} = %s WHERE state = 'queued'", [value])
        assert match in await failed(opened, job)
        assert len(await opened.jobs()) == number + 1
    job = await book.jobs.submit("index", {"paths": [docs]})
    assert job.arguments == {"paths": [str(docs)]}
    execute(database_url, """UPDATE semlex.job SET arguments = '{"paths": ["docs"]}' WHERE state = 'queued'""")
    assert "absolute" in await failed(opened, job, allow=[docs])


class Faulty(HashEmbedder):
    """Fails so many times."""

    def __init__(self, failures, error):
        super().__init__(8)
        self.failures, self.error = failures, error

    def embed_documents(self, texts):
        if self.failures:
            self.failures -= 1
            raise self.error
        return super().embed_documents(texts)


async def test_temporary_failures_are_retried_and_lasting_ones_are_set_aside(database_url, caplog, monkeypatch):
    monkeypatch.setattr(worker, "delay_after", lambda attempts: 0.0)
    new = {"documents": [Document("a lion", id="lion")]}
    async with client(database_url, Faulty(2, ModelServerError("busy"))) as opened:
        book = opened.collection("book")
        job = await book.jobs.submit("add", new)
        assert await opened.work(drain=True) == 1
        job = await job.status()
        assert (job.state, job.attempts, job.error, await book.count()) == ("done", 3, None, 1)
    model = Faulty(4, RuntimeError("zebra stripes"))
    async with client(database_url, model) as opened:
        job = await opened.collection("other").jobs.submit("add", new, max_attempts=3)
        assert await opened.work(drain=True) == 1
        job = await job.status()
        assert (job.state, job.attempts, model.failures) == ("failed", 3, 1)
        assert "zebra" not in str(job.error)
        assert job.error.message
        assert "zebra stripes" in caplog.text
        job = await job.retry()
        assert (job.state, job.attempts, job.error) == ("queued", 0, None)
        assert await opened.work(drain=True) == 1
        job = await job.status()
        assert (job.state, job.attempts) == ("done", 2)


def test_delays_grow_and_differ():
    for attempts in range(1, 1_000, 7):
        longest = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** (attempts - 1))
        delays = {delay_after(attempts) for _ in range(20)}
        assert longest / 2 <= min(delays) < max(delays) <= longest
