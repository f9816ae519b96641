"""Clocks jump by an hour while workers run jobs and sync a followed table, and one of the workers is killed."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from semlex.proof.check import expect
from semlex.proof.children import Child, Moments, until
from semlex.proof.followed_tables import FollowedArticles
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import WordDirections, documents, draw_text
from semlex.retriever.synchronous import SyncClient
from semlex.store.proving import Connection, connected, job_states, jump_clock
from semlex.types.documents import utc_now
from semlex.types.jobs import ENDED

HOUR = 3_600.0
WORKERS, JUMPS, BETWEEN_SECONDS = 2, 3, 0.3
JOBS, TEXTS, IDS = 6, 5, 20
LEASE = 1.0  # seconds
# Share of moments at which a worker pauses, and for up to how many seconds: so jobs last until a jump.
PAUSES, PAUSE_SECONDS = 0.1, 0.3
# Killed workers use up attempts, and so do workers whose job another one has taken.
ATTEMPTS = 20


def work(url: str, schema: str, seed: int) -> None:
    """Run jobs and sync followed tables until killed, with a wall clock that jumps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills its children
    chance, ahead = random.Random(seed), 0.0

    def reached(_doing: str, _moment: str) -> None:
        nonlocal ahead
        ahead = chance.choice((-HOUR, 0.0, HOUR))
        if chance.random() < PAUSES:
            time.sleep(chance.uniform(0.0, PAUSE_SECONDS))

    Moments(reached).watch()
    replace_wall_clock(lambda: ahead)
    with SyncClient(url, WordDirections(), use_reranking=False, schema=schema) as client:
        client.work(concurrency=2, lease=LEASE, compare_every=LEASE)


def replace_wall_clock(ahead: Callable[[], float]) -> None:
    """Set this process's wall clock ahead by some seconds; clocks that measure elapsed time are unchanged."""
    nanoseconds, now, module = time.time_ns, utc_now, cast("Any", time)
    module.time_ns = lambda: nanoseconds() + round(ahead() * 1e9)
    for user in [user for user in sys.modules.values() if getattr(user, "utc_now", None) is now]:
        user.utc_now = lambda: now() + timedelta(seconds=ahead())  # type: ignore[attr-defined]


class ClockJumps(Scenario):
    """Let clocks jump while workers run jobs; jobs write the same documents, so a wrong order leaves wrong texts."""

    name = "clock"
    what = (
        "the times that the server has stored, and the clocks of two workers, jump by an hour in both directions; one "
        "of the workers is killed"
    )
    own_server = True  # a worker takes whatever is due in its schema

    def begin(self) -> None:
        self._url = self.site.server("clock").url
        client = self.opened.enter_context(self.site.client(self.site.application(self.name), self._url))
        self._collection = client.collection(self.names.collection)
        names = self.site.names(f"{self.name}_rows")
        self._articles = FollowedArticles(self._url, names, self.chance)
        self._articles.follow(client.collection(names.collection))
        self._workers = [self._worker() for _ in range(WORKERS)]
        self.opened.callback(self._end_workers)

    def attempt(self) -> Tries:
        with connected(self._url) as connection:  # one for all looks: they are many
            self._disturb(connection)
            until(lambda: self._states(connection) <= ENDED, "the end of all jobs after jumps of the clock")
            until(self._articles.is_in_step, "a collection in step with its table after jumps of the clock")
            states = self._states(connection)
        expect(states == {"done"}, "lost", f"jobs that are not done: {sorted(states)}")
        self._articles.check(complete=True)
        self.check_texts(self._url)
        return Tries(kills=1)

    def _disturb(self, connection: Connection) -> None:
        self._articles.stir()
        self._submit()
        until(lambda: self._states(connection) != {"queued"}, "a job that has begun")
        number = self.chance.randrange(WORKERS)
        self._workers[number].close()
        self._workers[number] = self._worker()
        for _ in range(JUMPS):
            jump_clock(connection, self.names.schema, self.chance.choice((-HOUR, HOUR)))
            self._articles.stir()
            time.sleep(self.chance.uniform(0.0, BETWEEN_SECONDS))

    def _worker(self) -> Child:
        return Child(work, self._url, self.names.schema, self.chance.randrange(10**9))

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.close()

    def _submit(self) -> None:
        self._jobs = []
        for _ in range(JOBS):
            texts = {f"d{n}": draw_text(self.chance) for n in self.chance.sample(range(IDS), TEXTS)}
            arguments = {"documents": documents(texts)}
            self._jobs.append(self._collection.jobs.submit("add", arguments, max_attempts=ATTEMPTS).id)
            self.texts |= texts

    def _states(self, connection: Connection) -> set[str]:
        return set(job_states(connection, self.names.schema, self._jobs).values())
