"""Programs of tests as processes of their own, made from one that has imported everything: they begin at once."""

import os

import psutil

from semlex.proof.children import PRELOADED, PROCESSES, Child
from tests.support.waiting import until, until_stopped

CLIENTS = ("first_use", "killed_client", "migrating_client", "old_model_client", "worker_client")
SERVERS = ("app", "mcp.http", "mcp.server")
PROCESSES.set_forkserver_preload(
    [
        *("pytest", *PRELOADED, "semlex.cli.app", *(f"semlex.server.{name}" for name in SERVERS)),
        *(f"tests.support.clients.{name}" for name in CLIENTS),
    ]
)


class Program(Child):
    """A function of a module of `tests.support.clients` in a process of its own."""

    @property
    def is_alive(self):
        return self._exit_code() is None

    def waits(self, is_there):
        """Waits until its words are such, or it has ended; returns whether they are."""
        until(lambda: is_there(self.said.split()) or not self.is_alive, "words of a program")
        return is_there(self.said.split())

    def until_said(self, word, times=1):
        """Waits until it has said a word so often."""
        assert self.waits(lambda words: words.count(word) >= times), f"it ended without {word!r}: {self.said}"

    def until_stopped(self):
        try:
            until_stopped(self.pid)
        except (AssertionError, psutil.Error) as error:
            error.add_note(f"it said: {self.said}")
            raise

    def send(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """Kills it, and waits until it is gone."""
        self._process.kill()
        self.ended()
