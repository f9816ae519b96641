"""Programs of tests as processes of their own, made from one that has imported everything: they begin at once."""

import os

import psutil

from semlex.proof.children import PRELOADED, PROCESSES, Child
from tests.support.waiting import until

CLIENTS = ("first_use", "killed_client", "migrating_client", "old_model_client", "worker_client")
SEMLEX = ("cli.app", "server.app", "server.mcp.http", "server.mcp.server")
PROCESSES.set_forkserver_preload(
    ["pytest", *PRELOADED, *(f"semlex.{one}" for one in SEMLEX), *(f"tests.support.clients.{one}" for one in CLIENTS)]
)


class Program(Child):
    """A function of a module of `tests.support.clients` in a process of its own."""

    is_alive = Child.is_running

    def waits(self, is_there):
        """Waits until its words are such, or it has ended; returns whether they are."""
        until(lambda: is_there(self.said.split()) or not self.is_running, "words of a program")
        return is_there(self.said.split())

    def until_said(self, word, times=1):
        assert self.waits(lambda words: words.count(word) >= times), f"it ended without {word!r}: {self.said}"

    def until_stopped(self):
        """Waits until it has stopped (SIGSTOP), which it does at a point that it knows itself."""
        try:
            process = psutil.Process(self.pid)
            until(lambda: process.status() == psutil.STATUS_STOPPED, f"process {self.pid} stopped")
        except (AssertionError, psutil.Error) as error:
            error.add_note(f"it said: {self.said}")
            raise

    def send(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self._process.kill()
        self.ended()
