"""Why there is no document of a name: never seen, left out, unreadable, deleted; and what names mean."""

from __future__ import annotations

import os

import pytest

from semlex import Document, SyncRetriever
from semlex.errors import ConfigurationError

PAGE = (
    f"# Keys\n\n## Rotation\n\nRotate a key every ninety days.\n\n{'Pad. ' * 80}\n\n## Storage\n\nA vault holds keys.\n"
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


def why(retriever, document, code=None, text=""):
    told = retriever.why(str(document), "vault")
    assert code is None or (told.code == code and text in told.reasons[0].text), (document, told)
    return told


def test_files_that_a_run_passes_by_or_cannot_read(retriever, folder):
    for name, text in {
        "server.log": "no loader reads files of the format .log",
        ".hidden.md": "hidden",
        "node_modules/read.md": "(the folder node_modules)",
        "secret.md": ".gitignore or .semlexignore leaves it out",
        "private/deep/page.md": "(the folder private)",
    }.items():
        for document in (name, folder / name, f"docs: {name}"):
            told = why(retriever, document, "skipped", text)
        # What is said to help does.
        assert told.reasons[0].remedy.startswith(f"semlex index {folder / name}")
        retriever.index(folder / name)
        assert why(retriever, name).code in {"found", "no_shared_word"}, name
    why(retriever, "picture.txt", "unreadable", "binary")
    why(retriever, "latin.txt", "unreadable", "not_utf8")
    (folder / "latin.txt").write_text("für Elise in the vault", encoding="utf-8")
    retriever.index(folder)
    assert why(retriever, "latin.txt").found
    (folder / "large.txt").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    why(retriever, "large.txt", "unreadable", "too_large")
    os.mkfifo(folder / "pipe.txt")
    assert "not_regular" in why(retriever, "pipe.txt").reasons[0].text
    (folder / "link.md").symlink_to("/etc/hostname")
    assert "link_out" in why(retriever, "link.md").reasons[0].text
    why(retriever, "blank.md", "empty")


def test_what_no_run_has_seen(retriever, folder, tmp_path):
    nobody = why(retriever, "nobody", "never_seen")
    assert (nobody.name, nobody.legs) == (None, ())
    assert "did you mean keys.md?" in why(retriever, "kesy.md").reasons[0].text
    why(retriever, folder / "other.md", "never_seen", str(folder))
    (tmp_path / "apart.md").write_text("# Apart\n")
    apart = why(retriever, tmp_path / "apart.md", "never_seen")
    assert apart.reasons[0].remedy.startswith("semlex index ")
    (folder / "new.md").write_text("# A new vault\n")
    why(retriever, "new.md", "not_indexed", "since it was changed")
    retriever.index(folder)
    assert why(retriever, "new.md").found
    (folder / "late.md").write_text("# Late\n")
    os.utime(folder / "late.md", (1, 1))
    retriever.index(folder, exclude=["late*"])
    why(retriever, "late.md", "not_indexed", "an option left the file out")
    folder.rename(tmp_path / "elsewhere")
    why(retriever, folder / "other.md", "never_seen", "cannot be reached from here")


def test_what_was_deleted(retriever, folder):
    retriever.delete(document="sub/fruit.txt")
    told = why(retriever, "sub/fruit.txt", "deleted", "semlex delete: sub/fruit.txt")
    assert told.reasons[0].remedy == f"semlex index {folder}/sub/fruit.txt --collection default_collection"
    (folder / "sub" / "keys.md").unlink()
    assert why(retriever, "sub/keys.md").found  # the file is gone, the document is there
    retriever.sync(folder)
    why(retriever, folder / "sub" / "keys.md", "deleted", "semlex sync")
    retriever.delete(source="docs")
    why(retriever, folder / "keys.md", "deleted", "'docs' was removed")
    retriever.index(folder)
    assert why(retriever, folder / "keys.md").found


def test_names(retriever, folder, tmp_path, monkeypatch):
    named = Document("a vault", {"source_document": "safe.pdf"}, id="v1")
    retriever.add_documents([named, Document("vault", id="id:9")])
    assert why(retriever, "keys.md").name == "docs: keys.md"
    for document in ("keys.md", "docs: keys.md", folder / "keys.md"):
        assert why(retriever, document).chunks == 2
    monkeypatch.chdir(tmp_path)
    assert why(retriever, "docs/keys.md").name == "docs: keys.md"
    storage = why(retriever, "keys.md:11")
    assert (storage.name, storage.chunks) == ("docs: keys.md:11", 1)
    hit = retriever.search("ninety days")[0]
    assert retriever.why(hit.location, "ninety days").chunk == hit.id
    assert why(retriever, hit.id).name == hit.id
    note = "no chunk contains line, page or row 999: the whole document was examined"
    assert why(retriever, "keys.md:999").notes[0] == note
    assert why(retriever, "fruit.txt").name == "docs: sub/fruit.txt"  # the end of one path only
    assert (why(retriever, "safe.pdf").name, why(retriever, "id:9").name) == ("safe.pdf", "id:9")
    (folder / "more" / "sub").mkdir(parents=True)
    (folder / "more" / "sub" / "fruit.txt").write_text("Another vault\n")
    retriever.index(folder)
    with pytest.raises(ConfigurationError, match=r"docs: more/sub/fruit\.txt, docs: sub/fruit\.txt"):
        why(retriever, "fruit.txt")
    assert why(retriever, "sub/fruit.txt").name == "docs: sub/fruit.txt"
    assert why(retriever, "more/sub/fruit.txt").found
