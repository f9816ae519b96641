"""Files that are broken, hostile or enormous: each is one line of the report or is read, within bounds of memory."""

import json

import pytest

from tests.support.folders import filled
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


async def test_what_is_broken_costs_one_line(database_url, tmp_path):
    filled(tmp_path, {"good.md": "A good apple.\n"} | {name: data for name, (data, _) in BROKEN.items()})
    async with opened(database_url, "none", collection="broken") as store:
        report = await store.index(tmp_path)
        assert {one.source_document: one.code for one in report.problems} == {
            name: code for name, (_, code) in BROKEN.items() if code is not None
        }
        found = {one.source_document: (one.code, "OCR" in one.message) for one in report.without_text}
        assert found == {name: ("no_text", name == "scan.pdf") for name in ("blank.csv", "empty.md", "scan.pdf")}
        assert report.added == 1 + sum(code is None for _, code in BROKEN.values())
        run = (await store.status()).last_run
        assert run.failed == report.failed == len(run.problems) == len(report.problems)
        assert run.finished_at is not None
        assert {one["source_document"] for one in run.problems} == {one.source_document for one in report.problems}
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


def below_long_title():
    return notebook({"cell_type": "markdown", "source": "# " + "h" * MIB}, *[code("")] * 1_000)


# The same, made when they are needed.
LARGE = {
    "beyond.csv": (lambda: b'a,b\n1,"' + bytes(100 * MIB) + b'"\n', "too_large"),
    "cell.csv": (lambda: b'a,b\n1,"' + b"pear " * 3_000_000 + b'"\n', "field_too_large"),
    "within.csv": (lambda: b'a,b\n1,"' + b"pear" * (MIB // 4) + b'"\n', None),
    "more.csv": (lambda: b'a,b\n1,"' + b"pear" * (MIB // 4) + b'."\n', "field_too_large"),
    "blank lines.csv": (lambda: b"a\n" + b"\n" * (MIB // 4), None),
    "wide.csv": (lambda: with_columns(500, 400), None),
    "deep.json": (lambda: NESTED, None),  # source code
    "deep chunks.json": (lambda: b'[{"chunk_text": "a", "chunk_id": "b"}, ' + NESTED + b"]", "bad_json"),
    "deep.jsonl": (lambda: b'{"a": ' + NESTED + b"}\n", "bad_json"),
    "deep.ipynb": (lambda: b'{"cells": ' + NESTED + b"}", "bad_json"),
    "outputs.ipynb": (lambda: notebook(code("pear " * (10 * MIB))), "too_large"),
    "outputs within.ipynb": (lambda: notebook(code("pear " * (3 * MIB))), None),
    "long title.ipynb": (below_long_title, None),
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


def check_report(shell, report, files):
    problems = {one["source_document"]: one["code"] for one in report["problems"]}
    assert problems == {name: code for name, (_, code) in files.items() if code is not None}
    assert report["added"] == 1 + sum(code is None for _, code in files.values())
    (hit, _) = shell.objects("search", "apple")
    assert hit["source_document"] == "good.md"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "most_bytes"),
    [(LARGE, 768 * MIB), pytest.param(LARGEST, 2048 * MIB, marks=pytest.mark.full)],
    ids=["large", "largest"],
)
def test_what_is_enormous_ends_within_bounds(shell, files, most_bytes):
    filled(shell.folder / "large", {"good.md": "A good apple.\n"} | {name: make() for name, (make, _) in files.items()})
    arguments = ("index", "large", "--model", "none", "--json")
    done, peak = measured(arguments, shell.environment, shell.folder)
    assert done.returncode == 5, done.stderr
    (report,) = [json.loads(line) for line in done.stdout.splitlines()]
    check_report(shell, report, files)
    assert peak < most_bytes


@pytest.mark.slow
def test_broken_and_hostile_office_files(shell, full):
    good = pdf([[(24, "Chapter"), (12, "On pears.")]])
    encrypt = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'41' * 32}> /U <{'42' * 32}> >> /ID [<41> <41>]"
    pages = 10_000 if full else 500
    made = {
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
    filled(shell.folder / "office", {"good.md": "A good apple.\n"} | {name: data for name, (data, _) in made.items()})
    done, peak = measured(("index", "office", "--model", "none", "--json"), shell.environment, shell.folder)
    assert done.returncode == 5, done.stderr
    (report,) = [json.loads(line) for line in done.stdout.splitlines()]
    check_report(shell, report, made)
    assert peak < 3 * 1024 * MIB  # of which the process that reads such files may take 2 GiB
    hits = [hit for hit in shell.objects("search", f"Page {pages - 1}", "--mode", "keyword") if "rank" in hit]
    assert hits[0]["source_document"] == "pages.pdf"
