"""The public values: rules of their fields, and what they become."""

import copy
import dataclasses
import datetime as dt
import inspect
import json
import math
import pickle
import pydoc
import re
import sys
from dataclasses import is_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from fastapi.encoders import jsonable_encoder
from hypothesis import given
from hypothesis import strategies as st

import semlex
from semlex import ChunkMetadata, Document, SearchQuery, SearchResult, SearchResults, VectorDocument
from semlex.errors import MissingExtraError, ValidationError
from semlex.ingest.given_documents import documents_in
from semlex.json_values import id_text, json_scalar, json_tree
from semlex.retriever.json_fallback import hit_of
from semlex.types.fields import Facets
from semlex.types.results import HitMetadata, KnowledgeResults

KEY = UUID("12345678-1234-5678-1234-567812345678")
CHUNK = {
    "chunk_id": "02_chunk_017", "source_document": "02", "chapter_title": "Pharmacology", "section_title": "Mechanism",
    "subsection_title": ["Receptors", "Enzymes"], "summary": "A partial agonist.", "token_count": 342,
    "chunk_text": "It is a partial agonist.",
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def codes(call, *arguments, **values):
    """(field, code) of all errors that a call raises."""
    with pytest.raises(ValidationError) as caught:
        call(*arguments, **values)
    return {(one.field, one.code) for one in caught.value.errors}


def test_chunks_of_json_and_every_rule():
    chunk = ChunkMetadata.from_dict(CHUNK)
    assert chunk == ChunkMetadata(**CHUNK)
    assert chunk.heading_path == ("Pharmacology", "Mechanism", "Receptors", "Enzymes")
    half = ChunkMetadata("c1", "page.md", "text", 1, "One", subsection_title=("Three", ""))
    assert half.heading_path == ("One", "Three")
    document = chunk.to_document()
    assert (document.id, document.content) == ("02_chunk_017", "It is a partial agonist.")
    assert document.metadata == {name: value for name, value in CHUNK.items() if name not in ("chunk_id", "chunk_text")}
    blanks = [(name, "blank") for name in ("chunk_id", "source_document", "chunk_text")]
    with pytest.raises(ValidationError) as caught:
        ChunkMetadata("", "", "", 0)
    assert [(one.field, one.code) for one in caught.value.errors] == [*blanks, ("token_count", "out_of_range")]
    blank = {("query", "blank"), ("vector", "not_usable"), ("top_k", "out_of_range")}
    assert codes(SearchQuery, " ", (0.0,), 0) == blank
    assert codes(ChunkMetadata.from_dict, {**CHUNK, "title": "x"}) == {("title", "unknown_field")}
    with pytest.raises(ValidationError, match="title is not a field here; fields: chunk_id, source_document"):
        ChunkMetadata.from_dict({**CHUNK, "title": "x"})
    missing = {(name, "missing") for name in ("source_document", "chunk_text", "token_count")}
    assert codes(ChunkMetadata.from_dict, {"chunk_id": "x", "extra": 1}) == {("extra", "unknown_field"), *missing}
    for name, code, *values in [
        ("chunk_id", "blank", ""), ("chunk_id", "too_long", "é" * 257), ("chunk_text", "blank", " \n"),
        ("chunk_text", "nul", "a\0b"), ("chunk_text", "wrong_type", 5), ("source_document", "lone_surrogate", "\ud800"),
        ("token_count", "out_of_range", 0, 2**31), ("token_count", "wrong_type", "342", True),
        ("summary", "too_long", "s" * 501), ("summary", "wrong_type", None),
        ("subsection_title", "wrong_type", "Receptors", ["a", 2]),
    ]:  # fmt: skip
        for value in values:
            assert codes(ChunkMetadata, **CHUNK | {name: value}) == {(name, code)}
            assert codes(VectorDocument, embedding=[1.0], **CHUNK | {name: value}) == {(name, code)}
        ChunkMetadata(**CHUNK | {"summary": "s" * 500, "chunk_id": "é" * 256, "chunk_text": "x"})
    for query, expected in [
        ({}, ("query", "missing")), ({"query_text": " "}, ("query", "blank")),
        ({"query_text": 5}, ("query", "wrong_type")), ({"query_text": "x" * 4097}, ("query", "too_long")),
        ({"query_text": "x", "top_k": "5"}, ("top_k", "wrong_type")),
        ({"query_text": "x", "top_k": 1001}, ("top_k", "out_of_range")),
        ({"query_text": "x", "filters": ["a"]}, ("filters", "wrong_type")),
        ({"query_text": "x", "timestamp": "now"}, ("timestamp", "wrong_type")),
    ]:  # fmt: skip
        assert codes(SearchQuery, **query) == {expected}
        assert SearchQuery(" " * 5000 + "C").query_text == " " * 5000 + "C"  # what is searched is trimmed
    for name, value, code in [
        ("rank", -3, "out_of_range"), ("rank", 1.0, "wrong_type"), ("vector_rank", 0, "out_of_range"),
        ("rerank_score", math.nan, "not_finite"), ("vector_score", "0.5", "wrong_type"),
    ]:  # fmt: skip
        assert codes(SearchResult, "text", **{name: value}) == {(name, code)}
        assert SearchResult("text", rerank_score=-7.5).rerank_score == -7.5  # a reranker of one's own may give logits


@given(st.sampled_from(list(CHUNK)), JSON)
def test_no_value_of_a_chunk_raises_anything_else(name, value):
    try:
        chunk = ChunkMetadata.from_dict({**CHUNK, name: value})
    except ValidationError as error:
        assert {one.field for one in error.errors} == {name}  # noqa: PT017 - both ways are right
    else:
        assert isinstance(value, list) or getattr(chunk, name) == value


def test_vectors():
    for kind in [np.float32, np.float64, np.float16, list, tuple]:
        values = kind([0.5, 0.25]) if kind in (list, tuple) else np.array([0.5, 0.25], dtype=kind)
        document = VectorDocument(**CHUNK, embedding=values)
        assert document.embedding == (0.5, 0.25)
        assert document.to_document().created_at == document.created_at == document.to_document().updated_at
        assert SearchQuery(query_embedding=values).query_embedding == (0.5, 0.25)
    for embedding, code in [
        ((), "not_usable"), ([0.0, 0.0], "not_usable"), ([math.nan, 1.0], "not_usable"),
        (np.array([np.inf, 1.0]), "not_usable"),
        ([[1.0], [2.0]], "wrong_type"), (np.ones((2, 2)), "wrong_type"), (["1"], "wrong_type"), ("12", "wrong_type"),
        (None, "wrong_type"), (3, "wrong_type"), (np.array(3.0), "wrong_type"),
    ]:  # fmt: skip
        assert codes(VectorDocument, **CHUNK, embedding=embedding) == {("embedding", code)}
        message = "embedding must have finite values" if code == "not_usable" else "embedding"
        with pytest.raises(ValidationError, match=message):
            VectorDocument(**CHUNK, embedding=embedding)
        if embedding is not None:
            assert codes(SearchQuery, "x", query_embedding=embedding) == {("vector", code)}
        naive = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused
        naive_error = {("created_at", "naive_timestamp")}
        assert codes(VectorDocument, **CHUNK, embedding=[1.0], created_at=naive) == naive_error


def test_results_become_json_and_documents(monkeypatch):
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    metadata = HitMetadata({"a": [1, {"b": None}]}, 0.5, None)
    hit = SearchResult("text", metadata, "id", created_at=time, updated_at=time, rank=1)
    hit.vector_score, hit.source_document, hit.heading_path, hit.line = 0.5, "a.md", ("One", "Two"), 7
    found = SearchResults([hit], mode="vector", timings={"total": 1.5}, warnings=["late"])
    told = found.to_dict()
    assert json.loads(json.dumps(told)) == told
    # Encoders that look for dataclasses first would take the attributes instead of the hits.
    for one in (found, KnowledgeResults([hit]), Facets({"year": None})):
        assert not is_dataclass(one)
        assert len(jsonable_encoder(one)) == 1
    assert (told["warnings"], told["mode"]) == (["late"], "vector")
    (hit,) = told["hits"]
    assert hit == found[0].to_dict()
    assert type(hit["metadata"]) is dict
    assert (hit["metadata"], hit["heading_path"]) == ({"a": [1, {"b": None}]}, ["One", "Two"])
    assert (hit["created_at"], hit["vector_score"]) == ("2026-01-02T03:04:05+00:00", 0.5)
    stored = semlex.StoredChunk("text", id="x", line=3, timestamp_start="00:01").to_dict()
    assert (stored["line"], stored["timestamp_start"], stored["child_ids"]) == (3, "00:01", [])
    # A copy: what is done to it does not change the hit.
    hit["metadata"]["a"].append(2)
    assert found[0].metadata == {"a": [1, {"b": None}]}
    document = Document(content="hello", metadata={}, id="1", timestamp_start="00:01", timestamp_end="00:02")
    assert (document.timestamp_start, document.timestamp_end) == ("00:01", "00:02")
    (document,) = found.to_documents()
    assert (document.page_content, document.id) == ("text", "id")
    own = {"source_document": "a.md", "heading_path": ["One", "Two"], "line": 7, "vector_score": 0.5}
    assert document.metadata == {"a": [1, {"b": None}], **own}
    mine = SearchResults([SearchResult("text", {"source": "mine"}, source="a.md")])
    assert mine.to_documents()[0].metadata == {"source": "mine"}
    monkeypatch.setitem(sys.modules, "langchain_core.documents", None)
    with pytest.raises(MissingExtraError, match="langchain-core"):
        found.to_documents()


def test_hits_and_scores():
    text = "secret " * 1000
    hit = SearchResult(text, {"note": text}, "a'b", source_document="docs/keys.md", place="line 9", rank=2)
    hit.excerpt, hit.vector_score, hit.keyword_score, hit.fused_score = text, 0.123456, None, 0.0
    shown = f"{'secret ' * 11}se…"
    assert repr(hit) == f"SearchResult(rank=2, location='docs/keys.md:9', score=0, text={shown!r})"
    assert repr(SearchResult("text", id="a'b")) == """SearchResult(rank=0, id="a'b", text='text')"""
    assert (hit.text, hit.score) == (text, 0.0)
    hit = SearchResult("text", HitMetadata({"year": 2024}, 0.5, None), "1", place="p. 36", page=36)
    values = dataclasses.asdict(hit)
    assert (values["content"], values["metadata"], values["place"]) == ("text", {"year": 2024}, "p. 36")
    assert json.loads(json.dumps(hit.to_dict()))["place"] == "p. 36"
    shown = pydoc.plain(pydoc.render_doc(semlex)).split("PACKAGE CONTENTS")[0]
    assert [name for name in semlex.__all__ if not re.search(rf"\b{name}\b", shown)] == []
    assert dir(semlex) == sorted(semlex.__all__)
    for kind in (semlex.PostgreSQLRetriever, semlex.SyncRetriever):  # both take the same kinds of query
        assert inspect.signature(kind.search).parameters["query"].annotation == "str | SearchQuery | None"
    for own, shown, told in [("a", "a", "a"), (0, "0", 0), (np.int64(5), "5", 5), (KEY, str(KEY), str(KEY))]:
        document = Document("text", {"key": KEY}, own, parent_id=own)
        assert repr(document) == f"Document(id={shown!r}, content='text')"
        made = document.to_dict()
        assert json.loads(json.dumps(made)) == made
        assert (made["id"], made["parent_id"], made["metadata"]) == (told, told, {"key": str(KEY)})
        assert hit_of(document).id == shown
    own = {"reviewed": True, "rank": None}
    view = HitMetadata(own, 0.75, None)
    assert (view["similarity"], view.get("similarity"), view["rerank_score"]) == (0.75, 0.75, None)
    assert (view.get("rerank_score", 0.0), view.get("rank", 1), view.get("other", 2)) == (0.0, None, 2)
    assert view == own
    assert dict(view) == own
    assert {**view} == view | {} == own
    assert json.loads(json.dumps(view)) == own
    assert "similarity" not in view
    with pytest.raises(KeyError):
        view["other"]
    for twin in (copy.copy(view), copy.deepcopy(view), pickle.loads(pickle.dumps(view))):  # noqa: S301 - our own
        assert (twin["similarity"], dict(twin)) == (0.75, own)
    assert HitMetadata({"similarity": "mine"}, 0.75, None)["similarity"] == "mine"
    assert HitMetadata({"similarity": "mine"}, 0.75, None).get("similarity") == "mine"


def frame(**columns):
    """What pandas gives of a data frame."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return SimpleNamespace(columns=list(columns), to_dict=lambda orient: {"records": rows}[orient])


def test_data_frames(monkeypatch):
    [one] = documents_in([{"text": "a", "id": "x", "year": 2024, "metadata": {"b": 1}}])
    assert (one.content, one.id, one.metadata) == ("a", "x", {"b": 1, "year": 2024})
    first, second = documents_in(frame(content=["a", "b"], year=[2024, math.nan], text=["own", None]))
    assert (first.content, first.metadata) == ("a", {"year": 2024, "text": "own"})
    assert (second.content, second.metadata) == ("b", {})
    [array] = documents_in(frame(text=["a"], tags=[np.array(["x", "y"])]))  # as pandas reads lists from Parquet
    assert array.metadata == {"tags": ["x", "y"]}
    twice = pa.table([["a"], [1], [2]], names=["text", "year", "year"])
    for wrong, message in (
        (frame(body=["a"]), r"a column 'content' or 'text' .it has body: rename"),
        (twice, r"whose columns have different names .several are called year: rename them"),
        (SimpleNamespace(columns=["text"]), "with its rows in memory; got a SimpleNamespace"),  # as a lazy frame
    ):
        with pytest.raises(ValidationError, match=message):
            documents_in(wrong)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"needs the package 'pandas': pip install pandas"):
        SearchResults().to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns)))
    row = SearchResult("text", {"text": 1, "price": 2}, "a", table="news", key=0, columns={"price": 3, "id": 0})
    [first, second], _ = SearchResults([row, SearchResult("other")]).to_pandas()
    of_row = {"key": 0, "price": 3, "columns.id": 0, "metadata.text": 1, "metadata.price": 2}
    assert first.items() >= of_row.items()
    assert first.keys() - second.keys() == of_row.keys()


EAST = timezone(timedelta(hours=2))


class NoTime(datetime):
    """Like NaT of pandas: equal to nothing, not even itself."""

    __hash__ = None

    def __eq__(self, other):
        return False

    def __ne__(self, other):
        return True


def test_what_is_stored():
    for value, stored in [
        (datetime(2026, 1, 31, 1, 30, tzinfo=EAST), "2026-01-30T23:30:00+00:00"),
        (datetime(2026, 1, 31, 1, 30, 0, 5), "2026-01-31T01:30:00.000005"),  # noqa: DTZ001
        (np.datetime64("2026-01-31T01:30:00.123456789"), "2026-01-31T01:30:00.123456"),
        (NoTime(2026, 1, 31), None), (date(2026, 1, 31), "2026-01-31"),
        (np.datetime64("2026-01"), "2026-01-01"), (np.datetime64("NaT"), None), (KEY, str(KEY)),
        (Decimal("19.90"), 19.9), (Decimal("1E+3"), 1000), (np.int64(2**60), 2**60), (np.uint8(255), 255),
        (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.bool_(True), True),
    ]:  # fmt: skip
        found = json_scalar(value)
        assert (type(found), found) == (type(stored), stored)
        assert json_tree({"a": [value, (value, {"b": value})]}) == {"a": [stored, [stored, {"b": stored}]]}
    for value in [
        *("text", 5, 0.5, True, None, b"bytes", dt.time(1), timedelta(1), np.timedelta64(1, "s"), np.complex64(1)),
        *(np.datetime64(2**62, "D"), datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    ]:  # fmt: skip
        assert json_scalar(value) is value
    assert all(math.isnan(json_scalar(Decimal(text))) for text in ("NaN", "sNaN", "Infinity"))
    assert [id_text(one) for one in (5, -1, np.int32(7), KEY, "x")] == ["5", "-1", "7", str(KEY), "x"]
    for other in (True, 1.0, None, 10**5000, np.bool_(True)):
        assert id_text(other) is other


FIRST, LAST = datetime.min + timedelta(1), datetime.max - timedelta(1)  # noqa: DTZ901


@given(st.lists(st.datetimes(FIRST, LAST, timezones=st.sampled_from([UTC, EAST]))))
def test_texts_of_times_have_the_order_of_time(times):
    assert list(map(json_scalar, sorted(times))) == sorted(map(json_scalar, times))
