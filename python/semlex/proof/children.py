"""Processes of a proof, which start quickly, and "moments": points of a transaction at which they stop or die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import psycopg

from semlex.proof.check import LIMIT_SECONDS, Fault
from semlex.store.postgres.database import Database

PROCESSES: Any = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")
# Modules that the fork server imports before the first child, so that children start quickly.
PRELOADED = ["semlex.proof.run", "semlex.retriever.client", "semlex.retriever.postgres"]


def preload() -> None:
    """Let the fork server import what its children need; does nothing after the first child."""
    PROCESSES.set_forkserver_preload(PRELOADED)


class Child:
    """A function that runs in its own process; the output of the process is kept."""

    _living: set[Child] = set()  # noqa: RUF012 - shared on purpose
    # Starting a process also collects ended ones, and each can be collected only once: threads take turns.
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
        """Wait for the end of the process and return its exit code."""
        until(lambda: not self.is_running, "the end of a process")
        return int(self._exit_code() or 0)

    @property
    def is_running(self) -> bool:
        """Whether the process still runs."""
        return self._exit_code() is None

    def _exit_code(self) -> int | None:
        with self._turn:
            return self._process.exitcode  # type: ignore[no-any-return]

    def close(self) -> None:
        """Kill the process if it still runs."""
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
        """Kill the processes that still run."""
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
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


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
    """Wait until a condition is true; raise a fault if that takes too long."""
    ends = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > ends:
            raise Fault("hung", f"waited more than {LIMIT_SECONDS:g} s for {what}")
        time.sleep(PAUSE_SECONDS)


# The name of the transaction that a task is in.
DOING = ContextVar("doing", default="")


class Moments:
    """Calls a function at certain points (moments) of every transaction.

    A moment has the transaction's name and one of these: ``before``; ``copying``, whenever a block was sent;
    ``worked``, when everything but the commit is done; ``committed``, before the caller learns of it.

    Args:
        reached: Gets the name and the moment.

    Attributes:
        backend: Process id of the backend that runs the transaction begun last.
    """

    def __init__(self, reached: Callable[[str, str], None]) -> None:
        self._reached = reached
        self.backend = 0

    def watch(self) -> None:
        """Wrap functions of semlex and of the driver, so that they report their moments."""
        run, write, send = Database._run, Database.write, psycopg.AsyncCopy.write

        async def running(
            database: Database, doing: str, transaction: Callable[[Any], Awaitable[Any]], **options: Any
        ) -> Any:
            async def begun(connection: Any) -> Any:
                DOING.set(doing)
                self.backend = connection.info.backend_pid
                result = await transaction(connection)
                self._reached(doing, "committed")
                return result

            self._reached(doing, "before")
            return await run(database, doing, begun, **options)

        async def writing(database: Database, doing: str, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
            async def worked(connection: Any) -> Any:
                result = await work(connection)
                self._reached(doing, "worked")
                return result

            return await write(database, doing, worked, **options)

        async def sent(copy: Any, block: Any) -> None:
            await send(copy, block)
            self.backend = copy.connection.info.backend_pid
            self._reached(DOING.get(), "copying")

        database_class: Any = Database
        copy_class: Any = psycopg.AsyncCopy
        database_class._run, database_class.write, copy_class.write = running, writing, sent


def set_limits(limits: Mapping[str, Mapping[str, float]]) -> None:
    """Set constants of modules (such as sizes of batches) so small that little data is enough to reach every moment."""
    for module, constants in limits.items():
        for name, value in constants.items():
            if not hasattr(import_module(module), name):
                raise AttributeError(f"{module} has no {name}")
            setattr(import_module(module), name, value)


def say(what: object) -> None:
    """Write a line to the output of this process, without delay."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def stop_here(number: signal.Signals = signal.SIGSTOP) -> None:
    """Stop or kill this process from this thread, which therefore cannot continue."""
    signal.pthread_kill(threading.get_ident(), number)


def stop_at(doing: str, moment: str, times: int = 1) -> None:
    """Stop this process when transactions whose name begins with `doing` reach `moment` for the `times`-th time."""
    left = times

    def reached(name: str, now: str) -> None:
        nonlocal left
        if name.startswith(doing) and now == moment:
            left -= 1
            if left == 0:
                stop_here()

    Moments(reached).watch()
