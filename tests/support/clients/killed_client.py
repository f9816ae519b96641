"""A process for tests: `semlex`, until itself or a process of its server is killed at a named point of its work.

It says ``begun`` when all is imported, ``watching`` whenever a look at a watched folder is over, and ``reached`` with
the victim's process at the point, before it kills. The points lie around functions of semlex and of the driver, which
know nothing of them.
"""

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

# What is imported now is not waited for later.
import semlex.cli.commands.index
import semlex.retriever.synchronous  # noqa: F401
from semlex.cli.app import main as semlex_main
from semlex.ingest.watch import FolderWatch
from semlex.proof.children import Moments, say, set_limits, stop_here
from tests.support.embedded_servers import postmaster_pid

COMMANDS = ("index", "sync", "watch")
ONCE, FOLLOWING = ("index", "sync"), ("sync", "watch")
VICTIMS = ("client", "backend", "server")
ALL = 10_000  # more chunks than a folder of the tests has


@dataclass(frozen=True)
class Point:
    """A point of a run.

    Its moment is ``before`` the transaction; ``worked``: all is done but the commit; ``committed``, which nobody has
    been told; ``ending``: before the second of two.
    """

    doing: str | None  # how the name of the transaction begins that it lies in; None: it lies around a function
    moment: str = ""
    commands: tuple[str, ...] = COMMANDS  # that come to it
    collection: str | None = None  # "new" or "known" where it must be that
    batch: int | None = None  # chunks of a batch of files with which a run comes to it; None: any
    times: int = 1  # how often a run comes to it at least


INSIDE_COPY = "inside a COPY"
ANYWHERE = "any moment"
GATHERING = "changes of a watched folder gathered"
INDEXING = "the run ended, its indexes being built"
POINTS = {
    "sources opened": Point("open the sources", "committed"),
    "a batch compared with what is stored": Point("look for embeddings", "committed", COMMANDS, "known", 10, 4),
    "a batch read and embedded": Point("index files", "before", batch=10, times=4),
    INSIDE_COPY: Point(None, batch=ALL, times=2),
    # The two ways in: COPY straight into the tables, and a merge with what is there.
    "a batch of the first run written, not committed": Point("index files", "worked", ONCE, "new", batch=10, times=4),
    "a batch of another run written, not committed": Point("index files", "worked", COMMANDS, "known", 10, 4),
    "a batch committed, nobody told": Point("index files", "committed", batch=10, times=4),
    "documents moved, not committed": Point("move documents", "worked", FOLLOWING, "known"),
    "documents deleted, not committed": Point("delete", "worked", FOLLOWING, "known", times=2),
    "states of files stored, not committed": Point("store the states of files", "worked", collection="known"),
    "the keyword index merged, not committed": Point("merge the keyword index", "worked", batch=1),
    # Before the indexes are built, and when they are there.
    INDEXING: Point("analyze", "worked", ONCE, "new", times=2),
    GATHERING: Point(None, commands=("watch",)),
    "all done but the end of the log": Point("write the log", "ending"),
}


@dataclass(frozen=True)
class Order:
    """What is to be run, and what is to be killed when."""

    arguments: list[str]  # of `semlex`
    url: str
    server: Path  # its folder
    point: str | None = None  # of `POINTS`; None: a moment inside a transaction, or of which nobody has been told
    times: int = 1  # at which of the times that the point is reached; 0: never
    victim: str = "client"  # one of `VICTIMS`
    sent: signal.Signals = signal.SIGKILL  # to the client; others are killed
    limits: dict[str, dict[str, int]] = field(default_factory=dict)  # as for `set_limits`


class Killing:
    def __init__(self, order):
        self._order, self._left, self._logged = order, order.times, 0
        # What lies in the first look at a watched folder does not count: the folder changes afterwards.
        self._is_armed = "--watch" not in order.arguments
        self._moments = Moments(self._pass)

    def reach(self, point):
        """Kills where this is the point, and it has been reached so many times."""
        if point != (self._order.point or ANYWHERE) or not self._is_armed or self._left == 0:
            return
        self._left -= 1
        if self._left > 0:
            return
        if self._order.victim == "client":
            say(f"reached {os.getpid()}")
            stop_here(self._order.sent)
        else:
            is_server = self._order.victim == "server"
            victim = postmaster_pid(self._order.server) if is_server else self._moments.backend
            say(f"reached {victim}")
            os.kill(victim, signal.SIGKILL)

    def _pass(self, doing, moment):
        if self._order.point is None and moment != "before":
            self.reach(ANYWHERE)
        if moment == "copying":
            self.reach(INSIDE_COPY)
        if doing == "write the log" and moment == "before":
            self._logged += 1
            moment = "beginning" if self._logged % 2 else "ending"
        for name, point in POINTS.items():
            if point.doing is not None and doing.startswith(point.doing) and moment == point.moment:
                self.reach(name)

    def set_points(self):
        self._moments.watch()
        changed, is_wanted = FolderWatch.changed, FolderWatch._is_wanted

        async def arming(folders):
            self._is_armed = True
            say("watching")
            return await changed(folders)

        def gathering(folders, path):
            if wanted := is_wanted(folders, path):
                self.reach(GATHERING)
            return wanted

        FolderWatch.changed, FolderWatch._is_wanted = arming, gathering


def run(order):
    os.environ["DATABASE_URL"] = order.url
    set_limits(order.limits)
    Killing(order).set_points()
    sys.argv = ["semlex", *order.arguments]
    say("begun")
    semlex_main()
