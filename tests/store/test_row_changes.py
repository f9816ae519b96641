"""The queue of changed rows beside a plain model of it: whatever is done in whatever order, both hold the same."""

import asyncio
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from semlex.store.followed.definitions import bound_times
from semlex.store.followed.queue import LAST_PAUSE_SECONDS, ChangeQueue, FailedRow
from semlex.store.schema.names import Names
from tests.support.properties import examples

pytestmark = pytest.mark.pg16

# Seconds of the model's clock. A test takes less than one of them, so that the true clock changes no order.
STEP = 10_000
LEASE = 2 * STEP
TABLES = [UUID(int=1), UUID(int=2)]
KEYS = ["1", "2", '[1, "a"]', "k" * 10_000]


@dataclass
class Entry:
    table: UUID
    key: str | None
    due: float
    attempts: int = 0
    hash: str | None = None
    code: str | None = None

    @property
    def row(self):
        return (self.table, self.key, self.attempts, self.hash, self.code)


def expected_pause(attempts):
    return min(60 * 2.0 ** (attempts - 1), LAST_PAUSE_SECONDS)


class QueueBesideModel(RuleBasedStateMachine):
    """What triggers and workers do with the queues of two tables."""

    url = ""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.entries = {}
        self.claimed = {table: [] for table in TABLES}
        self._runner = asyncio.Runner()
        self.connection = self.run(psycopg.AsyncConnection.connect(self.url, autocommit=True))
        self.plain = psycopg.connect(self.url, autocommit=True)
        self.plain.execute("TRUNCATE semlex.row_change")
        self.queues = {table: ChangeQueue(Names("semlex", "x"), table) for table in TABLES}

    def run(self, work):
        return self._runner.run(work)

    def teardown(self):
        self.plain.close()
        self.run(self.connection.close())
        self._runner.close()

    def stored(self):
        return self.plain.execute(
            "SELECT change_id, source_id, row_key, attempts, row_hash, error_code, "
            "extract(epoch FROM due_at - clock_timestamp())::float8 FROM semlex.row_change ORDER BY change_id"
        ).fetchall()

    @rule(table=st.sampled_from(TABLES), key=st.sampled_from([None, *KEYS]))
    def notice(self, table, key):
        insert = "INSERT INTO semlex.row_change (source_id, row_key, due_at, attempts) VALUES (%s, %s, now(), 0)"
        (number,) = self.plain.execute(insert + " RETURNING change_id", [table, key]).fetchone()
        self.entries[number] = Entry(table, key, self.now)

    @rule(steps=st.integers(1, 3))
    def pass_time(self, steps):
        self.now += steps * STEP
        self.plain.execute("UPDATE semlex.row_change SET due_at = due_at - %s * interval '1 s'", [steps * STEP])

    @rule(steps=st.integers(1, 3))
    def the_clock_steps_back(self, steps):
        """All stored times seem to be later, and are limited."""
        self.plain.execute("UPDATE semlex.row_change SET due_at = due_at + %s * interval '1 s'", [steps * STEP])
        self.run(bound_times(self.connection, "semlex", LEASE, {}))
        for entry in self.entries.values():
            longest = LEASE if entry.code is None else expected_pause(entry.attempts)
            entry.due = min(entry.due + steps * STEP, self.now + longest)

    @rule(table=st.sampled_from(TABLES), limit=st.integers(1, 4))
    def claim(self, table, limit):
        changes = self.run(self.queues[table].claim(self.connection, limit=limit, seconds=LEASE))
        due = sorted(entry.due for entry in self.entries.values() if entry.table == table and entry.due <= self.now)
        # Entries that are due at nearly the same time have any order.
        latest = due[min(limit, len(due)) - 1] + STEP / 2 if due else 0
        assert len(changes) == min(limit, len(due))
        for change in changes:
            entry = self.entries[change.change_id]
            assert (change.row_key, table) == (entry.key, entry.table)
            assert entry.due <= min(self.now, latest)
            entry.due = self.now + LEASE
        self.claimed[table] += changes

    @rule(table=st.sampled_from(TABLES), seconds=st.sampled_from([0, STEP]))
    def release(self, table, seconds):
        self.run(self.queues[table].release(self.connection, self.claimed[table], seconds=seconds))
        for change in self.claimed[table]:
            if change.change_id in self.entries:
                self.entries[change.change_id].due = self.now + seconds
        self.claimed[table] = []

    @rule(
        table=st.sampled_from(TABLES),
        done=st.lists(st.sampled_from(KEYS), max_size=2),
        failed=st.dictionaries(st.sampled_from(KEYS), st.sampled_from([None, "a", "b"]), max_size=2),
        count=st.integers(0, 3),
    )
    def settle(self, table, done, failed, count):
        done = [key for key in done if key not in failed]
        ended = self.claimed[table][:count]
        del self.claimed[table][:count]
        rows = [FailedRow(key, hashed, "TooLarge", "\0" + "é" * 5_000) for key, hashed in failed.items()]
        self.run(self.queues[table].settle(self.connection, ended, done=done, failed=rows))
        before = {}
        for number, entry in list(self.entries.items()):
            is_problem = entry.table == table and entry.code is not None
            if is_problem and entry.key in failed and entry.hash == failed[entry.key]:
                before[entry.key] = entry.attempts
            if (is_problem and (entry.key in failed or entry.key in done)) or number in {e.change_id for e in ended}:
                del self.entries[number]
        for number, source_id, key, *_, due in self.stored():
            if number not in self.entries:
                assert source_id == table
                attempts = before.get(key, 0) + 1
                assert due == pytest.approx(expected_pause(attempts), abs=20)
                ends = self.now + expected_pause(attempts)
                self.entries[number] = Entry(table, key, ends, attempts, failed[key], "TooLarge")
        assert {e.key for e in self.entries.values() if e.table == table and e.code} >= set(failed)

    @invariant()
    def holds_the_same(self):
        stored = self.stored()
        assert [row[:-1] for row in stored] == [(number, *one.row) for number, one in sorted(self.entries.items())]
        for number, *_, due in stored:
            assert self.entries[number].due - self.now == pytest.approx(due, abs=STEP / 2 if due > 0 else 2 * STEP)
        for table, queue in self.queues.items():
            own = [entry for entry in self.entries.values() if entry.table == table]
            problems = [entry for entry in own if entry.code is not None]
            assert self.run(queue.count(self.connection)) == (len(own) - len(problems), len(problems))
            shown = self.run(queue.problems(self.connection))
            assert sorted((one.key, one.attempts) for one in shown) == sorted((e.key, e.attempts) for e in problems)
            assert all(one.message == "é" * 1_999 for one in shown)
            put_off = {entry.key: entry.hash for entry in problems if entry.due > self.now}
            assert self.run(queue.put_off(self.connection, KEYS)) == put_off


def test_the_queue_holds_what_a_plain_model_of_it_holds(database_url):
    QueueBesideModel.url = database_url
    run_state_machine_as_test(QueueBesideModel, settings=settings(max_examples=examples(12), stateful_step_count=30))


async def test_workers_share_what_is_due_and_wait_for_nobody(database_url):
    queue = ChangeQueue(Names("semlex", "x"), uuid4())
    async with (
        await psycopg.AsyncConnection.connect(database_url) as first,
        await psycopg.AsyncConnection.connect(database_url) as second,
    ):
        await first.execute(
            "INSERT INTO semlex.row_change (source_id, row_key, due_at, attempts) "
            "SELECT %s, n::text, now(), 0 FROM generate_series(1, 5) AS n",
            [queue._source_id],
        )
        await first.commit()
        mine = await queue.claim(first, limit=3)
        others = await queue.claim(second)  # the first has not committed
        assert sorted(change.row_key or "" for change in mine + others) == ["1", "2", "3", "4", "5"]
        assert (len(mine), len(others)) == (3, 2)
        await first.rollback()  # killed before it committed: its part is there at once
        await second.commit()
        assert {change.row_key for change in await queue.claim(first)} == {change.row_key for change in mine}
