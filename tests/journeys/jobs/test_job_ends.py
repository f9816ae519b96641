"""Which job is next, and how jobs end: cancelled, given back, taken by another worker, removed."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from semlex import Document, SyncClient
from semlex.errors import ConfigurationError, JobTimeoutError
from semlex.jobs import worker
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.jobs import JobLeases
from semlex.types.jobs import DEFAULT_LEASE_SECONDS
from tests.support.databases import execute
from tests.support.job_clients import client, reached
from tests.support.spies import results_of
from tests.support.waiting import eventually


async def test_priority_and_time_say_what_is_next(database_url, opened, book):
    told, later = [], datetime.now(UTC) + timedelta(hours=1)
    jobs = [
        await book.jobs.submit("optimize", priority=priority, not_before=at)
        for priority, at in ((0, None), (5, later), (5, None), (-1, None), (0, None))
    ]
    assert await opened.work(drain=True, tell=told.append) == 4
    assert [next(number for number, job in enumerate(jobs) if job.id in line) for line in told] == [2, 0, 4, 3]
    assert (await jobs[1].status()).due_at == later
    execute(database_url, "UPDATE semlex.job SET due_at = now() WHERE state = 'queued'")
    assert (await opened.work(limit=1), (await jobs[1].status()).state) == (1, "done")
    with pytest.raises(ConfigurationError, match="not_before"):
        await book.jobs.submit("optimize", not_before=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_old_jobs_are_removed_abandoned_ones_fail_and_wrong_options_are_refused(database_url, opened, book):
    jobs = [await book.jobs.submit("optimize") for _ in range(4)]
    await jobs[0].cancel()
    await opened.work(drain=True)
    waiting = await book.jobs.submit("optimize", not_before=datetime.now(UTC) + timedelta(hours=1))
    aged = "UPDATE semlex.job SET finished_at = finished_at - interval '8 days' WHERE job_id = ANY(%s)"
    execute(database_url, aged, [[job.id for job in jobs[:3]]])
    await opened.work(drain=True)
    assert {job.id for job in await opened.jobs()} == {jobs[3].id, waiting.id}
    with pytest.raises(ConfigurationError, match="semlex jobs lists"):
        await jobs[0].status()
    await opened.work(drain=True, keep_days=0)
    assert {job.id for job in await opened.jobs()} == {waiting.id}
    job = await book.jobs.submit("optimize", max_attempts=2)
    execute(database_url, "UPDATE semlex.job SET state = 'running', attempts = 2, fence = 2 WHERE max_attempts = 2")
    assert await opened.work(drain=True) == 0
    job = await job.status()
    assert job.state == "failed"
    assert "went silent (2 attempts" in job.error.message
    for options, match in (
        ({"concurrency": 0}, "concurrency"),
        ({"lease": 0.5}, "lease"),
        ({"allow": "docs"}, "allow"),
        ({"allow": ["/nowhere-at-all"]}, "'/nowhere-at-all' is not an existing folder"),
        ({"limit": 0}, "limit"),
        ({"keep_days": -1}, "keep_days"),
        ({"tell": "me"}, "tell"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            await opened.work(drain=True, **options)


def test_without_an_event_loop(database_url):
    with SyncClient(database_url, "none", use_reranking=False) as opened:
        submit = opened.collection("book").jobs.submit
        job = submit("add", {"documents": [Document("a lion", id="lion")]}, unique_key="k")
        assert submit("optimize", unique_key="k").id == job.id
        with pytest.raises(JobTimeoutError, match="semlex worker"):
            job.wait(0.1)  # expires
        assert opened.work(drain=True) == 1
        assert job.status().state == job.wait(60).state == "done"
        with pytest.raises(ConfigurationError, match="is done"):
            job.cancel()
        assert opened.job(job.id) == job.status()
        assert [one.id for one in opened.jobs(state="done", collection="book")] == [job.id]
        assert opened.jobs(state="failed") == opened.jobs(collection="other") == []
        assert json.loads(json.dumps(job.status().to_dict()))["result"] == {"written": 1}


@pytest.mark.parametrize("by_renewing", [True, False], ids=["renewing", "writing"])
async def test_a_running_job_is_cancelled_with_whole_batches_only(slow, clock, blocking, monkeypatch, *, by_renewing):
    """A worker learns it when it renews its lease, or else from the fence around the next batch."""
    seen, book = results_of(monkeypatch, JobLeases, "renew"), slow.collection("book")
    job = await book.jobs.submit("add", {"documents": [Document(f"text {n}") for n in range(5)]})
    working = asyncio.create_task(slow.work(drain=True))
    await reached(blocking)
    asked = await job.cancel()
    assert (asked.state, asked.cancel_wanted) == ("running", True)
    if by_renewing:
        clock.advance(DEFAULT_LEASE_SECONDS)
        await eventually(lambda: seen)
    blocking.may_go_on.set()
    assert (await working, seen) == (1, [True] * by_renewing)
    job = await job.status()
    assert (job.state, await book.count()) == ("cancelled", 0)
    assert [(await job.cancel()).state, (await job.retry()).state] == ["cancelled", "queued"]
    assert (await slow.work(drain=True), await book.count()) == (1, 5)


@pytest.mark.parametrize("is_patient", [True, False], ids=["patient", "not patient"])
async def test_a_worker_that_is_stopped_gives_its_jobs_back(slow, blocking, clock, *, is_patient):
    """It waits for what it does, but not forever for what stands still."""
    book = slow.collection("book")
    jobs = [await book.jobs.submit("add", {"documents": [Document(f"text {n}", id=str(n))]}) for n in range(3)]
    working = asyncio.create_task(slow.work(concurrency=2))
    await reached(blocking)

    async def are(*expected):
        return sorted((one.state, one.attempts) for one in [await job.status() for job in jobs]) == list(expected)

    await eventually(lambda: are(("queued", 0), ("running", 1), ("running", 1)))
    working.cancel()
    await clock.eventually_waited(worker.STOP_SECONDS)
    blocking.may_go_on.set() if is_patient else clock.advance(worker.STOP_SECONDS)
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await are(*[("queued", 0)] * 3)
    assert (await book.count(), blocking.may_go_on.is_set()) == (0, is_patient)
    blocking.may_go_on.set()  # the model's thread cannot be ended
    await slow.work(drain=True)
    assert await are(*[("done", 1)] * 3)
    assert await book.count() == 3


@pytest.mark.slow
async def test_what_a_worker_writes_late_is_refused(database_url, slow, opened, docs, blocking):
    """Its job was done elsewhere meanwhile, with newer files: nothing of the older ones comes in."""
    told = []
    job = await slow.collection("book").jobs.submit("index", {"paths": [docs]})
    working = asyncio.create_task(slow.work(limit=1, allow=[docs], tell=told.append))
    await reached(blocking)
    execute(database_url, "UPDATE semlex.job SET due_at = due_at - interval '1 day'")
    (docs / "0.md").write_text("# New\n\nNewer words.\n")
    assert await opened.work(drain=True, allow=[docs]) == 1
    before = {hit.id: hit.content for hit in await opened.collection("book").search("words", 10)}
    blocking.may_go_on.set()
    assert await working == 0
    assert "lost" in told[0]
    job = await job.status()
    assert (job.state, job.attempts) == ("done", 2)  # a job that has ended keeps its number
    after = {hit.id: hit.content for hit in await opened.collection("book").search("words", 10)}
    assert before == after
    assert any("Newer" in text for text in after.values())


async def test_the_text_that_was_submitted_last_stays(database_url, slow, opened, blocking):
    """Whoever is slow or dead: the newer job of a document waits for the older one, and jobs of others do not."""
    book = opened.collection("book")
    older = await book.jobs.submit("add", {"documents": [Document("old", id="a"), Document("both", id="b")]})
    working = asyncio.create_task(slow.work(limit=1))
    await reached(blocking)
    newer = await book.jobs.submit("add", {"documents": [Document("new", id="a")]}, priority=5)
    beside = await book.jobs.submit("add", {"documents": [Document("third", id="c")]})
    assert await opened.work(drain=True) == 1
    assert [(await job.status()).state for job in (beside, newer)] == ["done", "queued"]
    execute(database_url, "UPDATE semlex.job SET due_at = due_at - interval '1 day' WHERE state = 'running'")
    assert await opened.work(drain=True) == 2
    blocking.may_go_on.set()
    assert (await working, [(await job.status()).state for job in (older, newer)]) == (0, ["done", "done"])
    assert [row.content for row in await book.get(["a", "b"])] == ["new", "both"]


async def test_an_attempt_that_was_taken_from_a_worker_that_lives_does_not_count(database_url, slow, blocking, clock):
    """As after a step of the server's clock, or when a machine was suspended."""
    job = await slow.collection("book").jobs.submit("add", {"documents": [Document("text", id="a")]})
    working = asyncio.create_task(slow.work(limit=1, lease=60))
    await reached(blocking)
    execute(database_url, "UPDATE semlex.job SET fence = fence + 1, attempts = attempts + 1")  # taken by another one
    await clock.passes_until(working.done)
    assert (await working, (await job.status()).attempts) == (0, 1)
    execute(database_url, "UPDATE semlex.job SET due_at = due_at - interval '1 day'")
    blocking.may_go_on.set()
    assert (await slow.work(drain=True), (await job.status()).state) == (1, "done")


async def test_progress_is_told(slow, docs, blocking, clock):
    job = await slow.collection("book").jobs.submit("index", {"paths": [docs]})
    working = asyncio.create_task(slow.work(drain=True, allow=[docs]))
    await reached(blocking)
    assert (await job.status()).progress is None
    clock.advance(worker.PROGRESS_SECONDS)

    async def progress():
        return (await job.status()).progress

    found = await eventually(progress)
    assert (found.stage, found.total, found.unit) == ("read", 3, "files")
    blocking.may_go_on.set()
    assert await working == 1


@pytest.mark.direct
async def test_behind_a_transaction_pooler(database_url, docs):
    async with TransactionPooler(database_url) as pooler, client(pooler.address) as opened:
        book = opened.collection("book")
        given = {"index": {"paths": [docs]}, "add": {"documents": [Document("x")]}}
        jobs = [await book.jobs.submit(kind, arguments) for kind, arguments in given.items()]
        assert await opened.work(drain=True, concurrency=2, allow=[docs]) == 2
        assert ({(await job.status()).state for job in jobs}, await book.count()) == ({"done"}, 4)
