"""Formats of records, from the file to the hit: a row is a chunk with metadata of its own."""

import json

import pytest

from semlex.errors import ConfigurationError
from semlex.testing import HashEmbedder
from tests.support.folders import folder_with
from tests.support.minimal_pdf import pdf
from tests.support.retrievers import opened
from tests.support.spies import calls_of

TABLE = """sku,title,description,colour
A-1,Kettle,"Boils water, quickly",red
A-2,Lamp,Lights a desk,blue
A-3,Pan,Fries an egg,red
"""


@pytest.fixture
async def store(database_url):
    async with opened(database_url, 64) as store:
        yield store


async def test_a_row_is_found_by_its_text_and_by_its_fields(store, tmp_path, monkeypatch):
    (tmp_path / "shop.csv").write_text(TABLE, encoding="utf-8")
    fields = {"text_fields": ["title", "description"], "id_field": "sku"}
    for name, value in (("text_fields", "title"), ("id_field", ""), ("detect_encoding", 1), ("text_fields", [1])):
        with pytest.raises(ConfigurationError, match=name):
            await store.index(tmp_path, **{name: value})
    report = await store.index(tmp_path, **fields)
    assert (report.added, report.failed, report.chunks) == (1, 0, 3)
    [hit] = await store.search("boils water", top_k=1)
    found = hit.content, hit.source_document, hit.metadata["sku"]
    assert found == ("Kettle\n\nBoils water, quickly", "shop.csv", "A-1")
    hits = await store.search("egg lamp kettle", top_k=10, filters={"colour": "red"})
    assert {found.metadata["sku"] for found in hits} == {"A-1", "A-3"}
    embedded = calls_of(monkeypatch, HashEmbedder, "embed_documents")
    (tmp_path / "shop.csv").write_text(TABLE.replace("a desk", "a room"), encoding="utf-8")
    again = await store.index(tmp_path, **fields)
    assert (again.changed, again.chunks, again.embedded) == (1, 3, 1)
    assert [call["texts"] for call in embedded] == [["Lamp\n\nLights a room"]]
    assert (await store.search("room", mode="keyword"))[0].metadata["sku"] == "A-2"
    (tmp_path / "shop.csv").write_text(TABLE.replace("A-3", "A-1"), encoding="utf-8")
    refused = await store.index(tmp_path, **fields)
    assert [problem.code for problem in refused.problems] == ["repeated_id"]
    assert await store.count() == 3  # what was stored before is still found


async def test_notebooks_chunks_and_front_matter(store, tmp_path):
    sailing = {"cell_type": "code", "source": "hoist()", "outputs": [{"output_type": "stream", "text": "fair wind"}]}
    cells = [{"cell_type": "markdown", "source": "# Ships\n\n## Sailing"}, sailing]
    chunk = {"chunk_id": "c1", "source_document": "book.pdf", "chunk_text": "A banana is yellow.", "token_count": 5}
    files = {
        "ships.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}),
        "book.json": json.dumps([{**chunk, "chapter_title": "Fruit", "summary": "on bananas"}]),
        "package.json": '{"name": "zebra"}',
        "lines.jsonl": '{"body": "A comet returns.", "seen": [1910, 1986], "big": 1e30}\n',
        "page.md": "---\ntitle: Keys\ntags: [safe, door]\n---\n\nRotate them.\n",
    }

    async def first(query, **options):
        return (await store.search(query, mode="keyword", **options))[0]

    report = await store.index(folder_with(tmp_path, files))
    assert (report.added, report.failed) == (5, 0)
    hit = await first("fair wind")
    assert (hit.heading_path, hit.cell) == (("Ships", "Sailing"), 2)
    hit = await first("banana")
    assert (hit.content, hit.heading_path, hit.metadata["chunk_id"]) == ("A banana is yellow.", ("Fruit",), "c1")
    assert (await first("zebra")).source_document == "package.json"
    assert (await first("comet", filters={"seen": {"$contains": 1986}})).metadata["big"] == 1e30
    hit = await first("rotate")
    assert (hit.metadata["tags"], hit.content, hit.line) == (["safe", "door"], "Rotate them.", 6)
    assert not await store.search("safe", mode="keyword")


async def test_the_fields_are_remembered(store, tmp_path):
    old = ("Die Größe und die Länge der Möbel, für die wir Maße nähmen. " * 20).encode("cp1252")
    folder_with(tmp_path, {"shop.csv": TABLE, "page.md": "# A page\n\nWords.\n", "old.txt": old})
    fields = {"text_fields": ["title"], "id_field": "sku", "detect_encoding": True}

    async def texts():
        return {chunk.content for chunk in await store.list_chunks(limit=10, filters={"sku": ["A-1", "A-2", "A-3"]})}

    assert (await store.index(tmp_path)).failed == 1
    assert await texts() != {"Kettle", "Lamp", "Pan"}
    report = await store.index(tmp_path, **fields)
    # Other fields mean another text of the table, and nothing for the page.
    assert (report.added, report.changed, report.unchanged, report.failed) == (1, 1, 1, 0)
    assert await texts() == {"Kettle", "Lamp", "Pan"}
    assert (await store.index(tmp_path, **fields)).unchanged == 3
    report = await store.documents.rechunk(chunk_tokens=100)
    assert (report.changed, report.failed) == (3, 0)
    assert await texts() == {"Kettle", "Lamp", "Pan"}
    plan = (await store.sync(tmp_path, dry_run=True, chunk_tokens=100)).plan
    assert [name.source_document for name in plan.changed] == ["shop.csv"]
    assert (await store.sync(tmp_path, chunk_tokens=100)).done.changed == 1
    assert await texts() != {"Kettle", "Lamp", "Pan"}


def test_the_command_line_names_fields_and_tells_what_it_skipped(shell):
    old = ("Übergröße und Käse für den größten Bären, " * 3).encode("latin-1")
    left_out = {"a.bin": "x", "b.log": "x", "old2.txt": "x", ".gitignore": "old2*\n", "_build/a.txt": "x"}
    folder_with(shell.folder / "shop", {"shop.csv": TABLE, "old.txt": old} | left_out)
    options = ("--model", "none", "--text-field", "description", "--text-field", "title", "--id-field", "sku")
    done = shell("index", "shop", *options, "--detect-encoding")
    assert "2 new, 0 changed, 0 unchanged, 0 failed" in done.stderr
    assert "skipped: 1 .bin, 1 .log, 1 by .gitignore, 1 generated (_build/)" in " ".join(done.stderr.split())
    found = json.loads(shell("search", "kettle", "--json").stdout.splitlines()[0])
    assert found["content"] == "Boils water, quickly\n\nKettle"
    assert json.loads(shell("index", "shop", *options, "--json").stdout)["skipped"]["format"] == {".bin": 1, ".log": 1}


async def test_pages_are_found_and_filtered_by(store, tmp_path):
    pages = [[(20, f"Chapter {name}"), (12, f"All about the {name} and its sound.")] for name in ("owl", "cat", "bee")]
    (tmp_path / "animals.pdf").write_bytes(pdf(pages, info="/Title (Animals)"))
    (tmp_path / "plain.txt").write_text("A sound without pages.")
    report = await store.index(tmp_path, chunk_tokens=16, overlap_tokens=0)
    assert (report.added, report.problems) == (2, [])
    hits = await store.search("sound", mode="keyword", filters="exists @page")
    assert {hit.page: hit.content.count("sound") for hit in hits} == {1: 1, 2: 1, 3: 1}
    (hit,) = await store.search("sound", mode="keyword", filters="@page == 2")
    assert ("cat" in hit.content, hit.page) == (True, 2)
    (hit,) = await store.search("sound", mode="keyword", filters="not exists @page")
    assert hit.page is None
