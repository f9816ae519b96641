"""``semlex documents import TABLE``: what is printed, exit codes, another run."""

import json

import psycopg
import pytest

from tests.support.foreign_tables import COLLECTION, KINDS, Row

ROWS = [Row(f"r{number}", f"apple {number}", f"[{number + 1},1,0.1]", {"n": number}) for number in range(6)]


@pytest.fixture
def source(shell):
    with psycopg.connect(shell.environment["DATABASE_URL"], autocommit=True) as connection:
        for layout in ("haystack", "langchain-pgvector"):
            KINDS[layout].make(connection)
            KINDS[layout].fill(connection, ROWS)
        yield connection


@pytest.mark.usefixtures("source")
def test_tables_are_imported_twice_and_searched(shell):
    for _ in range(2):
        done = shell("documents", "import", "haystack_docs", COLLECTION, "-c", "moved")
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert lines[0].startswith("public.haystack_docs (haystack): 6 rows stored, 0 skipped in ")
        collection = "collection 'old docs' of public.langchain_pg_embedding (langchain-pgvector)"
        assert lines[1].startswith(f"{collection}: 6 rows")
        assert "--model" in lines[2]
    found = shell("search", "apple 3", "-c", "moved", "--json").stdout.splitlines()
    assert json.loads(found[0])["id"] == "r3"


def test_a_dry_run_makes_nothing_and_mistakes_are_told(shell, source):
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
    for arguments, message in (
        ("nothing", "no table with vectors and no collection of LangChain is named 'nothing'"),
        ("rows.parquet", "file rows.parquet does not exist"),
        ("no/such", "file no/such does not exist"),
        ("docs haystack_docs", "file 'haystack_docs' does not exist; if it is a table"),
        ("haystack_docs --from qdrant", "layout must be one of langchain-postgres"),
        ("docs --from haystack", "named 'docs'"),
        ("docs --dry-run", "--dry-run works for tables only"),
        ("haystack_docs --on-duplicate maybe", "on_duplicate must be"),
        ("haystack_docs --source-database mysql://me:secret@h/db", "mysql:// is not PostgreSQL"),
        ("haystack_docs --source-schema nowhere", "schema 'nowhere'"),
    ):
        done = shell("documents", "import", *arguments.split(), "-c", "moved", code=2)
        assert message in done.stderr
        assert "secret" not in done.stderr
        assert done.stdout == ""
    assert "moved" not in shell("collections").stdout


def test_what_is_skipped_is_told(shell, source):
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
        "note: the column 'blob_data' is not imported; it has a value in 1 row",
    ]
    report = json.loads(shell("documents", "import", "haystack_docs", "-c", "moved", "--json", code=5).stdout)
    assert (report["rows"], report["written"], report["skipped"], len(report["problems"])) == (26, 6, 20, 40)


@pytest.mark.usefixtures("source")
def test_another_database(shell, empty_database_url):
    url = shell.environment["DATABASE_URL"]
    shell.environment["DATABASE_URL"] = empty_database_url
    shell("documents", "import", "haystack_docs", "-c", "moved", "--source-database", url)
    assert '"r3"' in shell("search", "apple 3", "-c", "moved", "--json").stdout


@pytest.mark.usefixtures("source")
def test_a_new_collection_has_the_options_of_the_command(shell):
    options = ("--language", "german", "--keyword", "tsvector", "--partitions", "4")
    shell("documents", "import", "haystack_docs", "-c", "moved", *options)
    (shell.folder / "rows.jsonl").write_text(json.dumps({"text": "pear", "vector": [1, 2, 3]}), encoding="utf-8")
    shell("documents", "import", "rows.jsonl", "-c", "loaded", *options)
    for name in ("moved", "loaded"):
        status = shell.objects("status", "-c", name)[0]
        assert (status["language"], status["keyword"], status["partitions"]) == ("german", "tsvector", 4)
        assert "german" in shell("documents", "import", "rows.jsonl", "-c", name, "--language", "dutch", code=2).stderr
