"""Runs that end in the middle: what is stored is whole, the exit code says why, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.embedded_servers import postmaster_pid
from tests.support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

FILES = 1_500
SECTIONS = 3
INDEX = ("index", "many", "-c", "ended", "--model", "none")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder that is written in several batches."""
    root = tmp_path / "many"
    root.mkdir()
    for number in range(FILES):
        sections = [f"## Section {section}\n\n{'A word of the text. ' * 10}" for section in range(SECTIONS)]
        (root / f"{number:04}.md").write_text(f"# Page {number}\n\n" + "\n\n".join(sections))
    return root


def stored(url: str) -> dict[int, int]:
    """Number of chunks -> how many documents have so many, by their rows."""
    with psycopg.connect(url) as connection:
        if connection.execute("SELECT to_regclass('semlex.ended_document')").fetchone() == (None,):
            return {}
        counts = "SELECT count(c.*) AS n FROM semlex.ended_document LEFT JOIN semlex.ended_chunk c USING (document_id)"
        statement = f"SELECT n, count(*) FROM ({counts} GROUP BY document_id) AS counted GROUP BY n"  # noqa: S608 - ours
        rows = connection.execute(statement).fetchall()
    return dict(rows)


def begun(shell: Shell, url: str) -> subprocess.Popen[str]:
    """A run in a process of its own that has stored something and has more to do."""
    command = [sys.executable, "-m", "semlex", *INDEX]
    process = subprocess.Popen(
        command, env=shell.environment, cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not stored(url):
        time.sleep(0.01)
    return process


def goes_on(shell: Shell, url: str) -> None:
    """The same command again: what is stored is whole, and the rest is added."""
    before = stored(url)
    assert len(before) == 1  # each as many chunks as the others
    (documents,) = before.values()
    assert 0 < documents < FILES
    (report,) = shell.objects(*INDEX)
    assert (report["added"], report["unchanged"], report["failed"]) == (FILES - documents, documents, 0)
    assert stored(url) == {next(iter(before)): FILES}


WAYS = [signal.SIGINT, *(pytest.param(way, marks=pytest.mark.full) for way in (signal.SIGTERM, signal.SIGKILL))]


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_run(shell: Shell, many: Path, way: signal.Signals) -> None:
    url = shell.environment["DATABASE_URL"]
    with begun(shell, url) as process:
        process.send_signal(way)
        _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if way == signal.SIGINT else -way)
    assert "Traceback" not in said
    goes_on(shell, url)


@pytest.mark.full
def test_a_server_that_goes_in_the_middle(
    many: Path, open_folder: Path, make_server_folder: Callable[[Path], Path]
) -> None:
    folder = make_server_folder(open_folder / "server")
    with EmbeddedServer(folder) as server:
        shell = Shell(server.url, many.parent)
        with begun(shell, server.url) as process:
            os.kill(postmaster_pid(folder), signal.SIGKILL)
            _, said = process.communicate(timeout=120)
        assert process.returncode == 3
        assert "Traceback" not in said
        assert "semlex doctor" in said
    with EmbeddedServer(folder) as server:
        goes_on(Shell(server.url, many.parent), server.url)
