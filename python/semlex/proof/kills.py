"""A process is killed with SIGKILL at a moment of its work; what it leaves is whole, and the next run completes it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from semlex.proof.children import Child, kill_after, until
from semlex.proof.faults import Fault
from semlex.proof.followed_tables import Following
from semlex.proof.index_builds import Building
from semlex.proof.moments import Moments, say, set_limits
from semlex.proof.queued_jobs import Working
from semlex.proof.restores import Restoring
from semlex.proof.scenarios import Kind, Scenario, Tries
from semlex.proof.works import (
    Adding,
    Deleting,
    Indexing,
    Limits,
    Loading,
    Optimizing,
    Rebuilding,
    Reembedding,
    Syncing,
    Work,
    collection_of,
)
from semlex.retriever.synchronous import SyncClient
from semlex.store.proving.ground import backends, connected, named_clients

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site
    from semlex.store.schema.names import Names

WORKS: dict[str, type[Work]] = {
    work.name: work
    for work in (
        *(Indexing, Syncing, Adding, Deleting, Loading, Optimizing, Rebuilding, Reembedding),
        *(Building, Following, Working),
        *((Restoring,) if find_spec("pyarrow") is not None else ()),  # dumps are Parquet
    )
}
# Before a run has come to its end: moments that it is thought to have, and seconds.
MOMENTS, SECONDS = 12, 0.05
LATER = 8
# How often the end of a process's connections is waited for behind a pooler, which keeps them.
POOLED_LOOKS = 500


@dataclass(frozen=True)
class Order:
    """What a process does, and when it is killed.

    Attributes:
        moment: At which moment of its transactions; 0: at none.
        seconds: After which time; None: never.
    """

    url: str
    names: Names
    work: str
    arguments: Any
    limits: Limits
    moment: int
    seconds: float | None


def run(order: Order) -> None:
    """Work until killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills its children
    set_limits(order.limits)
    passed = 0

    def reached(_doing: str, _moment: str) -> None:
        nonlocal passed
        passed += 1
        if passed == order.moment:
            os.kill(os.getpid(), signal.SIGKILL)

    Moments(reached).watch()
    work = WORKS[order.work]
    with SyncClient(
        order.url, work.child_model(), use_reranking=False, schema=order.names.schema, max_connections=2
    ) as client:
        began = time.monotonic()
        if order.seconds is not None:
            kill_after(order.seconds)
        work.do(client, collection_of(client, order.names, work), order.arguments, partial(say, "acknowledged"))
        say(f"ended {passed} {time.monotonic() - began}")


class Killed(Scenario):
    """A work, killed again and again."""

    def __init__(self, work: type[Work], site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._work = work(site, chance)
        self._moments, self._seconds = MOMENTS, SECONDS
        self._is_known = False  # how many moments a run has, and how long it takes

    def attempt(self) -> Tries:
        work, chance = self._work, self.chance
        arguments = work.draw()
        at_moment = chance.random() < 0.5
        application = self.site.application(work.name)
        order = Order(
            named_clients(self.site.url, application),
            work.names,
            work.name,
            arguments,
            work.limits(),
            chance.randint(1, self._moments) if at_moment else 0,
            None if at_moment else chance.uniform(0.0, self._seconds),
        )
        with Child(run, order) as child:
            code, said = child.ended(), child.said
        if code not in (0, -signal.SIGKILL):
            raise Fault("wrong", f"the process ended with exit code {code}: {said[-2000:]}")
        self._learn(order, said)
        self._wait_for_backends(application)
        work.check_killed(said.split().count("acknowledged"), arguments)
        work.finish(arguments)
        self.site.sabotage(work.names)
        work.check()
        return Tries(kills=int(code != 0))

    def _learn(self, order: Order, said: str) -> None:
        """Take from runs that ended how long they are; until one did, try later and later moments."""
        ended = [line.split()[1:] for line in said.splitlines() if line.startswith("ended ")]
        for moments, seconds in ended:
            known = (self._moments, self._seconds) if self._is_known else (1, 0.0)
            self._moments, self._seconds = max(known[0], int(moments)), max(known[1], float(seconds))
            self._is_known = True
            self.notes["ended before the kill"] += 1
        if not self._is_known:
            self._moments = max(self._moments, order.moment + LATER)
            self._seconds = max(self._seconds, 1.5 * (order.seconds or 0.0))

    def _wait_for_backends(self, application: str) -> None:
        """What a killed process has sent is done or undone when its backends have ended."""
        looks = 0
        with connected(self.site.url) as connection:

            def are_gone() -> bool:
                nonlocal looks
                looks += 1
                return looks > POOLED_LOOKS or not backends(connection, application)

            until(are_gone, "the end of a killed process's connections")

    def close(self) -> None:
        self._work.close()


KINDS = [Kind(f"kill-{work.name}", "kill", work.what, partial(Killed, work), weight=2.0) for work in WORKS.values()]
