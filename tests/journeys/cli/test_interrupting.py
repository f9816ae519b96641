"""Ctrl-C in the middle of long work: whole batches stay, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.support.shell import Shell

WAIT = 60
FILES, SECTIONS = 300, 60


@pytest.mark.slow
@pytest.mark.parametrize("command", ["index", "sync"])
def test_whole_batches_are_kept(shell: Shell, command: str) -> None:
    _write_files(shell)
    arguments = [command, "many", "-c", "c", "--model", "none", "--json"]
    stored = _interrupt(shell, arguments, "document")
    assert 0 < stored < FILES
    report = json.loads(shell(*arguments).stdout)
    run = report.get("run", report)
    assert run["added"] + run["unchanged"] == FILES
    assert run["unchanged"] >= stored


@pytest.mark.slow
def test_whole_pages_of_new_vectors_are_kept(shell: Shell) -> None:
    _write_files(shell)
    shell("index", "many", "-c", "c", "--model", "none", "--chunk-tokens", "500", "--min-tokens", "0")
    arguments = ["reembed", "-c", "c", "--model", "static", "--json"]
    stored = _interrupt(shell, arguments, "embedding_1")
    report = json.loads(shell(*arguments).stdout)
    assert report["resumed"]
    assert report["chunks"] >= FILES
    assert stored <= report["chunks"] - report["embedded"] < report["chunks"]


def _write_files(shell: Shell) -> None:
    folder = shell.folder / "many"
    folder.mkdir()
    for number in range(FILES):
        parts = [f"# Part {part}\n\n" + f"word{number} section{part} " * 40 for part in range(SECTIONS)]
        (folder / f"{number:03}.md").write_text("\n\n".join(parts), encoding="utf-8")


def _interrupt(shell: Shell, arguments: list[str], table: str) -> int:
    """Interrupts a command when a table has rows; how many it had."""
    with subprocess.Popen(
        [sys.executable, "-m", "semlex", *arguments],
        env=shell.environment,
        cwd=shell.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        stored = _wait_for_rows(shell.environment["DATABASE_URL"], table)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=WAIT)
        assert process.returncode == 130
    assert out == ""
    assert err.endswith("the same command goes on from there\n")
    return stored


def _wait_for_rows(url: str, table: str) -> int:
    """How many rows the first batches have written."""
    ends = time.monotonic() + WAIT
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < ends:
            tables = "SELECT relname FROM pg_class WHERE relname ~ %s AND relkind = 'r'"
            for (name,) in connection.execute(tables, [f"{table}$"]).fetchall():
                query = psycopg.sql.SQL("SELECT count(*) FROM semlex.{}").format(psycopg.sql.Identifier(name))
                row = connection.execute(query).fetchone()
                if row and row[0]:
                    return int(row[0])
            time.sleep(0.01)
    raise AssertionError("nothing was written")
