"""The command line for the tests: in this process, or as one of its own."""

from __future__ import annotations

import atexit
import io
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from runpy import run_module
from typing import TYPE_CHECKING, Any, Self

import pytest

from semlex.cli.app import main
from tests.support.folders import ROOT, TEMPORARY
from tests.support.programs import PROCESSES
from tests.support.replicas import has_standby
from tests.support.waiting import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Run = Callable[[tuple[str, ...], dict[str, str], Path], subprocess.CompletedProcess[str]]

PAGE = "# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n## Storage\n\nKeys are stored in a vault.\n"


def two_documents(folder: Path) -> Path:
    """Makes the folder ``docs`` with two documents."""
    docs = folder / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text(PAGE, encoding="utf-8")
    (docs / "fruit.txt").write_text("A banana is a yellow fruit.\n", encoding="utf-8")
    return docs


def run_process(
    arguments: tuple[str, ...], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """`semlex` as a process of its own, made from one that has imported it: it begins at once."""
    with tempfile.TemporaryDirectory(dir=TEMPORARY) as said:
        files = [Path(said, name) for name in ("stdout", "stderr")]
        process = PROCESSES.Process(target=_be, args=("semlex", arguments, environment, folder, files))
        process.start()
        process.join()
        assert process.exitcode is not None
        out, err = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess(list(arguments), process.exitcode, out, err)


def run_fresh(
    arguments: tuple[str, ...], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """The same from the interpreter's first step on, which takes half a second."""
    command = [sys.executable, "-m", "semlex", *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


class Started:
    """`semlex` as such a process that goes on, with its streams, as `subprocess.Popen` has them.

    Args:
        arguments: Of the command line.
        environment: Its variables.
        folder: Where it runs.
        module: What else it is than the command: a module of `tests.support.clients`.
        text: Whether its streams are texts, not bytes.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str] = os.environ,
        folder: Path = ROOT,
        *,
        module: str = "semlex",
        text: bool = True,
    ) -> None:
        environment = dict(environment)
        (its_in, given), (out, its_out), (err, its_err) = (PROCESSES.Pipe(duplex=False) for _ in range(3))
        theirs = [its_in, its_out, its_err]
        self._process = PROCESSES.Process(target=_be, args=(module, arguments, environment, folder, theirs))
        self._process.start()
        kind = "" if text else "b"
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(os.dup(pipe.fileno()), mode + kind) for pipe, mode in ((given, "w"), (out, "r"), (err, "r"))
        )
        for pipe in (*theirs, given, out, err):
            pipe.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        self._process.join(LIMIT)
        assert self.returncode is not None, "it does not end"
        return self.returncode

    def communicate(self) -> tuple[Any, Any]:
        """What it still writes, to both streams, until it has ended."""
        self.stdin.close()
        with self.stdout, self.stderr:
            said = self.stdout.read(), self.stderr.read()
        self.wait()
        return said

    def close(self) -> None:
        self._process.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):
                stream.close()
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _be(
    module: str, arguments: tuple[str, ...], environment: Mapping[str, str], folder: Path, streams: list[Any]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, given in enumerate(streams, start=3 - len(streams)):
        with given.open("wb") if isinstance(given, Path) else given as stream:
            os.dup2(stream.fileno(), number)
    sys.stdin = os.fdopen(os.dup(0))
    sys.argv = [module, *arguments]
    try:
        run_module(module, run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined] - which such processes do not


# Linux counts what a process held between its fork and its exec to it, so that the child of a large process has a large
# peak. The child of this small one has its own.
WITH_PEAK = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1], "w").write(str(peak * (1 if sys.platform == "darwin" else 1024)))
sys.exit(code)
"""


def measured(
    arguments: tuple[str, ...], environment: dict[str, str], folder: Path
) -> tuple[subprocess.CompletedProcess[str], int]:
    """`semlex` as a process of its own, and the most memory that it, or a process that it has started, ever had."""
    command = [sys.executable, "-m", "semlex", *arguments]
    with tempfile.NamedTemporaryFile("r") as peak:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", WITH_PEAK, peak.name, *command],
            env=environment, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done, int(peak.read())


def run_here(
    arguments: tuple[str, ...], environment: Mapping[str, str] = os.environ, folder: Path | str = ".", given: str = ""
) -> subprocess.CompletedProcess[str]:
    """`semlex` in this process: what most tests want, and without half a second of imports and models.

    Args:
        arguments: Of the command line.
        environment: Its variables.
        folder: Where it runs.
        given: What stands on its standard input, which is no terminal; lone surrogates are bytes.
    """
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["semlex", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode("utf-8", "surrogateescape")), "utf-8"))
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        try:
            # What options set for a command ends with it, as in a process of its own.
            Context().run(main)
        except SystemExit as ended:
            code = ended.code or 0
    said = {name: stream.buffer.getvalue().decode() for name, stream in streams.items()}
    return subprocess.CompletedProcess(list(arguments), code, **said)


class Shell:
    """Runs `semlex` against a database.

    Args:
        url: The database.
        folder: Where it runs.
        run: How: `run_here` or `run_process`.
    """

    def __init__(self, url: str, folder: Path, run: Run = run_here) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SEMLEX_")}
        # `serve token add` writes beside the user's settings; servers of other tests would then need tokens.
        own = str(folder / ".config")
        self.environment |= {"DATABASE_URL": url, "COLUMNS": "200", "XDG_CONFIG_HOME": own}
        if has_standby(url):
            self.environment["SEMLEX_READ_FROM"] = "replica"
        self._run = run

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self._run(arguments, self.environment, self.folder)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str, **variables: str) -> Started:
        """Starts a command that goes on, with further variables."""
        return Started(arguments, {**self.environment, **variables}, self.folder)

    def objects(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        done = self(*arguments, "--json", code=code)
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]
