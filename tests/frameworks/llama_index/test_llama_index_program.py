"""A program after LlamaIndex's own pages, with its store in memory and with a collection in its place."""

from __future__ import annotations

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from semlex import connect, connect_sync
from semlex.errors import ConfigurationError
from semlex.integrations.llama_index import SemlexRetriever, SemlexVectorStore
from tests.frameworks.llama_index.essays_program import DOCUMENTS, WordEmbedding, run


def test_the_program_says_the_same_with_both_stores(client):
    expected = run(SimpleVectorStore())
    assert expected["filtered"]
    assert expected["changed"] == [("cubs", "A lion cub will sleep in the grass.")]
    assert run(SemlexVectorStore(client.collection("essays"))) == expected


def test_an_index_is_found_again_over_what_is_stored(database_url, client):
    run(SemlexVectorStore(client.collection("essays")))
    with connect_sync(database_url, "none") as later:
        store = SemlexVectorStore(later.collection("essays"))
        index = VectorStoreIndex.from_vector_store(store, embed_model=WordEmbedding())
        assert index.as_retriever(similarity_top_k=1).retrieve("owl night")[0].node.ref_doc_id == "owls"
        hybrid = index.as_retriever(
            vector_store_query_mode="hybrid",
            alpha=0.3,
            similarity_top_k=2,
            vector_store_kwargs={"tuning": {"candidates": 50}},
        )
        assert isinstance(hybrid, VectorIndexRetriever)
        assert hybrid.retrieve("cub")[0].node.ref_doc_id == "cubs"
        words = index.as_retriever(vector_store_query_mode="text_search", similarity_top_k=2)
        assert [one.node.ref_doc_id for one in words.retrieve("cub")] == ["cubs"]


async def test_an_index_is_built_and_asked_on_a_loop(database_url):
    async with connect(database_url, "none") as client:
        store = SemlexVectorStore(client.collection("essays"))
        index = VectorStoreIndex.from_vector_store(store, embed_model=WordEmbedding(), use_async=True)
        for document in DOCUMENTS:
            await index.ainsert(document)
        found = await index.as_retriever(similarity_top_k=1).aretrieve("owl night")
        assert [one.node.ref_doc_id for one in found] == ["owls"]
        await index.adelete_ref_doc("owls")
        found = await index.as_retriever(similarity_top_k=1).aretrieve("owl night")
        assert [one.node.ref_doc_id for one in found] != ["owls"]


def test_the_retriever_searches_by_both_legs(client):
    collection = client.collection("essays")
    run(SemlexVectorStore(collection))
    retriever = SemlexRetriever(collection, 2, embed_model=WordEmbedding())
    found = retriever.retrieve("eagle sky")
    hits = collection.search("eagle sky", 2, vector=WordEmbedding().get_query_embedding("eagle sky"))
    assert [(one.node.node_id, one.score) for one in found] == [(hit.id, hit.fused_score) for hit in hits]
    assert found[0].node.ref_doc_id == "eagles"
    given = QueryBundle("sky", embedding=WordEmbedding().get_query_embedding("owl"))
    by_vectors = SemlexRetriever(collection, 1, mode="vector").retrieve(given)
    assert [one.node.ref_doc_id for one in by_vectors] == ["owls"]
    cats = MetadataFilters(filters=[MetadataFilter(key="kind", value="cat")])
    for filters in (cats, {"kind": "cat"}, 'kind == "cat"'):
        only = SemlexRetriever(collection, mode="keyword", filters=filters).retrieve("eagle lion grass")
        assert {one.node.metadata["kind"] for one in only} == {"cat"}
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    assert "eagle" in str(engine.query("eagle sky"))
    with pytest.raises(ConfigurationError, match="weights"):
        SemlexRetriever(collection, weights={"sound": 1}).retrieve("eagle")


async def test_the_retriever_awaits(database_url, client):
    run(SemlexVectorStore(client.collection("essays")))
    retriever = SemlexRetriever(client.collection("essays"), 1, embed_model=WordEmbedding())
    found = await retriever.aretrieve("owl night")
    assert found == retriever.retrieve("owl night")
    async with connect(database_url, "none") as own:
        assert (
            await SemlexRetriever(own.collection("essays"), 1, embed_model=WordEmbedding()).aretrieve("owl night")
            == found
        )


def test_files_that_semlex_has_read_say_where_they_stand(database_url, tmp_path):
    """With a model of semlex's own: neither the index nor the retriever needs one of LlamaIndex."""
    (tmp_path / "keys.md").write_text("# Keys\n\nKeys are rotated yearly.\n", encoding="utf-8")
    with connect_sync(database_url, "static") as client:
        collection = client.collection("handbook")
        collection.index(tmp_path, source="docs")
        found = SemlexRetriever(collection).retrieve("how are keys rotated?")
    assert found[0].node.metadata["source_document"] == "keys.md"
    assert found[0].node.metadata["heading_path"] == ["Keys"]
    assert found[0].node.metadata["line"] == 1
