"""Ctrl-C in the middle of long work: whole batches stay, and the same command goes on."""

import json
import signal

import psycopg
import pytest
from psycopg import sql

from tests.support.clients.stopped_command import halted
from tests.support.folders import folder_with
from tests.support.foreign_tables import KINDS, Row

pytestmark = pytest.mark.slow
FILES, SECTIONS, ROWS = 20, 3, 206
# What is read and written at once is a small share of them.
LIMITS = {
    "semlex.ingest.run": {"BATCH_CHUNKS_WITHOUT_MODEL": 10},
    "semlex.maintenance.version_fill": {"PAGE_ROWS": 10},
    "semlex.store.tables": {"PART_BYTES": 5_000},
}


@pytest.fixture
def many(shell):
    def page(number):
        parts = [f"# Part {part}\n\n" + f"word{number} section{part} " * 10 for part in range(SECTIONS)]
        return "\n\n".join(parts)

    folder_with(shell.folder / "many", {f"{number:03}.md": page(number) for number in range(FILES)})
    return shell


def stored(shell, table):
    with psycopg.connect(shell.environment["DATABASE_URL"]) as connection:
        count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("semlex", table))
        ((count,),) = connection.execute(count).fetchall()
    return count


def interrupted(shell, arguments, moment, table):
    """Interrupts a command before it writes more, and repeats it; returns the rows stored before, and its report."""
    with halted(shell, arguments, moment, table, limits=LIMITS) as (program, _):
        program.send(signal.SIGINT)
        assert program.ended() == 130
        assert program.said.endswith("the same command continues from there\n")
        assert "{" not in program.said  # no report
        assert "Traceback" not in program.said
    return stored(shell, table), json.loads(shell(*arguments).stdout)


def test_whole_batches_of_files_are_kept(many):
    arguments = ("sync", "many", "-c", "c", "--model", "none", "--json")
    # Inside a transaction that has the table, which can end.
    kept, report = interrupted(many, arguments, ("index files", "worked", 2), "c_document")
    assert 0 < kept < FILES
    assert (report["run"]["added"], report["run"]["unchanged"]) == (FILES - kept, kept)


def test_whole_pages_of_new_vectors_are_kept(many):
    many("index", "many", "-c", "c", "--model", "none", "--min-tokens", "0")
    arguments = ("models", "set", "static", "-c", "c", "--json")
    kept, report = interrupted(many, arguments, ("write embeddings", "committed", 2), "c_embedding_1")
    assert report["resumed"]
    assert report["chunks"] == FILES * SECTIONS
    assert kept == report["chunks"] - report["embedded"] == 20


def test_whole_batches_of_a_table_are_kept(shell):
    with psycopg.connect(shell.environment["DATABASE_URL"], autocommit=True) as connection:
        KINDS["haystack"].make(connection)
        texts = [f"pear{number}" + " ." * 300 for number in range(ROWS)]
        KINDS["haystack"].fill(connection, [Row(f"m{at}", text, "[1,2,3]", {}) for at, text in enumerate(texts)])
    arguments = ("documents", "import", "haystack_docs", "-c", "moved", "--json")
    kept, report = interrupted(shell, arguments, ("add documents", "committed", 6), "moved_chunk")
    assert 0 < kept < ROWS
    assert (report["rows"], report["written"]) == (ROWS, ROWS)
    assert stored(shell, "moved_chunk") == ROWS
