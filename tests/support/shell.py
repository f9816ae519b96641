"""The command line for the tests: in this process, or as one of its own."""

import atexit
import io
import json
import os
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from contextvars import Context
from pathlib import Path
from runpy import run_module, run_path

import pytest

from semlex.cli.app import main
from tests.support.folders import ROOT, TEMPORARY, folder_with
from tests.support.programs import PROCESSES
from tests.support.replicas import has_standby
from tests.support.waiting import LIMIT

PAGE = "# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n## Storage\n\nKeys are stored in a vault.\n"


def two_documents(folder):
    return folder_with(folder / "docs", {"keys.md": PAGE, "fruit.txt": "A banana is a yellow fruit.\n"})


def run_process(arguments, environment, folder, program="semlex"):
    """`semlex`, or the file of a program, as a process made from one that has imported `semlex`: it begins at once."""
    with tempfile.TemporaryDirectory(dir=TEMPORARY) as said:
        files = [Path(said, name) for name in ("stdout", "stderr")]
        process = PROCESSES.Process(target=_be, args=(program, arguments, environment, folder, files))
        process.start()
        process.join()
        out, err = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess(list(arguments), process.exitcode, out, err)


def run_fresh(arguments, environment, folder, below=()):
    """The same from the interpreter's first step on, which takes half a second; `below` is a command that runs it."""
    given = {"env": environment, "cwd": folder, "stdin": subprocess.DEVNULL}
    command = [*below, sys.executable, "-m", "semlex", *arguments]
    return subprocess.run(command, **given, capture_output=True, text=True, check=False)


class Started(AbstractContextManager):
    """`semlex` as such a process that goes on, with its streams, as `subprocess.Popen` has them.

    `module` is what else it is than the command: a module of `tests.support.clients`.
    """

    def __init__(self, arguments, environment=os.environ, folder=ROOT, *, module="semlex", text=True):
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
    def pid(self):
        return self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self):
        self._process.join(LIMIT)
        assert self.returncode is not None, "it does not end"
        return self.returncode

    def communicate(self):
        """What it still writes, to both streams, until it has ended."""
        self.stdin.close()
        with self.stdout, self.stderr:
            said = self.stdout.read(), self.stderr.read()
        self.wait()
        return said

    def close(self):
        self._process.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):
                stream.close()
        self._process.close()

    def __exit__(self, *_):
        self.close()


def _be(module, arguments, environment, folder, streams):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, given in enumerate(streams, start=3 - len(streams)):
        with given.open("wb") if isinstance(given, Path) else given as stream:
            os.dup2(stream.fileno(), number)
    sys.stdin = os.fdopen(os.dup(0))
    sys.argv = [module, *arguments]
    try:
        (run_path if module.endswith(".py") else run_module)(module, run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # which such processes do not


# Linux counts what a process held between its fork and its exec to it, so that the child of a large process has a large
# peak. The child of this small one has its own.
WITH_PEAK = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1], "w").write(str(peak * (1 if sys.platform == "darwin" else 1024)))
sys.exit(code)
"""


def measured(arguments, environment, folder):
    """As `run_fresh`, and the most memory that the process, or one that it has started, ever had."""
    with tempfile.NamedTemporaryFile("r") as peak:
        below = [sys.executable, "-I", "-S", "-c", WITH_PEAK, peak.name]
        return run_fresh(arguments, environment, folder, below), int(peak.read())


def run_here(arguments, environment=os.environ, folder=".", given=""):
    """`semlex` in this process: what most tests want, and without half a second of imports and models.

    `given` is its standard input, which is not a terminal; lone surrogates are bytes.
    """
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
    code = 0
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
    """Runs `semlex` against a database: by `run_here` or `run_process`."""

    def __init__(self, url, folder, run=run_here):
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SEMLEX_")}
        # `serve token add` writes beside the user's settings; servers of other tests would then need tokens.
        own = str(folder / ".config")
        self.environment |= {"DATABASE_URL": url, "COLUMNS": "200", "XDG_CONFIG_HOME": own}
        if has_standby(url):
            self.environment["SEMLEX_READ_FROM"] = "replica"
        self._run = run

    def __call__(self, *arguments, code=0):
        done = self._run(arguments, self.environment, self.folder)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments, **variables):
        return Started(arguments, {**self.environment, **variables}, self.folder)

    def objects(self, *arguments, code=0):
        done = self(*arguments, "--json", code=code)
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]
