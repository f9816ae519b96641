"""The fields of a collection: what is listed is what the chunks have; indexes of fields are made and dropped."""

import re
from collections import Counter, defaultdict
from contextlib import asynccontextmanager

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document
from semlex.errors import ConfigurationError, ValidationError
from semlex.filters.fields import OWN, Field
from semlex.ingest.progress import Progress
from semlex.store.indexes import build
from semlex.store.query import fields as store_fields
from tests.support.filter_trees import documents
from tests.support.lost_answers import lose_answers
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened, sync_opened

OWN_NAMES = [f"@{name}" for name in OWN]


def type_of(value):
    kinds = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return "null" if value is None else kinds[type(value)]


def expected(found):
    """Name -> types and types of elements: the slow twin."""
    types, elements = defaultdict(Counter), defaultdict(Counter)

    def look(path, value):
        for key, inner in value.items():
            types[*path, key][type_of(inner)] += 1
            if isinstance(inner, list):
                elements[*path, key].update(map(type_of, inner))
            elif isinstance(inner, dict):
                look((*path, key), inner)

    for one in found:
        look((), one)
    return {str(Field(path)): (dict(counts), dict(elements[path])) for path, counts in types.items()}


@pytest.fixture
def retriever(database_url):
    with sync_opened(database_url, "none") as retriever:
        yield retriever


def add(retriever, found):
    retriever.add_documents([Document("a text", one, id=f"d{number}") for number, one in enumerate(found)])


def indexed(fields):
    return {field.name: field.indexed for field in fields if field.indexed}


@pytest.mark.slow
@given(found=st.lists(documents, max_size=12))
@settings(OWN_ROWS, max_examples=examples(15))
def test_what_is_listed_is_what_the_chunks_have(retriever, found):
    for one in found:
        one.pop("source_document", None)  # a column, not a key
    retriever.delete([chunk.id for chunk in retriever.list_chunks(limit=100)])
    add(retriever, found)
    fields = retriever.fields.list()
    wanted = expected(found)
    assert {field.name: (field.types, field.elements) for field in fields[: -len(OWN)]} == wanted
    assert [field.name for field in fields] == [*sorted(wanted), *OWN_NAMES]
    assert (fields.chunks, fields.are_all, fields.left_out) == (len(found), True, 0)
    for field in fields:
        assert list(field.types.values()) == sorted(field.types.values(), reverse=True)
        assert field.values == ()


def test_own_fields_are_counted_and_values_are_shown_when_asked(retriever, tmp_path):
    fields = retriever.fields.list()
    assert [field.name for field in fields] == OWN_NAMES
    assert (fields.chunks, fields.are_all) == (0, True)
    (tmp_path / "page.md").write_text("# Page\n\nA secret of the text.", encoding="utf-8")
    retriever.index(tmp_path)
    add(retriever, [{"year": 2020 + number % 3, "tags": ["a", "b"], "long": "x" * 100} for number in range(7)])
    last = {"year": None, "author": {"name": "Ada", "ok": True}}
    retriever.add_documents([Document("A secret of the text.", last, id="last")])
    fields = {field.name: field for field in retriever.fields.list(values=True)}
    values = {name: field.values for name, field in fields.items() if not name.startswith("@")}
    ada = {"author": (), "author.name": ("Ada",), "author.ok": (True,)}
    assert values == ada | {"year": (2020, 2021, 2022), "tags": ("a", "b"), "long": ("x" * 40 + "…",)}
    assert (fields["year"].types, fields["tags"].elements) == ({"number": 7, "null": 1}, {"text": 14})
    for name in ("@source_document", "@title", "@source"):
        assert fields[name].types == {"text": 1}
    assert fields["@created"].types == {"instant": 9}
    assert fields["@language"].types == {"text": 0}
    assert "secret" not in repr(fields)


def test_a_sample_is_bounded_and_says_so(retriever, monkeypatch):
    add(retriever, [{f"k{number}": 1, "common": "x" * 50} for number in range(30)])
    monkeypatch.setattr(store_fields, "MAX_FIELDS", 10)
    fields = retriever.fields.list()
    assert (fields[0].name, len(fields), fields.left_out) == ("common", 10 + len(OWN), 21)
    for bound, value, most in (("SAMPLE_CHUNKS", 12, 12), ("SAMPLE_BYTES", 100, 2)):
        monkeypatch.setattr(store_fields, bound, value)
        fields = retriever.fields.list()
        assert 1 <= fields.chunks <= most
        assert not fields.are_all


@pytest.mark.slow
def test_an_index_is_made_once_and_dropped(retriever, monkeypatch):
    add(retriever, [{"year": number, "a.b": str(number), "author": {"born": number}} for number in range(20)])
    wanted = [("year", "number"), ('"a.b"', "text"), ("author.born", "number"), ("@updated", "instant")]
    filters = [f"{name} >= {bound}" for (name, _), bound in zip(wanted, (5, "'5'", 7), strict=False)]
    before = [retriever.count(one) for one in filters]
    for name, of in wanted:
        built = retriever.fields.add(name, of)
        assert (len(built), built.busy) == (1, [])
        assert list(retriever.fields.add(name, of)) == []
    assert indexed(retriever.fields.list()) == {name: (of,) for name, of in wanted}
    assert [retriever.count(one) for one in filters] == before == [15, 5, 13]
    retriever.fields.add("year", "text", force=True)
    assert indexed(retriever.fields.list())["year"] == ("number", "text")
    lost = lose_answers(monkeypatch, "drop the index of a field")
    assert retriever.fields.remove("year") == ("number", "text")
    assert lost == {"drop the index of a field"}
    for name, of in wanted[1:]:
        assert retriever.fields.remove(name) == (of,)
    assert indexed(retriever.fields.list()) == {}
    with pytest.raises(ConfigurationError, match="the field year has no index"):
        retriever.fields.remove("year")

    @asynccontextmanager
    async def watched(_, __, name, tell, **_options):
        tell(name, 1, 2, "blocks")
        yield

    told = []
    monkeypatch.setattr(build, "watched", watched)
    retriever.fields.add("k" * 100, "number", force=True, progress=told.append)
    assert told == [Progress(f"build the index of {'k' * 40}…", 1, 2, "blocks")]


def test_a_name_that_no_chunk_has_is_a_question(retriever):
    retriever.fields.add("year", "number")  # for chunks that are to come
    retriever.fields.remove("year")
    add(retriever, [{"year": 2020, "author": {"name": "Ada"}, "tags": [1, {"a": 2}]}, {"year": "2021"}, {"year": "?"}])
    for name, of, message in (
        ("yaer", "number", r"none of the 3 chunks has the field yaer; did you mean year\?"),
        ("author.nam", "text", r"did you mean author\.name\?"),
        ("author", "text", "of the 3 chunks, none has a text in author; types of this field's values: object 1"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            retriever.fields.add(name, of)
    few = "of the 3 chunks, 1 has a number in year; types of this field's values: text 2, number 1"
    assert retriever.fields.add("year", "number").warnings == [few]
    assert retriever.fields.add("tags.0", "number").warnings == []
    assert len(retriever.fields.add("to.come", "text", force=True)) == 1
    assert indexed(retriever.fields.list()) == {"tags.0": ("number",), "to.come": ("text",), "year": ("number",)}
    with pytest.raises(ConfigurationError, match=r"yaer has no index; did you mean year\?"):
        retriever.fields.remove("yaer")


@pytest.mark.slow
def test_hostile_names(retriever):
    keys = ["'", '"', "%", "%(x)s", "a'); DROP TABLE x; --", "\\", "{}", "@created", "é" * 400, " ", "k" * 1000]
    add(retriever, [{key: number} for number, key in enumerate(keys)])
    names = {str(Field((key,))) for key in keys}
    for name in names:
        assert len(retriever.fields.add(name, "number", force=False)) == 1
    assert set(indexed(retriever.fields.list())) == names
    assert retriever.count() == len(keys)
    for name in names:
        assert retriever.count(f"{name} >= 0") == 1
        retriever.fields.remove(name)
    for name in ("a\0b", "k" * 10_240, "a..b", "@source_document", "a" + ".b" * 70):
        with pytest.raises(ValidationError):
            retriever.fields.add(name, "text", force=True)
    assert indexed(retriever.fields.list()) == {}


def test_what_is_written_later_never_fails_for_an_index(retriever):
    for of in ("number", "text"):
        retriever.fields.add("a", of)
    text = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(50_000))
    found = [{"a": text}, {"a": 10**4299 + 1}, {"a": 5e-324}, {"a": [1]}, {"a": None}, {"a": {"b": 1}}, {}, {"a": ""}]
    add(retriever, found)
    assert retriever.count("a >= ''") == 2
    assert retriever.count("a > 0") == 2


async def test_in_a_transaction_of_the_users(database_url):
    async with opened(database_url, "none") as store:
        await store.add_documents([Document("a text", {"year": 2020}, id="d")])
    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection, opened(model="none", connection=connection) as store:
        async with connection.transaction(force_rollback=True):
            built = await store.fields.add("year", "number")
            assert len(built) == 1
            assert ["writers wait" in warning for warning in built.warnings] == [True]
            assert indexed(await store.fields.list()) == {"year": ("number",)}
        assert indexed(await store.fields.list()) == {}


def test_indexes_of_two_collections_are_apart(database_url):
    with sync_opened(database_url, "none", collection="one") as one:
        one.fields.add("year", "number")
        with sync_opened(database_url, "none", collection="one_field") as other:
            other.fields.add("year", "text")
            assert indexed(one.fields.list()) == {"year": ("number",)}
            assert indexed(other.fields.list()) == {"year": ("text",)}
            one.fields.remove("year")
            assert indexed(other.fields.list()) == {"year": ("text",)}


@pytest.mark.slow
def test_the_commands(shell):
    with sync_opened(shell.environment["DATABASE_URL"], "none", collection="docs") as retriever:
        add(retriever, [{"year": 2020, "tags": ["a"], "\x1b[31m": 1}, {"year": "2021", "k" * 200: "v" * 200}])
    (added,) = shell.objects("fields", "add", "year", "number")
    assert (added["name"], added["type"], len(added["built"]), added["busy"]) == ("year", "number", 1, [])
    assert shell.objects("fields", "add", "year", "number")[0]["built"] == []
    assert "had an index already" in shell("fields", "add", "year", "number").stderr
    *fields, summary = shell.objects("fields")
    assert summary == {"type": "summary", "chunks": 2, "are_all": True, "left_out": 0}
    year = {"type": "field", "name": "year", "types": {"number": 1, "text": 1}, "elements": {}, "values": []}
    year |= {"indexed": ["number"], "unfinished": []}
    assert next(field for field in fields if field["name"] == "year") == year
    assert {field["name"] for field in fields} >= {"k" * 200, "tags", *OWN_NAMES}
    shown = shell("fields")
    assert re.search(r"^year +number 1, text 1  index: number$", shown.stdout, re.MULTILINE)
    assert re.search(r"^tags +list 1 of text 1$", shown.stdout, re.MULTILINE)
    assert "\x1b" not in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) < 120
    assert "counts of all 2 chunks" in shown.stderr
    shown = shell("fields", "--values")
    values = r'^year +number 1, text 1  index: number  (2020, "2021"|"2021", 2020)$'
    assert re.search(values, shown.stdout, re.MULTILINE)
    assert "v" * 41 not in shown.stdout
    assert "did you mean year?" in shell("fields", "add", "yaer", "number", code=2).stderr
    assert "has an index now" in shell("fields", "add", "yaer", "number", "--force").stderr
    assert "'number' or 'text'" in shell("fields", "add", "tags", "list", code=2).stderr
    assert shell.objects("fields", "remove", "year") == [{"name": "year", "dropped": ["number"]}]
    assert "yaer has no index now (number)" in shell("fields", "remove", "yaer").stderr
    assert "the field year has no index" in shell("fields", "remove", "year", code=2).stderr
