"""A collection as a vector store of LlamaIndex: nodes in, queries out."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from llama_index.core import Document, QueryBundle, schema
from llama_index.core.bridge.pydantic import Field
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import ImageNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from semlex import Document as SemlexDocument
from semlex import DocumentRetriever, SyncRetriever, TermOverlapReranker, connect, connect_sync
from semlex.errors import ConfigurationError, DuplicateError, ModelMismatchError, ValidationError
from semlex.integrations.llama_index import SemlexRetriever, SemlexVectorStore
from semlex.testing import HashEmbedder
from tests.support.waiting import held, until_waiting


def node(name, text, embedding=None, ref=None, **metadata):
    made = TextNode(id_=name, text=text, metadata=metadata, embedding=embedding)
    if ref is not None:
        made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=ref)
    return made


ANIMALS = [
    node("lion", "a lion hunts in the grass", [1.0, 0.0, 0.0], "cats", kind="cat", year=1999),
    node("tiger", "a tiger hunts in the jungle", [0.9, 0.1, 0.0], "cats", kind="cat", year=2004),
    node("cub", "a lion cub sleeps in the grass", [1.0, 0.01, 0.0], "cats", kind="cat"),
    node("eagle", "an eagle hunts in the sky", [0.0, 1.0, 0.0], "birds", kind="bird", year=2010),
    node("owl", "an owl sleeps by day", [0.0, 0.0, 1.0], "birds", kind="bird"),
]
TRAINED = "has no mode '{}', which needs a trained model; known modes: default, "
CATS = MetadataFilters(filters=[MetadataFilter(key="kind", value="cat")])


@pytest.fixture
def animals(store):
    assert store.add(ANIMALS) == [one.node_id for one in ANIMALS]
    return store


def asked(store, mode="default", **options):
    given = {"query_embedding": [1.0, 0.0, 0.0], "query_str": "lion grass", "similarity_top_k": 3} | options
    kwargs = given.pop("kwargs", {})
    result = store.query(VectorStoreQuery(mode=VectorStoreQueryMode(mode), **given), **kwargs)
    assert [one.node_id for one in result.nodes] == result.ids
    assert len(result.similarities) == len(result.nodes)
    return result.ids


def test_nodes_of_every_kind_come_back_equal(store):
    shown = {"excluded_embed_metadata_keys": ["file"], "excluded_llm_metadata_keys": ["pages"]}
    shown |= {"metadata_template": "{key}={value}", "text_template": "{metadata_str} {content}"}
    place = {"start_char_idx": 3, "end_char_idx": 29, "mimetype": "text/markdown", "metadata_separator": "|"}
    metadata = {"file": "a.md", "pages": [1, 2], "deep": {"x": None, "y": 1.5}, "a.b": True}
    text = TextNode(id_="text", text="  A text with its spaces. ", metadata=metadata, **shown, **place)
    text.relationships = {
        NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", node_type="4", metadata={"a": 1}, hash="h"),
        NodeRelationship.NEXT: RelatedNodeInfo(node_id="other"),
        NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1"), RelatedNodeInfo(node_id="c2")],
    }
    nodes = [
        text,
        IndexNode(id_="index", text="a summary", index_id="table-1", obj=TextNode(id_="inner", text="inside")),
        ImageNode(id_="image", text="a picture of a lion", image_url="http://127.0.0.1/lion.png"),
        schema.Node(
            id_="node",
            text_resource=schema.MediaResource(text="words", mimetype="text/plain"),
            image_resource=schema.MediaResource(url="http://127.0.0.1/owl.png"),
        ),
        Document(id_="document", text="a whole document", metadata={"author": "Ada"}),
        TextNode(id_="bare", text="nothing but words"),
    ]
    before = [one.model_copy(deep=True) for one in nodes]
    ids = store.add(nodes)
    assert nodes == before
    back = store.get_nodes(ids)
    assert [(type(one), one.model_dump()) for one in back] == [(type(one), one.model_dump()) for one in nodes]
    assert back[0].ref_doc_id == "doc"
    assert back[1].obj == TextNode(id_="inner", text="inside")


def test_what_others_have_stored_is_a_node_with_all_its_metadata(client):
    collection = client.collection("nodes")
    for rest in (1, {"class_name": "Other"}, {}, None):
        collection.add_texts(["a lion"], ids=["lion"], metadata=[{"_node": rest, "year": 1}])
        expected = TextNode(id_="lion", text="a lion", metadata={"_node": rest, "year": 1})
        assert SemlexVectorStore(collection).get_nodes(["lion"]) == [expected]


def test_a_node_that_is_found_is_the_one_that_was_added(animals, client):
    result = animals.query(VectorStoreQuery(query_embedding=[0.0, 0.0, 1.0], similarity_top_k=1))
    assert result.nodes == [ANIMALS[4].model_copy(update={"embedding": None})]
    assert result.similarities == [pytest.approx(1.0)]
    vectors = client.collection("nodes").embeddings.vectors(["owl", "none", "tiger"])
    assert vectors.keys() == {"owl", "tiger"}
    assert np.array_equal(vectors["tiger"], np.float32([0.9, 0.1, 0.0]))


def test_the_same_id_replaces_unless_it_is_said_otherwise(store):
    store.add([node("a", "old", [1.0, 0.0])])
    with pytest.raises(DuplicateError):
        store.add([node("a", "new", [1.0, 0.0])], on_duplicate="fail")
    store.add([node("a", "skipped", [1.0, 0.0])], on_duplicate="skip")
    assert [one.get_content() for one in store.get_nodes()] == ["old"]
    nodes = [node("a", "first", [1.0, 0.0]), node("b", "b", [1.0, 0.0]), node("a", "new", [0.0, 1.0])]
    assert store.add(nodes) == ["a", "b", "a"]
    assert {one.node_id: one.get_content() for one in store.get_nodes()} == {"a": "new", "b": "b"}


def test_what_cannot_be_stored_is_refused_by_name(store):
    class Own(TextNode):
        pass

    message = r"row 1: node must be a node of LlamaIndex's own kinds \(TextNode, .*; got an Own"
    with pytest.raises(ValidationError, match=message):
        store.add([node("a", "fine"), Own(text="mine")])
    with pytest.raises(ValidationError, match="without the key _node"):
        store.add([node("a", "text", _node=1)])
    with pytest.raises(ValidationError, match="content"):
        store.add([ImageNode(id_="i", image_url="http://127.0.0.1/x.png")])
    with pytest.raises(TypeError, match="refresh"):
        store.add([node("a", "text")], refresh=True)
    store.add([node("a", "text", [1.0, 0.0])])
    with pytest.raises(ModelMismatchError):
        store.add([node("b", "text", [1.0, 0.0, 0.0])])
    assert [one.node_id for one in store.get_nodes()] == ["a"]
    with pytest.raises(ConfigurationError, match="collection must be Collection or SyncCollection"):
        SemlexVectorStore("nodes")


def test_nodes_with_and_without_embeddings_go_in_together_or_none_does(store):
    def refused(*nodes):
        with pytest.raises(ValidationError) as caught:
            store.add(nodes)
        return [(one.row, one.id, one.field, one.code) for one in caught.value.errors]

    fine, other = node("a", "good", [1.0, 0.0]), node("c", "good", [0.0, 1.0])
    assert refused(fine, node("b", "")) == [(1, "b", "content", "too_short")]
    long, nan = node("long", "text", [1.0, 0.0, 0.0]), node("nan", "text", [float("nan"), 0.0])
    assert refused(node("x", "text"), fine, long, other) == [(2, "long", "embedding", "wrong_dimension")]
    assert refused(fine, node("x", "text"), nan) == [(2, "nan", "embedding", "not_finite")]
    assert store.get_nodes() == []
    with pytest.raises(DuplicateError):
        store.add([fine, node("x", "text"), fine], on_duplicate="fail")
    assert store.get_nodes() == []
    store.add([node("a", "lion"), node("b", "lion", [1.0, 0.0]), node("c", "tiger")])
    assert asked(store, query_embedding=[1.0, 0.0], query_str=None) == ["b"]
    assert set(asked(store, "text_search", query_str="lion")) == {"a", "b"}


def test_modes_and_those_that_are_refused(animals):
    for mode, options, expected in (
        ("default", {}, ["lion", "cub", "tiger"]),
        ("default", {"query_str": None, "similarity_top_k": 1}, ["lion"]),
        ("text_search", {"query_embedding": None}, ["lion", "cub"]),
        ("sparse", {"query_embedding": None, "sparse_top_k": 1}, ["lion"]),
        ("sparse", {"query_str": "owl eagle sky", "query_embedding": None}, ["eagle", "owl"]),
        ("hybrid", {"alpha": 1.0}, ["lion", "cub", "tiger"]),
        ("hybrid", {"alpha": 0.0, "query_str": "owl", "similarity_top_k": 1}, ["owl"]),
        ("hybrid", {"hybrid_top_k": 2, "sparse_top_k": 4}, ["lion", "cub"]),
        ("mmr", {"kwargs": {"mmr_threshold": 1.0}}, ["lion", "cub", "tiger"]),
    ):
        assert asked(animals, mode, **options) == expected, (mode, options)
    # MMR gives unlike nodes.
    for options in ({"kwargs": {"mmr_threshold": 0.3}}, {"mmr_threshold": 0.3}):
        first, *others = asked(animals, "mmr", **options)
        assert (first, sorted(others)) == ("lion", ["eagle", "owl"])
    for mode, options, message in (
        ("mmr", {"kwargs": {"mmr_threshold": 2}}, "mmr_threshold"),
        ("semantic_hybrid", {}, "rerank=True needs a reranker"),
        ("default", {"embedding_field": "e"}, "embedding_field"),
        ("default", {"output_fields": ["a"]}, "output_fields"),
        *((mode, {}, TRAINED.format(mode)) for mode in ("svm", "logistic_regression", "linear_regression")),
    ):
        with pytest.raises(ConfigurationError, match=message):
            asked(animals, mode, **options)


def test_scores_are_those_of_the_stage_that_ordered(animals, client):
    collection = client.collection("nodes")
    options = {"query_embedding": [1.0, 0.0, 0.0], "query_str": "lion grass", "similarity_top_k": 5}
    for mode, name, searched in (
        ("default", "vector_score", {"vector": [1.0, 0.0, 0.0], "mode": "vector"}),
        ("sparse", "keyword_score", {"query": "lion grass", "mode": "keyword"}),
        ("hybrid", "fused_score", {"query": "lion grass", "vector": [1.0, 0.0, 0.0], "mode": "hybrid"}),
    ):
        result = animals.query(VectorStoreQuery(mode=VectorStoreQueryMode(mode), **options))
        hits = collection.search(top_k=5, rerank=False, **searched)
        assert result.similarities == [getattr(hit, name) for hit in hits], mode
        assert result.similarities == sorted(result.similarities, reverse=True)


def test_semantic_hybrid_reranks(animals, database_url):
    mode = VectorStoreQueryMode.SEMANTIC_HYBRID
    query = VectorStoreQuery(query_embedding=[0.0, 1.0, 0.0], query_str="owl day", mode=mode, similarity_top_k=2)
    with connect_sync(database_url, "none", TermOverlapReranker()) as other:
        result = SemlexVectorStore(other.collection("nodes")).query(query)
    assert result.ids[0] == "owl"
    assert result.similarities == sorted(result.similarities, reverse=True)


def test_a_query_is_bounded_by_ids_documents_and_filters(animals):
    year = MetadataFilters(filters=[MetadataFilter(key="year", value=2000, operator=FilterOperator.GT)])
    assert asked(animals, node_ids=["owl", "tiger", "none"]) == ["tiger", "owl"]
    assert set(asked(animals, doc_ids=["birds"])) == {"eagle", "owl"}
    assert asked(animals, filters=year) == ["tiger", "eagle"]
    assert asked(animals, filters=year, doc_ids=["birds"], node_ids=["owl", "eagle"]) == ["eagle"]
    assert asked(animals, "hybrid", filters=year, doc_ids=["cats"]) == ["tiger"]
    assert asked(animals, node_ids=[]) == ["lion", "cub", "tiger"]  # so says an index that keeps no list of nodes
    assert asked(animals, doc_ids=[]) == []


def test_nodes_are_read_and_deleted(animals):
    assert [one.node_id for one in animals.get_nodes(["owl", "none", "lion"])] == ["owl", "lion"]
    assert [one.node_id for one in animals.get_nodes(["owl", "lion"], CATS)] == ["lion"]
    assert {one.node_id for one in animals.get_nodes(filters=CATS)} == {"lion", "tiger", "cub"}
    animals.delete_nodes(["owl", "lion"], CATS)
    assert {one.node_id for one in animals.get_nodes()} == {"tiger", "cub", "eagle", "owl"}
    animals.delete_nodes([])
    animals.delete_nodes(["owl", "none"])
    animals.delete("cats")
    animals.delete("none")
    assert [one.node_id for one in animals.get_nodes()] == ["eagle"]
    with pytest.raises(ConfigurationError):
        animals.delete_nodes()
    animals.clear()
    assert animals.get_nodes() == []
    assert asked(animals) == []


def test_an_empty_store_finds_nothing(store):
    assert [asked(store, mode) for mode in ("default", "text_search", "hybrid", "mmr")] == [[]] * 4
    store.delete("x")
    store.clear()


async def test_the_asynchronous_twins_do_the_same_also_in_the_application_s_own_loop(store, database_url):
    assert await store.async_add(ANIMALS) == [one.node_id for one in ANIMALS]
    query = VectorStoreQuery(query_embedding=[1.0, 0.0, 0.0], similarity_top_k=3)
    assert (await store.aquery(query)).ids == ["lion", "cub", "tiger"] == store.query(query).ids
    assert [one.node_id for one in await store.aget_nodes(["owl"])] == ["owl"]
    await store.adelete_nodes(["owl"])
    await store.adelete("cats")
    assert await store.aget_nodes(filters=CATS) == []
    await store.aclear()
    assert await store.aget_nodes() == []
    async with connect(database_url, "none") as client:
        store = SemlexVectorStore(client.collection("own"))
        await store.async_add(ANIMALS[:1])
        assert (await store.aquery(query)).ids == ["lion"]
        with pytest.raises(ConfigurationError, match="connect_sync"):
            store.query(query)


async def test_a_loop_goes_on_while_a_twin_waits(animals, database_url):
    """The calls of several tasks overlap, and a task that is cancelled leaves the store as it is."""
    query = VectorStoreQuery(query_embedding=[1.0, 0.0, 0.0], similarity_top_k=1)
    with held(database_url, "semlex.nodes_chunk") as lock:
        waiting = [asyncio.create_task(animals.aquery(query)) for _ in range(5)]
        await asyncio.to_thread(until_waiting, lock, 2)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
    assert [one.ids for one in await asyncio.gather(*waiting[1:])] == [["lion"]] * 4
    assert (await animals.aquery(query)).ids == ["lion"]


def test_documents_of_an_imported_table_are_found_and_deleted(client, tmp_path):
    """An import puts what a node was cut out of into `parent_id`, and keeps nothing else of a node."""
    collection = client.collection("nodes")
    texts = {"a lion": "cats", "a tiger": "cats", "an owl": "birds", "a whale": None}
    imported = [SemlexDocument(text, id=f"{n}", parent_id=of) for n, (text, of) in enumerate(texts.items(), 1)]
    collection.add_documents(imported, [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.5, 0.5]])
    store = SemlexVectorStore(collection)
    nodes = {one.node_id: one.ref_doc_id for one in store.get_nodes()}
    assert nodes == {"1": "cats", "2": "cats", "3": "birds", "4": None}
    assert asked(store, query_embedding=[1.0, 0.0], doc_ids=["cats"]) == ["1", "2"]
    store.add(store.get_nodes(["1"]))  # as a node from now on
    store.delete("cats")
    assert {one.node_id for one in store.get_nodes()} == {"3", "4"}
    # The part of a chunk of a file is another chunk, no document.
    (tmp_path / "keys.md").write_text("# Keys\n\n" + "Keys turn. " * 60 + "\n\n## Old\n\n" + "Old keys. " * 60)
    collection.index(tmp_path, chunk_tokens=64, min_tokens=0)
    parts = [one for one in collection.list_chunks("exists @source_document") if one.parent_id]
    assert parts
    assert [one.ref_doc_id for one in store.get_nodes([parts[0].id])] == [None]
    store.delete(str(parts[0].parent_id))
    assert len(collection.get([one.id for one in parts])) == len(parts)


def test_nothing_is_deleted_by_a_filter_without_conditions(animals):
    for nothing in (
        MetadataFilters(filters=[]),
        MetadataFilters(filters=[], condition="not"),
        MetadataFilters(filters=[MetadataFilters(filters=[])]),
        MetadataFilters(filters=[MetadataFilter(key="kind", value="cat"), MetadataFilters(filters=[])], condition="or"),
        MetadataFilters(filters=[MetadataFilter(key="kind", value=[], operator=FilterOperator.NIN)]),
    ):
        with pytest.raises(ValidationError, match=r"clear\(\) deletes all nodes"):
            animals.delete_nodes(filters=nothing)
        assert len(animals.get_nodes()) == len(ANIMALS), nothing
    animals.delete_nodes(["lion"], MetadataFilters(filters=[]))
    assert len(animals.get_nodes()) == len(ANIMALS) - 1


def test_chunks_of_files_are_read_by_id_and_filter(animals, tmp_path):
    (tmp_path / "cats.md").write_text("# Cats\n\nA cat sleeps.\n")
    animals.client.index(tmp_path)
    (chunk,) = animals.client.list_chunks("exists @source_document")
    here = MetadataFilters(filters=[MetadataFilter(key="@source_document", value="cats.md")])
    assert [one.node_id for one in animals.get_nodes(["lion", chunk.id], here)] == [chunk.id]
    assert [one.node_id for one in animals.get_nodes([chunk.id, "lion"], CATS)] == ["lion"]
    assert animals.get_nodes(["none"], CATS) == animals.get_nodes([], CATS) == []
    animals.delete_nodes([chunk.id, "lion"], here)
    assert len(animals.get_nodes()) == len(ANIMALS)


class Bare(DocumentRetriever):
    """A fallback of a user's, whose documents have no scores."""

    async def search(self, query, top_k=5, filters=None):
        return [SemlexDocument("from elsewhere", id="own")]

    async def add_documents(self, documents):
        raise NotImplementedError


async def test_hits_of_a_fallback_may_have_no_score(database_url):
    with SyncRetriever(database_url, "none", fallback=Bare()) as retriever:
        assert [(one.node_id, one.score) for one in SemlexRetriever(retriever).retrieve("lion")] == [("own", None)]
        store = SemlexVectorStore(retriever)
        query = VectorStoreQuery(query_str="lion", mode=VectorStoreQueryMode.SPARSE)
        for found in (store.query(query), await store.aquery(query)):
            assert (found.ids, found.similarities) == (["own"], None)


async def test_a_query_bundle_has_its_own_terms(database_url, caplog):
    with connect_sync(database_url, HashEmbedder(32), use_reranking=False) as client:
        collection = client.collection("terms")
        texts = {
            "codes": "# Exit status\n\nThe runner ends with an exit status of 5 if it found nothing.",
            "build": "Each build is shown red or green, with its log.",
            "grass": "Grass grows beside the river.",
        }
        collection.add_texts(list(texts.values()), ids=list(texts))
        question, terms = "why is my build red", "exit status of the runner"
        own = QueryBundle(question, custom_embedding_strs=[question, terms])
        wanted = [(hit.id, hit.score) for hit in collection.search(question, terms=terms)]
        assert wanted[0][0] == "codes"
        for retriever in (SemlexRetriever(collection), SemlexRetriever(collection, terms="grass river")):
            for found in (retriever.retrieve(own), await retriever.aretrieve(own)):
                assert [(one.node_id, one.score) for one in found] == wanted
        plain = SemlexRetriever(collection, terms="grass river")
        assert plain.retrieve(question)[0].node_id != plain.retrieve(own)[0].node_id
        empty = QueryBundle(question, custom_embedding_strs=[question])
        assert plain.retrieve(empty)[0].node_id == "build"
        model = Fixed(embed_dim=32)
        assert SemlexRetriever(collection, embed_model=model).retrieve(own)[0].node_id == "build"
        assert model.asked == [question, terms]
        passage = "The runner — it ends with an exit status. " * 50  # as HyDE has it written
        long = QueryBundle(question, custom_embedding_strs=[passage, question])
        assert SemlexRetriever(collection).retrieve(long)[0].node_id == "codes"
        assert "only the first 1,024 are used" in caplog.text


class Fixed(MockEmbedding):
    """One vector for every query, and what was embedded."""

    asked: list[str] = Field(default_factory=list)

    def _get_query_embedding(self, query):
        self.asked.append(query)
        return HashEmbedder(32).embed_query("each build is shown red").tolist()
