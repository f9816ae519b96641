"""``semlex documents import TABLE``: what is printed, exit codes, another run, Ctrl-C."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.clients.stopped_command import halted
from tests.support.foreign_tables import COLLECTION, KINDS, Row
from tests.support.shell import Shell

ROWS = [Row(f"r{number}", f"apple {number}", f"[{number + 1},1,0.1]", {"n": number}) for number in range(6)]
# What is read and written at once is a small share of them.
MANY, PART_BYTES = 200, 5_000


@pytest.fixture
def source(shell: Shell) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shell.environment["DATABASE_URL"], autocommit=True) as connection:
        for layout in ("haystack", "langchain-pgvector"):
            KINDS[layout].make(connection)
            KINDS[layout].fill(connection, ROWS)
        yield connection


@pytest.mark.usefixtures("source")
def test_tables_are_imported_twice_and_searched(shell: Shell) -> None:
    for _ in range(2):
        done = shell("documents", "import", "haystack_docs", COLLECTION, "-c", "moved")
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert lines[0].startswith("public.haystack_docs (haystack): 6 rows stored, 0 skipped in ")
        assert lines[1].startswith(
            "collection 'old docs' of public.langchain_pg_embedding (langchain-pgvector): 6 rows"
        )
        assert "--model" in lines[2]
    found = shell("search", "apple 3", "-c", "moved", "--json").stdout.splitlines()
    assert json.loads(found[0])["id"] == "r3"


def test_a_dry_run_tells_and_makes_nothing(shell: Shell, source: psycopg.Connection[Any]) -> None:
    KINDS["haystack"].fill(source, [Row("w\x1b[2J", None, "[1,2,3]", {})])
    done = shell("documents", "import", "haystack_docs", "-c", "moved", "--dry-run", code=5)
    assert done.stdout.splitlines() == [
        "table     public.haystack_docs, of the layout haystack",
        "rows      7, of which 1 would be skipped",
        "vectors   vector, 3 dimensions",
        "metadata  n",
    ]
    assert done.stderr == "would be skipped: row 6 (id 'w\\x1b[2J'): content must be given, and not be None\n"
    assert shell("collections").stdout == ""
    assert source.execute("SELECT name FROM semlex.collection").fetchall() == []


def test_what_is_skipped_is_told(shell: Shell, source: psycopg.Connection[Any]) -> None:
    wrong = [Row(f"w{number}", None, None, {}) for number in range(20)]
    KINDS["haystack"].fill(source, wrong)
    source.execute("UPDATE haystack_docs SET blob_data = 'x' WHERE id = 'r1'")
    done = shell("documents", "import", "haystack_docs", "-c", "moved", code=5)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("public.haystack_docs (haystack): 6 rows stored, 20 skipped in ")
    assert lines[1] == "skipped: row 5 (id 'w0'): content must be given, and not be None"
    notes = [line for line in lines if line.startswith("note: ")]
    assert notes == [
        "note: skipped in total: 20 content: missing, 20 embedding: missing; --json names the first 40",
        "note: the column 'blob_data' is not imported; 1 row have a value in it",
    ]
    [report] = shell("documents", "import", "haystack_docs", "-c", "moved", "--json", code=5).stdout.splitlines()
    report = json.loads(report)
    assert (report["rows"], report["written"], report["skipped"], len(report["problems"])) == (26, 6, 20, 40)


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no table with vectors and no collection of LangChain is named 'nothing'"),
        (["rows.parquet"], "file rows.parquet does not exist"),
        (["no/such"], "file no/such does not exist"),
        (["docs", "haystack_docs"], "file 'haystack_docs' does not exist; if it is a table"),
        (["haystack_docs", "--from", "qdrant"], "layout must be one of langchain-postgres"),
        (["docs", "--from", "haystack"], "named 'docs'"),
        (["docs", "--dry-run"], "--dry-run works for tables only"),
        (["haystack_docs", "--on-duplicate", "maybe"], "on_duplicate must be"),
        (["haystack_docs", "--source-database", "mysql://me:secret@h/db"], "mysql:// is not PostgreSQL"),
        (["haystack_docs", "--source-schema", "nowhere"], "schema 'nowhere'"),
    ],
)
def test_mistakes(shell: Shell, arguments: list[str], message: str) -> None:
    done = shell("documents", "import", *arguments, "-c", "moved", code=2)
    assert message in done.stderr
    assert "secret" not in done.stderr
    assert done.stdout == ""


def test_another_database(shell: Shell, source: psycopg.Connection[Any], empty_database_url: str) -> None:
    del source  # filled
    url = shell.environment["DATABASE_URL"]
    shell.environment["DATABASE_URL"] = empty_database_url
    shell("documents", "import", "haystack_docs", "-c", "moved", "--source-database", url)
    assert '"r3"' in shell("search", "apple 3", "-c", "moved", "--json").stdout


@pytest.mark.slow
def test_ctrl_c_leaves_whole_batches_and_the_same_command_goes_on(
    shell: Shell, source: psycopg.Connection[Any]
) -> None:
    source.execute(
        "INSERT INTO haystack_docs (id, content, embedding) SELECT 'm' || n, 'pear' || n || repeat(' .', 300),"
        " '[1,2,3]' FROM generate_series(1, %s) AS n",
        [MANY],
    )
    arguments = ("documents", "import", "haystack_docs", "-c", "moved", "--json")
    limits = {"semlex.store.tables": {"PART_BYTES": PART_BYTES}}
    moment = ("add documents", "committed", 6)
    with halted(shell, arguments, moment, "moved_chunk", limits=limits) as (program, _):
        program.send(signal.SIGINT)
        assert program.ended() == 130
        assert program.said.endswith("the same command continues from there\n")
        assert "{" not in program.said  # no report
    assert 0 < _stored(source) < MANY + len(ROWS)
    report = json.loads(shell(*arguments).stdout)
    assert (report["rows"], report["written"]) == (MANY + len(ROWS),) * 2
    assert _stored(source) == MANY + len(ROWS)


def _stored(source: psycopg.Connection[Any]) -> int:
    ((count,),) = source.execute("SELECT count(*) FROM semlex.moved_chunk").fetchall()
    return int(count)
