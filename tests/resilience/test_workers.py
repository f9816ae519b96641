"""Workers that are killed, paused past their lease, or cut off: no job is lost, done twice, or stuck."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from semlex import Document, SyncClient
from semlex.testing import HashEmbedder
from tests.support.clients import worker_client
from tests.support.clients.worker_client import Order
from tests.support.whole_collection import count_faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", worker_client.__name__])

WORKERS = 3
ADDED, INDEXED = 180, 20
LEASE = 1.0
# A job that is done is written down, by whoever does it: nothing of the queue's own can say that it was done twice.
AUDIT = """
    CREATE TABLE public.ended (job_id uuid, state text, fence int);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.ended VALUES (NEW.job_id, NEW.state, NEW.fence); RETURN NEW; END $$;
    CREATE TRIGGER note AFTER UPDATE ON semlex.job FOR EACH ROW
        WHEN (OLD.state <> NEW.state AND NEW.state IN ('done', 'failed', 'cancelled'))
        EXECUTE FUNCTION public.note();
"""


class Workers:
    """Several workers, each of which may be killed or paused; a killed one is followed by another.

    Args:
        order: How they are started.
        count: How many.
    """

    def __init__(self, order: Order, count: int = WORKERS) -> None:
        self._order = order
        self._paused: dict[int, float] = {}
        self._processes = [self._start() for _ in range(count)]

    def _start(self) -> Any:
        process = PROCESSES.Process(target=worker_client.run, args=(self._order,))
        process.start()
        return process

    def kill(self, number: int) -> None:
        """Kills one; another takes its place."""
        self._processes[number].kill()
        self._processes[number].join()
        self._paused.pop(number, None)
        self._processes[number] = self._start()

    def pause(self, number: int, seconds: float) -> None:
        """Stops one for a time."""
        os.kill(self._processes[number].pid, signal.SIGSTOP)
        self._paused[number] = time.monotonic() + seconds

    def go_on(self, *, all_of_them: bool = False) -> None:
        """Lets those go on whose time is over."""
        for number, until in list(self._paused.items()):
            if all_of_them or time.monotonic() >= until:
                del self._paused[number]
                os.kill(self._processes[number].pid, signal.SIGCONT)

    @property
    def awake(self) -> list[int]:
        """Those that are not paused."""
        return [number for number in range(len(self._processes)) if number not in self._paused]

    def check(self) -> None:
        """None has ended by itself."""
        assert [process.exitcode for process in self._processes] == [None] * len(self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
            process.close()


@contextmanager
def workers(order: Order, count: int = WORKERS) -> Iterator[Workers]:
    found = Workers(order, count)
    try:
        yield found
    finally:
        found.close()


def client(url: str) -> SyncClient:
    return SyncClient(url, HashEmbedder(8), use_reranking=False)


def states(connection: psycopg.Connection[Any]) -> Counter[str]:
    return Counter(state for (state,) in connection.execute("SELECT state FROM semlex.job").fetchall())


def make_folders(base: Path) -> list[Path]:
    """Folders of a few files, each to be indexed by a job of its own."""
    folders = []
    for number in range(INDEXED):
        folder = base / f"folder{number}"
        folder.mkdir()
        for page in range(3):
            (folder / f"{page}.md").write_text(f"# Page {page}\n\nWords of page {page} in {number}.\n")
        folders.append(folder)
    return folders


@pytest.mark.timeout(1_800)
def test_killed_and_paused_workers_lose_nothing(database_url: str, tmp_path: Path, full: bool) -> None:
    chance = random.Random()
    folders = make_folders(tmp_path)
    with client(database_url) as opened, psycopg.connect(database_url, autocommit=True) as connection:
        book = opened.collection("book")
        book.add_texts(["the first"], ids=["first"])
        book.submit("optimize").cancel()  # makes the table
        connection.execute(AUDIT)
        for round_ in range(10 if full else 1):
            expected = submit_all(book, folders, round_)
            connection.execute("TRUNCATE public.ended")
            with workers(Order(database_url, tmp_path, LEASE)) as running:
                disturbed = disturb(running, connection, chance, 5)
                wait_until_all_ended(running, connection)
                running.check()
            logger.info("round %d: %s", round_, disturbed)
            check_all_done_once(connection, expected)
            check_effects(book, connection, round_)
            check_claims(connection)


def submit_all(book: Any, folders: list[Path], round_: int) -> set[str]:
    expected = set()
    for number in range(ADDED):
        texts = [Document(f"text {number} of round {round_}", {"round": round_}, f"{number}-{n}") for n in range(2)]
        expected.add(book.submit("add", {"documents": texts}, max_attempts=1_000).id)
    for number, folder in enumerate(folders):
        (folder / "0.md").write_text(f"# Page 0\n\nRound {round_} in {number}.\n")
        kind = "sync" if number % 2 else "index"
        expected.add(book.submit(kind, {"paths": [folder]}, max_attempts=1_000).id)
    assert len(expected) == ADDED + INDEXED
    return expected


def disturb(running: Workers, connection: psycopg.Connection[Any], chance: random.Random, times: int) -> Counter[str]:
    """Kills and pauses workers while there is something to do; returns how often."""
    done: Counter[str] = Counter()
    while sum(done.values()) < times and states(connection).keys() & {"queued", "running"}:
        time.sleep(chance.uniform(0, 0.6))
        running.go_on()
        if not running.awake:
            continue
        number = chance.choice(running.awake)
        if chance.random() < 0.5:
            running.kill(number)
            done["killed"] += 1
        else:
            running.pause(number, chance.uniform(LEASE, 3 * LEASE))
            done["paused"] += 1
    return done


def wait_until_all_ended(running: Workers, connection: psycopg.Connection[Any]) -> None:
    until = time.monotonic() + 180
    while states(connection).keys() & {"queued", "running"}:
        running.go_on()
        assert time.monotonic() < until, f"stuck: {states(connection)}"
        time.sleep(0.05)
    running.go_on(all_of_them=True)
    time.sleep(LEASE)  # what a paused worker still wants to write is written, or refused, by now


def check_all_done_once(connection: psycopg.Connection[Any], expected: set[str]) -> None:
    ended = connection.execute("SELECT job_id::text, state FROM public.ended").fetchall()
    assert {state for _, state in ended} == {"done"}
    assert Counter(job_id for job_id, _ in ended) == dict.fromkeys(expected, 1)


def check_effects(book: Any, connection: psycopg.Connection[Any], round_: int) -> None:
    assert count_faults(connection, "book") == {"a chunk without a document": 2 * ADDED + 1}  # what was added has none
    assert book.count({"round": round_}) == 2 * ADDED
    assert book.count() == 2 * ADDED + 3 * INDEXED + 1
    assert book.count('@uri == "0.md"') == INDEXED
    texts = connection.execute("SELECT chunk_text FROM semlex.book_chunk WHERE source_document = '0.md'").fetchall()
    assert all(f"Round {round_} in" in text for (text,) in texts)


def check_claims(connection: psycopg.Connection[Any]) -> None:
    """Every taking had a number of its own, so that no attempt is without one."""
    row = connection.execute("SELECT count(*) FROM semlex.job WHERE attempts > fence").fetchone()
    assert row == (0,)


def test_workers_that_are_cut_off_come_back(database_url: str, tmp_path: Path, server_url: str) -> None:
    name = sql.Identifier(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    with client(database_url) as opened:
        book = opened.collection("book")
        jobs = [book.submit("add", {"documents": [Document(f"text {n}", id=str(n))]}, max_attempts=100)
                for n in range(60)]  # fmt: skip
        with workers(Order(database_url, tmp_path, LEASE), 2) as running:
            jobs[5].wait(120)
            with psycopg.connect(server_url, autocommit=True) as administration:
                try:
                    administration.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
                    administration.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                        [psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]],
                    )
                    time.sleep(2.5)
                finally:
                    administration.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
            assert {job.wait(120).state for job in jobs} == {"done"}
            running.check()
        assert book.count() == len(jobs)
