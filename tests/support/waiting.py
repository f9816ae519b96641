"""How tests wait: for a condition, on a lock that they hold, for a process that has stopped. Nothing else sleeps.

A test that stops, kills or interrupts something first makes sure that it cannot come to its end meanwhile: it holds a
lock (`held`) and waits until the other side asks for it (`until_waiting`), or lets it stop itself (`until_stopped` of a
`Program`).
"""

import asyncio
import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

LIMIT = 120.0
"""Seconds after which what should happen has failed: far more than a busy machine needs."""
PAUSE = 0.01
WAITING = """SELECT query FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database() ORDER BY 1"""


def until(condition, what=""):
    """Waits until a condition is true, and returns what it returned."""
    ends = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < ends, f"not within {LIMIT:g} s: {what or inspect.getsource(condition).strip()}"
        time.sleep(PAUSE)
    return found


async def eventually(condition, what=""):
    """As `until`, on an event loop; the condition may be a coroutine function."""
    ends = time.monotonic() + LIMIT
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < ends, f"not within {LIMIT:g} s: {what or inspect.getsource(condition).strip()}"
        await asyncio.sleep(PAUSE)


async def pause():
    """Leaves the processor to others for a moment, on an event loop."""
    await asyncio.sleep(PAUSE)


async def turns(count=10):
    """Lets everything that is ready on the event loop go on, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class Rounds:
    def __init__(self):
        self.number = 0
        self._count()

    def _count(self):
        self.number += 1
        asyncio.get_running_loop().call_soon(self._count)


@contextmanager
def held(url, table, mode="ACCESS EXCLUSIVE", *, asked=None):
    """Holds a lock on a table.

    `asked` is called as soon as the lock is asked for: a transaction that has the table may end then, and whoever comes
    later waits.
    """
    with psycopg.connect(url) as connection, ThreadPoolExecutor() as threads:
        called = asked and threads.submit(_when_asked, url, connection.info.backend_pid, table, asked)
        connection.execute(f"LOCK TABLE {table} IN {mode} MODE")
        if called:
            called.result()
        yield connection
        connection.rollback()


def _when_asked(url, pid, table, call):
    with psycopg.connect(url, autocommit=True) as looking:
        lock = "SELECT FROM pg_locks WHERE pid = %s AND relation = %s::regclass"
        until(lambda: looking.execute(lock, [pid, table]).rowcount, f"a lock on {table} is asked for")
    call()


def waiting_statements(connection):
    # Not prepared, as poolers do not like that. Without the first, a transaction never sees a session that came later.
    connection.execute("SELECT pg_stat_clear_snapshot()", prepare=False)
    return [query for (query,) in connection.execute(WAITING, prepare=False)]


def waiting(connection):
    return len(waiting_statements(connection))


def until_waiting(connection, count=1):
    """Waits until at least so many sessions of the database wait for a lock."""
    until(lambda: waiting(connection) >= count, f"{count} sessions that wait for a lock")
