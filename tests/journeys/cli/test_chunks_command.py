"""``semlex documents preview``: what files become, shown before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

from semlex.ingest.preview import preview_chunks
from tests.support.retrievers import sync_opened
from tests.support.shell import Shell

CODE = "import os\n\n\nclass Store:\n    def get(self):\n        return 1\n\n    def put(self):\n        return 2\n"


def test_it_shows_what_files_become(shell: Shell) -> None:
    folder = shell.folder / "docs"
    (folder / "store.py").write_text(CODE)
    (folder / "bad.md").write_bytes(b"\xff\xfe\xfa")
    done = shell("documents", "preview", "docs", code=5)
    assert "fruit.txt: text, 1 chunk" in done.stdout
    assert "store.py: code, 'store.py', 2 chunks" in done.stdout
    assert "store.py > class Store" in done.stdout
    assert "bad.md: byte" in done.stderr
    files = [json.loads(line) for line in shell("documents", "preview", "docs", "--json", code=5).stdout.splitlines()]
    assert {file["source_document"]: file["format"] for file in files} == {
        "bad.md": "markdown",
        "fruit.txt": "text",
        "keys.md": "markdown",
        "store.py": "code",
    }
    assert [file["problem"]["code"] for file in files if file["problem"]] == ["not_utf16"]
    shell("documents", "preview", "nowhere", code=2)
    shell("documents", "preview", "docs", "--chunk-tokens", "5", code=2)


def test_it_cuts_as_the_settings_say(shell: Shell) -> None:
    page = "\n\n".join(f"## Part {number}\n\n{'word ' * 48}" for number in range(4))
    (shell.folder / "docs" / "parts.md").write_text(page)

    def counts(*options: str) -> list[int]:
        told = json.loads(shell("documents", "preview", "docs/parts.md", "--json", *options).stdout)
        return [chunk["tokens"] for chunk in told["chunks"]]

    assert counts() == [50] * 4
    assert counts("--min-tokens", "100") == [100] * 2
    (shell.folder / "semlex.toml").write_text("min_tokens = 200\noverlap_tokens = 100\n")
    assert counts("--chunk-tokens", "120") == [100] * 2  # as much of them as fits


def test_it_shows_what_is_stored(database_url: str, tmp_path: Path) -> None:
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


def test_brackets_in_names_are_shown(shell: Shell) -> None:
    # They are markup to the library that prints; a name that closes what nothing has opened ended the command.
    for folder, name in (("[locale]", "a.md"), ("x[", "y].md")):
        (shell.folder / folder).mkdir()
        (shell.folder / folder / name).write_bytes(b"\xff\xfe\xfa")
        assert f"{folder}/{name}: byte" in shell("documents", "preview", ".", "--include", f"*{name}", code=5).stderr
