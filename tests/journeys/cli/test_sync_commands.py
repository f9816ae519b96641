"""`semlex sync` and `semlex documents`."""

import shutil

import pytest

from semlex.errors import ConfigurationError
from tests.support.followed import articles
from tests.support.retrievers import sync_opened

OPTIONS = ("-c", "c", "--model", "none")


@pytest.mark.slow
def test_a_synchronisation_reports_what_is_done_and_what_cannot_be_done(shell):
    docs = shell.folder / "docs"
    assert "no such file or folder" in shell("sync", "nowhere", *OPTIONS, code=2).stderr
    shell("status", "-c", "c", code=6)  # nothing was made for it
    shell("sync", "docs", *OPTIONS, "--dry-run", code=6)
    done = shell("sync", "docs", *OPTIONS)
    assert "2 added, 0 changed, 0 moved, 0 deleted, 0 unchanged, 0 failed" in done.stderr
    (docs / "keys.md").rename(docs / "locks.md")
    (docs / "fruit.txt").unlink()
    (docs / "new.md").write_text("new", encoding="utf-8")
    dry = shell("sync", "docs", *OPTIONS, "--dry-run")
    assert dry.stdout.splitlines() == [
        "add     docs: new.md",
        "delete  docs: fruit.txt",
        "move    docs: keys.md -> locks.md",
    ]
    assert "would be done: 1 added, 0 changed, 1 moved, 1 deleted, 0 unchanged" in dry.stderr
    (report,) = shell.objects("sync", "docs", *OPTIONS, "--keep-deleted")
    assert report["done"] == {"added": 1, "changed": 0, "moved": 1, "deleted": 0, "unchanged": 0}
    assert report["plan"]["moved"] == [{"source": "docs", "old": "keys.md", "new": "locks.md"}]
    assert "1 document without a file: kept" in shell("sync", "docs", *OPTIONS, "--keep-deleted").stderr
    assert "1 deleted" in shell("sync", "docs", *OPTIONS).stderr
    (docs / "bad.md").write_bytes(b"\0\1")
    failed = shell("sync", "docs", *OPTIONS, code=5)
    assert "bad.md" in failed.stderr
    assert "the plan was not followed fully" in failed.stderr
    shutil.rmtree(docs)
    assert "--allow-empty" in shell("sync", "docs", *OPTIONS, code=2).stderr
    assert "2 deleted" in shell("sync", "docs", *OPTIONS, "--allow-empty").stderr


@pytest.mark.slow
def test_documents_and_their_files(shell):
    docs = shell.folder / "docs"
    shell("index", "docs", *OPTIONS)
    (docs / "keys.md").write_text("# Other keys\n", encoding="utf-8")
    (docs / "fruit.txt").unlink()
    (docs / "new.md").write_text("new", encoding="utf-8")
    (docs / "bad.md").write_bytes(b"\0\1")
    shell("index", "docs/new.md", "docs/bad.md", *OPTIONS, code=5)
    found = shell.objects("documents", "-c", "c")
    assert [(one["source_document"], one["state"], one["chunks"]) for one in found[:-1]] == [
        ("fruit.txt", "gone", 1),
        ("keys.md", "changed", 1),
        ("new.md", "ok", 1),
    ]
    assert (found[-1]["type"], found[-1]["source_document"]) == ("problem", "bad.md")
    told = shell("documents", "-c", "c", "--source", "docs")
    assert "gone" in told.stdout.splitlines()[0]
    assert "not read by the last run: bad.md" in told.stderr
    assert "unknown source" in shell("documents", "-c", "c", "--source", "other", code=2).stderr
    docs.rename(shell.folder / "elsewhere")
    assert {one["state"] for one in shell.objects("documents", "-c", "c")[:-1]} == {"unknown"}


def test_documents_as_values(database_url, tmp_path):
    with sync_opened(database_url, "none") as store:
        assert store.documents.list().documents == []
        (tmp_path / "a.md").write_text("a", encoding="utf-8")
        store.sync(tmp_path, source="base")
        (one,) = store.documents.list("base").documents
        assert (one.source, one.source_document, one.state, one.chunks, one.encoding) == ("base", "a.md", "ok", 1, None)
        assert one.written_at.utcoffset() is not None
        with pytest.raises(ConfigurationError, match="unknown source 'other'; known sources: base"):
            store.documents.list("other")


def test_followed_tables_in_step(shell):
    url = shell.environment["DATABASE_URL"]
    with articles(url, rows=2) as table, sync_opened(url, "none", collection="c") as retriever:
        assert "no table is followed" in shell("sync", "-c", "c").stderr
        retriever.tables.follow(**table.options(name="news"))
        assert "would be done: news: 2 added" in shell("sync", "-c", "c", "--dry-run").stderr
        assert "news: 2 added, 0 changed, 0 with other metadata, 0 deleted" in shell("sync", "-c", "c").stderr
        table.update(0, author="bob")
        (report,) = shell.objects("sync", "-c", "c", "--table", "news", "--compare")
        assert (report["refreshed"], report["unchanged"]) == (1, 1)
        table.connection.execute("ALTER TABLE shop.articles ALTER id TYPE text")
        assert "semlex follow --collection c news --change" in shell("sync", "-c", "c", code=2).stderr
        table.connection.execute("ALTER TABLE shop.articles ALTER id TYPE bigint USING id::bigint")
        table.connection.execute("TRUNCATE shop.articles")
        assert "--allow-empty" in shell("sync", "-c", "c", code=2).stderr
        assert "2 deleted" in shell("sync", "-c", "c", "--allow-empty").stderr
    assert "no table 'old' is followed" in shell("sync", "-c", "c", "--table", "old", code=2).stderr
    assert "--source is for files" in shell("sync", "-c", "c", "--source", "s", code=2).stderr
    assert "--table and --compare are for followed tables" in shell("sync", "docs", "--table", "x", code=2).stderr
    assert "semlex worker" in shell("sync", "-c", "c", "--watch", code=2).stderr
