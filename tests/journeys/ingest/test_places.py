"""Where a hit is in its file: a page, a row, a cell or a line, the same in every output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.minimal_pdf import pdf
from tests.support.open_xml import docx, workbook
from tests.support.retrievers import sync_opened
from tests.support.shell import Shell

LONG = "Filler words that say nothing at all. " * 3
# File -> a word in it, the hit's place, and its line.
PLACES = {
    "guide.md": ("otter", "line 5", 4),
    "code.py": ("badger", "line 2", 1),
    "rows.csv": ("walrus", "row 5", 6),
    "lines.jsonl": ("marmot", "row 3", 3),
    "book.xlsx": ("kettle", "sheet Prices, row 6", None),
    "cells.ipynb": ("lynx", "cell 2", None),
    "page.html": ("heron", "", None),
    "text.docx": ("signs_of_it", "", None),
    "pages.pdf": ("ferret", "p. 3", None),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cells = [{"cell_type": "markdown", "source": "nothing"}, {"cell_type": "code", "source": "a = 1\nlynx()"}]
    texts: dict[str, str | bytes] = {
        "guide.md": "---\ntitle: Guide\n---\nFirst.\nAn otter.\n",
        "code.py": "one = 1\nbadger = 2\n",
        "rows.csv": 'name,text\none,"two\nlines"\n\nthree,words\nfour,a walrus\n',
        "lines.jsonl": '{"text": "one"}\n\n{"text": "a\\nmarmot"}\n',
        "book.xlsx": workbook(Prices={3: ["name"], 4: ["pan"], 6: ["kettle"]}, Other={1: ["word"]}),
        "cells.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        "page.html": "<h1>Birds</h1><p>One.</p><p>A heron.</p>",
        "text.docx": docx(),
        "pages.pdf": pdf([[(12, f"Page one. {LONG}")], [(12, "Page two.")], [(12, "It is about a ferret.")]]),
    }
    made = tmp_path / "places"
    made.mkdir()
    for name, text in texts.items():
        (made / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return made


def test_every_output_has_the_place(shell: Shell, folder: Path) -> None:
    with sync_opened(shell.environment["DATABASE_URL"]) as retriever:
        retriever.index(folder)
        for name, (word, place, line) in PLACES.items():
            [hit] = retriever.search(word, top_k=1, mode="keyword")
            assert (hit.source_document, hit.place, hit.line) == (name, place, line)
            location = f"{name}:{place[5:]}" if place.startswith("line ") else f"{name}, {place}" if place else name
            assert hit.location == location
            assert location in repr(hit)
            assert location in hit._repr_html_()
            assert hit.to_dict()["place"] == place
            [source] = retriever.context(word, top_k=1, mode="keyword", neighbours=0, sections=None).sources
            assert source.document == name
            [chunk] = retriever.get([hit.id])
            assert source.place == chunk.place  # a passage begins where its first chunk does
            why = retriever.why(name if line is None else f"{name}:{hit.match_line or line}", word, mode="keyword")
            assert why.chunk == hit.id
        hit = retriever.search("ferret", top_k=1, mode="keyword")[0]
        assert (hit.page, retriever.why("pages.pdf:3", "ferret").chunk) == (3, hit.id)
        # The chunk is as it was; a hit that is stored again does not move.
        [chunk] = retriever.get([hit.id])
        assert (chunk.page, chunk.place) == (1, "p. 1")
        retriever.add_documents([hit])
        assert retriever.search("ferret", top_k=1, mode="keyword")[0].place == "p. 3"
    found = shell("search", "kettle", "--mode", "keyword")
    assert "book.xlsx, sheet Prices, row 6" in found.stdout
    [ferret] = shell.objects("search", "ferret", "--mode", "keyword", "--fields", "place,page")[:1]
    assert ferret == {"place": "p. 3", "page": 3}
