"""Files that are broken, hostile or enormous, or have bad text: each is reported, or read within bounds of memory."""

import json
from itertools import product
from types import SimpleNamespace

import pytest

from semlex import LoadedDocument, LoadOptions, preview_chunks, register_loader
from semlex.errors import ConfigurationError
from semlex.ingest.loaders import registry
from tests.support.folders import folder_with
from tests.support.minimal_pdf import pdf
from tests.support.open_xml import docx
from tests.support.retrievers import opened
from tests.support.shell import measured

MIB = 1 << 20
DEEP = 100_000
NESTED = b"[" * DEEP + b"]" * DEEP
CHUNK = '{"chunk_id": "%d", "source_document": "s", "chunk_text": "A pear.", "token_count": 2}'


def notebook(*cells):
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()


def code(output):
    return {"cell_type": "code", "source": "pear()", "outputs": [{"output_type": "stream", "text": output}]}


@pytest.fixture
async def store(database_url):
    async with opened(database_url, "none") as store:
        yield store


def write(folder, files):
    return folder_with(folder, {"good.md": "A good apple.\n"} | {name: data for name, (data, *_) in files.items()})


def codes(report):
    return {one.source_document: one.code for one in report.problems}


# Name -> its bytes, and the code of its problem; None where it is read. Many of these are in the next folder, large.
BROKEN = {
    "picture.md": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "binary"),
    "program.txt": (b"\x7fELF\2\1\1\0", "binary"),
    "archive.html": (b"PK\3\4\x14\0\0\0", "binary"),
    "latin.md": ("Ein süßer Apfel für die Bären.".encode("latin-1") * 3, "not_utf8"),
    "half.md": (b"\xff\xfea", "not_utf16"),
    "utf32.md": ("pear".encode("utf-32"), "binary"),
    "open.csv": (b'a,b\n1,"never closed\n', "bad_row"),
    "ragged.csv": (b"a,b\n1,2,3\n", "bad_row"),
    "twice.csv": (b"a,a\n1,2\n", "bad_header"),
    "list.jsonl": (b"[1]\n", "bad_row"),
    "cut.jsonl": (b'{"a": "pea', "bad_json"),
    "chunks.json": (f"[{CHUNK % 1}, {CHUNK % 1}]".encode(), "repeated_id"),
    "chunk.json": (f"[{CHUNK % 1}, 5]".encode(), "bad_chunk"),
    "no.ipynb": (b"{}", "bad_notebook"),
    "cut.ipynb": (b'{"cells": [', "bad_json"),
    "cut.html": (b"<h1>A pear<p", None),
    "empty.md": (b"", None),
    "blank.csv": (b"\n\n\n", None),
    "scan.pdf": (pdf([[]]), None),
}


async def test_what_is_broken_costs_one_line(store, tmp_path):
    report = await store.index(write(tmp_path, BROKEN))
    assert codes(report) == {name: code for name, (_, code) in BROKEN.items() if code is not None}
    found = {one.source_document: (one.code, "OCR" in one.message) for one in report.without_text}
    assert found == {name: ("no_text", name == "scan.pdf") for name in ("blank.csv", "empty.md", "scan.pdf")}
    assert report.added == 1 + sum(code is None for _, code in BROKEN.values())
    run = (await store.status()).last_run
    assert run.failed == report.failed == len(run.problems) == len(report.problems)
    assert run.finished_at is not None
    assert {one["source_document"] for one in run.problems} == codes(report).keys()
    assert [hit.source_document for hit in await store.search("apple")] == ["good.md"]


def with_copies():
    """Chunks with half a megabyte beside them, which would be stored with each."""
    chunks = ", ".join(CHUNK % number for number in range(5_000))
    return f'{{"beside": "{"x" * 500_000}", "chunks": [{chunks}]}}'.encode()


def with_long_row():
    """A row of many chunks with many fields, which would be stored with each."""
    fields = {f"key{number}": number for number in range(50_000)}
    return json.dumps({"beside": fields, "text": "pear. " * 100_000}).encode()


def with_columns(columns, rows):
    header = ",".join(f"c{number}" for number in range(columns))
    return f"{header}\n".encode() + (b"pear" + b"," * (columns - 1) + b"\n") * rows


TITLE = {"cell_type": "markdown", "source": "# " + "h" * MIB}
# The same, made when they are needed.
LARGE = {
    "beyond.csv": (lambda: b'a,b\n1,"' + bytes(17 * MIB) + b'"\n', "too_large"),
    "cell.csv": (lambda: b'a,b\n1,"' + b"pear " * 3_000_000 + b'"\n', "field_too_large"),
    "within.csv": (lambda: b'a,b\n1,"' + b"pear" * (MIB // 4) + b'"\n', None),
    "more.csv": (lambda: b'a,b\n1,"' + b"pear" * (MIB // 4) + b'."\n', "field_too_large"),
    "blank lines.csv": (lambda: b"a\n" + b"\n" * (MIB // 4), None),
    "wide.csv": (lambda: with_columns(500, 400), None),
    "deep.json": (lambda: NESTED, None),  # source code
    "deep chunks.json": (lambda: b'[{"chunk_text": "a", "chunk_id": "b"}, ' + NESTED + b"]", "bad_json"),
    "deep.jsonl": (lambda: b'{"a": ' + NESTED + b"}\n", "bad_json"),
    "deep.ipynb": (lambda: b'{"cells": ' + NESTED + b"}", "bad_json"),
    "outputs.ipynb": (lambda: notebook(code("pear " * (4 * MIB))), "too_large"),
    "outputs within.ipynb": (lambda: notebook(code("pear " * (3 * MIB))), None),
    "long title.ipynb": (lambda: notebook(TITLE, *[code("")] * 1_000), None),
    "copies.json": (with_copies, "metadata_too_large"),
    "copies.jsonl": (with_long_row, "metadata_too_large"),
    "values.jsonl": (lambda: b'{"a": [' + b"1," * 3_000_000 + b"1]}", "too_many_values"),
    "less.html": (lambda: b"<" * (4 * MIB), None),
    "ends.html": (lambda: "</é".encode() * 100_000, None),
    "lists.md": (lambda: b"".join(b" " * number + b"- pear\n" for number in range(3_000)), None),
    "list.md": (lambda: b"- " * 10_000 + b"pear\n", None),
    "quotes.md": (lambda: b"> " * 10_000 + b"pear\n", None),
    "headings.md": (lambda: b"# Pear\n" * 100_000, None),
    "long heading.md": (lambda: b"# " + b"h" * MIB + b"\n" + b"## s\n\npear\n" * 2_000, None),
    "letter.md": (lambda: b"x" * MIB, None),
    "letter.txt": (lambda: b"=" * MIB, None),
    "letter.py": (lambda: b"(" * MIB, None),
    "letter.html": (lambda: b"&" * MIB, None),
    "ticks.md": (lambda: b"`" * MIB, None),
    "accents.md": (lambda: "\u0301".encode() * (MIB // 2), None),
}
# Those that take seconds.
LARGEST = {
    "rows.csv": (lambda: b"a\n" + b"x\n" * 250_001, "too_many_records"),
    "many rows.csv": (lambda: b"a,b\n" + b"x,y\n" * 249_999, None),
    "wider.csv": (lambda: with_columns(100, 150_000), None),
    "lists.md": (lambda: b"".join(b" " * number + b"- pear\n" for number in range(5_600)), None),
    "headings with text.md": (lambda: b"".join(b"#" * (1 + n % 6) + b" h\npear\n" for n in range(100_000)), None),
    "page.html": (lambda: b"<p>" * (4 * MIB), None),
    "words.txt": (lambda: b"pear and. " * (3 * MIB // 2), None),
    "lines.txt": (lambda: b"a\n\n" * (5 * MIB), None),
}


def check_indexed(shell, files, max_bytes):
    """Index these files beside a good one; a process of its own reports them and never needs more memory."""
    write(shell.folder / "files", files)
    done, peak = measured(("index", "files", "--model", "none", "--json"), shell.environment, shell.folder)
    assert done.returncode == 5, done.stderr
    report = json.loads(done.stdout)
    problems = {one["source_document"]: one["code"] for one in report["problems"]}
    assert problems == {name: code for name, (_, code) in files.items() if code is not None}
    assert report["added"] == 1 + sum(code is None for _, code in files.values())
    (hit, _) = shell.objects("search", "apple")
    assert hit["source_document"] == "good.md"
    assert peak < max_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "max_bytes"),
    [(LARGE, 768 * MIB), pytest.param(LARGEST, 2048 * MIB, marks=pytest.mark.full)],
    ids=["large", "largest"],
)
def test_what_is_enormous_ends_within_bounds(shell, files, max_bytes):
    check_indexed(shell, {name: (make(), code) for name, (make, code) in files.items()}, max_bytes)


@pytest.mark.slow
def test_broken_and_hostile_office_files(shell, full):
    good = pdf([[(24, "Chapter"), (12, "On pears.")]])
    encrypt = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'41' * 32}> /U <{'42' * 32}> >> /ID [<41> <41>]"
    pages = 10_000 if full else 500
    files = {
        "good.pdf": (good, None),
        "called.md": (good, None),
        "broken.pdf": (good[: len(good) // 2], "parser_failed"),
        "nothing.pdf": (b"", "parser_failed"),
        "encrypted.pdf": (pdf([[(12, "x")]], trailer=encrypt), "encrypted"),
        "pages.pdf": (pdf([[(12, f"Page {number}")] for number in range(pages)]), None),
        "broken.docx": (b"PK\3\4 no archive", "parser_failed"),
        "text.docx": (b"A pear.", "parser_failed"),
        "bomb.docx": (docx(1024 if full else 150), "too_big"),
        "good.docx": (docx(), None),
    }
    check_indexed(shell, files, 3 * 1024 * MIB)  # of which the process that reads such files may take 2 GiB
    hits = [hit for hit in shell.objects("search", f"Page {pages - 1}", "--mode", "keyword") if "rank" in hit]
    assert hits[0]["source_document"] == "pages.pdf"


# --- texts that cannot be decoded or stored: reported, repaired or skipped -------------------------------------------

BAD_CHUNK = {"chunk_id": "c1", "source_document": "book", "chunk_text": "A bad\0 pear.", "token_count": 3}
# Name -> bytes, the code of its problem, and how many characters of it are repaired.
BAD = {
    "a nul.md": (b"# A bad\0apple\n", "binary", 1),
    "bytes.txt": (b"A bad \xff\xfe plum.\n", "not_utf8", 2),
    "half.txt": (b"\xff\xfe" + "A bad plum".encode("utf-16-le") + b"\0\xd8", "not_utf16", 1),
    "code.py": (b"bad = 'caf\xe9 plum'\n", "not_utf8", 1),
    "page.html": (b"<h1>A bad\0 plum</h1><p>x", "binary", 1),
    "rows.csv": (b"id,text\n1,A bad \xe9 plum\n2,good\n", "not_utf8", 1),
    "lines.jsonl": (b'{"text": "A bad plum", "note": ["\\u0000\\ud800"]}\n{"text": "good"}\n', "bad_text", 2),
    "chunks.json": (json.dumps([BAD_CHUNK]).encode(), "bad_text", 1),
    "own.plums": (b"x", "bad_text", 3),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", [])
    plum = LoadedDocument("A bad plum\0 \ud800", metadata={"note": "\0"})  # which cannot be stored
    register_loader(SimpleNamespace(name="plums", suffixes=("plums",), version=1, load=lambda *_: plum))
    return write(tmp_path, BAD)


async def test_bad_texts_are_reported_or_skipped(store, folder):
    for report in (await store.index(folder), (await store.sync(folder)).run):
        assert codes(report) == {name: code for name, (_, code, _) in BAD.items()}
        assert (report.failed, report.repaired, report.skipped) == (len(BAD), 0, {})
    assert [hit.source_document for hit in await store.search("apple plum pear bad")] == ["good.md"]
    folder_with(folder, {"broken.csv": b'a,b\n1,"x\n', "good.md": "Another good apple.\n"})
    report = await store.index(folder, on_bad_text="skip")
    assert codes(report) == {"broken.csv": "bad_row"}  # another fault is one
    assert (report.changed, report.failed) == (1, 1)
    suffixes = {".md": 1, ".txt": 2, ".py": 1, ".html": 1, ".csv": 1, ".jsonl": 1, ".json": 1, ".plums": 1}
    assert report.skipped == {"bad_text": suffixes}
    assert [hit.source_document for hit in await store.search("bad apple")] == ["good.md"]


@pytest.mark.slow
async def test_repaired_texts_are_found_and_counted(store, folder):
    done = await store.sync(folder, on_bad_text="repair")
    report = done.run
    assert not done.differs
    assert (report.added, report.failed, report.problems) == (len(BAD) + 1, 0, [])
    assert (report.repaired, report.repaired_characters) == (len(BAD), sum(count for *_, count in BAD.values()))
    hits = {hit.source_document: hit for hit in await store.search("bad plum pear apple", top_k=50)}
    assert hits.keys() == {*BAD, "good.md"}
    assert (hits["bytes.txt"].content, hits["chunks.json"].content) == ("A bad \ufffd\ufffd plum.", "A bad\ufffd pear.")
    assert [hits[name].metadata["note"] for name in ("lines.jsonl", "own.plums")] == [["\ufffd\ufffd"], "\ufffd"]
    again = await store.index(folder, on_bad_text="repair")
    assert (again.unchanged, again.repaired) == (len(BAD) + 1, 0)


async def test_a_document_stays_while_its_file_is_bad_and_binary_files_are_not_repaired(store, tmp_path):
    page = folder_with(tmp_path, {"page.md": "An old apple.\n"}) / "page.md"
    await store.index(page)
    page.write_bytes(b"A new apple\xff.\n")
    for way in ("error", "skip"):
        assert (await store.sync(tmp_path, on_bad_text=way)).run.failed == (way == "error")
        assert [hit.content for hit in await store.search("apple")] == ["An old apple."]
    assert (await store.sync(tmp_path, on_bad_text="repair")).done.changed == 1
    assert [hit.content for hit in await store.search("apple")] == ["A new apple\ufffd."]
    page.write_bytes(BROKEN["picture.md"][0])
    assert codes(await store.index(tmp_path, on_bad_text="repair")) == {"page.md": "binary"}
    for call, value in product((store.index, store.sync), ("drop", None, 1)):
        with pytest.raises(ConfigurationError, match="on_bad_text"):
            await call(tmp_path, on_bad_text=value)


def test_a_preview_says_the_same(folder):
    def previewed(way):
        for file in preview_chunks(folder, options=LoadOptions(on_bad_text=way)):
            assert bool(file.chunks) == (file.problem is None)
            yield file.source_document, file.problem and file.problem.code, file.is_skipped, file.repaired

    good = {("good.md", None, False, 0)}
    assert set(previewed("error")) - good == {(name, code, False, 0) for name, (_, code, _) in BAD.items()}
    assert set(previewed("skip")) - good == {(name, code, True, 0) for name, (_, code, _) in BAD.items()}
    assert set(previewed("repair")) - good == {(name, None, False, count) for name, (_, _, count) in BAD.items()}


@pytest.mark.slow
def test_the_command_line_says_what_it_did(shell):
    docs = folder_with(shell.folder / "docs", {"bad.md": b"A bad \xff apple.\n", "empty.md": ""})
    options = ("docs", "--model", "none", "--on-bad-text")
    done = shell("index", *options, "error", code=5)
    assert "not read: bad.md: byte 6 is not UTF-8" in done.stderr
    assert "not found by any search: empty.md: it has no text" in done.stderr
    done = shell("sync", *options, "skip")
    assert "skipped: 1 with bad text" in done.stderr
    assert "0 failed" in done.stderr
    assert "bad.md: left out: byte 6 is not UTF-8" in shell("documents", "preview", *options, "skip").stderr
    (report,) = shell.objects("index", *options, "repair")
    assert (report["repaired"], report["repaired_characters"], report["failed"]) == (1, 1, 0)
    (docs / "bad.md").write_bytes(b"A worse \xff\xff apple.\n")
    told = shell("index", *options, "repair").stderr
    assert "note: 2 characters of 1 file could not be read, and became U+FFFD" in told
    assert "2 characters repaired" in shell("documents", "preview", *options, "repair").stdout
    for command in ("index", "sync", "documents preview"):
        told = shell(*command.split(), *options, "drop", code=2).stderr
        assert "'--on-bad-text': must be error, repair or skip; got 'drop'" in told
