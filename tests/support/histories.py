"""Histories of a followed table: writers and workers whose steps follow a drawn order, and workers that are killed.

A step of a writer is a statement. A step of a worker is a transaction: before each one it waits for its turn. A worker
that is killed never gets another turn, so that all it leaves is what it has committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

import psycopg
from hypothesis import strategies as st
from psycopg import sql
from psycopg.pq import TransactionStatus

from semlex.errors import SemlexError
from semlex.jobs.tables import TableKeeper
from semlex.store.postgres.database import Database
from tests.support.waiting import LIMIT

WRITERS, WORKERS = 4, 2
# More transactions than a worker has for anything.
TO_THE_END = 1_000


class Writer:
    """A user's session; a statement that would wait for another one's lock fails instead."""

    def __init__(self, url, table):
        self.connection = psycopg.connect(url, autocommit=True, options="-c lock_timeout=20ms")  # expires
        self._table = table.table

    def do(self, act, number, value):
        execute = self.connection.execute
        status = self.connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            execute("ROLLBACK")
        is_open = status == TransactionStatus.INTRANS
        with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            match act:
                case "begin":
                    execute("SAVEPOINT s" if is_open else "BEGIN")
                case "commit" | "rollback":
                    execute(act)
                case "rollback to":
                    with suppress(psycopg.errors.InvalidSavepointSpecification):
                        execute("ROLLBACK TO s" if is_open else "ROLLBACK")
                case "truncate":  # not left open: workers would wait for it
                    execute("COMMIT")
                    execute(sql.SQL("TRUNCATE {}").format(self._table))
                case _:
                    execute(WRITES[act].format(self._table), {"id": number, "value": value})


WRITES = {
    "insert": sql.SQL(
        "INSERT INTO {} (id, title, body, updated_at) SELECT n, 'title ' || n, %(value)s || n, clock_timestamp() "
        "FROM generate_series(%(id)s::int, %(id)s + 1) AS n ON CONFLICT (id) DO UPDATE SET body = excluded.body, "
        "updated_at = clock_timestamp()"
    ),
    "body": sql.SQL("UPDATE {} SET body = %(value)s || id, updated_at = clock_timestamp() WHERE id >= %(id)s"),
    "author": sql.SQL("UPDATE {} SET author = %(value)s, updated_at = clock_timestamp() WHERE id = %(id)s"),
    "status": sql.SQL("UPDATE {} SET status = %(value)s, updated_at = clock_timestamp() WHERE id <= %(id)s"),
    "key": sql.SQL("UPDATE {} SET id = (id + 4) %% 8, updated_at = clock_timestamp() WHERE id = %(id)s"),
    "delete": sql.SQL("DELETE FROM {} WHERE id = %(id)s"),
}

_worker = ContextVar("worker", default=None)


@dataclass
class Worker:
    """A worker that does one thing at a time: it looks at the table, or stores what is queued."""

    keeper: Callable[[], TableKeeper]
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    _task: asyncio.Task[None] | None = None
    _in_turn: int = 0
    _is_dead: bool = False
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def steps(self, task, count):
        """Begins if it does nothing, and lets so many transactions go on."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(task))
        for _ in range(count):
            await self._until_waiting()
            if self._task.done():
                self._end()
                return
            self._waiting.popleft().set_result(None)
        await self._until_waiting()

    async def finish(self):
        if self._task is not None:
            await self.steps("look", TO_THE_END)
            assert self._task is None

    async def kill(self):
        """It stops where it is, and somebody starts it again later."""
        self._is_dead = True
        if self._task is not None:
            while not self._task.done():
                self._task.cancel()
                while self._waiting:
                    self._waiting.popleft().cancel()
                await asyncio.wait({self._task}, timeout=0.01)  # expires: its tasks may begin further transactions
            self._end()
        self._is_dead = False

    async def turn(self):
        if self._is_dead:
            raise asyncio.CancelledError
        self._waiting.append(asyncio.get_running_loop().create_future())
        self._moved.set()
        await self._waiting[-1]

    def count(self, change):
        self._in_turn += change
        self._moved.set()

    async def _until_waiting(self):
        """Until all that it could do is done: it waits for its turn, or has ended."""
        self._task.add_done_callback(lambda _: self._moved.set())
        async with asyncio.timeout(LIMIT):
            while self._in_turn or not (self._waiting or self._task.done()):
                self._moved.clear()
                await self._moved.wait()

    def _end(self):
        if not self._task.cancelled():
            self._task.result()
        self._task = None

    async def _work(self, task):
        _worker.set(self)
        keeper = self.keeper()
        with suppress(SemlexError):  # such as: nothing is left of the table
            await (keeper.look(1) if task == "look" else keeper.store_changes(1))


@contextmanager
def transactions_in_turn(patch):
    """From here on, transactions of workers wait for their turn."""
    real = Database._run

    async def run(self, doing, transaction, *, writing=False):
        worker = _worker.get()
        if worker is None:
            return await real(self, doing, transaction, writing=writing)
        await worker.turn()
        worker.count(1)
        try:
            return await real(self, doing, transaction, writing=writing)
        finally:
            worker.count(-1)

    with patch.context() as patched:
        patched.setattr(Database, "_run", run)
        yield


_writers, _workers, _numbers = st.integers(0, WRITERS - 1), st.integers(0, WORKERS - 1), st.integers(0, 7)
_zero = st.just(0)
TASKS = ["look", "changes", "changes"]


def _event(kind, who=_zero, acts=("",), counts=_zero, values=(None,)):
    return st.tuples(st.just(kind), who, st.sampled_from(acts), counts, st.sampled_from(values))


_writes = st.one_of(
    _event("write", _writers, ["insert", "body"], _numbers, [" apple", " banana", " long" * 60]),
    _event("write", _writers, ["author", "status"], _numbers, ["a", "b"]),
    _event("write", _writers, ["key", "delete"], _numbers),
    _event("write", _writers, ["begin", "commit"]),
    _event("write", _writers, ["rollback", "rollback to"]),
)
_rare = st.one_of(_event("write", _writers, ["truncate"]), _event("kill", _workers), _event("expire"))
_works = _event("work", _workers, TASKS, st.one_of(st.integers(1, 12), st.just(TO_THE_END)))

CHANGES = [
    ("insert", 0, " apple"), ("body", 0, " apple"), ("body", 0, " banana"), ("author", 0, "a"), ("author", 0, "b"),
    ("key", 0, None), ("delete", 0, None),
]  # fmt: skip


@st.composite
def _races(draw):
    """A worker stops somewhere between reading rows and storing them; they change, and the other one stores them."""
    worker, writer, task = draw(_workers), draw(_writers), draw(st.sampled_from(TASKS))
    return [
        ("work", worker, task, TO_THE_END, None),
        ("write", writer, "commit", 0, None),
        ("write", writer, *draw(st.sampled_from(CHANGES))),
        ("work", worker, task, draw(st.integers(4, 14)), None),
        ("write", writer, *draw(st.sampled_from(CHANGES))),
        ("expire", 0, "", 0, None),
        *[("work", 1 - worker, task, TO_THE_END, None)] * 2,
    ]


_any = st.lists(st.one_of(_writes, _writes, _works, _works, _rare), max_size=12)
events = st.tuples(_any, _races(), _any, _races(), _any).map(lambda parts: [event for part in parts for event in part])
# Every lease is over, of workers that live as well.
EXPIRE = """
    UPDATE semlex.followed_table SET leased_until = NULL, look_at = now();
    UPDATE semlex.row_change SET due_at = now() WHERE error_code IS NULL;
"""


async def happen(history, writers, workers, expire):
    """Lets a history happen; at its end no transaction is open, and workers that were not killed have ended."""
    for kind, number, act, count, value in history:
        match kind:
            case "write":
                writers[number].do(act, count, value)
            case "work":
                await workers[number].steps("look" if act == "look" else "changes", count)
            case "kill":
                await workers[number].kill()
            case _:
                expire()
    for writer in writers:
        writer.connection.execute("ROLLBACK")
    for worker in workers:
        await worker.finish()
    expire()
