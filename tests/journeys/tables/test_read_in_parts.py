"""`tables.read` and `tables.stored_vectors`: a collection read in parts, and rows that are stored already."""

import numpy as np
import pyarrow as pa
import pytest

from semlex import BulkIngestConfig, Document
from semlex.errors import ConfigurationError, ValidationError
from semlex.testing import HashEmbedder
from tests.support.retrievers import sync_opened

ROWS = 60
SMALL = BulkIngestConfig(batch_size=7, small_batch_rows=0)


def table(rows, *, with_vectors=True):
    made = pa.Table.from_pylist(rows)
    vectors = [[float(len(row["text"])), float(row["year"] or 0), 0.5] for row in rows]
    return made.append_column("vector", pa.array(vectors, pa.list_(pa.float32(), 3))) if with_vectors else made


def rows_of(count):
    numbers = range(count)
    return [{"id": f"r{n}", "text": f"apple number {n}", "year": 2000 + n, "section_title": "Fruit"} for n in numbers]


# Two more rows: one without a vector, and a second row of an id, which replaces the first.
MORE = [
    {"id": "plain", "text": "no vector", "year": None, "section_title": None},
    {"id": "r0", "text": "the last of an id counts", "year": 1, "section_title": None},
]


@pytest.fixture
def store(database_url):
    with sync_opened(database_url, model="none", collection="rows", bulk=SMALL) as opened:
        yield opened


def rows_read(collection, parts, limit):
    for part in range(parts):
        after = None
        while (batch := collection.tables.read(part=part, parts=parts, after=after, limit=limit)).num_rows:
            assert batch.num_rows <= limit
            yield from batch.to_pylist()
            after = batch["id"][-1].as_py()


def test_parts_are_the_whole_collection_once(store):
    assert store.tables.read().num_rows == 0
    store.tables.load(table(rows_of(ROWS)))
    store.add_documents([{"id": "plain", "text": "no vector"}])
    ids = [one.id for one in store.list_chunks(limit=1_000)]
    given = {row["id"]: row for row in table(rows_of(ROWS)).to_pylist()}
    for parts, limit in ((1, 1), (1, 10_000), (3, 7), (64, 5)):
        found = [*rows_read(store, parts, limit)]
        assert [row["id"] for row in found] == ids, parts  # in the order of keys
        for row in found:
            if row["id"] == "plain":
                assert (row["text"], row["metadata"], row["vector"]) == ("no vector", "{}", None)
                continue
            expected = given[row["id"]]
            assert (row["text"], row["source_document"]) == (expected["text"], "")
            assert np.array_equal(row["vector"], expected["vector"])
            assert row["metadata"] == f'{{"year": {expected["year"]}, "section_title": "Fruit"}}'


def test_a_page_has_the_vectors_that_another_program_stored(database_url, store):
    assert store.tables.read().num_rows == 0
    with sync_opened(database_url, model="none", collection="rows") as other:
        other.tables.load(table(rows_of(3)))
        assert store.tables.read()["vector"].to_pylist() == other.tables.read()["vector"].to_pylist()
        other.embeddings.change(HashEmbedder(5))
        other.embeddings.drop(1, force=True)
        assert store.tables.read()["vector"].type.list_size == 5
    for wrong in (
        {"part": 2, "parts": 2},
        {"part": -1},
        *({"limit": n} for n in (0, 10_001)),
        {"parts": 0},
        {"parts": True},
    ):
        with pytest.raises(ConfigurationError):
            store.tables.read(**wrong)


def test_unchanged_rows_are_not_written_again(store):
    def load(rows):
        return store.tables.load(table(rows), skip_unchanged=True).written

    rows = rows_of(ROWS)
    assert load(rows[:20]) == 20
    assert load(rows) == ROWS - 20
    assert load(rows) == 0
    rows[3]["text"] = "a pear"
    rows[11]["year"] = 1
    rows[12]["section_title"] = "Trees"  # embedded with the text
    rows[13]["year"] = None  # no key
    store.add_documents([{"id": "plain", "text": "no vector"}])
    rows += MORE
    assert load(rows) == 6
    assert load(rows[1:]) == 0
    assert store.tables.load(table(rows_of(ROWS)), on_duplicate="skip", skip_unchanged=True).written == 0
    # Vectors of unchanged rows are not compared.
    given = table(rows[1:2])
    other = given.set_column(4, "vector", pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32(), 3)))
    for options, written in (({"skip_unchanged": True}, 0), ({}, 1)):
        assert store.tables.load(other, **options).written == written
        expected = (other if written else given)["vector"][0].as_py()
        assert store.embeddings.vectors(["r1"])["r1"].tolist() == expected


def test_vectors_of_stored_texts_need_not_be_made_again(store):
    rows = rows_of(20)
    assert store.tables.stored_vectors(table(rows, with_vectors=False)) == {}
    given = table(rows)
    store.tables.load(given.slice(0, 10))
    store.add_documents([{"id": "plain", "text": "no vector"}])
    rows[3]["text"] = "a pear"
    rows[4]["year"] = 1  # of no matter to the vector
    rows[5]["section_title"] = "Trees"  # embedded with the text
    rows += MORE
    found = store.tables.stored_vectors(table(rows, with_vectors=False))
    assert sorted(found) == [0, 1, 2, 4, 6, 7, 8, 9]  # an id is repeated in another batch
    for number, vector in found.items():
        assert np.array_equal(vector, given["vector"][number].as_py())
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
        assert store.embeddings.vectors(["0"]) == {}
        assert early.count() == 0
        store.add_texts(list("abcde"), ids=list("01234"), embeddings=rows)
        store.add_documents([Document("without", id="words")])
        for reader in (store, early):  # `early` was opened before the first vectors
            found = reader.embeddings.vectors(["3", "words", "none", "0", "3"])
            assert set(found) == {"0", "3"}
            assert all(np.array_equal(vector, kept[int(name)]) for name, vector in found.items())
            assert all((vector.dtype, vector.shape) == (np.float32, (6,)) for vector in found.values())
        assert store.embeddings.vectors([]) == {}
        with pytest.raises(ValidationError, match="ids must be a list of str"):
            store.embeddings.vectors("0")
    with sync_opened(database_url, 8, collection="made") as made:  # vectors that a model made
        made.add_texts(["a lion"], ids=["lion"])
        assert np.allclose(made.embeddings.vectors(["lion"])["lion"], HashEmbedder(8).embed_documents(["a lion"])[0])
