"""A knowledge base in JSON files: every text of every object is found, scored as a collection would; and a fallback."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import Document, DocumentRetriever, JSONKBRetriever, SyncRetriever
from semlex.errors import ConfigurationError, ReadOnlyError, ValidationError
from semlex.proof.check import plain_bm25
from semlex.testing import HashEmbedder

WORDS = ("sea", "hill", "rivers", "stone", "cloud", "grass", "wind", "light")


def written(folder, **files):
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return JSONKBRetriever(folder)


def search(base, query, *arguments):
    return asyncio.run(base.search(query, *arguments))


sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@given(texts=st.lists(sentences, min_size=1, max_size=12), query=sentences)
def test_scores_are_those_of_bm25(tmp_path_factory, texts, query):
    base = written(tmp_path_factory.mktemp("kb"), all=[{"id": n, "q": text} for n, text in enumerate(texts)])
    expected = plain_bm25({str(n): ("english", text) for n, text in enumerate(texts)}, query)
    found = search(base, query, 100)
    assert {hit.id: hit.keyword_score for hit in found} == pytest.approx(expected)
    assert [hit.keyword_score for hit in found] == sorted((hit.keyword_score for hit in found), reverse=True)
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))


def test_every_text_is_found_with_its_place(tmp_path):
    base = written(
        tmp_path,
        faq={"billing": {"refunds": {"id": "r1", "title": "Refunds", "answer": "Within 14 days", "days": 14}}},
        list=[{"name": "Ada", "tags": ["orchid", "moss"]}, {"deep": [{"a/b": [{"note": "a comet"}]}]}],
    )
    [hit] = search(base, "within days")
    assert (hit.id, hit.heading_path, hit.source_document) == ("r1", ("billing", "refunds", "Refunds"), "faq.json")
    assert hit.content == "title: Refunds\nanswer: Within 14 days"
    assert hit.metadata == {"days": 14}
    [hit] = search(base, "moss")
    assert (hit.id, hit.heading_path) == ("list.json#/0", ("Ada",))
    [hit] = search(base, "comets")
    assert (hit.id, hit.heading_path) == ("list.json#/1/deep/0/a~1b/0", ("deep", "a/b"))
    assert [hit.id for hit in search(base, "billing")] == ["r1"]  # by a name of the fields above it
    assert search(base, "zebra") == []


def test_filters(tmp_path):
    base = written(tmp_path, a=[{"id": str(n), "text": "sea", "year": 2000 + n} for n in range(5)], b={"text": "sea"})
    assert [hit.id for hit in search(base, "sea", 10, {"year": {"$gte": 2003}})] == ["3", "4"]
    assert [hit.id for hit in search(base, "sea", 10, '@source_document == "b.json"')] == ["b.json#"]
    assert [hit.id for hit in search(base, "sea", 10, '@id in ["b.json#", "gone"]')] == ["b.json#"]
    with pytest.raises(ValidationError):
        search(base, "sea", 10, {"year": {"$wrong": 1}})


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "neither an object nor a list"),
        ('"text"', "neither an object nor a list"),
        ("[" * 100 + "]" * 100, "deep"),
        ("\xff", "UTF-8"),
    ],
)
def test_files_that_are_none_are_named(tmp_path, content, match):
    (tmp_path / "bad.json").write_bytes(content.encode("latin-1"))
    base = written(tmp_path, good={"text": "sea"})
    found = search(base, "sea")
    assert [hit.id for hit in found] == ["good.json#"]
    [warning] = found.warnings
    assert warning.startswith("bad.json was not read")
    assert match in warning


def test_what_it_refuses(tmp_path):
    with pytest.raises(ConfigurationError, match="nowhere"):
        JSONKBRetriever(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="klingon"):
        JSONKBRetriever(tmp_path, language="klingon")
    base = written(tmp_path, good={"text": "sea"})
    with pytest.raises(ReadOnlyError):
        asyncio.run(base.add_documents([Document("more")]))
    for query, top_k in (("", 5), ("sea", 0), ("sea", 1001)):
        with pytest.raises(ValidationError):
            search(base, query, top_k)


class Own(DocumentRetriever):
    """A fallback of the user's."""

    async def search(self, query, top_k=5, filters=None):
        return [Document(f"{query} {top_k} {filters}", id="own")]

    async def add_documents(self, documents):
        raise NotImplementedError


class Many(Own):
    """A fallback with a hundred documents, of which the first half is secret."""

    def __init__(self):
        self.asked = []

    async def search(self, query, top_k=5, filters=None):
        self.asked.append(top_k)
        return [Document("secret" if n < 50 else "open", id=str(n)) for n in range(100)][:top_k]


def test_a_search_falls_back_where_nothing_was_found(database_url, tmp_path):
    base = written(tmp_path, faq={"text": "refunds within days"})
    with SyncRetriever(database_url, HashEmbedder(8), use_reranking=False) as retriever:
        retriever.add_documents([Document("keys are rotated", id="keys")])
        found = retriever.search("keys", fallback=base)
        assert ([hit.id for hit in found], found.fallback) == (["keys"], None)
        found = retriever.search("refunds", min_similarity=0.99, fallback=base)
        assert ([hit.id for hit in found], found.fallback) == (["faq.json#"], f"json:{tmp_path.name}")
        assert found.to_dict()["fallback"] == found.fallback
        assert any("no candidate reaches min_similarity" in warning for warning in found.warnings)
        found = retriever.search("zebra", min_similarity=0.99, fallback=base)
        assert found == []
        assert any("found nothing either" in warning for warning in found.warnings)
        found = retriever.search("refunds", min_similarity=0.99, exclude=["days"], fallback=base)
        assert found == []
        assert any("found nothing either" in warning for warning in found.warnings)
        (tmp_path / "two").mkdir()
        two = written(tmp_path / "two", faq=[{"id": 1, "text": "secret refunds"}, {"id": 2, "text": "refunds of keys"}])
        found = retriever.search("refunds", min_similarity=0.99, exclude=["secret"], fallback=two)
        assert [(hit.id, hit.rank) for hit in found] == [("2", 1)]
        many = Many()
        found = retriever.search("refunds", 7, min_similarity=0.99, exclude=["secret"], fallback=many)
        assert ([hit.id for hit in found], many.asked) == ([str(n) for n in range(50, 57)], [7, 14, 28, 56, 112])
        found = retriever.search("refunds", 70, min_similarity=0.99, exclude=["secret"], fallback=many)
        assert ([hit.id for hit in found], many.asked[5:]) == ([str(n) for n in range(50, 100)], [70, 140])
        [hit] = retriever.search("zebra", 3, {"a": 1}, fallback=Own())
        assert (hit.id, hit.content, hit.rank) == ("own", "zebra 3 {'a': 1}", 1)
        with pytest.raises(ConfigurationError, match="fallback"):
            retriever.search("zebra", fallback="json")
