"""Processes of a proof, forked from one that has imported everything: they begin at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from semlex.proof.faults import LIMIT_SECONDS, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES: Any = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")
# Before its first child, a program may have the server of children import this.
PRELOADED = ["semlex.proof.catalogue", "semlex.retriever.client", "semlex.retriever.postgres"]


def preload() -> None:
    """Let the fork server import what its children need; does nothing after the first child."""
    PROCESSES.set_forkserver_preload(PRELOADED)


class Child:
    """A function in its own process; its output is kept."""

    _living: set[Child] = set()  # noqa: RUF012 - shared on purpose
    # Starting a process asks for the end of all others, and the end of one can be read once: threads take turns.
    _turn = threading.RLock()

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:
        self._output = tempfile.NamedTemporaryFile("w", prefix="semlex-proof-")  # noqa: SIM115 - in close
        self._process = PROCESSES.Process(target=_run, args=(main, self._output.name, arguments))
        with self._turn:
            self._process.start()
        self._living.add(self)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return int(self._process.pid)

    @property
    def said(self) -> str:
        """The output of the process so far, on both streams."""
        return Path(self._output.name).read_text(encoding="utf-8")

    def ended(self) -> int:
        """Wait for its end and return the exit code."""
        until(lambda: not self.is_running, "the end of a process")
        return int(self._exit_code() or 0)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._exit_code() is None

    def _exit_code(self) -> int | None:
        with self._turn:
            return self._process.exitcode  # type: ignore[no-any-return]

    def close(self) -> None:
        """Kill it if it still lives."""
        if self not in self._living:
            return
        self._living.discard(self)
        with self._turn:
            self._process.kill()
        until(lambda: not self.is_running, "the end of a killed process")
        with self._turn:
            self._process.close()
        self._output.close()

    @classmethod
    def close_all(cls) -> None:
        """Kill what still lives."""
        for child in list(cls._living):
            child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(main: Callable[..., None], output: str, arguments: tuple[Any, ...]) -> None:
    with Path(output).open("wb") as said:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(said.fileno(), stream.fileno())
    main(*arguments)


def kill_after(seconds: float) -> None:
    """Kill this process after a number of seconds."""

    def wait() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def is_alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # one that nobody has collected has ended, too
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


PAUSE_SECONDS = 0.01


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until a condition is true; one that never becomes true is a fault."""
    ends = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > ends:
            raise Fault("hung", f"not within {LIMIT_SECONDS:g} s: {what}")
        time.sleep(PAUSE_SECONDS)
