"""Sources, `documents preview`, `delete`, `rechunk` and `migrate`: what they report, and that their remedies work."""

import json
import re
import shlex
import shutil

import psycopg
import pytest

from semlex.ingest.preview import preview_chunks
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.shell import Shell

CODE = "import os\n\n\nclass Store:\n    def get(self):\n        return 1\n\n    def put(self):\n        return 2\n"


@pytest.fixture
def docs(tmp_path):
    texts = {name: f"# {name}\n\n" + "a word of many " * 60 for name in ("a.md", "b.md", "guide/c.md")}
    return folder_with(tmp_path / "docs", texts)


@pytest.fixture
def semlex(database_url, tmp_path, docs):
    """The command line beside these documents, with words only, on a narrow terminal."""
    shell = Shell(database_url, tmp_path)
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    del shell.environment["COLUMNS"]
    return shell


def follow(semlex, message, command, *more):
    """Runs the command that a message names."""
    found = re.search(rf"semlex ({command}[^\n;]*)", re.sub(r"\s*\n\s*", " ", message))
    assert found is not None, message
    return semlex(*shlex.split(found.group(1).split(". If")[0].rstrip(". ")), *more)


@pytest.mark.slow
def test_sources_and_moving(semlex, docs, tmp_path):
    semlex("index", "docs")
    (entry,) = semlex.objects("documents", "sources")
    assert (entry["name"], entry["root"], entry["documents"]) == ("docs", str(docs), 3)
    assert "docs" in semlex("documents", "sources").stdout
    moved = tmp_path / "elsewhere" / "docs"
    shutil.move(docs, moved)
    follow(semlex, semlex("index", str(moved), code=2).stderr, "documents move")
    assert "0 new, 0 changed, 3 unchanged" in semlex("index", str(moved)).stderr
    assert semlex.objects("documents", "sources")[0]["root"] == str(moved)
    # Under another name, and not all is as it was.
    renamed = moved.rename(moved.with_name("manual"))
    (renamed / "a.md").unlink()
    (renamed / "new.md").write_text("new")
    for command in ("index", "sync"):
        refused = semlex(command, str(renamed), code=2)
        assert "its own name with --source NAME" in refused.stderr
    follow(semlex, refused.stderr, "documents move")
    semlex("sync", str(renamed))
    (entry,) = semlex.objects("documents", "sources")
    assert entry["documents"] == 3
    again = renamed.rename(renamed.with_name("again"))
    (again / "b.md").write_text("other")
    (again / "new.md").unlink()
    assert "2 new" in semlex("index", str(again)).stderr  # one file of three is the same: another folder


@pytest.mark.slow
def test_a_folder_that_contains_a_source(semlex):
    semlex("index", "docs/guide")
    follow(semlex, semlex("index", "docs", code=2).stderr, "delete --source", "--yes")
    assert "no sources" in semlex("documents", "sources").stderr
    semlex("index", "docs")
    semlex("index", "docs/guide", "docs/guide/c.md")
    assert [source["name"] for source in semlex.objects("documents", "sources")] == ["docs"]


@pytest.mark.slow
def test_chunks_are_deleted_by_name_source_and_filter_and_with_their_files(semlex, docs):
    semlex("index", "docs")
    hit, *_ = semlex.objects("search", "word")
    assert semlex.objects("delete", hit["id"], "--yes") == [{"chunks": 1, "documents": 1, "dry_run": False}]
    assert "1 chunk deleted (1 whole document)" in semlex("delete", "guide/c.md", "--yes").stderr
    semlex("index", "docs")
    assert "did you mean guide/c.md?" in semlex("delete", "guide/cc.md", code=2).stderr
    assert "document 'nosuch.md' not found" in semlex("delete", "nosuch.md", "a.md", code=2).stderr
    assert "0 chunks" in semlex("delete", "c.md", "--filter", "topic == 'x'").stderr
    told = semlex("delete", str(docs / "guide" / "c.md"), "--dry-run").stderr
    assert "1 chunk would be deleted (1 whole document)" in told
    assert "1 chunk deleted (1 whole document)" in semlex("delete", "c.md", "--source", "docs", "--yes").stderr
    assert "semlex delete: docs, guide/c.md" in semlex("why", "guide/c.md", "word").stdout
    assert "0 chunks deleted" in semlex("delete", "--filter", "topic == 'x'").stderr
    assert "name what to delete" in semlex("delete", code=2).stderr
    assert "unknown source 'x'; known sources: docs" in semlex("delete", "--source", "x", code=2).stderr
    semlex("index", "docs")
    (docs / "a.md").unlink()
    told = semlex("index", "docs").stderr
    assert "1 file of docs is gone; its chunks" in told
    assert "1 chunk would be deleted" in semlex("delete", "--vanished", "--dry-run").stderr
    assert "confirm with --yes" in semlex("delete", "--vanished", code=2).stderr  # nobody answers
    follow(semlex, told, "delete --source", "--yes")
    assert "gone" not in semlex("index", "docs").stderr
    # A name that never existed still gets a suggestion after documents were deleted.
    assert "did you mean guide/c.md?" in semlex("delete", "guide/cc.md", code=2).stderr


@pytest.mark.slow
def test_other_chunk_settings_need_a_rechunk_also_to_join_sections(semlex):
    semlex("index", "docs", "--chunk-tokens", "200")
    refused = semlex("index", "docs", "--chunk-tokens", "50", code=2).stderr
    assert "chunk_tokens=200" in refused
    assert "3 documents would be split" in semlex("maintain", "rechunk", "--chunk-tokens", "50", "--dry-run").stderr
    assert "3 unchanged" in semlex("index", "docs").stderr
    follow(semlex, refused, "maintain rechunk")
    assert "3 unchanged" in semlex("index", "docs", "--chunk-tokens", "50").stderr
    assert "0 documents would be split" in semlex("maintain", "rechunk", "--dry-run").stderr
    semlex("sync", "docs", "-c", "joined", "--chunk-tokens", "600", "--min-tokens", "200")
    told = semlex("status", "-c", "joined").stdout
    assert "at most 600; neighbours share at most 50, sections below 200 are joined" in told
    (status,) = semlex.objects("status", "-c", "joined")
    assert status["chunk_settings"] == {"chunk_tokens": 600, "overlap_tokens": 50, "min_tokens": 200}
    refused = semlex("index", "docs", "-c", "joined", "--min-tokens", "100", code=2).stderr
    assert "min_tokens=200" in refused
    follow(semlex, refused, "maintain rechunk")
    semlex.environment["SEMLEX_MIN_TOKENS"] = "7"
    assert "3 unchanged" in semlex("index", "docs", "-c", "joined", "--min-tokens", "100").stderr


def test_settings_of_the_environment_are_not_refused(semlex):
    semlex("index", "docs", "--chunk-tokens", "200")
    assert "you gave 'german'" in semlex("index", "docs", "--language", "german", code=2).stderr
    semlex.environment |= {"SEMLEX_CHUNK_TOKENS": "50", "SEMLEX_LANGUAGE": "german"}
    assert "3 unchanged" in semlex("index", "docs").stderr


@pytest.mark.slow
def test_what_is_refused_makes_no_collection(semlex, database_url, tmp_path):
    semlex("index", "docs/nope", code=2)
    semlex("try", "/nope", "a word", code=2)
    semlex("index", "docs", "--chunk-tokens", "5", code=2)
    semlex("index", "docs", "--source", "a/b", code=2)
    (tmp_path / "other" / "docs").mkdir(parents=True)
    told = semlex("index", "docs", "other/docs", code=2).stderr
    assert "the source 'docs' is another folder" in " ".join(told.split())
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT name FROM semlex.collection").fetchall() == []
    # Where the collection has names of its own for them, they are no clash.
    semlex("index", "docs")
    semlex("index", "other/docs", "--source", "twin")
    semlex("index", "docs", "other/docs")


@pytest.mark.parametrize("changed", ["registry_version SET fingerprint", "collection SET schema_fingerprint"])
def test_tables_of_an_unreleased_version_are_refused_until_they_are_dropped(semlex, database_url, changed):
    semlex("index", "docs", "-c", "docs")
    assert "nothing to migrate" in semlex("maintain", "migrate").stderr
    assert semlex("maintain", "migrate", "--sql").stdout == ""
    with psycopg.connect(database_url) as connection:
        connection.execute(f"UPDATE semlex.{changed} = 'another'")
    for command in (("status", "-c", "docs"), ("search", "word", "-c", "docs"), ("index", "docs", "-c", "docs")):
        refusal = " ".join(semlex(*command, code=3).stderr.split())
        assert "unreleased semlex with other tables" in refusal
        assert "(semlex collections drop docs) and index again" in refusal
    assert "semlex collections drop docs" in semlex("doctor", code=3).stdout
    semlex("collections", "drop", "docs", "--yes")
    assert semlex("collections").stdout == ""
    semlex("index", "docs", "-c", "docs")
    assert "unreleased" not in semlex("doctor").stdout


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_told_by_every_command_that_reads(shell):
    shell.environment["SEMLEX_EMBEDDING_MODEL"] = "none"
    shell("index", "docs", "-c", "c")
    (shell.folder / "docs" / "fruit.txt").write_bytes(b"\xff\x00")
    rechunk = ("maintain", "rechunk", "-c", "c", "--chunk-tokens", "64", "--overlap-tokens", "8")
    for command in (rechunk, (*rechunk, "--dry-run"), ("try", "docs", "keys"), ("try", "docs", "keys", "--json")):
        done = shell(*command, code=5)
        assert "not read: fruit.txt" in done.stderr
    assert '"rank": 1' in done.stdout


def test_a_preview_shows_what_files_become(shell):
    bad = b"\xff\xfe\xfa"
    # Brackets are markup to the library that prints; a name that closes what nothing has opened ended the command.
    files = {"docs/store.py": CODE, "docs/bad.md": bad, "[locale]/a.md": bad, "x[/y].md": bad}
    folder_with(shell.folder, files)
    done = shell("documents", "preview", "docs", code=5)
    assert "fruit.txt: text, 1 chunk" in done.stdout
    assert "store.py: code, 'store.py', 2 chunks" in done.stdout
    assert "store.py > class Store" in done.stdout
    assert "bad.md: byte" in done.stderr
    files = [json.loads(line) for line in shell("documents", "preview", "docs", "--json", code=5).stdout.splitlines()]
    formats = {"bad.md": "markdown", "fruit.txt": "text", "keys.md": "markdown", "store.py": "code"}
    assert {file["source_document"]: file["format"] for file in files} == formats
    assert [file["problem"]["code"] for file in files if file["problem"]] == ["not_utf16"]
    for path in ("[locale]/a.md", "x[/y].md"):
        told = shell("documents", "preview", ".", "--include", f"*{path.partition('/')[2]}", code=5).stderr
        assert f"{path}: byte" in told
    shell("documents", "preview", "nowhere", code=2)
    shell("documents", "preview", "docs", "--chunk-tokens", "5", code=2)


def test_a_preview_splits_as_the_settings_say(shell):
    page = "\n\n".join(f"## Part {number}\n\n{'word ' * 48}" for number in range(4))
    (shell.folder / "docs" / "parts.md").write_text(page)

    def counts(*options):
        [told] = shell.objects("documents", "preview", "docs/parts.md", *options)
        return [chunk["tokens"] for chunk in told["chunks"]]

    assert counts() == [50] * 4
    assert counts("--min-tokens", "100") == [100] * 2
    (shell.folder / "semlex.toml").write_text("min_tokens = 200\noverlap_tokens = 100\n")
    assert counts("--chunk-tokens", "120") == [100] * 2  # as much of them as fits


def test_a_preview_shows_what_is_stored(database_url, tmp_path):
    (tmp_path / "a.md").write_text("# One\n\n" + "word " * 100 + "\n\n## Two\n\n" + "- item\n" * 50)
    (tmp_path / "store.py").write_text(CODE)
    shown = [
        (file.source_document, chunk.text, chunk.place, chunk.heading_path, chunk.metadata)
        for file in preview_chunks(tmp_path, chunk_tokens=60)
        for chunk in file.chunks
    ]
    with sync_opened(database_url, "none") as retriever:
        retriever.index(tmp_path, chunk_tokens=60)
        stored = sorted(retriever.list_chunks(), key=lambda chunk: (chunk.source_document, chunk.char_start))
    assert [(one.source_document, one.content, one.place, one.heading_path, one.metadata) for one in stored] == shown
