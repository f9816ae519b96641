"""The first pages and the tutorials are followed line by line; every output is the one on the page."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from semlex.store.postgres.embedded.folder import find_installations, server_account
from tests.support.documented_programs import TUTORIALS, as_on_a_page
from tests.support.folders import ROOT
from tests.support.shell import Shell, run_here
from tests.support.waiting import until

FIRST_PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
BLOCK = re.compile(r"((?:(?!^```).)*?)^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A test has the packages and the database already, and no language model.
NOT_RUN = re.compile("docker |export |./x |pip |.* ollama:")
CHANGING = (
    (re.compile(r"^hybrid search with .*\n", re.MULTILINE), ""),  # depends on the machine
    (re.compile(r"^database_url comes from .*\n", re.MULTILINE), ""),  # depends on the database
    (re.compile(r"(?<=try_docs_)[0-9a-f]+"), ""),
    (re.compile(r" +$", re.MULTILINE), ""),
)


class Reader:
    """Does what a tutorial says."""

    def __init__(self, shell: Shell, stack: ExitStack) -> None:
        self.shell, self._stack = shell, stack
        self._web: TestClient | None = None
        programs = shell.folder / "programs"
        programs.mkdir()
        for name, arguments in (("python", ""), ("semlex", " -m semlex")):
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
            (programs / name).chmod(0o755)
        servers = find_installations(server_account(Path("/nowhere")))
        paths = (str(programs), str(servers[max(servers)]), os.environ["PATH"])
        shell.environment |= {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT / "python")}

    def block(self, before: str, kind: str, text: str) -> None:
        """Follows a block; the text before it may name the file to save it in."""
        if name := re.search(r"Save this as `([^`]+)`", before):
            path = self.shell.folder / name[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        else:
            assert kind == "console"
            for command, expected in re.findall(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                self._command(command.replace("\n> ", "\n"), expected)

    def _command(self, command: str, expected: str) -> None:
        if command == "uvicorn app:app":
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DATABASE_URL", self.shell.environment["DATABASE_URL"])
                app = runpy.run_path(str(self.shell.folder / "app.py"))["app"]
                self._web = self._stack.enter_context(TestClient(app))
        elif command == "semlex worker":
            worker = self._stack.enter_context(self.shell.start("worker"))
            assert worker.stderr.readline() == expected
        elif command.startswith("curl "):
            assert self._web is not None
            web, [_, address] = self._web, shlex.split(command)
            path = address.removeprefix("localhost:8000")
            until(lambda: web.get(path).text == expected.rstrip("\n"), f"{command}: {expected}")
        elif not NOT_RUN.match(command):
            assert self._comparable(self._output(command)) == self._comparable(expected), command

    def _output(self, command: str) -> str:
        if re.match(r"semlex [^|;$]*\Z", command):
            done = run_here(tuple(shlex.split(command, comments=True)[1:]), self.shell.environment, self.shell.folder)
        else:
            done = subprocess.run(
                ["bash", "-c", command],
                env=self.shell.environment, cwd=self.shell.folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def _comparable(self, output: str) -> list[str]:
        """Return the lines that do not differ from run to run; a terminal mixes two streams, in either order."""
        output = as_on_a_page(output, self.shell.folder)
        for pattern, instead in CHANGING:
            output = pattern.sub(instead, output)
        return sorted(filter(None, output.splitlines()))


@pytest.mark.slow
@pytest.mark.parametrize("page", [*FIRST_PAGES, *TUTORIALS], ids=lambda page: page.name)
def test_a_page_shows_what_happens(page: Path, shell: Shell) -> None:
    if page in TUTORIALS:
        shutil.rmtree(shell.folder / "docs")
    with ExitStack() as stack:
        reader = Reader(shell, stack)
        for before, kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if page in TUTORIALS or kind != "python":  # which run with those of other pages
                reader.block(before, kind, text)
