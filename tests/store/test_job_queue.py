"""The queue of jobs beside a plain model of it, and fences: what a former holder of a job writes is never committed."""

import asyncio
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from semlex.errors import ConfigurationError, LeaseLostError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.jobs import MAX_DELAY_SECONDS, JobLeases, JobQueue, NewJob
from semlex.store.postgres.database import Database, write_guard
from semlex.store.schema.registry import migrate_registry
from semlex.types.jobs import JobError
from tests.support.lost_answers import lose_answers
from tests.support.properties import examples
from tests.support.waiting import LIMIT, eventually

pytestmark = pytest.mark.pg16

# Seconds of the model's clock. A test takes less than one of them, so that the true clock changes no order.
STEP = 1_000
LEASE = 2 * STEP
KEPT = 5 * STEP


@dataclass
class Known:
    number: int
    unique_key: str | None
    priority: int
    due: float
    set_at: int
    max_attempts: int
    order: int
    documents: frozenset[str] = frozenset()
    is_due_at_once: bool = False
    was_begun: bool = False
    state: str = "queued"
    fence: int = 0
    attempts: int = 0
    cancel_wanted: bool = False
    code: str | None = None
    finished: int | None = None

    @property
    def row(self):
        return [self.state, self.fence, self.attempts, self.cancel_wanted, self.code, self.finished is not None]

    @property
    def is_open(self):
        return self.state in ("queued", "running")

    def waits_for(self, other, now):
        """Whether it is not taken before the other has ended."""
        is_put_off = not (other.was_begun or other.due <= now or other.is_due_at_once)
        is_earlier = other.is_open and other.order < self.order and not is_put_off
        return is_earlier and bool(self.documents & other.documents)

    def is_due(self, now):
        return self.is_open and (self.due <= now or (self.state == "queued" and self.is_due_at_once))

    def end(self, state, now, code=None):
        self.state, self.finished, self.code = state, now, code


async def outcome(work):
    """What comes of a call: its result, or the class of its error."""
    try:
        return await work
    except (LeaseLostError, ConfigurationError) as error:
        return type(error)


class QueueBesideModel(RuleBasedStateMachine):
    """Everything that can be done with a queue, by anybody who ever had one of its jobs."""

    url = ""

    def __init__(self):
        super().__init__()
        self.now = self.changes = self.effects = 0
        self.jobs, self.claims = {}, []
        self._runner = asyncio.Runner()
        self._connection = self.run(psycopg.AsyncConnection.connect(self.url, autocommit=True))
        self._plain = psycopg.connect(self.url, autocommit=True)
        self.database = database = Database(connection=self._connection)
        self.run(migrate_registry(database, "semlex"))
        self._plain.execute("CREATE TABLE IF NOT EXISTS public.effect (fence int); TRUNCATE semlex.job, public.effect")
        self.queue, self.leases = JobQueue(database, "semlex"), JobLeases(database, "semlex", LEASE)

    def run(self, work):
        return self._runner.run(work)

    def teardown(self):
        self._plain.close()
        self.run(self._connection.close())
        self._runner.close()

    def drawn(self, data):
        return list(self.jobs.items())[data.draw(st.integers(0, len(self.jobs) - 1))]  # ids are new in every run

    def stamp(self):
        self.changes += 1
        return self.changes

    def holds(self, claim):
        job = self.jobs.get(claim.job_id)
        return job is not None and job.fence == claim.fence and job.state == "running"

    @rule(
        priority=st.integers(-1, 1),
        unique_key=st.none() | st.sampled_from("ab"),
        delay=st.integers(0, 2),
        max_attempts=st.integers(1, 3),
        documents=st.frozensets(st.sampled_from("xyz")),
    )
    def submit(self, priority, unique_key, delay, max_attempts, documents):
        (now,) = self._plain.execute("SELECT clock_timestamp()").fetchone()
        not_before = now + timedelta(seconds=delay * STEP) if delay else None
        brought = {"documents": [{"id": name, "content": "text"} for name in documents]}
        kind, arguments = ("add", brought) if documents else ("optimize", {})
        info = self.run(self.queue.submit(NewJob(kind, "c", arguments, priority, unique_key, not_before, max_attempts)))
        same = [job for job in self.jobs.values() if job.unique_key == unique_key and job.state == "queued"]
        known = {str(key): job for key, job in self.jobs.items()}.get(info.id)
        if unique_key is not None and same:
            assert known is min(same, key=lambda job: job.number)
            return
        assert known is None
        (key,) = {key for (key,) in self._plain.execute("SELECT job_id FROM semlex.job")} - self.jobs.keys()
        stamp = self.stamp()
        self.jobs[key] = Known(
            *(stamp, unique_key, priority, self.now + delay * STEP, stamp, max_attempts, stamp, documents),
            is_due_at_once=delay == 0,
        )

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data):
        key, job = self.drawn(data)
        found = self.run(outcome(self.queue.cancel(key)))
        if job.state in ("done", "failed"):
            assert found is ConfigurationError
            return
        job.cancel_wanted = job.state == "running"
        if job.state == "queued":
            job.end("cancelled", self.now, job.code)
        assert found.state == job.state

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def retry(self, data):
        key, job = self.drawn(data)
        found = self.run(outcome(self.queue.retry(key)))
        if job.state not in ("failed", "cancelled"):
            assert found is ConfigurationError
            return
        job.state, job.attempts, job.due, job.set_at = "queued", 0, self.now, self.stamp()
        job.order, job.is_due_at_once = job.set_at, False
        job.cancel_wanted, job.code, job.finished = False, None, None

    @rule()
    def claim(self):
        claim = self.run(self.leases.claim())
        cut = self.stamp()
        for job in self.jobs.values():
            longest = LEASE if job.state == "running" else MAX_DELAY_SECONDS
            if job.is_open and job.was_begun and job.due > self.now + longest:
                job.due, job.set_at = self.now + longest, cut
        while True:
            ready = [
                (-job.priority, job.due, job.set_at, key)
                for key, job in self.jobs.items()
                if job.is_due(self.now) and not any(job.waits_for(other, self.now) for other in self.jobs.values())
            ]
            if not ready:
                assert claim is None
                return
            key = min(ready)[-1]
            job = self.jobs[key]
            job.fence += 1
            if job.cancel_wanted:
                job.cancel_wanted = False
                job.end("cancelled", self.now, job.code)
            elif job.state == "running" and job.attempts >= job.max_attempts:
                job.end("failed", self.now, "LeaseLostError")
            else:
                job.state, job.attempts = "running", job.attempts + 1
                job.due, job.set_at = self.now + LEASE, self.stamp()
                job.was_begun, job.is_due_at_once = True, False
                break
        assert claim is not None
        assert (claim.job_id, claim.fence, claim.attempts) == (key, job.fence, job.attempts)
        self.claims.append(claim)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data):
        claim = self.claims[data.draw(st.integers(0, len(self.claims) - 1))]
        found = self.run(outcome(self.leases.renew(claim, None)))
        if not self.holds(claim):
            assert found is LeaseLostError
            return
        job = self.jobs[claim.job_id]
        assert found == job.cancel_wanted
        job.due, job.set_at = self.now + LEASE, self.stamp()

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), how=st.sampled_from(["complete", "fail", "again", "release", "cancelled"]))
    def end(self, data, how):
        claim = self.claims[data.draw(st.integers(0, len(self.claims) - 1))]
        error = JobError("StoreError", "why\0 \udcff")
        calls = {
            "complete": lambda: self.leases.complete(claim, {"n": 1}),
            "fail": lambda: self.leases.fail(claim, error, None),
            "again": lambda: self.leases.fail(claim, error, STEP),
            "release": lambda: self.leases.release(claim),
            "cancelled": lambda: self.leases.cancelled(claim),
        }
        found = self.run(outcome(calls[how]()))
        if not self.holds(claim):
            assert found is LeaseLostError
            return
        job = self.jobs[claim.job_id]
        ends = {"complete": ("done", None), "fail": ("failed", "StoreError"), "cancelled": ("cancelled", job.code)}
        if how in ends:
            job.cancel_wanted &= how == "complete"
            job.end(ends[how][0], self.now, ends[how][1])
        else:
            job.state, job.set_at = "queued", self.stamp()
            job.due = self.now + (STEP if how == "again" else 0)
            job.attempts -= how == "release"
            job.code = "StoreError" if how == "again" else job.code

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def forgive(self, data):
        claim = self.claims[data.draw(st.integers(0, len(self.claims) - 1))]
        self.run(self.leases.forgive(claim))
        job = self.jobs.get(claim.job_id)
        if job is not None and job.is_open and claim.fence < job.fence <= 4 * job.max_attempts:
            job.attempts -= job.attempts > (job.state == "running")

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def write(self, data):
        claim = self.claims[data.draw(st.integers(0, len(self.claims) - 1))]

        async def work(connection):
            async with self.leases.fenced(connection, claim) as cancel_wanted:
                await connection.execute("INSERT INTO public.effect VALUES (%s)", [claim.fence])
            return cancel_wanted

        found = self.run(outcome(self.database.write("write", work)))
        job = self.jobs.get(claim.job_id)
        if job is None or job.fence != claim.fence:
            assert found is LeaseLostError
            return
        assert found == job.cancel_wanted
        self.effects += 1

    @rule(steps=st.integers(1, 3))
    def time_passes(self, steps):
        """What is due comes nearer by what the table says: nothing here asks another clock than the server's."""
        self.now += steps * STEP
        self._put_off(-steps * STEP)

    @rule(steps=st.integers(1, 3))
    def the_clock_steps_back(self, steps):
        """All stored times seem to be later."""
        self._put_off(steps * STEP)
        for job in self.jobs.values():
            job.due += steps * STEP
            job.finished = None if job.finished is None else job.finished + steps * STEP

    def _put_off(self, seconds):
        changes = (f"{name} = {name} + %(by)s" for name in ("due_at", "finished_at", "submitted_at"))
        statement = f"UPDATE semlex.job SET {', '.join(changes)}"
        self._plain.execute(statement, {"by": timedelta(seconds=seconds)})

    @rule()
    def remove(self):
        removed = self.run(self.leases.remove_ended(KEPT))
        old = [key for key, job in self.jobs.items() if job.finished is not None and job.finished + KEPT <= self.now]
        assert removed == len(old)
        for key in old:
            del self.jobs[key]

    @invariant()
    def both_hold_the_same(self):
        stored = self._plain.execute(
            "SELECT job_id, state, fence, attempts, cancel_wanted, error_code, finished_at IS NOT NULL, "
            "extract(epoch FROM due_at - clock_timestamp())::float8 FROM semlex.job"
        ).fetchall()
        assert {key: row for key, *row, _ in stored} == {key: job.row for key, job in self.jobs.items()}
        for key, *_, due in stored:
            if self.jobs[key].is_open:
                assert due == pytest.approx(self.jobs[key].due - self.now, abs=STEP / 5)
        assert self._plain.execute("SELECT count(*) FROM public.effect").fetchone() == (self.effects,)


@pytest.mark.slow
def test_the_queue_is_what_the_model_says(database_url, full):
    machine = type("Machine", (QueueBesideModel,), {"url": database_url})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=1_000 if full else examples(25), stateful_step_count=60 if full else 20)
    )


EXPIRE = "UPDATE semlex.job SET due_at = due_at - interval '1 day'"


class Jobs:
    """A queue with one job, and a table that is written to under its fence."""

    def __init__(self, database, lease=600):
        self.database = database
        self.queue, self.leases = JobQueue(database, "semlex"), JobLeases(database, "semlex", lease)

    async def prepare(self):
        await self.queue.ensure_table()
        await self.queue.submit(NewJob("optimize", "c", {}, 0, None, None, 5))
        await self.execute("CREATE TABLE public.effect (who text)")

    async def execute(self, statement):
        async with self.database.connection() as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    async def taken_by_another(self):
        await self.execute(EXPIRE)
        return await self.leases.claim()

    async def write(self, claim, meanwhile=None, *, one_snapshot=False):
        """Writes a row as a job does: the guard is the task's, and `Database.write` knows of it."""

        async def work(connection):
            await connection.execute("INSERT INTO public.effect VALUES ('late')")
            if meanwhile is not None:
                # Somebody else's, who knows nothing of this guard.
                await asyncio.create_task(meanwhile(), context=Context())

        @asynccontextmanager
        async def guard(connection):
            async with self.leases.fenced(connection, claim):
                yield

        async def in_a_task():
            write_guard.set(guard)
            await self.database.write("write", work, one_snapshot=one_snapshot)

        await asyncio.create_task(in_a_task())

    async def effects(self):
        return len(await self.execute("SELECT 1 FROM public.effect"))


@pytest.fixture
async def jobs(database_url):
    async with Database(database_url) as database:
        found = Jobs(database)
        await found.prepare()
        yield found


async def test_the_delay_of_another_attempt_is_cut_to_the_longest(jobs):
    """It looks longer after the server's clock stepped back."""
    claim = await jobs.leases.claim()
    await jobs.leases.fail(claim, JobError("StoreError", "why"), MAX_DELAY_SECONDS + STEP)
    assert await jobs.leases.claim() is None
    job = await jobs.queue.get(claim.job_id)
    assert (job.due_at - job.started_at).total_seconds() == pytest.approx(MAX_DELAY_SECONDS, abs=STEP / 5)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("unique_key", [None, "key"])
async def test_a_job_whose_answer_is_lost_is_submitted_once(database_url, monkeypatch, taken, unique_key):
    """The program repeats what it has submitted already, and a worker may have taken the job meanwhile."""
    async with Database(database_url) as database:
        queue, leases = JobQueue(database, "semlex"), JobLeases(database, "semlex", LEASE)
        await queue.ensure_table()

        async def take():
            if taken:
                assert await leases.claim() is not None

        lost = lose_answers(monkeypatch, "submit a job", meanwhile=take)
        job = await queue.submit(NewJob("optimize", "c", {}, unique_key=unique_key))
        assert lost == {"submit a job"}
        assert job.state == ("running" if taken else "queued")
        assert await queue.list(state=None, collection=None, limit=9) == [job]


async def test_a_job_is_retried_although_the_answer_is_lost(jobs, monkeypatch):
    job_id = UUID((await jobs.queue.submit(NewJob("optimize", "c", {}))).id)
    lost = lose_answers(monkeypatch, "change a job")
    assert (await jobs.queue.cancel(job_id)).state == "cancelled"
    lost.clear()
    assert (await jobs.queue.retry(job_id)).state == "queued"
    assert lost == {"change a job"}
    with pytest.raises(ConfigurationError, match="is queued: only failed or cancelled jobs can be retried"):
        await jobs.queue.retry(job_id)


@pytest.mark.parametrize("one_snapshot", [False, True], ids=["read committed", "one snapshot"])
async def test_a_write_is_refused_whose_job_goes_on_elsewhere_meanwhile(jobs, one_snapshot):
    first = await jobs.leases.claim()
    await jobs.write(first, one_snapshot=one_snapshot)
    assert await jobs.effects() == 1
    taken = []

    async def take():
        if not taken:  # the transaction is tried again where its snapshot is too old
            taken.append(await jobs.taken_by_another())

    with pytest.raises(LeaseLostError, match="another worker has job"):
        await jobs.write(first, take, one_snapshot=one_snapshot)
    with pytest.raises(LeaseLostError):
        await jobs.write(first, one_snapshot=one_snapshot)
    assert await jobs.effects() == 1
    await jobs.write(taken[0], one_snapshot=one_snapshot)
    assert await jobs.effects() == 2


@pytest.mark.parametrize("one_snapshot", [False, True], ids=["read committed", "one snapshot"])
async def test_a_job_is_renewed_or_taken_away_by_hand_in_the_middle_of_a_write(jobs, one_snapshot):
    """A renewal does not wait and stops no write. The fence is part of the key: a write sees every change of it."""
    claim = await jobs.leases.claim()

    async def renew():
        for _ in range(3):
            assert not await asyncio.wait_for(jobs.leases.renew(claim, None), LIMIT)

    async def take_away():
        await jobs.execute("UPDATE semlex.job SET fence = 99")

    await jobs.write(claim, renew, one_snapshot=one_snapshot)
    assert await jobs.effects() == 1
    with pytest.raises(LeaseLostError):
        await jobs.write(claim, take_away, one_snapshot=one_snapshot)
    assert await jobs.effects() == 1


async def test_a_write_that_is_about_to_be_committed_keeps_the_job_from_being_taken(jobs):
    """Between the look at the fence and the commit: nobody takes the job, nobody waits, its holder may renew."""
    claim = await jobs.leases.claim()
    async with jobs.database.connection() as connection, connection.transaction():
        async with jobs.leases.fenced(connection, claim):
            await connection.execute("INSERT INTO public.effect VALUES ('in time')")
        await jobs.execute(EXPIRE)
        assert await asyncio.wait_for(jobs.leases.claim(), LIMIT) is None
        assert not await asyncio.wait_for(jobs.leases.renew(claim, None), LIMIT)
        await jobs.execute(EXPIRE)
    assert await jobs.effects() == 1
    assert (await jobs.leases.claim()).fence == claim.fence + 1


@pytest.mark.slow
async def test_a_transaction_that_stands_still_is_ended_by_the_server(database_url):
    """A paused process holds no lock for longer than its lease, so that its rows can be written by others."""
    async with Database(database_url) as database:
        jobs = Jobs(database, lease=0.2)  # expires
        await jobs.prepare()
        claim = await jobs.leases.claim()
        async with await psycopg.AsyncConnection.connect(database_url) as paused:
            backend = paused.info.backend_pid

            async def is_gone():
                return (backend,) not in await jobs.execute("SELECT pid FROM pg_stat_activity")

            with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):  # noqa: PT012 - wherever it comes
                async with jobs.leases.fenced(paused, claim):
                    await paused.execute("INSERT INTO public.effect VALUES ('never')")
                await eventually(is_gone)
                await paused.execute("SELECT 1")
        assert await jobs.effects() == 0


async def test_first_uses_submissions_and_claims_at_once(database_url):
    """Clients make one table and store one job of a key; no two workers take the same job."""
    async with Database(database_url) as database:
        queue, leases = JobQueue(database, "semlex"), JobLeases(database, "semlex", 600)
        await asyncio.gather(*(JobQueue(database, "semlex").ensure_table() for _ in range(8)))
        assert await queue.list(state=None, collection=None, limit=1) == []
        nightly = NewJob("optimize", "c", {}, 0, "nightly", None, 5)
        found = await asyncio.gather(*(queue.submit(nightly) for _ in range(20)))
        assert len({info.id for info in found}) == 1
        assert len(await queue.list(state=None, collection=None, limit=100)) == 1
        for number in range(39):
            await queue.submit(NewJob("optimize", "c", {}, number % 3, None, None, 5))
        taken = await asyncio.gather(*(leases.claim() for _ in range(60)))
        claimed = [claim.job_id for claim in taken if claim is not None]
        assert len(claimed) == len(set(claimed)) == 40


async def test_behind_a_transaction_pooler(database_url):
    async with TransactionPooler(database_url) as pooler, Database(pooler.address) as database:
        jobs = Jobs(database)
        await jobs.prepare()
        claim = await jobs.leases.claim()
        await jobs.write(claim)
        assert not await jobs.leases.renew(claim, None)
        other = await jobs.taken_by_another()
        with pytest.raises(LeaseLostError):
            await jobs.write(claim)
        await jobs.write(other)
        await jobs.leases.complete(other, {})
        assert await jobs.effects() == 2
        assert {limit for (limit,) in [*await jobs.execute("SHOW idle_in_transaction_session_timeout")]} == {"0"}


async def test_no_clock_but_the_servers_is_asked(jobs, monkeypatch):
    def forbidden(*_):
        raise AssertionError("a clock of the client")

    for clock in ("time", "time_ns"):
        monkeypatch.setattr(f"time.{clock}", forbidden)
    monkeypatch.setattr("semlex.types.documents.utc_now", forbidden)
    claim = await jobs.leases.claim()
    assert not await jobs.leases.renew(claim, None)
    left = "SELECT due_at - clock_timestamp() BETWEEN interval '590 s' AND interval '600 s' FROM semlex.job"
    assert await jobs.execute(left) == [(True,)]
    await jobs.leases.complete(claim, {})
    assert await jobs.execute("SELECT clock_timestamp() - finished_at < interval '60 s' FROM semlex.job") == [(True,)]
