"""What Haystack's own tests leave open: documents, policies, retrievers, pipelines as text."""

import asyncio
import datetime as dt
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from haystack import Document, Pipeline
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.utils import Secret
from hypothesis import given
from hypothesis import strategies as st

from semlex import connect_sync
from semlex.errors import ConfigurationError, ModelMismatchError, ValidationError
from semlex.integrations.haystack import (
    SemlexDocumentStore,
    SemlexEmbeddingRetriever,
    SemlexHybridRetriever,
    SemlexKeywordRetriever,
)
from tests.support.filter_trees import STORABLE
from tests.support.waiting import held, until_waiting

ANIMALS = [
    Document(id="lion", content="a lion hunts in the grass", meta={"kind": "cat"}, embedding=[1.0, 0.0, 0.0]),
    Document(id="tiger", content="a tiger hunts in the jungle", meta={"kind": "cat"}, embedding=[0.5, 0.5, 0.0]),
    Document(id="eagle", content="an eagle hunts in the sky", meta={"kind": "bird"}, embedding=[0.0, 1.0, 0.0]),
    Document(id="owl", content="an owl sleeps by day", meta={"kind": "bird"}, embedding=[0.0, 0.0, 1.0]),
]
CATS = {"field": "meta.kind", "operator": "==", "value": "cat"}

components = st.floats(-1e6, 1e6, width=32)
large_components = st.floats(-1e6, -0.125, width=32) | st.floats(0.125, 1e6, width=32)
words = st.text(STORABLE, max_size=8)
numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=5,
)
documents = st.builds(
    Document,
    content=st.text(STORABLE, min_size=1, max_size=8).filter(str.strip),
    meta=st.dictionaries(words, json_values, max_size=4),
    embedding=st.one_of(st.none(), st.tuples(large_components, components, components).map(list)),
)


@pytest.fixture
def animals(document_store):
    assert document_store.write_documents(ANIMALS) == 4
    return document_store


def ids(found):
    return [one.id for one in found["documents"]]


@given(drawn=st.lists(documents, max_size=6, unique_by=lambda one: one.id))
def test_documents_come_back_equal_and_in_order(module_store, drawn):
    module_store.delete_all_documents()
    assert module_store.write_documents(drawn) == len(drawn)
    assert module_store.filter_documents() == drawn
    assert module_store.count_documents() == len(drawn)


def test_what_cannot_be_stored_is_refused_by_name_and_none_of_a_call_is_stored(document_store):
    fine = Document(id="a", content="good", embedding=[1.0, 0.0])
    unlike = [
        Document(id="file", content="text", blob=ByteStream(b"bytes")),
        Document(id="sparse", content="text", sparse_embedding=SparseEmbedding([1], [0.5])),
        Document(id="none"),
    ]
    for wrong, errors in (
        ([Document(id="b", content="")], [(2, "b", "content")]),
        ([Document(id="b", content="text", embedding=[1.0, 0.0, 0.0])], [(2, "b", "embedding")]),
        (unlike, [(2, "file", "blob"), (3, "sparse", "sparse_embedding"), (4, "none", "content")]),
    ):
        with pytest.raises(ValidationError) as caught:
            document_store.write_documents([Document(id="x", content="text"), fine, *wrong])
        assert [(one.row, one.id, one.field) for one in caught.value.errors] == errors
        assert document_store.count_documents() == 0
    assert "its address in meta" in str(caught.value)
    with pytest.raises(ValidationError, match="has a time"):
        document_store.write_documents([Document(content="text", meta={"at": dt.time(1)})])
    document_store.write_documents([Document(content="text", embedding=[1.0, 0.0])])
    with pytest.raises(ModelMismatchError):
        document_store.write_documents([Document(content="other", embedding=[1.0, 0.0, 0.0])])
    assert document_store.count_documents() == 1


@pytest.mark.parametrize("vector", [None, [1.0, 0.0]])
def test_policies(document_store, vector):
    def one(content):
        return Document(id="a", content=content, embedding=vector)

    other = Document(id="b", content="other", embedding=[0.0, 1.0])
    write = document_store.write_documents
    assert write([one("first"), other, one("second")], DuplicatePolicy.SKIP) == 2
    assert document_store.filter_documents() == [one("first"), other]
    assert write([one("third"), Document(id="c", content="c")], DuplicatePolicy.SKIP) == 1
    for policy in (DuplicatePolicy.FAIL, DuplicatePolicy.NONE):
        with pytest.raises(DuplicateDocumentError, match="'a'"):
            write([one("fourth")], policy)
        with pytest.raises(DuplicateDocumentError, match="'d'"):
            write([Document(id="d", content="d")] * 2, policy)
    assert write([one("fifth"), one("sixth")], DuplicatePolicy.OVERWRITE) == 2
    left = {each.id: each.content for each in document_store.filter_documents()}
    assert left == {"a": "sixth", "b": "other", "c": "c"}
    assert write([], DuplicatePolicy.OVERWRITE) == 0


def test_an_update_keeps_text_and_embedding(animals):
    assert animals.update_by_filter(CATS, {"kind": "pet", "seen": 3}) == 2
    found = {one.id: one for one in animals.filter_documents()}
    assert found["lion"].meta == {"kind": "pet", "seen": 3}
    assert found["lion"].embedding == [1.0, 0.0, 0.0]
    assert found["owl"] == ANIMALS[3]
    assert ids(SemlexEmbeddingRetriever(animals).run([1.0, 0.0, 0.0], top_k=1)) == ["lion"]
    assert ids(SemlexKeywordRetriever(animals).run("jungle")) == ["tiger"]


def test_deleting_needs_a_filter(animals):
    for nothing in ({}, None):
        with pytest.raises(ConfigurationError, match="filters"):
            animals.delete_by_filter(nothing)
    empty = {"operator": "AND", "conditions": []}
    for always in (
        empty,
        {"operator": "OR", "conditions": [CATS, empty]},
        {"operator": "NOT", "conditions": [{"operator": "OR", "conditions": []}]},
        {"field": "meta.kind", "operator": "not in", "value": []},
        {"field": "id", "operator": "not in", "value": []},
    ):
        with pytest.raises(FilterError, match="delete_all_documents"):
            animals.delete_by_filter(always)
    assert animals.count_documents() == 4
    animals.delete_documents([])
    assert animals.delete_by_filter({"field": "id", "operator": "in", "value": ["lion", "none"]}) == 1
    assert animals.delete_by_filter({"operator": "NOT", "conditions": [CATS]}) == 2
    assert [one.id for one in animals.filter_documents()] == ["tiger"]


def test_retrievers_name_their_scores(animals, database_url):
    by_vectors = SemlexEmbeddingRetriever(animals).run([1.0, 0.0, 0.0], top_k=2)
    by_words = SemlexKeywordRetriever(animals).run("lion sky please explain")
    by_both = SemlexHybridRetriever(animals).run("owl", [0.0, 0.0, 1.0], top_k=3)
    assert (ids(by_vectors), {*ids(by_words)}, ids(by_both)[0]) == (["lion", "tiger"], {"lion", "eagle"}, "owl")
    with connect_sync(database_url, "none") as client:
        collection = client.collection("haystack")
        for found, name, options in (
            (by_vectors, "vector_score", {"vector": [1.0, 0.0, 0.0], "mode": "vector", "top_k": 2}),
            (by_words, "keyword_score", {"query": "lion sky please explain", "mode": "keyword"}),
            (by_both, "fused_score", {"query": "owl", "vector": [0.0, 0.0, 1.0], "top_k": 3}),
        ):
            hits = [(hit.id, getattr(hit, name)) for hit in collection.search(**options)]
            assert [(one.id, one.score) for one in found["documents"]] == hits, name
    assert by_vectors["documents"][0].score == pytest.approx(1.0)
    assert [one.embedding for one in by_vectors["documents"]] == [None, None]
    [whole] = SemlexEmbeddingRetriever(animals, return_embedding=True).run([1.0, 0.0, 0.0], top_k=1)["documents"]
    assert replace(whole, score=None) == ANIMALS[0]


def test_filters_are_replaced_or_merged(animals):
    not_lion = {"field": "id", "operator": "!=", "value": "lion"}
    vector = [1.0, 0.0, 0.0]
    replaced = SemlexEmbeddingRetriever(animals, filters=CATS)
    merged = SemlexEmbeddingRetriever(animals, filters=CATS, filter_policy="merge")
    assert ids(replaced.run(vector)) == ["lion", "tiger"]
    first, *others = ids(replaced.run(vector, filters=not_lion))
    assert (first, sorted(others)) == ("tiger", ["eagle", "owl"])
    assert ids(merged.run(vector, filters=not_lion)) == ["tiger"]
    assert merged.filter_policy is FilterPolicy.MERGE
    assert ids(SemlexKeywordRetriever(animals, filters=CATS).run("hunts", top_k=1)) in (["lion"], ["tiger"])
    assert ids(SemlexHybridRetriever(animals).run("hunts", vector, filters=CATS)) == ["lion", "tiger"]


def test_hybrid_weighs_cuts_and_reranks(animals, database_url):
    words_alone = SemlexHybridRetriever(animals, alpha=0.0).run("owl", [1.0, 0.0, 0.0], top_k=1)
    vectors_alone = SemlexHybridRetriever(animals, alpha=1.0).run("owl", [1.0, 0.0, 0.0], top_k=1)
    assert (ids(words_alone), ids(vectors_alone)) == (["owl"], ["lion"])
    assert ids(SemlexHybridRetriever(animals, min_similarity=0.6).run("hunts", [1.0, 0.0, 0.0])) == ["lion", "tiger"]
    with pytest.raises(ConfigurationError, match="needs a reranker"):
        SemlexHybridRetriever(animals, rerank=True).run("owl", [1.0, 0.0, 0.0])
    with closing(SemlexDocumentStore(Secret.from_token(database_url), reranker_model="term-overlap")) as store:
        reranked = SemlexHybridRetriever(store, rerank=True).run("owl day", [1.0, 0.0, 0.0])["documents"]
    assert reranked[0].id == "owl"
    scores = [one.score or 0.0 for one in reranked]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < scores[0]


async def test_first_calls_of_many_tasks_share_a_client(document_store):
    def loops():
        return {one for one in threading.enumerate() if one.name == "semlex-loop"}

    before = loops()
    assert await asyncio.gather(*(document_store.count_documents_async() for _ in range(8))) == [0] * 8
    assert len(loops() - before) == 1


def test_an_empty_store_finds_nothing_and_a_score_is_not_stored(document_store):
    assert SemlexEmbeddingRetriever(document_store).run([1.0, 0.0]) == {"documents": []}
    assert SemlexKeywordRetriever(document_store).run("lion") == {"documents": []}
    assert SemlexHybridRetriever(document_store).run("lion", [1.0, 0.0]) == {"documents": []}
    document_store.write_documents([Document(id="a", content="text", score=0.5)])
    assert document_store.filter_documents() == [Document(id="a", content="text")]


def test_wrong_arguments_are_refused(animals):
    on_content = {"field": "content", "operator": "==", "value": "x"}
    for error, message, wrong in (
        (ConfigurationError, "document_store", lambda: SemlexKeywordRetriever("store")),
        (ValidationError, "top_k", lambda: SemlexKeywordRetriever(animals).run("lion", top_k=0)),
        (ValidationError, "vector", lambda: SemlexEmbeddingRetriever(animals).run([])),
        (ModelMismatchError, None, lambda: SemlexEmbeddingRetriever(animals).run([1.0])),
        (FilterError, "instead of content use a retriever", lambda: animals.filter_documents(on_content)),
        (ConfigurationError, "policy", lambda: animals.write_documents([], "skip")),
    ):
        with pytest.raises(error, match=message):
            wrong()


async def test_the_asynchronous_twins_do_the_same(animals, database_url):
    vector = [1.0, 0.0, 0.0]
    with held(database_url, "semlex.haystack_chunk") as lock:
        waiting = asyncio.gather(
            SemlexEmbeddingRetriever(animals, return_embedding=True).run_async(vector, CATS, 1),
            SemlexKeywordRetriever(animals).run_async("sky", CATS),
            SemlexHybridRetriever(animals).run_async("owl", vector, top_k=2),
        )
        await asyncio.to_thread(until_waiting, lock, 2)  # the loop goes on meanwhile
    by_vectors, by_words, by_both = await waiting
    assert by_vectors["documents"][0].embedding == vector
    assert (ids(by_vectors), ids(by_words)) == (["lion"], [])
    assert by_both == SemlexHybridRetriever(animals).run("owl", vector, top_k=2)
    assert await animals.get_metadata_field_min_max_async("kind") == {"min": "bird", "max": "cat"}
    await animals.close_async()
    assert await animals.count_documents_async() == 4


def test_a_pipeline_travels_as_text(database_url, monkeypatch):
    monkeypatch.setenv("ANIMALS_URL", database_url)
    store = SemlexDocumentStore(Secret.from_env_var("ANIMALS_URL"), "animals", schema="zoo", language="german")
    with closing(store):
        store.write_documents(ANIMALS)
    pipeline = Pipeline()
    pipeline.add_component("words", SemlexKeywordRetriever(store, filters=CATS, top_k=3, filter_policy="merge"))
    pipeline.add_component("both", SemlexHybridRetriever(store, alpha=0.25, min_similarity=0.1, return_embedding=True))
    pipeline.add_component("vectors", SemlexEmbeddingRetriever(store))
    text = pipeline.dumps()
    assert database_url not in text
    read = Pipeline.loads(text, allowed_modules=["semlex.integrations.haystack"])
    assert read.dumps() == text
    words = read.get_component("words")
    with closing(words.document_store):
        assert set(ids(words.run("hunts"))) == {"lion", "tiger"}
    assert read.get_component("both").alpha == 0.25
    with pytest.raises(ValueError, match="token"):
        SemlexDocumentStore(Secret.from_token(database_url)).to_dict()
    assert SemlexDocumentStore.from_dict(SemlexDocumentStore(None).to_dict()).db_url is None


def test_chunks_that_semlex_has_read_say_where_they_stand(document_store, database_url, tmp_path):
    (tmp_path / "keys.md").write_text("# Keys\n\nKeys are rotated yearly.\n", encoding="utf-8")
    with connect_sync(database_url, "none") as client:
        client.collection("haystack").index(tmp_path, source="docs")
    found = SemlexKeywordRetriever(document_store).run("rotated")["documents"][0]
    expected = {"source": "docs", "source_document": "keys.md", "heading_path": ["Keys"]}
    assert {name: found.meta[name] for name in expected} == expected
    one = document_store.filter_documents({"field": "id", "operator": "==", "value": found.id})
    assert [document.id for document in one] == [found.id]
