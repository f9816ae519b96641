"""Texts that cannot be decoded or stored, from the file to the report: told, repaired, or left out."""

import json
from functools import partial
from itertools import product

import pytest

from semlex import LoadedDocument, LoadOptions, preview_chunks, register_loader
from semlex.errors import ConfigurationError
from semlex.ingest.loaders import registry
from tests.support.folders import filled
from tests.support.retrievers import opened

CHUNK = {"chunk_id": "c1", "source_document": "book", "chunk_text": "A bad\0 pear.", "token_count": 3}
# Name -> bytes, the code of its problem, and how many characters of it are repaired.
BAD = {
    "a nul.md": (b"# A bad\0apple\n", "binary", 1),
    "bytes.txt": (b"A bad \xff\xfe plum.\n", "not_utf8", 2),
    "half.txt": (b"\xff\xfe" + "A bad plum".encode("utf-16-le") + b"\0\xd8", "not_utf16", 1),
    "code.py": (b"bad = 'caf\xe9 plum'\n", "not_utf8", 1),
    "page.html": (b"<h1>A bad\0 plum</h1><p>x", "binary", 1),
    "rows.csv": (b"id,text\n1,A bad \xe9 plum\n2,good\n", "not_utf8", 1),
    "lines.jsonl": (b'{"text": "A bad plum", "note": ["\\u0000\\ud800"]}\n{"text": "good"}\n', "bad_text", 2),
    "chunks.json": (json.dumps([CHUNK]).encode(), "bad_text", 1),
    "own.plums": (b"x", "bad_text", 3),
}


class Plums:
    """Makes what cannot be stored."""

    name = "plums"
    suffixes = ("plums",)
    version = 1

    def load(self, file, options):
        return LoadedDocument("A bad plum\0 \ud800", metadata={"note": "\0"})


@pytest.fixture(autouse=True)
def own_loader(monkeypatch):
    monkeypatch.setattr(registry, "_registered", [])
    register_loader(Plums())


@pytest.fixture
def folder(tmp_path):
    return filled(tmp_path, {"good.md": "A good apple.\n"} | {name: data for name, (data, *_) in BAD.items()})


retriever = partial(opened, model="none", collection="texts")


async def test_each_is_a_line_of_the_report_or_is_left_out(database_url, folder):
    async with retriever(database_url) as opened:
        for report in (await opened.index(folder), (await opened.sync(folder)).run):
            expected = {name: code for name, (_, code, _) in BAD.items()}
            assert {one.source_document: one.code for one in report.problems} == expected
            assert (report.failed, report.repaired, report.skipped) == (len(BAD), 0, {})
        assert [hit.source_document for hit in await opened.search("apple plum pear bad")] == ["good.md"]
        (folder / "broken.csv").write_bytes(b'a,b\n1,"x\n')
        (folder / "good.md").write_text("Another good apple.\n")
        report = await opened.index(folder, on_bad_text="skip")
        assert [one.source_document for one in report.problems] == ["broken.csv"]  # another fault is one
        assert (report.changed, report.failed) == (1, 1)
        suffixes = {".md": 1, ".txt": 2, ".py": 1, ".html": 1, ".csv": 1, ".jsonl": 1, ".json": 1, ".plums": 1}
        assert report.skipped == {"bad_text": suffixes}
        assert [hit.source_document for hit in await opened.search("bad apple")] == ["good.md"]


@pytest.mark.slow
async def test_repaired_texts_are_found_and_counted(database_url, folder):
    async with retriever(database_url) as opened:
        done = await opened.sync(folder, on_bad_text="repair")
        report = done.run
        assert not done.differs
        assert (report.added, report.failed, report.problems) == (len(BAD) + 1, 0, [])
        assert (report.repaired, report.repaired_characters) == (len(BAD), sum(count for *_, count in BAD.values()))
        hits = await opened.search("bad plum pear apple", top_k=50)
        assert {hit.source_document for hit in hits} == {*BAD, "good.md"}
        by_name = {hit.source_document: hit for hit in hits}
        assert by_name["bytes.txt"].content == "A bad \ufffd\ufffd plum."
        assert by_name["lines.jsonl"].metadata["note"] == ["\ufffd\ufffd"]
        assert by_name["chunks.json"].content == "A bad\ufffd pear."
        assert by_name["own.plums"].metadata["note"] == "\ufffd"
        again = await opened.index(folder, on_bad_text="repair")
        assert (again.unchanged, again.repaired) == (len(BAD) + 1, 0)


async def test_a_document_stays_while_its_file_is_bad(database_url, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("An old apple.\n")
    async with retriever(database_url) as opened:
        await opened.index(page)
        page.write_bytes(b"A new apple\xff.\n")
        for way in ("error", "skip"):
            report = await opened.sync(tmp_path, on_bad_text=way)
            assert report.run.failed == (way == "error")
            assert [hit.content for hit in await opened.search("apple")] == ["An old apple."]
        report = await opened.sync(tmp_path, on_bad_text="repair")
        assert report.done.changed == 1
        assert [hit.content for hit in await opened.search("apple")] == ["A new apple\ufffd."]


async def test_what_is_no_text_at_all_is_not_repaired_and_another_choice_is_refused(database_url, tmp_path):
    (tmp_path / "picture.md").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)))
    async with retriever(database_url) as opened:
        report = await opened.index(tmp_path, on_bad_text="repair")
        assert [(one.source_document, one.code) for one in report.problems] == [("picture.md", "binary")]
        for call, value in product((opened.index, opened.sync), ("drop", None, 1)):
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
    (shell.folder / "docs" / "bad.md").write_bytes(b"A bad \xff apple.\n")
    (shell.folder / "docs" / "empty.md").touch()
    options = ("docs", "--model", "none", "--on-bad-text")
    done = shell("index", *options, "error", code=5)
    assert "not read: bad.md: byte 6 is not UTF-8" in done.stderr
    assert "not found by any search: empty.md: it has no text" in done.stderr
    done = shell("sync", *options, "skip")
    assert "skipped: 1 with bad text" in done.stderr
    assert "0 failed" in done.stderr
    done = shell("documents", "preview", *options, "skip")
    assert "bad.md: left out: byte 6 is not UTF-8" in done.stderr
    (report,) = shell.objects("index", *options, "repair")
    assert (report["repaired"], report["repaired_characters"], report["failed"]) == (1, 1, 0)
    (shell.folder / "docs" / "bad.md").write_bytes(b"A worse \xff\xff apple.\n")
    done = shell("index", *options, "repair")
    assert "note: 2 characters of 1 file could not be read, and became U+FFFD" in done.stderr
    assert "2 characters repaired" in shell("documents", "preview", *options, "repair").stdout
    for command in ("index", "sync", "documents preview"):
        done = shell(*command.split(), *options, "drop", code=2)
        assert "'--on-bad-text': must be error, repair or skip; got 'drop'" in done.stderr
