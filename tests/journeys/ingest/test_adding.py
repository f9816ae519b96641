"""What `add_documents` takes: lists and iterables of all kinds of documents, as they were at the call."""

import asyncio
import re
from dataclasses import fields
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from itertools import product
from types import SimpleNamespace
from uuid import UUID

import numpy as np
import pytest

from semlex import BulkIngestConfig, ChunkMetadata, Document, F, ValidationError, VectorDocument
from semlex.errors import ConfigurationError, ModelError
from semlex.testing import HashEmbedder
from semlex.types.documents import MAX_CHUNK_BYTES
from tests.support.retrievers import opened
from tests.support.waiting import turns

COUNT = 5
CHUNK = {"source_document": "page", "token_count": 2, "section_title": "Keys"}


@pytest.fixture
async def store(database_url):
    async with opened(database_url) as store:
        yield store


def documents(count=COUNT):
    return [Document(f"text {number}", {"number": number}, id=f"d{number}") for number in range(count)]


async def test_values_of_python_and_numpy_are_stored_as_json(store):
    key, day = UUID("12345678-1234-5678-1234-567812345678"), date(2026, 1, 31)
    late = datetime(2026, 1, 31, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    metadata = {"at": late, "day": day, "key": key, "price": Decimal("19.90"), "n": np.int64(7)}
    metadata["in"] = {"n": [np.int8(1)]}
    given = Document("text", metadata, id=5, parent_id=6, child_ids=[7, key])
    assert await store.add_documents([given, Document("other", {"n": 8}, id=np.int64(8))]) == ["5", "8"]
    [found] = await store.get([5])
    assert (found.id, found.parent_id, found.child_ids) == ("5", "6", ["7", str(key)])
    stored = {"at": "2026-01-30T23:30:00+00:00", "day": "2026-01-31", "key": str(key), "price": 19.9, "n": 7}
    assert found.metadata == stored | {"in": {"n": [1]}}
    assert metadata["at"] is late
    # Filters take the same values.
    same, a_while = [{name: value} for name, value in metadata.items()], F("day").between(date(2026, 1, 1), day)
    for filters in (*same, F("at") <= late, a_while, F("n") < np.float32(8), F("key").in_([key])):
        assert [chunk.id for chunk in await store.list_chunks(filters)] == ["5"]
    assert await store.add_texts(["text"], ids=[9], metadata=[{"n": np.uint8(9)}]) == ["9"]
    assert (await store.delete([5, 8])).chunks == 2


async def test_ids_follow_from_the_content_and_a_repeated_id_is_stored_once(store):
    day = date(2026, 1, 31)
    [first] = await store.add_texts(["text"], metadata=[{"day": day}])
    assert await store.add_texts(["text"], metadata=[{"day": day.isoformat()}]) == [first]
    assert await store.add_documents([Document("text", {}, None)]) == await store.add_documents([Document("text")])
    assert await store.count() == 2
    # The last document of a repeated id is stored, or the first if existing ones are skipped.
    for name, way, expected in (("a", "update", "second"), ("b", "skip", "first")):
        await store.add_documents([Document("first", id=name), Document("second", id=name)], on_duplicate=way)
        assert (await store.get([name]))[0].content == expected


async def test_every_iterable_is_stored_whole(store):
    given = documents()
    names = [document.id for document in given]
    for iterable in (
        *(list, tuple, iter, partial(filter, None), partial(map, lambda row: row)),
        lambda rows: (row for row in rows),
        lambda rows: {row.id: row for row in rows}.values(),
    ):
        assert await store.add_documents(iterable(given)) == names
        assert await store.count() == COUNT
        assert await store.upsert(iterable(given)) == names
        assert [found.content for found in await store.get(names)] == [document.content for document in given]
        assert (await store.delete(names)).chunks == COUNT
    ids = await store.add_texts((text for text in ("a", "b")), ids=iter("ab"), metadata=({} for _ in range(2)))
    assert (ids, await store.count()) == (["a", "b"], 2)
    # Chunks that were cut elsewhere are stored with their titles.
    chunks = [ChunkMetadata(f"c{number}", chunk_text=f"chunk {number}", **CHUNK) for number in range(3)]
    assert await store.add_documents([*chunks, Document("text", id="d")]) == ["c0", "c1", "c2", "d"]
    hit = (await store.search("keys", mode="keyword", filters={"source_document": "page"}))[0]
    assert (hit.heading_path, hit.metadata["token_count"]) == (("Keys",), 2)
    # The rows of a data frame are documents.
    rows = {"records": [{"text": "a", "year": 2020}]}
    frame = SimpleNamespace(columns=("text", "year"), to_dict=rows.__getitem__)
    [found] = await store.get(await store.add_documents(frame))
    assert (found.content, found.metadata["year"]) == ("a", 2020)


async def test_invalid_calls_store_nothing(store):
    one = Document("one")
    no_lists = (None, 5, "text", b"text", one, {"d": one}, ChunkMetadata("c", "s", "text", 1))
    for wrong, call in product(no_lists, (store.add_documents, store.upsert, store.add_texts)):
        with pytest.raises(ValidationError, match=f"got .*{wrong and type(wrong).__name__}") as caught:
            await call(wrong)
        assert [(one.row, one.code) for one in caught.value.errors] == [(-1, "wrong_type")]
    with pytest.raises(ValidationError, match="ids must be a list of str"):
        await store.add_texts(["a"], ids="a")
    with pytest.raises(ValidationError):
        await store.add_documents(zip(documents(), "abcde", strict=True))  # pairs

    def failing():
        yield from documents()
        raise RuntimeError("the source ended early")

    with pytest.raises(RuntimeError, match="ended early"):
        await store.add_documents(failing())
    # If all documents are skipped, nothing is stored. A call that is wrong itself is refused nevertheless.
    found = await store.add_documents([Document(""), Document("\0")], on_error="skip")
    assert (found, [one.row for one in found.skipped]) == ([], [0, 1])
    with pytest.raises(ValidationError, match="must match 2 texts"):
        await store.add_texts(["a", "b"], ids=["a"], on_error="skip")
    for vectors in ([[1.0]], np.ones((1, 8)), np.float32(1)):
        with pytest.raises(ValidationError, match=r"^embeddings? must have"):
            await store.add_documents(documents(), vectors, on_error="skip")
        with pytest.raises(ValidationError):
            await store.add_documents(["no document", *documents()], vectors, on_error="skip")
    with pytest.raises(ConfigurationError, match="on_error must be 'raise' or 'skip'; got 'ignore'"):
        await store.add_documents(documents(), on_error="ignore")
    assert await store.count() == 0
    await store.add_documents([Document("old", id="a")])
    for way in ("Update", "", None, 1, "ignore"):
        with pytest.raises(ConfigurationError, match="on_duplicate must be 'update', 'skip' or 'fail'"):
            await store.add_documents([Document("new", id="a")], on_duplicate=way)
    assert (await store.get(["a"]))[0].content == "old"


@pytest.mark.parametrize("given", ["documents", "vectors of an array", "vectors of a list", "texts"])
async def test_documents_that_break_a_rule_are_skipped_when_asked(database_url, given):
    texts = [f"text {number}" for number in range(COUNT)]
    texts[1], ids = "bad\0", ["d0", "d1", "x" * 600, "d3", "d4"]
    metadata = [{}, {}, {}, {"key": {1}}, {}]
    rows = [Document(*row) for row in zip(texts, metadata, ids, strict=True)]
    vectors = np.eye(COUNT, dtype=np.float32)
    async with opened(database_url, "none" if "vectors" in given else COUNT) as store:
        if given == "texts":
            found = await store.add_texts(texts, ids=ids, metadata=metadata, on_error="skip")
        elif given == "vectors of a list":
            found = await store.upsert(iter(rows), list(vectors), on_error="skip")
        else:
            rows[4] = rows[4] if given == "vectors of an array" else "no document"
            found = await store.add_documents(rows, vectors if "vectors" in given else None, on_error="skip")
        kept = ["d0"] if given == "documents" else ["d0", "d4"]
        assert (found, await store.count()) == (kept, len(kept))
        told = [(one.row, one.field, one.code) for one in found.skipped]
        expected = [(1, "content", "nul"), (2, "id", "too_long"), (3, "metadata", "unsupported_type")]
        assert told == expected + [(4, "document", "wrong_type")] * (given == "documents")
        if "vectors" in given:
            assert (await store.embeddings.vectors(["d4"]))["d4"].tolist() == vectors[4].tolist()
        assert (await store.add_documents([Document("good", id="good")] if given != "texts" else [])).skipped == []


@pytest.mark.parametrize("empty", [True, False], ids=["direct", "merge"])
async def test_what_is_changed_meanwhile_is_not_stored(database_url, empty):
    given = [Document(f"text {number}", {"number": [number]}, id=f"d{number}") for number in range(300)]
    async with opened(database_url, bulk=BulkIngestConfig(batch_size=50)) as store:
        if not empty:
            await store.add_texts(["other"], ids=["other"])
        adding = asyncio.ensure_future(store.add_documents(given))
        await turns(1)  # the call has begun and waits for the database
        assert not adding.done()
        for document in given:
            document.content = document.id = document.language = "changed"
            document.metadata["number"].append("changed")
            document.metadata["more"] = float("nan")
        given.reverse()
        given[5:] = []
        ids = await adding
        assert ids == [f"d{number}" for number in range(300)]
        expected = [(f"text {number}", {"number": [number]}) for number in range(300)]
        assert [(one.content, one.metadata) for one in await store.get(ids)] == expected


async def test_vectors_that_chunks_bring_are_used(database_url):
    given = [VectorDocument(f"c{n}", chunk_text=f"chunk {n}", embedding=np.eye(16)[n], **CHUNK) for n in range(3)]
    async with opened(database_url, model="none") as store:
        await store.add_documents(given)
        for number in range(3):
            (hit,) = await store.search(vector=given[number].embedding, top_k=1)
            assert (hit.id, hit.vector_score, hit.created_at) == (f"c{number}", 1.0, given[number].created_at)
        with pytest.raises(ValidationError) as caught:
            await store.add_documents([*given, ChunkMetadata("c0", chunk_text="c", **CHUNK), Document("text", id="d")])
        expected = [(3, "c0", "embedding", "missing"), (4, "d", "embedding", "missing")]
        assert [(one.row, one.id, one.field, one.code) for one in caught.value.errors] == expected
        with pytest.raises(ConfigurationError, match="have their own vectors"):
            await store.add_documents(given, np.eye(16, dtype=np.float32)[:3])
        assert await store.count() == 3


def model_with(made):
    """A model that gives what `made` makes of right vectors, but for one text, by which it is known again."""
    model = HashEmbedder(16)
    right = model.embed_documents
    model.embed_documents = lambda texts: made(right(texts)) if len(texts) > 1 else right(texts)
    return model


WRONG = {
    "one row less": lambda rows: rows[:-1],
    "one row more": lambda rows: np.vstack([rows, rows[:1]]),
    "another dimension": lambda rows: rows[:, :8],
    "one axis": lambda rows: rows[0],
    "NaN": lambda rows: np.where(rows == rows[1], np.nan, rows),
    "zero": lambda rows: np.where(rows == rows[1], 0.0, rows),
    "too long": lambda rows: rows * np.float32(1e30),
    "ragged": lambda rows: [rows[0].tolist(), *rows[1:, :3].tolist()],
    "none": lambda _: None,
    "words": lambda rows: [["word"] * 16] * len(rows),
}


@pytest.mark.slow
async def test_vectors_of_a_model_are_checked_and_may_have_any_real_type(database_url):
    for kind, made in WRONG.items():
        async with opened(database_url, model=model_with(made)) as store:
            with pytest.raises(ModelError, match=r"semlex\.testing/hash"):
                await store.add_documents(documents())
            assert await store.count() == 0, kind
    for number, made in enumerate((lambda rows: rows.tolist(), lambda rows: rows.astype(np.float64))):
        async with opened(database_url, model=model_with(made), collection=f"c{number}") as store:
            await store.add_documents(documents())
            (best,) = await store.search("text 3", mode="vector", top_k=1)
            assert best.vector_score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("copied", [False, True], ids=["arrays", "copied"])
@pytest.mark.parametrize("empty", [True, False], ids=["first", "later"])
async def test_every_field_comes_back(database_url, empty, copied):
    time = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5)))
    document = Document(
        *("text", {"a": [1, 2.5, None, {"b": True}]}, "whole", "parent", ["part 1", 'part "2", {NULL}', "тре́тья"]),
        *(time, time + timedelta(days=1), "german"),
        timestamp_start="00:01:02",
        timestamp_end="00:01:02.5",
    )
    async with opened(database_url, bulk=BulkIngestConfig(small_batch_rows=0 if copied else 64)) as store:
        if not empty:
            await store.add_documents([Document("older", id="whole", child_ids=["x"]), Document("other", id="b")])
        await store.add_documents([document])
        found = [*await store.get(["whole"]), *await store.search("text", mode="keyword")]
        assert len(found) == 2
        for one, field in product(found, fields(Document)):
            if field.name != "created_at" or empty:  # a replaced text keeps the time it was first made
                assert getattr(one, field.name) == getattr(document, field.name)


WRONG_FIELDS = [
    *(("child_ids", wrong, "wrong_type") for wrong in (5, "ab", None, [1.5])),
    *(("child_ids", ["good", ""], "blank"), ("child_ids", ["x" * 513], "too_long")),
    *(("child_ids", ["a\0"], "nul"), ("child_ids", ["\ud800"], "lone_surrogate")),
    *(("timestamp_start", 3.5, "wrong_type"), ("timestamp_end", "\0", "nul"), ("timestamp_end", "x" * 513, "too_long")),
]


def words(size):
    """Text of addresses, each of which Postgres splits in three words."""
    return " ".join(f"{number:x}.co/{number:x}" for number in range(size // 8 + 1)).ljust(size, "x")[:size]


@pytest.mark.parametrize("keyword", ["tsvector", "bm25"])
async def test_titles_that_are_too_long_are_refused_before_anything_is_written(database_url, keyword):
    titles = {"chapter_title": words(6_000), "section_title": words(8_000), "subsection_title": words(2_384)}
    largest = Document(words(MAX_CHUNK_BYTES), titles, id="largest")
    too_long = Document("text", titles | {"subsection_title": [words(2_384), "x"]}, id="long")
    message = (
        "row 3 (id 'long'): metadata key 'section_title' must have at most 16,384 bytes, with the other titles; "
        "got 16,385 bytes: shorten or split it"
    )
    async with opened(database_url, "none", keyword=keyword, bulk=BulkIngestConfig(batch_size=2)) as store:
        with pytest.raises(ValidationError, match=f"^{re.escape(message)}$"):
            await store.add_documents([*documents(3), too_long])
        assert await store.count() == 0
        assert await store.add_documents([*documents(3), largest]) == ["d0", "d1", "d2", "largest"]
        assert await store.count() == 4


@pytest.mark.parametrize("has_model", [False, True])
@pytest.mark.parametrize("few", [64, 0], ids=["arrays", "copied"])
@pytest.mark.parametrize("stored", [False, True], ids=["first", "later"])
async def test_documents_with_and_without_vectors_go_in_together(database_url, has_model, few, stored):
    embedder, given = HashEmbedder(16), documents(7)
    vectors = [None, None, [1.0] * 16, np.ones(16), None, [2.0] * 16, None]
    bulk = BulkIngestConfig(small_batch_rows=few, batch_size=2)
    async with opened(database_url, model=embedder if has_model else "none", bulk=bulk) as store:
        if stored:
            await store.add_documents([Document("older", id="d2"), Document("older", id="d4"), Document("o", id="o")])
        assert await store.add_documents(given, vectors) == [one.id for one in given]
        found = await store.embeddings.vectors([one.id for one in given])
        made = embedder.embed_documents([one.content for one in given])
        for number, (one, brought) in enumerate(zip(given, vectors, strict=True)):
            if brought is None and not has_model:
                assert one.id not in found
            else:
                assert np.allclose(found[one.id], made[number] if brought is None else brought, atol=1e-5)
        assert [one.content for one in await store.get([one.id for one in given])] == [one.content for one in given]


WRONG_VECTORS = [
    ([[1.0] * 16, [1.0] * 15, [1.0] * 16], [(1, "d1", "wrong_dimension")]),
    ([None, [1.0] * 16, [1.0] * 15], [(2, "d2", "wrong_dimension")]),
    ([[1.0] * 16, None, ["one"] * 16], [(2, "d2", "wrong_dtype")]),
    ([[1.0] * 16, 5, None], [(1, "d1", "wrong_shape")]),
    ([[1.0] * 16, None, [float("inf")] * 16], [(2, "d2", "not_finite")]),
    ([[1.0] * 16, None], [(-1, None, "length_differs")]),
]


async def test_refused_fields_and_vectors_are_named_with_their_rows(store):
    for field, value, code in WRONG_FIELDS:
        bad = Document("text", id="bad")
        setattr(bad, field, value)
        with pytest.raises(ValidationError) as caught:
            await store.add_documents([Document("text", id="good", child_ids=["bad"]), bad])
        assert [(one.row, one.field, one.code) for one in caught.value.errors] == [(1, field, code)]
    for vectors, expected in WRONG_VECTORS:
        with pytest.raises(ValidationError) as caught:
            await store.add_documents(documents(3), vectors)
        assert [(one.row, one.id, one.code) for one in caught.value.errors] == expected
    assert await store.count() == 0
    await store.add_documents(documents(2), [None, None])  # as if no vectors were given
    assert len(await store.embeddings.vectors(["d0", "d1"])) == 2
    assert await store.add_documents([], []) == []
