"""Fences: what a former holder of a job writes is never committed, whatever stands between two statements."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from contextvars import Context

import psycopg
import pytest

from semlex.errors import LeaseLostError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.jobs import JobLeases, JobQueue, NewJob
from semlex.store.postgres.database import Database, write_guard
from tests.support.waiting import LIMIT, eventually

pytestmark = pytest.mark.pg16
EXPIRE = "UPDATE semlex.job SET due_at = due_at - interval '1 day'"


class Jobs:
    """A queue with one job, and a table that is written to under its fence."""

    def __init__(self, database, lease=600):
        self.database = database
        self.leases = JobLeases(database, "semlex", lease)

    async def prepare(self):
        queue = JobQueue(self.database, "semlex")
        await queue.ensure_table()
        await queue.submit(NewJob("optimize", "c", {}, 0, None, None, 5))
        await self.execute("CREATE TABLE public.effect (who text)")

    async def execute(self, statement):
        async with self.database.connection() as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    async def claimed(self):
        claim = await self.leases.claim()
        assert claim is not None
        return claim

    async def taken_by_another(self):
        await self.execute(EXPIRE)
        return await self.claimed()

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


@pytest.mark.parametrize("one_snapshot", [False, True], ids=["read committed", "one snapshot"])
async def test_a_write_is_refused_whose_job_goes_on_elsewhere_meanwhile(jobs, one_snapshot):
    first = await jobs.claimed()
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
    """A renewal waits for nothing and stops nothing. The number is part of the key: whatever changes it is seen."""
    claim = await jobs.claimed()

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
    claim = await jobs.claimed()
    async with jobs.database.connection() as connection, connection.transaction():
        async with jobs.leases.fenced(connection, claim):
            await connection.execute("INSERT INTO public.effect VALUES ('in time')")
        await jobs.execute(EXPIRE)
        assert await asyncio.wait_for(jobs.leases.claim(), LIMIT) is None
        assert not await asyncio.wait_for(jobs.leases.renew(claim, None), LIMIT)
        await jobs.execute(EXPIRE)
    assert await jobs.effects() == 1
    assert (await jobs.claimed()).fence == claim.fence + 1


@pytest.mark.slow
async def test_a_transaction_that_stands_still_is_ended_by_the_server(database_url):
    """A paused process holds no lock for longer than its lease, so that its rows can be written by others."""
    async with Database(database_url) as database:
        jobs = Jobs(database, lease=0.2)  # expires
        await jobs.prepare()
        claim = await jobs.claimed()
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


async def test_first_uses_submissions_of_a_key_and_claims_at_the_same_moment(database_url):
    """They make one table, store one job, and nobody gets a job that another takes."""
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
        claim = await jobs.claimed()
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
    claim = await jobs.claimed()
    assert not await jobs.leases.renew(claim, None)
    left = "SELECT due_at - clock_timestamp() BETWEEN interval '590 s' AND interval '600 s' FROM semlex.job"
    assert await jobs.execute(left) == [(True,)]
    await jobs.leases.complete(claim, {})
    ended = "SELECT clock_timestamp() - finished_at < interval '60 s' FROM semlex.job"
    assert await jobs.execute(ended) == [(True,)]
