"""Why there is no document of a name: never seen, left out, unreadable, deleted; and what names mean."""

from __future__ import annotations

import os

import pytest

from semlex import Document, SyncRetriever
from semlex.errors import ConfigurationError

PAGE = (
    "# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n"
    + "Pad. " * 80
    + "\n\n## Storage\n\nA vault holds keys.\n"
)


@pytest.fixture
def folder(tmp_path):
    """A folder with files that are read, and of every kind that is not."""
    docs = tmp_path / "docs"
    for name, content in {
        "keys.md": PAGE,
        "sub/fruit.txt": "A banana is a fruit.\n",
        "sub/keys.md": "# Other keys\n\nNo vault.\n",
        "server.log": "a line\n",
        ".hidden.md": "# Hidden\n",
        "node_modules/read.md": "# Read\n",
        ".gitignore": "secret.md\nprivate/\n",
        "secret.md": "# Secret\n",
        "private/deep/page.md": "# Private\n",
        "blank.md": "\n",
    }.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(content, encoding="utf-8")
    (docs / "picture.txt").write_bytes(b"a\0b")
    (docs / "latin.txt").write_bytes("für Elise".encode("latin-1"))
    return docs


@pytest.fixture
def retriever(database_url, folder):
    with SyncRetriever(database_url, "none", use_reranking=False) as opened:
        opened.index(folder)
        yield opened


def why(retriever, document):
    return retriever.why(str(document), "vault")


def test_files_that_a_run_passes_by(retriever, folder):
    for name, text in {
        "server.log": "no loader reads files of the format .log",
        ".hidden.md": "hidden",
        "node_modules/read.md": "(the folder node_modules)",
        "secret.md": ".gitignore or .semlexignore leaves it out",
        "private/deep/page.md": "(the folder private)",
    }.items():
        for document in (name, folder / name, f"docs: {name}"):
            told = why(retriever, document)
            assert told.code == "skipped", name
            assert text in told.reasons[0].text
        # What is said to help does.
        assert told.reasons[0].remedy.startswith(f"semlex index {folder / name}")
        retriever.index(folder / name)
        assert why(retriever, name).code in {"found", "no_shared_word"}, name


def test_files_that_cannot_be_read(retriever, folder):
    for name, code in (("picture.txt", "binary"), ("latin.txt", "not_utf8")):
        told = why(retriever, name)
        assert (told.code, code in told.reasons[0].text) == ("unreadable", True)
    (folder / "latin.txt").write_text("für Elise in the vault", encoding="utf-8")
    retriever.index(folder)
    assert why(retriever, "latin.txt").found
    (folder / "large.txt").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    large = why(retriever, "large.txt")
    assert (large.code, "too_large" in large.reasons[0].text) == ("unreadable", True)
    os.mkfifo(folder / "pipe.txt")
    assert "not_regular" in why(retriever, "pipe.txt").reasons[0].text
    (folder / "link.md").symlink_to("/etc/hostname")
    assert "link_out" in why(retriever, "link.md").reasons[0].text
    assert why(retriever, "blank.md").code == "empty"


def test_what_no_run_has_seen(retriever, folder, tmp_path):
    nobody = why(retriever, "nobody")
    assert (nobody.code, nobody.name, nobody.legs) == ("never_seen", None, ())
    assert "did you mean keys.md?" in why(retriever, "kesy.md").reasons[0].text
    gone = why(retriever, folder / "other.md")
    assert (gone.code, str(folder) in gone.reasons[0].text) == ("never_seen", True)
    (tmp_path / "apart.md").write_text("# Apart\n")
    apart = why(retriever, tmp_path / "apart.md")
    assert (apart.code, apart.reasons[0].remedy.startswith("semlex index ")) == ("never_seen", True)
    (folder / "new.md").write_text("# A new vault\n")
    new = why(retriever, "new.md")
    assert (new.code, "since it was changed" in new.reasons[0].text) == ("not_indexed", True)
    retriever.index(folder)
    assert why(retriever, "new.md").found
    (folder / "late.md").write_text("# Late\n")
    os.utime(folder / "late.md", (1, 1))
    retriever.index(folder, exclude=["late*"])
    late = why(retriever, "late.md")
    assert (late.code, "an option left the file out" in late.reasons[0].text) == ("not_indexed", True)
    folder.rename(tmp_path / "elsewhere")
    away = why(retriever, folder / "other.md")
    assert (away.code, "cannot be reached from here" in away.reasons[0].text) == ("never_seen", True)


def test_what_was_deleted(retriever, folder):
    retriever.delete(document="sub/fruit.txt")
    told = why(retriever, "sub/fruit.txt")
    assert (told.code, "semlex delete: sub/fruit.txt" in told.reasons[0].text) == ("deleted", True)
    assert told.reasons[0].remedy == f"semlex index {folder}/sub/fruit.txt --collection default_collection"
    (folder / "sub" / "keys.md").unlink()
    still = why(retriever, "sub/keys.md")
    assert still.found  # the file is gone, the document is there
    retriever.sync(folder)
    synced = why(retriever, folder / "sub" / "keys.md")
    assert (synced.code, "semlex sync" in synced.reasons[0].text) == ("deleted", True)
    retriever.delete(source="docs")
    removed = why(retriever, folder / "keys.md")
    assert (removed.code, "'docs' was removed" in removed.reasons[0].text) == ("deleted", True)
    retriever.index(folder)
    assert why(retriever, folder / "keys.md").found


def test_names(retriever, folder, tmp_path, monkeypatch):
    retriever.add_documents(
        [Document("a vault", {"source_document": "safe.pdf"}, id="v1"), Document("vault", id="id:9")]
    )
    whole = why(retriever, "keys.md")
    assert (whole.name, whole.chunks) == ("docs: keys.md", 2)
    assert why(retriever, "docs: keys.md").chunks == 2
    assert why(retriever, folder / "keys.md").chunks == 2
    monkeypatch.chdir(tmp_path)
    assert why(retriever, "docs/keys.md").name == "docs: keys.md"
    storage = why(retriever, "keys.md:11")
    assert (storage.name, storage.chunks) == ("docs: keys.md:11", 1)
    hit = retriever.search("ninety days")[0]
    assert retriever.why(hit.location, "ninety days").chunk == hit.id
    assert why(retriever, hit.id).name == hit.id
    assert (
        why(retriever, "keys.md:999").notes[0]
        == "no chunk contains line, page or row 999: the whole document was examined"
    )
    assert why(retriever, "fruit.txt").name == "docs: sub/fruit.txt"  # the end of one path only
    assert (why(retriever, "safe.pdf").name, why(retriever, "id:9").name) == ("safe.pdf", "id:9")
    (folder / "more" / "sub").mkdir(parents=True)
    (folder / "more" / "sub" / "fruit.txt").write_text("Another vault\n")
    retriever.index(folder)
    with pytest.raises(ConfigurationError, match=r"docs: more/sub/fruit\.txt, docs: sub/fruit\.txt"):
        why(retriever, "fruit.txt")
    assert why(retriever, "sub/fruit.txt").name == "docs: sub/fruit.txt"
    assert why(retriever, "more/sub/fruit.txt").found
