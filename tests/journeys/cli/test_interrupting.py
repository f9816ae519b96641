"""Ctrl-C in the middle of long work: whole batches stay, and the same command goes on."""

from __future__ import annotations

import json
import signal

import psycopg
import pytest
from psycopg import sql

from tests.support.clients.stopped_command import halted
from tests.support.shell import Shell

pytestmark = pytest.mark.slow
FILES, SECTIONS = 20, 3
LIMITS = {"semlex.ingest.run": {"BATCH_CHUNKS_WITHOUT_MODEL": 10}, "semlex.maintenance.version_fill": {"PAGE_ROWS": 10}}


def test_whole_batches_are_kept(shell: Shell) -> None:
    _write_files(shell)
    arguments = ("sync", "many", "-c", "c", "--model", "none", "--json")
    stored = _interrupt(shell, arguments, ("index files", "committed", 2), "c_document")
    assert 0 < stored < FILES
    run = json.loads(shell(*arguments).stdout)["run"]
    assert (run["added"], run["unchanged"]) == (FILES - stored, stored)


def test_whole_pages_of_new_vectors_are_kept(shell: Shell) -> None:
    _write_files(shell)
    shell("index", "many", "-c", "c", "--model", "none", "--min-tokens", "0")
    arguments = ("models", "set", "static", "-c", "c", "--json")
    stored = _interrupt(shell, arguments, ("write embeddings", "committed", 2), "c_embedding_1")
    report = json.loads(shell(*arguments).stdout)
    assert report["resumed"]
    assert report["chunks"] == FILES * SECTIONS
    assert stored == report["chunks"] - report["embedded"] == 20


def _write_files(shell: Shell) -> None:
    folder = shell.folder / "many"
    folder.mkdir()
    for number in range(FILES):
        parts = [f"# Part {part}\n\n" + f"word{number} section{part} " * 10 for part in range(SECTIONS)]
        (folder / f"{number:03}.md").write_text("\n\n".join(parts), encoding="utf-8")


def _interrupt(shell: Shell, arguments: tuple[str, ...], moment: tuple[str, str, int], table: str) -> int:
    """Interrupts a command before it writes more to a table; returns how many rows that has."""
    with halted(shell, arguments, moment, table, limits=LIMITS) as (program, _):
        program.send(signal.SIGINT)
        assert program.ended() == 130
        assert program.said.endswith("the same command continues from there\n")
        assert "{" not in program.said  # no report
    with psycopg.connect(shell.environment["DATABASE_URL"]) as connection:
        count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("semlex", table))
        ((stored,),) = connection.execute(count).fetchall()
    return int(stored)
