"""Where a hit is in its file: a page, a row, a cell or a line, the same in every output."""

import json
import re

import pytest

from tests.support.chat_servers import answer_text, chat_server
from tests.support.folders import folder_with
from tests.support.minimal_pdf import pdf
from tests.support.open_xml import docx, workbook
from tests.support.retrievers import sync_opened

LONG = "Filler words that say nothing at all. " * 3
# File -> its content, a word in it, the hit's place, and its line.
CELLS = [{"cell_type": "markdown", "source": "nothing"}, {"cell_type": "code", "source": "a = 1\nlynx()"}]
BOOK = workbook(Prices={3: ["name"], 4: ["pan"], 6: ["kettle"]}, Other={1: ["word"]})
PAGES = pdf([[(12, f"Page one. {LONG}")], [(12, "Page two.")], [(12, "It is about a ferret.")]])
PLACES = {
    "guide.md": ("---\ntitle: Guide\n---\nFirst.\nAn otter.\n", "otter", "line 5", 4),
    "code.py": ("one = 1\nbadger = 2\n", "badger", "line 2", 1),
    "rows.csv": ('name,text\none,"two\nlines"\n\nthree,words\nfour,a walrus\n', "walrus", "row 5", 6),
    "lines.jsonl": ('{"text": "one"}\n\n{"text": "a\\nmarmot"}\n', "marmot", "row 3", 3),
    "book.xlsx": (BOOK, "kettle", "sheet Prices, row 6", None),
    "cells.ipynb": (json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4}), "lynx", "cell 2", None),
    "page.html": ("<h1>Birds</h1><p>One.</p><p>A heron.</p>", "heron", "", None),
    "text.docx": (docx(), "signs_of_it", "", None),
    "pages.pdf": (PAGES, "ferret", "p. 3", None),
}
# The passage that holds the word, if it spans more than one page or row.
SPANS = {"book.xlsx": "sheet Prices, rows 3-6", "pages.pdf": "p. 1-3"}


def test_every_output_has_the_place(shell):
    folder = folder_with(shell.folder / "places", {name: content for name, (content, *_) in PLACES.items()})
    with sync_opened(shell.environment["DATABASE_URL"]) as retriever:
        retriever.index(folder)
        for name, (_, word, place, line) in PLACES.items():
            [hit] = retriever.search(word, top_k=1, mode="keyword")
            assert (hit.source_document, hit.place, hit.line) == (name, place, line)
            location = f"{name}:{place[5:]}" if place.startswith("line ") else f"{name}, {place}" if place else name
            assert hit.location == location
            assert location in repr(hit)
            assert location in hit._repr_html_()
            assert hit.to_dict()["place"] == place
            [source] = retriever.context(word, top_k=1, mode="keyword", neighbours=0, sections=None).sources
            [chunk] = retriever.get([hit.id])
            # A passage begins where its first chunk does, and may end on another page or row.
            assert (source.document, source.place) == (name, SPANS.get(name, chunk.place))
            why = retriever.why(name if line is None else f"{name}:{hit.match_line or line}", word, mode="keyword")
            assert why.chunk == hit.id
        hit = retriever.search("ferret", top_k=1, mode="keyword")[0]
        assert (hit.page, retriever.why("pages.pdf:3", "ferret").chunk) == (3, hit.id)
        # The chunk is as it was; a hit that is stored again does not move.
        [chunk] = retriever.get([hit.id])
        assert (chunk.page, chunk.place) == (1, "p. 1")
        retriever.add_documents([hit])
        assert retriever.search("ferret", top_k=1, mode="keyword")[0].place == "p. 3"
    assert "book.xlsx, sheet Prices, row 6" in shell("search", "kettle", "--mode", "keyword").stdout
    ferret, *_ = shell.objects("search", "ferret", "--mode", "keyword", "--fields", "place,page")
    assert ferret == {"place": "p. 3", "page": 3}


OWN_PLACE = re.compile(r"otter of (.+?)\ssleeps")


def told_places():
    """Files whose sentences name their own place."""
    cells = [{"cell_type": "markdown", "source": f"The otter of cell {n} sleeps."} for n in range(1, 6)]
    return {
        "pages.pdf": pdf([[(12, f"The otter of p. {n} sleeps. {LONG}")] for n in range(1, 9)]),
        "book.xlsx": workbook(
            Prices={n: [f"The otter of sheet Prices, row {n} sleeps."] for n in range(2, 9)},
            Other={n: [f"The otter of sheet Other, row {n} sleeps."] for n in (3, 4, 7)},
        ),
        "rows.csv": ("text\n" + "".join(f'"The otter of row {n}\nsleeps."\n' for n in range(2, 9))).encode(),
        "cells.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode(),
        "lines.md": "".join(f"\nThe otter of line {n} sleeps.\n" for n in range(2, 17, 2)).encode(),
    }


@pytest.mark.parametrize("chunk_tokens", [16, 60, 400])
def test_a_citation_has_the_place_of_its_quote(database_url, tmp_path, chunk_tokens):
    files = told_places()
    folder_with(tmp_path, files)
    with sync_opened(database_url, "none") as retriever:
        retriever.index(tmp_path, chunk_tokens=chunk_tokens, overlap_tokens=chunk_tokens // 4, min_tokens=4)
        for name in files:
            here = {"@source_document": name}
            context = retriever.context("otter sleeps", top_k=50, near_duplicates=None, filters=here)
            told = [
                (found[1], source.cite(*found.span()).place)
                for source in context.sources
                for found in OWN_PLACE.finditer(source.text)
            ]
            assert len(told) >= 5
            answer = retriever.answer("where does the otter sleep?", context=context)
            cited = [(found[1], one.place) for one in answer.citations for found in OWN_PLACE.finditer(one.quote)]
            assert cited
            assert [place for _, place in told + cited] == [own for own, _ in told + cited]
            # Most passages are on several pages, rows or cells, and say so.
            has_spans = any(re.search(r"\d-\d| to ", source.place) for source in context.sources)
            assert has_spans == (name != "lines.md")


def test_only_the_pages_of_a_replaced_text_and_of_lost_words_are_known(database_url, tmp_path):
    (tmp_path / "pages.pdf").write_bytes(pdf([[(12, f"On page {n} is bed {n}.")] for n in range(1, 4)]))
    quotes = ["is bed 2.", "page 2 is bed 2. On page 3 is bed", "page 2 is bad 2", "nobody wrote this"]
    said = answer_text([("Said.", [(1, quote)]) for quote in quotes])
    with (
        chat_server(lambda _: said) as double,
        sync_opened(database_url, "none", chat_model=f"{double.url}/v1#model") as retriever,
    ):
        retriever.index(tmp_path)
        cited = retriever.answer("which bed is on page 2?").citations
        told = [f"{one.verdict}, {one.page}, {one.place}" for one in cited]
        assert told == ["exact, 2, p. 2", "normalised, 2, p. 2-3", "altered, 2, p. 2", "not found, 1, p. 1-3"]
        [hit] = retriever.search("bed", 1)
        hit.content = "In other words: is bed 2."
        retriever.add_documents([hit])
        context = retriever.context("bed")
        [source] = context.sources
        assert (source.page, source.place) == (1, "p. 1-3")
        cited = retriever.answer("which bed is it?", context=context).citations
        assert [(cited[0].verdict, cited[0].page, cited[0].place)] == [("exact", 1, "p. 1-3")]
        # A text that is shortened for a small budget does not become a part of the document.
        hit.content = "Bed 2 is here. " * 40
        retriever.add_documents([hit])
        [source] = retriever.context("bed", 120).sources
        assert source.text.startswith("Bed 2 is here.")
        assert len(source.text) < len(hit.content)
        assert (source.place, source.char_start, source.cite(0, 5).char_start) == ("p. 1-3", None, None)
