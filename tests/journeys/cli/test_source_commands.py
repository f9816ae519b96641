"""Sources, `delete`, `rechunk` and `migrate` from a terminal: what they report, and that their remedies work."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.support.shell import Shell, run_here

Run = subprocess.CompletedProcess[str]


@pytest.fixture
def semlex(database_url: str, tmp_path: Path) -> Callable[..., Run]:
    """Runs the command in a folder of its own, with words only."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SEMLEX_", "DATABASE_URL"))
    }
    environment |= {"DATABASE_URL": database_url, "SEMLEX_EMBEDDING_MODEL": "none"}

    def run(*arguments: str | Path, code: int = 0, **more: str) -> Run:
        done = run_here(tuple(map(str, arguments)), environment | more, tmp_path)
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "guide").mkdir(parents=True)
    for name in ("a.md", "b.md", "guide/c.md"):
        (root / name).write_text(f"# {name}\n\n" + "a word of many " * 60, encoding="utf-8")
    return root


def followed(semlex: Callable[..., Run], message: str, command: str, *more: str) -> Run:
    """Runs the command that a message tells."""
    found = re.search(rf"semlex ({command}[^\n;]*)", re.sub(r"\s*\n\s*", " ", message))
    assert found is not None, message
    words = shlex.split(found.group(1).split(". If")[0].rstrip(". "))
    return semlex(*words, *more)


@pytest.mark.slow
def test_sources_and_moving(semlex: Callable[..., Run], docs: Path, tmp_path: Path) -> None:
    semlex("index", docs)
    (entry,) = map(json.loads, semlex("documents", "sources", "--json").stdout.splitlines())
    assert (entry["name"], entry["root"], entry["documents"]) == ("docs", str(docs), 3)
    assert "docs" in semlex("documents", "sources").stdout
    moved = tmp_path / "elsewhere" / "docs"
    shutil.move(docs, moved)
    refused = semlex("index", moved, code=2)
    followed(semlex, refused.stderr, "documents move")
    assert "0 new, 0 changed, 3 unchanged" in semlex("index", moved).stderr
    assert json.loads(semlex("documents", "sources", "--json").stdout)["root"] == str(moved)
    # Under another name, and not all is as it was.
    renamed = moved.rename(moved.with_name("manual"))
    (renamed / "a.md").unlink()
    (renamed / "new.md").write_text("new")
    for command in ("index", "sync"):
        refused = semlex(command, renamed, code=2)
        assert "its own name with --source NAME" in refused.stderr
    followed(semlex, refused.stderr, "documents move")
    semlex("sync", renamed)
    assert json.loads(semlex("documents", "sources", "--json").stdout)["documents"] == 3
    again = renamed.rename(renamed.with_name("again"))
    (again / "b.md").write_text("other")
    (again / "new.md").unlink()
    assert "2 new" in semlex("index", again).stderr  # one file of three is the same: another folder


@pytest.mark.slow
def test_a_folder_that_contains_a_source(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("index", docs / "guide")
    refused = semlex("index", docs, code=2)
    followed(semlex, refused.stderr, "delete --source", "--yes")
    assert "no sources" in semlex("documents", "sources").stderr
    semlex("index", docs)
    semlex("index", docs / "guide", docs / "guide" / "c.md")
    assert [json.loads(line)["name"] for line in semlex("documents", "sources", "--json").stdout.splitlines()] == [
        "docs"
    ]


@pytest.mark.slow
def test_vanished_files(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("index", docs)
    (docs / "a.md").unlink()
    told = semlex("index", docs).stderr
    assert "1 file of docs is gone; its chunks" in told
    assert "1 chunk would be deleted" in semlex("delete", "--vanished", "--dry-run").stderr
    assert "agree with --yes" in semlex("delete", "--vanished", code=2).stderr  # nobody answers
    followed(semlex, told, "delete --source", "--yes")
    assert "gone" not in semlex("index", docs).stderr


@pytest.mark.slow
def test_delete(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("index", docs)
    hit = json.loads(semlex("search", "word", "--json").stdout.splitlines()[0])
    assert json.loads(semlex("delete", hit["id"], "--yes", "--json").stdout) == {
        "chunks": 1,
        "documents": 1,
        "dry_run": False,
    }
    assert "1 chunk deleted (1 whole document)" in semlex("delete", "guide/c.md", "--yes").stderr
    semlex("index", docs)
    assert "did you mean guide/c.md?" in semlex("delete", "guide/cc.md", code=2).stderr
    assert "document 'nosuch.md' not found" in semlex("delete", "nosuch.md", "a.md", code=2).stderr
    assert "0 chunks" in semlex("delete", "c.md", "--filter", "topic == 'x'").stderr
    assert (
        "1 chunk would be deleted (1 whole document)" in semlex("delete", docs / "guide" / "c.md", "--dry-run").stderr
    )
    assert "1 chunk deleted (1 whole document)" in semlex("delete", "c.md", "--source", "docs", "--yes").stderr
    assert "semlex delete: docs, guide/c.md" in semlex("why", "guide/c.md", "word").stdout
    assert "0 chunks deleted" in semlex("delete", "--filter", "topic == 'x'").stderr
    assert "name what to delete" in semlex("delete", code=2).stderr
    assert "unknown source 'x'; known sources: docs" in semlex("delete", "--source", "x", code=2).stderr


@pytest.mark.slow
def test_rechunk(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("index", docs, "--chunk-tokens", "200")
    refused = semlex("index", docs, "--chunk-tokens", "50", code=2)
    assert "chunk_tokens=200" in refused.stderr
    assert "3 documents would be split" in semlex("maintain", "rechunk", "--chunk-tokens", "50", "--dry-run").stderr
    assert "3 unchanged" in semlex("index", docs).stderr
    followed(semlex, refused.stderr, "maintain rechunk")
    assert "3 unchanged" in semlex("index", docs, "--chunk-tokens", "50").stderr
    assert "0 documents would be split" in semlex("maintain", "rechunk", "--dry-run").stderr


@pytest.mark.slow
def test_sections_are_joined_on_request(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("sync", docs, "--chunk-tokens", "600", "--min-tokens", "200")
    status = semlex("status").stdout
    assert "at most 600; neighbours share at most 50, sections below 200 are joined" in status
    told = {"chunk_tokens": 600, "overlap_tokens": 50, "min_tokens": 200}
    assert json.loads(semlex("status", "--json").stdout)["chunk_settings"] == told
    refused = semlex("index", docs, "--min-tokens", "100", code=2)
    assert "min_tokens=200" in refused.stderr
    followed(semlex, refused.stderr, "maintain rechunk")
    assert "3 unchanged" in semlex("index", docs, "--min-tokens", "100", SEMLEX_MIN_TOKENS="7").stderr


def test_settings_of_the_environment_are_not_refused(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("index", docs, "--chunk-tokens", "200")
    assert "3 unchanged" in semlex("index", docs, SEMLEX_CHUNK_TOKENS="50", SEMLEX_LANGUAGE="german").stderr
    assert "you gave 'german'" in semlex("index", docs, "--language", "german", code=2).stderr


@pytest.mark.slow
def test_what_is_refused_makes_no_collection(semlex: Callable[..., Run], docs: Path, database_url: str) -> None:
    semlex("index", docs / "nope", code=2)
    semlex("try", "/nope", "a word", code=2)
    semlex("index", docs, "--chunk-tokens", "5", code=2)
    semlex("index", docs, "--source", "a/b", code=2)
    twin = docs.parent / "other" / "docs"
    twin.mkdir(parents=True)
    assert "the source 'docs' is another folder" in " ".join(semlex("index", docs, twin, code=2).stderr.split())
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT name FROM semlex.collection").fetchall() == []
    # Where the collection has names of its own for them, they are no clash.
    semlex("index", docs)
    semlex("index", twin, "--source", "twin")
    semlex("index", docs, twin)


def test_migrate_has_nothing_to_do(semlex: Callable[..., Run], docs: Path) -> None:
    semlex("index", docs)
    assert "nothing to migrate" in semlex("maintain", "migrate").stderr
    assert semlex("maintain", "migrate", "--sql").stdout == ""


@pytest.mark.parametrize("changed", ["registry_version SET fingerprint", "collection SET schema_fingerprint"])
def test_tables_of_an_unreleased_version_are_refused_until_they_are_dropped(
    semlex: Callable[..., Run], docs: Path, database_url: str, changed: str
) -> None:
    semlex("index", docs, "-c", "docs")
    with psycopg.connect(database_url) as connection:
        connection.execute(f"UPDATE semlex.{changed} = 'another'")
    for command in (("status", "-c", "docs"), ("search", "word", "-c", "docs"), ("index", docs, "-c", "docs")):
        refusal = " ".join(semlex(*command, code=3).stderr.split())
        assert "unreleased semlex with other tables" in refusal
        assert "(semlex collections drop docs) and index again" in refusal
    assert "semlex collections drop docs" in semlex("doctor", code=3).stdout
    semlex("collections", "drop", "docs", "--yes")
    assert semlex("collections").stdout == ""
    semlex("index", docs, "-c", "docs")
    assert "unreleased" not in semlex("doctor").stdout


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_told_by_every_command_that_reads(shell: Shell) -> None:
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    shell("index", "docs", "-c", "c")
    (shell.folder / "docs" / "fruit.txt").write_bytes(b"\xff\x00")
    for options in ((), ("--dry-run",)):
        done = shell(
            "maintain", "rechunk", "-c", "c", "--chunk-tokens", "64", "--overlap-tokens", "8", *options, code=5
        )
        assert "not read: fruit.txt" in done.stderr
    done = shell("try", "docs", "keys", code=5)
    assert "not read: fruit.txt" in done.stderr
    done = shell("try", "docs", "keys", "--json", code=5)
    assert "not read: fruit.txt" in done.stderr
    assert '"rank": 1' in done.stdout
