"""The server crashes under writers and searchers."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from semlex.proof.children import is_alive, until
from semlex.proof.interruptions import Interrupted
from semlex.store.postgres.embedded.process import read_postmaster
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.proving.ground import backends, connected

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.proof.traffic import Traffic

WAYS = ("server killed", "server stopped at once", "backend killed")


class Crashes(Interrupted):
    """Crash a separate server repeatedly."""

    name = "crash"
    what = "the server killed or stopped at once, or one of its backends killed, under writers, searchers and a merger"
    own_server = True
    weight = 2.0

    def begin(self) -> None:
        self._server = self.site.server("crashing")

    @property
    def address(self) -> str:
        return self._server.url

    async def interrupt(self, application: str, traffic: Traffic) -> None:
        del traffic
        way = self.chance.choice(WAYS)
        await asyncio.to_thread(self._crash, way, application)
        await asyncio.to_thread(start, self._server.folder)
        self.notes[way] += 1

    def _crash(self, way: str, application: str) -> None:
        if way == "backend killed":
            with connected(self._server.url) as connection:
                victim = self.chance.choice(backends(connection, application))
            os.kill(victim, signal.SIGKILL)
            until(lambda: not is_alive(victim), "the end of a killed backend")
        else:
            kill_server(self._server.folder, signal.SIGKILL if way == "server killed" else signal.SIGQUIT)


def kill_server(folder: Path, number: signal.Signals) -> None:
    """Send a signal to the server of a folder, and wait until it is gone."""
    postmaster = read_postmaster(folder)
    if postmaster is not None and is_alive(postmaster.pid):
        os.kill(postmaster.pid, number)
        until(lambda: not is_alive(postmaster.pid), "the end of a killed server")


def start(folder: Path) -> None:
    """Start the server of a folder if it is gone, and wait until it has recovered."""
    with EmbeddedServer(folder):
        pass
