"""PDF, office documents and e-mails: what stands in them is read; what is broken or hostile costs one line."""

import io
import os
import re
import signal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.loaders import office, registry
from semlex.ingest.loaders.base import FileBytes, LoadError, LoadOptions
from semlex.ingest.loaders.office import word_joiner
from semlex.ingest.loaders.worker import IDLE_SECONDS, MAX_SECONDS, START_SECONDS, Worker
from tests.support.manual_clock import ManualClock
from tests.support.minimal_pdf import pdf
from tests.support.open_xml import docx, epub, without_part, workbook, xlsx
from tests.support.waiting import until

MAIL = (
    b"From: Ann <ann@example.org>\r\nTo: bob@example.org\r\nSubject: The plan\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: text/%s; charset=utf-8\r\n\r\n"
)
READERS = """
import os, threading
from pathlib import Path
from semlex.ingest.loaders.base import LoadedDocument

while Path(os.environ["BUSY"]).exists():
    threading.Event().wait(0.01)

def read(name, data):
    if name == "hangs":
        threading.Event().wait()
    if name == "grows":
        kept = []
        while True:
            kept.append(bytearray(1 << 20))
    if name == "dies":
        os.abort()
    if name == "raises":
        raise ValueError("the text of a document")
    if name == "long":
        return LoadedDocument("x" * (65 << 20))
    print("noise", flush=True)
    return LoadedDocument(f"{name} {len(data)}")
"""


def load(uri, data):
    file = FileBytes(uri, data, b"", datetime.now(UTC))
    return registry.load(file, registry.loader_of(file, registry.loaders()), LoadOptions())


def refused(uri, data):
    with pytest.raises(LoadError) as raised:
        load(uri, data)
    return raised.value.code


THREE_PAGES = pdf(
    [[(24, "Chapter"), (12, "On one.")], [], [(12, "On three.")]], info="/Title (The title) /Author (Ann)"
)


def test_words_of_a_pdf_and_formats(monkeypatch):
    for lines, joined in [
        ("a data|ba|se of", "a database of"),
        ("sta|tis|ti|cal", "statistical"),
        ("a for|get|ful man; forgetful", "a forgetful man; forgetful"),
        ("Springer|Verlag|ge", "Springer-Verlagge"),
        ("float|ing|point; floating-point", "floating-point; floating-point"),
        ("UTF|8|A", "UTF-8-A"),
    ]:  # fmt: skip
        for mark in ("\x02\n", "\x02", "\x02 \r\n"):
            text = lines.replace("|", mark)
            assert word_joiner([text, "for get data"])(text) == joined
    loaded = load("a.PDF", THREE_PAGES)
    assert loaded.text == "# Chapter\n\nOn one.\n\nOn three."
    assert [loaded.text[start:][:8] for start in loaded.pages] == ["# Chapte", "On three", "On three"]
    assert (loaded.title, loaded.metadata) == ("The title", {"authors": ["Ann"]})
    loaded = load("a.docx", docx())
    assert loaded.text == "## One\n\nA text *with* signs_of_it.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert not loaded.pages
    assert load("a.xlsx", xlsx("<si><t>name</t></si>")).text == "## Prices\n\n| name | 7 |\n| --- | --- |"
    assert load("a.rtf", rb"{\rtf1\ansi Hello {\b bold} text\par Next}").text == "Hello bold text\n\nNext"
    book = workbook(Prices={3: ["name", "price"], 4: ["kettle", "7"], 7: ["pan", "9"]}, Two={2: ["only"]}, None_={})
    loaded = load("a.xlsx", book)
    places = [one.place for one in loaded.records]
    assert [(one.sheet, one.row) for one in places] == [("Prices", 3), ("Two", 2)]
    rows = [loaded.text[at:].split("\n")[0] for at in places[0].breaks]
    assert rows == ["| kettle | 7 |", *["|  |  |"] * 2, "| pan | 9 |"]
    head = "From: Ann <ann@example.org>\nTo: bob@example.org\n\n"
    loaded = load("a.eml", MAIL % b"plain" + b"Dear Bob,\r\n\r\nit is good.\r\n")
    assert (loaded.title, loaded.text) == ("The plan", head + "Dear Bob,\n\nit is good.")
    assert load("a.eml", MAIL % b"html" + b"<h1>Hi</h1><p>it is <b>good</b>").text == head + "# Hi\n\nit is good"
    # An encoding that makes lone surrogates.
    halves = MAIL.replace(b"utf-8", b"utf-7") % b"html" + b"<p>one +2AE- two"
    assert load("a.eml", halves).text == head + "one ? two"
    assert load("a.md", THREE_PAGES).title == "The title"
    known = {suffix: one for suffix, one in registry.loaders().items() if suffix not in registry.WITH_EXTRA}
    for uri in ("a.md", "a.pdf"):
        file = FileBytes(uri, THREE_PAGES, b"", datetime.now(UTC))
        with pytest.raises(LoadError, match=r'pip install "semlex\[files\]"'):
            registry.loader_of(file, known).load(file, LoadOptions())
    lines = [
        "The database of the statistical sys-", "tem has a point that is floating or fixed, see Springer-",
        "Verlag, and a floating-", "point number of any base, in UTF-", "8 as well-", "known ones and data-",
        "bases of a well-known kind, mul-", "tidimen-", "sional ones: end.",
    ]  # fmt: skip
    loaded = load("a.pdf", pdf([[(12, line) for line in lines]], line_height=14))
    flat = " ".join(loaded.text.split())
    assert not re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f]", loaded.text)
    for words in (
        *("statistical system has", "Springer-Verlag", "floating-point number", "UTF-8 as", "well-known ones"),
        *("and databases of", "kind, multidimensional ones"),
    ):
        assert words in flat


MARKED = st.sampled_from(["data", "base", "well", "known", "-", " ", "A", "7"])


@given(st.lists(st.tuples(MARKED, st.sampled_from(["", "\x02", "\x02 \n"])).map("".join)).map("".join))
def test_joined_words_lose_marks_and_nothing_else(text):
    made = word_joiner([text, "database well-known"])(text)
    assert re.sub(r"[\s\x02-]", "", made) == re.sub(r"[\s\x02-]", "", text)
    assert not re.search(r"\w\x02\s*\w", made)


@pytest.mark.parametrize(("name", "part"), [("xlsx", "xl/workbook.xml"), ("xlsx", "sheet1.xml"), ("epub", ".opf")])
@pytest.mark.parametrize("encoding", ["gb18030", "unknown"])
def test_parts_in_encodings_that_python_does_not_read_lose_nothing(name, part, encoding):
    made = workbook(One={1: ["kettle"]}) if name == "xlsx" else epub("kettle")
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(made)) as archive, zipfile.ZipFile(packed, "w") as other:
        for one in archive.namelist():
            text = archive.read(one)
            if one.endswith(part):
                text = f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + text
            other.writestr(one, text)
    assert "kettle" in office.read(name, packed.getvalue()).text


def test_what_is_broken_costs_one_line_and_no_part_is_left_out_silently(monkeypatch):
    encrypt = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'41' * 32}> /U <{'42' * 32}> >> /ID [<41> <41>]"
    assert refused("a.pdf", pdf([[(12, "x")]], trailer=encrypt)) == "encrypted"
    book = epub("one", "two", "three")
    assert load("a.epub", book).text == "one\n\ntwo\n\nthree"
    sheet = without_part(xlsx("<si><t>name</t></si>"), "xl/worksheets/sheet1.xml")
    for uri, data in (
        ("a.pdf", THREE_PAGES[: len(THREE_PAGES) // 2]),
        *((uri, b"no archive") for uri in ("a.docx", "a.epub", "a.xlsx")),
        ("a.epub", without_part(book, "1.xhtml")),
        ("a.epub", epub("one", None, "three")),
        ("a.xlsx", sheet),
    ):
        assert refused(uri, data) == "parser_failed"
    monkeypatch.setattr(office, "MAX_PART_BYTES", 1 << 20)
    monkeypatch.setattr(office, "WORKER", office)  # a process of its own has the real limit
    assert refused("a.epub", epub("one", 2, "three")) == "too_big"


@pytest.mark.slow
def test_ten_thousand_pages():
    loaded = load("a.pdf", pdf([[(12, f"Page {number}")] for number in range(10_000)]))
    assert len(loaded.pages) == 10_000
    assert all(loaded.text.startswith(f"Page {number}", start) for number, start in enumerate(loaded.pages))


@pytest.mark.slow
def test_bombs(monkeypatch):
    with closing(Worker(clock=ManualClock())) as worker:  # however slow this machine is
        monkeypatch.setattr(office, "WORKER", worker)
        assert refused("a.docx", docx(513)) == "too_big"
        try:  # two million strings that no cell shows
            loaded = load("a.xlsx", xlsx("<si><t>name</t></si>" + "<si><t>another</t></si>" * 2_000_000))
        except LoadError as error:
            assert error.code == "too_big"  # noqa: PT017 - either is right
        else:
            assert loaded.text.startswith("## Prices")
        assert load("a.docx", docx()).text


# --- the worker -------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def worker(tmp_path, monkeypatch, clock):
    (tmp_path / "hostile_readers.py").write_text(READERS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.setenv("BUSY", str(tmp_path / "busy"))
    with closing(Worker("hostile_readers:read", max_seconds=MAX_SECONDS, max_memory=300 << 20, clock=clock)) as made:
        yield made


@pytest.mark.slow
def test_a_parser_that_misbehaves(worker, clock):
    assert worker.read("good", b"123").text == "good 3"
    for name, code, survives in (
        ("grows", "too_big", True), ("raises", "parser_failed", True), ("long", "too_big", True),
        ("dies", "parser_failed", False), ("hangs", "too_slow", False),
    ):  # fmt: skip
        before = worker.pid
        with ThreadPoolExecutor() as threads:
            reading = threads.submit(worker.read, name, b"")
            if name == "hangs":
                clock.until_waited(MAX_SECONDS)
                clock.advance(MAX_SECONDS)
            with pytest.raises(LoadError) as raised:
                reading.result()
        assert raised.value.code == code, name
        assert "text of a document" not in raised.value.message
        assert worker.read("good", bytes(1 << 20)).text == f"good {1 << 20}"
        assert (worker.pid == before) == survives, name


@pytest.mark.slow
def test_a_worker_that_is_killed_or_ends_is_started_anew(worker):
    assert worker.read("good", bytes(65 << 20)).text == f"good {65 << 20}"  # more than it may give as text
    for _ in range(2):
        worker.read("good", b"")
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        assert worker.read("good", b"1").text == "good 1"
    worker.close()
    assert worker.pid is None
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda size: worker.read("good", bytes(size)).text, range(40)))
    assert found == [f"good {size}" for size in range(40)]


@pytest.mark.slow
def test_the_time_of_a_file_begins_when_the_worker_is_ready(worker, clock, tmp_path):
    busy = tmp_path / "busy"
    busy.touch()
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(worker.read, "good", b"1")
        clock.until_waited(START_SECONDS)
        clock.advance(START_SECONDS - 1)
        busy.unlink()
        assert reading.result().text == "good 1"
        worker.close()
        busy.touch()
        reading = threads.submit(worker.read, "good", b"1")
        clock.until_waited(START_SECONDS)
        clock.advance(START_SECONDS)
        with pytest.raises(LoadError, match="the reader did not start within 120 s"):
            reading.result()


@pytest.mark.slow
def test_a_worker_without_a_file_ends(worker, clock):
    worker.read("good", b"")
    clock.until_waited(IDLE_SECONDS)
    clock.advance(IDLE_SECONDS - 1)
    worker.read("good", b"")
    clock.advance(1)
    assert worker.pid is not None
    clock.advance(IDLE_SECONDS)
    until(lambda: worker.pid is None)
    assert worker.read("good", b"1").text == "good 1"


@pytest.mark.slow
def test_no_worker_is_left_when_its_parent_is_killed(tmp_path):
    program = (
        "import os, signal; from semlex.ingest.loaders.worker import WORKER; "
        "WORKER.read('eml', b''); print(WORKER.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=False)
    status = Path(f"/proc/{int(done.stdout)}/stat")
    until(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z")
