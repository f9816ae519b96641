"""What cannot be stored or searched is refused before anything is written: its place is told, its content is not."""

import itertools
import random
import traceback
from datetime import UTC, date, datetime
from functools import partial

import numpy as np
import pytest

from semlex.errors import ConfigurationError, ModelMismatchError, ValidationError
from semlex.ingest.given_documents import MAX_WRONG_ITEMS
from semlex.testing import HashEmbedder
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_METADATA_BYTES, Document
from semlex.types.queries import SearchQuery
from tests.support.retrievers import sync_filled, sync_opened
from tests.support.synchronised import CountingEmbedder

DIMENSIONS = 8
# Planted in every refused row: none of these may stand in a message.
SECRET = "zebra-" * 3 + "stripes"
SECRET_NUMBER = 0.123456789
# A NUL; a high and a low surrogate, half of a pair, a reversed one, a pair as two.
SURROGATES = ("\ud800", "\udfff", "\ud83d tail", "\ude00\ud83d", "\ud83d\ude00")
UNSTORABLE = [("nul", f"{SECRET}\0"), *(("lone_surrogate", SECRET + bad) for bad in SURROGATES)]
PLACES = {
    "content": lambda bad: {"content": bad},
    "id": lambda bad: {"id": bad},
    "parent_id": lambda bad: {"parent_id": bad},
    "metadata key": lambda bad: {"metadata": {bad: 1}},
    "metadata value": lambda bad: {"metadata": {"key": bad}},
    "nested value": lambda bad: {"metadata": {"key": [{"inner": [bad]}]}},
    "nested key": lambda bad: {"metadata": {"key": [{"inner": {bad: None}}]}},
}


class DocumentCounter(CountingEmbedder):
    def embed_query(self, text):
        return HashEmbedder(DIMENSIONS).embed_query(text)


def told(error):
    """Everything of an error that a log may show."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


@pytest.fixture(scope="module")
def one_row(module_url):
    with sync_filled(module_url, {"first": "the first row"}, DocumentCounter(DIMENSIONS)) as retriever:
        yield retriever


@pytest.fixture
def store(one_row):
    """A collection with one row. A test leaves it as it is, found by both searches, and embeds no refused row."""
    DocumentCounter.texts = 0
    yield one_row
    assert (DocumentCounter.texts, one_row.count()) == (0, 1)
    results = one_row.search("first row")
    assert ([result.id for result in results], results.mode, results.warnings) == (["first"], "hybrid", [])


def refusal(call):
    """The refusal, once it is known to say nothing of the content."""
    with pytest.raises(ValidationError) as caught:
        call()
    # An id is no secret: it is how the row is named.
    named = {one.id for one in caught.value.errors}
    assert SECRET not in told(caught.value) or any(SECRET in (name or "") for name in named)
    assert str(SECRET_NUMBER)[:8] not in told(caught.value)
    assert len(str(caught.value)) < 2500
    return caught.value


def found(error):
    return [(one.row, one.field, one.code) for one in error.errors]


def nested(depth):
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


FILLER = "z" * (MAX_METADATA_BYTES - len('{"k":""}'))  # the most metadata that a chunk may have
BAD_METADATA = {
    "not_finite": [{"key": float("nan"), "other": SECRET}, {"key": [float("-inf")]}, {"key": np.float64("nan")}],
    "unsupported_type": [
        *({"key": wrong} for wrong in ({SECRET}, SECRET.encode(), datetime.now(UTC).time())),
        {"year": date(2026, 1, 1), "key": {SECRET}},
    ],
    "key_not_string": [{5: "number"}],
    "wrong_type": [[SECRET], SECRET, None],
    "too_deep": [nested(65), nested(100_000)],
    "too_long": [{"k": f"{FILLER}z"}],
}


def test_a_field_out_of_bounds(store):
    for (place, planted), (code, bad) in itertools.product(PLACES.items(), UNSTORABLE):
        document = Document(**{"content": "good", "id": "row-one"} | planted(bad))
        error = refusal(partial(store.add_documents, [Document("good", id="row-zero"), document]))
        field = place if place in ("content", "id", "parent_id") else "metadata"
        assert found(error) == [(1, field, code)], (place, bad)
        assert "row 1" in str(error)
        if place != "id":
            assert error.errors[0].id == "row-one"
    for document, field, code in (
        (Document("", id="x"), "content", "too_short"),
        *((Document(wrong, id="x"), "content", "wrong_type") for wrong in (5, b"bytes")),
        (Document("é" * (MAX_CHUNK_BYTES // 2) + "z", id="x"), "content", "too_long"),
        (Document("good", id="é" * 256 + "z"), "id", "too_long"),
        (Document("good", id=5.5), "id", "wrong_type"),
        (Document("good", parent_id="z" * 513), "parent_id", "too_long"),
        (Document("good", created_at=datetime(2026, 1, 1)), "created_at", "naive_timestamp"),  # noqa: DTZ001
        (Document("good", updated_at="today"), "updated_at", "wrong_type"),
        *((Document("good", wrong), "metadata", code) for code, wrongs in BAD_METADATA.items() for wrong in wrongs),
    ):
        assert found(refusal(partial(store.add_documents, [document]))) == [(0, field, code)]


def test_the_largest_values_and_numbers_of_any_type_are_stored(database_url):
    documents = [
        Document("x" * MAX_CHUNK_BYTES, id="i" * 512, metadata=nested(64)),
        Document("C", id="é" * 256, metadata={"k": FILLER}),
    ]
    with sync_opened(database_url, "none", collection="largest") as retriever:
        assert retriever.add_documents(documents) == [document.id for document in documents]
        kept = retriever.get([document.id for document in documents])
    assert [(one.content, one.metadata) for one in kept] == [(one.content, one.metadata) for one in documents]
    vectors = [np.array([[1, 2, 3], [3, 2, 1]], dtype=dtype) for dtype in ("f2", "f4", ">f4", "f8", "i2", "u8")]
    not_contiguous = np.arange(1, 13, dtype=np.float32).reshape(2, 6)[:, ::2]
    with sync_opened(database_url, "none") as retriever:
        for rows in (*vectors, not_contiguous):
            retriever.add_documents([Document("one", id="one"), Document("two", id="two")], rows)
            for query in (rows[1], rows[1].tolist()):
                best = retriever.search(vector=query, top_k=1)
                assert (best[0].id, best[0].vector_score) == ("two", pytest.approx(1.0, abs=1e-6)), rows.dtype
            assert retriever.delete(["one", "two"]).chunks == 2


def test_every_bad_row_is_named_and_unequal_lengths_are_refused(store):
    count = 3000
    for row in (0, random.randrange(1, count - 1), count - 1):
        documents = [Document("good", id=f"d{number}") for number in range(count)]
        documents[row].metadata = {"bad": float("nan"), "note": SECRET}
        error = refusal(partial(store.add_documents, documents))
        assert found(error) == [(row, "metadata", "not_finite")]
        assert f"row {row} (id 'd{row}')" in str(error)
    documents = [Document(f"{SECRET}\0" if row % 2 else "good", {"n": float("nan")}, id=f"d{row}") for row in range(20)]
    error = refusal(lambda: store.add_documents(documents))
    expected = [(row, field) for row in range(20) for field in (("content", "metadata") if row % 2 else ("metadata",))]
    assert [(one.row, one.field) for one in error.errors] == expected
    assert "20 more" in str(error)
    texts = [SECRET] * 3
    vectors = np.ones((2, DIMENSIONS), dtype=np.float32)
    for call in (
        lambda: store.add_texts(texts, ids=["a", "b"]),
        lambda: store.add_texts(texts, metadata=[{}] * 4),
        lambda: store.add_texts(texts, embeddings=vectors),
        lambda: store.add_documents([Document(SECRET, id=str(row)) for row in range(3)], vectors),
    ):
        error = refusal(call)
        assert {one.row for one in error.errors} == {-1}
        assert "3" in str(error)
    assert found(refusal(lambda: store.add_documents([Document("good"), SECRET]))) == [(1, "document", "wrong_type")]
    # An endless iterable of something else is not read to its end.
    for call, expected in (
        (store.add_documents, "wrong_type"),
        (store.add_texts, "wrong_type"),
        (lambda given: store.add_texts(["good"], ids=given), "unequal_lengths"),
        (lambda given: store.add_texts(["good"], metadata=given), "unequal_lengths"),
    ):
        numbers = itertools.count()
        assert {error.code for error in refusal(partial(call, numbers)).errors} == {expected}
        assert next(numbers) <= MAX_WRONG_ITEMS


def vector(place, value):
    values = np.full(DIMENSIONS, SECRET_NUMBER, dtype=np.float32)
    values[place] = value
    return values


BAD_VECTORS = {
    "nan": (vector(3, np.nan), "not_finite"),
    "infinite": (vector(0, np.inf), "not_finite"),
    "minus infinite": (vector(7, -np.inf), "not_finite"),
    "zero": (np.zeros(DIMENSIONS, np.float32), "all_zero"),
    "minus zero": (np.full(DIMENSIONS, -0.0, np.float32), "all_zero"),
    "subnormal": (np.full(DIMENSIONS, 1e-40, np.float32), "norm_out_of_range"),
    "tiny": (np.full(DIMENSIONS, 1e-30, np.float32), "norm_out_of_range"),
    "huge": (np.full(DIMENSIONS, 3e38, np.float32), "norm_out_of_range"),
    "too large for float32": (np.full(DIMENSIONS, 1e300), "not_finite"),
    "complex": (np.full(DIMENSIONS, 1j), "wrong_dtype"),
    "truth values": (np.ones(DIMENSIONS, np.bool_), "wrong_dtype"),
    "dates": (np.full(DIMENSIONS, np.datetime64("2026-01-01")), "wrong_dtype"),
    "object": (np.array([SECRET] * DIMENSIONS, dtype=object), "wrong_dtype"),
    "words": ([SECRET] * DIMENSIONS, "wrong_dtype"),
    "numbers as words": (["1"] * DIMENSIONS, "wrong_dtype"),
    "masked": (np.ma.masked_array(np.ones(DIMENSIONS, np.float32), [True] + [False] * (DIMENSIONS - 1)), "wrong_type"),
}


def test_unusable_vectors_and_those_of_another_shape_or_dimension(store):
    documents = [Document(SECRET, id="row-zero"), Document(SECRET, id="row-one")]
    for kind, (bad, code) in BAD_VECTORS.items():
        rows = [bad, bad]
        if isinstance(bad, np.ma.MaskedArray):
            rows = np.ma.stack([bad, bad])
        elif isinstance(bad, np.ndarray):
            rows = np.array([np.ones(DIMENSIONS) if bad.dtype.kind == "f" else bad, bad], dtype=bad.dtype)
        error = refusal(partial(store.add_documents, documents, rows))
        assert {one.code for one in error.errors} == {code}, kind
        if code not in ("wrong_dtype", "wrong_type"):
            assert (error.errors[0].row, error.errors[0].id, error.errors[0].field) == (1, "row-one", "embedding")
        for search in (partial(store.search), partial(store.search, "first", mode="vector")):
            assert [one.row for one in refusal(partial(search, vector=bad)).errors] == [-1], kind
    for shape in ((), (0,), (DIMENSIONS,), (1, 0), (1, 1, DIMENSIONS)):
        array = np.ones(shape, dtype=np.float32)
        error = refusal(partial(store.add_documents, [Document(SECRET)], array))
        assert found(error) == [(-1, "embeddings", "wrong_shape")], shape
        if shape != (DIMENSIONS,):
            assert found(refusal(partial(store.search, vector=array))) == [(-1, "vector", "wrong_shape")], shape
    for call in (
        lambda: store.add_documents([Document(SECRET)], np.ones((1, DIMENSIONS + 1), np.float32)),
        lambda: store.search(vector=np.ones(DIMENSIONS + 1, np.float32)),
    ):
        with pytest.raises(ModelMismatchError, match=rf"{DIMENSIONS + 1} .*\b{DIMENSIONS}\b") as caught:
            call()
        assert SECRET not in told(caught.value)


def test_unusable_queries_and_ids(store):
    for code, bad in UNSTORABLE:
        assert found(refusal(partial(store.search, bad))) == [(-1, "query", code)]
        assert found(refusal(partial(store.get, ["fine", bad]))) == [(1, "id", code)]
        assert found(refusal(partial(store.delete, [bad]))) == [(0, "id", code)]
        for filters in ({bad: 1}, {"key": bad}, {"source_document": bad}, {"key": {"inner": [bad]}}):
            for call in (partial(store.search, "first", filters=filters), partial(store.count, filters)):
                assert [one.code for one in refusal(call).errors] == [code], (bad, filters)
    for blank in ("", " ", "\n\t ", "\u00a0\u2003"):
        assert found(refusal(partial(store.search, blank))) == [(-1, "query", "blank")]
    for query in (5, b"bytes", ["text"], {"text"}, np.ones(2), object()):
        assert found(refusal(partial(store.search, query))) == [(-1, "query", "wrong_type")]
    assert [one.id for one in store.search("first " + "é" * 2045)] == ["first"]
    error = refusal(lambda: store.search("first " + "é" * 2045 + "z"))
    assert (found(error), error.errors[0].limit) == ([(-1, "query", "too_long")], "4096 bytes")
    assert found(refusal(store.search)) == [(-1, "query", "missing")]
    for ids in (None, 5, "first", b"first", {"first": 1}):
        assert found(refusal(partial(store.get, ids))) == [(-1, "ids", "wrong_type")]
    for ids in (["first", "gone"], ("first",), {"first"}, iter(["first", "first"]), (one for one in ["first"])):
        assert {one.id for one in store.get(ids)} == {"first"}
    assert found(refusal(lambda: store.get(iter(["first", 5.0])))) == [(1, "id", "wrong_type")]


OUT_OF_BOUNDS = {
    "mode": ["fuzzy", [], np.ones(2)],
    "fusion": [["rrf"], "magic"],
    "tuning": [
        *(5, {"candidate": 50}),
        *({"candidates": wrong} for wrong in (4, 10_001, "many", True, 10**5000)),
        *({"ef_search": wrong} for wrong in (0, 1001, "wide", 40.0)),
        *({"probes": wrong} for wrong in (0, 40_000, "all")),
    ],
    "deadline": [0, float("nan"), float("inf"), "soon", 10**400, 2.2e6, True],
    "weights": [
        *(5, "vector", {5: 1.0}, {"image": 1.0}, {"vector": 0, "keyword": 0}),
        *({"vector": wrong} for wrong in (True, "much", -1.0, float("nan"), 1.5)),
    ],
    "rrf_k": ["x", 10**400, float("nan"), -1.0],
    "rerank": ["yes", np.ones(2), True],
}


def test_parameters_out_of_bounds(store):
    for name, value in ((name, value) for name, values in OUT_OF_BOUNDS.items() for value in values):
        with pytest.raises(ConfigurationError) as caught:
            store.search(SECRET, **{name: value})
        assert SECRET not in told(caught.value)
        named = next(iter(value)) if name == "tuning" and isinstance(value, dict) else name
        assert named.rstrip("s") in str(caught.value)
    assert [len(store.search("first", top_k)) for top_k in (1, 1000)] == [1, 1]
    for top_k in (0, -1, 1001, 2**63, -(2**63), 10**5000, True, "5", 5.0):
        code = "out_of_range" if type(top_k) is int else "wrong_type"
        assert found(refusal(partial(store.search, "first", top_k))) == [(-1, "top_k", code)]


def test_a_query_object_brings_text_vector_number_and_filters(database_url):
    vectors = np.eye(3, dtype=np.float32)
    documents = [Document(f"text {n}", {"even": n % 2 == 0}, id=str(n)) for n in range(3)]
    with sync_filled(database_url, documents, "none", vectors=vectors) as retriever:
        assert [one.id for one in retriever.search(SearchQuery("text 1", top_k=1))] == ["1"]
        by_vector = retriever.search(SearchQuery(query_embedding=(0.1, 0.2, 1.0), top_k=2))
        assert (by_vector.mode, [one.id for one in by_vector]) == ("vector", ["2", "1"])
        both = SearchQuery("text", (1.0, 0.0, 0.0), 5, {"even": True})
        assert (retriever.search(both).mode, {one.id for one in retriever.search(both)}) == ("hybrid", {"0", "2"})
        assert {one.id for one in retriever.search(both, 5, mode="keyword")} == {"0", "2"}
        for name, given in (("filters", {"even": False}), ("top_k", 3), ("vector", vectors[0])):
            with pytest.raises(ConfigurationError, match=f"{name} cannot be given beside a SearchQuery"):
                retriever.search(both, **{name: given})
