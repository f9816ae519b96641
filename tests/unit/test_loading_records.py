"""Formats of records: tables, JSON Lines, notebooks, chunks and front matter. What was written comes back exactly."""

import base64
import csv
import io
import json
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.cli.reports import skipped_line
from semlex.ingest.loaders.base import FileBytes, LoadError, LoadOptions
from semlex.ingest.loaders.markdown import MAX_KEYS, MAX_VALUE_CHARACTERS, CodeLoader, MarkdownLoader, read_front_matter
from semlex.ingest.loaders.records import MAX_FIELD_CHARACTERS, parse_json
from semlex.ingest.loaders.registry import loader_of, loaders

DEEP = 100_000
TEXT = st.text(st.characters(exclude_characters="\0\ufeff", exclude_categories=("Cs",)), max_size=12)
NAME = st.text("abcdef_", min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=6,
)


def file_of(name, content):
    data = content.encode() if isinstance(content, str) else content
    return FileBytes(name, data, b"", datetime.now(UTC))


def load(name, content, **options):
    file = file_of(name, content)
    loaded = loader_of(file, loaders()).load(file, LoadOptions(**options))
    for one, after in zip(loaded.records, loaded.records[1:], strict=False):
        assert loaded.text[one.end : after.start] == "\n\n"
    if loaded.records:
        assert (loaded.records[0].start, loaded.records[-1].end) == (0, len(loaded.text))
    return loaded


def texts(loaded):
    return [loaded.text[record.start : record.end] for record in loaded.records]


def refused(name, content, **options):
    with pytest.raises(LoadError) as caught:
        load(name, content, **options)
    return caught.value


@st.composite
def tables(draw):
    names = draw(st.lists(NAME, min_size=2, max_size=4, unique=True))
    return names, draw(st.lists(st.lists(TEXT, min_size=len(names), max_size=len(names)), max_size=5))


@given(table=tables(), delimiter=st.sampled_from([",", ";", "\t", "|"]), mark=st.sampled_from(["", "\ufeff"]))
def test_rows_come_back_as_they_were_written(table, delimiter, mark):
    names, rows = table
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([names, *rows])
    loaded = load("a.tsv" if delimiter == "\t" else "a.csv", mark + out.getvalue(), text_fields=names[:1])
    kept = [row for row in rows if row[0].strip()]
    assert texts(loaded) == [row[0] for row in kept]
    expected = [dict(zip(names[1:], row[1:], strict=True)) for row in kept]
    for place, name in enumerate(names[1:], 1):
        values = [row[place].strip() for row in rows]
        if any(row[place].strip() for row in kept) and all(map(is_number, filter(None, values))):
            for row in expected:
                text = row.pop(name).strip()
                row.update({name: float(text)} if text else {})
    assert [dict(record.metadata) for record in loaded.records] == expected
    assert (loaded.title, loaded.structure) == (None, "plain")


def is_number(text):
    whole, _, decimals = text.lstrip("+-").partition(".")
    digits = set(whole + decimals) <= set("0123456789") and (whole == "0" or whole[:1] not in ("", "0"))
    signs = len(text) - len(text.lstrip("+-"))
    return digits and signs <= 1 and max(len(whole), len(decimals)) <= 15 and text[-1] != "."


def test_tables_and_bad_lines():
    for values, stored in [
        (["2010", " 9 ", ""], [2010, 9, None]),
        (["1.50", "-3", "+0"], [1.5, -3, 0]), (["007", "8"], ["007", "8"]), (["1e3", "2"], ["1e3", "2"]),
        (["1,5", "2"], ["1,5", "2"]), (["1" * 15, "1"], [int("1" * 15), 1]),
        (["1" * 16, "1"], ["1" * 16, "1"]), (["\u0663", "1"], ["\u0663", "1"]), (["", ""], ["", ""]),
    ]:  # fmt: skip
        out = io.StringIO()
        csv.writer(out).writerows([["name", "n"], *(["a row", value] for value in values)])
        loaded = load("a.csv", out.getvalue(), text_fields=["name"])
        found = [record.metadata.get("n") for record in loaded.records]
        assert (found, list(map(type, found))) == (stored, list(map(type, stored)))
        whole = load("a.csv", out.getvalue())  # all of it is text, and what is a number is metadata, too
        assert texts(whole)[0] == f"name: a row\nn: {values[0]}".removesuffix("\nn: ")
        if not isinstance(stored[0], str):
            assert [record.metadata.get("n") for record in whole.records] == stored
    table = 'id,name,text\n1,One,"first\nline"\n\n2,Two,\n3,,third\n'
    loaded = load("a.csv", table)
    assert texts(loaded) == ["id: 1\nname: One\ntext: first\nline", "id: 2\nname: Two", "id: 3\ntext: third"]
    assert [record.metadata for record in loaded.records] == [{"id": 1}, {"text": "", "id": 2}, {"name": "", "id": 3}]
    loaded = load("a.csv", table, text_fields=["name", "text"], id_field="id")
    assert texts(loaded) == ["One\n\nfirst\nline", "Two", "third"]
    assert [record.metadata for record in loaded.records] == [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    loaded = load("a.csv", table, text_fields=["text"], id_field="id")
    assert texts(loaded) == ["first\nline", "third"]  # a row without text is left out
    assert load("a.csv", "id,text\n7,x\n", id_field="id").records[0].metadata == {"id": "7"}
    assert load("a.csv", "").records == load("a.csv", "a,b\n").records == []
    # Those of JSON Lines may be numbers or missing.
    lines = '{"a": 1.5, "b": null, "id": 1}\n\n{"b": "x", "id": "1"}\n{"c": true, "id": 2}\n'
    loaded = load("a.jsonl", lines, text_fields=["a", "b"], id_field="id")
    assert texts(loaded) == ["1.5", "x"]
    assert [record.metadata for record in loaded.records] == [{"id": 1}, {"id": "1"}]
    assert load("a.jsonl", "\n\n", text_fields=["a"]).text == ""
    for table, options, code, words in [
        ("a,b\n1,2\n1,2,3\n", {}, "bad_row", "line 3 has 3 fields, the header has 2"),
        ('a,b\n"x\ny",2\n1\n', {}, "bad_row", "line 4 has 1 field, the header has 2"),
        ('a,b\n1,"never closed\n2,3\n', {}, "bad_row", "line 2"), ('a,b\n1,"x"y\n', {}, "bad_row", "line 2"),
        ("a,,b\n", {}, "bad_header", "column 2 has no name"), ("a,b,a\n", {}, "bad_header", "columns 1 and 3"),
        ("name,text\n", {"text_fields": ["texts"]}, "unknown_field", "did you mean 'text'? The fields are 'name'"),
        ("name,text\n", {"id_field": "id"}, "unknown_field", "unknown field 'id'"),
        ("id,b\n1,2\n ,3\n", {"id_field": "id"}, "missing_id", "line 3"),
        ("id,b\n1,2\n2,2\n1,3\n", {"id_field": "id"}, "repeated_id", "lines 2 and 4"),
    ]:  # fmt: skip
        error = refused("a.csv", table, **options)
        assert error.code == code
        assert words in error.message
        assert "never closed" not in error.message
    for line, code in [
        ("[1]", "bad_row"), ("{", "bad_json"), ("{'a': 1}", "bad_json"), ('{"a": NaN}', "bad_json"),
        ('{"a": -Infinity}', "bad_json"), ('{"a": 1e999}', "bad_json"),
        ('{"a": ' + "9" * 5000 + "}", "bad_json"),
        ('{"a": 1, "a": 2}', "bad_json"), ('{"a": ' + "[" * DEEP, "bad_json"),
        ('{"a": ' * 65 + "1" + "}" * 65, "bad_json"),
        ('{"a": "\\ud800"}', "bad_text"), ('{"a\\u0000": 1}', "bad_text"),
        ('{"text": "x", "a": [' + "1," * 600_000 + "1]}", "metadata_too_large"),
        ('{"text": ["x"]}', "bad_field"), ('{"id": true}', "missing_id"), ('{"idd": 1}', "missing_id"),
        ('{"id": 0}', "repeated_id"),
    ]:  # fmt: skip
        options = {"id_field": "id"} if "id" in code else {}
        error = refused("a.jsonl", '{"text": "first", "id": 0}\n' + line, text_fields=["text"], **options)
        assert error.code == code
        assert "line 2" in error.message or "and 2 " in error.message
    line = '{"a": ' * 64 + "1" + "}" * 64
    assert parse_json(line) == json.loads(line)
    brackets = json.dumps("[{" * DEEP + '"\\')
    assert parse_json(brackets) == "[{" * DEEP + '"\\'  # in a text they are none
    for piece in ('"', '\\"', '"\\', "[", "1,", '{"', '"a\\\\'):
        with pytest.raises(LoadError):
            parse_json(piece * (1_000_000 // len(piece)))


def test_large_fields_files_left_out_and_long_front_matter(monkeypatch):
    before = csv.field_size_limit()
    largest = "x" * MAX_FIELD_CHARACTERS
    assert texts(load("a.csv", f"a,b\n1,{largest}\n", text_fields=["b"])) == [largest]
    error = refused("a.csv", f"a,b\n1,2\n1,{largest}x\n", text_fields=["b"])
    assert (error.code, error.message[:7]) == ("field_too_large", "line 3:")
    assert csv.field_size_limit() == before
    monkeypatch.setattr("semlex.ingest.loaders.records.MAX_RECORDS", 2)
    assert refused("a.csv", "a\n1\n2\n3\n").code == "too_many_records"
    monkeypatch.setattr("semlex.ingest.loaders.registry.WITH_EXTRA", {"pdf": "files", "docx": "files"})
    formats = {".pdf": 3, ".png": 1200, ".docx": 1}
    skipped = {"generated": {"_build/": 1, "x.map": 1}, "format": formats, "ignored": {".log": 10, "old/": 2}}
    assert skipped_line(skipped) == (
        'skipped: 3 .pdf, 1 .docx (to read them: pip install "semlex[files]"), 1,200 .png, 12 by .gitignore, '
        "2 generated (_build/, x.map)"
    )
    many = {f".{letter}": 1 for letter in "abcdefgh"}
    assert skipped_line({"format": many}) == "skipped: 1 .a, 1 .b, 1 .c, 1 .d, 1 .e, 1 .f, 2 of other kinds"
    # A reader whose steps grow with the square of the length would need 80,000,000,000, which is hours.
    monkeypatch.setattr("semlex.ingest.loaders.markdown.MAX_VALUE_CHARACTERS", 1_000_000)
    for piece in ("a", " ", '"', "'", "[", "a: ", "- ", "#", "a:\n", "\\", "---", "'' ", "[a,"):
        filling = piece * (400_000 // len(piece))
        for before in ("", "a: ", "a: [", 'a: "', "title: "):
            text = f"---\n{before}{filling}\n---\n"
            is_rule = not (before + filling).strip()
            assert read_front_matter(text).end == (0 if is_rule else len(text))


@given(rows=st.lists(st.dictionaries(NAME, JSON, max_size=4), max_size=4), is_ascii=st.booleans())
def test_objects_come_back_as_they_were_written(rows, is_ascii):
    rows = [{**row, "text!": f"text {number}"} for number, row in enumerate(rows)]
    lines = "".join(json.dumps(row, ensure_ascii=is_ascii) + "\n" for row in rows)
    loaded = load("a.jsonl", lines, text_fields=["text!"])
    assert texts(loaded) == [row["text!"] for row in rows]
    assert [record.metadata | {"text!": row["text!"]} for record, row in zip(loaded.records, rows, strict=True)] == rows
    every = load("a.ndjson", lines)
    for row, text, record in zip(rows, texts(every), every.records, strict=True):
        named = {name: value for name, value in row.items() if isinstance(value, str) and value.strip()}
        assert text == "\n".join(f"{name}: {value}" for name, value in named.items())
        assert record.metadata == {name: value for name, value in row.items() if name not in named}


@given(text=st.text('[]{}",:\\1 a', max_size=30))
def test_any_text_is_the_same_json_or_refused(text):
    try:
        value = parse_json(text)
    except LoadError as error:
        assert error.code == "bad_json"  # noqa: PT017 - both ends are right
    else:
        assert value == json.loads(text)


def notebook(*cells, **metadata):
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def markdown(*lines):
    return {"cell_type": "markdown", "source": list(lines)}


def code(source, *outputs):
    return {"cell_type": "code", "source": source, "outputs": list(outputs)}


def chunk(number, **values):
    own = {"chunk_id": f"c{number}", "source_document": "book.pdf", "chunk_text": f" text {number}\n", "token_count": 2}
    return own | values


def test_notebooks_and_chunks():
    outputs = (
        {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n", "two"]},
        {"output_type": "execute_result", "data": {"text/plain": "o" * 3000, "image/png": "aGk="}},
        {"output_type": "error", "traceback": ["secret"], "ename": "E", "evalue": "e"},
        {"output_type": "display_data", "data": {"image/png": "aGk="}},
    )
    cells = (
        code("before = 0"),
        markdown("# Guide\n", "intro\n", "## Load ##\n", "```\n", "# no heading\n", "```\n"),
        code("load()", *outputs),
        markdown("still there\n", "## Clean\n", "of dust\n", "# Other\n", "end"),
        {"cell_type": "raw", "source": "as it is"},
        code(" "),
    )
    loaded = load("a.ipynb", notebook(*cells, language_info={"file_extension": ".R"}))
    found = [(one.structure, tuple(one.titles), one.place.cell) for one in loaded.records]
    assert [(text, *rest) for text, rest in zip(texts(loaded), found, strict=True)] == [
        ("before = 0", "code:r", (), 1),
        ("# Guide\nintro\n## Load ##\n```\n# no heading\n```\n", "markdown", (), 2),
        ("load()\n\nred\ntwo\n\n" + "o" * 2000, "code:r", ("Guide", "Load"), 3),
        ("still there\n", "markdown", ("Guide", "Load"), 4), ("## Clean\nof dust\n", "markdown", ("Guide",), 4),
        ("# Other\nend", "markdown", (), 4), ("as it is", "plain", ("Other",), 5),
    ]  # fmt: skip
    assert loaded.title == "Guide"
    output = {"output_type": "pyout", "text": "2"}
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Old\n"]},
        {"cell_type": "code", "input": ["1 + 1"], "language": "python", "outputs": [output]},
    ]
    loaded = load("a.ipynb", json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
    assert texts(loaded) == ["## Old", "1 + 1\n\n2"]
    assert [record.structure for record in loaded.records] == ["markdown", "code:py"]
    assert loaded.title is None
    for info, suffix in (({"name": "julia"}, "jl"), ({"file_extension": "../x"}, "py")):
        assert load("a.ipynb", notebook(code("x"), language_info=info)).records[0].structure == f"code:{suffix}"
    assert load("a.ipynb", notebook(code("\ud800 \0"))).text == "\ufffd \ufffd"
    assert load("a.ipynb", notebook()).records == []
    for content, error_code in [
        ("", "bad_json"), ("[" * DEEP + "]" * DEEP, "bad_json"), ('{"cells": ' * DEEP, "bad_json"),
        ("[" + "[],[]," * 700_000 + "1]", "too_many_values"),
        ("[]", "bad_notebook"), ("{}", "bad_notebook"), ('{"cells": [1]}', "bad_notebook"),
        ('{"worksheets": [{"cells": 1}]}', "bad_notebook"),
    ]:  # fmt: skip
        assert refused("a.ipynb", content).code == error_code
    items = [chunk(1, chapter_title="One", subsection_title=["Deep"], summary="short"), chunk(2)]
    loaded = load("a.json", json.dumps(items))
    assert texts(loaded) == [" text 1\n", " text 2\n"]
    first = loaded.records[0]
    assert (first.titles, first.summary, first.is_chunk) == (("One", "Deep"), "short", True)
    assert first.metadata == {"chunk_id": "c1", "source_document": "book.pdf", "token_count": 2}
    below = load("a.json", json.dumps({"version": 3, "chunks": items}))
    assert (below.text, below.records, below.metadata) == (loaded.text, loaded.records, {"version": 3})
    other = ("", "{}", "[]", "{not json", '{"chunks": []}', '[{"chunk_id": 1}]', '["chunk_id", "chunk_text"]')
    for content in (*other, "[" * DEEP):
        loaded = CodeLoader().load(file_of("a.json", content), LoadOptions())
        assert load("a.json", content) == replace(loaded, format="code")
        assert loaded.structure == "code:json"
    for content, error_code, words in [
        (json.dumps([chunk(1), chunk(2, token_count=0)]), "bad_chunk", "chunk 2: token_count"),
        (json.dumps([chunk(1), {"chunk_id": "x"}]), "bad_chunk", "chunk 2: "),
        (json.dumps([chunk(1, other=1)]), "bad_chunk", "chunk 1: other"),
        (json.dumps([chunk(1, chunk_text="\ud800")]), "bad_text", "chunk 1: a text"),
        (json.dumps([chunk(1), 2]), "bad_chunk", "chunk 2 "),
        (json.dumps([chunk(1), chunk(2), chunk(1)]), "repeated_id", "chunks 1 and 3"),
        (json.dumps({"chunks": [chunk(1)], "by": "\0"}), "bad_text", "beside the chunks"),
        (json.dumps([chunk(1)], indent=1)[:-1], "bad_json", "line 8"),
        (json.dumps({"chunks": [chunk(1)]})[:-1], "bad_json", "line 1"),
        (json.dumps([chunk(1)])[:-1] + "," + "[" * DEEP, "bad_json", "deep"),
    ]:  # fmt: skip
        error = refused("a.json", content)
        assert error.code == error_code
        assert words in error.message


@pytest.mark.slow
def test_large_outputs_take_little_memory():
    size = 10_000_000
    output = {"output_type": "display_data", "data": {"image/png": base64.b64encode(bytes(size * 3 // 4)).decode()}}
    file = file_of("a.ipynb", notebook(code("plot()", output), markdown("after")))
    del output
    tracemalloc.start()
    try:
        loaded = loader_of(file, loaders()).load(file, LoadOptions())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert texts(loaded) == ["plot()", "after"]
    assert peak < 4 * size


FRONT = (
    '---\ntitle: "The \\"keys\\""   # of the house\nyear: 2024\nratio: -1.50\ncode: 007\ndraft: false\nnothing:\n'
    'day: 2024-05-01\nlink: https://example.org/#top\ntags: [a, "b, c", 3]   # three\n'
    "authors:\n  - Ann\n  - 'O''Hara'\nnested:\n  key: value\npeople:\n  - name: Ann\n    age: 3\n"
    "folded: >\n  one\n  two\nplain: one\n  two\nanchor: &x 1\nempty: []\nbroken: [a, [b]]\nyear: 2025\n"
    ": no key\n---\n# Heading\n"
)


def test_front_matter():
    def read(text):
        return MarkdownLoader().load(file_of("a.md", text), LoadOptions())

    loaded = read(FRONT)
    assert loaded.title == 'The "keys"'
    assert loaded.text == FRONT
    assert texts(loaded) == ["# Heading\n"]
    assert loaded.metadata == {
        "year": 2024, "ratio": -1.5, "code": "007", "draft": False, "nothing": None, "day": "2024-05-01",
        "link": "https://example.org/#top", "tags": ["a", "b, c", 3], "authors": ["Ann", "O'Hara"], "empty": [],
    }  # fmt: skip
    assert read("---\ntitle: 2024\r\na: 1\r\n---\r\n# No").title == "2024"
    assert read("---\na: 1\n").metadata == {}
    # A rule and a paragraph between two are text; what is no simple value, or has no text behind it, is not.
    for text in ("---\n\na: 1\n\n---\n# A\n", "---\nwords\n---\n# A\n"):
        assert read(text).records == ()
    for text in ("---\na: 1\n---\n\n", "---\na:\n  b: c\n---\n"):
        assert [one.strip() for one in texts(read(text))] == [""]
    many = "".join(f"key{number}: {number}\n" for number in range(MAX_KEYS + 5))
    assert len(read_front_matter(f"---\n{many}---\n").metadata) == MAX_KEYS
    long = "x" * MAX_VALUE_CHARACTERS
    assert read_front_matter(f"---\na: {long}\nb: {long}y\n---\n").metadata == {"a": long}


@given(text=st.text("ab:-#[]{}\"'\\,| \t\n1", max_size=40))
def test_any_front_matter_is_read_or_left_out(text):
    found = read_front_matter(f"---\n{text}\n---\n")
    json.dumps(found.metadata, allow_nan=False)
