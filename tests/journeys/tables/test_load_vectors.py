"""Rows of tables with their vectors: stored as they are or refused by their number, read in parts, not loaded twice."""

import asyncio
import json
import re
import resource
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import BulkIngestConfig, Document
from semlex.errors import ConfigurationError, DuplicateError, ModelMismatchError, ValidationError
from semlex.ingest.bulk.row_batch import RowFields
from semlex.ingest.bulk.sources import joined_batches, opened_sources
from semlex.store.write import chunks as chunks_module
from semlex.testing import HashEmbedder
from tests.support.folders import folder_with
from tests.support.foreign_tables import stored_rows
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import sync_opened
from tests.support.waiting import LIMIT, turns

WIDTH = 3
SMALL = BulkIngestConfig(batch_size=4, small_batch_rows=0)
retriever = partial(sync_opened, model="none", collection="rows")
loads = st.tuples(
    st.lists(st.tuples(st.integers(0, 9), st.text("abc é", min_size=1).filter(str.strip)), max_size=9),
    st.sampled_from(["update", "skip", "fail"]),
)
# The text of a stored row that has no vector, and a second row of an id, which replaces the first.
MORE = [
    {"id": "plain", "text": "no vector", "vector": [1.0, 1.0, 0.5]},
    {"id": "r0", "text": "the last of an id counts", "vector": [1.0, 1.0, 0.5], "year": 1},
]


@pytest.fixture
def store(database_url):
    with retriever(database_url, bulk=SMALL) as opened:
        yield opened


@pytest.fixture(scope="module")
def empty(new_database):
    """For what is refused: every test leaves it as it is."""
    with retriever(new_database(), bulk=SMALL) as opened:
        yield opened


def columns(count, first=0):
    numbers = range(first, first + count)
    return {
        "id": [f"r{number}" for number in numbers],
        "text": [f"apple number {number}" for number in numbers],
        "vector": np.array([[number + 1, 1, 0.1] for number in numbers], dtype=np.float32).reshape(count, WIDTH),
        "year": [2000 + number for number in numbers],
        "kind": ["even" if number % 2 == 0 else None for number in numbers],
    }


def table(count, first=0):
    made = columns(count, first)
    return pa.table(made | {"vector": pa.array(made["vector"].tolist(), pa.list_(pa.float32(), WIDTH))})


def expected(given_columns):
    """As `stored_rows` finds them: id -> text, metadata, bytes of the vector."""
    head = WIDTH.to_bytes(2, "big") + bytes(2)
    rows = zip(*(given_columns[name] for name in ("id", "text", "vector", "year", "kind")), strict=True)
    return {
        chunk_id: (text, {"year": year} | ({"kind": kind} if kind else {}), head + vector.astype(">f4").tobytes())
        for chunk_id, text, vector, year, kind in rows
    }


def parquet(folder, count):
    path = folder / "rows.parquet"
    pq.write_table(table(count), path, row_group_size=3)
    return path


def json_lines(folder, count):
    path = folder / "rows.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in table(count).to_pylist()), encoding="utf-8")
    return path


SOURCES = {
    "columns": lambda _, count: columns(count),
    "lists": lambda _, count: columns(count) | {"vector": columns(count)["vector"].tolist()},
    "table": lambda _, count: table(count),
    "reader": lambda _, count: table(count).to_reader(max_chunksize=3),
    "record batches": lambda _, count: iter(table(count).to_batches(max_chunksize=3)),
    "iterator of columns": lambda _, count: (columns(min(3, count - first), first) for first in range(0, count, 3)),
    "parquet": parquet,
    "json lines": json_lines,
    "folder": lambda folder, count: parquet(folder, count).parent,
    "paths": lambda folder, count: [str(parquet(folder, count))],
}


@pytest.mark.slow
def test_every_source_stores_the_same(database_url, store, tmp_path):
    for kind, rows in SOURCES.items():
        for count in (1, 4, 11):
            report = store.tables.load(rows(tmp_path, count))
            assert (report.rows, report.written) == (count, count), kind
            assert stored_rows(database_url, "rows") == expected(columns(count)), kind
        assert store.search("apple number 0", mode="keyword")[0].id == "r0", kind
        store.delete(columns(11)["id"])
        (tmp_path / "rows.jsonl").unlink(missing_ok=True)  # the next kind may load the whole folder


@pytest.mark.slow
def test_rows_are_the_same_as_added_documents(database_url):
    rows = columns(3)
    with retriever(database_url, collection="loaded") as loaded, retriever(database_url, collection="added") as added:
        loaded.tables.load(columns(0))
        added.add_documents([], None)
        loaded.tables.load(rows)
        documents = [Document(text, values, id=name) for name, (text, values, _) in expected(rows).items()]
        added.add_documents(documents, rows["vector"])
    assert stored_rows(database_url, "loaded") == stored_rows(database_url, "added")


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(10, full=100), deadline=None)
@given(runs=st.lists(loads, max_size=4))
def test_loads_after_each_other_are_a_mapping(store, runs):
    """What is in the collection is what a dict has after the same calls."""
    model, every = {}, [str(number) for number in range(10)]
    store.delete(every)
    for rows, mode in runs:
        numbers, texts = [number for number, _ in rows], [text for _, text in rows]
        batch = {"id": numbers, "text": texts, "vector": np.full((len(rows), WIDTH), 1, np.float32)}
        try:
            store.tables.load(batch, on_duplicate=mode)
        except DuplicateError:
            assert mode == "fail"
        for start in range(0, len(rows), SMALL.batch_size):
            part = [(str(number), text) for number, text in rows[start : start + SMALL.batch_size]]
            names = {name for name, _ in part}
            if mode == "fail" and (len(names) < len(part) or names & set(model)):
                break
            for name, text in part:
                if mode != "skip" or name not in model:
                    model[name] = text
    assert {document.id: document.content for document in store.get(every)} == model


def test_fields_may_have_other_names_and_types(database_url, store):
    fields = {"id": "key", "text": "body", "vector": "embedding"}
    renamed = {fields.get(name, name): values for name, values in columns(2).items()}
    renamed["metadata"] = ['{"year": 1, "extra": {"a": [1]}}', None]
    names = {f"{field}_field": name for field, name in fields.items()}
    store.tables.load(renamed, **names, metadata_fields=["kind", "metadata"])
    found = stored_rows(database_url, "rows")
    assert (found["r0"][1], found["r1"][1]) == ({"kind": "even", "year": 1, "extra": {"a": [1]}}, {})
    # Arrow values become JSON.
    moment = datetime(2024, 5, 6, 7, 8, 9, 10, UTC)
    rows = table(1).select(["id", "text", "vector"])
    for name, values in {
        "day": pa.array([date(2024, 5, 6)]),
        "moment": pa.array([moment], pa.timestamp("ns", "UTC")),
        "east": pa.array([moment], pa.timestamp("us", "+02:00")),
        "deep": pa.array([{"times": [moment], "n": None}]),
        "word": pa.array(["red"]).dictionary_encode(),
        "nothing": pa.nulls(1),
        "small": pa.array([1.5], pa.float32()),
    }.items():
        rows = rows.append_column(name, values)
    store.tables.load(rows)
    at, found = moment.isoformat(), stored_rows(database_url, "rows")["r0"][1]
    assert found.pop("deep") == {"times": [at], "n": None}
    assert found == {"day": "2024-05-06", "moment": at, "east": at, "word": "red", "small": 1.5}
    # Other numbers are rounded to float32.
    kinds = [(kind, width) for kind in (pa.float16(), pa.float64(), pa.int8()) for width in (WIDTH, -1)]
    for number, (kind, width) in enumerate(kinds):
        numbers = [number, 2, 3]
        vector = pa.array([numbers], pa.list_(pa.float64(), width)).cast(pa.list_(kind, width))
        store.tables.load(table(1).drop("vector").append_column("vector", vector))
        assert np.frombuffer(stored_rows(database_url, "rows")["r0"][2][4:], ">f4").tolist() == numbers, (kind, width)
    # Missing ids are derived from the row.
    rows, before = columns(3), store.count()
    del rows["id"]
    for _ in range(2):
        assert (store.tables.load(rows).written, store.count()) == (3, before + 3)


def changed(**values):
    return columns(3) | values


ROWS = [
    (changed(vector=[[1, 2, 3], None, [1, 2, 3]]), "row 1 (id 'r1'): vector must be given"),
    (changed(vector=[[1, 2, 3], [1, 2, 3], [1, 2]]), "row 2 (id 'r2'): vector must have 3 components"),
    (changed(vector=[[1, 2, 3], ["a", "b", "c"], [1, 2, 3]]), "row 1 (id 'r1'): vector must be a list of numbers"),
    (changed(vector=[[1, 2, 3], [[1], [2], [3]], [1, 2, 3]]), "row 1 (id 'r1'): vector must be a list of numbers"),
    (changed(vector=[[1, 2, 3], [1, 2, float("nan")], [1, 2, 3]]), "row 1 (id 'r1'): vector holds NaN"),
    (changed(vector=[[1, 2, 3], [1, 2, 1e300], [1, 2, 3]]), "row 1 (id 'r1'): vector holds NaN or infinity"),
    (changed(text=["a", None, "c"]), "row 1 (id 'r1'): text must be given"),
    (changed(text=["a", "b", ""]), "row 2 (id 'r2'): text"),
    (changed(text=["a", 5, "c"]), "row 1 (id 'r1'): text"),
    (changed(text=["a", "b\0", "c"]), "row 1 (id 'r1'): text holds a NUL character"),
    (changed(id=["a", None, "c"]), "row 1: id must be given"),
    (changed(id=["a", "b", 1.5]), "row 2: id must be a text or a whole number"),
    (changed(metadata=[{}, "[1]", {}]), "row 1 (id 'r1'): metadata must be an object"),
    (changed(kind=[1, {1, 2}, 3]), "row 1 (id 'r1'): metadata"),
    (changed(year=[1, 2]), "year must match 3 rows of 'text'"),
]
ARROW_ROWS = {
    "row 1: vector must be given": [[1, 2], None],
    "row 1: vector holds NaN": [[1, 2], [None, 1]],
    "row 2: vector must have 2 components; got 1": [[1, 2], [1, 2], [1]],
    "vector": [[], []],
}
SCHEMAS = [
    ({"text": None}, "has no field 'text': text_field must name one of 'id', 'vector'"),
    ({"vector": None}, "has no field 'vector': vector_field must name one of"),
    ({"vector": ["[1, 2, 3]"]}, "field 'vector' must hold lists of numbers, but is of type string"),
    ({"vector": [["a"]]}, "must hold lists of numbers"),
    ({"vector": [[[1.0]]]}, "must hold lists of numbers"),
    ({"text": [1]}, "field 'text' must hold text, but is of type int64"),
    ({"id": [1.5]}, "field 'id' must hold text or whole numbers"),
    ({"extra": [b"x"]}, "field 'extra' is of type binary, which JSON does not have"),
    ({"extra": [Decimal("1.5")]}, "field 'extra' is of type decimal"),
    ({"extra": [{"a": [b"x"]}]}, "field 'extra' is of type struct"),
    ({f"c{number}": [1] for number in range(1_001)}, "has 1,004 fields, at most 1,000"),
]


def test_a_wrong_row_is_named_and_nothing_is_stored(empty, tmp_path):
    for rows, message in ROWS:
        with pytest.raises(ValidationError, match=re.escape(message)) as refused:
            empty.tables.load(rows)
        assert "apple" not in str(refused.value)
    for message, given_vectors in ARROW_ROWS.items():
        names = [f"r{number}" for number in range(len(given_vectors))]
        rows = pa.table({"id": names, "text": names, "vector": pa.array(given_vectors, pa.list_(pa.float32()))})
        pq.write_table(rows, tmp_path / "rows.parquet")
        for given_rows, where in ((rows, ""), (tmp_path / "rows.parquet", "rows.parquet")):
            with pytest.raises(ValidationError, match=re.escape(message)) as refused:
                empty.tables.load(given_rows)
            assert where in str(refused.value)
    assert empty.count() == 0


@pytest.mark.slow
def test_wrong_columns_are_refused_before_any_row(empty, tmp_path):
    pq.write_table(table(3), tmp_path / "a.parquet")
    for values, message in SCHEMAS:
        given_columns = {"id": ["r0"], "text": ["a pear"], "vector": [[1.0, 2.0, 3.0]]} | values
        rows = pa.table({name: value for name, value in given_columns.items() if value is not None})
        pq.write_table(rows, tmp_path / "b.parquet")
        for given_rows in (rows, tmp_path):
            with pytest.raises(ConfigurationError, match=re.escape(message)):
                empty.tables.load(given_rows)
    assert empty.count() == 0


def test_what_is_no_table_is_refused(empty, tmp_path):
    data = parquet(tmp_path, 9).read_bytes()
    (tmp_path / "empty").mkdir()
    files = {"cut.parquet": data[: len(data) // 2], "zero.parquet": b"", "rows.csv": b"a,b\n", "list.jsonl": b"[1]\n"}
    files |= {"bytes.jsonl": b'{"text": "\xff"}\n', "half.jsonl": b'{"text": "a"'}
    folder_with(tmp_path, files | {"deep.jsonl": b'{"text": ' + b"[" * 100_000 + b"\n"})
    for name in ("cut.parquet", "zero.parquet", "rows.csv", "empty", "nothing.parquet", "deep.jsonl", "bytes.jsonl"):
        with pytest.raises(ConfigurationError, match=name):
            empty.tables.load(tmp_path / name)
    for name in ("list.jsonl", "half.jsonl"):
        with pytest.raises((ConfigurationError, ValidationError), match=name):
            empty.tables.load(tmp_path / name)
    for wrong in (None, 5, "text", b"text", [5], [None]):
        with pytest.raises(ConfigurationError):
            empty.tables.load(wrong)
    assert empty.count() == 0
    (source,) = opened_sources(tmp_path / "rows.parquet", RowFields())
    pq.write_table(pa.table({"id": ["a"], "body": ["b"]}), tmp_path / "rows.parquet")  # became another file
    with pytest.raises(ConfigurationError, match="text"):
        list(source.batches(10))


def test_a_page_that_was_changed_stores_whole_batches_only(database_url, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(table(300), path, row_group_size=100, compression="zstd", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[pq.read_metadata(path).row_group(2).column(0).data_page_offset + 100] ^= 0xFF
    path.write_bytes(data)
    with retriever(database_url, bulk=BulkIngestConfig(batch_size=100)) as store:
        with pytest.raises(ConfigurationError, match=r"rows.parquet cannot be read: .*checksum") as refused:
            store.tables.load(path)
        kept = store.count()
    assert kept in (0, 100, 200)  # what has been read is on its way
    assert kept == 0 or f"the {kept} rows before the error are stored" in str(refused.value)


def test_a_wrong_row_in_the_middle_leaves_whole_batches(store):
    rows = columns(10)
    rows["text"][9] = ""
    with pytest.raises(ValidationError) as refused:
        store.tables.load(rows)
    assert "row 9 (id 'r9'): text" in str(refused.value)
    assert "the 8 rows before the error are stored; correct the data, then load all rows again" in str(refused.value)
    assert store.count() == 8
    rows["text"][9] = "a plum"
    assert (store.tables.load(rows, on_duplicate="skip").written, store.count()) == (2, 10)
    parts = [columns(4, 20), columns(4, 24) | {"vector": np.ones((4, WIDTH + 1), np.float32)}]
    with pytest.raises(ModelMismatchError):
        store.tables.load(iter(parts))
    assert store.count() == 14


def test_ids_that_are_stored_fail_the_batch(store):
    store.tables.load(columns(2))
    for rows, repeated in ((columns(3, 1), "r1"), (changed(id=["x", "y", "x"]), "x")):
        with pytest.raises(DuplicateError) as refused:
            store.tables.load(rows, on_duplicate="fail")
        assert (refused.value.ids, store.count()) == ((repeated,), 2)
    with pytest.raises(ConfigurationError, match="on_duplicate must be 'update', 'skip' or 'fail'"):
        store.tables.load(columns(1), on_duplicate="replace")
    with pytest.raises(DuplicateError, match="'r0'"):
        store.add_documents([Document("b", id="b"), Document("c", id="r0")], np.ones((2, 3)), on_duplicate="fail")
    assert [found.content for found in store.get(["r0", "b"])] == ["apple number 0"]


@pytest.mark.slow
@pytest.mark.parametrize("connections", [1, 2])
def test_batches_go_over_as_many_connections_as_there_are(database_url, connections):
    given_rows, alive = columns(23), []
    documents = [Document(text, id=one) for text, one in zip(given_rows["text"], given_rows["id"], strict=True)]
    send = chunks_module.copy_rows

    async def counted(connection, *arguments):
        alive.append(connection)
        seen.add(len(set(alive)))
        if len(set(alive)) == connections:
            together.set()
        try:
            await asyncio.wait_for(together.wait(), LIMIT)  # until the others have begun
            await turns()  # one too many may begin
            return await send(connection, *arguments)
        finally:
            alive.remove(connection)

    with retriever(database_url, bulk=SMALL, max_connections=connections, timeout=LIMIT) as opened:
        for add, given in (opened.tables.load, [given_rows]), (opened.add_documents, [documents, given_rows["vector"]]):
            seen, together = set(), asyncio.Event()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(chunks_module, "copy_rows", counted)
                add(*given)
            assert max(seen) == connections, add
            assert opened.count() == 23


def test_import_on_the_command_line(shell):
    parquet(shell.folder, 5)
    load = ("documents", "import", "rows.parquet", "-c", "c")
    assert [(report["rows"], report["written"]) for report in shell.objects(*load)] == [(5, 5)]
    assert "0 rows stored, 5 unchanged or repeated" in shell(*load, "--on-duplicate", "skip").stderr
    assert "rows.parquet has no field 'body'" in shell(*load, "--text-field", "body", code=2).stderr
    assert "these ids are stored already or given twice: 'r0'" in shell(*load, "--on-duplicate", "fail", code=2).stderr
    assert shell.objects("search", "apple number 3", "-c", "c", "--mode", "keyword")[0]["metadata"]["year"] == 2003


@pytest.mark.slow
def test_a_folder_may_hold_more_files_than_a_process_may_open(tmp_path):
    files = 60
    for number in range(files):
        pq.write_table(table(2, number * 2), tmp_path / f"{number:03}.parquet")
    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + files // 2, bounds[1]))
    try:
        sources = opened_sources(tmp_path, RowFields())
        assert [source.count for source in sources] == [2] * files
        ids = [one for batch in joined_batches(sources, 100) for one in batch.ids]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
    assert ids == columns(files * 2)["id"]


def rows_read(collection, parts, limit):
    for part in range(parts):
        after = None
        while (batch := collection.tables.read(part=part, parts=parts, after=after, limit=limit)).num_rows:
            assert batch.num_rows <= limit
            yield from batch.to_pylist()
            after = batch["id"][-1].as_py()


def test_parts_are_the_whole_collection_once(store):
    assert store.tables.read().num_rows == 0
    store.tables.load(columns(60))
    store.add_documents([{"id": "plain", "text": "no vector"}])
    ids = [one.id for one in store.list_chunks(limit=1_000)]
    rows = zip(expected(columns(60)).items(), columns(60)["vector"].tolist(), strict=True)
    wanted = {one: (text, "", json.dumps(values, sort_keys=True), vector) for (one, (text, values, _)), vector in rows}
    wanted["plain"] = ("no vector", "", "{}", None)
    names = ("id", "text", "source_document", "metadata", "vector")
    for parts, limit in ((1, 1), (1, 10_000), (3, 7), (64, 5)):
        found = [tuple(row[name] for name in names) for row in rows_read(store, parts, limit)]
        assert found == [(one, *wanted[one]) for one in ids], parts  # in the order of keys


def test_a_page_has_the_vectors_that_another_program_stored(database_url, store):
    assert store.tables.read().num_rows == 0
    with retriever(database_url) as other:
        other.tables.load(columns(3))
        assert store.tables.read()["vector"].to_pylist() == other.tables.read()["vector"].to_pylist()
        other.embeddings.change(HashEmbedder(5))
        other.embeddings.drop(1, force=True)
        assert store.tables.read()["vector"].type.list_size == 5
    parts = {"part": 2, "parts": 2}, {"part": -1}, {"parts": 0}, {"parts": True}
    for wrong in (*parts, {"limit": 0}, {"limit": 10_001}):
        with pytest.raises(ConfigurationError):
            store.tables.read(**wrong)


def titled(count):
    return [row | {"section_title": "Fruit"} for row in table(count).to_pylist()]


def test_stored_rows_are_not_written_again_and_vectors_of_stored_texts_are_given(store):
    def load(rows, **options):
        return store.tables.load(pa.Table.from_pylist(rows), **{"skip_unchanged": True} | options).written

    def stored_vectors(rows):
        found = store.tables.stored_vectors(pa.Table.from_pylist(rows).drop("vector"))
        return {number: vector.tolist() for number, vector in found.items()}

    rows = titled(60)
    assert stored_vectors(rows) == {}
    assert [load(rows[:20]), load(rows[:40]), load(rows[:40])] == [20, 20, 0]
    store.add_documents([{"id": "plain", "text": "no vector"}])
    rows[3]["text"] = "a pear"
    rows[11]["year"] = 1  # of no matter to the vector
    rows[12]["section_title"] = "Trees"  # embedded with the text
    rows[13]["year"] = None  # no key
    rows += MORE
    # An id is repeated in another batch.
    assert stored_vectors(rows) == {number: rows[number]["vector"] for number in {*range(40)} - {3, 12}}
    assert [load(rows), load(rows[1:]), load(titled(60), on_duplicate="skip")] == [26, 0, 0]
    # Vectors of unchanged rows are not compared.
    other = rows[1] | {"vector": [1.0, 2.0, 3.0]}
    for skip_unchanged, kept in ((True, rows[1]), (False, other)):
        assert load([other], skip_unchanged=skip_unchanged) == (not skip_unchanged)
        assert store.embeddings.vectors(["r1"])["r1"].tolist() == kept["vector"]
    with pytest.raises(ConfigurationError, match="no field 'text'"):
        store.tables.stored_vectors(pa.table({"id": ["a"]}))
    with pytest.raises(ValidationError, match="text"):
        store.tables.stored_vectors(pa.table({"id": ["a", "b"], "text": ["fine", ""]}))


@pytest.mark.parametrize("storage", ["vector", "halfvec"])
def test_vectors_come_back_by_id(database_url, storage):
    rows = np.random.default_rng(7).normal(size=(5, 6)).astype(np.float32)
    kept = rows if storage == "vector" else rows.astype(np.float16).astype(np.float32)
    with (
        sync_opened(database_url, "none", collection="given", vector_storage=storage) as store,
        sync_opened(database_url, "none", collection="given") as early,
    ):
        assert (store.embeddings.vectors(["0"]), early.count()) == ({}, 0)
        store.add_texts(list("abcde"), ids=list("01234"), embeddings=rows)
        store.add_documents([Document("without", id="words")])
        for reader in (store, early):  # `early` was opened before the first vectors
            found = reader.embeddings.vectors(["3", "words", "none", "0", "3"])
            assert {name: vector.tolist() for name, vector in found.items()} == {n: kept[int(n)].tolist() for n in "03"}
            assert {vector.dtype for vector in found.values()} == {np.dtype(np.float32)}
        assert store.embeddings.vectors([]) == {}
        with pytest.raises(ValidationError, match="ids must be a list of str"):
            store.embeddings.vectors("0")
    with sync_opened(database_url, 8, collection="made") as made:  # vectors that a model made
        made.add_texts(["a lion"], ids=["lion"])
        assert np.allclose(made.embeddings.vectors(["lion"])["lion"], HashEmbedder(8).embed_documents(["a lion"])[0])
