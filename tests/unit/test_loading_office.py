"""Documents and encodings: what is in them is read; what is broken or hostile costs one line."""

import codecs
import io
import itertools
import json
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
from hypothesis import example, given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.ingest.loaders import office, registry
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions, Record
from semlex.ingest.loaders.decoding import decode, repaired_document, storable, storable_document
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
    kept = []
    while name == "grows":
        kept.append(bytearray(1 << 20))
    if name == "hangs":
        threading.Event().wait()
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


INFO = "/Title (The title) /Author (Ann)"
THREE_PAGES = pdf([[(24, "Chapter"), (12, "On one.")], [], [(12, "On three.")]], info=INFO)


def test_words_formats_and_what_is_broken(monkeypatch):
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
    words = ("statistical system has", "Springer-Verlag", "floating-point number", "UTF-8 as", "well-known ones")
    assert all(one in flat for one in (*words, "and databases of", "kind, multidimensional ones"))
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


@pytest.mark.slow
def test_thousands_of_pages(full):
    pages = 10_000 if full else 3_000
    loaded = load("a.pdf", pdf([[(12, f"Page {number}")] for number in range(pages)]))
    assert len(loaded.pages) == pages
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
def test_a_worker_that_is_killed_or_ends_is_started_again(worker):
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


# --- encodings, and what a database does not store --------------------------------------------------------------------

# ruff: noqa: RUF001 - letters of other alphabets are what this is about
TEXTS = {
    "windows-1252": "Un café au lait, déjà vu: la façade naïve de l’hôtel.",
    "cp1251": "Привет, это обычный русский текст для проверки кодировки.",
    "cp1253": "Αυτό είναι ένα κείμενο στα ελληνικά για δοκιμή.",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy na všech stranách.",
    "shift_jis": "これは日本語の文章です。文字コードを調べます。" * 2,
    "gb18030": "这是一个普通的中文文本，用来检查编码。" * 2,
}
GUESSING = LoadOptions(detect_encoding=True)
REPAIRING = LoadOptions(on_bad_text="repair")
BOTH = LoadOptions(detect_encoding=True, on_bad_text="repair")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")))
def test_utf_8_and_utf_16_need_no_guess(text):
    big_endian = codecs.BOM_UTF16_BE + text.encode("utf-16-be")
    for data in (text.encode(), text.encode("utf-8-sig"), text.encode("utf-16"), big_endian):
        assert decode(data, LoadOptions()) == (text, None, 0)
        assert decode(data, REPAIRING) == (text, None, 0)


def test_encodings_and_faulty_loaders():
    for encoding, plain in TEXTS.items():
        data = plain.encode(encoding)
        with pytest.raises(LoadError, match=r"it looks like \S+: convert the file .*--detect-encoding") as refused:
            decode(data, LoadOptions())
        assert refused.value.code == "not_utf8"
        text, guessed, repaired = decode(data, GUESSING)
        assert (text, repaired) == (plain, 0)
        assert guessed is not None
        assert guessed in str(refused.value)
    with pytest.raises(LoadError, match="no other encoding was recognised"):
        decode(b"caf\xe9", GUESSING)  # too short to tell
    with pytest.raises(LoadError, match="NUL"):
        decode(b"\0" + bytes(range(256)) * 4, GUESSING)
    western = TEXTS["windows-1252"]
    assert decode(western.encode("cp1252"), BOTH) == (western, "windows-1252", 0)
    beginning = TEXTS["cp1251"].encode("cp1251") * 6_000  # the guess is made from it
    text, encoding, repaired = decode(beginning + b"\x98" * 3, BOTH)  # which has no such letter
    assert (text.count("\ufffd"), encoding, repaired) == (3, "cp1251", 3)
    for data, code in [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), "binary"),
        ("wide".encode("utf-16-le"), "binary"),
        (TEXTS["cp1251"].encode("cp1251"), "not_utf8"),
    ]:  # fmt: skip
        with pytest.raises(LoadError) as refused:
            decode(data, REPAIRING)
        assert refused.value.code == code
    for loaded, code in [
        (LoadedDocument(b"bytes"), "loader_failed"), (LoadedDocument("x", title=5), "loader_failed"),
        (LoadedDocument("x", structure="wiki"), "loader_failed"),
        (LoadedDocument("x y", records=[Record(0, 1, structure="wiki")]), "loader_failed"),
        (LoadedDocument("x", metadata={"a": {1}}), "loader_failed"),
        (LoadedDocument("x", metadata={"a": float("nan")}), "loader_failed"),
        (LoadedDocument("x", pages=["one"]), "loader_failed"), (LoadedDocument("x", format="a\0"), "loader_failed"),
        (LoadedDocument("x", encoding="a\ud800"), "loader_failed"),
        (LoadedDocument("x", metadata={"a": "x" * (1 << 20)}), "metadata_too_large"),
    ]:  # fmt: skip
        for options in (LoadOptions(), REPAIRING):
            with pytest.raises(LoadError) as refused:
                storable_document(loaded, options)
            assert refused.value.code == code
    for value in ["", "ignore", "ERROR", None, True]:
        with pytest.raises(ConfigurationError, match="on_bad_text must be error, repair or skip"):
            LoadOptions(on_bad_text=value)


def test_without_the_extra_an_encoding_is_not_detected(monkeypatch):
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    western, russian = (TEXTS[name].encode(name) for name in ("windows-1252", "cp1251"))
    assert decode(western, GUESSING).text == TEXTS["windows-1252"]
    for options in (LoadOptions(), GUESSING, BOTH):
        with pytest.raises(LoadError, match=r"iconv.*pip install 'semlex\[files\]'") as refused:
            decode(russian, options)
        assert refused.value.code == "not_utf8"


def repaired_slowly(data, encoding):
    """The text, and how often something had to be put, as the decoder itself tells."""
    count = 0

    def put(error):
        nonlocal count
        assert isinstance(error, UnicodeDecodeError)
        count += 1
        return "\ufffd", error.end

    codecs.register_error("semlex-test", put)
    text = data.decode(encoding, "semlex-test").removeprefix("\ufeff")
    return text.replace("\0", "\ufffd"), count + text.count("\0")


PIECES = st.lists(st.sampled_from(["", "a", "\ufffd", "é", "\0", "😀"]).map(str.encode) | st.binary(max_size=3))


@given(pieces=PIECES, encoding=st.sampled_from(["utf-8", "utf-16"]))
@example(pieces=[b"caf\xe9 au lait"], encoding="utf-8")
@example(pieces=[codecs.BOM_UTF8, b"ab\xffcd", b"one\0two"], encoding="utf-8")
@example(pieces=[b"a\0b\0\0\xd8c\0d\0", b"e"], encoding="utf-16")
@example(pieces=["already \ufffd: ".encode(), b"caf\xe9"], encoding="utf-8")
def test_a_repaired_text_has_a_mark_for_each_fault_and_all_the_rest(pieces, encoding):
    data = (codecs.BOM_UTF16_LE if encoding == "utf-16" else b"") + b"".join(pieces)
    if encoding == "utf-8" and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return
    text, count = repaired_slowly(data, encoding)
    if count > len(text) / 3:
        with pytest.raises(LoadError):
            decode(data, REPAIRING)
    else:
        assert decode(data, REPAIRING) == (text, None, count)


BAD = re.compile("[\0\ud800-\udfff]")
texts = st.text(st.sampled_from("ab é😀\ufffd\0\ud800\udc00"), max_size=8)
values = st.recursive(
    texts | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
metadata = st.dictionaries(texts, values, max_size=3)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in itertools.chain(*value.items()) if isinstance(value, dict) else value:
            yield from strings(item)


def count_of(*found):
    return sum(len(BAD.findall(text)) for value in found for text in strings(value))


@given(value=values)
def test_any_value_is_repaired_character_by_character(value):
    repaired, count = storable(value, "here", REPAIRING)
    assert count == count_of(value)
    # A name may become that of another value.
    if len(list(strings(repaired))) == len(list(strings(value))):
        assert list(strings(repaired)) == [BAD.sub("\ufffd", text) for text in strings(value)]
    json.dumps(repaired, ensure_ascii=False).encode()
    if count:
        with pytest.raises(LoadError, match=r"here: a text holds .*--on-bad-text repair") as refused:
            storable(value, "here", LoadOptions())
        assert refused.value.code == "bad_text"
    else:
        assert storable(value, "here", LoadOptions()) == (value, 0) == (repaired, 0)


@given(text=texts, title=texts, own=metadata, titles=st.lists(texts, max_size=2), summary=texts)
def test_any_document_is_refused_or_repaired_in_its_place(text, title, own, titles, summary):
    record = Record(0, len(text), metadata=own, titles=titles, summary=summary)
    loaded = LoadedDocument(text, title=title, metadata=own, records=[record])
    bad = count_of(text, title, own, own, titles, summary)
    repaired = storable_document(loaded, REPAIRING)
    assert repaired == repaired_document(loaded)
    assert (repaired.text, repaired.title) == (BAD.sub("\ufffd", text), BAD.sub("\ufffd", title))
    assert repaired.repaired == bad
    assert storable_document(repaired, LoadOptions()) is repaired
    if bad:
        with pytest.raises(LoadError) as refused:
            storable_document(loaded, LoadOptions())
        assert refused.value.code == "bad_text"
    else:
        assert repaired is loaded
