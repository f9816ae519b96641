"""Programs of tests as processes of their own, made from one that has imported everything: they begin at once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.support.folders import TEMPORARY
from tests.support.waiting import LIMIT, until, until_stopped

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "semlex.cli.app",
        "semlex.server.app",
        "semlex.server.mcp.http",
        "semlex.server.mcp.stdio",
        *(
            f"tests.support.clients.{name}"
            for name in ("first_use", "killed_client", "migrating_client", "old_model_client", "worker_client")
        ),
    ]
)


class Program:
    """A function in a process of its own.

    Args:
        main: Of a module of `tests.support.clients`.
        arguments: Its arguments.
    """

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:
        self._output = tempfile.NamedTemporaryFile("w", prefix="semlex-test-", dir=TEMPORARY)  # noqa: SIM115 - in close
        self._process = PROCESSES.Process(target=_run, args=(main, self._output.name, arguments))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def said(self) -> str:
        """All that it has written, to either stream."""
        return Path(self._output.name).read_text(encoding="utf-8")

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def waits(self, is_there: Callable[[list[str]], bool]) -> bool:
        """Waits until its words are such, or it has ended; returns whether they are."""
        until(lambda: is_there(self.said.split()) or not self.is_alive, "words of a program")
        return is_there(self.said.split())

    def until_said(self, word: str, times: int = 1) -> None:
        """Waits until it has said a word so often."""
        assert self.waits(lambda words: words.count(word) >= times), f"it ended without {word!r}: {self.said}"

    def until_stopped(self) -> None:
        """Waits until it has stopped itself."""
        try:
            until_stopped(self.pid)
        except (AssertionError, psutil.Error) as error:
            error.add_note(f"it said: {self.said}")
            raise

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, wherever it is, and waits until it is gone."""
        self._process.kill()
        self.ended()

    def ended(self) -> int | None:
        """Its exit code, once it has ended."""
        self._process.join(LIMIT)
        assert self._process.exitcode is not None, f"it does not end: {self.said}"
        return self._process.exitcode

    def close(self) -> None:
        self.kill()
        self._process.close()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(main: Callable[..., None], output: str, arguments: tuple[Any, ...]) -> None:
    with Path(output).open("wb") as said:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(said.fileno(), stream.fileno())
    main(*arguments)
